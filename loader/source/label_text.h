/* Labels that are several classes, or numbers, as text: an index stores this text in place of a class
 * name. The classes of a sample are joined by '|' in byte order ("cat|dog"), "|" alone is none; its
 * numbers by blanks ("1.5 -2"). One thread. */
#ifndef NP_LABEL_TEXT_H
#define NP_LABEL_TEXT_H

#include "loader/base/node.h"
#include "loader/source/index.h"

/* Texts of a sample's label; np_free. -EINVAL: err says what is wrong with which cell, without a
 * place. */
/* names: (nr), which it sorts. */
int np_label_of_names(const char **names, size_t nr, char **ret_text, struct np_err *err);
/* cell: names between separators, which are one character, ' ' also many; cut in place. */
int np_label_of_list(char *cell, char separator, char **ret_text, struct np_err *err);
/* Each cell is 0 or 1, names are those of the classes; nr of both. */
int np_label_of_flags(const char *const *cells, const char *const *names, int nr, char **ret_text,
    struct np_err *err);
/* Each cell is a number that is finite in f32; names (may be NULL) for the message. */
int np_label_of_numbers(const char *const *cells, const char *const *names, int nr, char **ret_text,
    struct np_err *err);
/* True for a number that np_label_of_numbers() takes. */
bool np_label_is_number(const char *cell);

/* The names of all classes in the texts of index: in byte order, or by value if all are decimal
 * numbers. The caller frees the list. -EINVAL: there is none. */
int np_label_classes(const struct np_index *index, struct np_node **ret_names, struct np_err *err);
/* Sets index->values from the texts: for NP_LABEL_MULTI 1 at each class of the text, by its place in
 * names; for NP_LABEL_VALUE number i of the text at places[i]. *ret_labels: a number for each text,
 * a hash of its values; np_free. -EINVAL: a class is not among names, or the count of numbers
 * differs. */
int np_label_values(enum np_label_type type, const struct np_node *names, const int *places,
    struct np_index *index, int32_t **ret_labels, struct np_err *err);

#endif
