/* np_apply_file(), see apply.h: the new text goes into a file beside its place, is read as a config and
 * held against the old one with the same settings by `-o`, and only then gets its name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/profile/apply.h"
#include "loader/base/mem.h"

/* A config in its normal form, to be compared; NULL: err says why. free(). */
static char *normal_form(const char *path, const char *const *settings, int nr, struct np_err *err)
{
    struct np_config *config = NULL;
    struct np_report report;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = NULL;

    np_report_init(&report, path);
    if (np_config_load(path, settings, nr, &config, &report) < 0)
        np_err_set(
            err, -EINVAL, "%s: %s", path, report.nr_errs ? report.errs[0].text : "it is no config");
    else if (!(out = open_memstream(&text, &bytes)))
        np_err_set(err, -ENOMEM, "out of memory");
    if (out) {
        struct np_node *node = np_config_node(config);

        np_node_print(out, node);
        np_node_free(node);
        fclose(out);
    }
    np_report_fini(&report);
    np_config_free(config);
    return text;
}

/* Does the file `made` mean what `from` does with the settings? */
static int check_meaning(
    const char *from, const char *made, const char *const *settings, int nr, struct np_err *err)
{
    char *wanted = normal_form(from, settings, nr, err);
    char *got = wanted ? normal_form(made, NULL, 0, err) : NULL;
    int code = wanted && got ? 0 : err ? err->code : -EINVAL;

    if (code == 0 && strcmp(wanted, got) != 0)
        code = np_err_set(
            err, -EINVAL, "%s: with the settings written into it, it means another config", from);
    free(wanted);
    free(got);
    return code;
}

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
    if (code < 0 && out)
        free(*ret_text);
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

int np_apply_file(
    const char *from, const char *to, const char *const *settings, int nr, struct np_err *err)
{
    char *text = NULL, *edited = NULL, *made = np_format("%s.XXXXXX", to);
    size_t bytes = 0, edited_bytes = 0;
    struct np_err why = {0};
    int code = 0;

    if (!made)
        return np_err_set(err, -ENOMEM, "out of memory");
    if (same_file(from, to))
        code = np_err_set(&why, -EINVAL, "%s is the config itself; it is not written over", to);
    if (code == 0)
        code = read_whole(from, &text, &bytes, &why);
    if (code == 0 &&
        (code = np_apply_text(text, bytes, settings, nr, &edited, &edited_bytes, &why)))
        np_err_context(&why, "%s", from);
    if (code == 0)
        code = write_beside(from, made, edited, edited_bytes, &why);
    if (code == 0) {
        code = check_meaning(from, made, settings, nr, &why);
        if (code == 0 && rename(made, to) < 0)
            code = np_err_set(&why, -errno, "%s: cannot be written: %s", to, strerror(errno));
        if (code < 0)
            unlink(made);
    }
    free(text);
    free(edited);
    np_free(made);
    return code < 0 ? np_err_set(err, code, "%s", why.text) : 0;
}
