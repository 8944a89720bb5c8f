#!/bin/sh
# train.recompute: memory of a training step's activations, and its time, over those of a step that keeps them all.
# Steps of both take turns. ROUNDS (3) STEPS (4) BATCH (16) SIZE (128) PRECISION (f32) NETS
set -eu
cd "$(dirname "$0")/../.."
rounds=${ROUNDS:-3} steps=${STEPS:-4} batch=${BATCH:-16} size=${SIZE:-128} precision=${PRECISION:-f32}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# step CONFIG RECOMPUTE: median milliseconds
step() {
    ./nnpipe bench step "$1" --steps "$steps" --device cpu -o train.recompute="$2" --json |
        sed -n 's/.*"step_ms_p50": \([0-9.]*\).*/\1/p'
}
echo "| network, $precision, batch $batch, ${size}x$size | activations, MiB | recomputed, MiB | memory | time |"
echo "|---|---|---|---|---|"
for net in ${NETS:-resnet18 mobilenet_v2 efficientnet_b0 convnext_tiny vit_tiny}; do
    cat >"$out/$net.yaml" <<Y
base: $PWD/configs/$net.yaml
runs: $out/runs
precision: $precision
data: {train: {source: synth, samples: $((2 * batch)), size: $size}, test: {source: synth, samples: 8, size: $size}}
loader: {batch: $batch}
train: {steps: 1}
checkpoint: {every: 1000 epochs}
Y
    mib=$(./nnpipe train "$out/$net.yaml" --device cpu -o train.recompute=true 2>&1 |
        sed -n 's/.*activations take \([0-9.]*\) MiB instead of \([0-9.]*\):.*/\2 \1/p')
    : >"$out/times"
    for _ in $(seq "$rounds"); do
        echo "$(step "$out/$net.yaml" false) $(step "$out/$net.yaml" true)" >>"$out/times"
    done
    ratio=$(awk '{ print $2 / $1 }' "$out/times" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    echo "$net $mib $ratio" | awk '{ printf "| %s | %s | %s | %.2f | %.2f |\n", $1, $2, $3, $3 / $2, $4 }'
done
