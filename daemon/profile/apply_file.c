/* np_apply_file(), see apply.h: the new text goes into a file beside its place, is read as a config and
 * held against the old one with the same settings by `-o`, and only then gets its name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/profile/apply.h"
#include "loader/base/mem.h"
#include "loader/base/yaml.h"

#define NR_MOVED 10 /* a name, and three paths of three sets */

static int load(const char *path, const char *const *settings, int nr,
    struct np_config **ret_config, struct np_err *err)
{
    struct np_report report;
    int code;

    np_report_init(&report, path);
    code = np_config_load(path, settings, nr, ret_config, &report);
    if (code < 0)
        np_err_set(err, -EINVAL, "%s: line %d: %s", path, report.nr_errs ? report.errs[0].line : 0,
            report.nr_errs ? report.errs[0].text : "it is not a config");
    np_report_fini(&report);
    return code < 0 ? -EINVAL : 0;
}

/* A config in its normal form, to be compared; free(). NULL: no memory. */
static char *normal_form(const struct np_config *config)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (out) {
        struct np_node *node = np_config_node(config);

        np_node_print(out, node);
        np_node_free(node);
        fclose(out);
    }
    return text;
}

/* --- what depends on the file's place --------------------------------------------------------- */

static void add_moved(
    const char *key, const char *wanted, const char *got, char *moved[NR_MOVED], int *nr)
{
    if (!wanted || !*wanted || strcmp(wanted, got ? got : "") == 0)
        return;
    char *quoted = np_alloc(2 * strlen(wanted) + 1), *at = quoted;

    for (const char *c = wanted; quoted && *c; c++) {
        if (*c == '"' || *c == '\\')
            *at++ = '\\';
        *at++ = *c;
    }
    moved[*nr] = quoted ? np_format("%s=\"%s\"", key, quoted) : NULL;
    *nr += moved[*nr] != NULL;
    np_free(quoted);
}

/* Settings that make the copy mean what it did in its old place; np_free() each. Their number. */
static int moved_settings(
    const struct np_config *wanted, const struct np_config *got, char *moved[NR_MOVED])
{
    static const char *const keys[3][3] = {
        {"data.train.path", "data.train.labels", "data.train.cache_dir"},
        {"data.test.path", "data.test.labels", "data.test.cache_dir"},
        {"data.val.path", "data.val.labels", "data.val.cache_dir"},
    };
    const struct np_source_options *a[3] = {&wanted->data.train, &wanted->data.test, &wanted->data.val};
    const struct np_source_options *b[3] = {&got->data.train, &got->data.test, &got->data.val};
    int nr = 0;

    add_moved("name", wanted->name, got->name, moved, &nr);
    for (int i = 0; i < 3; i++) {
        add_moved(keys[i][0], a[i]->path, b[i]->path, moved, &nr);
        add_moved(keys[i][1], a[i]->labels, b[i]->labels, moved, &nr);
        add_moved(keys[i][2], a[i]->cache_dir, b[i]->cache_dir, moved, &nr);
    }
    return nr;
}

/* Does the file `made` mean what is wanted? moved NULL: the difference is an error; else it comes back as
 * settings. */
static int check_meaning(const struct np_config *wanted, const char *made, char *moved[NR_MOVED],
    int *ret_nr_moved, struct np_err *err)
{
    struct np_config *got = NULL;
    int code = load(made, NULL, 0, &got, err);
    char *a = NULL, *b = NULL;

    if (code == 0 && moved)
        *ret_nr_moved = moved_settings(wanted, got, moved);
    if (code == 0 && (!moved || *ret_nr_moved == 0)) {
        a = normal_form(wanted);
        b = normal_form(got);
        if (!a || !b)
            code = np_err_set(err, -ENOMEM, "out of memory");
        else if (strcmp(a, b) != 0)
            code = np_err_set(err, -EINVAL,
                "%s: with the settings written into it, it means another config", wanted->path);
    }
    free(a);
    free(b);
    np_config_free(got);
    return code;
}

/* --- files ------------------------------------------------------------------------------------ */

static int read_whole(const char *path, char **ret_text, size_t *ret_bytes, struct np_err *err)
{
    FILE *in = fopen(path, "re");
    FILE *out = in ? open_memstream(ret_text, ret_bytes) : NULL;
    char block[4096];
    size_t n;
    int code = 0;

    if (!out)
        code = np_err_set(err, -errno, "%s: %s", path, strerror(errno));
    while (out && (n = fread(block, 1, sizeof(block), in)) > 0)
        fwrite(block, 1, n, out);
    if (out && ferror(in))
        code = np_err_set(err, -EIO, "%s: cannot be read", path);
    if (out)
        fclose(out);
    if (in)
        fclose(in);
    if (code < 0 && out) {
        free(*ret_text);
        *ret_text = NULL;
    }
    return code;
}

/* Into a fresh file beside `to`, with the rights of `from`. */
static int write_beside(
    const char *from, char *made, const char *text, size_t bytes, struct np_err *err)
{
    struct stat stat_;
    int fd = mkstemp(made), code = 0;
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;

    if (fd >= 0 && stat(from, &stat_) == 0)
        fchmod(fd, stat_.st_mode & 0666);
    if (!out || fwrite(text, 1, bytes, out) != bytes || fflush(out) != 0 || fsync(fd) != 0)
        code = np_err_set(err, -errno, "%s: cannot be written: %s", made, strerror(errno));
    if (out)
        fclose(out);
    else if (fd >= 0)
        close(fd);
    if (code < 0 && fd >= 0)
        unlink(made);
    return code;
}

static bool same_file(const char *a, const char *b)
{
    struct stat one, two;

    return stat(a, &one) == 0 && stat(b, &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
}

/* Settings into a text, the text into a fresh file, whose name goes to *ret_made. */
static int make(const char *from, const char *to, char **text, size_t *bytes,
    const char *const *settings, int nr, char **ret_made, struct np_err *err)
{
    char *edited = NULL, *made = np_format("%s.XXXXXX", to);
    size_t edited_bytes = 0;
    int code = made ? np_apply_text(*text, *bytes, settings, nr, &edited, &edited_bytes, err)
                    : np_err_set(err, -ENOMEM, "out of memory");

    if (code < 0) {
        np_free(made);
        return np_err_context(err, "%s", from);
    }
    free(*text);
    *text = edited;
    *bytes = edited_bytes;
    code = write_beside(from, made, edited, edited_bytes, err);
    if (code == 0)
        *ret_made = made;
    else
        np_free(made);
    return code;
}

static void drop(char **made)
{
    if (*made)
        unlink(*made);
    np_free(*made);
    *made = NULL;
}

int np_apply_file(
    const char *from, const char *to, const char *const *settings, int nr, struct np_err *err)
{
    char *text = NULL, *made = NULL, *moved[NR_MOVED];
    struct np_config *wanted = NULL;
    struct np_err why = {0};
    size_t bytes = 0;
    int nr_moved = 0, code = 0;

    if (same_file(from, to))
        code = np_err_set(&why, -EINVAL, "%s is the config itself; it is not written over", to);
    if (code == 0)
        code = read_whole(from, &text, &bytes, &why);
    if (code == 0)
        code = make(from, to, &text, &bytes, settings, nr, &made, &why);
    if (code == 0)
        code = load(from, settings, nr, &wanted, &why);
    if (code == 0)
        code = check_meaning(wanted, made, moved, &nr_moved, &why);
    if (code == 0 && nr_moved > 0) {
        drop(&made);
        code = make(from, to, &text, &bytes, (const char *const *)moved, nr_moved, &made, &why);
        if (code == 0)
            code = check_meaning(wanted, made, NULL, NULL, &why);
    }
    if (code == 0 && rename(made, to) < 0)
        code = np_err_set(&why, -errno, "%s: cannot be written: %s", to, strerror(errno));
    if (code < 0)
        drop(&made);
    while (nr_moved-- > 0)
        np_free(moved[nr_moved]);
    free(text);
    np_free(made);
    np_config_free(wanted);
    return code < 0 ? np_err_set(err, code, "%s", why.text) : 0;
}
