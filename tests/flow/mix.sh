#!/bin/sh
# Runs with mixup, cutmix and weighted losses: resumed, with other readers, and over the emulated GPU.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1

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

# resumed NAME DEVICE CONFIG
resumed() {
    train_to "$1" "$3" -o "runs=$TMP/$1" -o "device=$2" && cut_behind 12 "$1" "$1-killed" &&
        train_to "$1-killed" "$3" --resume -o "runs=$TMP/$1-killed" -o "device=$2" &&
        same_weights "$1" "$1-killed"
}
t "a mixed run that is killed and resumed has the same weights" resumed cpu cpu net.yaml
t "with a binary cross-entropy, too" resumed bce cpu bce.yaml
readers() { train_to readers net.yaml -o "runs=$TMP/readers" -o loader.readers=3 && same_weights cpu readers; }
t "three readers give the weights of one" readers
unmixed() {
    train_to unmixed net.yaml -o "runs=$TMP/unmixed" -o train.mix_share=0 && ! same_weights cpu unmixed &&
        train_to plain net.yaml -o "runs=$TMP/plain" -o train.mixup=0 -o train.cutmix=0 && same_weights unmixed plain
}
t "a share of 0 mixes nothing" unmixed

use_emulated_gpu "mixed runs over the emulated GPU" || exit 0
t "it is on the emulated GPU, too" resumed gpu cuda:0 net.yaml
t "with a binary cross-entropy on the emulated GPU, too" resumed gpu-bce cuda:0 bce.yaml
t "whose test loss is the CPU's" close_to test_loss cpu.json gpu.json 1e-3
t "which with a binary cross-entropy it is, too" close_to test_loss bce.json gpu-bce.json 1e-3
