#include "loader/source/label_json.h"

#include <errno.h>
#include <string.h>

#include "loader/base/json.h"
#include "loader/base/mem.h"
#include "loader/source/label_text.h"

static bool is_scalar(const struct np_node *node)
{
    return node->kind == NP_NODE_SCALAR && !node->real;
}

static int make_class(
    const struct np_node *field, const char *name, char **ret_text, struct np_err *err)
{
    if (!is_scalar(field))
        return np_err_set(
            err, -EINVAL, "%.200s is no class: expected a text or a whole number", name);
    if (!*field->text || strlen(field->text) > NP_MAX_NAME)
        return np_err_set(
            err, -EINVAL, "%.200s is %s", name, *field->text ? "too long for a class" : "empty");
    *ret_text = np_try_strdup(field->text, err);
    return *ret_text ? 0 : -ENOMEM;
}

/* ["cat", "dog"], or "cat|dog". */
static int make_classes(const struct np_node *field, const char *name, char separator,
    char **ret_text, struct np_err *err)
{
    const bool list = field->kind == NP_NODE_LIST;
    const char **names;
    int code = 0;

    if (!list && (!is_scalar(field) || !field->quoted))
        return np_err_set(err, -EINVAL, "%.200s is no list of classes", name);
    if (!list)
        return np_label_of_list(field->text, separator, ret_text, err);
    if (!(names = np_try_array((size_t)field->nr_items + 1, sizeof(*names), err)))
        return -ENOMEM;
    for (int i = 0; code == 0 && i < field->nr_items; i++) {
        names[i] = field->items[i]->text;
        if (!is_scalar(field->items[i]))
            code = np_err_set(err, -EINVAL, "%.200s: item %d is no class", name, i);
    }
    if (code == 0)
        code = np_label_of_names(names, (size_t)field->nr_items, ret_text, err);
    np_free(names);
    return code;
}

/* The texts of several fields: flags as "0" and "1", or numbers. */
static int take_cells(const struct np_node *const *found, const struct np_label_fields *fields,
    const char **cells, struct np_err *err)
{
    for (int i = 0; i < fields->names->nr_items; i++) {
        const bool flag = fields->type == NP_LABEL_MULTI && !found[i]->quoted;

        if (found[i]->kind != NP_NODE_SCALAR)
            return np_err_set(err, -EINVAL, "%.200s is a list or an object, not a number",
                fields->names->items[i]->text);
        cells[i] = flag && np_node_is(found[i], "true")    ? "1"
                   : flag && np_node_is(found[i], "false") ? "0"
                                                           : found[i]->text;
    }
    return 0;
}

static int make_cells(const struct np_node *const *found, const struct np_label_fields *fields,
    char **ret_text, struct np_err *err)
{
    const int nr = fields->names->nr_items;
    const char **cells = np_try_array(2 * (size_t)nr, sizeof(*cells), err), **names = cells + nr;
    int code = cells ? take_cells(found, fields, cells, err) : -ENOMEM;

    for (int i = 0; code == 0 && i < nr; i++)
        names[i] = fields->names->items[i]->text;
    if (code == 0)
        code = fields->type == NP_LABEL_VALUE ? np_label_of_numbers(cells, names, nr, ret_text, err)
                                              : np_label_of_flags(cells, names, nr, ret_text, err);
    np_free(cells);
    return code;
}

/* 1: one of the fields is null. */
static int find_fields(const struct np_node *object, const struct np_label_fields *fields,
    const struct np_node **ret_found, struct np_err *err)
{
    int nr_null = 0;

    if (object->kind != NP_NODE_MAP)
        return np_err_set(err, -EBADMSG, "its JSON is no object");
    for (int i = 0; i < fields->names->nr_items; i++) {
        const char *name = fields->names->items[i]->text;

        if (!(ret_found[i] = np_node_get(object, name)))
            return np_err_set(err, -EINVAL, "it has no field '%.200s'", name);
        nr_null += is_scalar(ret_found[i]) && !ret_found[i]->quoted && !*ret_found[i]->text;
    }
    return nr_null > 0;
}

int np_label_of_json(const char *text, size_t bytes, const struct np_label_fields *fields,
    char **ret_text, struct np_err *err)
{
    const struct np_node *names = fields->names;
    const struct np_node **found = np_try_array((size_t)names->nr_items, sizeof(*found), err);
    struct np_node *object = NULL;
    char *label = NULL;
    int code = found ? np_json_parse(text, bytes, &object, err) : -ENOMEM;

    if (code == 0)
        code = find_fields(object, fields, found, err);
    if (code == 0 && fields->type == NP_LABEL_CLASS)
        code = make_class(found[0], names->items[0]->text, &label, err);
    else if (code == 0 && fields->type == NP_LABEL_MULTI && names->nr_items == 1)
        code = make_classes(found[0], names->items[0]->text, fields->separator, &label, err);
    else if (code == 0)
        code = make_cells(found, fields, &label, err);
    np_node_free(object);
    np_free(found);
    if (code < 0)
        return code;
    *ret_text = label;
    return 0;
}
