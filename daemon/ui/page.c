/* The assembler includes the files unchanged; dygraphs is Debian's libjs-dygraphs. */
#include "daemon/ui/page.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "loader/base/io.h"

/* Defines name and name_end around the file's bytes. */
#define FILE_BYTES(name, path)                                                                     \
    __asm__(".section .rodata\n" #name ":\n.incbin \"" path "\"\n" #name                           \
            "_end:\n.byte 0\n.previous\n");                                                        \
    extern const char name[], name##_end[];

FILE_BYTES(np_page_html, "daemon/ui/page/index.html")
FILE_BYTES(np_page_css, "daemon/ui/page/page.css")
FILE_BYTES(np_page_curves, "daemon/ui/page/curves.svg")
FILE_BYTES(np_page_compare_svg, "daemon/ui/page/compare.svg")
FILE_BYTES(np_page_compare_html, "daemon/ui/page/compare.html")
FILE_BYTES(np_page_compare, "daemon/ui/page/compare.js")
FILE_BYTES(np_page_profile_html, "daemon/ui/page/profile.html")
FILE_BYTES(np_page_profile_css, "daemon/ui/page/profile.css")
FILE_BYTES(np_page_evaluation_html, "daemon/ui/page/evaluation.html")
FILE_BYTES(np_page_evaluation, "daemon/ui/page/evaluation.js")
FILE_BYTES(np_page_lr_html, "daemon/ui/page/lr.html")
FILE_BYTES(np_page_lr, "daemon/ui/page/lr.js")
FILE_BYTES(np_page_words, "daemon/ui/page/words.js")
FILE_BYTES(np_page_ask, "daemon/ui/page/ask.js")
FILE_BYTES(np_page_profile, "daemon/ui/page/profile.js")
FILE_BYTES(np_page_beside, "daemon/ui/page/beside.js")
FILE_BYTES(np_page_run, "daemon/ui/page/run.js")
FILE_BYTES(np_page_js, "daemon/ui/page/page.js")
FILE_BYTES(np_page_icon, "daemon/ui/page/icon.svg")
FILE_BYTES(np_page_serve_html, "daemon/ui/page/serve.html")
FILE_BYTES(np_page_serve_css, "daemon/ui/page/serve.css")
FILE_BYTES(np_page_serve, "daemon/ui/page/serve.js")
FILE_BYTES(np_page_openapi, "docs/openapi.json")
FILE_BYTES(np_page_dygraph_js, NP_DYGRAPHS "/dygraph.min.js")
FILE_BYTES(np_page_dygraph_css, NP_DYGRAPHS "/dygraph.min.css")

struct file {
    const char *path, *type, *begin, *end;
};
#define FILE_AT(path, type, name)                                                                  \
    {                                                                                              \
        path, type, name, name##_end                                                               \
    }
#define HTML "text/html; charset=utf-8"
#define CSS  "text/css; charset=utf-8"
#define JS   "text/javascript; charset=utf-8"
static const struct file files[] = {
    FILE_AT("/", HTML, np_page_html),
    FILE_AT("/assets/page.css", CSS, np_page_css),
    FILE_AT("/assets/curves.svg", "image/svg+xml", np_page_curves),
    FILE_AT("/assets/compare.svg", "image/svg+xml", np_page_compare_svg),
    FILE_AT("/assets/compare.html", HTML, np_page_compare_html),
    FILE_AT("/assets/compare.js", JS, np_page_compare),
    FILE_AT("/assets/profile.html", HTML, np_page_profile_html),
    FILE_AT("/assets/profile.css", CSS, np_page_profile_css),
    FILE_AT("/assets/evaluation.html", HTML, np_page_evaluation_html),
    FILE_AT("/assets/evaluation.js", JS, np_page_evaluation),
    FILE_AT("/assets/lr.html", HTML, np_page_lr_html),
    FILE_AT("/assets/lr.js", JS, np_page_lr),
    FILE_AT("/assets/words.js", JS, np_page_words),
    FILE_AT("/assets/ask.js", JS, np_page_ask),
    FILE_AT("/assets/profile.js", JS, np_page_profile),
    FILE_AT("/assets/beside.js", JS, np_page_beside),
    FILE_AT("/assets/run.js", JS, np_page_run),
    FILE_AT("/assets/page.js", JS, np_page_js),
    FILE_AT("/assets/icon.svg", "image/svg+xml", np_page_icon),
    FILE_AT("/assets/serve.html", HTML, np_page_serve_html),
    FILE_AT("/assets/serve.css", CSS, np_page_serve_css),
    FILE_AT("/assets/serve.js", JS, np_page_serve),
    FILE_AT("/assets/dygraph.css", CSS, np_page_dygraph_css),
    FILE_AT("/assets/dygraph.js", JS, np_page_dygraph_js),
    FILE_AT("/openapi.json", "application/json", np_page_openapi),
};

bool np_page_asset(const char *path, struct np_asset *ret_asset)
{
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        if (strcmp(files[i].path, path) == 0) {
            *ret_asset = (struct np_asset){
                files[i].type, files[i].begin, (size_t)(files[i].end - files[i].begin)};
            return true;
        }
    return false;
}

/* The bytes of the asset at a path. */
static void put_asset(FILE *out, const void *path)
{
    struct np_asset asset;

    if (np_page_asset(path, &asset))
        fwrite(asset.bytes, 1, asset.nr_bytes, out);
}

/* The hole whose "{name}" stands at `at`; NULL: none. */
static const struct np_hole *find_hole(const struct np_hole *holes, const char *at)
{
    for (; *at == '{' && holes->name; holes++) {
        const size_t n = strlen(holes->name);
        if (strncmp(at + 1, holes->name, n) == 0 && at[1 + n] == '}')
            return holes;
    }
    return NULL;
}

void np_page_fill(FILE *out, const char *asset_path, const struct np_hole *holes)
{
    struct np_asset asset = {0};

    np_page_asset(asset_path, &asset);
    for (const char *at = asset.bytes, *end = at + asset.nr_bytes; at < end; at++) {
        const struct np_hole *hole = find_hole(holes, at);
        if (hole) {
            hole->put(out, hole->what);
            at += strlen(hole->name) + 1;
        } else {
            fputc(*at, out);
        }
    }
}

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

void np_page_fill_json(FILE *out, const char *asset, const char *script, const void *json)
{
    uint64_t nonce[2] = {(uintptr_t)out}; /* if getrandom() fails: better than a constant */
    const struct np_hole holes[] = {{"nonce", put_nonce, nonce}, {"json", put_json, json},
        {"style", put_asset, "/assets/profile.css"}, {"words", put_asset, "/assets/words.js"},
        {"script", put_asset, script}, {"page style", put_asset, "/assets/page.css"},
        {"chart style", put_asset, "/assets/dygraph.css"},
        {"chart", put_asset, "/assets/dygraph.js"}, {NULL}};

    (void)!getrandom(nonce, sizeof(nonce), 0);
    np_page_fill(out, asset, holes);
}

int np_page_write(const char *path, np_put_fn *put, const void *what, struct np_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (out)
        put(out, what);
    const int code = out && fclose(out) == 0
                         ? np_write_output(path, text, bytes, err)
                         : np_err_set(err, -ENOMEM, "%s: out of memory to write it", path);
    free(text);
    return code;
}
