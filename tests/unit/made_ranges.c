/* See made_ranges.h. */
#include "tests/unit/made_ranges.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"

char *made_ranges_folder(void)
{
    char path[] = "/tmp/nnpipe-ranges-XXXXXX";

    if (!mkdtemp(path))
        abort();
    return np_strdup(path);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)st, (void)kind, (void)place;
    return remove(path);
}

void made_ranges_remove(char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    np_free(folder);
}

struct np_range_cache *made_ranges_open(
    const char *folder, const char *set, uint64_t max_bytes, const struct np_range_disk *disk)
{
    const struct np_range_options options = {
        .folder = folder, .set = set, .max_bytes = max_bytes, .disk = disk};
    struct np_range_cache *cache;
    struct np_err err = {0};

    if (np_range_cache_open(&options, &cache, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return cache;
}

struct np_range_object *made_ranges_object(
    struct np_range_cache *cache, const char *url, const char *version, uint64_t bytes)
{
    const struct np_range_name name = {url, version, bytes};
    struct np_range_object *object;
    struct np_err err = {0};

    if (np_range_object_open(cache, &name, &object, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return object;
}

void made_ranges_bytes(
    const char *url, const char *version, uint64_t offset, void *data, uint64_t bytes)
{
    const uint64_t key =
        XXH3_64bits_withSeed(url, strlen(url), XXH3_64bits(version, strlen(version)));

    for (uint64_t i = 0; i < bytes; i++) {
        const uint64_t word = (key + (offset + i) / 8) * 0x9E3779B97F4A7C15u;

        ((uint8_t *)data)[i] = (uint8_t)((word ^ word >> 29) >> (offset + i) % 8 * 8);
    }
}

void made_ranges_put(struct np_range_object *object, const char *url, const char *version,
    uint64_t offset, uint64_t bytes)
{
    uint8_t *data = malloc(bytes);

    if (!data)
        abort();
    made_ranges_bytes(url, version, offset, data, bytes);
    np_range_put(object, offset, data, bytes);
    free(data);
}

int made_ranges_get(struct np_range_object *object, const char *url, const char *version,
    uint64_t offset, uint64_t bytes)
{
    struct np_range_place place;
    const enum np_range_state state = np_range_find(object, offset, bytes, &place);
    uint8_t *data, *right;
    int result = 0;

    if (state == NP_RANGE_MISS)
        return 0;
    data = malloc(place.bytes);
    right = malloc(place.bytes);
    if (!data || !right)
        abort();
    made_ranges_bytes(url, version, place.offset, right, place.bytes);
    if (np_read_at(place.fd, place.file_offset, data, place.bytes) != (int64_t)place.bytes)
        np_range_drop(object, offset, bytes);
    else if (state == NP_RANGE_HIT || np_range_check(object, place.offset, data, place.bytes))
        result = memcmp(data, right, place.bytes) == 0 ? 1 : -1;
    free(data);
    free(right);
    return result;
}

int made_ranges_count(
    struct np_range_object *object, const char *url, const char *version, uint64_t bytes)
{
    int nr = 0;

    for (uint64_t at = 0; at < bytes; at += NP_RANGE_BLOCK) {
        const uint64_t part = bytes - at < NP_RANGE_BLOCK ? bytes - at : NP_RANGE_BLOCK;
        const int got = made_ranges_get(object, url, version, at, part);

        if (got < 0)
            return -1;
        nr += got;
    }
    return nr;
}

static uint64_t used_bytes;

static int add_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    const char *name = path + place->base;

    if (kind == FTW_F && strlen(name) >= 49 && name[32] == '-')
        used_bytes += 512 * (uint64_t)st->st_blocks;
    return 0;
}

int made_ranges_fill(const char *folder, const char *set, uint64_t max_bytes, uint64_t bytes)
{
    struct np_range_cache *cache = made_ranges_open(folder, set, max_bytes, NULL);
    struct np_range_object *object = made_ranges_object(cache, set, "1", bytes);
    int nr;

    made_ranges_put(object, set, "1", 0, bytes);
    np_range_flush(cache);
    nr = made_ranges_count(object, set, "1", bytes);
    np_range_object_close(object);
    np_range_cache_close(cache);
    return nr;
}

uint64_t made_ranges_used(const char *folder)
{
    char *account = np_format("%s/account", folder);
    const int fd = open(account, O_RDONLY | O_CLOEXEC);

    /* While it is locked nobody evicts, or a file could be counted, and what takes its place, too. */
    if (fd >= 0 && flock(fd, LOCK_EX) < 0)
        abort();
    used_bytes = 0;
    nftw(folder, add_one, 16, FTW_PHYS);
    if (fd >= 0)
        close(fd);
    np_free(account);
    return used_bytes;
}

bool made_ranges_fork(pid_t *ret_pid)
{
    *ret_pid = fork();
    if (*ret_pid < 0)
        abort();
    if (*ret_pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return *ret_pid == 0;
}
