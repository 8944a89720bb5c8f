/* The shards of a packing as files: members in, archives beside their final names out. pack.c's
 * own. One thread. */
#ifndef NP_PACK_SHARD_H
#define NP_PACK_SHARD_H

#include "loader/source/index.h"
#include "loader/pack/pack.h"

struct np_shards;
/* options' texts are borrowed until np_shards_free(). index: gets each member's record. */
int np_shards_open(const struct np_pack_options *options, struct np_index *index,
    struct np_shards **ret_shards, struct np_err *err);
/* Writes a member and enters it into the index: record has label and CRC, the rest is filled in.
 * Begins a shard where the last one is full. */
int np_shards_add(struct np_shards *shards, const char *name, const void *bytes, uint32_t nr_bytes,
    struct np_record *record, struct np_err *err);
/* Ends the last shard, gives all their names, and makes that durable. */
int np_shards_publish(struct np_shards *shards, struct np_err *err);
int np_shards_count(const struct np_shards *shards);
char *np_shards_path(const struct np_shards *shards, int shard); /* final; np_free */
uint64_t np_shards_bytes(const struct np_shards *shards);        /* written to all of them */
/* Removes what has not been published. */
void np_shards_free(struct np_shards *shards);

#endif
