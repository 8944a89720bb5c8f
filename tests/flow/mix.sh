#!/bin/sh
# Runs with mixup, cutmix and weighted losses: resumed, with other readers, and over the emulated GPU.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
EMU=${NNPIPE_BUILD:-$ROOT/build}/tests/emu

cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: synth, samples: 96, size: 12}, test: {source: synth, samples: 32, size: 12, seed: 9}}
loader: {batch: 8, readers: 1}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
loss: {focal: {gamma: 1, class_weights: [1, 2, 3, 4, 5, 4, 3, 0.5]}}
train: {steps: 24, threads: 1, mixup: 0.4, cutmix: 1, mix_share: 80%}
checkpoint: {every: 4 steps, keep: 100}
Y
sed '/^loss:/s/.*/loss: {bce: {threshold: 0.2, label_smoothing: 0.1, class_weights: [1, 2, 3, 4, 5, 4, 3, 0.5]}}/' \
    net.yaml >bce.yaml

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$2" | tail -n 1; }
go() { out=$1; shift; "$NNPIPE" train "$@" --json >"$out" 2>"$out.err" || { cat "$out.err"; return 1; }; }
same() {
    [ -n "$(field weights_sha256 "$1")" ] && [ "$(field weights_sha256 "$1")" = "$(field weights_sha256 "$2")" ]
}
# killed RUNS NAME: the run as a kill behind the checkpoint of step 12 leaves it
killed() {
    cp -r "$1" "$2" || return 1
    rm -f "$2"/*/result.json
    for c in "$2"/*/checkpoints/step-*; do [ "${c##*-}" -le 12 ] || rm -r "$c"; done
}
# resumed NAME DEVICE CONFIG
resumed() {
    go "$1.json" "$3" -o "runs=$TMP/$1" -o "device=$2" && killed "$1" "$1-killed" &&
        go "$1-killed.json" "$3" --resume -o "runs=$TMP/$1-killed" -o "device=$2" &&
        same "$1.json" "$1-killed.json"
}
t "a mixed run that is killed and resumed has the same weights" resumed cpu cpu net.yaml
t "with a binary cross-entropy, too" resumed bce cpu bce.yaml
readers() { go readers.json net.yaml -o "runs=$TMP/readers" -o loader.readers=3 && same cpu.json readers.json; }
t "three readers give the weights of one" readers
unmixed() {
    go unmixed.json net.yaml -o "runs=$TMP/unmixed" -o train.mix_share=0 && ! same cpu.json unmixed.json &&
        go plain.json net.yaml -o "runs=$TMP/plain" -o train.mixup=0 -o train.cutmix=0 && same unmixed.json plain.json
}
t "a share of 0 mixes nothing" unmixed

if [ ! -e "$EMU/libnnpipe-cuda.so" ]; then
    skip "mixed runs over the emulated GPU" "this build has no headers of CUDA and cuDNN"
    exit 0
fi
NNPIPE=$EMU/nnpipe
export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1
t "it is on the emulated GPU, too" resumed gpu cuda:0 net.yaml
t "with a binary cross-entropy on the emulated GPU, too" resumed gpu-bce cuda:0 bce.yaml
close() {
    awk -v a="$(field loss "$1")" -v b="$(field loss "$2")" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d < 1e-3 * a) }'
}
t "whose test loss is the CPU's" close cpu.json gpu.json
t "which with a binary cross-entropy it is, too" close bce.json gpu-bce.json
