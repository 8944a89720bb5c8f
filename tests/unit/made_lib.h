/* Sets, loaders and batches of libnnpipe, for tests. */
#ifndef NP_MADE_LIB_H
#define NP_MADE_LIB_H

#include "loader/nnpipe.h"

/* A fresh folder (make_set()) with n JPEGs of different sizes in FOLDER/set, picture i as (a, b or c)/NN.jpg. */
char *made_pictures(int n);
/* A config for them: rows of 16 x 16, 8 a batch. MORE: further keys of loader. */
#define MADE_LOADER(MORE)                                                                          \
    "loader: {batch: 8, readers: 2, augment: [{random_resized_crop: 16}, flip], test_augment: "    \
    "[{resize: 20}, "                                                                              \
    "{center_crop: 16}]" MORE "}\n"
#define MADE_CONFIG(MORE) "data: {train: {source: folder, path: set}}\n" MADE_LOADER(MORE)

/* nnp_open() that must succeed; options: "a=b c=d", NULL: none. */
struct nnp_loader *made_open(
    const char *config, const char *folder, struct nnp_data *data, const char *options);
/* nnp_open() that must fail; returns the text (static). */
const char *made_refusal(const char *config, const char *folder, struct nnp_data *data,
    const char *options, int *ret_code);
/* nnp_next(loader, -1) that must give a batch. */
struct nnp_batch *made_next(struct nnp_loader *loader);
/* Of images, labels and samples. */
uint64_t made_digest(const struct nnp_loader *loader, const struct nnp_batch *batch);
/* Takes and releases the next batch; returns its digest. */
uint64_t made_next_digest(struct nnp_loader *loader);
/* Takes the next n batches and releases them; returns a digest of all. */
uint64_t made_run(struct nnp_loader *loader, int n);
/* The loader's last error (static). */
const char *made_error(struct nnp_loader *loader);

#endif
