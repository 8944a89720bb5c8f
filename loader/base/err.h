/* Errors. A function that can fail returns 0 or a negative errno, and fills a struct np_err where
 * the error happened; callers may put context before the text. The first error wins: np_err_set()
 * does not change a filled one. err may be NULL everywhere. Any thread; an err or report belongs to
 * one thread at a time. */
#ifndef NP_ERR_H
#define NP_ERR_H

#include <stdbool.h>
#include <stddef.h>

struct np_err {
    int code;         /* 0: none; else a negative errno */
    int line, column; /* in a config file, 1-based; 0: not known */
    char file[256];   /* config file, or empty */
    char text[768];   /* one sentence, without newline; names file or record */
};

/* Fills err unless it is filled already. Always returns code. */
int np_err_set(struct np_err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Puts "context: " before the text of a filled err. Returns err's code. */
int np_err_context(struct np_err *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "file:line:column: text" or "text". */
void np_err_format(const struct np_err *err, char *text, size_t text_bytes);

/* Replaces with '?' the characters that move a terminal's cursor, begin a line or change the
 * direction of writing (control characters of ASCII and Unicode). For names from files and
 * archives; the text of an np_err is clean already. */
void np_text_clean(char *text);
/* Replaces by dots what may be secret in the http URLs of a text: what is behind '?' (signatures and
 * tokens), and a user with password. The text of an np_err has none already. */
void np_text_hide(char *text);
bool np_text_has_secret(const char *text); /* would np_text_hide() change it? */
/* As np_text_clean(), for nr bytes of a log, NUL included; keeps lines and tabs. Returns the number of clean
 * bytes: unless is_end, it leaves the bytes of a truncated letter at the end for the next call. */
size_t np_text_clean_log(char *bytes, size_t nr, bool is_end);
/* The first such character of a text, with its number of bytes; NULL: none. */
const char *np_text_control(const char *text, size_t *ret_bytes);

/* n times this is added to the lines of the n-th base of a config (the nearest is 1). */
#define NP_LINE_FILE (1 << 21)

/* All mistakes of one input, in the order found. Keeps the first 100 and counts the rest. */
struct np_report {
    const char *file; /* borrowed; the file of each error */
    const char *const
        *files; /* borrowed: the bases, by NP_LINE_FILE; NULL: all lines are of file */
    struct np_err *errs;
    int nr_errs, nr_dropped;
    bool no_memory; /* mistakes may be missing, and values */
};

void np_report_init(struct np_report *report, const char *file);
/* Returns -EINVAL. */
int np_report_add(struct np_report *report, int line, int column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds "out of memory" and sets no_memory. Returns -ENOMEM. */
int np_report_no_memory(struct np_report *report);
/* Adds a mistake of another report, which keeps its place. */
void np_report_take(struct np_report *report, const struct np_err *err);
void np_report_sort(struct np_report *report); /* by file (its own file first), line, column */
void np_report_fini(struct np_report *report);

#endif
