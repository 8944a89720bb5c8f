/* Sets in tar archives: class folders, WebDataset, truncated ones, packed ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "loader/base/mem.h"
#include "loader/source/seekable.h"
#include "tests/test.h"
#include "tests/unit/made_sets.h"

static void put_tar(const char *folder, const char *name, const struct made_tar *tar)
{
    put_file(folder, name, tar->bytes, tar->n);
}

static void make_folders(struct made_tar *tar)
{
    tar_member(tar, "set/", '5', "", 0);
    tar_text(tar, "set/dog/1.jpg", "dog one");
    tar_text(tar, "set/cat/1.jpg", "cat one");
    tar_text(tar, "set/cat/notes.txt", "not me");
    tar_text(tar, "set/dog/2.jpg", "dog two");
    tar_end(tar);
}

Test(source_tar, a_members_folder_is_its_class)
{
    char *folder = make_set(), bytes[8] = {0};
    struct made_tar tar = {0};
    struct made_notes notes;
    struct np_index *index;
    const struct np_record *record;
    size_t n;
    uint8_t *file;

    make_folders(&tar);
    put_tar(folder, "a.tar", &tar);
    cr_assert_eq(open_set(folder, "tar", "a.tar", NULL, &notes, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 3);
    cr_assert_str_eq(sample_text(index, 0), "set/dog/1.jpg dog 1");
    cr_assert_str_eq(sample_text(index, 1), "set/cat/1.jpg cat 0");
    cr_assert_str_eq(sample_text(index, 2), "set/dog/2.jpg dog 1");
    cr_assert_not_null(strstr(notes.text, "1 members do not have the names of images"));
    record = np_index_record(index, 2);
    file = get_file(folder, "a.tar", &n);
    memcpy(bytes, file + record->offset, record->bytes);
    cr_assert_str_eq(bytes, "dog two");
    free(file);
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
}

/* The classes of the samples of these members, in their order, "-" for none; match may be NULL. */
static const char *classes_of(const char *const *members, const char *match)
{
    static char text[512];
    char *folder = make_set();
    struct made_tar tar = {0};
    struct np_index *index;
    struct np_err err = {0};

    for (; *members; members++)
        tar_text(&tar, *members, "x");
    tar_end(&tar);
    put_tar(folder, "a.tar", &tar);
    if (open_set(folder, "tar", "a.tar", match, NULL, &index, &err))
        cr_assert_fail("%s", err.text);
    *text = '\0';
    for (uint64_t i = 0; i < np_index_samples(index); i++) {
        const struct np_record *record = np_index_record(index, i);

        strcat(text, i ? " " : "");
        strcat(text, record->no_label ? "-" : index->classes[record->label]);
    }
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
    return text;
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* As a folder, so an archive of it: torchvision's ImageFolder takes the first folder, not the
 * last. */
Test(source_tar, a_class_is_the_first_folder_below_those_that_all_share)
{
    cr_expect_str_eq(
        classes_of(NAMES("cat/b1/1.jpg", "dog/b1/1.jpg", "cat/2.jpg"), NULL), "cat dog cat");
    cr_expect_str_eq(classes_of(NAMES("./cat/b1/1.jpg", "./dog/b1/1.jpg"), NULL), "cat dog");
    cr_expect_str_eq(classes_of(NAMES("/n/cat/b1/1.jpg", "/n/dog/b1/1.jpg"), NULL), "cat dog");
    cr_expect_str_eq(classes_of(NAMES("n/m/cat/1.jpg", "n/m/cats/1.jpg"), NULL), "cat cats");
    cr_expect_str_eq(classes_of(NAMES("n/cat/1.jpg", "n/dog/1.jpg", "n/x.jpg"), NULL), "cat dog -");
    cr_expect_str_eq(classes_of(NAMES("1.jpg", "cat/1.jpg"), NULL), "- cat");
    cr_expect_str_eq(classes_of(NAMES("1.jpg", "2.jpg"), NULL), "- -");
}

Test(source_tar, a_chain_of_folders_has_its_class_at_the_top)
{
    cr_expect_str_eq(classes_of(NAMES("cat/b1/1.jpg", "cat/b1/2.jpg"), NULL), "cat cat");
    cr_expect_str_eq(classes_of(NAMES("cat/1.jpg", "cat/b1/2.jpg"), NULL), "cat cat");
}

Test(source_tar, classes_lie_below_the_folders_at_the_start_of_match)
{
    const char *const *members = NAMES("./n/train/cat/1.jpg", "./n/test/dog/1.jpg");

    cr_expect_str_eq(classes_of(members, "n/train/*"), "cat");
    cr_expect_str_eq(classes_of(members, "n/*"), "train test");
    cr_expect_str_eq(classes_of(members, "*.jpg"), "train test");
}

Test(source_tar, shards_share_only_the_folders_that_all_of_them_have)
{
    char *folder = make_set();
    struct made_tar a = {0}, b = {0};
    struct np_index *index;

    tar_text(&a, "n/cat/1.jpg", "1");
    tar_text(&a, "n/cat/2.jpg", "1");
    tar_text(&b, "n/ant/x/1.jpg", "2");
    put_tar(folder, "s-0.tar", &a);
    put_tar(folder, "s-1.tar", &b);
    cr_assert_eq(open_set(folder, "tar", "s-*.tar", NULL, NULL, &index, NULL), 0);
    cr_expect_str_eq(sample_text(index, 0), "n/cat/1.jpg cat 1");
    cr_expect_str_eq(sample_text(index, 2), "n/ant/x/1.jpg ant 0");
    np_index_free(index);
    tar_free(&a);
    tar_free(&b);
    remove_set(folder);
}

Test(source_tar, a_folders_classes_that_are_numbers_are_in_byte_order)
{
    char *folder = make_set();
    struct made_tar tar = {0};
    struct np_index *index;

    tar_text(&tar, "2/1.jpg", "1");
    tar_text(&tar, "10/1.jpg", "1");
    put_tar(folder, "a.tar", &tar);
    cr_assert_eq(open_set(folder, "tar", "a.tar", NULL, NULL, &index, NULL), 0);
    cr_expect_str_eq(sample_text(index, 0), "2/1.jpg 2 1");
    cr_expect_str_eq(sample_text(index, 1), "10/1.jpg 10 0");
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
}

/* Otherwise a run on the rest of an archive would be refused for samples without a class. */
Test(source_tar, a_member_lost_from_a_truncated_webdataset_is_a_bad_sample_of_some_class)
{
    char *folder = make_set();
    struct made_tar tar = {0};
    struct np_index *index;
    uint64_t first;

    tar_text(&tar, "1.cls", "4");
    tar_text(&tar, "1.jpg", "one");
    tar_text(&tar, "2.jpg", "two");
    tar_text(&tar, "2.cls", "3");
    tar.n -= 512; /* the header of 2.cls is there, its text is not */
    put_tar(folder, "w.tar", &tar);
    cr_assert_eq(open_set(folder, "tar", "w.tar", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 2);
    cr_expect_eq(np_index_unlabelled(index, &first), 0);
    cr_expect_eq(np_index_record(index, 1)->bytes, 0);
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
}

Test(source_tar, shards_by_glob_are_one_set)
{
    char *folder = make_set();
    struct made_tar a = {0}, b = {0};
    struct np_index *index;

    tar_text(&a, "cat/1.jpg", "1");
    tar_text(&b, "ant/1.jpg", "2");
    put_tar(folder, "s-1.tar", &b);
    put_tar(folder, "s-0.tar", &a);
    cr_assert_eq(open_set(folder, "tar", "s-*.tar", NULL, NULL, &index, NULL), 0);
    cr_assert_str_eq(sample_text(index, 0), "cat/1.jpg cat 1");
    cr_assert_str_eq(sample_text(index, 1), "ant/1.jpg ant 0");
    cr_assert_eq(np_index_record(index, 1)->file, 1);
    np_index_free(index);
    put_tar(folder, "s-2.tar", &a); /* a new shard: the index is stale */
    cr_assert_eq(open_set(folder, "tar", "s-*.tar", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 3);
    np_index_free(index);
    tar_free(&a);
    tar_free(&b);
    remove_set(folder);
}

Test(source_tar, links_are_left_out_and_reported_as_links)
{
    char *folder = make_set();
    struct made_notes notes = {.nr_notes = 0};
    struct made_tar tar = {0};
    struct np_index *index;

    tar_text(&tar, "cat/1.jpg", "1");
    tar_member(&tar, "cat/2.jpg", '1', "", 0);
    tar_member(&tar, "ant/3.jpg", '2', "", 0);
    tar_member(&tar, "ant/readme", '2', "", 0);
    tar_end(&tar);
    put_tar(folder, "l.tar", &tar);
    cr_assert_eq(open_set(folder, "tar", "l.tar", NULL, &notes, &index, NULL), 0);
    cr_expect_eq(np_index_samples(index), 1);
    cr_expect(strstr(notes.text, "2 images are links and left out, the first is 'cat/2.jpg'"), "%s",
        notes.text);
    cr_expect(!strstr(notes.text, "names of images"), "%s", notes.text);
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
}

Test(source_tar, webdataset_groups_give_labels)
{
    char *folder = make_set();
    struct made_tar tar = {0};
    struct np_index *index;

    tar_text(&tar, "__meta__.json", "{}");
    tar_text(&tar, "a/0001.cls", "12\n");
    tar_text(&tar, "a/0001.JPG", "x");
    tar_text(&tar, "a/0001.json", "{}");
    tar_text(&tar, "a/0001.seg.png", "mask");
    tar_text(&tar, "a/0002.jpg", "x"); /* the image first */
    tar_text(&tar, "a/0002.cls", "3");
    tar_text(&tar, "b/0002.jpg", "x"); /* another folder: another key, and no label */
    tar_end(&tar);
    put_tar(folder, "w.tar", &tar);
    cr_assert_eq(open_set(folder, "tar", "w.tar", NULL, NULL, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 3);
    cr_assert_eq(index->nr_classes, 13); /* a number is its own label */
    cr_assert_str_eq(sample_text(index, 0), "a/0001.JPG 12 12");
    cr_assert_str_eq(sample_text(index, 1), "a/0002.jpg 3 3");
    cr_assert_str_eq(sample_text(index, 2), "b/0002.jpg - -1");
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
}

/* What a set of these members (name, text, ..., NULL) says. */
static const char *scan_error(const char *const *members)
{
    static char text[1000];
    char *folder = make_set();
    struct made_tar tar = {0};
    struct np_index *index;
    struct np_err err = {0};

    for (; members[0]; members += 2)
        tar_text(&tar, members[0], members[1]);
    tar_end(&tar);
    put_tar(folder, "w.tar", &tar);
    if (open_set(folder, "tar", "w.tar", NULL, NULL, &index, &err) == 0)
        np_index_free(index);
    snprintf(text, sizeof(text), "%s", err.text);
    tar_free(&tar);
    remove_set(folder);
    return text;
}

Test(source_tar, webdatasets_mistakes_are_named)
{
    const char *text;

    text = scan_error((const char *const[]){"1.cls", "1", "1.jpg", "x", "1.JPG", "y", NULL});
    cr_assert_not_null(strstr(text, "the group '1' has two members with the extension 'jpg'"));
    text = scan_error((const char *const[]){"1.cls", "cat", "1.jpg", "x", NULL});
    cr_assert_not_null(strstr(text, "'1.cls'"));
    cr_assert_not_null(strstr(text, "is not a class number"));
    text = scan_error((const char *const[]){"1.cls", "-1", "1.jpg", "x", NULL});
    cr_assert_not_null(strstr(text, "is not a class number"));
    text = scan_error((const char *const[]){"1.cls", "1", "1.jpg", "x", "1.png", "x", NULL});
    cr_assert_not_null(strstr(text, "two images"));
    text = scan_error((const char *const[]){"1.txt", "1", NULL});
    cr_assert_not_null(strstr(text, "none of its 1 members has the name of an image"));
}

Test(source_tar, a_label_long_after_pictures_without_one_is_a_mixed_set)
{
    char *folder = make_set(), name[32];
    struct made_tar tar = {0};
    struct np_index *index;
    struct np_err err = {0};

    for (int i = 0; i < 70; i++) {
        snprintf(name, sizeof(name), "a/%d.jpg", i);
        tar_text(&tar, name, "x");
    }
    tar_text(&tar, "99.cls", "1");
    put_tar(folder, "m.tar", &tar);
    cr_assert_eq(open_set(folder, "tar", "m.tar", NULL, NULL, &index, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "of the same kind"));
    tar_free(&tar);
    remove_set(folder);
}

Test(source_tar, a_truncated_archive_gives_its_members_and_a_warning)
{
    char *folder = make_set();
    struct made_tar tar = {0};
    struct made_notes notes;
    struct np_index *index;

    make_folders(&tar);
    tar.n = 512 + 1024 + 512 + 3; /* in the data of cat/1.jpg */
    put_tar(folder, "t.tar", &tar);
    cr_assert_eq(open_set(folder, "tar", "t.tar", NULL, &notes, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 2);
    cr_assert_eq(np_index_record(index, 1)->bytes, 3); /* cut: it will not decode */
    cr_assert_not_null(strstr(notes.text, "t.tar is truncated"));
    cr_assert_not_null(strstr(notes.text, "'set/dog/1.jpg' at offset 512"));
    np_index_free(index);
    tar.n = 512 + 1024 + 100; /* in the header of cat/1.jpg */
    put_tar(folder, "t.tar", &tar);
    cr_assert_eq(open_set(folder, "tar", "t.tar", NULL, &notes, &index, NULL), 0);
    cr_assert_eq(np_index_samples(index), 2); /* what was lost is not dropped in silence */
    cr_assert_eq(np_index_record(index, 1)->bytes, 0);
    cr_assert_not_null(strstr(sample_text(index, 1), "truncated after it, at offset 1536"));
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
}

Test(source_tar, gzip_is_unpacked_once_into_the_cache)
{
    char *folder = make_set(), path[1024];
    struct made_tar tar = {0};
    struct made_notes notes;
    struct np_index *index;
    gzFile file;

    make_folders(&tar);
    snprintf(path, sizeof(path), "%s/a.tar.gz", folder);
    file = gzopen(path, "wb");
    cr_assert_eq(gzwrite(file, tar.bytes, (unsigned)tar.n), (int)tar.n);
    gzclose(file);
    cr_assert_eq(open_set(folder, "tar", "a.tar.gz", NULL, &notes, &index, NULL), 0);
    cr_assert_not_null(strstr(notes.text, "unpacking"));
    cr_assert_eq(np_index_samples(index), 3);
    cr_assert_not_null(strstr(index->paths[1], "/cache/nnpipe/unpacked/"));
    np_index_free(index);
    cr_assert_eq(open_set(folder, "tar", "a.tar.gz", NULL, &notes, &index, NULL), 0);
    cr_assert_eq(notes.nr_notes, 0);
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
}

/* The archive as zstd frames cut at `cuts` (0-ended), with a seek table. */
static void put_frames(
    const char *folder, const char *name, const struct made_tar *tar, const size_t *cuts)
{
    struct np_seek_writer *writer;
    uint8_t *whole = malloc(tar->n + 100000), *table;
    size_t at = 0, used = 0, bytes;
    const void *frame;

    if (np_seek_writer_new(3, &writer, NULL))
        abort();
    for (; at < tar->n; cuts += *cuts != 0) {
        const size_t end = *cuts ? *cuts : tar->n;

        if (np_seek_writer_frame(writer, tar->bytes + at, end - at, &frame, &bytes, NULL))
            abort();
        memcpy(whole + used, frame, bytes);
        used += bytes;
        at = end;
    }
    table = np_seek_writer_finish(writer, &bytes, NULL);
    memcpy(whole + used, table, bytes);
    put_file(folder, name, whole, used + bytes);
    np_free(table);
    free(whole);
    np_seek_writer_free(writer);
}

Test(source_tar, seekable_zstd_is_read_in_place)
{
    char *folder = make_set();
    struct made_tar tar = {0};
    struct made_notes notes;
    struct np_index *index;

    make_folders(&tar);
    put_frames(folder, "z.tar.zst", &tar, (const size_t[]){512 + 1024, 512 + 3 * 1024, 0});
    cr_assert_eq(open_set(folder, "tar", "z.tar.zst", "*/cat/*", &notes, &index, NULL), 0);
    cr_assert_null(strstr(notes.text, "unpacking"));
    cr_assert_eq(np_index_samples(index), 1);
    cr_assert_eq(np_index_record(index, 0)->packing, NP_PACKING_ZSTD);
    cr_assert_eq(np_index_record(index, 0)->inner_offset, 512);
    cr_assert_eq(np_index_record(index, 0)->inner_bytes, 7);
    cr_assert_geq(index->max_inner, 2048); /* the whole frame, not just the sample */
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
}

Test(source_tar, members_across_frames_mean_unpacking)
{
    char *folder = make_set();
    struct made_tar tar = {0};
    struct made_notes notes;
    struct np_index *index;

    make_folders(&tar);
    put_frames(folder, "z.tar.zst", &tar,
        (const size_t[]){512 + 1024, 512 + 1024 + 512 + 4, 512 + 3 * 1024, 0});
    cr_assert_eq(open_set(folder, "tar", "z.tar.zst", NULL, &notes, &index, NULL), 0);
    cr_assert_not_null(strstr(notes.text, "unpacking"));
    cr_assert_eq(np_index_samples(index), 3);
    cr_assert_eq(np_index_record(index, 1)->packing, NP_PACKING_NONE);
    cr_assert_str_eq(sample_text(index, 2), "set/dog/2.jpg dog 1");
    np_index_free(index);
    tar_free(&tar);
    remove_set(folder);
}

Test(source_tar, a_damaged_header_names_file_and_last_good_member)
{
    char *folder = make_set();
    struct made_tar tar = {0};
    struct np_index *index;
    struct np_err err = {0};

    make_folders(&tar);
    tar.bytes[512 + 1024 + 3] ^= 4;
    put_tar(folder, "t.tar", &tar);
    cr_assert_eq(open_set(folder, "tar", "t.tar", NULL, NULL, &index, &err), -EBADMSG);
    cr_assert_not_null(strstr(err.text, "t.tar"));
    cr_assert_not_null(strstr(err.text, "'set/dog/1.jpg' at offset 512"));
    tar_free(&tar);
    remove_set(folder);
}
