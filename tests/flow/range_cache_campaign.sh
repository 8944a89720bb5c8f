# The cache of remote ranges: kill -9 at each system call of a process that opens, puts and evicts, ten times over, and
# four processes of which one is killed every few milliseconds, for SECONDS_EACH (120).
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}

every_place() {
    for round in 1 2 3 4 5 6 7 8 9 10; do
        KILL_EVERY=1 "$build/tests/unit_tests" --filter 'range_cache/kill_9*' >"$TMP/log" 2>&1 || {
            echo "round $round"
            cat "$TMP/log"
            return 1
        }
    done
}
t "kill -9 at each system call leaves the cache right" every_place
t "processes that are killed disturb nobody" \
    env KILL_SECONDS="${SECONDS_EACH:-120}" "$build/tests/unit_tests" \
    --filter 'range_cache/processes_that*' --timeout 1000
