/* Both directions at once, so that two processes that send to each other never wait for each other. Any
 * thread, one for a connection. */
#include "trainer/comm_wire.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* What is left of a message: its head, then its body. */
struct piece {
    struct np_head head;
    char *body;
    size_t done, bytes; /* of head and body */
};

/* Moves what can be moved without waiting. Returns 0, or a negative errno. */
static int move(int fd, struct piece *piece, bool sends)
{
    while (piece->done < piece->bytes) {
        const bool in_head = piece->done < sizeof(piece->head);
        char *at = in_head ? (char *)&piece->head + piece->done
                           : piece->body + (piece->done - sizeof(piece->head));
        const size_t n = (in_head ? sizeof(piece->head) : piece->bytes) - piece->done;
        /* A head without a body must not wait for more. */
        const int more = in_head && piece->bytes > sizeof(piece->head) ? MSG_MORE : 0;
        const ssize_t moved = sends ? send(fd, at, n, MSG_DONTWAIT | MSG_NOSIGNAL | more)
                                    : recv(fd, at, n, MSG_DONTWAIT);

        if (moved < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (moved < 0)
            return -errno;
        if (moved == 0)
            return -ECONNRESET;
        piece->done += (size_t)moved;
        if (in_head && piece->done == sizeof(piece->head) && !sends)
            return 0; /* the caller looks at it */
    }
    return 0;
}

/* Has the head come whole, and is another one than was due? */
static bool is_other(const struct piece *in, const struct np_head *due)
{
    return in->done == sizeof(in->head) &&
           (in->head.kind != due->kind || in->head.call != due->call ||
               in->head.bytes != in->bytes - sizeof(in->head));
}

void np_wire_end(int ended)
{
    const uint64_t one = 1;
    const ssize_t written = write(ended, &one, sizeof(one));

    (void)written; /* cannot fail: it counts to 2^64 */
}

bool np_wire_ended(int ended)
{
    struct pollfd wait = {ended, POLLIN, 0};

    return poll(&wait, 1, 0) > 0;
}

int np_wire_exchange(struct np_wire wire, const struct np_head *head, const void *send_,
    void *recv_, size_t nr_recv, struct np_head *ret_other)
{
    struct piece out = {*head, (char *)send_, 0, sizeof(*head) + head->bytes};
    struct piece in = {{0}, recv_, 0, sizeof(*head) + nr_recv};

    while (out.done < out.bytes || in.done < in.bytes) {
        const bool head_was_in = in.done >= sizeof(in.head);
        int code = move(wire.fd, &out, true);

        if (code == -ECONNRESET || code == -EPIPE)
            out.done = out.bytes; /* the last words may still be there to read */
        else if (code < 0)
            return -ECONNRESET;
        if (in.done < in.bytes && move(wire.fd, &in, false) < 0)
            return -ECONNRESET;
        if (!head_was_in && is_other(&in, head)) {
            *ret_other = in.head;
            return 1;
        }
        if (!head_was_in && in.done == sizeof(in.head))
            continue;
        struct pollfd waits[] = {
            {wire.fd,
                (short)((out.done < out.bytes ? POLLOUT : 0) | (in.done < in.bytes ? POLLIN : 0)),
                0},
            {wire.ended, POLLIN, 0}};
        if (waits[0].events && poll(waits, 2, -1) > 0 && !waits[0].revents)
            return -ECONNRESET;
    }
    return 0;
}
