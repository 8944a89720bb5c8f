#!/bin/sh
# run.sh BUILD: the fast tests: layers, unit and kernel tests, then every shell test of golden,
# flow and fault. A line for each failure; the last line is `N passed, N failed`. Campaigns
# (*_campaign.sh) run as a sample here and whole in run_long.sh.
build=${1:-build}
cd "$(dirname "$0")/.." || exit 1
[ "$build" = build ] || NNPIPE=$PWD/$build/nnpipe
export NNPIPE="${NNPIPE:-$PWD/nnpipe}" NNPIPE_BUILD="$PWD/$build"
[ -n "${NNPIPE_DATA:-}" ] || echo "skip - NNPIPE_DATA is not set: no tests on real data"
log=$build/tests/log
mkdir -p "$log"
limit=${TEST_TIMEOUT:-420} # s a script
[ "$build" = build ] || limit=$((2 * limit))
passed=0 failed=0

count() { # count FILE: adds the file's `ok -` and `not ok -` lines, prints what is not ok
    passed=$((passed + $(grep -c '^ok - ' "$1"))) failed=$((failed + $(grep -c '^not ok - ' "$1")))
    grep -E '^(not ok|skip) - ' "$1"
}
script() { # script FILE.sh [args]: one shell test; dying half-way is a failure too
    out=$log/$(basename "$1" .sh).log
    start=$(date +%s)
    timeout "$limit" sh "$@" >"$out" 2>&1
    code=$?
    [ $code -eq 0 ] || grep -q '^not ok - ' "$out" || echo "not ok - $1 ended with exit code $code: $(tail -n 2 "$out" | tr '\n' ' ')" >>"$out"
    count "$out"
    echo "# $1: $(grep -c '^ok - ' "$out") ok, $(($(date +%s) - start)) s"
}

sh scripts/check_layers.sh >"$log/layers.log" 2>&1 && echo "ok - includes point downwards only" >>"$log/layers.log" ||
    echo "not ok - includes point downwards only: $(head -n 3 "$log/layers.log" | tr '\n' ' ')" >>"$log/layers.log"
count "$log/layers.log"

if [ "$build" = build ]; then
    "$build/tests/unit_tests" --jobs 2 --timeout 120 >"$log/unit.log" 2>&1
    code=$?
    line=$(grep -o 'Tested: [0-9]* | Passing: [0-9]* | Failing: [0-9]* | Crashing: [0-9]*' "$log/unit.log" | tail -n 1)
    unit_passed=$(echo "$line" | sed -n 's/.*Passing: \([0-9]*\).*/\1/p')
    unit_failed=$(($(echo "$line" | sed -n 's/.*Failing: \([0-9]*\).*/\1/p') + $(echo "$line" | sed -n 's/.*Crashing: \([0-9]*\).*/\1/p')))
else
    "$build/tests/unit_tests" >"$log/unit.log" 2>&1
    code=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log/unit.log" | tail -n 1)
    unit_passed=$(echo "$line" | sed -n 's/^\([0-9]*\) passed.*/\1/p')
    unit_failed=$(echo "$line" | sed -n 's/.*, \([0-9]*\) failed$/\1/p')
fi
if [ -z "$unit_passed" ] || { [ $code -ne 0 ] && [ "${unit_failed:-0}" -eq 0 ]; }; then
    unit_passed=${unit_passed:-0} unit_failed=1 # crashed, leaked or raced
fi
[ "$unit_failed" -eq 0 ] || grep -E 'FAIL|failed:|ERROR|WARNING: ThreadSanitizer|runtime error' "$log/unit.log" | head -n 40
echo "# unit and kernel: $unit_passed ok"
passed=$((passed + unit_passed)) failed=$((failed + unit_failed))

for test in tests/golden/*.sh tests/flow/*.sh tests/fault/*.sh tests/cuda/*.sh tests/fuzz/*.sh; do
    case $test in *_campaign.sh) continue ;; esac
    [ -e "$test" ] && script "$test"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
