/* Remote objects for tests of the range cache: their bytes follow from URL and version. A failed call aborts. */
#ifndef MADE_RANGES_H
#define MADE_RANGES_H

#include <sys/types.h>

#include "loader/base/range_cache.h"

/* The folder's path, made; np_free after made_ranges_remove(). */
char *made_ranges_folder(void);
void made_ranges_remove(char *folder);

struct np_range_cache *made_ranges_open(
    const char *folder, const char *set, uint64_t max_bytes, const struct np_range_disk *disk);
struct np_range_object *made_ranges_object(
    struct np_range_cache *cache, const char *url, const char *version, uint64_t bytes);
/* The object's bytes at offset. */
void made_ranges_bytes(
    const char *url, const char *version, uint64_t offset, void *data, uint64_t bytes);
/* Puts the whole blocks of this range. */
void made_ranges_put(struct np_range_object *object, const char *url, const char *version,
    uint64_t offset, uint64_t bytes);
/* Finds, reads, checks as a reader does. 1: right bytes; 0: a miss, or wrong ones that the cache found out; -1:
 * wrong bytes, served as right. */
int made_ranges_get(struct np_range_object *object, const char *url, const char *version,
    uint64_t offset, uint64_t bytes);
/* How many of the object's blocks are there; -1: some are wrong. */
int made_ranges_count(
    struct np_range_object *object, const char *url, const char *version, uint64_t bytes);
/* Puts an object called as its set, whole, and closes all. Returns how many of its blocks are there. */
int made_ranges_fill(const char *folder, const char *set, uint64_t max_bytes, uint64_t bytes);
/* What the objects in the folder take on the disk. */
uint64_t made_ranges_used(const char *folder);
/* fork(); true in the child, which dies with the test. */
bool made_ranges_fork(pid_t *ret_pid);

#endif
