#!/bin/sh
# The profiler judged by planted bottlenecks, whole: two hours on two cores. See tests/bench/plants/run.sh.
cd "$(dirname "$0")/../.." || exit 1
STATE=${STATE:-$PWD/build/long}/plants JUDGE=1 sh tests/bench/plants/run.sh >"${STATE:-build/long}/plants.txt" 2>&1
code=$?
grep -E '^(ok|not ok) - ' "${STATE:-build/long}/plants.txt"
exit $code
