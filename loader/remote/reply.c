#include "loader/remote/reply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- a header -------------------------------------------------------------------------------- */

/* Keeps the value if this is the field's line. */
static bool take_field(const char *line, size_t bytes, const char *name, char value[NP_WEB_FIELD])
{
    const size_t name_bytes = strlen(name);

    if (bytes <= name_bytes || strncasecmp(line, name, name_bytes) != 0 || line[name_bytes] != ':')
        return false;
    line += name_bytes + 1;
    bytes -= name_bytes + 1;
    while (bytes > 0 && (*line == ' ' || *line == '\t'))
        line++, bytes--;
    while (bytes > 0 && strchr("\r\n \t", line[bytes - 1]))
        bytes--;
    value[0] = '\0';
    if (bytes >= NP_WEB_FIELD)
        return true;
    for (size_t i = 0; i < bytes; i++) /* it goes into a request, and into messages */
        if ((unsigned char)line[i] < ' ' || (unsigned char)line[i] >= 0x7f)
            return true;
    memcpy(value, line, bytes);
    value[bytes] = '\0';
    return true;
}

/* "HTTP/1.1 206 Partial Content". 0: not so. */
static int status_of(const char *line, size_t bytes)
{
    if (bytes < 12 || line[8] != ' ' || (bytes > 12 && !strchr(" \r\n", line[12])))
        return 0;
    for (int i = 9; i < 12; i++)
        if (line[i] < '0' || line[i] > '9')
            return 0;
    return (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
}

void np_answer_take(struct np_web_answer *answer, const char *line, size_t bytes)
{
    char value[NP_WEB_FIELD] = "";

    if (bytes > 5 && strncmp(line, "HTTP/", 5) == 0) { /* after a redirect there is another one */
        *answer = (struct np_web_answer){.status = status_of(line, bytes), .bytes = -1};
        answer->is_last = bytes > 8 && strncmp(line, "HTTP/1.0", 8) == 0;
        return;
    }
    if (take_field(line, bytes, "etag", answer->etag) ||
        take_field(line, bytes, "last-modified", answer->last_modified) ||
        take_field(line, bytes, "content-range", answer->content_range) ||
        take_field(line, bytes, "x-amz-bucket-region", answer->region))
        return;
    if (take_field(line, bytes, "content-length", value)) {
        if (*value && strlen(value) <= 18 && strspn(value, "0123456789") == strlen(value))
            answer->bytes = strtoll(value, NULL, 10);
    } else if (take_field(line, bytes, "connection", value))
        answer->is_last |= strcasecmp(value, "keep-alive") != 0;
    else
        answer->is_coded |= take_field(line, bytes, "transfer-encoding", value);
}

/* A name and a colon; no control characters, and not the end of the line before. */
static bool is_field(const char *line, size_t bytes)
{
    const char *colon = memchr(line, ':', bytes);

    if (!colon || colon == line)
        return false;
    for (const char *at = line; at < line + bytes; at++)
        if ((*at >= 0 && *at < ' ' && *at != '\t') || (at < colon && (*at == ' ' || *at == '\t')))
            return false;
    return true;
}

int np_answer_read(const char *bytes, size_t nr, struct np_web_answer *ret_answer)
{
    const char *line = bytes, *end;
    bool has_length = false;

    *ret_answer = (struct np_web_answer){.bytes = -1};
    for (; (end = memmem(line, nr - (size_t)(line - bytes), "\r\n", 2)) != NULL; line = end + 2) {
        const size_t line_bytes = (size_t)(end - line);
        const int64_t length = ret_answer->bytes;

        if (line == bytes) {
            if (line_bytes < 12 || strncmp(line, "HTTP/1.", 7) != 0)
                return -EBADMSG;
            np_answer_take(ret_answer, line, line_bytes);
            if (!ret_answer->status)
                return -EBADMSG;
            continue;
        }
        if (line_bytes == 0)
            return (int)(end + 2 - bytes);
        if (!is_field(line, line_bytes))
            return -EBADMSG;
        np_answer_take(ret_answer, line, line_bytes);
        if (has_length && ret_answer->bytes != length)
            return -EBADMSG;
        has_length |= ret_answer->bytes >= 0;
    }
    return 0;
}

/* --- its fields ------------------------------------------------------------------------------ */

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

void np_xml_element(const char *body, const char *name, char *text, size_t room)
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
    np_xml_element(body, "Code", ret_refusal->code, sizeof(ret_refusal->code));
    np_xml_element(body, "Message", ret_refusal->message, sizeof(ret_refusal->message));
}
