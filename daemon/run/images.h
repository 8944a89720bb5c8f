/* The images that a command line names, for `predict`: files, folders, globs and lists. Main
 * thread. */
#ifndef NP_IMAGES_H
#define NP_IMAGES_H

#include "loader/source/index.h"

struct np_images {
    char **paths; /* as they are named; owned */
    uint64_t nr_paths;
    size_t room;
    int *fds; /* (nr_fds): copies of files that can be read once only; owned */
    int nr_fds;
    size_t room_fds;
};

/* Adds a file; or the images of a folder and those below it, in byte order of their names (links to
 * folders are not followed); or, if there is no such file, those that a glob matches, in the same
 * order; or, for @FILE, what each line of FILE names. Whether a file can be read is seen later.
 * -ENOENT: no image in the folder, or no match. */
int np_images_add(struct np_images *images, const char *word, struct np_err *err);
/* Adds what each line of a file ("-": standard input) names: files, folders or globs; empty lines
 * do not count. */
int np_images_add_list(struct np_images *images, const char *list, struct np_err *err);
/* Makes a set of them, in their order; sample i is paths[i], in the only class 0. A pipe is read
 * here. */
int np_images_index(struct np_images *images, struct np_index **ret_index, struct np_err *err);
void np_images_fini(struct np_images *images);

#endif
