#!/bin/sh
# Storage that hangs: a trainer that waits for a batch is reached by a stop, saves, and ends although
# a reader is stuck in open() or in a read; the resumed run ends with the weights of an undisturbed run.
# A FIFO instead of a picture hangs in open(); a slow read of tests/sim/io_sim.h, instead of uring's, hangs in a read.
. "$(dirname "$0")/../lib.sh"
NNPIPE=${NNPIPE_BUILD:-$ROOT/build}/tests/plants/nnpipe
[ -x "$NNPIPE" ] || { not_ok "the program with plants is there" "make plants"; exit 1; }
cd "$TMP" || exit 1
LIMIT_MS=10000 # generous: a box may be busy. What it took is printed

for i in $(seq 10 49); do
    mkdir -p "pictures/$((i % 2))" "test/$((i % 2))"
    { printf 'P6 8 8 255\n'; seq $((i * i)) $((i * i + 99)) | head -c 192; } >"pictures/$((i % 2))/$i.ppm"
    [ "$i" -ge 34 ] || cp "pictures/$((i % 2))/$i.ppm" "test/$((i % 2))/$i.ppm"
done
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: folder, path: "$TMP/pictures"}
  test: {source: folder, path: "$TMP/test"}
loader: {batch: 4, readers: 2, depth: 2, shuffle: none, cache: none, augment: [flip]}
model: [{conv: {out: 4, kernel: 3}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 2, threads: 1, eval_every: 1 epoch}
checkpoint: {every: never}
Y

# same A B: both ended, with the same weights
same() {
    [ -n "$(field weights_sha256 "$1")" ] && [ "$(field weights_sha256 "$1")" = "$(field weights_sha256 "$2")" ] ||
        { tail -n 3 "$1.err" "$2.err"; return 1; }
}
train() { out=$1; shift; "$NNPIPE" train "${CONFIG:-net.yaml}" --json "$@" >"$out" 2>"$out.err"; }
# block FILE, unblock FILE: replaces it by a FIFO, after the set was listed
block() {
    cp -p "$1" "$TMP/kept" && touch -r "$(dirname "$1")" "$TMP/when" && rm "$1" && mkfifo "$1" &&
        touch -r "$TMP/when" "$(dirname "$1")"
}
unblock() { rm "$1" && cp -p "$TMP/kept" "$1" && touch -r "$TMP/when" "$(dirname "$1")"; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }
# until_true WORDS...: waits for a command to succeed
until_true() { for _ in $(tries 400); do "$@" && return 0; sleep 0.05; done; echo "never: $*"; return 1; }
sed '/^  test:/d' net.yaml >no-test.yaml
has_step() { grep -q "\"event\": *\"step\".*\"step\": *$1," "$2"; }
# stopped CODE STEP ARGS...: trains, is stopped once STEP is done and the next batch hangs: ends with
# CODE within the limit, with a checkpoint of step $saved_step
stopped() {
    code=$1 step=$2
    shift 2
    rm -rf "$TMP/runs" && : >"$TMP/cut"
    "$NNPIPE" train net.yaml --json -o "runs=$TMP/runs" "$@" >"$TMP/cut" 2>"$TMP/cut.err" &
    pid=$!
    # a step's numbers come with the next one, unless a boundary follows
    if [ "$step" -gt 1 ]; then until_true has_step $((step - 1)) "$TMP/cut"; else until_true grep -q '"start"' \
        "$TMP/cut"; fi ||
        { kill -9 $pid; cat "$TMP/cut.err"; return 1; }
    ${BEFORE_STOP:-sleep 0.3}
    start=$(now_ms)
    kill -TERM $pid
    wait $pid
    got=$?
    took=$(($(now_ms) - start))
    echo "# ended with $got after $took ms"
    [ $got -eq "$code" ] && [ $took -lt $LIMIT_MS ] &&
        [ -e "$(echo "$TMP/runs"/*/checkpoints/step-"${saved_step:-$step}")" ] ||
        { ls "$TMP/runs"/*/checkpoints; cat "$TMP/cut.err"; return 1; }
}
# continues WHOLE ARGS...: resumes the stopped run, which must end with WHOLE's weights
continues() { whole=$1; shift; train "$TMP/end" -o "runs=$TMP/runs" --resume "$@" && same "$whole" "$TMP/end"; }

train whole -o runs=whole-runs || { cat whole.err; exit 1; }
train whole-4 -o runs=whole-runs -o train.accumulate=4 || { cat whole-4.err; exit 1; }

hung=$TMP/pictures/1/21.ppm # sample 25 of training: batch 6 of 0 to 9
named() { until_true grep -q "reader [01]: open: $hung 0, for" "$TMP/cut.err"; }
hung_open() {
    block "$hung" && BEFORE_STOP=named stopped 75 6
    code=$?
    unblock "$hung"
    [ $code -eq 0 ] && grep -o 'reader [01]: open: .*' "$TMP/cut.err" | head -n 1 && continues whole
}
t "a stop reaches a trainer whose reader hangs in open(): 75, a checkpoint, the same weights" hung_open
[ ! -e "$OUT" ] || grep '^#' "$OUT"

hung_at_once() {
    first=$TMP/pictures/0/12.ppm # not the picture whose size is guessed for all
    block "$first" && stopped 75 0
    code=$?
    unblock "$first"
    [ $code -eq 0 ] && continues whole
}
t "before the first step it saves its start" hung_at_once

hung_accumulating() { # 8 whole after two updates of 4, then batch 6 hangs: whole is 4
    block "$hung" && saved_step=4 stopped 75 6 -o train.accumulate=4
    code=$?
    unblock "$hung"
    saved_step=
    [ $code -eq 0 ] && continues whole-4 -o train.accumulate=4
}
t "within an accumulation the last update is saved" hung_accumulating

hung_read() {
    NNPIPE_IO_SIM="slow_read=26,slow_us=1000000000" stopped 75 6 -o loader.io=uring -o loader.readers=1 -o \
        loader.depth="$1" && continues whole
}
t "a reader that hangs in a read is left behind" hung_read 1
t "also with more reads in flight" hung_read 3

# eval_hangs N ARGS...: in test picture N of 24, of the evaluation after step 10; then other free keys
eval_hangs() {
    n=$1
    shift
    NNPIPE_IO_SIM="slow_read=$((40 + n)),slow_us=1000000000" stopped 75 10 -o loader.io=uring -o loader.readers=1 -o \
        loader.depth=1 &&
        grep -q '"eval_due": *true' "$TMP/runs"/*/checkpoints/step-10/manifest.json && continues whole "$@"
}
t "an evaluation that hangs is still due afterwards" eval_hangs 3
evals() { [ "$(grep -c '"event": *"eval"' "$TMP/end")" -eq "$1" ] || { grep '"eval"' "$TMP/end"; return 1; }; }
t "and is made when the run resumes" evals 2
t "interrupted in its first batch it may be dropped: eval_every: never" eval_hangs 1 -o train.eval_every=never
t "then only the last one is made" evals 1
t "interrupted in its middle: eval_every: 2 epochs, other readers, io and cache" eval_hangs 13 \
    -o "train.eval_every=2 epochs" \
    -o loader.readers=3 -o loader.io=pread -o loader.cache=decoded -o loader.prefetch=3
CONFIG=no-test.yaml
t "interrupted in its last batch: no evaluation set at all" eval_hangs 24
t "and none was made" evals 0
CONFIG=

# last_hangs: in the evaluation after the last step of a run of one epoch
last_hangs() {
    NNPIPE_IO_SIM="slow_read=50,slow_us=1000000000" stopped 75 10 -o train.epochs=1 -o loader.io=uring -o \
        loader.readers=1 -o loader.depth=1
}
train whole-1 -o runs=whole-runs -o train.epochs=1
last_then() { last_hangs && continues "$@"; }
t "interrupted in the last evaluation of all: it is made on resume" last_then whole-1 -o train.epochs=1
CONFIG=no-test.yaml
t "or there is no evaluation any more, and the run is finished" last_then whole-1 -o train.epochs=1
CONFIG=
t "or the run is longer now" last_then whole -o train.eval_every=7\ steps
t "or another set is evaluated, and the test set at the end" last_then whole-1 -o train.epochs=1 -o \
    "data.val={source: folder, path: $TMP/test}"

hung_before() { # the list of its classes is a FIFO without a writer
    mkfifo "$TMP/classes" || return 1
    "$NNPIPE" train net.yaml -o "runs=$TMP/none" -o "data.classes=$TMP/classes" >"$TMP/cut" 2>&1 &
    pid=$!
    sleep 0.5
    start=$(now_ms)
    kill -TERM $pid
    wait $pid
    code=$?
    [ $code -eq 143 ] && [ $(($(now_ms) - start)) -lt $LIMIT_MS ] && [ ! -e "$TMP/none" ] || {
        echo "exit $code"
        cat "$TMP/cut"
        return 1
    }
}
t "a hanging check of the data ends at once on a signal, and no process is left" hung_before

# --- the service's pause: the same signal, with the same result
export NNPIPE_SOCKET="$TMP/socket" XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config"
mkdir -p "$TMP/config/nnpipe" && printf 'devices: [cpu]\nspare_bytes: 1M\n' >"$TMP/config/nnpipe/service.yaml"
daemon=
trap 'kill $daemon 2>/dev/null; wait; rm -rf "$TMP"' EXIT
state_is() { "$NNPIPE" status 1 --json 2>/dev/null | grep -q "\"state\": *\"$1\""; }
hung_pause() {
    sed -e "s/depth: 2/depth: 1, io: uring/; s/readers: 2/readers: 1/" net.yaml >served.yaml &&
        echo "runs: $TMP/served" >>served.yaml
    NNPIPE_IO_SIM="slow_read=26,slow_us=1000000000" "$NNPIPE" daemon 2>"$TMP/daemon.log" &
    daemon=$!
    until_true "$NNPIPE" status >/dev/null 2>&1 && "$NNPIPE" submit served.yaml && until_true has_line && sleep 0.3 || {
        cat "$TMP/daemon.log"
        return 1
    }
    start=$(now_ms)
    "$NNPIPE" pause 1 && until_true state_is paused || return 1
    took=$(($(now_ms) - start))
    echo "# paused after $took ms"
    [ $took -lt $LIMIT_MS ] && ls "$TMP"/served/net-1/checkpoints/step-*/manifest.json && "$NNPIPE" logs 1 |
        grep -q 'stopped at step'
}
has_line() { "$NNPIPE" logs 1 2>/dev/null | grep -q '^training'; }
t "the service pauses a run whose reader hangs, with a checkpoint" hung_pause
