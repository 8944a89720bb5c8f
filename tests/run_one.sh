#!/bin/sh
# run_one.sh BUILD WHAT: runs one test for run.sh, which sets NNPIPE, NNPIPE_BUILD and TEST_LOG: a script, `unit` (the
# unit and kernel tests) or `layers`. Its lines (`ok - `, `not ok - `, `skip - `) go to a file in the folder
# TEST_LOG; failures are printed too. A script also runs alone: sh tests/flow/train.sh
build=$1 what=$2
out=${TEST_LOG:?is set by tests/run.sh}/$(echo "${what%.*}" | sed 's|^tests/||' | tr / -).log
export PYTHONDONTWRITEBYTECODE=1
limit=${TEST_TIMEOUT:-1200}
[ "$build" = build ] || limit=$((3 * limit))
start=$(date +%s)

# unit_tests has two runners: Criterion, and a plain one for the sanitizers, which prints `ok - ` lines itself.
unit_tests() {
    jobs=
    [ "$build" != build ] || jobs="--jobs $(nproc) --timeout 120 --verbose"
    own=$(mktemp -d) # the place of the user's cache and sockets, as in lib.sh
    # shellcheck disable=SC2086 # words
    XDG_CACHE_HOME=$own XDG_RUNTIME_DIR=$own timeout "$limit" "$build/tests/unit_tests" $jobs >"$out.raw" 2>&1
    code=$?
    rm -rf "$own"
    sed -n -e '/^\(ok\|not ok\|skip\) - /{p;d}' -e '/Test is disabled/d' -e \
        's/^\[PASS\] \([^:]*::[^:]*\):.*/ok - \1/p' \
        -e 's/^\[FAIL\] \([^:]*::[^:]*\):.*/not ok - \1/p' -e 's/^\[SKIP\] \([^:]*::[^:]*\): \(.*\)$/skip - \1: \2/p' \
        "$out.raw"
    [ $code -ne 0 ] || return
    grep -qE '^(\[FAIL\]|not ok - )' "$out.raw" || echo "not ok - the unit tests ended with exit code $code"
    grep -E 'failed:|ERROR|WARNING: ThreadSanitizer|runtime error|^\[----\]' "$out.raw" | head -n 40 | sed 's/^/# /'
}
case $what in
unit) unit_tests >"$out" ;;
layers)
    if sh scripts/check_layers.sh >"$out.raw" 2>&1; then
        echo "ok - includes point downwards only"
    else
        echo "not ok - includes point downwards only: $(head -n 3 "$out.raw" | tr '\n' ' ')"
    fi >"$out"
    ;;
*)
    case $what in
    *.py) timeout "$limit" python3 "$what" ;;
    *) timeout "$limit" sh "$what" ;;
    esac >"$out" 2>&1
    code=$?
    # A script that dies half-way is a failure, too.
    [ $code -eq 0 ] || grep -q '^not ok - ' "$out" ||
        echo "not ok - $what ended with exit code $code: $(tail -n 2 "$out" | tr '\n' ' ')" >>"$out"
    ;;
esac
# Processor time of all it waited for, user and system: the last line of `times`, which must run in this very shell.
times >"$out.times"
busy=$(tail -n 1 "$out.times" | sed 's/[ms]/ /g' | awk '{ print int(60 * ($1 + $3) + $2 + $4 + 0.5) }')
# In one write, because other tests print at the same time.
echo "$(grep -E "^not ok - |^#   $([ "$what" != unit ] || echo '|^# ')" "$out")
# $what: $(grep -c '^ok - ' "$out") ok, $(($(date +%s) - start)) s, $busy s of CPU" | sed '/^$/d'
exit 0
