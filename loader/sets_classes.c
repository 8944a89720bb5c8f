/* The classes of a run, from the training set or a file, and the labels of each set. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/sets.h"
#include "loader/source/label_text.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/text.h"

#define MAX_FILE (256u << 20)

/* --- classes: FILE --------------------------------------------------------------------------- */

/* A class name with its label, which is its line minus 1. */
struct named {
    const char *name;
    int label;
};

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct named *)left)->name, ((const struct named *)right)->name);
}

static int by_name_and_label(const void *left, const void *right)
{
    const int order = by_name(left, right);

    return order ? order
                 : ((const struct named *)left)->label - ((const struct named *)right)->label;
}

/* Sorted by name, then label; np_free. NULL: out of memory. */
static struct named *sorted_names(const struct np_node *list, struct np_err *err)
{
    struct named *names = np_try_array((size_t)list->nr_items + 1, sizeof(*names), err);

    if (!names)
        return NULL;
    for (int i = 0; i < list->nr_items; i++)
        names[i] = (struct named){list->items[i]->text, i};
    qsort(names, (size_t)list->nr_items, sizeof(*names), by_name_and_label);
    return names;
}

static int check_unique(const char *path, const struct np_node *list, struct np_err *err)
{
    struct named *names = sorted_names(list, err);
    int twice = -1, before = -1;

    if (!names)
        return -ENOMEM;
    for (int i = 1; i < list->nr_items; i++)
        if (by_name(&names[i], &names[i - 1]) == 0 && (twice < 0 || names[i].label < twice)) {
            twice = names[i].label;
            before = names[i - 1].label;
        }
    np_free(names);
    if (twice < 0)
        return 0;
    return np_err_set(err, -EINVAL, "%s:%d: the class '%.200s' is also in line %d", path, twice + 1,
        list->items[twice]->text, before + 1);
}

static int add_line(
    const char *path, char *from, size_t bytes, struct np_node *list, struct np_err *err)
{
    const int number = list->nr_items + 1;
    struct np_node *name;

    if (bytes && from[bytes - 1] == '\r')
        bytes--;
    if (bytes == 0)
        return np_err_set(err, -EINVAL, "%s:%d: an empty line; one class per line", path, number);
    if (memchr(from, '\0', bytes))
        return np_err_set(err, -EINVAL, "%s:%d: a NUL byte: not a text file", path, number);
    if (bytes > NP_MAX_NAME)
        return np_err_set(
            err, -EINVAL, "%s:%d: a name of over %d bytes", path, number, NP_MAX_NAME);
    if (number > NP_MAX_CLASSES)
        return np_err_set(err, -EINVAL, "%s:%d: over %d classes", path, number, NP_MAX_CLASSES);
    from[bytes] = '\0';
    name = np_node_scalar(from, 0, 0);
    name->quoted = true;
    np_node_add(list, NULL, name);
    return 0;
}

int np_classes_read(const char *path, struct np_node **ret_classes, struct np_err *err)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);
    char *text = NULL, *at, *end, *newline;
    uint64_t bytes = 0;
    int code = np_read_file(path, MAX_FILE, &text, &bytes, err);

    if (code == 0) {
        at = text + (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
        end = text + bytes;
        for (; code == 0 && at < end; at = newline + 1) {
            newline = memchr(at, '\n', (size_t)(end - at));
            newline = newline ? newline : end;
            code = add_line(path, at, (size_t)(newline - at), list, err);
        }
    }
    np_free(text);
    if (code == 0 && list->nr_items == 0)
        code = np_err_set(err, -EINVAL, "%s: it is empty; one class per line", path);
    if (code == 0)
        code = check_unique(path, list, err);
    if (code < 0)
        np_node_free(list);
    else
        *ret_classes = list;
    return code;
}

/* --- matching -------------------------------------------------------------------------------- */

static struct np_node *class_list(const struct np_index *index)
{
    struct np_node *list = np_node_new(NP_NODE_LIST, 0, 0);

    for (int i = 0; i < index->nr_classes; i++) {
        struct np_node *name = np_node_scalar(index->classes[i], 0, 0);
        name->quoted = true;
        np_node_add(list, NULL, name);
    }
    return list;
}

static int match_classes(const struct np_node *classes, const struct np_index *index,
    const char *what, const char *of, int32_t **ret_labels, struct np_err *err)
{
    const int n = index->nr_classes, nr_known = classes->nr_items;
    struct named *sorted = sorted_names(classes, err);
    int32_t *labels = np_try_array((size_t)n + 1, sizeof(*labels), err);
    bool equal = n <= nr_known;
    int code = sorted && labels ? 0 : -ENOMEM;

    for (int i = 0; code == 0 && i < n; i++) {
        const struct named key = {index->classes[i], 0}, *found;

        found = bsearch(&key, sorted, (size_t)nr_known, sizeof(*sorted), by_name);
        if (!found)
            code = np_err_set(err, -EINVAL,
                "%s: the class '%.200s' is not among the %d classes of %s (%.60s ... %.60s)", what,
                key.name, nr_known, of, classes->items[0]->text,
                classes->items[nr_known - 1]->text);
        labels[i] = found ? found->label : 0;
        equal = equal && labels[i] == i;
    }
    np_free(sorted);
    if (code < 0 || equal) {
        np_free(labels);
        labels = NULL;
    }
    if (code == 0)
        *ret_labels = labels;
    return code;
}

/* --- labels that are no classes --------------------------------------------------------------- */

/* The places of a set's columns in names; np_free. NULL: they are not the same, or -ENOMEM. */
static int *column_places(const struct np_source_options *source, const struct np_node *names,
    const char *what, struct np_err *err)
{
    struct np_node *own = np_source_label_names(source);
    int *places = np_try_array((size_t)own->nr_items, sizeof(*places), err);
    const char *missing = NULL;

    for (int i = 0; places && !missing && i < own->nr_items; i++) {
        for (places[i] = 0; places[i] < names->nr_items; places[i]++)
            if (strcmp(own->items[i]->text, names->items[places[i]]->text) == 0)
                break;
        missing = places[i] == names->nr_items ? own->items[i]->text : NULL;
    }
    if (places && (missing || own->nr_items != names->nr_items)) {
        np_err_set(err, -EINVAL,
            "%s: its %d values are not the %d of the training set (%.60s ... %.60s)%s%.100s", what,
            own->nr_items, names->nr_items, names->items[0]->text,
            names->items[names->nr_items - 1]->text, missing ? "; one is " : "",
            missing ? missing : "");
        np_free(places);
        places = NULL;
    }
    np_node_free(own);
    return places;
}

int np_match_labels(const struct np_source_options *source, const struct np_node *classes,
    struct np_index *index, const char *what, int32_t **ret_labels, struct np_err *err)
{
    const enum np_label_type type = (enum np_label_type)source->label_type;
    int *places = NULL, code;

    if (type == NP_LABEL_CLASS)
        return match_classes(classes, index, what, "the training set", ret_labels, err);
    if (type == NP_LABEL_VALUE && !(places = column_places(source, classes, what, err)))
        return err->code;
    code = np_label_values(type, classes, places, index, ret_labels, err);
    np_free(places);
    return code < 0 ? np_err_context(err, "%s: %s", what, source->path ? source->path : "") : 0;
}

/* The names of several classes or numbers of the training set. */
static int typed_names(const struct np_source_options *train, const struct np_index *index,
    struct np_node **ret_names, struct np_err *err)
{
    struct np_node *names = np_source_label_names(train);

    if (train->label_type == NP_LABEL_VALUE || names->nr_items > 1) {
        *ret_names = names;
        return 0;
    }
    np_node_free(names);
    const int code = np_label_classes(index, ret_names, err);
    return code < 0 ? np_err_context(err, "data.train: %s", train->path) : 0;
}

/* --- the classes of a run -------------------------------------------------------------------- */

/* A single class is nearly always a mistake: the class folders are one level too deep, or are
 * missing. */
static int check_several(
    const struct np_set_options *options, const struct np_index *train, struct np_err *err)
{
    const int n = train->nr_classes;

    if (n > 1)
        return 0;
    if (n < 1)
        return np_err_set(err, -EINVAL, "data.train: its samples have no classes");
    return np_err_set(err, -EINVAL,
        "data.train: %s: all its samples are of one class, '%.200s'. Classes are the first "
        "folders below the one given (of an archive, below those that all its members share). "
        "Give each class a folder there, or name the folder that holds the class folders with "
        "`match: \"FOLDER/*\"`, or name this one class in a file for data.classes",
        options->data->train.path ? options->data->train.path : "", train->classes[0]);
}

/* A checkpoint stores the names in JSON, and a resumed run compares them. */
static int check_text(const struct np_node *classes, const char *what, struct np_err *err)
{
    char name[300];

    for (int i = 0; i < classes->nr_items; i++) {
        if (np_text_is_utf8(classes->items[i]->text))
            continue;
        np_text_escape(classes->items[i]->text, name, sizeof(name));
        return np_err_set(err, -EINVAL,
            "%s: the class name '%s' is not UTF-8 text, so a checkpoint cannot store it; rename "
            "it, "
            "for example with: convmv -r -f latin1 -t utf8 --notest DIR",
            what, name);
    }
    return 0;
}

int np_sets_classes(const struct np_set_options *options, struct np_sets *sets, struct np_err *err)
{
    const bool from_file = options->data->classes && *options->data->classes;
    const char *of = from_file ? options->data->classes : "the training set";
    int code;

    if (from_file) {
        code = np_classes_read(options->data->classes, &sets->classes, err);
        if (code < 0)
            return np_err_context(err, "data.classes");
    } else if (options->data->train.label_type != NP_LABEL_CLASS) {
        if ((code = typed_names(&options->data->train, sets->train, &sets->classes, err)) < 0)
            return code;
    } else {
        if ((code = check_several(options, sets->train, err)) < 0)
            return code;
        sets->classes = class_list(sets->train);
    }
    if ((code = check_text(sets->classes, from_file ? "data.classes" : "data.train", err)) < 0)
        return code;
    if (options->data->train.label_type == NP_LABEL_CLASS)
        return match_classes(
            sets->classes, sets->train, "data.train", of, &sets->train_labels, err);
    return np_match_labels(
        &options->data->train, sets->classes, sets->train, "data.train", &sets->train_labels, err);
}

int np_sets_order_classes(const struct np_set_options *options, struct np_sets *sets,
    const struct np_node *classes, struct np_err *err)
{
    const struct {
        const struct np_source_options *source;
        struct np_index *index;
        int32_t **labels;
        const char *what;
    } each[] = {{&options->data->train, sets->train, &sets->train_labels, "data.train"},
        {&options->data->val, sets->val, &sets->val_labels, "data.val"},
        {&options->data->test, sets->test, &sets->test_labels, "data.test"}};

    if (classes->kind != NP_NODE_LIST || classes->nr_items != sets->classes->nr_items)
        return np_err_set(err, -EINVAL, "the training set has %d classes, not %d",
            sets->classes->nr_items, classes->nr_items);
    for (int i = 0; i < classes->nr_items; i++)
        if (classes->items[i]->kind != NP_NODE_SCALAR)
            return np_err_set(err, -EINVAL, "the class names are not text");
    for (int s = 0; s < 3; s++) {
        int32_t *labels = NULL;
        int code = each[s].index ? np_match_labels(each[s].source, classes, each[s].index,
                                       each[s].what, &labels, err)
                                 : 0;

        if (code < 0)
            return code;
        np_free(*each[s].labels);
        *each[s].labels = labels;
    }
    np_node_free(sets->classes);
    sets->classes = np_node_copy(classes);
    return 0;
}
