/* A full-screen terminal: draws frames without flicker, reads keys. Main thread. */
#ifndef NP_TERMINAL_H
#define NP_TERMINAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <termios.h>

#include "loader/base/err.h"

/* The width of a terminal; 0: not a terminal, lines may have any length. */
int np_terminal_columns(int fd);
/* Is it a terminal, with NO_COLOR not set? */
bool np_terminal_colour(int fd);

enum np_key { NP_KEY_NONE, NP_KEY_END = 256, NP_KEY_UP, NP_KEY_DOWN, NP_KEY_SIZE, NP_KEY_ESCAPE };

struct np_terminal {
    int columns, lines; /* of the current frame */
    struct termios before;
    bool keyboard;
    int signal_fd;
    sigset_t mask; /* before np_terminal_open() */
    FILE *frame;
    char *text; /* of the frame; free() it */
    size_t bytes;
};
/* Takes over the terminal of standard output, and SIGINT, SIGTERM, SIGHUP and SIGWINCH. */
int np_terminal_open(struct np_terminal *screen, struct np_err *err);
void np_terminal_close(struct np_terminal *screen); /* restores terminal and signals */
/* Begins a frame: the caller writes it to the returned file (NULL: out of memory), then shows
 * it; lines and columns beyond the terminal's are cut. bottom: the last line. -EPIPE: the
 * terminal is closed. */
FILE *np_terminal_begin(struct np_terminal *screen);
int np_terminal_show(struct np_terminal *screen, const char *bottom);
/* Waits that many ms for a key: a character or an np_key. NP_KEY_END: a signal asks to end;
 * NP_KEY_SIZE: the terminal's size has changed. */
int np_terminal_key(struct np_terminal *screen, int ms);

#endif
