#!/bin/sh
# run_long.sh BUILD: the campaigns, whole: tests/*/*_campaign.sh. Resumable: a campaign that
# passed at this commit is not run again; each keeps its own progress in $STATE. The result
# goes to docs/TEST_LONG.md.
build=${1:-build}
cd "$(dirname "$0")/.." || exit 1
[ "$build" = build ] || NNPIPE=$PWD/$build/nnpipe
export NNPIPE="${NNPIPE:-$PWD/nnpipe}" NNPIPE_BUILD="$PWD/$build" NNPIPE_LONG=1
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
export STATE="$PWD/$build/long/$commit"
mkdir -p "$STATE"
passed=0 failed=0
for test in tests/*/*_campaign.sh; do
    name=$(basename "$test" .sh)
    if [ ! -e "$STATE/$name.passed" ]; then
        sh "$test" 2>&1 | tee "$STATE/$name.log" | grep -E '^(ok|not ok|skip) - '
        grep -q '^ok - ' "$STATE/$name.log" && ! grep -q '^not ok - ' "$STATE/$name.log" && : >"$STATE/$name.passed"
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
} >docs/TEST_LONG.md
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
