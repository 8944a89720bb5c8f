/* See daemon/service/page.h. The files are taken in by the assembler as they are; dygraphs is Debian's
 * libjs-dygraphs. */
#include "daemon/service/page.h"

#include <string.h>

/* name and name_end: the file's bytes. */
#define FILE_BYTES(name, path)                                                                     \
    __asm__(".section .rodata\n" #name ":\n.incbin \"" path "\"\n" #name                           \
            "_end:\n.byte 0\n.previous\n");                                                        \
    extern const char name[], name##_end[];

FILE_BYTES(np_page_html, "daemon/ui/page/index.html")
FILE_BYTES(np_page_css, "daemon/ui/page/page.css")
FILE_BYTES(np_page_js, "daemon/ui/page/page.js")
FILE_BYTES(np_page_openapi, "docs/openapi.json")
FILE_BYTES(np_page_dygraph_js, NP_DYGRAPHS "/dygraph.min.js")
FILE_BYTES(np_page_dygraph_css, NP_DYGRAPHS "/dygraph.min.css")

const struct np_asset *np_page_asset(const char *path)
{
    static struct np_asset assets[] = {
        {"/", "text/html; charset=utf-8", np_page_html, 0},
        {"/assets/page.css", "text/css; charset=utf-8", np_page_css, 0},
        {"/assets/page.js", "text/javascript; charset=utf-8", np_page_js, 0},
        {"/assets/dygraph.css", "text/css; charset=utf-8", np_page_dygraph_css, 0},
        {"/assets/dygraph.js", "text/javascript; charset=utf-8", np_page_dygraph_js, 0},
        {"/openapi.json", "application/json", np_page_openapi, 0},
    };
    static const char *const ends[] = {np_page_html_end, np_page_css_end, np_page_js_end,
        np_page_dygraph_css_end, np_page_dygraph_js_end, np_page_openapi_end};

    for (size_t i = 0; i < sizeof(assets) / sizeof(*assets); i++)
        if (strcmp(assets[i].path, path) == 0) {
            assets[i].nr_bytes = (size_t)(ends[i] - assets[i].bytes);
            return &assets[i];
        }
    return NULL;
}
