/* Takes facts out of a checkpoint's manifest, as a program that did not know them left it.
 *   older_manifest MANIFEST KEY... */
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "trainer/checkpoint/manifest.h"

int main(int argc, char **argv)
{
    struct np_manifest manifest;
    struct np_err err = {0};
    char *facts = NULL, *text = NULL;

    if (argc < 3 || np_manifest_read(argv[1], &manifest, &facts, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    json_t *object = json_loads(facts, 0, NULL);
    for (int i = 2; i < argc; i++)
        if (json_object_del(object, argv[i]) != 0) {
            fprintf(stderr, "%s: there is no %s\n", argv[1], argv[i]);
            return 1;
        }
    if (np_manifest_dump(&manifest, json_dumps(object, 0), &text, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    FILE *file = fopen(argv[1], "w");
    return !file || fputs(text, file) < 0 || fclose(file) != 0;
}
