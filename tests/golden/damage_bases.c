/* Sound JPEGs for damage.py: damage_bases DIR writes DIR/KIND-NUMBER.jpg. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/made_images.h"

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        struct made_jpeg made;
    } kinds[] = {{"plain", {.components = 3, .h = 2, .v = 2}},
        {"full", {.components = 3, .h = 1, .v = 1}}, {"grey", {.components = 1, .h = 1, .v = 1}},
        {"restart", {.components = 3, .h = 2, .v = 1, .restart = 3}},
        {"progressive", {.components = 3, .h = 2, .v = 2, .progressive = true}},
        {"arithmetic", {.components = 3, .h = 2, .v = 2, .arithmetic = true}}};

    for (size_t k = 0; argc == 2 && k < sizeof(kinds) / sizeof(*kinds); k++)
        for (int i = 0; i < 5; i++) {
            struct made_jpeg made = kinds[k].made;
            char path[4096];
            size_t n;

            made.width = 88 + 9 * i;
            made.height = 96 - 7 * i;
            uint8_t *bytes = made_jpeg(&made, &n);
            snprintf(path, sizeof(path), "%s/%s-%d.jpg", argv[1], kinds[k].name, i);
            FILE *file = fopen(path, "wb");
            if (!file || fwrite(bytes, 1, n, file) != n || fclose(file))
                return 1;
            free(bytes);
        }
    return argc != 2;
}
