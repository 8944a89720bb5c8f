/* A set without files: shapes, drawn on demand. A record's offset is its number; the decoder gets
 * the number as the sample's bytes. */
#include <stdio.h>

#include "loader/source/source_scan.h"
#include "loader/base/synth.h"

static int scan(const struct np_source_options *options, struct np_index *index,
    const struct np_source_progress *progress, struct np_err *err)
{
    int labels[NP_SYNTH_CLASSES];

    index->raw = (struct np_raw){
        NP_RAW_SYNTH, (int)options->size, (int)options->size, 3, (uint64_t)options->seed};
    for (int c = 0; c < NP_SYNTH_CLASSES; c++) {
        labels[c] = np_index_add_class(index, np_synth_names[c], "synth", err);
        if (labels[c] < 0)
            return labels[c];
    }
    for (uint64_t i = 0; i < (uint64_t)options->samples; i++) {
        const struct np_record record = {.offset = i,
            .inner_bytes = sizeof(i),
            .label = (uint32_t)labels[np_synth_label(index->raw.seed, i)]};
        char name[32];
        int code;

        snprintf(name, sizeof(name), "%08llu", (unsigned long long)i);
        code = np_index_add(index, &record, name, "synth", err);
        if (code)
            return code;
        np_source_count(progress, index);
    }
    return 0;
}

const struct np_source np_source_synth = {
    .name = "synth",
    .help = "shapes, drawn on demand; no files",
    .keys = "samples size seed",
    .scan = scan,
};
