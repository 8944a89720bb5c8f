/* Reads two epochs of a config's training set:
 *   cc example.c -lnnpipe && ./a.out configs/cnn.yaml
 * The config's folder is where its relative paths start. */
#include <nnpipe.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const char *const options[] = {"dtype=float32", "layout=nchw", "drop_last=yes", NULL};
    struct nnp_loader *loader;
    struct nnp_batch *batch;
    char config[65536], folder[4096], error[4096];
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    char *slash;

    if (!file)
        return fprintf(stderr, "example: expected a config\n"), 1;
    config[fread(config, 1, sizeof(config) - 1, file)] = '\0';
    fclose(file);
    snprintf(folder, sizeof(folder), "%s", argv[1]);
    slash = strrchr(folder, '/');
    strcpy(slash ? slash : folder, slash ? "" : ".");
    if (nnp_open(config, folder, NULL, options, &loader, error, sizeof(error)) < 0)
        return fprintf(stderr, "example: %s\n", error), 1;
    for (int epoch = 0; epoch < 2; epoch++) {
        double sum = 0;
        long rows = 0;
        int code;

        while ((code = nnp_next(loader, -1, &batch)) > 0) {
            sum += ((const float *)nnp_batch_images(batch))[0]; /* a training step stands here */
            rows += nnp_batch_rows(batch);
            nnp_batch_release(batch);
        }
        if (code < 0 && nnp_error(loader, error, sizeof(error)))
            return fprintf(stderr, "example: %s\n", error), 1;
        printf("epoch %d: %ld images, sum of the first values %.3f\n", epoch, rows, sum);
    }
    nnp_close(loader);
    return 0;
}
