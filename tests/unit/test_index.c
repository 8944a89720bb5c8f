/* The index: round trips in memory and through its file; files that are stale, truncated,
 * flipped or made by an enemy are refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/base/rng.h"
#include "loader/source/index_file.h"
#include "tests/test.h"
#include "tests/unit/made_sets.h"

/* n samples of three classes in one shard of 1 MiB; its file is folder/shard. */
static struct np_index *make_index(const char *folder, int n)
{
    struct np_index *index = np_index_new(NULL);
    char path[2048], name[64], *real;
    struct stat st;
    uint8_t *bytes = calloc(1, 1 << 20);

    put_file(folder, "shard", bytes, 1 << 20);
    free(bytes);
    snprintf(path, sizeof(path), "%s/shard", folder);
    real = realpath(path, NULL);
    if (!real || stat(real, &st) || np_index_add_file(index, real, &st, NULL) != 0)
        abort();
    free(real);
    for (int i = 0; i < n; i++) {
        static const char *const classes[] = {"zebra", "ant", "moth"};
        struct np_record record = {.offset = (uint64_t)i * 8, .bytes = 8, .inner_bytes = 8};
        int label = np_index_add_class(index, classes[i % 3], NULL, NULL);

        record.label = (uint32_t)label;
        snprintf(name, sizeof(name), "%s/picture_%07d.jpg", classes[i % 3], i * 7919 % 100003);
        if (label < 0 || np_index_add(index, &record, name, NULL, NULL))
            abort();
    }
    return index;
}

static int save(const struct np_index *index, const char *folder, const char *name, const char *key)
{
    struct np_io io;
    char path[2048];
    int code;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (np_io_open(&io, "pread", 1, NULL))
        abort();
    code = np_index_save(index, &io, path, key, NULL);
    np_io_close(&io);
    return code;
}

static int open_at(const char *folder, const char *name, const char *key, struct np_index **index,
    struct np_err *err)
{
    char path[2048];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return np_index_open(path, key, geteuid(), index, err);
}

static bool same(const struct np_index *a, const struct np_index *b)
{
    char name_a[NP_MAX_NAME + 1], name_b[NP_MAX_NAME + 1];

    if (np_index_samples(a) != np_index_samples(b) || a->nr_files != b->nr_files ||
        a->nr_classes != b->nr_classes || a->max_extent != b->max_extent ||
        np_index_mean_extent(a) != np_index_mean_extent(b) || a->max_inner != b->max_inner ||
        memcmp(&a->raw, &b->raw, sizeof(struct np_raw)) != 0)
        return false;
    for (uint64_t i = 0; i < np_index_samples(a); i++) {
        np_index_name(a, i, name_a, sizeof(name_a));
        np_index_name(b, i, name_b, sizeof(name_b));
        if (strcmp(name_a, name_b) != 0 ||
            memcmp(np_index_record(a, i), np_index_record(b, i), sizeof(struct np_record)) != 0)
            return false;
    }
    for (int c = 0; c < a->nr_classes; c++)
        if (strcmp(a->classes[c], b->classes[c]) != 0)
            return false;
    return true;
}

Test(index, names_come_back_whatever_they_share)
{
    static const char *const names[] = {"a", "ab", "abc", "abc", "xbc", "x", "yyyyyyyyyy",
        "a/very/long/name/that/has/folders.jpeg", "a/very/long/name/that/has/folderz.jpeg", "s"};
    struct np_index *index = np_index_new(NULL);
    char longest[NP_MAX_NAME + 2], name[NP_MAX_NAME + 1];
    const struct np_record record = {.no_label = 1};

    memset(longest, 'n', sizeof(longest));
    longest[NP_MAX_NAME] = '\0';
    for (int i = 0; i < 100; i++)
        cr_assert_eq(
            np_index_add(index, &record, i == 50 ? longest : names[i % 10], NULL, NULL), 0);
    for (int i = 0; i < 100; i++) {
        const char *want = i == 50 ? longest : names[i % 10];

        cr_assert_eq(np_index_name(index, (uint64_t)i, name, sizeof(name)), (int)strlen(want));
        cr_assert_str_eq(name, want);
    }
    cr_assert_eq(np_index_name(index, 7, name, 7), 38);
    cr_assert_str_eq(name, "a/very");
    longest[NP_MAX_NAME] = 'n';
    longest[NP_MAX_NAME + 1] = '\0';
    cr_assert_eq(np_index_add(index, &record, longest, NULL, NULL), -ENAMETOOLONG);
    cr_assert_eq(np_index_add(index, &record, "", NULL, NULL), -ENAMETOOLONG);
    np_index_free(index);
}

Test(index, names_come_one_after_the_other)
{
    char *folder = make_set(), name[NP_MAX_NAME + 1];
    struct np_index *index = make_index(folder, 100);
    struct np_index_names names;
    uint64_t n = 0;

    for (np_index_names_begin(index, &names); np_index_names_next(&names); n++) {
        cr_assert_eq(names.sample, n);
        np_index_name(index, n, name, sizeof(name));
        cr_assert_str_eq(names.name, name);
    }
    cr_assert_eq(n, 100);
    np_index_free(index);
    remove_set(folder);
}

/* The view of a run; the saved index has all samples, so that the key can be changed. */
Test(index, samples_in_no_class_can_be_left_out)
{
    char *folder = make_set(), name[NP_MAX_NAME + 1];
    struct np_index *index = make_index(folder, 60), *back = NULL;
    struct np_index_names names;
    uint64_t first = 0, n = 0;

    for (uint64_t i = 0; i < 60; i++)
        np_index_set_label(index, i, i % 20 == 17 || i >= 40 ? -1 : (int)i % 3);
    cr_assert_eq(np_index_finish(index, NULL), 0);
    cr_expect_eq(np_index_unlabelled(index, &first), 22);
    cr_expect_eq(first, 17);
    cr_assert_eq(np_index_skip_unlabelled(index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 38);
    cr_expect_eq(np_index_unlabelled(index, &first), 0);
    cr_expect_eq(np_index_record(index, 17)->offset, 18 * 8);
    np_index_name(index, 17, name, sizeof(name));
    cr_expect_str_eq(name, "zebra/picture_0042539.jpg"); /* the name of sample 18 */
    for (np_index_names_begin(index, &names); np_index_names_next(&names); n++) {
        np_index_name(index, n, name, sizeof(name));
        cr_expect_str_eq(names.name, name);
    }
    cr_expect_eq(n, 38);
    np_index_set_crc(index, 17, 77);
    cr_assert_eq(save(index, folder, ".npidx", "key"), 0);
    np_index_free(index);
    cr_assert_eq(open_at(folder, ".npidx", "key", &back, NULL), 0);
    cr_expect_eq(np_index_samples(back), 60);
    cr_expect_eq(np_index_record(back, 17)->has_crc, 0);
    cr_expect_eq(np_index_record(back, 18)->crc32c, 77);
    np_index_free(back);
    remove_set(folder);
}

/* Three samples; which of them has another name, size or label; -1: none. */
static struct np_index *make_three(int other_name, int other_size, int other_label)
{
    struct np_index *index = np_index_new(NULL);

    for (int i = 0; i < 3; i++) {
        struct np_record record = {.bytes = i == other_size ? 9 : 8};
        char name[32];

        record.inner_bytes = record.bytes;
        snprintf(name, sizeof(name), "%s%d", i == other_name ? "b" : "a", i);
        np_index_add_class(index, "ant", NULL, NULL);
        np_index_add_class(index, "bee", NULL, NULL);
        record.label = i == other_label ? 1 : 0;
        if (np_index_add(index, &record, name, NULL, NULL))
            abort();
    }
    if (np_index_finish(index, NULL))
        abort();
    return index;
}

Test(index, checksums_cover_names_and_labels_but_not_sizes)
{
    static const int32_t turned[] = {1, 0};
    struct np_index *plain = make_three(-1, -1, -1), *name = make_three(1, -1, -1),
                    *size = make_three(-1, 1, -1), *label = make_three(-1, -1, 1);
    const uint64_t names = np_index_names_sum(plain, NULL), sizes = np_index_sizes_sum(plain, NULL);

    cr_expect_neq(np_index_names_sum(name, NULL), names);
    cr_expect_eq(np_index_sizes_sum(name, NULL), sizes);
    cr_expect_eq(np_index_names_sum(size, NULL), names);
    cr_expect_neq(np_index_sizes_sum(size, NULL), sizes);
    cr_expect_neq(np_index_names_sum(label, NULL), names);
    cr_expect_neq(np_index_sizes_sum(label, NULL), sizes);
    cr_expect_neq(np_index_names_sum(plain, turned), names);
    cr_expect_neq(np_index_sizes_sum(plain, turned), sizes);
    np_index_free(plain);
    np_index_free(name);
    np_index_free(size);
    np_index_free(label);
}

/* Checkpoints hold these numbers: if they changed with the program, no run could resume. */
Test(index, checksums_are_the_same_in_every_version)
{
    struct np_index *index = make_three(-1, 1, 2);

    cr_expect_eq(np_index_names_sum(index, NULL), 0xb9a5c47c42cb4d47ull, "%016llx",
        (unsigned long long)np_index_names_sum(index, NULL));
    cr_expect_eq(np_index_sizes_sum(index, NULL), 0xe7c7305b3f8bb7e6ull, "%016llx",
        (unsigned long long)np_index_sizes_sum(index, NULL));
    np_index_free(index);
}

Test(index, classes_are_numbered_in_byte_order)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 9);

    cr_assert_eq(np_index_finish(index, NULL), 0);
    cr_assert_eq(index->nr_classes, 3);
    cr_assert_str_eq(index->classes[0], "ant");
    cr_assert_str_eq(index->classes[2], "zebra");
    cr_assert_eq(np_index_record(index, 0)->label, 2);
    cr_assert_eq(np_index_record(index, 1)->label, 0);
    cr_assert_eq(np_index_record(index, 2)->label, 1);
    np_index_free(index);
    remove_set(folder);
}

Test(index, classes_that_are_numbers_are_ordered_as_text_unless_they_are_labels)
{
    for (int numbered = 0; numbered < 2; numbered++) {
        struct np_index *index = np_index_new(NULL);

        if (numbered)
            np_index_set_numbered(index);
        cr_assert_eq(np_index_add_class(index, "10", NULL, NULL), 0);
        cr_assert_eq(np_index_add_class(index, "9", NULL, NULL), 1);
        cr_assert_eq(np_index_add_class(index, "0", NULL, NULL), 2);
        cr_assert_eq(np_index_add_class(index, "9", NULL, NULL), 1);
        cr_assert_eq(np_index_finish(index, NULL), 0);
        cr_expect_str_eq(index->classes[0], "0");
        cr_expect_str_eq(index->classes[1], numbered ? "9" : "10");
        cr_expect_str_eq(index->classes[2], numbered ? "10" : "9");
        np_index_free(index);
    }
}

Test(index, thousands_of_classes_keep_their_samples)
{
    struct np_index *index = np_index_new(NULL);
    char name[32];

    for (int i = 0; i < 5000; i++) {
        struct np_record record = {0};

        snprintf(name, sizeof(name), "class%d", (i * 37) % 5000);
        record.label = (uint32_t)np_index_add_class(index, name, NULL, NULL);
        cr_assert_eq(np_index_add(index, &record, name, NULL, NULL), 0);
    }
    cr_assert_eq(np_index_finish(index, NULL), 0);
    for (int i = 0; i < 5000; i++) {
        np_index_name(index, (uint64_t)i, name, sizeof(name));
        cr_assert_str_eq(name, index->classes[np_index_record(index, (uint64_t)i)->label]);
    }
    np_index_free(index);
}

Test(index, cutting_leaves_the_earlier_records)
{
    for (int keep = 0; keep <= 40; keep++) {
        char *folder = make_set();
        struct np_index *index = make_index(folder, 40), *whole = make_index(folder, 40);
        const struct np_record last = {.offset = 1, .bytes = 1, .inner_bytes = 1, .no_label = 1};
        char a[64], b[64];

        np_index_cut(index, (uint64_t)keep);
        cr_assert_eq(np_index_samples(index), (uint64_t)keep);
        cr_assert_eq(np_index_add(index, &last, "moth/picture_of_the_end", NULL, NULL), 0);
        for (int i = 0; i < keep; i++) {
            np_index_name(index, (uint64_t)i, a, sizeof(a));
            np_index_name(whole, (uint64_t)i, b, sizeof(b));
            cr_assert_str_eq(a, b);
        }
        np_index_name(index, (uint64_t)keep, a, sizeof(a));
        cr_assert_str_eq(a, "moth/picture_of_the_end");
        np_index_free(index);
        np_index_free(whole);
        remove_set(folder);
    }
}

Test(index, reads_back_from_its_file)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 1000), *back = NULL;

    np_index_set_max_inner(index, 4711);
    cr_assert_eq(np_index_finish(index, NULL), 0);
    np_index_set_crc(index, 17, 0xdeadbeef);
    cr_assert_eq(save(index, folder, ".npidx", "a key"), 0);
    cr_assert_eq(open_at(folder, ".npidx", "a key", &back, NULL), 0);
    cr_assert(same(index, back));
    cr_assert_eq(np_index_record(back, 17)->crc32c, 0xdeadbeef);
    cr_assert_eq(np_index_record(back, 17)->has_crc, 1);
    cr_assert_eq(back->max_inner, 4711);
    cr_assert_str_eq(back->paths[0], index->paths[0]);
    np_index_set_crc(back, 18, 1); /* its memory is its own */
    cr_assert_eq(np_index_get(back, 18).has_crc, 1);
    np_index_free(index);
    np_index_free(back);
    remove_set(folder);
}

Test(index, takes_at_most_64_bytes_a_sample)
{
    struct np_index *index = np_index_new(NULL);
    char *folder = make_set(), name[64], path[2048];
    struct stat st;

    for (int i = 0; i < 100000; i++) { /* names as ImageNet's, in a shuffled order */
        struct np_record record = {.bytes = 1};
        const unsigned a = (unsigned)i * 2654435761u;

        record.label = (uint32_t)np_index_add_class(index, "n", NULL, NULL);
        snprintf(name, sizeof(name), "n%08u/n%08u_%u.JPEG", 1440000 + a % 13000000 / 7000 * 7000,
            1440000 + a % 13000000 / 7000 * 7000, a >> 17);
        cr_assert_eq(np_index_add(index, &record, name, NULL, NULL), 0);
    }
    cr_assert_eq(np_index_finish(index, NULL), 0);
    cr_assert_eq(save(index, folder, "index", ""), 0);
    snprintf(path, sizeof(path), "%s/index", folder);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_leq(st.st_size, 64 * 100000); /* a run's index is this file, read whole */
    np_index_free(index);
    remove_set(folder);
}

Test(index, moves_together_with_its_shards)
{
    char *folder = make_set(), command[4096];
    struct np_index *index = make_index(folder, 5), *back = NULL;
    char moved[2048];

    cr_assert_eq(np_index_finish(index, NULL), 0);
    np_index_free(index);
    snprintf(
        command, sizeof(command), "mkdir '%s/a' && mv '%s/shard' '%s/a/'", folder, folder, folder);
    cr_assert_eq(system(command), 0);
    snprintf(moved, sizeof(moved), "%s/a", folder);
    index = make_index(moved, 5);
    cr_assert_eq(np_index_finish(index, NULL), 0);
    cr_assert_eq(save(index, moved, "x.npidx", ""), 0);
    np_index_free(index);
    snprintf(command, sizeof(command), "mv '%s/a' '%s/b'", folder, folder);
    cr_assert_eq(system(command), 0);
    snprintf(moved, sizeof(moved), "%s/b", folder);
    cr_assert_eq(open_at(moved, "x.npidx", "", &back, NULL), 0);
    cr_assert_not_null(strstr(back->paths[0], "/b/shard"));
    np_index_free(back);
    remove_set(folder);
}

Test(index, is_stale_when_file_or_key_differ)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 5), *back = NULL;
    struct np_err err = {0};

    cr_assert_eq(np_index_finish(index, NULL), 0);
    cr_assert_eq(save(index, folder, ".npidx", "key"), 0);
    np_index_free(index);
    cr_assert_eq(open_at(folder, ".npidx", "kex", &back, NULL), -ESTALE);
    cr_assert_eq(open_at(folder, ".npidx", "key2", &back, NULL), -ESTALE);
    cr_assert_eq(open_at(folder, "other", "key", &back, NULL), -ENOENT);
    put_file(folder, "shard", "short", 5);
    cr_assert_eq(open_at(folder, ".npidx", "key", &back, &err), -ESTALE);
    cr_assert_not_null(strstr(err.text, "shard has changed"));
    remove_set(folder);
}

Test(index, of_another_user_is_not_trusted)
{
    char *folder = make_set(), path[2048];
    struct np_index *index = make_index(folder, 5), *back = NULL;
    struct np_err err = {0};

    cr_assert_eq(np_index_finish(index, NULL), 0);
    cr_assert_eq(save(index, folder, ".npidx", "key"), 0);
    np_index_free(index);
    snprintf(path, sizeof(path), "%s/.npidx", folder);
    if (chown(path, 12345, (gid_t)-1) == 0) { /* root alone can make one */
        cr_expect_eq(open_at(folder, ".npidx", "key", &back, &err), -ESTALE);
        cr_expect(strstr(err.text, "belongs to another user"), "%s", err.text);
        cr_assert_eq(np_index_open(path, "key", 12345, &back, NULL), 0); /* the data's owner's */
        np_index_free(back);
    }
    remove_set(folder);
}

Test(index, any_flipped_byte_and_any_cut_is_found)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 40), *back = NULL;
    size_t n;
    uint8_t *bytes;
    int nr_padding = 0;

    cr_assert_eq(np_index_finish(index, NULL), 0);
    cr_assert_eq(save(index, folder, "i", "key"), 0);
    bytes = get_file(folder, "i", &n);
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x10;
        put_file(folder, "i", bytes, n);
        bytes[i] ^= 0x10;
        if (open_at(folder, "i", "key", &back, NULL) == 0) {
            cr_assert(same(index, back)); /* between sections nothing is read */
            np_index_free(back);
            nr_padding++;
        }
    }
    cr_assert_leq(nr_padding, 64 * NP_NR_SECTIONS);
    for (size_t cut = 0; cut < n; cut += 13) {
        put_file(folder, "i", bytes, cut);
        cr_assert_eq(open_at(folder, "i", "key", &back, NULL), -EBADMSG);
    }
    free(bytes);
    np_index_free(index);
    remove_set(folder);
}

/* Makes the CRCs of what stands there now. */
static void sign(uint8_t *bytes, size_t n)
{
    struct np_index_header header;

    memcpy(&header, bytes, sizeof(header));
    for (int s = 0; s < NP_NR_SECTIONS; s++)
        if (header.sections[s].offset <= n &&
            header.sections[s].bytes <= n - header.sections[s].offset)
            header.sections[s].crc =
                np_crc32c(0, bytes + header.sections[s].offset, header.sections[s].bytes);
    header.header_crc = 0;
    header.header_crc = np_crc32c(0, &header, sizeof(header));
    memcpy(bytes, &header, sizeof(header));
}

static int parse(const uint8_t *bytes, size_t n, struct np_index **ret_index)
{
    uint8_t *copy = np_alloc(n);

    memcpy(copy, bytes, n);
    return np_index_parse(copy, n, "test", ret_index, NULL);
}

Test(index, a_hostile_file_with_right_checksums_is_refused)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 40), *back = NULL;
    struct np_draws draws;
    size_t n;
    uint8_t *bytes, *work;
    int nr_taken = 0;

    cr_assert_eq(np_index_finish(index, NULL), 0);
    cr_assert_eq(save(index, folder, "i", "key"), 0);
    np_index_free(index);
    bytes = get_file(folder, "i", &n);
    work = malloc(n);
    np_draws_init(&draws, 1, NP_STREAM_TEST, 0, 0, 0);
    for (int round = 0; round < 20000; round++) {
        memcpy(work, bytes, n);
        for (uint32_t k = np_draw_below(&draws, 4) + 1; k; k--)
            work[np_draw_below(&draws, (uint32_t)n)] = (uint8_t)np_draw_u32(&draws);
        sign(work, n);
        if (parse(work, n, &back))
            continue;
        nr_taken++;
        for (uint64_t i = 0; i < np_index_samples(back); i++) { /* all of it can be used */
            const struct np_record *record = np_index_record(back, i);

            cr_assert(record->no_label || (int)record->label < back->nr_classes);
            sample_text(back, i);
        }
        np_index_free(back);
    }
    cr_assert_gt(nr_taken, 0); /* else nothing behind the checksums was tried */
    free(bytes);
    free(work);
    remove_set(folder);
}

/* Field by field: record 0 of a signed file with one thing out of range. */
Test(index, records_out_of_range_are_refused)
{
    char *folder = make_set();
    struct np_index *index = make_index(folder, 3), *back = NULL;
    struct np_index_header header;
    struct np_record good, bad;
    size_t n;
    uint8_t *bytes;

    cr_assert_eq(np_index_finish(index, NULL), 0);
    cr_assert_eq(save(index, folder, "i", "key"), 0);
    np_index_free(index);
    bytes = get_file(folder, "i", &n);
    memcpy(&header, bytes, sizeof(header));
    memcpy(&good, bytes + header.sections[0].offset, sizeof(good));
    for (int what = 0; what < 8; what++) {
        bad = good;
        if (what == 0)
            bad.file = 1;
        if (what == 1)
            bad.label = 3;
        if (what == 2)
            bad.offset = (1 << 20) - 7;
        if (what == 3)
            bad.offset = UINT64_MAX - 3;
        if (what == 4)
            bad.bytes = bad.inner_bytes = 1 << 21;
        if (what == 5)
            bad.packing = 2;
        if (what == 6)
            bad.inner_bytes = 9;
        if (what == 7)
            bad.unused = 1;
        memcpy(bytes + header.sections[0].offset, &bad, sizeof(bad));
        sign(bytes, n);
        cr_assert_eq(parse(bytes, n, &back), -EBADMSG);
    }
    memcpy(bytes + header.sections[0].offset, &good, sizeof(good));
    sign(bytes, n);
    cr_assert_eq(parse(bytes, n, &back), 0);
    np_index_free(back);
    free(bytes);
    remove_set(folder);
}
