/* The tar walker, on archives made here byte by byte. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/base/rng.h"
#include "loader/source/tar.h"
#include "tests/test.h"
#include "tests/unit/made_sets.h"

static int64_t read_made(
    void *context, uint64_t offset, void *buffer, size_t bytes, struct np_err *err)
{
    const struct made_tar *tar = context;
    const size_t there = offset < tar->n ? tar->n - (size_t)offset : 0;
    const size_t part = bytes < there ? bytes : there;

    (void)err;
    if (part)
        memcpy(buffer, tar->bytes + offset, part);
    return (int64_t)part;
}

/* Walks all of it; the members' names with sizes: "a:3 b:0 ". Returns np_tar_next()'s last word. */
static int walk(struct made_tar *made, char *text, size_t text_bytes, struct np_tar *ret_tar,
    struct np_err *err)
{
    struct np_tar_member *member = malloc(sizeof(*member));
    int code;

    if (np_tar_init(ret_tar, "test.tar", read_made, made, err))
        abort();
    *text = '\0';
    while ((code = np_tar_next(ret_tar, member, err)) > 0) {
        const size_t used = strlen(text);

        snprintf(text + used, text_bytes - used, "%.40s:%c%llu%s ", member->name, member->type,
            (unsigned long long)member->bytes, member->truncated ? "!" : "");
    }
    np_tar_fini(ret_tar);
    free(member);
    return code;
}

static const char *listing(struct made_tar *made)
{
    static char text[4096];
    struct np_tar tar;

    return walk(made, text, sizeof(text), &tar, NULL) == 0 ? text : "error";
}

/* Corrects a header's checksum after a change. */
static void sum(uint8_t *header)
{
    unsigned total = 0;

    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        total += header[i];
    snprintf((char *)header + 148, 7, "%06o", total);
}

Test(tar, lists_members_with_place_and_size)
{
    struct made_tar tar = {0};
    struct np_tar_member member;
    struct np_tar walker;

    tar_member(&tar, "dir/", '5', "", 0);
    tar_text(&tar, "./dir/a.jpg", "abc");
    tar_text(&tar, "b", "");
    tar_end(&tar);
    cr_assert_str_eq(listing(&tar), "dir/:50 dir/a.jpg:03 b:00 ");
    cr_assert_eq(np_tar_init(&walker, "t", read_made, &tar, NULL), 0);
    cr_assert_eq(np_tar_next(&walker, &member, NULL), 1);
    cr_assert_eq(np_tar_next(&walker, &member, NULL), 1);
    cr_assert_eq(member.header_offset, 512);
    cr_assert_eq(member.data_offset, 1024);
    np_tar_fini(&walker);
    tar_free(&tar);
}

Test(tar, needs_no_closing_blocks)
{
    struct made_tar tar = {0};
    struct np_tar walker;
    char text[100];

    tar_text(&tar, "a", "1");
    cr_assert_eq(walk(&tar, text, sizeof(text), &walker, NULL), 0);
    cr_assert_not(walker.truncated);
    cr_assert_str_eq(text, "a:01 ");
    tar_free(&tar);
}

Test(tar, puts_prefix_and_name_together)
{
    struct made_tar tar = {0};
    char name[200];

    memset(name, 'p', sizeof(name));
    name[120] = '/';
    name[160] = '\0';
    tar_text(&tar, name, "1");
    cr_assert_eq(tar.bytes[345], 'p'); /* the prefix is used */
    cr_assert_eq(strncmp(listing(&tar), name, 40), 0);
    tar_free(&tar);
}

Test(tar, refuses_to_write_names_that_do_not_fit)
{
    uint8_t header[512];
    char name[300];

    memset(name, 'p', sizeof(name));
    name[299] = '\0';
    cr_assert_eq(np_tar_put_header(header, name, 1, '0'), -ENAMETOOLONG);
    cr_assert_eq(np_tar_put_header(header, "a", 1ull << 40, '0'), -EFBIG);
}

Test(tar, reads_pax_path_and_size)
{
    struct made_tar tar = {0};
    char records[700], name[600];
    size_t n;

    memset(name, 'q', sizeof(name));
    name[599] = '\0';
    n = np_tar_pax_record(records, "path", name);
    cr_assert_eq(n, strlen(records));
    tar_member(&tar, "x", 'x', records, n);
    tar_text(&tar, "short", "12");
    tar_member(&tar, "x", 'x', "10 size=1\n", 10);
    tar_text(&tar, "b", "1");
    tar_text(&tar, "c", "1"); /* an extended header is for one member only */
    tar_end(&tar);
    cr_assert_eq(strncmp(listing(&tar), name, 40), 0);
    cr_assert_not_null(strstr(listing(&tar), ":02 b:01 c:01 "));
    tar_free(&tar);
}

Test(tar, reads_gnu_long_names)
{
    struct made_tar tar = {0};
    char name[301];

    memset(name, 'g', sizeof(name));
    name[300] = '\0';
    tar_member(&tar, "././@LongLink", 'L', name, sizeof(name));
    tar_text(&tar, "short", "12");
    tar_end(&tar);
    cr_assert_eq(strncmp(listing(&tar), name, 40), 0);
    tar_free(&tar);
}

Test(tar, reads_base_256_sizes)
{
    struct made_tar tar = {0};

    tar_text(&tar, "a", "123");
    memset(tar.bytes + 124, 0, 12);
    tar.bytes[124] = 0x80;
    tar.bytes[135] = 3;
    sum(tar.bytes);
    tar_text(&tar, "b", "");
    cr_assert_str_eq(listing(&tar), "a:03 b:00 ");
    tar_free(&tar);
}

Test(tar, reports_a_wrong_checksum_with_the_last_whole_member)
{
    struct made_tar tar = {0};
    struct np_tar walker;
    struct np_err err = {0};
    char text[100];

    tar_text(&tar, "good", "123");
    tar_text(&tar, "bad", "123");
    tar.bytes[1024 + 5] ^= 1;
    cr_assert_eq(walk(&tar, text, sizeof(text), &walker, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "test.tar"));
    cr_assert_not_null(strstr(err.text, "offset 1024"));
    cr_assert_not_null(strstr(err.text, "'good' at offset 0"));
    tar_free(&tar);
}

Test(tar, reports_that_other_files_are_not_archives)
{
    struct made_tar tar = {0};
    struct np_tar walker;
    struct np_err err = {0};
    char text[100];

    tar_block(&tar, "GIF89a", 6);
    cr_assert_eq(walk(&tar, text, sizeof(text), &walker, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "not a tar archive?"));
    tar_free(&tar);
}

Test(tar, gives_the_present_part_of_a_truncated_member)
{
    struct made_tar tar = {0};
    struct np_tar walker;
    char text[100], block[3000];

    memset(block, 'x', sizeof(block));
    tar_text(&tar, "a", "123");
    tar_member(&tar, "b", '0', block, sizeof(block));
    tar_end(&tar);
    for (size_t n = 1025; n < 1024 + 512 + 3000; n++) {
        tar.n = n;
        cr_assert_eq(walk(&tar, text, sizeof(text), &walker, NULL), 0);
        cr_assert(walker.truncated);
        cr_assert_eq(walker.truncated_member, n >= 1024 + 512);
        cr_assert_eq(walker.last_offset, 0);
        if (n >= 1024 + 512) {
            char want[40];

            snprintf(want, sizeof(want), "a:03 b:0%zu! ", n - 1024 - 512);
            cr_assert_str_eq(text, want);
        }
    }
    tar_free(&tar);
}

Test(tar, marks_sparse_members)
{
    struct made_tar tar = {0};
    struct np_tar_member member;
    struct np_tar walker;

    tar_member(&tar, "x", 'x', "22 GNU.sparse.major=1\n", 22);
    tar_text(&tar, "a", "1");
    cr_assert_eq(np_tar_init(&walker, "t", read_made, &tar, NULL), 0);
    cr_assert_eq(np_tar_next(&walker, &member, NULL), 1);
    cr_assert(member.sparse);
    np_tar_fini(&walker);
    tar_free(&tar);
}

Test(tar, refuses_damaged_extended_headers)
{
    static const char *const records[] = {"path=a\n", "99 path=a\n", "10 path=a!", "9 path=\n",
        "7 path\n", "0 path=a\n", "12 size=-1\n\n", "99999999999999999999 path=a\n"};

    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        struct made_tar tar = {0};

        tar_member(&tar, "x", 'x', records[i], strlen(records[i]));
        tar_text(&tar, "a", "1");
        cr_assert_str_eq(listing(&tar), "error");
        tar_free(&tar);
    }
}

Test(tar, survives_any_bytes)
{
    struct made_tar good = {0}, work = {0};
    struct np_draws draws;
    struct np_tar walker;
    char text[4096];
    size_t n;

    tar_member(&good, "x", 'x', "14 path=longer\n", 15);
    tar_text(&good, "a", "123");
    tar_member(&good, "././@LongLink", 'L', "name", 5);
    tar_text(&good, "b", "123");
    tar_end(&good);
    n = good.n;
    work.bytes = malloc(n);
    work.room = n;
    np_draws_init(&draws, 2, NP_STREAM_TEST, 0, 0, 0);
    for (int round = 0; round < NP_TIMES(20000, 1000); round++) {
        memcpy(work.bytes, good.bytes, n);
        work.n = n - np_draw_below(&draws, 4) * np_draw_below(&draws, 1000);
        for (uint32_t k = np_draw_below(&draws, 4); k; k--)
            work.bytes[np_draw_below(&draws, (uint32_t)n)] = (uint8_t)np_draw_u32(&draws);
        if (round & 1)
            for (size_t at = 0; at + 512 <= n; at += 512)
                if (work.bytes[at + 257] == 'u')
                    sum(work.bytes + at);
        walk(&work, text, sizeof(text), &walker, NULL);
        cr_assert_leq(walker.nr_members, n / 512);
    }
    tar_free(&good);
    tar_free(&work);
}
