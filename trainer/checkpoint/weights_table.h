/* What became of a network's weights at the start of a run: a row for each layer of the top level
 * ("layer1" for "layer1.0.conv1.weight"). np_weights_load() makes it. Any thread. */
#ifndef NP_WEIGHTS_TABLE_H
#define NP_WEIGHTS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct np_weights_row {
    char *layer;
    int nr_tensors, nr_loaded; /* those not loaded keep their initial values */
    int nr_misshapen;          /* not loaded: the file has another shape or type */
    int nr_frozen;             /* by the config's freeze, for a while or for good */
    uint64_t nr_values;        /* loaded */
    char *why; /* "weight is 1000x512 in the file, 8x512 here; bias is missing"; NULL: all loaded */
};
struct np_weights_table {
    char *path;
    char *part, *others, *prefix; /* np_st_file's; prefix: left out of its names; NULL: none */
    struct np_weights_row *rows;  /* (nr_rows) in the network's order */
    int nr_rows;
    size_t rows_room;
    char *unused; /* the first names of the file that the network does not have; NULL: none */
    int nr_unused;
    int nr_outside; /* of nr_unused: without the prefix, as a counter of averages has it */
};

/* A table without rows; takes nothing of the texts. */
struct np_weights_table *np_weights_table_new(
    const char *path, const char *part, const char *others, const char *prefix);
void np_weights_table_free(struct np_weights_table *table);
/* A tensor of the network. */
struct np_weights_entry {
    const char *name;
    uint64_t nr_values;
    const char *why; /* why it was not loaded ("is missing"); NULL: it was */
    bool misshapen, frozen;
};
void np_weights_table_add(struct np_weights_table *table, const struct np_weights_entry *entry);
/* Adds a name of the file that the network does not have. */
void np_weights_table_unused(struct np_weights_table *table, const char *name, bool has_prefix);

/* "weights from FILE, its part 'model', ...", without what was loaded. np_free. */
char *np_weights_table_source(const struct np_weights_table *table);
/* The table for people: the source, then a line for each row; neighbours that were loaded whole, and
 * are all frozen or all not, are one line. No newline at the end. np_free. */
char *np_weights_table_text(const struct np_weights_table *table);
/* One sentence of what keeps the file from being this network's weights, all of them and no others;
 * NULL: nothing. np_free. */
char *np_weights_table_misfit(const struct np_weights_table *table);

#endif
