/* What torch, timm, Keras and other trainers call a thing that has another name here. Any thread. */
#ifndef NP_ALIAS_H
#define NP_ALIAS_H

/* What a word of torch, Keras and other trainers is called here: a key's whole path ("loader.batch"),
 * a name ("flip"), a flag ("--weights"), or "" where there is nothing like it. Some have several names:
 * index counts from 0; NULL: no more. */
const char *np_alias(const char *word, int index);
/* The key of a config that it may be called here, by its whole path; NULL: it is none. */
const char *np_alias_key(const char *word);

#endif
