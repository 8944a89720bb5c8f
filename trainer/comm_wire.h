/* One message each way between two processes. Private to comm*.c. */
#ifndef NP_COMM_WIRE_H
#define NP_COMM_WIRE_H

#include <stddef.h>
#include <stdint.h>

enum np_message {
    NP_MESSAGE_ABORT = 0x6e70,
    NP_MESSAGE_SUM,
    NP_MESSAGE_GATHER,
    NP_MESSAGE_BROADCAST,
    NP_MESSAGE_ANY,
    NP_MESSAGE_JOIN
};

struct np_head { /* before each message; bytes: of what follows */
    uint32_t kind;
    int32_t code;  /* of an abort */
    uint64_t call; /* the number of the call: it and its kind must be the same at both ends */
    uint64_t bytes;
};

/* Sends a message with this head, and receives one of the same kind and call with nr_recv bytes. Blocks
 * until both are done. 1: the other one has another head, which is in *ret_other; what follows it is not
 * read. -ECONNRESET: the other end is closed. */
int np_wire_exchange(int fd, const struct np_head *head, const void *send, void *recv,
    size_t nr_recv, struct np_head *ret_other);

#endif
