#!/bin/sh
# check_unused.sh [BUILD]: prints the public functions and objects of the product (np_*) that no other file of the
# product uses. Each of them is dead, or should be static, or is allowed below. The script reads BUILD's objects, and
# the text of the CUDA plugin, which may not be built. Exit 1 if it finds one, or if an allowed name is used or gone.
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}

# Entries for tests and fuzzers: they take bytes instead of a file or another root, run one of two implementations,
# or return values that the product does not need.
allowed='
np_st_parse np_st_metadata np_index_parse np_profile_parse np_profile_html_to np_classes_read np_plugin_load
np_box_read_under np_cores_read_under np_devices_take
np_crc32c_plain np_resize_set_simd np_ref_prepare np_ref_free np_fold_init np_io_posix_write
np_fields_feed np_fields_observation np_fields_observed_stage np_progress_text np_retention_is_steady
np_retention_oldest
np_index_memory np_cache_bytes np_loader_auto_cache np_loader_sampler np_sampler_evals_before np_sampler_nr_batches
np_sampler_ticket
np_sim_read np_tune_memory
'
objects=$(find daemon loader trainer -name '*.c' ! -path 'trainer/cuda/*' | sed "s|^|$build/|; s|c\$|o|")
for object in $objects; do
    [ -e "$object" ] || { echo "check_unused: $object is not built"; exit 1; }
done
# shellcheck disable=SC2086 # files
{ nm -A $objects; grep -ohE '\bnp_[a-z0-9_]+' trainer/cuda/* | sed 's/^/plugin: U /'; } | awk -v allowed="$allowed" '
    { split($1, at, ":"); name = $NF; type = $(NF - 1) }
    name !~ /^np_/ { next }
    type == "U" { used[name] = 1 }
    type ~ /^[TDBRC]$/ { defined[name] = at[1] }
    END {
        n = split(allowed, names, " ")
        for (i = 1; i <= n; i++) {
            let[names[i]] = 1
            if (!(names[i] in defined) || names[i] in used)
                print "scripts/check_unused.sh allows " names[i] ", which is used or gone"
        }
        for (name in defined)
            if (!(name in used) && !(name in let)) print name " of " defined[name] ": no other file uses it"
    }' | sort | { ! grep .; }
