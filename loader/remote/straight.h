/* Ranges that go straight from a socket into the caller's memory. libcurl makes the connections (names,
 * TLS, time limits); the request and the header of the answer are of this file, which knows one kind
 * of answer: "206" with a Content-Length, and refusals, of which it reads short texts. After any other
 * answer libcurl makes the whole request again, as it makes those that are not for ranges, need a proxy or follow redirects;
 * after a few such answers it makes all of them. */
#ifndef NP_STRAIGHT_H
#define NP_STRAIGHT_H

#include "loader/remote/web.h"

struct np_straight; /* one thread */

/* max: calls in flight. NULL: out of memory, or libcurl cannot start. */
struct np_straight *np_straight_new(int max, struct np_err *err);
/* Cancels what is in flight. NULL: nothing. */
void np_straight_free(struct np_straight *straight);
/* As np_web_begin(), ..._cancel(), ..._turn() and ..._wait(), for all calls of the thread. Only calls with
 * room() go straight. */
int np_straight_begin(struct np_straight *straight, struct np_web_call *call);
void np_straight_cancel(struct np_straight *straight, struct np_web_call *call);
struct np_web_call *np_straight_turn(struct np_straight *straight);
/* extra_fd: as well until it is readable; -1: none. */
void np_straight_wait(struct np_straight *straight, int extra_fd, int timeout_ms);

#endif
