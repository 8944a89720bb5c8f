#include "loader/base/text.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"

#define MAX_CPU (1 << 20)

/* --- numbers ----------------------------------------------------------------------------- */

const char *np_text_int_end(const char *text, int64_t *ret_value)
{
    const bool negative = *text == '-';
    int64_t value = 0;

    text += *text == '-' || *text == '+';
    if (!isdigit((unsigned char)*text))
        return NULL;
    for (; isdigit((unsigned char)*text); text++) {
        const int digit = *text - '0';

        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, negative ? -digit : digit, &value))
            return NULL;
    }
    *ret_value = value;
    return text;
}

const char *np_text_real_end(const char *text, double *ret_value)
{
    const char *digits = text + (*text == '-' || *text == '+');
    char *end;
    double value;

    digits += *digits == '.';
    if (!isdigit((unsigned char)*digits))
        return NULL;
    /* glibc returns the same static object each time. */
    value = strtod_l(text, &end, newlocale(LC_ALL_MASK, "C", (locale_t)0));
    if (!isfinite(value) || memchr(text, 'x', (size_t)(end - text)) ||
        memchr(text, 'X', (size_t)(end - text)))
        return NULL;
    *ret_value = value;
    return end;
}

bool np_text_int(const char *text, int64_t min, int64_t max, int64_t *ret_value)
{
    int64_t value;
    const char *end = np_text_int_end(text, &value);

    if (!end || *end || value < min || value > max)
        return false;
    *ret_value = value;
    return true;
}

bool np_text_real(const char *text, double min, double max, double *ret_value)
{
    double value;
    const char *end = np_text_real_end(text, &value);

    if (!end || *end || !(value >= min && value <= max))
        return false;
    *ret_value = value;
    return true;
}

void np_text_of_real(double value, char text[NP_REAL_TEXT])
{
    double back;

    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, NP_REAL_TEXT, "%.*g", digits, value);
        if (np_text_real(text, -INFINITY, INFINITY, &back) && back == value)
            return;
    }
}

/* --- characters -------------------------------------------------------------------------- */

int np_text_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    const int n = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;

    if (at[0] < 0x80)
        return 1;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    for (int i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return n;
}

bool np_text_is_utf8(const char *text)
{
    for (int n; *text; text += n)
        if ((n = np_text_utf8(text)) == 0)
            return false;
    return true;
}

void np_text_escape(const char *text, char *out, size_t out_bytes)
{
    size_t used = 0;

    for (int n; *text && used + 5 < out_bytes; text += n) {
        n = np_text_utf8(text);
        if (n == 0) {
            used += (size_t)snprintf(out + used, 5, "\\x%02x", (unsigned char)*text);
            n = 1;
        } else {
            memcpy(out + used, text, (size_t)n);
            used += (size_t)n;
        }
    }
    out[used] = '\0';
}

int np_text_columns(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* --- lists and folders ------------------------------------------------------------------- */

int np_text_cpus(const char *list, const cpu_set_t *allowed)
{
    int64_t from, to, n = 0;

    while (isdigit((unsigned char)*list)) {
        list = np_text_int_end(list, &from);
        to = from;
        if (list && *list == '-')
            list = np_text_int_end(list + 1, &to);
        if (!list || to < from || to >= MAX_CPU)
            return -1;
        if (!allowed)
            n += to - from + 1;
        for (int64_t cpu = from; allowed && cpu <= to && cpu < CPU_SETSIZE; cpu++)
            n += CPU_ISSET((size_t)cpu, allowed) != 0;
        list += *list == ',';
    }
    return *list || n > MAX_CPU ? -1 : (int)n;
}

char *np_xdg_folder(const char *variable, const char *below, const char *name)
{
    const char *folder = getenv(variable), *home = getenv("HOME");

    if (folder && *folder == '/')
        return np_try_format(NULL, "%s/%s", folder, name);
    return home && *home ? np_try_format(NULL, "%s/%s/%s", home, below, name) : NULL;
}
