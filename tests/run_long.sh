#!/bin/sh
# run_long.sh BUILD: the campaigns, whole: tests/*/*_campaign.*. Resumable: a campaign that
# passed at this commit is not run again; each keeps its own progress in $STATE. The result
# goes to docs/TEST_LONG.md; that of a run shortened by KILLS or FUZZ_SECONDS stays in $STATE.
build=${1:-build}
cd "$(dirname "$0")/.." || exit 1
[ "$build" = build ] || NNPIPE=$PWD/$build/nnpipe
export NNPIPE="${NNPIPE:-$PWD/nnpipe}" NNPIPE_BUILD="$PWD/$build" NNPIPE_LONG=1
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
short=${KILLS:+-$KILLS-kills}${FUZZ_SECONDS:+-$FUZZ_SECONDS-seconds}
export STATE="$PWD/$build/long/$commit$short"
mkdir -p "$STATE"
record=docs/TEST_LONG.md
[ -z "$short" ] || record=$STATE/TEST_LONG.md
passed=0 failed=0
for test in tests/*/*_campaign.sh tests/*/*_campaign.py; do
    name=$(basename "${test%.*}")
    if [ ! -e "$STATE/$name.passed" ]; then
        {
            case $test in *.py) python3 "$test" ;; *) sh "$test" ;; esac 2>&1
            code=$?
            [ $code -eq 0 ] && : >"$STATE/$name.passed"
            [ $code -eq 0 ] || echo "not ok - $name ended with exit code $code"
        } | tee "$STATE/$name.log" | grep -E '^(ok|not ok|skip) - '
    fi
    passed=$((passed + $(grep -c '^ok - ' "$STATE/$name.log")))
    failed=$((failed + $(grep -c '^not ok - ' "$STATE/$name.log")))
done
{
    echo "# The long campaigns: last result"
    echo
    echo "\`make test-long\` at commit $commit: $passed passed, $failed failed."
    echo
    echo '```'
    cat "$STATE"/*.log | grep -E '^(ok|not ok|skip) - '
    echo '```'
} >"$record"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
