/* Option tables: a module describes its keys once, beside the code that uses them. Parsing,
 * defaults, error messages, `nnpipe show` and docs/CONFIG.md use the table. One thread. */
#ifndef NP_OPTION_H
#define NP_OPTION_H

#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"
#include "loader/base/nearest.h"
#include "loader/base/node.h"

enum np_option_type {
    NP_OPT_BOOL,
    NP_OPT_INT,    /* int64_t; `auto` only if `words` has it */
    NP_OPT_BYTES,  /* int64_t; suffix K M G (1024) and optional iB */
    NP_OPT_FLOAT,  /* double; `5e-4` */
    NP_OPT_SHARE,  /* double in 0..1; `10%` or `0.1` */
    NP_OPT_STRING, /* char *, owned by the struct */
    NP_OPT_WORD,   /* int: index of the word in `words` */
    NP_OPT_FLOATS, /* struct np_floats, owned; or a word of `words` */
    NP_OPT_PAIR,   /* int64_t[2]: `3` for both, or `[1, 7]`, height first; words as in INT */
    NP_OPT_NODE,   /* const struct np_node *, borrowed; the module parses it */
};

struct np_floats {
    double *values; /* owned */
    int nr_values;  /* -1, -2, ...: the first, second ... word of the option, and no values */
};

struct np_option {
    const char *key;
    enum np_option_type type;
    size_t offset; /* of the field in the module's struct */
    /* Default, written as in a file; NULL: the key is required. Of a NODE for the manual only: a
     * missing key gives NULL. */
    const char *fallback;
    double min, max;   /* numbers; both 0: any */
    const char *words; /* WORD: "uring|pread"; INT, PAIR, FLOAT(S), SHARE: words for -1, -2, ... */
    const char *help;  /* one sentence for docs/CONFIG.md */
};

#define NP_OPTIONS_END                                                                             \
    {                                                                                              \
        NULL, NP_OPT_BOOL, 0, NULL, 0, 0, NULL, NULL                                               \
    }

/* Fills *object (zeroed by the caller) from a mapping (NULL: all defaults). report gets an entry
 * for each mistake: unknown key (with the nearest one), wrong type, out of range, missing. `what`
 * names the mapping in messages ("loader"). The table ends with a row whose key is NULL. Keys in
 * `others` (NULL-ended, may be NULL) belong to another table and are skipped. Returns 0 or
 * -EINVAL. */
int np_options_parse(const struct np_option *table, const struct np_node *map, const char *what,
    const char *const *others, void *object, struct np_report *report);
/* Frees what the table's STRING and FLOATS fields own. */
void np_options_fini(const struct np_option *table, void *object);
/* The resolved form: a mapping with every key, in table order. The caller frees it. */
struct np_node *np_options_node(const struct np_option *table, const void *object);

/* A choice among named things, each with an option table of its own: `optimizer: sgd`, `optimizer:
 * {sgd: {lr: 0.1}}`. An array of them ends with a NULL name. */
struct np_choice {
    const char *name;
    const struct np_option *table;
    const char *help;
};

const struct np_choice *np_choice_named(const struct np_choice *choices, const char *name);
/* Returns the index of the choice that node names (node NULL: of fallback), with its options in
 * *ret_args (NULL: none); -EINVAL: report has the mistake. `what`: the key, for messages. */
int np_choice_find(const struct np_choice *choices, const struct np_node *node, const char *what,
    const char *fallback, const struct np_node **ret_args, struct np_report *report);
/* {name: {every option}}. The caller frees it. */
struct np_node *np_choice_node(const struct np_choice *choice, const void *object);

/* Reads a number of bytes: "64M", "2.5GiB", "100". False: text is no such number. */
bool np_option_bytes(const char *text, int64_t *ret_value);

#endif
