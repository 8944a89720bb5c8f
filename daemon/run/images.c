#include "daemon/run/images.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/run/run_folder.h"
#include "loader/base/mem.h"
#include "loader/source/source_scan.h"

#define MAX_PIPE_BYTES (256ull << 20)
#define ROOT           "/" /* of the set: names are absolute paths without it */

/* --- finding ------------------------------------------------------------------------------- */

/* Takes ownership of path (NULL: -ENOMEM). */
static int add_path(struct np_images *images, char *path, struct np_err *err)
{
    if (!path ||
        np_try_grow(&images->paths, &images->room, images->nr_paths + 1, sizeof(path), err) < 0) {
        np_free(path);
        return -ENOMEM;
    }
    images->paths[images->nr_paths++] = path;
    return 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool is_link(const char *path)
{
    struct stat stat_;

    return lstat(path, &stat_) == 0 && S_ISLNK(stat_.st_mode);
}

/* Links to folders may form a circle. */
static int add_below(struct np_images *images, const char *folder, struct np_err *err)
{
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, not_hidden, by_bytes);
    int code =
        n < 0 ? np_err_set(err, -errno, "%s: cannot be read: %s", folder, strerror(errno)) : 0;

    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name, *end = folder + strlen(folder) - 1;
        char *path =
            code == 0 ? np_try_format(err, "%s%s%s", folder, *end == '/' ? "" : "/", name) : NULL;

        if (path && np_is_folder(path)) {
            code = is_link(path) ? 0 : add_below(images, path, err);
            np_free(path);
        } else if (code == 0 && np_is_image_name(name)) {
            code = add_path(images, path, err);
        } else {
            np_free(path);
        }
        free(entries[i]);
    }
    free(entries);
    return code;
}

static int add_folder(struct np_images *images, const char *folder, struct np_err *err)
{
    const uint64_t before = images->nr_paths;
    const int code = add_below(images, folder, err);

    if (code == 0 && images->nr_paths == before)
        return np_err_set(err, -ENOENT, "%s: there is no image in this folder", folder);
    return code;
}

static int add_place(struct np_images *images, const char *path, struct np_err *err)
{
    return np_is_folder(path) ? add_folder(images, path, err)
                              : add_path(images, np_try_strdup(path, err), err);
}

static int add_glob(struct np_images *images, const char *pattern, struct np_err *err)
{
    glob_t found = {0};
    int code = 0;

    if (glob(pattern, 0, NULL, &found) != 0)
        code = np_err_set(err, -ENOENT, "%s: no file matches", pattern);
    for (size_t i = 0; code == 0 && i < found.gl_pathc; i++)
        code = add_place(images, found.gl_pathv[i], err);
    globfree(&found);
    return code;
}

int np_images_add(struct np_images *images, const char *word, struct np_err *err)
{
    if (access(word, F_OK) == 0)
        return add_place(images, word, err);
    if (*word == '@')
        return np_images_add_list(images, word + 1, err);
    return word[strcspn(word, "*?[")] ? add_glob(images, word, err) : add_place(images, word, err);
}

int np_images_add_list(struct np_images *images, const char *list, struct np_err *err)
{
    FILE *file = strcmp(list, "-") == 0 ? stdin : fopen(list, "re");
    char *line = NULL;
    size_t room = 0;
    int code = 0;

    if (!file)
        return np_err_set(err, -errno, "%s: cannot be opened: %s", list, strerror(errno));
    for (ssize_t n; code == 0 && (n = getline(&line, &room, file)) > 0;) {
        line[n - (line[n - 1] == '\n')] = '\0';
        if (*line == '@') /* a list in a list could name itself */
            code = add_path(images, np_try_strdup(line, err), err);
        else if (*line)
            code = np_images_add(images, line, err);
    }
    if (code == 0 && ferror(file))
        code = np_err_set(err, -EIO, "%s: cannot be read", list);
    free(line);
    if (file != stdin)
        fclose(file);
    return code;
}

/* --- the set ------------------------------------------------------------------------------- */

/* Copies a pipe or the like, which has no size and can be read once only, and returns the path of
 * the copy; np_free. NULL: see err. */
static char *copy_of(struct np_images *images, const char *path, struct np_err *err)
{
    char *bytes = NULL;
    uint64_t nr_bytes = 0;
    int fd = -1;

    if (np_read_file(path, MAX_PIPE_BYTES, &bytes, &nr_bytes, err) == 0) {
        fd = memfd_create("image", MFD_CLOEXEC);
        if (fd < 0 || write(fd, bytes, nr_bytes) != (ssize_t)nr_bytes)
            np_err_set(err, -errno, "%s: cannot be copied: %s", path, strerror(errno));
    }
    np_free(bytes);
    if (fd >= 0) {
        np_grow(&images->fds, &images->room_fds, (size_t)images->nr_fds + 1, sizeof(fd));
        images->fds[images->nr_fds++] = fd;
    }
    return err->code ? NULL : np_try_format(err, "/proc/self/fd/%d", fd);
}

/* The absolute path under which the readers find an image; np_free. Whatever is wrong with it, they
 * report. */
static char *place_of(
    struct np_images *images, const char *path, const char *here, uint32_t *ret_bytes)
{
    struct np_err why = {0};
    struct stat st;
    char *copy = NULL;

    *ret_bytes = 0;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        copy = copy_of(images, path, &why);
    if (stat(copy ? copy : path, &st) == 0)
        *ret_bytes = st.st_size > UINT32_MAX ? UINT32_MAX : (uint32_t)st.st_size;
    return copy ? copy : *path == '/' ? np_strdup(path) : np_format("%s/%s", here, path);
}

static int add_samples(struct np_images *images, struct np_index *index, struct np_err *err)
{
    char *here = getcwd(NULL, 0);
    int code = here ? 0 : np_err_set(err, -errno, "the working folder: %s", strerror(errno));

    for (uint64_t i = 0; code == 0 && i < images->nr_paths; i++) {
        struct np_record record = {0};
        char *place = place_of(images, images->paths[i], here, &record.bytes);
        const bool is_long = strlen(place) > NP_MAX_NAME;

        record.inner_bytes = record.bytes;
        code = np_index_add(index, &record, is_long ? "too long a name" : place + 1, ROOT, err);
        np_free(place);
    }
    free(here);
    return code;
}

int np_images_index(struct np_images *images, struct np_index **ret_index, struct np_err *err)
{
    struct np_index *index = np_index_new(err);
    int code = index ? 0 : -ENOMEM;

    if (code == 0)
        code = np_index_add_class(index, "image", ROOT, err);
    if (code >= 0)
        code = add_samples(images, index, err);
    if (code == 0 && !(index->root = np_try_strdup(ROOT, err)))
        code = -ENOMEM;
    if (code == 0)
        code = np_index_finish(index, err);
    if (code < 0) {
        np_index_free(index);
        return code;
    }
    *ret_index = index;
    return 0;
}

void np_images_fini(struct np_images *images)
{
    for (uint64_t i = 0; i < images->nr_paths; i++)
        np_free(images->paths[i]);
    for (int i = 0; i < images->nr_fds; i++)
        close(images->fds[i]);
    np_free(images->paths);
    np_free(images->fds);
    *images = (struct np_images){0};
}
