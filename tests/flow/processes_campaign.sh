#!/bin/sh
# One run in 1, 2 and 4 processes, whole, killed and stopped: ResNet-20, once with ghost batches of 32 rows, and a
# network without batchnorm, f32 and bf16; 10,000 drawn pictures, three epochs, a checkpoint every 50 steps. Random
# ranks are killed with SIGKILL, and a script begins the run again. In some minutes.
#   KILLS (20), PRECISIONS ("f32 bf16"), SEED
. "$(dirname "$0")/../lib.sh"
kills=${KILLS:-20} seed=${SEED:-$$}
RANDOM=$seed
echo "# SEED=$seed"
"$NNPIPE" data synth --out "$TMP/data" --samples 10000 --test 1000 >/dev/null || exit 1
cat >"$TMP/resnet20.yaml" <<Y
base: $ROOT/configs/resnet20.yaml
Y
cat >"$TMP/plain.yaml" <<Y
name: plain
model:
  - {conv: {out: 16, kernel: 3, pad: 1}}
  - relu
  - {conv: {out: 32, kernel: 3, stride: 2, pad: 1}}
  - relu
  - {conv: {out: 64, kernel: 3, stride: 2, pad: 1}}
  - relu
  - global_avgpool
  - {dropout: {rate: 0.1}}
  - {linear: {out: classes}}
optimizer: {adamw: {lr: 0.002}}
Y
# start NET PRECISION NAME PROCESSES FLAG...: in $TMP/NAME
start() {
    net=$1 precision=$2 name=$3 processes=$4
    shift 4
    "$NNPIPE" train "$TMP/$net.yaml" --processes "$processes" -o "runs=$TMP/$name" --json \
        -o "data={train: {source: tar, path: $TMP/data/train-*.tar*}}" -o "data.test=$test" \
        -o device=cpu -o "precision=$precision" -o loader.batch=128 -o train.lanes=4 -o train.epochs=3 \
        -o train.threads=2 -o "checkpoint.every=50 steps" "$@" >"$TMP/$name.json" 2>"$TMP/$name.err"
}
test="{source: tar, path: $TMP/data/test-*.tar*}"
hash_of() { field weights_sha256 "$TMP/$1.json"; }
equal() {
    [ -n "$(hash_of "$1")" ] && [ "$(hash_of "$1")" = "$(hash_of whole1)" ] || { tail -n 2 "$TMP/$1.err"; return 1; }
}
whole() { rm -rf "$TMP/whole$3" && start "$1" "$2" "whole$3" "$3" && equal "whole$3"; }
# go NET PRECISION NAME PROCESSES: begins the run, or goes on with it
go() {
    if ls "$TMP/$3"/*/checkpoints/step-*/manifest.json >/dev/null 2>&1; then
        start "$@" --resume
    else
        rm -rf "${TMP:?}/$3"
        start "$@"
    fi
}
is_rank() { tr "\\0" "\\n" <"/proc/$2/environ" 2>/dev/null | grep -qx "NNPIPE_RANK=$1"; }
killed() {
    rm -rf "$TMP/killed"
    done_=0
    for i in $(seq "$kills"); do
        go "$1" "$2" killed 4 &
        job=$!
        sleep "$((RANDOM % 9)).$((RANDOM % 10))"
        rank=$((RANDOM % 4))
        for pid in $(pgrep -f "runs=$TMP/killed "); do
            is_rank "$rank" "$pid" && kill -9 "$pid" && done_=$((done_ + 1))
        done
        wait "$job"
        [ "$(field event "$TMP/killed.json")" = done ] && break
    done
    echo "# $1 $2: $done_ ranks killed" >&3
    [ -n "$(hash_of killed)" ] || go "$1" "$2" killed 2
    [ "$done_" -gt 0 ] && equal killed
}
# stopped NET PRECISION COUNT: two processes, stopped after the first checkpoint, then COUNT
stopped() {
    rm -rf "$TMP/stopped"
    start "$1" "$2" stopped 2 &
    job=$!
    for _ in $(tries 600); do ls "$TMP"/stopped/*/checkpoints/step-50 >/dev/null 2>&1 && break; sleep 0.1; done
    kill -TERM "$(pgrep -f "runs=$TMP/stopped " | tail -n 1)"
    exits 75 wait "$job" && go "$1" "$2" stopped "$3" && equal stopped
}
exec 3>&1
for net in resnet20 plain; do
    for precision in ${PRECISIONS:-f32 bf16}; do
        for n in 1 2 4; do
            t "$net, $precision, $n processes: the same weights" whole "$net" "$precision" "$n"
        done
        t "$net, $precision: up to $kills kills of random ranks, the same weights" killed "$net" "$precision"
        t "$net, $precision: stopped with two processes, resumed with four" stopped "$net" "$precision" 4
        t "$net, $precision: stopped with two processes, resumed with one" stopped "$net" "$precision" 1
    done
done
[ "$failed" -eq 0 ]
