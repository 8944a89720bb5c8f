#!/bin/sh
# train.recompute: the weights of a run that keeps all activations, in less memory; on the emulated GPU, too; and it may
# change when a run is resumed.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
EMU=${NNPIPE_BUILD:-$ROOT/build}/tests/emu

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
field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$2" | tail -n 1; }
go() { out=$1; shift; "$NNPIPE" train "$@" --json >"$out" 2>"$out.err" || { cat "$out.err"; return 1; }; }
same() {
    [ -n "$(field weights_sha256 "$1")" ] && [ "$(field weights_sha256 "$1")" = "$(field weights_sha256 "$2")" ]
}
# again DEVICE PRECISION: without and with the key
again() {
    go "$1-$2.json" net.yaml -o "device=$1" -o "precision=$2" -o "runs=$TMP/$1-$2" &&
        go "$1-$2-again.json" net.yaml -o "device=$1" -o "precision=$2" -o "runs=$TMP/$1-$2-again" \
        -o train.recompute=true && same "$1-$2.json" "$1-$2-again.json" || return 1
    log=$(cat "$TMP/$1-$2-again.json.err" "$TMP/$1-$2-again"/*/log* 2>/dev/null | grep -m 1 'recompute: activations')
    echo "$log" | awk '{ for (i = 1; i <= NF; i++) { if ($i == "MiB") now = $(i - 1); if ($i == "of") old = $(i + 1) }
        exit !(now > 0 && now < 0.7 * old) }'
}
# changed DEVICE: killed behind step 4 with the key, resumed without it
changed() {
    cp -r "$1-f32-again" "$1-killed" && rm -rf "$1-killed"/*/result.json "$1-killed"/*/checkpoints/step-8 \
        "$1-killed"/*/checkpoints/step-12 &&
        go "$1-killed.json" --resume "$1-killed"/* -o train.recompute=false && same "$1-f32.json" "$1-killed.json"
}
t "weights are those of a run that keeps all activations, in less memory (f32)" again cpu f32
t "and in bf16" again cpu bf16
t "resumed without the key, the same weights" changed cpu
little() {
    sed '/^blocks:/,/^  - linear/d; s/^train:/model: [flatten, {linear: {out: classes}}]\n&/' net.yaml >little.yaml &&
        go little.json little.yaml -o "runs=$TMP/little" -o train.recompute=true &&
        cat little.json.err "$TMP"/little/*/log* | grep -q 'recompute: it saves nothing here'
}
t "where it saves nothing, the log says so" little
if [ ! -e "$EMU/libnnpipe-cuda.so" ]; then
    skip "recomputing on the emulated GPU" "this build has no headers of CUDA and cuDNN"
else
    NNPIPE=$EMU/nnpipe
    export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1
    t "on the emulated GPU: the same weights in less memory (f32)" again cuda:0 f32
    t "on the emulated GPU: and in bf16" again cuda:0 bf16
    t "on the emulated GPU: resumed without the key, the same weights" changed cuda:0
fi
[ "$failed" -eq 0 ]
