/* The table of loader/base/remote.h over HTTP. */
#ifndef NP_REMOTE_HTTP_H
#define NP_REMOTE_HTTP_H

#include "loader/base/remote.h"

extern const struct np_remote_table np_remote_http;

/* As np_remote_table.open_io; io_http.c. */
int np_io_http_open(struct np_io *io, const char *local, int depth,
    const struct np_remote_session *session, struct np_err *err);

#endif
