/* What a config's data and model come to: indexes, classes, the shape of a batch, the
 * graph. Shared by train, eval, predict, check, show and bench; none of it starts a thread.
 * One thread, before a run. */
#ifndef NP_SETUP_H
#define NP_SETUP_H

#include "daemon/config/config.h"
#include "loader/source/index.h"
#include "loader/source/source.h"
#include "loader/source/split.h"
#include "trainer/graph/graph.h"

struct np_setup {
    struct np_index *train, *val, *test; /* NULL: none, or not opened */
    struct np_node *classes;             /* in label order: a list of names */
    /* Class of the set's index -> number in classes; NULL: equal. */
    int32_t *train_labels, *val_labels, *test_labels;
    struct np_split split;               /* of train, by np_setup_split(); empty: whole */
    int height, width;                   /* of a row; 0: not known yet */
    struct np_graph *graph, *eval_graph; /* autodiff done, not fused; its np_graph_eval() */
};

/* Opens train, and val and test where they are; classes and size follow. May take long (an
 * archive is unpacked, an index written): progress says so. */
int np_setup_data(const struct np_config *config, const struct np_source_progress *progress,
    struct np_setup *setup, struct np_err *err);
/* One set alone, through the test chain, for weights whose classes and row size are known
 * (setup->classes, height and width set; 0: as the set has it). The config must have it; NP_SET_VAL with
 * data.split is the train set, of which the split's part is meant. */
enum np_which_set { NP_SET_TEST, NP_SET_VAL, NP_SET_TRAIN };
extern const char *const np_set_names[]; /* "test", "val", "train", NULL */
int np_setup_set(const struct np_config *config, enum np_which_set set,
    const struct np_source_progress *progress, struct np_setup *setup, struct np_err *err);
/* `class` for split_by: class, `random` for anything else, as for a run of before the key. */
enum np_split_rule np_split_rule(const struct np_node *node);
/* Parts setup->train as data.split says, anew if it was already. -EINVAL: one part is empty. */
int np_setup_split(const struct np_config *config, struct np_setup *setup, struct np_err *err);
/* setup_classes.c. The classes of a run, and of train its labels: by data.classes, else those of train,
 * of which there must be two. */
int np_setup_classes(const struct np_config *config, struct np_setup *setup, struct np_err *err);
/* The same classes in another order, that of a checkpoint; the labels of all sets follow. -EINVAL: they
 * are not the same. */
int np_setup_order_classes(
    struct np_setup *setup, const struct np_node *classes, struct np_err *err);
/* A text file with one class name per line, as a list of names, for np_node_free(). A UTF-8 mark at its
 * beginning and \r before a line's end are passed over. -EINVAL names the line: empty, with a NUL byte,
 * too long, or a name for the second time. */
int np_classes_read(const char *path, struct np_node **ret_classes, struct np_err *err);
/* Classes of index -> numbers in classes. *ret_labels NULL when they are equal. np_free. A class
 * that is not there is an error that names it. */
int np_match_classes(const struct np_node *classes, const struct np_index *index, const char *what,
    int32_t **ret_labels, struct np_err *err);
/* Bytes of the pixels of a set's first picture; 0: it cannot be read. */
uint64_t np_picture_bytes(const struct np_index *index, int channels);
/* Do the headers of some pictures, spread over the set, say another size than width x height? -EINVAL: more
 * than budget, the share of bad samples that is allowed; text says which. For a chain that leaves sizes as they are. */
int np_check_sizes(
    const struct np_index *index, int width, int height, double budget, struct np_err *err);
/* Width and height of sample 0, from its header or the set's. */
int np_first_size(
    const struct np_index *index, int *ret_width, int *ret_height, struct np_err *err);

/* Both graphs for a device. Mistakes of the model go to report (-EINVAL). */
int np_setup_graph(const struct np_config *config, enum np_dtype precision, struct np_setup *setup,
    struct np_report *report);
/* Is it a mistake of the config or its data (a path, a class, a size), by the code of np_setup_data()? Else the
 * machine has failed: storage, memory. */
bool np_setup_is_mistake(int code);
void np_setup_fini(struct np_setup *setup);

#endif
