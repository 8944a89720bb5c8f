/* A terminal that is drawn whole, again and again, without a flicker; and what is typed into it. Main thread. */
#ifndef NP_TERMINAL_H
#define NP_TERMINAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <termios.h>

#include "loader/base/err.h"

/* Of a terminal; 0: it is none, and lines may be of any length. */
int np_terminal_columns(int fd);
/* It is a terminal, and NO_COLOR does not forbid it. */
bool np_terminal_colour(int fd);

enum np_key { NP_KEY_NONE, NP_KEY_END = 256, NP_KEY_UP, NP_KEY_DOWN, NP_KEY_SIZE, NP_KEY_ESCAPE };

struct np_terminal {
    int columns, lines; /* as of the frame under way */
    struct termios before;
    bool keyboard;
    int signal_fd;
    sigset_t mask; /* of before */
    FILE *frame;
    char *text; /* of the frame; free() */
    size_t bytes;
};
/* Takes the terminal of standard output over, and SIGINT, SIGTERM, SIGHUP and SIGWINCH with it. */
int np_terminal_open(struct np_terminal *screen, struct np_err *err);
void np_terminal_close(struct np_terminal *screen); /* all is as before */
/* A frame is written into what this returns (NULL: no memory), then shown; lines and columns beyond the
 * terminal's are cut. bottom: its last line. -EPIPE: nobody sees it any more. */
FILE *np_terminal_begin(struct np_terminal *screen);
int np_terminal_show(struct np_terminal *screen, const char *bottom);
/* What is typed within so many ms: a character, an np_key; NP_KEY_END: a signal wants it to end;
 * NP_KEY_SIZE: the terminal has another size. */
int np_terminal_key(struct np_terminal *screen, int ms);

#endif
