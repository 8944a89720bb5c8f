/* Hostile bytes as a profile.json. An accepted profile can be drawn in all three forms, and written again it is
 * read again as the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/profile/trial.h"

static void draw(const struct np_profile *profile, const char *json, int width)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (!out)
        return;
    np_profile_screen(profile, width, width & 1, out);
    np_profile_html_to(out, json);
    fclose(out);
    if (bytes == 0)
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct np_profile profile, again;

    if (np_profile_parse((const char *)data, n, &profile, NULL))
        return 0;
    char *first = np_profile_json(&profile, NULL);
    if (!first || np_profile_parse(first, strlen(first), &again, NULL))
        abort();
    char *second = np_profile_json(&again, NULL);
    if (!second || strcmp(first, second) != 0)
        abort();
    draw(&again, second, (int)(n % 120));
    free(first);
    free(second);
    np_profile_fini(&profile);
    np_profile_fini(&again);
    return 0;
}
