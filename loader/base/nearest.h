/* Suggests what a mistyped word, or a word of another trainer, means here. Any thread. Lists of
 * words end with NULL. */
#ifndef NP_NEAREST_H
#define NP_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

/* The name in nnpipe for a word of torch, Keras and other trainers: a key's whole path
 * ("loader.batch"), a name ("flip"), a flag ("--weights"), or "" if nnpipe has nothing like it. A
 * word may have several names: index counts from 0; NULL: no more. */
const char *np_alias(const char *word, int index);
/* The whole path of the config's key for such a word; NULL: none. */
const char *np_alias_key(const char *word);

bool np_is_among(const char *word, const char *const *words); /* words NULL: false */
/* The word in `words` with the least edit distance; NULL: none is near. */
const char *np_nearest(const char *word, const char *const *words);
/* The word in `words` that `word` probably means: by np_alias(), else by np_nearest(); NULL:
 * none. */
const char *np_meant(const char *word, const char *const *words);
/* Writes the end of an error about `word`, which is not in `words`: "; did you mean 'batch'?" for a
 * word found by np_alias(), else by np_nearest(); else "; INTRODUCTION: a, b" with all words, or ""
 * if introduction is NULL. */
void np_suggest(const char *word, const char *const *words, const char *introduction, char *text,
    size_t text_bytes);

#endif
