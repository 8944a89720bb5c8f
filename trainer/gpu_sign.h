/* Does this machine seem to have an NVIDIA GPU? Asked where none can be used, so that `device: auto`
 * does not take the CPU of a GPU machine without a word. Trainer thread, at start. */
#ifndef NP_GPU_SIGN_H
#define NP_GPU_SIGN_H

#include <stdbool.h>
#include <stddef.h>

/* True: text says what was seen ("/dev/nvidia0 is there"). It may load the driver's library, which
 * then stays loaded, and may take as long as the driver takes to start. */
bool np_gpu_sign(char *text, size_t text_bytes);

#endif
