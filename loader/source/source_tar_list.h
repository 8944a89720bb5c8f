/* The scan of tar archives that source_tar.c (archives) and source_tar_list.c (samples) share. */
#ifndef NP_SOURCE_TAR_LIST_H
#define NP_SOURCE_TAR_LIST_H

#include "loader/source/label_json.h"
#include "loader/source/label_table.h"
#include "loader/source/seekable.h"
#include "loader/source/source_scan.h"
#include "loader/source/tar.h"

#define NP_TAR_MAX_GROUP 64 /* extensions of a group that are compared */

struct np_tar_group {
    char key[NP_TAR_MAX_NAME + 1];
    uint64_t extensions[NP_TAR_MAX_GROUP]; /* hashes */
    int nr_extensions;
    bool open, has_image;
    char label[NP_MAX_NAME + 1]; /* of a .cls or .json; empty: none */
    struct np_record record;
    char name[NP_TAR_MAX_NAME + 1];
};

struct np_tar_scan {
    const struct np_source_options *options;
    const struct np_source_progress *progress;
    struct np_index *index;
    struct np_err *err;
    const char *path; /* of the shard, for errors */
    struct np_scan_file file;
    const struct np_seek_table *table; /* NULL: plain */
    struct np_tar tar;
    bool webdataset, decided;
    /* A table of labels, or NULL. Shared by the scans of all archives: read only until
     * np_tar_scan_classes(). */
    struct np_label_table *labels;
    const struct np_label_fields *fields; /* of .json members; NULL: classes in .cls members */
    uint64_t shard_first;                 /* sample of this shard */
    /* The first sample is truncated, and takes the class of the last sample of the index to which
     * this one is appended. */
    bool follows;
    int64_t max_cls;
    uint64_t nr_skipped;
    char skipped[256]; /* the first of them */
    uint64_t nr_links; /* links with a matching image name */
    char link[256];    /* the first of them */
    struct np_tar_group group;
    struct np_tar_member member;
};

/* Lists scan->member, a regular file. -EXDEV: its bytes cross the edge of a frame. */
int np_tar_scan_take(struct np_tar_scan *scan);
/* Call at the end of an archive: ends its last group, and reports a truncated archive. */
int np_tar_scan_end(struct np_tar_scan *scan);
/* Counts a member that is not a sample; keeps the first one's name. */
void np_tar_scan_skip(struct np_tar_scan *scan, const char *name);
/* Counts a hard or symbolic link to an image: it is not followed, and reported as missing. */
void np_tar_scan_link(struct np_tar_scan *scan, const char *name);
/* -1: none. */
int np_tar_scan_last_label(const struct np_tar_scan *scan);
bool np_tar_scan_is_cls(const char *name);
/* Call after the last archive. Sets each sample's label by the table, if there is one; else sets each sample's class by its folder, which depends on the folders
 * of all samples; in a WebDataset a class's name is its number, and unused numbers are classes
 * too. */
int np_tar_scan_classes(struct np_tar_scan *scan);

#endif
