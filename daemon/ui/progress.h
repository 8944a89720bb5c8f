/* The output of a run: a live line on a terminal, plain lines in a pipe. With --json standard
 * output has only JSON lines, and text goes to standard error. A closed pipe ends the output,
 * never the run. Main thread; np_ui_say() and np_ui_warn() any. */
#ifndef NP_PROGRESS_H
#define NP_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/ui/progress_fields.h"

struct np_ui {
    bool json, live, colour, hushed; /* set once */
    FILE *text;                      /* set once: stdout, or stderr with --json */
    uint64_t last_ns;                /* main thread only: time of the last line */
    uint64_t listing_ns;             /* main thread only: time of the last line about a listing */
    struct np_json object;           /* main thread only: the event being written */
    pthread_mutex_t lock;
    bool drawn; /* under lock: the screen shows a live line */
};

void np_ui_init(struct np_ui *ui, bool json);
/* Prints nothing from now on. */
void np_ui_hush(struct np_ui *ui);
void np_ui_fini(struct np_ui *ui);
void np_ui_say(struct np_ui *ui, const char *format, ...) __attribute__((format(printf, 2, 3)));
void np_ui_note(void *ui, const char *text); /* np_ui_say() as a function for notes */
/* Prints a warning to standard error. */
void np_ui_warn(struct np_ui *ui, const char *text);
/* Redraws the live line at most ten times a second; in a pipe, prints a line every ten seconds. */
void np_ui_progress(struct np_ui *ui, const struct np_progress *progress);
/* Shows the number of samples found so far while a set is listed: like np_ui_progress(); in a
 * pipe only after ten seconds. context: the np_ui. */
void np_ui_listing(void *context, const char *path, uint64_t samples);
/* Prints a finished JSON line, with --json only. */
void np_ui_event(struct np_ui *ui, const char *line);
/* Prints an error to standard error, and as an `error` event with --json. */
void np_ui_error(struct np_ui *ui, const struct np_err *err);
/* Writes the live line: at most width columns, no colour, no newline. */
void np_progress_text(const struct np_progress *progress, int width, char *text, size_t text_bytes);
/* 75 -> "1:15", 4000 -> "1:06:40". */
void np_duration_text(double seconds, char *text, size_t text_bytes);

#endif
