#include "daemon/client/sweep.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/base/text.h"

static int add_text(struct np_sweep_axis *axis, const char *value, int bytes, struct np_err *err)
{
    if (bytes == 0)
        return np_err_set(err, -EINVAL, "--sweep %s: a value is empty", axis->key);
    if (axis->nr_texts == NP_SWEEP_MAX_JOBS)
        return np_err_set(
            err, -E2BIG, "--sweep %s: more than %d values", axis->key, NP_SWEEP_MAX_JOBS);
    char *text = np_format("%s=%.*s", axis->key, bytes, value);
    for (int i = 0; i < axis->nr_texts; i++)
        if (strcmp(axis->texts[i], text) == 0) {
            np_err_set(
                err, -EINVAL, "--sweep %s: the value %.*s is there twice", axis->key, bytes, value);
            np_free(text);
            return -EINVAL;
        }
    axis->texts[axis->nr_texts++] = text;
    return 0;
}

/* "1..5"; false: it is another value. */
static bool is_range(const char *text, int bytes, int64_t *ret_first, int64_t *ret_last)
{
    char word[64];

    if (bytes >= (int)sizeof(word))
        return false;
    snprintf(word, sizeof(word), "%.*s", bytes, text);
    char *dots = strstr(word, "..");
    if (!dots)
        return false;
    *dots = '\0';
    return np_text_int(word, INT32_MIN, INT32_MAX, ret_first) &&
           np_text_int(dots + 2, INT32_MIN, INT32_MAX, ret_last);
}

static int add_value(struct np_sweep_axis *axis, const char *text, int bytes, struct np_err *err)
{
    int64_t first, last;
    char number[24];
    int code = 0;

    if (!is_range(text, bytes, &first, &last))
        return add_text(axis, text, bytes, err);
    if (first > last)
        return np_err_set(err, -EINVAL, "--sweep %s: the range %.*s goes down; write %lld..%lld",
            axis->key, bytes, text, (long long)last, (long long)first);
    for (int64_t i = first; i <= last && code == 0; i++)
        code = add_text(axis, number, snprintf(number, sizeof(number), "%lld", (long long)i), err);
    return code;
}

/* Bytes up to the next comma that is in no brackets or quotes, or to the end. */
static int value_bytes(const char *text)
{
    int depth = 0, i = 0;
    char quote = '\0';

    for (; text[i] && (text[i] != ',' || depth > 0 || quote); i++) {
        if (quote)
            quote = text[i] == quote ? '\0' : quote;
        else if (text[i] == '"' || text[i] == '\'')
            quote = text[i];
        else
            depth += (strchr("[{", text[i]) != NULL) - (strchr("]}", text[i]) != NULL);
    }
    return i;
}

static bool has_key(const struct np_sweep *sweep, const char *key)
{
    for (int i = 0; i < sweep->nr_axes; i++)
        if (strcmp(sweep->axes[i].key, key) == 0)
            return true;
    return false;
}

int np_sweep_add(struct np_sweep *sweep, const char *text, struct np_err *err)
{
    const char *equals = strchr(text, '=');
    const int nr_jobs = sweep->nr_axes ? sweep->nr_jobs : 1;
    int code = 0;

    if (!equals || equals == text)
        return np_err_set(err, -EINVAL, "--sweep: expected KEY=VALUE,VALUE, not '%s'", text);
    if (sweep->nr_axes == NP_SWEEP_MAX_AXES)
        return np_err_set(err, -E2BIG, "--sweep: at most %d keys are possible", NP_SWEEP_MAX_AXES);
    char *key = np_format("%.*s", (int)(equals - text), text);
    const bool known = has_key(sweep, key);
    struct np_sweep_axis *axis = &sweep->axes[sweep->nr_axes++];
    *axis = (struct np_sweep_axis){key, np_alloc_array(NP_SWEEP_MAX_JOBS, sizeof(char *)), 0};
    if (known)
        return np_err_set(err, -EINVAL, "--sweep %s: the key is there twice", key);
    if (strcmp(key, "name") == 0)
        return np_err_set(err, -EINVAL, "--sweep name: a sweep names its runs itself");
    for (const char *at = equals; code == 0 && at; at = *at ? at : NULL) {
        const int bytes = value_bytes(++at);

        code = add_value(axis, at, bytes, err);
        at += bytes;
    }
    if (code == 0 && nr_jobs * axis->nr_texts > NP_SWEEP_MAX_JOBS)
        return np_err_set(err, -E2BIG, "--sweep: %d runs; at most %d are possible",
            nr_jobs * axis->nr_texts, NP_SWEEP_MAX_JOBS);
    sweep->nr_jobs = nr_jobs * axis->nr_texts;
    return code;
}

void np_sweep_fini(struct np_sweep *sweep)
{
    for (int a = 0; a < sweep->nr_axes; a++) {
        for (int i = 0; i < sweep->axes[a].nr_texts; i++)
            np_free(sweep->axes[a].texts[i]);
        np_free(sweep->axes[a].texts);
        np_free((char *)sweep->axes[a].key);
    }
    *sweep = (struct np_sweep){0};
}

const char *np_sweep_text(const struct np_sweep *sweep, int job, int axis)
{
    for (int a = sweep->nr_axes - 1; a > axis; a--)
        job /= sweep->axes[a].nr_texts;
    return sweep->axes[axis].texts[job % sweep->axes[axis].nr_texts];
}

/* "-lr0.1" of "optimizer.sgd.lr=0.1". */
static size_t put_part(char *to, size_t room, const char *text)
{
    const char *equals = strchr(text, '='), *word = equals;
    size_t used = 0;

    while (word > text && word[-1] != '.')
        word--;
    for (to[used++] = '-'; *word && used + 1 < room; word++)
        if (word != equals &&
            (isalnum((unsigned char)*word) || strchr("-_.", *word) || to[used - 1] != '-'))
            to[used++] = isalnum((unsigned char)*word) || strchr("-_.", *word) ? *word : '-';
    while (used > 1 && to[used - 1] == '-')
        used--;
    to[used] = '\0';
    return used;
}

static bool is_taken(char (*names)[NP_SWEEP_NAME], int nr, const char *name)
{
    for (int i = 0; i < nr; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

void np_sweep_names(const struct np_sweep *sweep, const char *base, char (*names)[NP_SWEEP_NAME])
{
    for (int job = 0; job < sweep->nr_jobs; job++) {
        char *name = names[job], end[16] = "";
        size_t used = (size_t)snprintf(name, NP_SWEEP_NAME - 16, "%s", base);

        used = used < NP_SWEEP_NAME - 16 ? used : NP_SWEEP_NAME - 17;
        for (int a = 0; a < sweep->nr_axes && used + 2 < NP_SWEEP_NAME; a++)
            used += put_part(name + used, NP_SWEEP_NAME - used, np_sweep_text(sweep, job, a));
        for (int i = 2; is_taken(names, job, name); i++) {
            const size_t bytes = (size_t)snprintf(end, sizeof(end), "-%d", i);
            const size_t at = used + bytes < NP_SWEEP_NAME ? used : NP_SWEEP_NAME - 1 - bytes;

            strcpy(name + at, end);
        }
    }
}
