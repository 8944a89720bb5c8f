#!/bin/sh
# A transformer, a run with most of what keeps a state (an average of the weights, plateau, mixing, parameters that
# thaw, accumulated gradients, weights of classes), and airbench94's parts (whitening, alternating_flip, a bias that
# stops, Lookahead that rises): killed or cut off at several steps and resumed, they end with the same weights and the
# same state of the optimizer, byte for byte; on the emulated GPU, too.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1

cat >tokens.yaml <<Y
name: tokens
device: cpu
data: {train: {source: synth, samples: 96, size: 12}}
loader: {batch: 8, readers: 2, augment: [flip]}
model:
  - conv: {name: patch, out: 16, kernel: 4, stride: 4}
  - class_token: {name: cls_token}
  - position: {name: pos_embed}
  - block: {name: blocks, use: encoder, repeat: 2}
  - layernorm: {name: norm}
  - first_token
  - linear: {name: head, out: classes}
blocks:
  encoder:
    - layernorm: {name: norm1}
    - linear: {name: qkv, out: \$in*3}
    - attention: {heads: 2}
    - linear: {name: proj, out: \$in}
    - dropout: {rate: 0.1}
    - stochastic_depth: {name: kept, rate: 0.2}
    - add: [input, kept]
    - layernorm: {name: norm2}
    - gelu
optimizer: {adamw: {lr: 0.002}}
schedule: {cosine: {warmup: 10%}}
train: {epochs: 0, steps: 480, threads: 1, eval_every: never}
checkpoint: {every: 5 steps, keep: 2}
Y
cat >crossed.yaml <<Y
name: crossed
device: cpu
precision: f32
data: {train: {source: synth, samples: 96, size: 12}, test: {source: synth, samples: 32, size: 12, seed: 9}}
loader: {batch: 8, readers: 1, augment: [flip]}
model:
  - conv: {name: conv1, out: 6, kernel: 3, bias: false}
  - batchnorm: {name: bn1}
  - hardswish
  - conv: {name: conv2, out: 8, kernel: 3, bias: false}
  - groupnorm: {name: norm, groups: 2}
  - silu
  - dropout: {rate: 0.2}
  - global_avgpool
  - linear: {name: fc, out: classes}
freeze: {names: [conv1, bn1], until: {epoch: 2}}
params: [{names: ["fc.*"], lr: 3, decay: 0}]
loss: {cross_entropy: {label_smoothing: 0.1, class_weights: [1, 2, 3, 4, 5, 4, 3, 0.5]}}
optimizer: {adamw: {lr: 0.01, layer_decay: 0.8}}
schedule: {plateau: {patience: 0, threshold: 0.5, gamma: 0.7}}
train: {epochs: 0, steps: 48, threads: 1, eval_every: 5 steps, accumulate: 3, clip_norm: 1,
        mixup: 0.4, cutmix: 1, mix_share: 80%, ema: {decay: 0.9, warmup: true}}
checkpoint: {every: 1 steps, keep: 100}
Y
cat >air.yaml <<Y
name: air
device: cpu
precision: f32
data: {train: {source: synth, samples: 96, size: 12}}
loader: {batch: 8, readers: 1, augment: [alternating_flip]}
model:
  - conv: {name: whiten, out: 24, kernel: 2, init: whitening}
  - gelu
  - conv: {name: conv, out: 24, kernel: 3, bias: false, init: dirac}
  - batchnorm: {name: norm}
  - gelu
  - global_avgpool
  - linear: {name: fc, out: classes}
freeze: [{names: [whiten.weight, norm.weight], batchnorm: false}, {names: whiten.bias, from: {epoch: 2}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.85, nesterov: true}}
schedule: {one_cycle: {anneal: linear}}
train: {epochs: 0, steps: 48, threads: 1, eval_every: never, ema: {decay: 0.8, every: 5, rise: 3, lookahead: true}}
checkpoint: {every: 1 steps, keep: 100}
Y

# same A B: the last checkpoints of the runs in these folders
same() {
    a=$(ls -d "$1"/*/checkpoints/step-* | sort -V | tail -n 1)
    b=$(ls -d "$2"/*/checkpoints/step-* | sort -V | tail -n 1)
    [ "${a##*/}" = "${b##*/}" ] && cmp "$a/weights.safetensors" "$b/weights.safetensors" &&
        cmp "$a/optimizer.safetensors" "$b/optimizer.safetensors"
}

# after STEPS: the run is killed once it has printed so many steps; fails if it ended before that
after() {
    : >killed.json
    "$NNPIPE" train tokens.yaml $resume -o "runs=$TMP/killed" -o precision="$precision" --json >killed.json \
        2>killed.err &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ "$(grep -c '"event": *"step"' killed.json)" -lt "$1" ]; do sleep 0.01; done
    kill -KILL $pid 2>/dev/null
    wait $pid
    code=$?
    resume=--resume
    [ $code -eq 137 ] || { echo "ended with $code: $(tail -n 2 killed.err)"; return 1; }
}
transformer() {
    precision=$1 resume=
    rm -rf tokens killed
    train_to tokens tokens.yaml -o "runs=$TMP/tokens" -o precision="$precision" && after 12 && after 20 && after 7 &&
        train_to killed tokens.yaml --resume -o "runs=$TMP/killed" -o precision="$precision" && same tokens killed
}
t "a transformer that is killed three times and resumed has the same weights and state" transformer f32
t "in bf16, too" transformer bf16

# cut_off CONFIG RUNS DEVICE STEP...: each time as a kill behind the checkpoint of the step leaves it
cut_off() {
    config=$1 runs=$2 device=$3
    shift 3
    train_to "$runs" "$config" -o "runs=$TMP/$runs" -o "device=$device" || return 1
    for step in "$@"; do
        cut_behind "$step" "$runs" again || return 1
        train_to again "$config" --resume -o "runs=$TMP/again" -o "device=$device" || return 1
        same "$runs" again || { echo "resumed at step $step"; return 1; }
    done
}
rates() { grep '"event": "step"' "$1" | sed 's/.*"lr": \([^,]*\),.*/\1/' | sort -u | wc -l; }
# in the first epoch, at the step that thaws parameters and beside it, between two updates, behind a lower rate
t "a run with many states that is cut off and resumed has the same weights and state" \
    cut_off crossed.yaml crossed cpu 3 10 23 24 25 41
t "its rate has fallen" test "$(rates crossed.json)" -gt 2

# within the second epoch, at the step that stops the bias and beside it, behind it between two averages
t "airbench94's parts, cut off and resumed, have the same weights and state" cut_off air.yaml air cpu 15 23 24 25 37
if use_emulated_gpu "it has on the emulated GPU, too"; then
    t "it has on the emulated GPU, too" cut_off crossed.yaml gpu cuda:0 25
    t "so have airbench94's parts" cut_off air.yaml air_gpu cuda:0 25
fi
[ "$failed" -eq 0 ]
