/* Text: numbers in it, its characters, lists of CPUs, and the user's folders. Any thread; the locale
 * changes nothing. */
#ifndef NP_TEXT_H
#define NP_TEXT_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole text is a number, from min to max. No blanks, and for reals neither hexadecimal nor inf or nan. False: it
 * is not, and *ret_value is as it was. */
bool np_text_int(const char *text, int64_t min, int64_t max, int64_t *ret_value);
bool np_text_real(const char *text, double min, double max, double *ret_value);
/* The number that text begins with; returns what follows it. NULL: there is none, or it is too large. */
const char *np_text_int_end(const char *text, int64_t *ret_value);
const char *np_text_real_end(const char *text, double *ret_value);

#define NP_REAL_TEXT 32
/* The shortest text that np_text_real() reads as the same value. */
void np_text_of_real(double value, char text[NP_REAL_TEXT]);

/* Bytes of the UTF-8 character at text, 0 if it is none (RFC 3629: no surrogates, no overlong forms). */
int np_text_utf8(const char *text);
/* What JSON and YAML can hold. */
bool np_text_is_utf8(const char *text);
/* For people: bytes that are no UTF-8 become \xe9; cut where out (of at least 6 bytes) is full. */
void np_text_escape(const char *text, char *out, size_t out_bytes);
/* Columns that UTF-8 takes on a terminal: its characters, each taken to be one wide. */
int np_text_columns(const char *text);

/* How many CPUs "0-3,8,10-11" names, of allowed (NULL: of all). -1: not such a list. */
int np_text_cpus(const char *list, const cpu_set_t *allowed);

/* "$variable/name", or "$HOME/below/name" where the variable names no absolute path: np_xdg_folder(
 * "XDG_CACHE_HOME", ".cache", "nnpipe"). np_free. NULL: HOME is not set either, or out of memory. */
char *np_xdg_folder(const char *variable, const char *below, const char *name);

#endif
