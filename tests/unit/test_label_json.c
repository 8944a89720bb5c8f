/* Labels in JSON: what each kind of field gives, each mistake, and each allocation that fails. */
#include <errno.h>
#include <string.h>

#include "loader/base/mem.h"
#include "loader/source/label_json.h"
#include "loader/source/source.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

static int label_of(enum np_label_type type, const char *columns, const char *json,
    char **ret_label, struct np_err *err)
{
    const struct np_source_options options = {.columns = (char *)columns, .label_type = type};
    struct np_node *names = np_source_label_names(&options);
    const struct np_label_fields fields = {names, type, np_source_separator(&options)};
    const int code = np_label_of_json(json, strlen(json), &fields, ret_label, err);

    np_node_free(names);
    return code;
}

static const struct {
    enum np_label_type type;
    const char *columns, *json, *label; /* label NULL: none */
} good[] = {
    {NP_LABEL_CLASS, "label", "{\"label\": \"cat\"}", "cat"},
    {NP_LABEL_CLASS, "label", "{\"a\": [1], \"label\": 7}", "7"},
    {NP_LABEL_CLASS, "is,it", "{\"is,it\": true}", "true"},
    {NP_LABEL_CLASS, "label", "{\"label\": null}", NULL},
    {NP_LABEL_CLASS, "label", "{\"label\": \"\\ud83d\\ude00\"}", "\xf0\x9f\x98\x80"},
    {NP_LABEL_MULTI, "tags", "{\"tags\": [\"dog\", \"cat\", 3]}", "3|cat|dog"},
    {NP_LABEL_MULTI, "tags", "{\"tags\": []}", "|"},
    {NP_LABEL_MULTI, "tags", "{\"tags\": \"dog | cat\"}", "cat|dog"},
    {NP_LABEL_MULTI, "tags", "{\"tags\": \"\"}", "|"},
    {NP_LABEL_MULTI, "a,b,c", "{\"c\": true, \"b\": 0, \"a\": 1}", "a|c"},
    {NP_LABEL_MULTI, "a,b", "{\"a\": false, \"b\": \"0\"}", "|"},
    {NP_LABEL_VALUE, "x", "{\"x\": 1.5}", "1.5"},
    {NP_LABEL_VALUE, "x,y", "{\"y\": -2, \"x\": \"0.25\"}", "0.25 -2"},
    {NP_LABEL_VALUE, "x,y", "{\"y\": -2, \"x\": null}", NULL},
};

Test(label_json, has_classes_and_numbers)
{
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        struct np_err err = {0};
        char *label = NULL;

        cr_assert_eq(label_of(good[i].type, good[i].columns, good[i].json, &label, &err), 0,
            "%zu: %s", i, err.text);
        cr_expect(good[i].label ? label && strcmp(label, good[i].label) == 0 : !label, "%zu: %s", i,
            label ? label : "none");
        np_free(label);
    }
}

static const struct {
    enum np_label_type type;
    const char *columns, *json, *wanted;
} bad[] = {
    {NP_LABEL_CLASS, "label", "", "not JSON: line 1"},
    {NP_LABEL_CLASS, "label", "{\"label\": 1", "not JSON: line 1"},
    {NP_LABEL_CLASS, "label", "{\"label\": 1, \"label\": 2}", "not JSON: line 1"},
    {NP_LABEL_CLASS, "label", "[1]", "its JSON is no object"},
    {NP_LABEL_CLASS, "label", "{\"Label\": 1}", "it has no field 'label'"},
    {NP_LABEL_CLASS, "label", "{\"label\": 1.5}", "label is no class"},
    {NP_LABEL_CLASS, "label", "{\"label\": [1]}", "label is no class"},
    {NP_LABEL_CLASS, "label", "{\"label\": \"\"}", "label is empty"},
    {NP_LABEL_CLASS, "label", "{\"label\": \"a\\u0000b\"}", "not JSON: line 1"},
    {NP_LABEL_MULTI, "tags", "{\"tags\": 5}", "tags is no list of classes"},
    {NP_LABEL_MULTI, "tags", "{\"tags\": {\"a\": 1}}", "tags is no list of classes"},
    {NP_LABEL_MULTI, "tags", "{\"tags\": [[\"a\"]]}", "tags: item 0 is no class"},
    {NP_LABEL_MULTI, "tags", "{\"tags\": [\"a\", \"a\"]}", "the class 'a' is there twice"},
    {NP_LABEL_MULTI, "tags", "{\"tags\": [\"a|b\"]}", "the class 'a|b' has a '|'"},
    {NP_LABEL_MULTI, "tags", "{\"tags\": [\"a\", null]}", "the list of classes has an empty name"},
    {NP_LABEL_MULTI, "a,b", "{\"a\": 2, \"b\": 0}", "the column 'a' has '2', not 0 or 1"},
    {NP_LABEL_MULTI, "a,b", "{\"a\": [], \"b\": 0}", "a is a list or an object, not a number"},
    {NP_LABEL_VALUE, "x", "{\"x\": true}", "x is 'true', not a number that fits float"},
    {NP_LABEL_VALUE, "x", "{\"x\": 1e39}", "x is '9.9999999999999994e+38', not a number"},
    {NP_LABEL_VALUE, "x", "{\"x\": 1e999}", "not JSON: line 1"},
    {NP_LABEL_VALUE, "x", "{\"x\": NaN}", "not JSON: line 1"},
    {NP_LABEL_VALUE, "x", "{\"x\": [1, 2]}", "x is a list or an object, not a number"},
};

Test(label_json, mistakes_name_the_field)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct np_err err = {0};
        char *label = NULL;
        const int code = label_of(bad[i].type, bad[i].columns, bad[i].json, &label, &err);

        cr_expect(code < 0 && code == err.code && !label, "%zu", i);
        cr_expect(
            strncmp(err.text, bad[i].wanted, strlen(bad[i].wanted)) == 0, "%zu: %s", i, err.text);
    }
}

Test(label_json, without_memory_gives_enomem)
{
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        int code = -ENOMEM;

        for (int n = 1; code == -ENOMEM; n++) {
            struct np_err err = {0};
            char *label = NULL;

            cr_assert(n < 100);
            made_memory_fail(n);
            code = label_of(good[i].type, good[i].columns, good[i].json, &label, &err);
            made_memory_fail(0);
            cr_expect(code == err.code && (code == 0 || !label), "%zu, allocation %d", i, n);
            np_free(label);
        }
        cr_expect_eq(code, 0);
    }
}
