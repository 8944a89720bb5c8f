/* Quoting as in systemd.syntax(7): words in quotes, \ before " and \, and %% for %. */
#include "daemon/service/systemd/dropin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/yaml.h"

struct dropin {
    FILE *out;
    bool bad; /* a path contains a control character */
};

static void put_word(struct dropin *d, const char *key, const char *path, size_t bytes)
{
    fprintf(d->out, "%s=\"-", key); /* "-": the path may be missing */
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)path[i];

        d->bad |= c < ' ' || c == 127;
        if (c == '"' || c == '\\')
            fputc('\\', d->out);
        if (c == '%')
            fputc('%', d->out);
        fputc(c, d->out);
    }
    fputs("\"\n", d->out);
}

/* The length of "/tmp/NAME" in a path below /tmp or /var/tmp; 0: the path is elsewhere. */
static size_t private_part(const char *path)
{
    static const char *const roots[] = {"/tmp/", "/var/tmp/"};

    for (size_t i = 0; i < 2; i++) {
        const size_t bytes = strlen(roots[i]);

        if (strncmp(path, roots[i], bytes) == 0 && path[bytes] && path[bytes] != '/')
            return bytes + strcspn(path + bytes, "/");
    }
    return 0;
}

/* ReadWritePaths= does not show paths that PrivateTmp= hides. */
static void put_writable(struct dropin *d, const char *path)
{
    put_word(d, private_part(path) ? "BindPaths" : "ReadWritePaths", path, strlen(path));
}

static void walk(struct dropin *d, const struct np_node *node)
{
    if (node->kind == NP_NODE_SCALAR) {
        const size_t bytes = private_part(node->text);

        if (bytes)
            put_word(d, "BindReadOnlyPaths", node->text, bytes);
        if (node->key && strcmp(node->key, "cache_dir") == 0 && node->text[0] == '/')
            put_writable(d, node->text);
    }
    for (int i = 0; i < node->nr_items; i++)
        walk(d, node->items[i]);
}

int np_dropin_text(
    const char *dir, const char *cache, const char *config, char **ret_text, struct np_err *err)
{
    struct np_node *root = NULL;
    struct np_report report;
    char *made = NULL;
    size_t bytes;
    int parsed, code;
    struct dropin d = {.out = open_memstream(&made, &bytes)};

    if (!d.out)
        return np_err_set(err, -ENOMEM, "out of memory");
    np_report_init(&report, "config");
    parsed = np_yaml_parse(config, strlen(config), &root, &report);
    if (parsed < 0)
        d.bad = true; /* cannot happen: the config was checked */
    fputs("[Service]\n", d.out);
    put_writable(&d, dir);
    if (cache)
        put_writable(&d, cache);
    if (root)
        walk(&d, root);
    np_node_free(root);
    np_report_fini(&report);
    const bool whole = !ferror(d.out) & (fclose(d.out) == 0) && parsed != -ENOMEM;
    if (!whole)
        code = np_err_set(err, -ENOMEM, "%s: out of memory for the run's config", dir);
    else if (d.bad)
        code = np_err_set(err, -EINVAL,
            "%s: a path of this run has a control character, which a systemd unit cannot contain",
            dir);
    else
        code = (*ret_text = np_try_strdup(made, err)) ? 0 : -ENOMEM;
    free(made);
    return code;
}
