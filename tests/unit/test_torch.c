/* Files of torch.save(): tests/fuzz/corpus/torch, which tests/fuzz/make_torch.py made with torch,
 * and damaged ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/mem.h"
#include "tests/test.h"
#include "trainer/checkpoint/pickle.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/checkpoint/weights_file.h"

#define CORPUS "tests/fuzz/corpus/torch/"

static struct np_tensor tensors[] = {
    {.name = "fc.weight", .role = NP_ROLE_PARAM, .dims = {2, 3}, .nr_dims = 2},
    {.name = "fc.bias", .role = NP_ROLE_PARAM, .dims = {2}, .nr_dims = 1, .offset = 6},
    {.name = "bn.running_mean", .role = NP_ROLE_BUFFER, .dims = {2}, .nr_dims = 1},
};
static const struct np_graph graph = {
    .tensors = tensors, .nr_tensors = 3, .nr_params = 8, .nr_buffers = 2};
static const float made[10] = {-1, -0.75, -0.5, -0.25, 0, 0.25, 1.5, -2, 0.5, 3};

struct loaded {
    float values[10]; /* parameters, then buffers */
    int result;
    char text[1024]; /* the table, or the error */
};

static struct loaded load(const char *path)
{
    struct np_weights_table *table = NULL;
    struct loaded loaded = {0};
    struct np_err err = {0};

    loaded.result = np_weights_load(path, &graph, loaded.values, loaded.values + 8, &table, &err);
    char *text = loaded.result == 0 ? np_weights_table_text(table) : np_strdup(err.text);
    snprintf(loaded.text, sizeof(loaded.text), "%s", text);
    np_free(text);
    np_weights_table_free(table);
    return loaded;
}

static bool is_made(const struct loaded *loaded)
{
    return loaded->result == 0 && memcmp(loaded->values, made, sizeof(made)) == 0;
}

Test(torch, every_form_of_the_same_state_dict_gives_the_same_values)
{
    static const char *const names[] = {"new", "old", "protocol3", "protocol4", "protocol5",
        "old_protocol4", "float16", "bfloat16", "float64", "float16_old", "strided", "strided_old",
        "views", "views_old", "python2", "zip64", "parameters", "attributes", "subclass"};
    char path[100], text[200];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), CORPUS "%s", names[i]);
        snprintf(text, sizeof(text), "weights from %s: all tensors loaded", path);
        const struct loaded loaded = load(path);
        cr_assert(is_made(&loaded), "%s: %s", names[i], loaded.text);
        cr_assert_str_eq(loaded.text, text);
    }
}

Test(torch, the_part_that_scripts_call_the_weights_is_taken_and_named)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"reference", "reference, its part 'model' (also there: model_ema; FILE#PART takes "
                      "another): all tensors loaded"},
        {"imagenet", "imagenet, its part 'state_dict', names without 'module.': all tensors "
                     "loaded"},
        {"lightning", "lightning, its part 'state_dict', names without 'model._orig_mod.': all "
                      "tensors loaded"},
        {"nested", "nested, its part 'network/state_dict': all tensors loaded"},
        {"odd_name", "odd_name, its part 'weights_of_mine' (also there: small; FILE#PART takes "
                     "another): all tensors loaded"},
        {"contrast#encoder_q.", "contrast, its part 'state_dict', names without 'encoder_q.': all "
                                "tensors loaded"},
        {"contrast#state_dict/encoder_q.", "names without 'encoder_q.': all tensors loaded"},
    };
    char path[100];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(path, sizeof(path), CORPUS "%s", rows[i].name);
        const struct loaded loaded = load(path);
        cr_assert(is_made(&loaded), "%s: %s", rows[i].name, loaded.text);
        cr_assert_not_null(strstr(loaded.text, rows[i].text), "%s", loaded.text);
    }
}

Test(torch, modules_that_were_saved_whole_have_the_names_of_their_state_dict)
{
    static const char *const names[] = {"whole_model", "whole_part", "whole_old"};
    char path[100];

    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), CORPUS "%s", names[i]);
        const struct loaded loaded = load(path);
        cr_assert(is_made(&loaded), "%s: %s", names[i], loaded.text);
        cr_assert_not_null(strstr(loaded.text, "bn.running_var"));
        cr_assert_eq(
            strstr(loaded.text, "its part 'model', names without 'module.'") != NULL, i == 1);
    }
}

Test(torch, another_part_is_taken_where_the_user_names_it)
{
    struct loaded loaded = load(CORPUS "reference#model_ema");

    cr_assert_eq(loaded.result, 0);
    cr_assert_str_eq(loaded.text,
        "weights from " CORPUS "reference, its part 'model_ema', names without 'module.': all "
        "tensors loaded\n  not of this network: n_averaged");
    cr_assert_eq(loaded.values[0], 0);
    cr_assert_eq(loaded.values[9], 4);
    loaded = load(CORPUS "odd_name#small");
    cr_assert_str_eq(loaded.text, "weights from " CORPUS "odd_name, its part 'small':\n"
                                  "  fc  in part 1 of 2 tensors loaded; weight is missing\n"
                                  "  bn  fresh   running_mean is missing");
    loaded = load(CORPUS "reference#optimizer");
    cr_assert_eq(loaded.result, -EBADMSG);
    loaded = load(CORPUS "reference#model/fc");
    cr_assert_str_eq(loaded.text, CORPUS "reference: there is no part 'model/fc' with tensors");
    loaded = load(CORPUS "reference#net");
    cr_assert_str_eq(loaded.text,
        CORPUS "reference: there is no part 'net' with tensors; there is model, model_ema");
}

Test(torch, what_is_no_state_dict_is_refused_with_the_reason)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"empty", "holds no state dict: no mapping of names to tensors"},
        {"list", "holds no state dict"},
        {"an_object", "holds an object of argparse.Namespace, not the weights"},
        {"object_inside", "fc.bias is an object of numpy"},
        {"sparse", "fc.bias is a sparse tensor, which is not read"},
        {"quantized", "fc.bias is a quantized tensor"},
        {"float8", "fc.bias is a tensor of a type that only newer GPUs have"},
        {"meta", "fc.bias is a tensor without values"},
        {"script", "a TorchScript archive"},
        {"contrast", "its names begin with 'encoder_q.', the network's do not: " CORPUS
                     "contrast#state_dict/encoder_q. takes them without"},
    };
    char path[100];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(path, sizeof(path), CORPUS "%s", rows[i].name);
        const struct loaded loaded = load(path);
        cr_assert(loaded.result < 0, "%s", rows[i].name);
        cr_assert_not_null(strstr(loaded.text, rows[i].text), "%s: %s", rows[i].name, loaded.text);
    }
}

Test(torch, a_file_of_weights_is_known_from_its_content)
{
    cr_assert(np_weights_is_file(CORPUS "new") && np_weights_is_file(CORPUS "old_protocol4"));
    cr_assert(np_weights_is_file(CORPUS "reference#model_ema"));
    cr_assert(np_weights_is_file("tests/fuzz/corpus/safetensors/two"));
    cr_assert_not(np_weights_is_file("configs/cnn.yaml"));
    cr_assert_not(np_weights_is_file("configs/none.yaml"));
    cr_assert_not(np_weights_is_file("configs"));
}

/* --- damage -------------------------------------------------------------------------------- */

static size_t read_whole(const char *name, uint8_t *bytes, size_t room)
{
    char path[100];

    snprintf(path, sizeof(path), CORPUS "%s", name);
    FILE *file = fopen(path, "rb");
    const size_t n = file ? fread(bytes, 1, room, file) : 0;

    cr_assert(n > 0 && n < room);
    fclose(file);
    return n;
}

static struct loaded load_bytes(const uint8_t *bytes, size_t n)
{
    char path[64];

    snprintf(path, sizeof(path), "/tmp/nnpipe-torch-%d.pth", (int)getpid());
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
    const struct loaded loaded = load(path);
    unlink(path);
    return loaded;
}

Test(torch, every_cut_of_a_good_file_is_refused)
{
    static const char *const names[] = {"new", "old"};
    static uint8_t bytes[8192];

    for (int i = 0; i < 2; i++)
        for (size_t n = read_whole(names[i], bytes, sizeof(bytes)); n-- > 0;)
            cr_assert(load_bytes(bytes, n).result < 0, "%s: %zu bytes", names[i], n);
}

/* `find` occurs once. */
static struct loaded load_changed(const char *name, const char *find, size_t n, const char *with)
{
    static uint8_t bytes[8192];
    const size_t all = read_whole(name, bytes, sizeof(bytes));
    uint8_t *at = memmem(bytes, all, find, n);

    cr_assert(at != NULL);
    memcpy(at, with, n);
    return load_bytes(bytes, all);
}

#define CHANGED(name, find, with) load_changed(name, find, sizeof(find) - 1, with).text

Test(torch, a_changed_byte_of_the_weights_or_the_pickle_is_found_by_its_crc)
{
    cr_assert_not_null(strstr(CHANGED("new", "\0\0\xc0\x3f\0\0\0\xc0", "\0\0\xc0\x3f\0\0\0\xc1"),
        "damaged: the CRC-32 of storage 1 is not the one in the file"));
    cr_assert_not_null(strstr(CHANGED("new", "fc.bias", "fc.bios"), "the CRC-32 of new/data.pkl"));
}

Test(torch, tensors_outside_of_their_storage_are_refused)
{
    /* of fc.weight: offset, size, stride */
    cr_assert_not_null(strstr(CHANGED("protocol3", "K\0K\2K\3\x86", "K\1K\2K\3\x86"),
        "fc.weight: its shape does not fit its storage of 24 bytes"));
    cr_assert_not_null(strstr(CHANGED("protocol3", "K\2K\3\x86", "K\2K\4\x86"), "does not fit"));
    cr_assert_not_null(strstr(CHANGED("protocol3", "K\3K\1\x86", "K\xffK\1\x86"), "does not fit"));
    cr_assert_not_null(strstr(CHANGED("old", "K\2K\3\x86", "K\2K\4\x86"), "does not fit"));
}

Test(torch, other_zip_files_are_refused)
{
    cr_assert_not_null(
        strstr(CHANGED("views", "little", "bigbig"), "its numbers are bigbig-endian"));
    cr_assert_not_null(
        strstr(CHANGED("views", "PK\1\2\0\0\0\0\10\10\0\0", "PK\1\2\0\0\0\0\10\10\10\0"),
            "is compressed, which torch.save() never does"));
    cr_assert_not_null(strstr(CHANGED("views", "PK\1\2\0\0\0\0\10\10", "PK\1\2\0\0\0\0\11\10"),
        "is encrypted, which torch.save() never does"));
}

Test(torch, a_zip64_end_that_lies_elsewhere_is_refused)
{
    cr_assert_not_null(strstr(
        CHANGED("zip64", "PK\6\6", "PK\6\5"), "the end of the zip file is not where it should be"));
    cr_assert_not_null(strstr(CHANGED("zip64", "PK\6\7", "PK\6\5"),
        "the list of the zip file's entries lies outside of it"));
}

/* The row of a name in the list of entries; it stands 46 bytes before the name. */
static uint8_t *row_of(uint8_t *bytes, size_t all, const char *name)
{
    uint8_t *last = NULL;

    for (uint8_t *at = bytes; (at = memmem(at, all - (size_t)(at - bytes), name, strlen(name)));)
        last = at++;
    cr_assert(last != NULL);
    return last - 46;
}

Test(torch, entries_that_overlap_or_lie_elsewhere_are_refused)
{
    static uint8_t bytes[8192];
    const size_t all = read_whole("new", bytes, sizeof(bytes));
    uint8_t *one = row_of(bytes, all, "new/data/1"), *zero = row_of(bytes, all, "new/data/0");
    uint8_t kept[4];

    memcpy(kept, one + 42, 4);
    memcpy(one + 42, zero + 42, 4);
    cr_assert_not_null(strstr(load_bytes(bytes, all).text, "two entries of the zip file overlap"));
    memcpy(one + 42, kept, 4);
    one[42] ^= 1;
    cr_assert_not_null(strstr(load_bytes(bytes, all).text, "is not where its list says"));
    memset(one + 42, 0xfe, 4);
    cr_assert_not_null(strstr(load_bytes(bytes, all).text, "lies outside of it"));
    memcpy(one + 42, kept, 4);
    one[22] = one[26] = 1; /* its sizes */
    cr_assert_not_null(strstr(load_bytes(bytes, all).text, "lies outside of it"));
}

/* --- the pickle ---------------------------------------------------------------------------- */

static int parse(const char *bytes, size_t n, struct np_pickle *pickle)
{
    size_t used = 0;
    const int code = np_pickle_parse((const uint8_t *)bytes, n, pickle, &used, NULL);

    cr_assert(code < 0 || used == n);
    return code;
}

#define PARSE(text, pickle) parse(text, sizeof(text) - 1, pickle)

Test(pickle, values_are_pythons)
{
    struct np_pickle pickle;

    /* {"a": (-2, 300, 0.5, None, True, b"x", -1), 7: [2**40]} in protocol 3 */
    cr_assert_eq(PARSE("\x80\3}q\0(X\1\0\0\0aq\1(J\xfe\xff\xff\xffM,\1G?\xe0\0\0\0\0\0\0N\x88"
                       "C\1xq\2J\xff\xff\xff\xfftq\3K\7]q\4\x8a\6\0\0\0\0\0\1au.",
                     &pickle),
        0);
    const struct np_pickle_value *tuple = np_pickle_get(pickle.root, "a");
    cr_assert(tuple && tuple->kind == NP_PICKLE_TUPLE && tuple->nr_items == 7);
    cr_assert(tuple->items[0]->number == -2 && tuple->items[1]->number == 300);
    cr_assert(tuple->items[2]->real == 0.5 && tuple->items[3]->kind == NP_PICKLE_NONE);
    cr_assert(tuple->items[4]->number == 1 && np_pickle_is(tuple->items[5], "x"));
    cr_assert_eq(pickle.root->items[3]->items[0]->number, (int64_t)1 << 40);
    cr_assert_null(np_pickle_get(pickle.root, "b"));
    np_pickle_fini(&pickle);
}

Test(pickle, nothing_is_called)
{
    struct np_pickle pickle;

    /* os.system("id") */
    cr_assert_eq(PARSE("\x80\2cos\nsystem\nX\2\0\0\0id\x85R.", &pickle), 0);
    cr_assert_eq(pickle.root->kind, NP_PICKLE_CALL);
    cr_assert(np_pickle_is(pickle.root->callee, "os.system"));
    cr_assert(np_pickle_is(pickle.root->args->items[0], "id"));
    np_pickle_fini(&pickle);
}

Test(pickle, hostile_ones_are_refused)
{
    static const struct {
        const char *bytes;
        size_t n;
        int code;
    } rows[] = {
#define ROW(text, code) {text, sizeof(text) - 1, code}
        ROW("", -ENODATA),
        ROW("\x80\2N", -ENODATA),
        ROW("X\xff\xff\xff\xff", -ENODATA),
        ROW("\x8d\xff\xff\xff\xff\xff\xff\xff\xff", -ENODATA),
        ROW("\x80\6N.", -EBADMSG),
        ROW(".", -EBADMSG),
        ROW("NN.", -EBADMSG),
        ROW("(N.", -EBADMSG),
        ROW("0.", -EBADMSG),
        ROW("t.", -EBADMSG),
        ROW("a.", -EBADMSG),
        ROW("R.", -EBADMSG),
        ROW("b.", -EBADMSG),
        ROW("h\0.", -EBADMSG),
        ROW("Nr\xff\xff\xff\x7f.", -EBADMSG),
        ROW("N(a.", -EBADMSG),
        ROW("NNa.", -EBADMSG),
        ROW("](Nu.", -EBADMSG),
        ROW("}(Nu.", -EBADMSG),
        ROW("(Nd.", -EBADMSG),
        ROW("KKQQ\x93.", -EBADMSG),
        ROW("\x93.", -EBADMSG),
        ROW("i1\n.", -EBADMSG),
        ROW("Pid\n.", -EBADMSG),
        ROW("\x82\1.", -EBADMSG),
#undef ROW
    };
    struct np_pickle pickle;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cr_assert_eq(parse(rows[i].bytes, rows[i].n, &pickle), rows[i].code, "row %zu", i);
        np_pickle_fini(&pickle);
    }
}

Test(pickle, depth_and_circles_cost_no_stack)
{
    enum { DEPTH = 300000 };
    char *deep = malloc(2 * DEPTH + 1);
    struct np_pickle pickle;

    memset(deep, ']', DEPTH);
    memset(deep + DEPTH, 'a', DEPTH - 1);
    deep[2 * DEPTH - 1] = '.';
    cr_assert_eq(parse(deep, 2 * DEPTH, &pickle), 0);
    np_pickle_fini(&pickle);
    free(deep);
    cr_assert_eq(PARSE("]q\0h\0a.", &pickle), 0); /* a list that holds itself */
    cr_assert(pickle.root->items[0] == pickle.root);
    np_pickle_fini(&pickle);
}

/* Each byte is a tuple in a tuple. */
Test(pickle, values_of_a_bomb_are_refused_at_the_limit)
{
    const size_t n = 4u << 20;
    char *bytes = malloc(n);
    struct np_pickle pickle;

    memset(bytes, 0x85, n);
    bytes[0] = 'N';
    cr_assert_eq(parse(bytes, n, &pickle), -E2BIG);
    cr_assert(pickle.memory <= NP_PICKLE_MAX_MEMORY);
    np_pickle_fini(&pickle);
    free(bytes);
}
