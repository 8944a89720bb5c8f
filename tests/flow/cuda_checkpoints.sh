# Checkpoints that training on a GPU does not wait for, over the emulated runtime: each has the bits of its step in any
# order of the streams, also with too little memory for a copy on the GPU; kills, stops, a full disk and failing calls
# meanwhile lose nothing that is on the disk. SEEDS orders, EPOCHS of the runs that end, KILLS (seconds behind a
# checkpoint), FAILS calls that fail: the campaign has more.
. "$(dirname "$0")/../lib.sh"
use_emulated_gpu "checkpoints that training does not wait for" || exit 0
cat >"$TMP/net.yaml" <<Y
name: saves
seed: 3
device: cuda:0
runs: $TMP/runs
data: {train: {source: synth, size: 8, samples: 24}}
loader: {batch: 8, readers: 1}
model:
  - conv: {out: 8, kernel: 3, pad: 1, bias: false}
  - batchnorm
  - relu
  - flatten
  - linear: {out: 64}
  - relu
  - dropout: {rate: 0.2}
  - linear: {out: classes}
optimizer: {sgd: {lr: 0.02, momentum: 0.9}}
train: {epochs: 5, threads: 1}
checkpoint: {every: 3 steps, keep: 99}
Y
sed -e 's/^optimizer:.*/precision: f16\noptimizer: {adamw: {lr: 0.001}}/' -e 's/^train: {/&ema: {decay: 0.9}, /' \
    "$TMP/net.yaml" >"$TMP/f16.yaml"
net=net
# run NAME ARGS...: a run of the network $net in runs/NAME, its JSON in NAME.json
run() {
    name=$1
    shift
    rm -rf "$TMP/runs/$name"
    train_to "$TMP/$name" "$TMP/$net.yaml" -o runs="$TMP/runs/$name" "$@"
}
# same_step N A B: the checkpoints of this step in runs A and B have the same files, and the same loss scale
same_step() {
    for file in weights optimizer; do
        cmp "$TMP/runs/$2"/*/checkpoints/"step-$1/$file.safetensors" \
            "$TMP/runs/$3"/*/checkpoints/"step-$1/$file.safetensors" || return 1
    done
    [ "$(grep -ho 'scaler [0-9.]* [0-9]*' "$TMP/runs/$2"/*/checkpoints/"step-$1/manifest.json")" = \
        "$(grep -ho 'scaler [0-9.]* [0-9]*' "$TMP/runs/$3"/*/checkpoints/"step-$1/manifest.json")" ]
}
# as_of_its_step NET: a run's last checkpoint is written while all waits for it.
as_of_its_step() {
    net=$1
    for seed in $(seq "${SEEDS:-2}"); do
        NNPIPE_EMU_SEED=$seed run all || return 1
        for n in 3 9; do
            [ "$seed" -gt 1 ] || run "ends-$n" -o train.epochs=$((n / 3)) || return 1
            same_step "$n" all "ends-$n" || { echo "seed $seed, step $n"; return 1; }
        done
    done
}
t "a checkpoint has the bits of the run that ended there, in any order of the streams" as_of_its_step net
t "f16: the same with averaged weights, two states and the loss's scale" as_of_its_step f16
net=net
# Step 3 is saved before the event of its checkpoint, and steps behind it are done by then; no last one is.
goes_on() {
    awk '/"event": "step"/ { split($0, a, /"step": /); step = a[2] + 0 }
        /"event": "checkpoint"/ { split($0, a, /"step": /); n++; if (step > a[2] + 0) later++ }
        END { if (n != 5 || later != 4) { print n " checkpoints, " later " with later steps"; exit 1 } }' \
        "$TMP/all.json"
}
t "steps go on while a checkpoint is written" goes_on
run good || exit 1
missed() { # the fourth wait, behind those of three batches: of the copy to the host for the one on the GPU
    for seed in $(seq 12); do
        ! NNPIPE_EMU_DROP=4 NNPIPE_EMU_SEED=$seed run missed >/dev/null || continue
        grep -q "is no longer finite and is not saved" "$TMP/missed.err" && return 0
    done
    return 1
}
t "an omitted wait would be found: the checkpoint is of memory that nobody has written" missed
# A quarter of what is free holds no copy.
scarce() { NNPIPE_EMU_MEMORY=34500000 run scarce && same_step 3 good scarce && same_step 9 good scarce; }
t "without memory for a copy on the GPU the same bits go to the host at once" scarce

# As many threads as a run has that writes one checkpoint, at its end: the others are written while training waits.
few() {
    cc -shared -fPIC -o "$TMP/few_threads.so" "$ROOT/tests/fault/few_threads.c" -ldl &&
        LD_PRELOAD="$TMP/few_threads.so" FEW_THREADS_SAID="$TMP/said" run never -o checkpoint.every=never &&
        read -r _ started _ refused <"$TMP/said" && [ "$started" -gt 0 ] && [ "$refused" -eq 0 ] || return 1
    LD_PRELOAD="$TMP/few_threads.so" FEW_THREADS_SAID="$TMP/said" FEW_THREADS=$started run few || return 1
    grep -qx "started $started refused 4" "$TMP/said" || { cat "$TMP/said"; return 1; }
    for n in 3 6 9 12 15; do same_step $n good few || return 1; done
}
t "if no thread can be started for a checkpoint, it is written while training waits" few

# --- ends of all kinds
set -- -o train.epochs=${EPOCHS:-14}
run whole "$@"
# in_background ARGS...: a run in runs/ended, and its process in $pid
in_background() {
    "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs/ended" "$@" --json >"$TMP/ended.json" 2>"$TMP/ended.err" &
    pid=$!
}
# has_saved: waits for a checkpoint
has_saved() {
    for i in $(tries 400); do
        ls "$TMP"/runs/ended/*/checkpoints/step-* >/dev/null 2>&1 && return 0
        sleep 0.02
    done
    return 1
}
killed() { # on a fast machine it may end before a later kill
    rm -rf "$TMP/runs/ended"
    resume=
    for wait in ${KILLS:-0.05 0.13}; do
        # shellcheck disable=SC2086 # a word or none
        in_background "$@" $resume
        has_saved && sleep "$wait"
        kill -KILL $pid 2>/dev/null
        code=0
        wait $pid || code=$?
        [ $code -eq 137 ] || break
        resume=--resume
    done
    [ $code -ne 137 ] || train_to "$TMP/ended" "$TMP/net.yaml" -o runs="$TMP/runs/ended" "$@" --resume || return 1
    same_weights "$TMP/whole" "$TMP/ended" || { tail -n 2 "$TMP/ended.err"; return 1; }
}
t "kills while checkpoints are written, resumed, give the weights of one run" killed "$@"
stopped() {
    rm -rf "$TMP/runs/ended"
    in_background "$@"
    has_saved
    kill -TERM $pid
    wait $pid
    code=$?
    [ $code -eq 75 ] || { echo "exit $code, not 75"; return 1; }
    NNPIPE_EMU_SEED=77 train_to "$TMP/ended" "$TMP/net.yaml" -o runs="$TMP/runs/ended" "$@" --resume &&
        same_weights "$TMP/whole" "$TMP/ended"
}
t "so does a stop" stopped "$@"
full() { # full ARGS...: the disk has room for one checkpoint, not for many
    mkdir -p "$TMP/small" && mount -t tmpfs -o size=600k none "$TMP/small" 2>/dev/null || return 1
    exits 74 "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/small/runs" "$@" >"$OUT" 2>&1 &&
        grep -q "the disk is full" "$OUT" && grep -q "last good checkpoint is step" "$OUT" || {
            tail -n 3 "$OUT"
            return 1
        }
    mount -o remount,size=50M "$TMP/small" &&
        train_to "$TMP/full" "$TMP/net.yaml" -o runs="$TMP/small/runs" "$@" --resume &&
        same_weights "$TMP/whole" "$TMP/full"
}
if mkdir "$TMP/probe" && mount -t tmpfs none "$TMP/probe" 2>/dev/null; then
    umount "$TMP/probe"
    t "a full disk ends the run with 74 and the checkpoint before it, from which it goes on" full "$@"
    umount "$TMP/small"
else
    skip "a full disk while training goes on" "no tmpfs can be mounted here"
fi
# A call of the emulated runtime that fails after the first checkpoint has begun: calls 300 to 700.
broken() {
    for i in $(seq "${FAILS:-2}"); do
        rm -rf "$TMP/runs/broken"
        NNPIPE_EMU_FAIL=$((300 + i * 7919 % 400)) "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs/broken" \
            >"$TMP/broken.txt" 2>&1
        code=$?
        [ $code -eq 0 ] || [ $code -eq 1 ] || { echo "exit $code"; cat "$TMP/broken.txt"; return 1; }
        [ $code -eq 0 ] || train_to "$TMP/broken" "$TMP/net.yaml" -o runs="$TMP/runs/broken" --resume auto || return 1
        [ $code -eq 0 ] || same_weights "$TMP/good" "$TMP/broken" || {
            echo "call $((300 + i * 7919 % 400))"
            return 1
        }
    done
}
t "calls that fail meanwhile end it with a message, and it goes on from what is on the disk" broken
# A server no longer answers for the fifth of six archives: the checkpoint of the last step is written all the same.
"$NNPIPE" data synth --out "$TMP/made" --samples 48 --test 0 --size 8 >/dev/null &&
    "$NNPIPE" data pack "$TMP/made/train-*.tar*" --out "$TMP/served" --shard-size 8K >/dev/null || exit 1
export no_proxy=127.0.0.1
python3 "$ROOT/tests/flow/range_server.py" "$TMP/served" "$TMP/port" --faults "$TMP/faults" --delay 200 \
    >"$TMP/server.txt" 2>&1 &
server=$!
for _ in $(tries 100); do [ -s "$TMP/port" ] && break; sleep 0.05; done
far="http://127.0.0.1:$(cat "$TMP/port")/train-{00000..00005}.tar"
saved() { ls "$TMP"/late/*/checkpoints/step-"$1"/manifest.json >/dev/null 2>&1; }
late() {
    "$NNPIPE" train "$TMP/net.yaml" --json -o runs="$TMP/late" -o "data={train: {source: tar, path: '$far'}}" \
        -o loader.shuffle=none -o loader.disk_cache=none -o loader.cache=none -o loader.prefetch=2 -o loader.depth=1 \
        -o "checkpoint.every=1 steps" >"$TMP/late.json" 2>"$TMP/late.txt" &
    job=$!
    for _ in $(tries 200); do saved 1 && break; sleep 0.05; done
    printf 'hang=1\nonly=train-00004\n' >"$TMP/faults"
    sleep 2 # the batches that are on their way
    for _ in $(tries 100); do saved "$(grep -c '"event": "step"' "$TMP/late.json")" && break; sleep 0.05; done
    kill -9 "$job"
    wait "$job"
    last=$(grep -c '"event": "step"' "$TMP/late.json")
    [ "$last" -ge 2 ] && [ "$last" -lt 6 ] && saved "$last" || { tail -n 3 "$TMP/late.txt"; return 1; }
}
"$NNPIPE" data ls "$far" >"$TMP/ls.txt" 2>&1 # makes the index
t "a checkpoint is written although the next batch does not come" late
# A stop while it waits, and the disk is full by then: the checkpoint before it is kept, and the exit code says so.
stop_full() {
    rm -f "$TMP/faults"
    "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/small/late" -o "data={train: {source: tar, path: '$far'}}" \
        -o loader.shuffle=none -o loader.disk_cache=none -o loader.cache=none -o loader.prefetch=2 -o loader.depth=1 \
        -o "checkpoint.every=2 steps" >"$OUT" 2>&1 &
    job=$!
    for _ in $(tries 200); do
        ls "$TMP"/small/late/*/checkpoints/step-2/manifest.json >/dev/null 2>&1 && break
        sleep 0.05
    done
    printf 'hang=1\nonly=train-00004\n' >"$TMP/faults"
    sleep 2
    dd if=/dev/zero of="$TMP/small/fill" bs=1k >/dev/null 2>&1
    kill -TERM "$job"
    exits 74 wait "$job" && grep -qE "the disk is full|No space left" "$OUT" &&
        grep -q "given up; the checkpoint" "$OUT" ||
        { tail -n 3 "$OUT"; return 1; }
}
if mount -t tmpfs -o size=3M none "$TMP/small" 2>/dev/null; then
    t "a stop whose checkpoint finds a full disk ends with 74, and says why" stop_full
    umount "$TMP/small"
else
    skip "a stop on a full disk" "no tmpfs can be mounted here"
fi
kill "$server"
[ "$failed" -eq 0 ]
