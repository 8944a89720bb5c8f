/* What processes tell each other while the trainer thread computes or waits for storage: that one was
 * told to stop, or that one has ended. A second connection beside each of comm.c's, and a thread that
 * reads it and hands the news on. Private to comm.c. */
#ifndef NP_COMM_LINE_H
#define NP_COMM_LINE_H

#include "trainer/comm_meet.h"

struct np_line;

/* links: (nr), whose `line` it takes over; they live as long as the line. ended: of comm_wire.h, when a
 * process is gone. -EAGAIN, -EMFILE: no thread. */
int np_line_new(
    const struct np_link *links, int nr, int ended, struct np_line **ret_line, struct np_err *err);
/* Says good-bye, and closes the connections. NULL works. */
void np_line_free(struct np_line *line);
/* As np_comm_listen(), np_comm_ask_stop() and np_comm_heard(). */
void np_line_listen(struct np_line *line, np_comm_news_fn news, void *context);
void np_line_ask_stop(struct np_line *line);
int np_line_heard(struct np_line *line, struct np_err *err);
/* This process takes no more part in any exchange, and why. Any thread. */
void np_line_end(struct np_line *line, int code, const char *text);

#endif
