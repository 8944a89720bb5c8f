/* Text: numbers, characters, lists of CPUs, and the user's folders. Any thread, any locale. */
#ifndef NP_TEXT_H
#define NP_TEXT_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a text that is one number from min to max, without blanks; a real is not hexadecimal, inf
 * or nan. False: *ret_value is unchanged. */
bool np_text_int(const char *text, int64_t min, int64_t max, int64_t *ret_value);
bool np_text_real(const char *text, double min, double max, double *ret_value);
/* Reads the number at the start of text and returns the rest. NULL: no number, or too large. */
const char *np_text_int_end(const char *text, int64_t *ret_value);
const char *np_text_real_end(const char *text, double *ret_value);

#define NP_REAL_TEXT 32
/* The shortest text that np_text_real() reads as the same value. */
void np_text_of_real(double value, char text[NP_REAL_TEXT]);

/* Number of bytes of the UTF-8 character at text; 0: not UTF-8 (RFC 3629: no surrogates, no
 * overlong forms). */
int np_text_utf8(const char *text);
bool np_text_is_utf8(const char *text);
/* Copies text for messages: bytes that are not UTF-8 become \xe9. Truncates to out_bytes (at least
 * 6). */
void np_text_escape(const char *text, char *out, size_t out_bytes);
/* Columns on a terminal: the number of characters. */
int np_text_columns(const char *text);

/* Number of CPUs in a list such as "0-3,8,10-11" that are in allowed (NULL: all). -1: not a
 * list. */
int np_text_cpus(const char *list, const cpu_set_t *allowed);

/* "$variable/name", or "$HOME/below/name" if the variable is not an absolute path: np_xdg_folder(
 * "XDG_CACHE_HOME", ".cache", "nnpipe"). np_free. NULL: HOME is not set, or out of memory. */
char *np_xdg_folder(const char *variable, const char *below, const char *name);

#endif
