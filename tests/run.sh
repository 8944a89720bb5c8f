#!/bin/sh
# run.sh BUILD quick|all: the tests, side by side. quick: layers, unit and kernel tests, golden files, the Python
# package, one real run, kills and bad inputs. all: every script of golden, flow, fault, cuda and fuzz
# besides. A line for each script as it ends and for each failure; then what was skipped, counted, with
# its reason; the last line is `N passed, N failed`. Campaigns (*_campaign.sh) run whole in run_long.sh.
#   JOBS          scripts at a time (default: three times the cores: most of them wait most of their time)
#   TEST_TIMEOUT  seconds a script may take (default 1200: on a busy machine none is too slow)
build=${1:-build}
cd "$(dirname "$0")/.." || exit 1
[ "$build" = build ] || NNPIPE=$PWD/$build/nnpipe
export NNPIPE="${NNPIPE:-$PWD/nnpipe}" NNPIPE_BUILD="$PWD/$build"
export TEST_LOG="$PWD/$build/tests/log"
rm -rf "$TEST_LOG"
mkdir -p "$TEST_LOG"

# The longest first, so that none of them is left alone at the end; those that mostly wait among those that compute.
list() {
    echo unit
    printf '%s\n' tests/flow/cuda.sh tests/flow/deb.sh tests/flow/service_hung.py tests/flow/service_trouble.py \
        tests/flow/service.py tests/flow/processes.sh tests/flow/wheel.sh tests/flow/readme.sh tests/flow/train.sh \
        tests/flow/units.sh tests/flow/selftest.sh tests/flow/remote.sh tests/flow/machines.sh tests/flow/gpus.sh \
        tests/flow/share.sh tests/flow/service_gang.py tests/flow/resume_crossed.sh tests/flow/dist.sh \
        tests/flow/cluster.sh tests/flow/profile.sh tests/flow/service_faults.py tests/flow/service_cycles.sh \
        tests/flow/hang.sh
    ls tests/cuda/*.sh tests/golden/*.sh tests/flow/*.sh tests/flow/service*.py tests/flow/sweep.py tests/fault/*.sh \
        tests/fuzz/*.sh
    echo layers
}
quick='^(layers|unit|tests/golden/.*|tests/flow/(train|kill|library|python_loader)\.sh|tests/fault/bad_inputs\.sh)$'
[ "${2:-quick}" = all ] && quick=.
list | awk '!seen[$0]++' | grep -v '_campaign\.' | grep -E "$quick" |
    xargs -n 1 -P "${JOBS:-$(($(nproc) * 3))}" sh tests/run_one.sh "$build"

counted() { cat "$TEST_LOG"/*.log | grep -c "^$1 - "; }
skipped=$(counted skip)
[ "$skipped" -eq 0 ] || echo "$skipped skipped:"
cat "$TEST_LOG"/*.log | sed -n 's/^skip - /  /p'
echo "$(counted ok) passed, $(counted 'not ok') failed"
[ "$(counted 'not ok')" -eq 0 ] && [ "$(counted ok)" -gt 0 ]
