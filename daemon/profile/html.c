/* Writes profile.html and the page of `nnpipe compare`: JSON with the script and style of the
 * service's page that draw it, in one file that needs no other file and no network. Its policy
 * allows only these scripts, by the file's random nonce. */
#include <sys/random.h>

#include "daemon/profile/compared.h"
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

static void fill(FILE *out, const char *asset, const char *script, const void *json)
{
    uint64_t nonce[2] = {(uintptr_t)out}; /* if getrandom() fails: better than a constant */
    const struct np_hole holes[] = {{"nonce", put_nonce, nonce}, {"json", put_json, json},
        {"style", np_page_put, "/assets/profile.css"}, {"words", np_page_put, "/assets/words.js"},
        {"script", np_page_put, script}, {"page style", np_page_put, "/assets/page.css"},
        {"chart style", np_page_put, "/assets/dygraph.css"},
        {"chart", np_page_put, "/assets/dygraph.js"}, {NULL}};

    (void)!getrandom(nonce, sizeof(nonce), 0);
    np_page_fill(out, asset, holes);
}

void np_profile_html_to(FILE *out, const void *json)
{
    fill(out, "/assets/profile.html", "/assets/profile.js", json);
}

int np_profile_html(const char *json, const char *path, struct np_err *err)
{
    return np_page_write(path, np_profile_html_to, json, err);
}

void np_compare_html_to(FILE *out, const void *json)
{
    fill(out, "/assets/compare.html", "/assets/compare.js", json);
}
