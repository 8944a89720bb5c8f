/* A scan of tar archives under way: what source_tar.c (archives) and source_tar_list.c (samples)
 * share. Theirs alone. */
#ifndef NP_SOURCE_TAR_H
#define NP_SOURCE_TAR_H

#include "loader/source/seekable.h"
#include "loader/source/source_scan.h"
#include "loader/source/tar.h"

#define NP_TAR_MAX_GROUP 64 /* extensions of a group that are compared */

/* WebDataset's group under way. */
struct np_tar_group {
    char key[NP_TAR_MAX_NAME + 1];
    uint64_t extensions[NP_TAR_MAX_GROUP]; /* hashes */
    int nr_extensions;
    bool open, has_image;
    int64_t cls;
    struct np_record record;
    char name[NP_TAR_MAX_NAME + 1];
};

struct np_tar_scan {
    const struct np_source_options *options;
    const struct np_source_progress *progress;
    struct np_index *index;
    struct np_err *err;
    const char *path; /* the shard as it was named, for errors */
    struct np_scan_file file;
    const struct np_seek_table *table; /* NULL: plain */
    struct np_tar tar;
    bool webdataset, decided;
    uint64_t shard_first; /* sample of this shard */
    int64_t max_cls;
    uint64_t nr_skipped;
    char skipped[256]; /* the first of them */
    uint64_t nr_links; /* of them images by name, and wanted */
    char link[256];    /* the first of those */
    struct np_tar_group group;
    struct np_tar_member member;
};

/* Takes scan->member, a regular one. -EXDEV: its bytes lie over the edge of a frame. */
int np_tar_scan_take(struct np_tar_scan *scan);
/* The archive's end, which is the end of a group; `torn` archives get their note. */
int np_tar_scan_end(struct np_tar_scan *scan);
/* A member that is no sample: counted, the first one named. */
void np_tar_scan_skip(struct np_tar_scan *scan, const char *name);
/* A hard or symbolic link is not followed: an image is missing, which is said. */
void np_tar_scan_link(struct np_tar_scan *scan, const char *name);
/* Is it a WebDataset label? */
bool np_tar_scan_is_cls(const char *name);
/* Behind the last archive. Each sample gets the class of its folder, which depends on where the others
 * lie; of a WebDataset a .cls is its own number, and classes nobody has are classes too. */
int np_tar_scan_classes(struct np_tar_scan *scan);

#endif
