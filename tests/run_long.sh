#!/bin/sh
# run_long.sh BUILD: runs all of each campaign, tests/*/*_campaign.*. It can be resumed: a campaign that passed at
# this commit does not run again, and each keeps its progress in $STATE. Writes docs/TEST_LONG.md; the result of a
# run shortened by KILLS or FUZZ_SECONDS stays in $STATE.
build=${1:-build}
cd "$(dirname "$0")/.." || exit 1
[ "$build" = build ] || NNPIPE=$PWD/$build/nnpipe
export NNPIPE="${NNPIPE:-$PWD/nnpipe}" NNPIPE_BUILD="$PWD/$build" NNPIPE_LONG=1 PYTHONDONTWRITEBYTECODE=1
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
