/* Reads pickles: a machine with a stack and a memo, one row of a table for each opcode. Nothing is
 * imported or called, and there is no recursion, so depth costs stack entries only. */
#include "trainer/checkpoint/pickle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/mem.h"

#define CHUNK_VALUES 512
#define MAX_GLOBAL   256 /* bytes of "module.name" */
#define MAX_PROTOCOL 5
#define ITEM_BYTES   sizeof(struct np_pickle_value *)
#define FEW          "there are too few values"
#define STOPPED      1 /* of an opcode: the pickle is complete */

struct machine {
    struct np_pickle *pickle;
    const uint8_t *bytes; /* (nr_bytes) */
    size_t at, nr_bytes;
    struct np_pickle_value **stack; /* (depth) */
    size_t depth, stack_room;
    size_t *marks; /* (nr_marks) depths of the stack */
    size_t nr_marks, marks_room;
    struct np_pickle_value **memo; /* (nr_memo); NULL: not set */
    size_t nr_memo, memo_room;
    struct np_err *err;
};

static struct np_pickle_value constants[] = {
    {.kind = NP_PICKLE_NONE}, {.kind = NP_PICKLE_BOOL}, {.kind = NP_PICKLE_BOOL, .number = 1}};
enum { NONE, FALSE, TRUE };

/* --- memory -------------------------------------------------------------------------------- */

static int damaged(struct machine *m, const char *what)
{
    return np_err_set(m->err, -EBADMSG, "the pickle is damaged at byte %zu: %s", m->at, what);
}

static int take_memory(struct machine *m, size_t bytes)
{
    if (bytes > NP_PICKLE_MAX_MEMORY - m->pickle->memory)
        return np_err_set(m->err, -E2BIG, "the pickle's values need more than %u MiB",
            NP_PICKLE_MAX_MEMORY >> 20);
    m->pickle->memory += bytes;
    return 0;
}

/* np_try_grow() within the limit; it takes up to twice as much, and at least a block. */
static int grow(struct machine *m, void *array, size_t *room, size_t n, size_t item_bytes)
{
    const size_t before = *room;

    if (n <= before)
        return 0;
    if (take_memory(m, 2 * n * item_bytes + NP_ALIGN) < 0)
        return -E2BIG;
    return np_try_grow(array, room, n, item_bytes, m->err);
}

/* NULL: err is filled. */
static struct np_pickle_value *new_value(struct machine *m, enum np_pickle_kind kind)
{
    struct np_pickle *pickle = m->pickle;
    const size_t chunk = pickle->nr_values / CHUNK_VALUES, i = pickle->nr_values % CHUNK_VALUES;

    if (i == 0) {
        if (grow(m, &pickle->chunks, &pickle->chunks_room, chunk + 1, sizeof(*pickle->chunks)) <
                0 ||
            take_memory(m, CHUNK_VALUES * sizeof(**pickle->chunks)) < 0)
            return NULL;
        pickle->chunks[chunk] = np_try_array(CHUNK_VALUES, sizeof(**pickle->chunks), m->err);
        if (!pickle->chunks[chunk])
            return NULL;
    }
    struct np_pickle_value *value = &pickle->chunks[chunk][i];
    value->kind = kind;
    pickle->nr_values++;
    return value;
}

static int append(struct machine *m, struct np_pickle_value *value,
    struct np_pickle_value *const *items, size_t n)
{
    if (grow(m, &value->items, &value->room, value->nr_items + n, ITEM_BYTES) < 0)
        return m->err->code;
    if (n > 0)
        memcpy(value->items + value->nr_items, items, n * ITEM_BYTES);
    value->nr_items += n;
    return 0;
}

/* --- the stack ----------------------------------------------------------------------------- */

/* value NULL: out of memory, and err is filled. */
static int push(struct machine *m, struct np_pickle_value *value)
{
    if (!value || grow(m, &m->stack, &m->stack_room, m->depth + 1, sizeof(*m->stack)) < 0)
        return m->err->code;
    m->stack[m->depth++] = value;
    return 0;
}

/* The stack down to the last mark belongs to what is being made. */
static bool has(const struct machine *m, size_t n)
{
    return m->depth - (m->nr_marks ? m->marks[m->nr_marks - 1] : 0) >= n;
}

/* The top n entries become a container's items. */
static int gather(struct machine *m, enum np_pickle_kind kind, size_t n)
{
    struct np_pickle_value *value = new_value(m, kind);

    if (!value || append(m, value, m->stack + m->depth - n, n) < 0)
        return m->err->code;
    m->depth -= n;
    return push(m, value);
}

/* Takes the last mark away; *ret_n: the entries above it. */
static int pop_mark(struct machine *m, size_t *ret_n)
{
    if (m->nr_marks == 0)
        return damaged(m, "there is no mark");
    *ret_n = m->depth - m->marks[--m->nr_marks];
    return 0;
}

/* The top n entries are put into the object below them. */
static int put_into(struct machine *m, size_t n, bool pairs)
{
    struct np_pickle_value *object = m->depth > n ? m->stack[m->depth - n - 1] : NULL;

    if (!object || !has(m, n + 1) || (pairs && n % 2 != 0))
        return damaged(m, FEW);
    if (object->kind != NP_PICKLE_CALL && object->kind != (pairs ? NP_PICKLE_DICT : NP_PICKLE_LIST))
        return damaged(m, "values are put into what cannot hold them");
    if (append(m, object, m->stack + m->depth - n, n) < 0)
        return m->err->code;
    m->depth -= n;
    return 0;
}

/* --- opcodes ------------------------------------------------------------------------------- */

/* n: the number that follows, the length of the bytes that follow, or that of the opcode's row. */

static int op_protocol(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return n <= MAX_PROTOCOL ? 0 : damaged(m, "its protocol is newer than 5");
}

static int op_frame(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return 0;
}

static int op_stop(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    if (m->depth != 1 || m->nr_marks != 0)
        return damaged(m, "it stops with more than one value, or none");
    m->pickle->root = m->stack[0];
    return STOPPED;
}

static int op_mark(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    if (grow(m, &m->marks, &m->marks_room, m->nr_marks + 1, sizeof(*m->marks)) < 0)
        return m->err->code;
    m->marks[m->nr_marks++] = m->depth;
    return 0;
}

static int op_pop(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    if (!has(m, 1))
        return damaged(m, "there is no value to drop");
    m->depth--;
    return 0;
}

static int op_pop_mark(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    size_t above = 0;

    if (pop_mark(m, &above) < 0)
        return -EBADMSG;
    m->depth -= above;
    return 0;
}

static int op_dup(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return has(m, 1) ? push(m, m->stack[m->depth - 1]) : damaged(m, "there is no value to repeat");
}

static int op_constant(struct machine *m, uint64_t which, const uint8_t *bytes)
{
    return push(m, &constants[which]);
}

static int push_int(struct machine *m, int64_t number)
{
    struct np_pickle_value *value = new_value(m, NP_PICKLE_INT);

    if (value)
        value->number = number;
    return push(m, value);
}

static int op_unsigned(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return push_int(m, (int64_t)n);
}

static int op_int(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return push_int(m, (int32_t)(uint32_t)n);
}

static int push_text(struct machine *m, enum np_pickle_kind kind, const uint8_t *bytes, size_t n)
{
    struct np_pickle_value *value = new_value(m, kind);

    if (value) {
        value->text = (const char *)bytes;
        value->bytes = n;
    }
    return push(m, value);
}

static int op_text(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return push_text(m, NP_PICKLE_TEXT, bytes, n);
}

/* Two's complement, little-endian. */
static int op_long(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    uint64_t number = n > 0 && bytes[n - 1] & 0x80 ? UINT64_MAX : 0;

    if (n > 8)
        return push_text(m, NP_PICKLE_LONG, bytes, n);
    for (uint64_t i = n; i-- > 0;)
        number = number << 8 | bytes[i];
    return push_int(m, (int64_t)number);
}

/* n holds a double's bytes, the highest first. */
static int op_real(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    struct np_pickle_value *value = new_value(m, NP_PICKLE_REAL);
    const uint64_t bits = __builtin_bswap64(n);

    if (value)
        memcpy(&value->real, &bits, sizeof(value->real));
    return push(m, value);
}

static int op_empty(struct machine *m, uint64_t kind, const uint8_t *bytes)
{
    return push(m, new_value(m, (enum np_pickle_kind)kind));
}

static int op_from_mark(struct machine *m, uint64_t kind, const uint8_t *bytes)
{
    size_t above = 0;

    if (pop_mark(m, &above) < 0)
        return -EBADMSG;
    if (kind == NP_PICKLE_DICT && above % 2 != 0)
        return damaged(m, "a key has no value");
    return gather(m, (enum np_pickle_kind)kind, above);
}

static int op_tuple(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return has(m, n) ? gather(m, NP_PICKLE_TUPLE, n) : damaged(m, FEW);
}

static int op_append(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return put_into(m, 1, false);
}

static int op_set_item(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return put_into(m, 2, true);
}

/* All above the mark. */
static int op_fill(struct machine *m, uint64_t pairs, const uint8_t *bytes)
{
    size_t above = 0;

    return pop_mark(m, &above) < 0 ? -EBADMSG : put_into(m, above, pairs);
}

/* --- the memo ------------------------------------------------------------------------------- */

static int op_put(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    if (!has(m, 1))
        return damaged(m, "there is no value to keep");
    if (n > m->nr_bytes) /* Python counts from 0, one for each opcode at most */
        return damaged(m, "the memo's number is impossible");
    if (n >= m->nr_memo) {
        if (grow(m, &m->memo, &m->memo_room, (size_t)n + 1, sizeof(*m->memo)) < 0)
            return m->err->code;
        m->nr_memo = (size_t)n + 1;
    }
    m->memo[n] = m->stack[m->depth - 1];
    return 0;
}

static int op_memoize(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return op_put(m, m->nr_memo, NULL);
}

static int op_get(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    return n < m->nr_memo && m->memo[n] ? push(m, m->memo[n])
                                        : damaged(m, "the memo has no such value");
}

/* --- what Python would import and call ------------------------------------------------------ */

static int push_global(
    struct machine *m, const char *module, size_t nr_module, const char *name, size_t nr_name)
{
    struct np_pickle_value *value = new_value(m, NP_PICKLE_GLOBAL);

    if (!value)
        return m->err->code;
    if (nr_module + nr_name + 1 > MAX_GLOBAL || memchr(module, 0, nr_module) ||
        memchr(name, 0, nr_name))
        return damaged(m, "the name of a global is too long, or no name");
    if (take_memory(m, nr_module + nr_name + NP_ALIGN) < 0)
        return -E2BIG;
    value->text = np_try_format(m->err, "%.*s.%.*s", (int)nr_module, module, (int)nr_name, name);
    if (!value->text)
        return m->err->code;
    value->bytes = strlen(value->text);
    return push(m, value);
}

/* bytes: the module's line; another line with the name follows. */
static int op_global(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    const uint8_t *name = m->bytes + m->at, *end = memchr(name, '\n', m->nr_bytes - m->at);

    if (!end)
        return -ENODATA;
    m->at += (size_t)(end - name) + 1;
    return push_global(m, (const char *)bytes, n, (const char *)name, (size_t)(end - name));
}

static int op_stack_global(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    if (!has(m, 2))
        return damaged(m, FEW);
    const struct np_pickle_value *module = m->stack[m->depth - 2], *name = m->stack[m->depth - 1];

    if (module->kind != NP_PICKLE_TEXT || name->kind != NP_PICKLE_TEXT)
        return damaged(m, "the name of a global is not text");
    m->depth -= 2;
    return push_global(m, module->text, module->bytes, name->text, name->bytes);
}

/* Callee and arguments; above them nr_dropped entries: keyword arguments, which no object read here
 * has. */
static int op_call(struct machine *m, uint64_t nr_dropped, const uint8_t *bytes)
{
    if (!has(m, 2 + nr_dropped))
        return damaged(m, FEW);
    struct np_pickle_value *value = new_value(m, NP_PICKLE_CALL);

    if (!value)
        return m->err->code;
    m->depth -= 2 + nr_dropped;
    value->callee = m->stack[m->depth];
    value->args = m->stack[m->depth + 1];
    return push(m, value);
}

static int op_build(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    if (!has(m, 2))
        return damaged(m, FEW);
    struct np_pickle_value *object = m->stack[m->depth - 2];

    if (object->kind == NP_PICKLE_CALL)
        object->state = m->stack[m->depth - 1];
    m->depth--;
    return 0;
}

static int op_stored(struct machine *m, uint64_t n, const uint8_t *bytes)
{
    if (!has(m, 1))
        return damaged(m, FEW);
    struct np_pickle_value *value = new_value(m, NP_PICKLE_STORED);

    if (!value)
        return m->err->code;
    value->args = m->stack[m->depth - 1];
    m->stack[m->depth - 1] = value;
    return 0;
}

/* --- the table ----------------------------------------------------------------------------- */

enum follows { NOTHING, NUMBER, TEXT, LINE };

static const struct op {
    int (*run)(struct machine *m, uint64_t n, const uint8_t *bytes);
    enum follows follows;
    uint8_t bytes; /* of the number, or of the text's length; NOTHING: n itself */
} ops[256] = {
    /* numbers and constants */
    ['N'] = {op_constant, NOTHING, NONE},
    [0x88] = {op_constant, NOTHING, TRUE},
    [0x89] = {op_constant, NOTHING, FALSE},
    ['K'] = {op_unsigned, NUMBER, 1},
    ['M'] = {op_unsigned, NUMBER, 2},
    ['J'] = {op_int, NUMBER, 4},
    [0x8a] = {op_long, TEXT, 1},
    [0x8b] = {op_long, TEXT, 4},
    ['G'] = {op_real, NUMBER, 8},
    /* str and bytes, of Python 2 and 3 */
    ['U'] = {op_text, TEXT, 1},
    ['T'] = {op_text, TEXT, 4},
    [0x8c] = {op_text, TEXT, 1},
    ['X'] = {op_text, TEXT, 4},
    [0x8d] = {op_text, TEXT, 8},
    ['C'] = {op_text, TEXT, 1},
    ['B'] = {op_text, TEXT, 4},
    [0x8e] = {op_text, TEXT, 8},
    [0x96] = {op_text, TEXT, 8},
    /* containers */
    [']'] = {op_empty, NOTHING, NP_PICKLE_LIST},
    [')'] = {op_empty, NOTHING, NP_PICKLE_TUPLE},
    ['}'] = {op_empty, NOTHING, NP_PICKLE_DICT},
    [0x8f] = {op_empty, NOTHING, NP_PICKLE_LIST},
    ['l'] = {op_from_mark, NOTHING, NP_PICKLE_LIST},
    ['t'] = {op_from_mark, NOTHING, NP_PICKLE_TUPLE},
    ['d'] = {op_from_mark, NOTHING, NP_PICKLE_DICT},
    [0x91] = {op_from_mark, NOTHING, NP_PICKLE_LIST},
    [0x85] = {op_tuple, NOTHING, 1},
    [0x86] = {op_tuple, NOTHING, 2},
    [0x87] = {op_tuple, NOTHING, 3},
    ['a'] = {op_append, NOTHING, 0},
    ['e'] = {op_fill, NOTHING, false},
    [0x90] = {op_fill, NOTHING, false},
    ['s'] = {op_set_item, NOTHING, 0},
    ['u'] = {op_fill, NOTHING, true},
    /* the stack and the memo */
    ['('] = {op_mark, NOTHING, 0},
    ['0'] = {op_pop, NOTHING, 0},
    ['1'] = {op_pop_mark, NOTHING, 0},
    ['2'] = {op_dup, NOTHING, 0},
    ['q'] = {op_put, NUMBER, 1},
    ['r'] = {op_put, NUMBER, 4},
    [0x94] = {op_memoize, NOTHING, 0},
    ['h'] = {op_get, NUMBER, 1},
    ['j'] = {op_get, NUMBER, 4},
    /* what Python would import, call or make */
    ['c'] = {op_global, LINE, 0},
    [0x93] = {op_stack_global, NOTHING, 0},
    ['R'] = {op_call, NOTHING, 0},
    [0x81] = {op_call, NOTHING, 0},
    [0x92] = {op_call, NOTHING, 1},
    ['b'] = {op_build, NOTHING, 0},
    ['Q'] = {op_stored, NOTHING, 0},
    /* the pickle itself */
    [0x80] = {op_protocol, NUMBER, 1},
    [0x95] = {op_frame, NUMBER, 8},
    ['.'] = {op_stop, NOTHING, 0},
};

/* Reads what follows an opcode. false: the bytes end before. */
static bool read_argument(
    struct machine *m, const struct op *op, uint64_t *ret_n, const uint8_t **ret_bytes)
{
    const uint8_t *start = m->bytes + m->at;
    const size_t left = m->nr_bytes - m->at;
    uint64_t n = 0;

    if (op->follows == LINE) {
        const uint8_t *end = memchr(start, '\n', left);
        n = end ? (uint64_t)(end - start) : 0;
        m->at += end ? n + 1 : 0;
        *ret_n = n;
        *ret_bytes = start;
        return end != NULL;
    }
    if (op->follows == NOTHING) {
        *ret_n = op->bytes;
        return true;
    }
    if (left < op->bytes)
        return false;
    for (size_t i = op->bytes; i-- > 0;)
        n = n << 8 | start[i];
    m->at += op->bytes;
    *ret_n = n;
    *ret_bytes = m->bytes + m->at;
    if (op->follows != TEXT)
        return true;
    if (n > m->nr_bytes - m->at)
        return false;
    m->at += n;
    return true;
}

/* Returns STOPPED after the last opcode. */
static int step(struct machine *m)
{
    const size_t at = m->at;
    const uint8_t *bytes = NULL;
    uint64_t n = 0;

    if (m->at == m->nr_bytes)
        return -ENODATA;
    const struct op *op = &ops[m->bytes[m->at++]];
    if (!op->run)
        return np_err_set(m->err, -EBADMSG,
            "the pickle is damaged at byte %zu: opcode 0x%02x is not one of protocols 2 to 5 that "
            "data has",
            at, m->bytes[at]);
    return read_argument(m, op, &n, &bytes) ? op->run(m, n, bytes) : -ENODATA;
}

int np_pickle_parse(const uint8_t *bytes, size_t nr_bytes, struct np_pickle *pickle,
    size_t *ret_used, struct np_err *err)
{
    struct np_err own = {0};
    struct machine m = {.pickle = pickle, .bytes = bytes, .nr_bytes = nr_bytes, .err = &own};
    int code = 0;

    *pickle = (struct np_pickle){0};
    if (m.nr_bytes > NP_PICKLE_MAX_BYTES)
        m.nr_bytes = NP_PICKLE_MAX_BYTES;
    while (code == 0)
        code = step(&m);
    if (code == -ENODATA && nr_bytes > NP_PICKLE_MAX_BYTES)
        code =
            np_err_set(&own, -E2BIG, "the pickle is larger than %u MiB", NP_PICKLE_MAX_BYTES >> 20);
    else if (code == -ENODATA)
        np_err_set(&own, code, "the pickle is truncated at byte %zu", m.nr_bytes);
    np_free(m.stack);
    np_free(m.marks);
    np_free(m.memo);
    if (code < 0)
        return np_err_set(err, code, "%s", own.text);
    *ret_used = m.at;
    return 0;
}

void np_pickle_fini(struct np_pickle *pickle)
{
    for (size_t i = 0; i < pickle->nr_values; i++) {
        struct np_pickle_value *value = &pickle->chunks[i / CHUNK_VALUES][i % CHUNK_VALUES];
        np_free(value->items);
        if (value->kind == NP_PICKLE_GLOBAL)
            np_free((char *)value->text);
    }
    for (size_t i = 0; i < (pickle->nr_values + CHUNK_VALUES - 1) / CHUNK_VALUES; i++)
        np_free(pickle->chunks[i]);
    np_free(pickle->chunks);
    *pickle = (struct np_pickle){0};
}

/* --- questions ----------------------------------------------------------------------------- */

const struct np_pickle_value *np_pickle_value(const struct np_pickle *pickle, size_t i)
{
    return &pickle->chunks[i / CHUNK_VALUES][i % CHUNK_VALUES];
}

bool np_pickle_is(const struct np_pickle_value *value, const char *text)
{
    return value && (value->kind == NP_PICKLE_TEXT || value->kind == NP_PICKLE_GLOBAL) &&
           value->bytes == strlen(text) && memcmp(value->text, text, value->bytes) == 0;
}

const struct np_pickle_value *np_pickle_get(const struct np_pickle_value *map, const char *key)
{
    for (size_t i = map->nr_items / 2; i-- > 0;)
        if (np_pickle_is(map->items[2 * i], key))
            return map->items[2 * i + 1];
    return NULL;
}
