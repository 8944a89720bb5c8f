/* One message each way between two processes. Private to comm*.c. */
#ifndef NP_COMM_WIRE_H
#define NP_COMM_WIRE_H

#include <stdbool.h>
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

struct np_wire {
    int fd;
    int ended; /* an eventfd, which ends all waits at all wires of a process; -1: none */
};
void np_wire_end(int ended); /* any thread */
bool np_wire_ended(int ended);
/* Sends a message with this head, and receives one of the same kind and call with nr_recv bytes. Blocks
 * until both are done. 1: the other one has another head, which is in *ret_other; what follows it is not
 * read. -ECONNRESET: the other end is closed, or the wait was ended: another process is gone, for which
 * the one at the other end may wait. */
int np_wire_exchange(struct np_wire wire, const struct np_head *head, const void *send, void *recv,
    size_t nr_recv, struct np_head *ret_other);

#endif
