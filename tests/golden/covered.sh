#!/bin/sh
# Each layer and loss of docs/CONFIG.md has gradients against central differences and a case of the self-test, which
# runs it in f32 and bf16 on each device; each optimizer and schedule has numbers to be compared with.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
names() { awk -v s="## $1" '/^## /{on = $0 == s} on && /^### `/{gsub(/[#` ]/, ""); print}' docs/CONFIG.md; }
# covered SECTION FILE...: each name of the section is a word in one of the files
covered() {
    section=$1
    shift
    names "$section" >"$TMP/names.txt" && [ -s "$TMP/names.txt" ] || { echo "no names in $section"; return 1; }
    while read -r name; do
        grep -qw -- "$name" "$@" || { echo "$section: $name is in no test of $*"; return 1; }
    done <"$TMP/names.txt"
}
for section in "model and blocks" loss; do
    t "$section: each has a test of its gradients" covered "$section" tests/kernel/test_gradients.c
    t "$section: each is in the self-test" covered "$section" trainer/selftest/selftest_cases.c
done
t "each optimizer has torch's numbers" covered optimizer tests/unit/golden_optim.h
t "each schedule has numbers to be compared with" covered schedule tests/unit/golden_schedule.h \
    tests/unit/test_schedule.c
[ "$failed" -eq 0 ]
