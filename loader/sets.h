/* The sets of a config: their indexes, classes and labels, and the size of a row. Opened before a
 * loader starts; one thread, which starts no others. */
#ifndef NP_SETS_H
#define NP_SETS_H

#include "loader/loader_options.h"
#include "loader/source/index.h"
#include "loader/source/source.h"
#include "loader/source/split.h"

/* What a config says of them. Borrowed. */
struct np_set_options {
    const struct np_data_options *data;
    const struct np_loader_options *loader;
};

struct np_sets {
    struct np_index *train, *val, *test; /* NULL: none, or not opened */
    struct np_node *classes;             /* a list of names, in label order; of values: theirs */
    /* Class number in the set's index -> label; NULL: equal. With another label_type the index has
     * the values, and these are hashes of them, for checksums. */
    int32_t *train_labels, *val_labels, *test_labels;
    struct np_split split; /* of train, by np_sets_split(); empty: no split */
    struct np_row_sizes size;
};

/* Opens train, and val and test if the config has them, and finds classes and row size. May
 * unpack an archive and write an index, which takes long and is reported by progress. The caller
 * calls np_sets_fini() in any case. */
int np_sets_open(const struct np_set_options *options, const struct np_source_progress *progress,
    struct np_sets *sets, struct np_err *err);
/* Opens one set that the config has, for the test chain and for known sets->classes and sizes
 * (0: the set's own). NP_SET_VAL with data.split opens the train set, for
 * np_sets_split(). */
enum np_which_set { NP_SET_TEST, NP_SET_VAL, NP_SET_TRAIN };
extern const char *const np_set_names[]; /* "test", "val", "train", NULL */
int np_sets_open_one(const struct np_set_options *options, enum np_which_set set,
    const struct np_source_progress *progress, struct np_sets *sets, struct np_err *err);
/* Finds the row size of sets->train, which was opened otherwise, for the chain of training or of
 * testing. */
int np_sets_adopt(const struct np_set_options *options, bool for_training, struct np_sets *sets,
    struct np_err *err);
/* The rule that a split_by node names; random for any other value, as in runs before this key. */
enum np_split_rule np_split_rule(const struct np_node *node);
/* Splits sets->train by data.split, replacing an older split. -EINVAL: one part is empty. */
int np_sets_split(const struct np_set_options *options, struct np_sets *sets, struct np_err *err);
/* Sets classes and train_labels, by data.classes, else by train, which must then have at least two
 * classes. sets_classes.c */
int np_sets_classes(const struct np_set_options *options, struct np_sets *sets, struct np_err *err);
/* Takes the class order of a checkpoint, and adapts the labels of all sets. -EINVAL: the classes
 * differ. */
int np_sets_order_classes(const struct np_set_options *options, struct np_sets *sets,
    const struct np_node *classes, struct np_err *err);
/* Reads a text file with one class name per line; a byte order mark and \r at line ends are
 * ignored. The caller frees the list. -EINVAL: an empty, long or repeated name or a NUL byte;
 * err names the line. */
int np_classes_read(const char *path, struct np_node **ret_classes, struct np_err *err);
/* Maps class numbers of index to labels in classes; *ret_labels is NULL if they are equal, else
 * np_free. -EINVAL names a class that is missing in classes. In messages `what` names the set of
 * index. With another label_type it sets the values of index, in the order of classes; -EINVAL names
 * a class or a column of values that classes lacks. */
int np_match_labels(const struct np_source_options *source, const struct np_node *classes,
    struct np_index *index, const char *what, int32_t **ret_labels, struct np_err *err);
/* Bytes of the pixels of a set's first image; 0: it cannot be read. */
uint64_t np_picture_bytes(const struct np_index *index, int channels);
/* Is this error code of np_sets_open() a mistake of the config or its data (a path, a class, a
 * size)? Else storage or memory failed. */
bool np_sets_is_mistake(int code);
void np_sets_fini(struct np_sets *sets);

#endif
