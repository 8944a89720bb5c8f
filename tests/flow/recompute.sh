#!/bin/sh
# train.recompute: the weights of a run that keeps all activations, in less memory; on the emulated GPU, too; and it may
# change when a run is resumed.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1

cat >net.yaml <<Y
name: net
device: cpu
data: {train: {source: synth, samples: 48, size: 24}}
loader: {batch: 8, readers: 1}
blocks:
  unit:
    - conv: {out: 8, kernel: 3, pad: 1, bias: false}
    - batchnorm: {name: bn}
    - silu
    - conv: {name: side, from: input, out: 8, kernel: 1}
    - add: [side, "2"]
    - relu
  gate:
    - block: {name: whole, layers: [{groupnorm: {groups: 2}}, gelu]}
    - block: {name: s, layers: [global_avgpool, {conv: {out: 8, kernel: 1}}, sigmoid]}
    - mul: [whole, s]
    - stochastic_depth: {name: drop, rate: 0.3}
model:
  - block: {use: unit, repeat: 2}
  - maxpool: {kernel: 2}
  - block: {use: gate, repeat: 2}
  - dropout: {rate: 0.2}
  - global_avgpool
  - linear: {out: classes}
train: {steps: 12, threads: 2, mixup: 0.2}
checkpoint: {every: 4 steps, keep: 100}
Y
# again DEVICE PRECISION: without and with the key
again() {
    train_to "$1-$2" net.yaml -o "device=$1" -o "precision=$2" -o "runs=$TMP/$1-$2" &&
        train_to "$1-$2-again" net.yaml -o "device=$1" -o "precision=$2" -o "runs=$TMP/$1-$2-again" \
        -o train.recompute=true && same_weights "$1-$2" "$1-$2-again" || return 1
    log=$(cat "$TMP/$1-$2-again.err" "$TMP/$1-$2-again"/*/log* 2>/dev/null | grep -m 1 'recompute: activations')
    echo "$log" | awk '{ for (i = 1; i <= NF; i++) { if ($i == "MiB") now = $(i - 1); if ($i == "of") old = $(i + 1) }
        exit !(now > 0 && now < 0.7 * old) }'
}
# changed DEVICE: killed behind step 4 with the key, resumed without it
changed() {
    cut_behind 4 "$1-f32-again" "$1-killed" &&
        train_to "$1-killed" --resume "$1-killed"/* -o train.recompute=false && same_weights "$1-f32" "$1-killed"
}
t "weights are those of a run that keeps all activations, in less memory (f32)" again cpu f32
t "and in bf16" again cpu bf16
t "resumed without the key, the same weights" changed cpu
# crossed DEVICE NAME KEYS...: the same weights after 4 steps with other keys of training
crossed() {
    device=$1 name=$1-$2
    shift 2
    train_to "$name" net.yaml -o "device=$device" -o "runs=$TMP/$name" -o train.steps=4 "$@" &&
        train_to "$name-again" net.yaml -o "device=$device" -o "runs=$TMP/$name-again" -o train.steps=4 "$@" \
        -o train.recompute=true && same_weights "$name" "$name-again"
}
frozen='freeze={names: ["0.1.0.weight", "*.bn.*"]}'
t "with frozen parameters and accumulated gradients" crossed cpu frozen -o "$frozen" -o train.accumulate=2
t "with SAM" crossed cpu sam -o train.sam={}
little() {
    sed '/^blocks:/,/^  - linear/d; s/^train:/model: [flatten, {linear: {out: classes}}]\n&/' net.yaml >little.yaml &&
        train_to little little.yaml -o "runs=$TMP/little" -o train.recompute=true &&
        cat little.err "$TMP"/little/*/log* | grep -q 'recompute: it saves nothing here'
}
t "where it saves nothing, the log says so" little
if use_emulated_gpu "recomputing on the emulated GPU"; then
    t "on the emulated GPU: the same weights in less memory (f32)" again cuda:0 f32
    t "on the emulated GPU: and in bf16" again cuda:0 bf16
    t "on the emulated GPU: resumed without the key, the same weights" changed cuda:0
    t "on the emulated GPU: with frozen parameters and accumulated gradients" crossed cuda:0 frozen -o "$frozen" \
        -o train.accumulate=2
    t "on the emulated GPU: with SAM" crossed cuda:0 sam -o train.sam={}
fi
[ "$failed" -eq 0 ]
