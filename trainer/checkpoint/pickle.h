/* Reads a Python pickle (protocols 2 to 5) into values and runs nothing: where Python would call a
 * function or make an object, there is a value that names what would be called and with what. Any
 * thread; a pickle belongs to one thread at a time.
 *
 * The opcodes are those of Python's Lib/pickletools.py. Values may be shared and may form circles,
 * so whoever walks them limits the depth. */
#ifndef NP_PICKLE_H
#define NP_PICKLE_H

#include <stdint.h>

#include "loader/base/err.h"

#define NP_PICKLE_MAX_BYTES  (64u << 20)  /* of a pickle */
#define NP_PICKLE_MAX_MEMORY (256u << 20) /* of its values */

enum np_pickle_kind {
    NP_PICKLE_NONE,
    NP_PICKLE_BOOL,   /* number */
    NP_PICKLE_INT,    /* number */
    NP_PICKLE_LONG,   /* text: a whole number of more than 64 bits, little-endian */
    NP_PICKLE_REAL,   /* real */
    NP_PICKLE_TEXT,   /* text: str and bytes */
    NP_PICKLE_LIST,   /* items; also sets */
    NP_PICKLE_TUPLE,  /* items */
    NP_PICKLE_DICT,   /* items: key, value, key, value ... */
    NP_PICKLE_GLOBAL, /* text: "module.name" */
    NP_PICKLE_CALL,   /* callee, args; items: what was put into the object afterwards */
    NP_PICKLE_STORED, /* args: what names an object outside of the pickle */
};

struct np_pickle_value {
    enum np_pickle_kind kind;
    int64_t number;
    double real;
    const char *text; /* (bytes), without a NUL at its end; a GLOBAL's has one */
    size_t bytes;
    const struct np_pickle_value **items; /* (nr_items) */
    size_t nr_items, room;
    const struct np_pickle_value *callee, *args;
    const struct np_pickle_value *state; /* of a CALL: given to the object afterwards; NULL: none */
};

struct np_pickle {
    const struct np_pickle_value *root;
    struct np_pickle_value **chunks; /* all values, in their order */
    size_t nr_values, chunks_room;
    size_t memory; /* bytes */
};

/* Reads one pickle from the start of bytes, which the values point into: they must stay. *ret_used:
 * its length. -ENODATA: the bytes end before the pickle does; -EBADMSG: not a pickle, or an opcode
 * that protocols 2 to 5 do not have; -E2BIG: larger than the limits; -ENOMEM. np_pickle_fini(), also
 * after an error. */
int np_pickle_parse(const uint8_t *bytes, size_t nr_bytes, struct np_pickle *pickle,
    size_t *ret_used, struct np_err *err);
void np_pickle_fini(struct np_pickle *pickle);

/* Value i of nr_values. */
const struct np_pickle_value *np_pickle_value(const struct np_pickle *pickle, size_t i);
/* Is it a TEXT or GLOBAL of exactly this text? value NULL: no. */
bool np_pickle_is(const struct np_pickle_value *value, const char *text);
/* The value under a key of a DICT, or of an object with items; the last one wins, as in Python.
 * NULL: none. */
const struct np_pickle_value *np_pickle_get(const struct np_pickle_value *map, const char *key);

#endif
