/* What a mistyped or foreign word may mean. Any thread. */
#ifndef NP_NEAREST_H
#define NP_NEAREST_H

#include <stddef.h>

/* The nearest of `words` (NULL-ended) by edit distance, or NULL when none is near. */
const char *np_nearest(const char *word, const char *const *words);
/* The one of `words` (NULL-ended) that `word` means: by np_alias(), then by np_nearest(); or NULL. */
const char *np_meant(const char *word, const char *const *words);
/* The end of a sentence about `word`, which is none of `words` (NULL-ended): "; did you mean 'batch'?",
 * by np_alias(), then by np_nearest(), or "; WHAT THERE IS: a, b". */
void np_suggest(const char *word, const char *const *words, const char *what_there_is, char *text,
    size_t text_bytes);

#endif
