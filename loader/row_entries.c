/* The store holds the entries of those rows of MCUs that were passed so far: its coding
 * (entries_code.h) sees a picture of that many rows. */
#include "loader/row_entries.h"

#include <errno.h>
#include <string.h>

#include "loader/base/crc32c.h"
#include "loader/base/mem.h"
#include "loader/source/entries_code.h"

struct np_row_entries {
    uint8_t *coded;
    size_t coded_room;
    struct np_picture_entries picture;
    int nr_rows; /* rows with entries */

    struct np_jpeg_entry *at; /* in the form of the decoder */
    size_t at_bytes;
};

struct np_row_entries *np_row_entries_new(struct np_err *err)
{
    return np_try_alloc(sizeof(struct np_row_entries), err);
}

void np_row_entries_free(struct np_row_entries *entries)
{
    if (!entries)
        return;
    np_entries_fini(&entries->picture);
    np_free(entries->coded);
    np_free(entries->at);
    np_free(entries);
}

/* --- from the store ------------------------------------------------------------------------- */

static struct np_entries_of of(const struct np_row_picture *picture)
{
    return (struct np_entries_of){picture->nr_bytes, picture->mark};
}

int np_row_entries_load(
    struct np_row_entries *entries, const struct np_row_picture *picture, struct np_err *err)
{
    struct np_err why = {0};
    int64_t bytes = 0;
    int code;

    entries->nr_rows = 0;
    if (picture->store && picture->nr_bytes >= NP_ENTRIES_MIN_BYTES)
        bytes = np_entries_get(picture->store, picture->sample, of(picture), &entries->coded,
            &entries->coded_room, err);
    if (bytes <= 0)
        return (int)bytes;
    code = np_entries_decode(
        entries->coded, (size_t)bytes, picture->nr_bytes, &entries->picture, &why);
    if (code == -ENOMEM)
        return np_err_set(err, -ENOMEM, "%s", why.text);
    if (code == 0 && entries->picture.step == NP_JPEG_STEP)
        entries->nr_rows = entries->picture.mcus_down;
    return 0;
}

bool np_row_entries_header(const struct np_row_entries *entries, uint8_t *bytes, size_t room)
{
    const uint32_t kept = entries->picture.kept_bytes;

    if (entries->nr_rows == 0 || kept == 0 || kept > room)
        return false;
    memcpy(bytes, entries->picture.header, kept);
    return true;
}

static bool is_like(const struct np_row_entries *entries, const struct np_jpeg *jpeg)
{
    return entries->nr_rows > 0 &&
           entries->picture.nr == entries->nr_rows * np_jpeg_entries(jpeg)->per_row;
}

bool np_row_entries_span(const struct np_row_entries *entries, const struct np_jpeg *jpeg,
    const struct np_rect *need, uint32_t *ret_from, uint32_t *ret_to)
{
    const struct np_picture_entries *picture = &entries->picture;
    uint32_t from, to, bytes;
    int top, bottom;

    np_jpeg_needed_rows(jpeg, need, &top, &bottom);
    if (!is_like(entries, jpeg) || bottom > entries->nr_rows)
        return false;
    np_entries_part(picture, 1 + top, &from, &bytes);
    np_entries_part(picture, bottom, &to, &bytes);
    to += bytes;
    *ret_from = from;
    *ret_to = picture->file_bytes - to > NP_JPEG_BEHIND ? to + NP_JPEG_BEHIND : picture->file_bytes;
    return true;
}

/* True: parts first..last were noted for these bytes. */
static bool are_of(
    const struct np_picture_entries *entries, const uint8_t *file, int first, int last)
{
    for (int part = first; part <= last; part++) {
        uint32_t offset, bytes;

        np_entries_part(entries, part, &offset, &bytes);
        if (np_crc32c(0, file + offset, bytes) != entries->crcs[part])
            return false;
    }
    return true;
}

int np_row_entries_give(struct np_row_entries *entries, const struct np_row_picture *picture,
    const struct np_rect *need, struct np_jpeg *jpeg, bool *ret_given, struct np_err *err)
{
    const struct np_picture_entries *from = &entries->picture;
    int first = 0, last = entries->nr_rows;

    *ret_given = false;
    if (need) {
        np_jpeg_needed_rows(jpeg, need, &first, &last);
        first++;
    }
    if (!is_like(entries, jpeg) ||
        (!(picture->checked && !need) && !are_of(from, picture->bytes, first, last))) {
        entries->nr_rows = 0;
        return 0;
    }
    if (np_hold(&entries->at, &entries->at_bytes, (size_t)from->nr * sizeof(*entries->at), err))
        return -ENOMEM;
    for (int i = 0; i < from->nr; i++)
        entries->at[i] = (struct np_jpeg_entry){
            from->at[i].bit, {from->at[i].dc[0], from->at[i].dc[1], from->at[i].dc[2]}};
    *ret_given = true;
    return np_jpeg_set_entries(jpeg, entries->at, entries->nr_rows, err);
}

static int take(struct np_row_entries *entries, const struct np_row_picture *picture,
    const struct np_jpeg *jpeg, struct np_err *err)
{
    const struct np_jpeg_entries *from = np_jpeg_entries(jpeg);
    struct np_picture_entries *to = &entries->picture;

    to->mcus_across = from->per_row * NP_JPEG_STEP;
    to->mcus_down = from->nr_rows;
    to->step = NP_JPEG_STEP;
    to->header_bytes = (uint32_t)(from->at[0].bit / 8);
    to->kept_bytes = (uint32_t)np_jpeg_header(jpeg, to->header, sizeof(to->header));
    to->file_bytes = picture->nr_bytes;
    if (np_entries_hold(to, err))
        return err->code;
    for (int i = 0; i < to->nr; i++)
        to->at[i] = (struct np_entry){
            from->at[i].bit, {from->at[i].dc[0], from->at[i].dc[1], from->at[i].dc[2]}};
    return np_entries_sum(to, picture->bytes, err);
}

int np_row_entries_keep(struct np_row_entries *entries, const struct np_row_picture *picture,
    const struct np_jpeg *jpeg, struct np_err *err)
{
    struct np_err why = {0};
    size_t bytes = 0;
    int code;

    if (picture->nr_bytes < NP_ENTRIES_MIN_BYTES || picture->mark == 0 ||
        np_jpeg_entries(jpeg)->nr_rows <= entries->nr_rows || !np_entries_takes(picture->store))
        return 0;
    code = take(entries, picture, jpeg, &why);
    if (!code)
        code = np_entries_encode(
            &entries->picture, &entries->coded, &entries->coded_room, &bytes, &why);
    if (!code && bytes <= NP_MAX_ENTRIES_BYTES)
        code = np_entries_put(
            picture->store, picture->sample, of(picture), entries->coded, bytes, &why);
    return code == -ENOMEM ? np_err_set(err, -ENOMEM, "%s", why.text) : 0;
}
