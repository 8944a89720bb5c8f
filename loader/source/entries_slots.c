#include "loader/source/entries_slots.h"

#include <stdio.h>
#include <unistd.h>

#include "loader/base/mem.h"

void np_entries_note_locked(struct np_entries *entries, const struct np_err *err)
{
    if (!*entries->note)
        snprintf(entries->note, sizeof(entries->note), "%s", err->text);
}

void np_entries_add_note(struct np_entries *entries, const struct np_err *err)
{
    pthread_mutex_lock(&entries->lock);
    np_entries_note_locked(entries, err);
    pthread_mutex_unlock(&entries->lock);
}

struct np_segment *np_entries_segment(const struct np_entries *entries, uint8_t where)
{
    return where > 0 && where <= NP_MAX_SEGMENTS ? entries->segments[where - 1] : NULL;
}

void np_entries_set_slot(struct np_entries *entries, uint64_t sample, struct np_entries_slot slot)
{
    struct np_segment *old = np_entries_segment(entries, entries->slots[sample].where),
                      *new = np_entries_segment(entries, slot.where);

    if (old)
        old->nr_live--;
    if (new)
        new->nr_live++;
    entries->slots[sample] = slot;
}

void np_entries_install(struct np_entries *entries, struct np_segment *segment,
    const struct np_segment_item *items, uint32_t nr, const bool *replaces)
{
    int at = 0;

    pthread_mutex_lock(&entries->lock);
    while (entries->segments[at])
        at++; /* one is free: the thread merges segments */
    entries->segments[at] = segment;
    entries->bytes += segment->file_bytes;
    if (entries->next_number <= segment->number)
        entries->next_number = segment->number + 1;
    for (uint32_t i = 0; i < nr; i++)
        if (!replaces || replaces[entries->slots[items[i].sample].where])
            np_entries_set_slot(entries, items[i].sample,
                (struct np_entries_slot){
                    items[i].at, (uint16_t)(items[i + 1].at - items[i].at), (uint8_t)(at + 1)});
    pthread_mutex_unlock(&entries->lock);
}

static void forget(struct np_entries *entries, uint8_t where)
{
    for (uint64_t i = 0; i < entries->index->nr_samples; i++)
        if (entries->slots[i].where == where)
            np_entries_set_slot(entries, i, (struct np_entries_slot){0});
}

void np_entries_drop(struct np_entries *entries, struct np_segment *segment, bool remove)
{
    uint8_t where = 1;
    bool used;

    if (remove)
        unlink(segment->path);
    pthread_mutex_lock(&entries->lock);
    while (np_entries_segment(entries, where) != segment)
        where++;
    if (segment->nr_live > 0)
        forget(entries, where);
    entries->segments[where - 1] = NULL;
    entries->bytes -= segment->file_bytes;
    segment->gone = true;
    used = segment->nr_users > 0;
    pthread_mutex_unlock(&entries->lock);
    if (!used)
        np_segment_close(segment);
}
