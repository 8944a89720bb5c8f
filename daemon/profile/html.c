/* Writes profile.html: profile.json with the script and style of the service's page that draw it,
 * in one file that needs no other file and no network. Its policy allows only these scripts, by
 * the file's random nonce. */
#include <sys/random.h>

#include "daemon/profile/trial.h"
#include "daemon/ui/page.h"

/* In JSON a '<' occurs only in texts. As an escape it cannot end the script or open a comment. */
static void put_json(FILE *out, const void *json)
{
    for (const char *at = json; *at; at++)
        fputs(*at == '<' ? "\\u003c" : (char[]){*at, '\0'}, out);
}

static void put_nonce(FILE *out, const void *nonce)
{
    const uint64_t *random = nonce;

    fprintf(out, "%016jx%016jx", (uintmax_t)random[0], (uintmax_t)random[1]);
}

void np_profile_html_to(FILE *out, const void *json)
{
    uint64_t nonce[2] = {(uintptr_t)out}; /* if getrandom() fails: better than a constant */
    const struct np_hole holes[] = {{"nonce", put_nonce, nonce}, {"json", put_json, json},
        {"style", np_page_put, "/assets/profile.css"}, {"words", np_page_put, "/assets/words.js"},
        {"script", np_page_put, "/assets/profile.js"}, {NULL}};

    (void)!getrandom(nonce, sizeof(nonce), 0);
    np_page_fill(out, "/assets/profile.html", holes);
}

int np_profile_html(const char *json, const char *path, struct np_err *err)
{
    return np_page_write(path, np_profile_html_to, json, err);
}
