# The machine's clock is set while runs go on: nothing is ended for it, and no limit is lost.
. "$(dirname "$0")/../lib.sh"
command -v cc >/dev/null || { skip "a clock that is set" "there is no compiler here"; exit 0; }
export NNPIPE_SOCKET="$TMP/socket" XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config"
daemon=
trap 'kill -9 $daemon $(cat "$TMP"/runs/*/lock 2>/dev/null) 2>/dev/null; rm -rf "$TMP"' EXIT
mkdir -p "$TMP/config/nnpipe"
printf 'devices: [cpu]\nretry: {first: 4, cap: 4}\nspare_bytes: 1M\nstop_seconds: 1\n' \
    >"$TMP/config/nnpipe/service.yaml"
cat >"$TMP/long.yaml" <<Y
name: long
device: cpu
data: {train: {source: synth, samples: 2000, size: 32}}
loader: {batch: 32, cache: none, readers: 1}
model: [{conv: {out: 8, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]
train: {steps: 1000000, eval_every: never, threads: 1}
checkpoint: {every: 20 steps, keep: 2}
runs: $TMP/runs
Y
cat >"$TMP/clock.c" <<'C' # the daemon's time of day is so many seconds ahead
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    FILE *file = id == CLOCK_REALTIME ? fopen(getenv("CLOCK_AHEAD"), "re") : NULL;
    long ahead = 0;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const int code = real(id, now);
    if (file && fscanf(file, "%ld", &ahead) == 1)
        now->tv_sec += ahead;
    if (file)
        fclose(file);
    return code;
}
C
export CLOCK_AHEAD="$TMP/ahead"
ahead() { echo "$1" >"$TMP/ahead.new" && mv "$TMP/ahead.new" "$TMP/ahead"; }
ahead 0
cc -shared -fPIC -o "$TMP/clock.so" "$TMP/clock.c" -ldl
# A sanitizer's runtime wants to come before all others.
LD_PRELOAD="$(ldd "$NNPIPE" | awk '/lib[at]san/ { printf "%s:", $3 }')$TMP/clock.so" \
    "$NNPIPE" daemon 2>"$TMP/daemon.log" &
daemon=$!
for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && break; sleep 0.1; done
field() { "$NNPIPE" status "$1" --json | sed -n "s/.*\"$2\": *\"\{0,1\}\([^\",}]*\).*/\1/p" | head -n 1; }
becomes() { # becomes ID STATE SECONDS
    for _ in $(tries $((10 * $3))); do [ "$(field "$1" state)" = "$2" ] && return; sleep 0.1; done
    echo "run $1 is $(field "$1" state), not $2: $(field "$1" reason)"
    return 1
}
trained() {
    for _ in $(tries 300); do
        ls "$TMP/runs/$1"/checkpoints/step-* >/dev/null 2>&1 && return
        sleep 0.1
    done
    return 1
}

forward() {
    "$NNPIPE" submit "$TMP/long.yaml" && trained long-1 && pid=$(cat "$TMP/runs/long-1/lock") && kill -STOP "$pid" &&
        sleep 1 && ahead 86400 && sleep 2.5 &&
        kill -CONT "$pid" && [ "$(cat "$TMP/runs/long-1/lock")" = "$pid" ] && [ "$(field 1 state)" = running ]
}
t "a clock that is set forward by a day ends no run" forward
again() { kill -9 "$(cat "$TMP/runs/long-1/lock")" && becomes 1 queued 5 && ahead 0 && becomes 1 running 15; }
t "a run that waits for its next try does not wait for a clock that was set back" again
limit() {
    sleep 1 && kill -STOP "$(cat "$TMP/runs/long-1/lock")" && "$NNPIPE" stop 1 && ahead -86400 && becomes 1 stopped 10
}
t "a run that does not hear that it is to stop is ended in time, though the clock is set back" limit
[ "$failed" -eq 0 ]
