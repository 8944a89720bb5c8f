/* A folder of image files. A sample's class is the first folder below the root, or below the
 * literal folders that `match` begins with, as torchvision's ImageFolder has it; files deeper
 * down belong to it too. Names are listed in byte order within each folder. One thread, one
 * system call a file for its size. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "loader/source_scan.h"

#define MAX_DEPTH 32
#define MAX_PATH  4094 /* of root, '/', name: what np_extent holds */

struct walk {
    const struct np_source_options *options;
    const struct np_source_progress *progress;
    struct np_index *index;
    struct np_err *err;
    const char *root;
    char name[MAX_PATH + 2]; /* below root, of what is being looked at */
    size_t class_at;         /* bytes of name before the class */
    uint64_t nr_skipped;
    char skipped[256]; /* the first of them */
    struct {
        dev_t device;
        ino_t inode;
    } above[MAX_DEPTH]; /* folders we are in: a link back to one is a loop */
};

/* Names in one folder, sorted. */
struct entries {
    char **names;
    int nr_names, cap;
};

static void entries_fini(struct entries *entries)
{
    for (int i = 0; i < entries->nr_names; i++)
        np_free(entries->names[i]);
    np_free(entries->names);
}

static int add_entry(struct entries *entries, const char *name)
{
    char *copy = np_strdup(name);

    if (copy && entries->nr_names == entries->cap) {
        const int cap = entries->cap ? entries->cap * 2 : 64;
        char **larger = np_alloc_array((size_t)cap, sizeof(char *));

        if (larger && entries->nr_names)
            memcpy(larger, entries->names, (size_t)entries->nr_names * sizeof(char *));
        if (larger) {
            np_free(entries->names);
            entries->names = larger;
            entries->cap = cap;
        }
    }
    if (!copy || entries->nr_names == entries->cap) {
        np_free(copy);
        return -ENOMEM;
    }
    entries->names[entries->nr_names++] = copy;
    return 0;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int fail(struct walk *walk, int code, const char *what)
{
    return np_err_set(
        walk->err, code, "%s/%s: %s: %s", walk->root, walk->name, what, strerror(-code));
}

/* Takes over fd. */
static int list(struct walk *walk, int fd, struct entries *entries)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    int code = 0;

    if (!dir) {
        code = -errno;
        close(fd);
        return fail(walk, code, "cannot be listed");
    }
    for (errno = 0; !code && (entry = readdir(dir)); errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            code = add_entry(entries, entry->d_name);
    if (!code && errno)
        code = -errno;
    closedir(dir);
    if (code)
        return fail(walk, code, "cannot be listed");
    if (entries->nr_names)
        qsort(entries->names, (size_t)entries->nr_names, sizeof(char *), by_bytes);
    return 0;
}

static int label_of(struct walk *walk)
{
    char class_name[MAX_PATH + 2];
    const char *from = walk->name + walk->class_at, *slash = strchr(from, '/');

    if (!slash)
        return -1;
    memcpy(class_name, from, (size_t)(slash - from));
    class_name[slash - from] = '\0';
    return np_scan_class(walk->index, walk->root, class_name, walk->err);
}

static bool is_hidden(const char *name)
{
    const char *slash = strrchr(name, '/');

    return (slash ? slash[1] : name[0]) == '.';
}

static int add_file(struct walk *walk, const struct stat *st)
{
    const uint32_t bytes = st->st_size > UINT32_MAX ? UINT32_MAX : (uint32_t)st->st_size;
    struct np_record record = {.bytes = bytes, .inner_bytes = bytes};
    const char *match = walk->options->match;
    int label, code;

    if (!np_is_image_name(walk->name)) {
        if (!is_hidden(walk->name) && walk->nr_skipped++ == 0)
            snprintf(walk->skipped, sizeof(walk->skipped), "%.255s", walk->name);
        return 0;
    }
    if (match && *match && !np_match(match, walk->name))
        return 0;
    label = label_of(walk);
    if (label < -1)
        return label;
    record.no_label = label < 0;
    record.label = label < 0 ? 0 : (uint32_t)label;
    code = np_scan_add(walk->index, &record, walk->root, walk->name, walk->err);
    np_source_count(walk->progress, walk->index);
    return code;
}

static int enter(struct walk *walk, int parent, const char *base, size_t used, int depth);

static int visit(struct walk *walk, int fd, const char *base, size_t used, int depth)
{
    struct stat st;
    const size_t bytes = strlen(base);

    if (strlen(walk->root) + 1 + used + bytes + 1 > MAX_PATH)
        return fail(walk, -ENAMETOOLONG, "a path below it");
    memcpy(walk->name + used, base, bytes + 1);
    if (fstatat(fd, base, &st, 0) <
        0) { /* a dangling link, say: a bad sample when it is asked for */
        const int code = -errno;

        if (!np_extent_is_bad(walk->index, code))
            return fail(walk, code, "cannot look at it");
        st = (struct stat){.st_mode = S_IFREG};
    }
    if (S_ISDIR(st.st_mode)) {
        strcpy(walk->name + used + bytes, "/");
        return *base == '.' ? 0 : enter(walk, fd, base, used + bytes + 1, depth);
    }
    return S_ISREG(st.st_mode) ? add_file(walk, &st) : 0;
}

/* Enters the folder into the index, with its mtime: a file that comes or goes changes it. */
static int stamp(struct walk *walk, int fd, int depth)
{
    struct stat st;
    char *path = np_format("%s/%s", walk->root, walk->name);
    int code = 0;

    if (!path || fstat(fd, &st) < 0)
        code = fail(walk, path ? -errno : -ENOMEM, "cannot look at it");
    for (int i = 0; !code && i < depth; i++)
        if (walk->above[i].device == st.st_dev && walk->above[i].inode == st.st_ino)
            code = fail(walk, -ELOOP, "a link leads back to a folder above");
    if (!code) {
        walk->above[depth].device = st.st_dev;
        walk->above[depth].inode = st.st_ino;
        if (np_index_add_file(walk->index, path, 0,
                (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec) < 0)
            code = fail(walk, -ENOMEM, "cannot be listed");
    }
    np_free(path);
    return code;
}

/* base below parent; walk->name has `used` bytes that name it, with a '/' at the end. */
static int enter(struct walk *walk, int parent, const char *base, size_t used, int depth)
{
    struct entries entries = {NULL, 0, 0};
    int fd, listing, code;

    if (depth == MAX_DEPTH)
        return fail(walk, -ELOOP, "folders lie over 32 deep");
    fd = openat(parent, base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(walk, -errno, "cannot open the folder");
    code = stamp(walk, fd, depth);
    if (!code) {
        listing = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        code = listing < 0 ? fail(walk, -errno, "cannot be listed") : list(walk, listing, &entries);
    }
    for (int i = 0; !code && i < entries.nr_names; i++)
        code = visit(walk, fd, entries.names[i], used, depth + 1);
    close(fd);
    entries_fini(&entries);
    walk->name[used] = '\0';
    return code;
}

static int scan(const struct np_source_options *options, struct np_index *index,
    const struct np_source_progress *progress, struct np_err *err)
{
    struct walk *walk = np_alloc(sizeof(*walk));
    struct np_paths paths = {NULL, 0};
    struct stat st;
    int code = walk ? np_paths_find(options->path, &paths, err)
                    : np_err_set(err, -ENOMEM, "%s: out of memory to list it", options->path);

    if (!code && (paths.nr_paths != 1 || stat(paths.paths[0], &st) < 0 || !S_ISDIR(st.st_mode)))
        code = np_err_set(err, -ENOTDIR, "%s: not a folder%s", options->path,
            paths.nr_paths == 1 ? "; for an archive say `source: tar`" : ", but several files");
    if (!code) {
        walk->options = options;
        walk->progress = progress;
        walk->index = index;
        walk->err = err;
        walk->root = paths.paths[0];
        walk->class_at = np_scan_literal_folders(options->match);
        np_index_set_root(index, walk->root);
        code = np_index_root(index) ? enter(walk, AT_FDCWD, walk->root, 0, 0)
                                    : fail(walk, -ENOMEM, "out of memory");
    }
    if (!code && walk->nr_skipped && np_index_samples(index) == 0)
        code = np_err_set(err, -ENODATA,
            "%s: none of its %llu files is an image by its name ('%s')%s", options->path,
            (unsigned long long)walk->nr_skipped, walk->skipped,
            strstr(walk->skipped, ".tar") ? "; archives are named themselves: FOLDER/*.tar*" : "");
    if (!code && walk->nr_skipped)
        np_source_note(progress, "%s: %llu files are no images by their names, the first %s",
            options->path, (unsigned long long)walk->nr_skipped, walk->skipped);
    np_paths_fini(&paths);
    np_free(walk);
    return code;
}

const struct np_source np_source_folder = {
    .name = "folder",
    .help = "image files in a folder a class",
    .keys = "path match unlabelled",
    .scan = scan,
};
