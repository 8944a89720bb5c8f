/* Writes profile.html and the page of `nnpipe compare`: JSON with the script and style of the
 * service's page that draw it. */
#include "daemon/profile/compared.h"
#include "daemon/profile/trial.h"
#include "daemon/ui/page.h"

void np_profile_html_to(FILE *out, const void *json)
{
    np_page_fill_json(out, "/assets/profile.html", "/assets/profile.js", json);
}

int np_profile_html(const char *json, const char *path, struct np_err *err)
{
    return np_page_write(path, np_profile_html_to, json, err);
}

void np_compare_html_to(FILE *out, const void *json)
{
    np_page_fill_json(out, "/assets/compare.html", "/assets/compare.js", json);
}
