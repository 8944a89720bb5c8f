/* The version of the program and of libnnpipe. */
#ifndef NP_VERSION_H
#define NP_VERSION_H

#define NP_VERSION "0.1"

#endif
