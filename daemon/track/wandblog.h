/* The file run-ID.wandb that `wandb sync` reads: a header of 7 bytes, then a log in the format of
 * LevelDB (doc/log_format.md of github.com/google/leveldb), with the CRC-32 of zlib, of protobuf
 * messages (wandb_internal.proto of github.com/wandb/wandb). Pure; any thread. */
#ifndef NP_WANDBLOG_H
#define NP_WANDBLOG_H

#include "daemon/track/protobuf.h"

#define NP_WANDBLOG_HEAD 7 /* bytes of the header */

void np_wandblog_head(struct np_pb *out); /* begins a file */
/* Appends the fragments of a message, which begin at `offset` of the file, to `out`. */
void np_wandblog_put(struct np_pb *out, uint64_t offset, const struct np_pb *message);

/* Calls each(context, message, message_end, end) for the messages at the start of a file: end is
 * the offset behind the message. Stops when each() returns false, and where the file is truncated or
 * damaged. Returns the end of the last message for which each() was true; 0: not even the header. */
uint64_t np_wandblog_read(const uint8_t *bytes, uint64_t nr_bytes,
    bool (*each)(void *context, const uint8_t *message, const uint8_t *message_end), void *context);

#endif
