#include "loader/remote/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* At most 18 digits. NULL: no number. */
static const char *take_number(const char *text, uint64_t *ret_number)
{
    const size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > 18)
        return NULL;
    *ret_number = strtoull(text, NULL, 10);
    return text + digits;
}

bool np_content_range(const char *text, uint64_t *ret_first, uint64_t *ret_last, int64_t *ret_bytes)
{
    uint64_t first, last, bytes;

    if (strncasecmp(text, "bytes ", 6) != 0)
        return false;
    text = take_number(text + 6, &first);
    if (!text || *text++ != '-' || !(text = take_number(text, &last)) || *text++ != '/')
        return false;
    if (strcmp(text, "*") == 0)
        *ret_bytes = -1;
    else if (!(text = take_number(text, &bytes)) || *text || last >= bytes)
        return false;
    else
        *ret_bytes = (int64_t)bytes;
    if (last < first)
        return false;
    *ret_first = first;
    *ret_last = last;
    return true;
}

bool np_etag_is_strong(const char *etag)
{
    const size_t bytes = strlen(etag);

    return bytes > 2 && etag[0] == '"' && etag[bytes - 1] == '"' &&
           !memchr(etag + 1, '"', bytes - 2);
}

/* The text between <name> and </name>; empty if there is none or it does not fit. */
static void take_element(const char *body, const char *name, char *text, size_t room)
{
    char open[32], close[32];
    const char *from, *end;

    snprintf(open, sizeof(open), "<%s>", name);
    snprintf(close, sizeof(close), "</%s>", name);
    text[0] = '\0';
    from = strstr(body, open);
    from = from ? from + strlen(open) : NULL;
    end = from ? strstr(from, close) : NULL;
    if (end && (size_t)(end - from) < room)
        snprintf(text, room, "%.*s", (int)(end - from), from);
}

void np_refusal_read(const char *body, struct np_refusal *ret_refusal)
{
    take_element(body, "Code", ret_refusal->code, sizeof(ret_refusal->code));
    take_element(body, "Message", ret_refusal->message, sizeof(ret_refusal->message));
}
