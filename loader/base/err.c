#include "loader/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_REPORTED 100

/* The code point of a letter of two or three bytes of UTF-8; 0: no such letter. */
static unsigned letter_at(const unsigned char *at)
{
    if ((at[0] & 0xe0) == 0xc0 && (at[1] & 0xc0) == 0x80)
        return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
    if ((at[0] & 0xf0) == 0xe0 && (at[1] & 0xc0) == 0x80 && (at[2] & 0xc0) == 0x80)
        return (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    return 0;
}

/* Number of bytes of the control character at text; 0: none. */
static size_t control_at(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    const unsigned letter = letter_at(at);

    if (*at < 0x20 || *at == 0x7f || (*at >= 0x80 && *at < 0xa0))
        return 1;
    if (letter >= 0x80 && letter < 0xa0)
        return 2;
    return (letter >= 0x202a && letter <= 0x202e) || (letter >= 0x2066 && letter <= 0x2069) ? 3 : 0;
}

/* Number of bytes of the letter at text; 1: not UTF-8. */
static size_t letter_bytes(const char *text)
{
    const unsigned char first = (unsigned char)*text;
    const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;

    for (size_t i = 1; i < bytes; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 1;
    return bytes;
}

const char *np_text_control(const char *text, size_t *ret_bytes)
{
    for (; *text; text += letter_bytes(text)) {
        const size_t bytes = control_at(text);

        if (bytes == 0)
            continue;
        *ret_bytes = bytes;
        return text;
    }
    return NULL;
}

void np_text_clean(char *text)
{
    size_t bytes;

    for (const char *at = text; (at = np_text_control(at, &bytes)); at += bytes)
        memset(text + (at - text), '?', bytes);
}

/* Number of bytes of a truncated letter at the end. */
static size_t cut_off(const char *bytes, size_t nr)
{
    for (size_t back = 1; back <= 3 && back <= nr; back++) {
        const unsigned char c = (unsigned char)bytes[nr - back];

        if (c >= 0xc0)
            return (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) > back ? back : 0;
        if (c < 0x80)
            return 0;
    }
    return 0;
}

size_t np_text_clean_log(char *bytes, size_t nr, bool is_end)
{
    const size_t whole = nr - (is_end ? 0 : cut_off(bytes, nr));
    size_t at = 0;

    while (at < whole) {
        char piece[5] = "";
        const size_t left = whole - at;

        memcpy(piece, bytes + at, left < 4 ? left : 4);
        const bool stays = *piece == '\n' || *piece == '\t';
        const size_t control = stays ? 0 : control_at(piece);

        memset(bytes + at, '?', control);
        at += control ? control : letter_bytes(piece);
    }
    return whole;
}

/* True for a text that is longer than none and not hidden yet. */
static bool is_secret(const char *from, const char *end)
{
    return from && end > from && strspn(from, ".") < (size_t)(end - from);
}

/* The '@' behind a user and password, which may have a '/' or '?' of their own: what stands behind a ':' there
 * is no port. NULL: there is none. */
static const char *find_user(const char *host, size_t host_bytes, size_t url_bytes)
{
    const char *colon = memchr(host, ':', host_bytes);
    const bool is_port =
        colon && strspn(colon + 1, "0123456789") == host_bytes - (size_t)(colon + 1 - host);

    return memrchr(host, '@', colon && !is_port ? url_bytes : host_bytes);
}

/* The next secret in the http URLs of a text; NULL: none is left. */
static const char *find_secret(const char *text, size_t *ret_bytes)
{
    for (const char *at = text; (at = strstr(at, "://")); at += 3) {
        const bool is_http = (at - text >= 4 && strncasecmp(at - 4, "http", 4) == 0) ||
                             (at - text >= 5 && strncasecmp(at - 5, "https", 5) == 0);
        const char *host = at + 3, *end = host + strcspn(host, " \t\n\"'<>`\\|^");

        while (end > host && strchr(".,:;)", end[-1])) /* of the sentence */
            end--;
        const size_t bytes = (size_t)(end - host), host_bytes = strcspn(host, "/?#");
        const char *user = find_user(host, host_bytes < bytes ? host_bytes : bytes, bytes);
        const char *query = memchr(host, '?', bytes);
        const bool has_user = user && is_secret(host, user);

        if (is_http && (has_user || (query && is_secret(query + 1, end)))) {
            *ret_bytes = (size_t)(has_user ? user - host : end - query - 1);
            return has_user ? host : query + 1;
        }
    }
    return NULL;
}

bool np_text_has_secret(const char *text)
{
    size_t bytes;

    return find_secret(text, &bytes) != NULL;
}

void np_text_hide(char *text)
{
    const char *at;
    size_t bytes;

    while ((at = find_secret(text, &bytes))) {
        char *from = text + (at - text);
        const size_t dots = bytes < 3 ? bytes : 3;

        memset(from, '.', dots);
        memmove(from + dots, from + bytes, strlen(from + bytes) + 1);
    }
}

static void print(char *text, size_t bytes, const char *format, va_list args)
{
    vsnprintf(text, bytes, format, args);
    np_text_clean(text);
    np_text_hide(text);
}

int np_err_set(struct np_err *err, int code, const char *format, ...)
{
    if (err && !err->code) {
        va_list args;

        va_start(args, format);
        memset(err, 0, sizeof(*err));
        err->code = code;
        print(err->text, sizeof(err->text), format, args);
        va_end(args);
    }
    return code;
}

int np_err_context(struct np_err *err, const char *format, ...)
{
    char text[sizeof(err->text)];
    va_list args;
    size_t used;

    if (!err || !err->code)
        return err ? err->code : 0;
    va_start(args, format);
    print(text, sizeof(text), format, args);
    va_end(args);
    used = strlen(text);
    snprintf(text + used, sizeof(text) - used, ": %s", err->text);
    memcpy(err->text, text, sizeof(text));
    return err->code;
}

void np_err_format(const struct np_err *err, char *text, size_t text_bytes)
{
    if (err->file[0] && err->line)
        snprintf(text, text_bytes, "%s:%d:%d: %s", err->file, err->line, err->column, err->text);
    else if (err->file[0])
        snprintf(text, text_bytes, "%s: %s", err->file, err->text);
    else
        snprintf(text, text_bytes, "%s", err->text);
}

void np_report_init(struct np_report *report, const char *file)
{
    memset(report, 0, sizeof(*report));
    report->file = file;
}

/* NULL: the report is full, and the error is counted as dropped. */
static struct np_err *next_err(struct np_report *report)
{
    struct np_err *errs = report->nr_errs < MAX_REPORTED
                              ? realloc(report->errs, (size_t)(report->nr_errs + 1) * sizeof(*errs))
                              : NULL;

    if (!errs) {
        report->no_memory |= report->nr_errs < MAX_REPORTED;
        report->nr_dropped++;
        return NULL;
    }
    report->errs = errs;
    return &errs[report->nr_errs++];
}

int np_report_add(struct np_report *report, int line, int column, const char *format, ...)
{
    struct np_err *err = next_err(report);
    const int nr = report->files && line > 0 ? line / NP_LINE_FILE : 0;
    const char *file = nr ? report->files[nr - 1] : report->file;
    va_list args;

    if (!err)
        return -EINVAL;
    memset(err, 0, sizeof(*err));
    err->code = -EINVAL;
    err->line = line - nr * NP_LINE_FILE;
    err->column = column;
    snprintf(err->file, sizeof(err->file), "%s", file ? file : "");
    va_start(args, format);
    print(err->text, sizeof(err->text), format, args);
    va_end(args);
    return -EINVAL;
}

int np_report_no_memory(struct np_report *report)
{
    report->no_memory = true;
    np_report_add(report, 0, 0, "out of memory");
    return -ENOMEM;
}

void np_report_take(struct np_report *report, const struct np_err *err)
{
    struct np_err *copy = next_err(report);

    if (copy)
        *copy = *err;
}

static int compare_places(const char *own, const struct np_err *a, const struct np_err *b)
{
    if (strcmp(a->file, b->file) != 0)
        return own && strcmp(a->file, own) == 0   ? -1
               : own && strcmp(b->file, own) == 0 ? 1
                                                  : strcmp(a->file, b->file);
    return a->line != b->line ? a->line - b->line : a->column - b->column;
}

/* qsort() is not stable, and mistakes at one place should keep their order. */
void np_report_sort(struct np_report *report)
{
    for (int i = 1; i < report->nr_errs; i++) {
        struct np_err err = report->errs[i];
        int j = i;

        for (; j > 0 && compare_places(report->file, &report->errs[j - 1], &err) > 0; j--)
            report->errs[j] = report->errs[j - 1];
        report->errs[j] = err;
    }
}

void np_report_fini(struct np_report *report)
{
    free(report->errs);
    np_report_init(report, NULL);
}
