/* profile.html: profile.json with the script and style of the service's page that draw it, in
 * one file that needs no other file and no network. Its policy allows only these scripts, by the
 * file's random nonce. */
#include <sys/random.h>

#include "daemon/profile/trial.h"
#include "daemon/ui/page.h"

/* In JSON a '<' occurs only in texts. As an escape it cannot end the script or open a comment. */
static void put_json(FILE *out, const char *json)
{
    for (; *json; json++)
        if (*json == '<')
            fputs("\\u003c", out);
        else
            fputc(*json, out);
}

void np_profile_html_to(const char *json, FILE *out)
{
    uint64_t random[2] = {0};
    char nonce[33];

    if (getrandom(random, sizeof(random), 0) < 0)
        random[0] = (uint64_t)(uintptr_t)out; /* guessable, but better than a constant */
    snprintf(nonce, sizeof(nonce), "%016jx%016jx", (uintmax_t)random[0], (uintmax_t)random[1]);
    fprintf(out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'nonce-%s'; script-src 'nonce-%s'; base-uri 'none'; form-action 'none'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n<title>nnpipe profile</title>\n"
        "<style nonce=\"%s\">\n",
        nonce, nonce, nonce);
    np_page_put("/assets/profile.css", out);
    fputs("</style>\n</head>\n<body>\n<main id=\"report\" class=\"report\"><noscript>JavaScript "
          "draws this report; profile.json holds the same as text.</noscript></main>\n"
          "<script type=\"application/json\" id=\"profile\">",
        out);
    put_json(out, json);
    fprintf(out, "</script>\n<script nonce=\"%s\">\n", nonce);
    np_page_put("/assets/words.js", out);
    np_page_put("/assets/profile.js", out);
    fputs("drawProfile(JSON.parse($(\"profile\").textContent), $(\"report\"));\n</script>\n"
          "</body>\n</html>\n",
        out);
}

static void put(FILE *out, const void *json)
{
    np_profile_html_to(json, out);
}

int np_profile_html(const char *json, const char *path, struct np_err *err)
{
    return np_page_write(path, put, json, err);
}
