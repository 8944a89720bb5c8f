/* JSON lines out, JSON in. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "loader/base/json.h"
#include "loader/base/text.h"
#include "loader/base/yaml.h"
#include "tests/test.h"
#include "tests/unit/made_memory.h"

Test(json, writes_an_object_with_stable_numbers)
{
    struct np_json json = {0};
    const int shape[] = {3, 32, 32};

    np_json_begin(&json, "step");
    np_json_int(&json, "step", -7);
    np_json_real(&json, "loss", 0.1);
    np_json_real(&json, "rate", 1e-5);
    np_json_real(&json, "nan", NAN);
    np_json_bool(&json, "ok", true);
    np_json_text(&json, "none", NULL);
    np_json_ints(&json, "shape", shape, 3);
    cr_assert_str_eq(np_json_end(&json),
        "{\"event\": \"step\", \"step\": -7, \"loss\": 0.1, \"rate\": 1e-05, \"nan\": null, "
        "\"ok\": true, \"none\": null, \"shape\": [3, 32, 32]}\n");
    np_json_begin(&json, NULL);
    cr_assert_str_eq(np_json_end(&json), "{}\n");
    np_json_fini(&json);
}

Test(json, text_that_does_not_read_back_is_reported)
{
    char shown[32], small[8];

    cr_assert(np_text_is_utf8("") && np_text_is_utf8("caf\xc3\xa9"));
    cr_assert_not(np_text_is_utf8("caf\xe9") || np_text_is_utf8("\xed\xa0\x80"));
    np_text_escape("caf\xe9 \xc3\xa9\xff", shown, sizeof(shown));
    cr_assert_str_eq(shown, "caf\\xe9 \xc3\xa9\\xff");
    np_text_escape("a\xff\xff\xff", small, sizeof(small));
    cr_assert_str_eq(small, "a\\xff");
}

Test(json, escapes_text_and_replaces_what_is_not_utf8)
{
    struct np_json json = {0};

    np_json_begin(&json, NULL);
    np_json_text(&json, "a\"", "x\\y\n\x01 \xc3\xa9 \xff\xc3 \xed\xa0\x80.");
    cr_assert_str_eq(np_json_end(&json),
        "{\"a\\\"\": \"x\\\\y\\u000a\\u0001 \xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd "
        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd.\"}\n");
    np_json_fini(&json);
}

Test(json, a_node_goes_out_and_comes_back)
{
    static const char text[] = "{\"a\": [1, -2.5, 1e-05, \"3\", \"x\"], \"b\": {\"c\": true, "
                               "\"d\": \"\"}, \"e\": []}\n";
    struct np_node *node = NULL;
    struct np_json json = {0};

    cr_assert_eq(np_json_parse(text, strlen(text), &node, NULL), 0);
    cr_assert(
        np_node_get(node, "a")->items[3]->quoted && !np_node_get(node, "a")->items[0]->quoted);
    np_json_begin(&json, NULL);
    for (int i = 0; i < node->nr_items; i++)
        np_json_node(&json, node->items[i]->key, node->items[i]);
    cr_assert_str_eq(np_json_end(&json),
        "{\"a\": [1, -2.5, 1.0000000000000001e-05, \"3\", \"x\"], \"b\": {\"c\": true, "
        "\"d\": \"\"}, \"e\": []}\n");
    np_json_fini(&json);
    np_node_free(node);
}

Test(json, writes_odd_plain_words_as_text)
{
    static const char *const words[] = {"01", "1.", ".5", "+1", "0x1", "nan", "inf", "1e", "-"};
    struct np_json json = {0};

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        struct np_node *node = np_node_scalar(words[i], 0, 0), *back = NULL;
        np_json_begin(&json, NULL);
        np_json_node(&json, "x", node);
        const char *text = np_json_end(&json);
        cr_assert_eq(np_json_parse(text, strlen(text), &back, NULL), 0);
        cr_assert(np_node_is(np_node_get(back, "x"), words[i]) && np_node_get(back, "x")->quoted);
        np_node_free(node);
        np_node_free(back);
    }
    np_json_fini(&json);
}

Test(json, null_stays_null)
{
    static const char text[] = "{\"a\": null, \"b\": \"\"}";
    struct np_node *node = NULL;
    struct np_json json = {0};

    cr_assert_eq(np_json_parse(text, strlen(text), &node, NULL), 0);
    np_json_begin(&json, NULL);
    np_json_node(&json, "x", node);
    cr_assert_str_eq(np_json_end(&json), "{\"x\": {\"a\": null, \"b\": \"\"}}\n");
    np_json_fini(&json);
    np_node_free(node);
}

Test(json, refuses_malformed_json)
{
    char deep[300];
    struct np_node *node = NULL;
    struct np_err err = {0};

    cr_assert_eq(np_json_parse("{\"a\": }", 7, &node, &err), -74);
    cr_assert(strncmp(err.text, "not JSON: line 1, column ", 25) == 0);
    cr_assert(np_json_parse("{\"a\": 1, \"a\": 2}", 16, &node, NULL) < 0);
    cr_assert(np_json_parse("", 0, &node, NULL) < 0);
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    memset(&err, 0, sizeof(err));
    cr_assert(np_json_parse(deep, 200, &node, &err) < 0);
    cr_assert_str_eq(err.text, "JSON nested deeper than 64 levels");
    cr_assert_null(node);
}

Test(json, a_number_with_a_fraction_or_an_exponent_is_no_integer)
{
    static const char text[] = "[1000, -3, \"1e3\", true, null, 1e3, 1000.0, 0.5]";
    struct np_node *node = NULL;

    cr_assert_eq(np_json_parse(text, strlen(text), &node, NULL), 0);
    for (int i = 0; i < node->nr_items; i++)
        cr_assert_eq(node->items[i]->real, i >= 5, "item %d", i);
    cr_assert_str_eq(node->items[5]->text, "1000");
    np_node_free(node);
}

Test(json, numbers_of_a_mapping_have_a_fallback)
{
    static const char text[] = "{\"a\": 2.5, \"b\": \"x\", \"c\": null, \"d\": [1]}";
    struct np_node *node = NULL;

    cr_assert_eq(np_json_parse(text, strlen(text), &node, NULL), 0);
    cr_assert_float_eq(np_node_number(node, "a", 9), 2.5, 0);
    cr_assert_float_eq(np_node_number(node, "b", 9), 9, 0);
    cr_assert_float_eq(np_node_number(node, "c", 9), 9, 0);
    cr_assert_float_eq(np_node_number(node, "d", 9), 9, 0);
    cr_assert_float_eq(np_node_number(node, "e", 9), 9, 0);
    np_node_free(node);
}

/* Whichever allocation fails, a parser says -ENOMEM and leaves nothing behind. */
static int fail_each(const char *text, bool yaml)
{
    for (int n = 1;; n++) {
        struct np_node *node = NULL;
        struct np_report report;
        int code;

        np_report_init(&report, "x");
        made_memory_fail(n);
        code = yaml ? np_yaml_parse(text, strlen(text), &node, &report)
                    : np_json_parse(text, strlen(text), &node, NULL);
        np_node_free(node);
        np_report_fini(&report);
        if (!made_memory_failed()) {
            made_memory_fail(0);
            return code == 0 ? n : -1;
        }
        if (code != -ENOMEM)
            return -1;
    }
}

Test(json, a_parser_without_memory_reports_it)
{
    cr_assert_gt(fail_each("{\"a\": [1, \"b\", null], \"c\": {\"d\": true}}", false), 10);
    cr_assert_gt(fail_each("a: [1, b]\nc: {d: e}\n", true), 10);
}
