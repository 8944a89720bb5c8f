/* The word somebody may have meant: what a mistyped key or name is nearest to. Any thread. */
#include <limits.h>
#include <string.h>

#include "loader/base/option.h"

#define MAX_WORD 64

/* Levenshtein distance, words up to MAX_WORD. */
static int edit_distance(const char *a, const char *b)
{
    int row[MAX_WORD + 1], n = (int)strlen(b);

    if (strlen(a) > MAX_WORD || n > MAX_WORD)
        return INT_MAX;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];

        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);

            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[n];
}

const char *np_nearest(const char *word, const char *const *words)
{
    const char *nearest = NULL;
    int best = (int)strlen(word) / 3 + 2; /* farther is no suggestion */

    for (; *words; words++) {
        int distance = edit_distance(word, *words);

        if (distance < best) {
            best = distance;
            nearest = *words;
        }
    }
    return nearest;
}
