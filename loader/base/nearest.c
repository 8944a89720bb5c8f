/* The word that was probably meant by a mistyped key or name. Any thread. */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/nearest.h"

#include "loader/base/alias.h"

#define MAX_WORD 64

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, substitutions and swaps of neighbours that make b of a (optimal string
 * alignment); words up to MAX_WORD. */
static int edit_distance(const char *a, const char *b)
{
    int rows[3][MAX_WORD + 1], n = (int)strlen(b);

    if (strlen(a) > MAX_WORD || n > MAX_WORD)
        return INT_MAX;
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    int i = 0;
    for (; a[i]; i++) {
        const int *above = rows[i % 3], *before = rows[(i + 2) % 3];
        int *row = rows[(i + 1) % 3];

        row[0] = i + 1;
        for (int j = 0; j < n; j++) {
            row[j + 1] = least(above[j] + (a[i] != b[j]), least(above[j + 1], row[j]) + 1);
            if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
                row[j + 1] = least(row[j + 1], before[j - 1] + 1);
        }
    }
    return rows[i % 3][n];
}

const char *np_nearest(const char *word, const char *const *words)
{
    const char *nearest = NULL;
    const int far = (int)strlen(word) / 3 + 1; /* one edit in three letters, and one at least */
    int best = far < 2 ? 2 : far;

    for (; *words; words++) {
        int distance = edit_distance(word, *words);

        if (distance < best) {
            best = distance;
            nearest = *words;
        }
    }
    return nearest;
}

static bool among(const char *const *words, const char *word)
{
    for (; *words; words++)
        if (strcmp(*words, word) == 0)
            return true;
    return false;
}

/* What the word is called here: one of `words`, else a name that says where it belongs: a whole path
 * or a flag. *ret_known: another trainer has the word, so it is no typing mistake. */
static const char *alias_among(const char *word, const char *const *words, bool *ret_known)
{
    const char *name, *elsewhere = NULL;

    for (int i = 0; (name = np_alias(word, i)); i++) {
        const char *dot = strrchr(name, '.');

        *ret_known = true;
        if (*name && among(words, name))
            return name;
        if (dot && among(words, dot + 1))
            return dot + 1;
        if (dot || strncmp(name, "--", 2) == 0)
            elsewhere = name;
    }
    return elsewhere;
}

const char *np_meant(const char *word, const char *const *words)
{
    bool known = false;
    const char *name = alias_among(word, words, &known);

    if (name)
        return among(words, name) ? name : NULL;
    return known ? NULL : np_nearest(word, words);
}

void np_suggest(const char *word, const char *const *words, const char *what_there_is, char *text,
    size_t text_bytes)
{
    bool known = false;
    const char *name = alias_among(word, words, &known);

    if (!name && !known)
        name = np_nearest(word, words);
    if (name) {
        snprintf(text, text_bytes, "; did you mean '%s'?", name);
        return;
    }
    snprintf(text, text_bytes, "; %s: %s", what_there_is, *words ? "" : "nothing");
    for (int i = 0; words[i]; i++)
        snprintf(text + strlen(text), text_bytes - strlen(text), "%s%s", i ? ", " : "", words[i]);
}
