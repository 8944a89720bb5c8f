/* Parts of profile.html: each writes its own section. Everything across is in percent and everything down
 * in pixels, so that one picture serves a wide screen and a telephone. Pure but for `out`. */
#ifndef NP_HTML_PAGE_H
#define NP_HTML_PAGE_H

#include "daemon/analysis/words.h"

extern const char np_html_style[]; /* CSS, light and dark */

void np_html_text(FILE *out, const char *text);    /* escaped */
double np_html_percent(double part, double whole); /* 0..100, whatever it is given */
/* "s-decode", or "s-limit" for the stage that limits: the class that gives a cause its colour. */
const char *np_html_class(const struct np_profile *profile, enum np_stage stage);

void np_html_chart(FILE *out, const struct np_profile *profile); /* a bar a stage */
void np_html_pair(
    FILE *out, const struct np_profile *profile); /* before and after, if there is one */
void np_html_ribbon(FILE *out, const struct np_profile *profile); /* waits over time */
void np_html_curve(
    FILE *out, const struct np_profile *profile); /* what if the limiter were faster */
void np_html_facts(FILE *out, const struct np_profile *profile); /* tables */

#endif
