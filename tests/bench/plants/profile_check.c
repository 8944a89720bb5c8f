/* profile_check FILE...: does a figure of one of these profiles contradict another? Each that does is named, with
 * the two figures; exit code 1. */
#include <stdio.h>

#include "daemon/analysis/profile.h"

int main(int argc, char **argv)
{
    int failed = 0;

    for (int i = 1; i < argc; i++) {
        struct np_profile profile = {0};
        struct np_err err = {0};
        char text[192];

        if (np_profile_read(argv[i], &profile, &err) < 0) {
            printf("%s\n", err.text);
            failed = 1;
            continue;
        }
        if (np_profile_contradicts(&profile, text, sizeof(text))) {
            printf("%s: %s\n", argv[i], text);
            failed = 1;
        }
        np_profile_fini(&profile);
    }
    return failed;
}
