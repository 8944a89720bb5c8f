#!/bin/sh
# check_unused.sh [BUILD]: prints the public functions and objects of the product (np_*) that no other file of the
# product uses. Each of them is dead, or should be static, or is allowed below. The script reads BUILD's objects, and
# the text of the CUDA plugin, which may not be built. Exit 1 if it finds one, or if an allowed name is used or gone.
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}

# Entries for tests and fuzzers: a name and its reason, a line each.
allowed='
np_jpeg_use_plain: tests compare plain C with the vector code
np_sizes_nr_read: a test counts the headers that were read
np_formatter_has_vectors: a test asks whether a table is made by vectors
np_vectors_limit: tests compare the instruction sets of one CPU
np_profile_parse: fuzz_profile gives bytes
np_profile_html_to: fuzz_profile takes the page without a file
np_classes_read: fuzz_classes gives bytes
np_plugin_load: a test loads plugins of other versions by their path
np_weights_kind: a test names the kind of a few first bytes
np_box_read_under: tests bring their own /proc and /sys
np_cores_read_under: tests bring their own /sys
np_devices_take: a test changes the devices of a service without a GPU
np_crc32c_plain: a test compares it with the instruction, which the product prefers
np_ref_prepare: a planted kernel, which the check must find, prepares as the reference does
np_checked_usable: a test gives the check one kernel of its own
np_checked_report: a test reads the message
np_mix_box: a test gives it the draws of torchvision
np_augment_draw: tests compare the fold with the plain sum
np_io_posix_write: the simulated disk of tests/sim writes through it
np_progress_text: a test reads the line at each width, without a terminal
np_device_slots: a test checks the rule alone
np_retention_is_steady: the same
np_retention_oldest: the same
np_loader_auto_cache: a test gives it machines of different memory
np_sim_read: tests read the memory of the simulated device
np_tune_memory: a test checks the estimate without a run
np_recompute: a test cuts random graphs into any number of segments
np_recompute_best: a test reads the numbers
np_entries_nr: the decoder uses it next
np_range_flush: tests wait until what they put is stored
np_comm_sum: tests and a benchmark sum at once
'
objects=$(find daemon loader trainer -name '*.c' ! -path 'trainer/cuda/*' ! -path 'loader/python/*' |
    sed "s|^|$build/|; s|c\$|o|")
for object in $objects; do
    [ -e "$object" ] || { echo "check_unused: $object is not built"; exit 1; }
done
# shellcheck disable=SC2086 # files
{ nm -A $objects; grep -rohE '\bnp_[a-z0-9_]+' trainer/cuda | sed 's/^/plugin: U /'; } | awk -v allowed="$allowed" '
    { split($1, at, ":"); name = $NF; type = $(NF - 1) }
    name !~ /^np_/ { next }
    type == "U" { used[name] = 1 }
    type ~ /^[TDBRC]$/ { defined[name] = at[1] }
    END {
        for (n = split(allowed, lines, "\n"); n > 0; n--) {
            name = lines[n]
            sub(/:.*/, "", name)
            let[name] = 1
            if (name && (!(name in defined) || name in used))
                print "scripts/check_unused.sh allows " name ", which is used or gone"
        }
        for (name in defined)
            if (!(name in used) && !(name in let)) print name " of " defined[name] ": no other file uses it"
    }' | sort | { ! grep .; }
