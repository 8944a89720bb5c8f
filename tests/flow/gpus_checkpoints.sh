#!/bin/sh
# Checkpoints of several GPUs, emulated: all train on while rank 0 writes. Each has the bits of its step; a next one
# that is due, a stop, a rank that dies and a full disk meanwhile lose nothing that is on the disk; ranks with other
# weights are named before anything is written. SEEDS orders.
. "$(dirname "$0")/../lib.sh"
use_emulated_gpu "checkpoints of several emulated GPUs" || exit 0
export NNPIPE_EMU_DEVICES=4 TMPDIR="$TMP"
cd "$TMP" || exit 1

cat >net.yaml <<Y
name: net
seed: 3
device: cuda
data: {train: {source: synth, samples: 48, size: 8}}
loader: {batch: 16, readers: 1, augment: [flip]}
model:
  - conv: {out: 8, kernel: 3, pad: 1, bias: false}
  - batchnorm
  - relu
  - dropout: {rate: 0.1}
  - global_avgpool
  - linear: {out: classes}
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 4, threads: 1, lanes: 4}
checkpoint: {every: 3 steps, keep: 20}
Y
sed -e 's/^optimizer:.*/precision: f16\noptimizer: {adamw: {lr: 0.001}}/' -e 's/^train: {/&ema: {decay: 0.9}, /' \
    net.yaml >f16.yaml
net=net
# run NAME FLAG...: 12 steps of $net in the folder NAME
run() {
    name=$1
    shift
    timeout 300 "$NNPIPE" train "$net.yaml" -o "runs=$name" --json "$@" >"$name.json" 2>"$name.err"
}
# same_steps A B: their checkpoints have the same files, and the same loss scale
same_steps() {
    for step in 3 6 9 12; do
        for file in weights optimizer; do
            cmp "$1"/*/checkpoints/step-$step/$file.safetensors "$2"/*/checkpoints/step-$step/$file.safetensors ||
                return 1
        done
        [ "$(grep -ho 'scaler [0-9.]* [0-9]*' "$1"/*/checkpoints/step-$step/manifest.json)" = \
            "$(grep -ho 'scaler [0-9.]* [0-9]*' "$2"/*/checkpoints/step-$step/manifest.json)" ] || return 1
    done
}
as_one() { # NET
    net=$1
    run "one-$net" || { tail -n 1 "one-$net.err"; return 1; }
    for seed in $(seq "${SEEDS:-2}"); do
        rm -rf four
        NNPIPE_EMU_SEED=$seed run four --gpus 0-3 || { tail -n 1 four.err; return 1; }
        same_steps "one-$net" four || { echo "seed $seed"; return 1; }
    done
}
t "each checkpoint of four GPUs has the bits of one GPU's, in any order of the streams" as_one net
t "f16: the same with averaged weights, two states and the loss's scale" as_one f16
net=net
flipped() {
    NNPIPE_EMU_NCCL_FLIP=1:16 exits 1 run flipped --gpus 0-1 &&
        grep -q "step [69]: rank 1 computed other weights than the rest" flipped.err || { cat flipped.err; return 1; }
    step=$(sed -n 's/.*step \([0-9]*\): rank 1.*/\1/p' flipped.err)
    [ -e "$(echo flipped/*/checkpoints/step-3)" ] && [ ! -e "$(echo flipped/*/checkpoints)/step-$step" ] &&
        run flipped --gpus 0-1 --resume && same_weights one-net flipped
}
t "a flipped bit in what a rank receives is found at the next checkpoint, which is not written" flipped
# Rank 1's next picture does not come, and rank 0 waits for rank 1.
pictures() {
    for i in $(seq 10 57); do
        mkdir -p "pictures/$((i % 2))"
        { printf 'P6 8 8 255\n'; seq $((i * i)) $((i * i + 99)) | head -c 192; } >"pictures/$((i % 2))/$i.ppm"
    done
}
stalled() {
    set -- -o 'data={train: {source: folder, path: pictures}}' -o loader.batch=8 -o loader.shuffle=none \
        -o loader.cache=none -o loader.prefetch=2 -o loader.depth=1 -o train.epochs=1 -o 'checkpoint.every=1 steps'
    pictures && run read "$@" && touch -r pictures/1 when && mv pictures/1/57.ppm kept &&
        mkfifo pictures/1/57.ppm && touch -r when pictures/1 || { tail -n 1 read.err; return 1; }
    run stalled --gpus 0-1 "$@" &
    job=$!
    for _ in $(tries 100); do [ -e stalled/*/checkpoints/step-5/manifest.json ] && break; sleep 0.05; done
    kill -9 $(pgrep -f "runs=stalled ")
    wait "$job"
    rm pictures/1/57.ppm && mv kept pictures/1/57.ppm && touch -r when pictures/1
    [ -e stalled/*/checkpoints/step-5/manifest.json ] || { ls stalled/*/checkpoints; return 1; }
    run stalled --gpus 0-1 "$@" --resume && same_weights read stalled || { tail -n 2 stalled.err; return 1; }
}
t "a checkpoint is written although another rank's next batch does not come" stalled

# --- while rank 0 writes ---

mkdir below
mount_faulty "$TMP/below" "$TMP/slow" || { skip "what happens while rank 0 writes" "no FUSE here"; exit $failed; }
# hold NAME FLAG...: a run in the background, in slow/NAME. Rank 0's file system hangs in the checkpoint of step 6, and
# all train on, up to the next one at step 9.
hold() {
    name=$1
    shift
    echo 'hang *step-6*' >slow/.control
    timeout 300 "$NNPIPE" train net.yaml -o "runs=slow/$name" --json --gpus 0-3 "$@" >"$name.json" 2>"$name.err" &
    job=$!
    for _ in $(tries 100); do grep -q '"event": "step", "step": 9,' "$name.json" && break; sleep 0.05; done
    grep -q '"event": "step", "step": 9,' "$name.json" && [ -e below/"$name"/*/checkpoints/step-3 ] &&
        [ ! -e below/"$name"/*/checkpoints/step-6 ] || { echo clear >slow/.control; tail -n 2 "$name.err"; return 1; }
}
# tell NAME RANK SIGNAL
tell() {
    for pid in $(pgrep -f "runs=slow/$1 "); do
        if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "NNPIPE_RANK=$2"; then kill "-$3" "$pid"; fi
    done
}
# goes_on NAME GPUS: it is resumed to the weights of one run
goes_on() {
    timeout 300 "$NNPIPE" train net.yaml -o "runs=below/$1" --json --resume --gpus "$2" >"$1.json" 2>"$1.err" &&
        same_weights one-net "$1" || { tail -n 2 "$1.err"; return 1; }
}
written_late() {
    hold late || return 1
    echo clear >slow/.control
    exits 0 wait "$job" && same_steps one-net below/late && same_weights one-net late ||
        { tail -n 2 late.err; return 1; }
}
t "steps go on while rank 0 writes; the next checkpoint waits for the one before, and all are whole" written_late
stopped() { # RANK SIGNAL
    hold "stopped$1" && tell "stopped$1" "$1" "$2" || return 1
    echo clear >slow/.control
    exits 75 wait "$job" && [ -e below/stopped$1/*/checkpoints/step-6 ] && goes_on "stopped$1" 0-1 ||
        { tail -n 2 "stopped$1.err"; return 1; }
}
t "SIGUSR1 at rank 2 meanwhile: saved, 75, and two go on to the same weights" stopped 2 USR1
t "so does SIGTERM at rank 0" stopped 0 TERM
# died RANK CODE STEP: a rank is killed, the run ends with CODE, and the checkpoint of STEP is the last one
died() {
    hold "died$1" && tell "died$1" "$1" KILL || return 1
    echo clear >slow/.control
    exits "$2" wait "$job" && { [ "$1" = 0 ] || grep -q "rank $1 (process .*) has ended" "died$1.err"; } &&
        [ "$(ls below/died$1/*/checkpoints | grep -c '^step-')" -eq $(($3 / 3)) ] ||
        { tail -n 2 "died$1.err"; ls below/died$1/*/checkpoints; return 1; }
    goes_on "died$1" 0-1
}
t "a rank that dies meanwhile ends the run with 1; what all had compared is written" died 2 1 9
t "rank 0 dies meanwhile: the checkpoint before it is the last one" died 0 137 3
# Both ranks by hand, for their own exit codes. fails STEP CODE: no room for the checkpoint of STEP
fails() {
    echo "fail 28 *step-$1*" >slow/.control
    export NNPIPE_WORLD=2 NNPIPE_COMM="unix:nnpipe-gpus-$$-$RANDOM" NNPIPE_RANK=0
    timeout 300 "$NNPIPE" train net.yaml -o "runs=slow/full$1" --json >"full$1.json" 2>"full$1.err" &
    job=$!
    NNPIPE_RANK=1 exits "$2" timeout 300 "$NNPIPE" train net.yaml -o "runs=slow/full$1" --json >/dev/null 2>&1
    others=$?
    unset NNPIPE_WORLD NNPIPE_COMM NNPIPE_RANK
    exits "$2" wait "$job" && [ $others -eq 0 ] && grep -q "No space left on device" "full$1.err" ||
        { cat "full$1.err"; return 1; }
    echo clear >slow/.control
}
full() {
    fails 6 74 && grep -qh "the checkpoint of step 3 is kept: resume with --resume" full6.err full6.json &&
        goes_on full6 0-3
}
t "a full disk at rank 0 ends both with 74 and the checkpoint before" full
t "or with 1, if there is none yet" fails 3 1
[ "$failed" -eq 0 ]
