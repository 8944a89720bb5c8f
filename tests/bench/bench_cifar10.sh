#!/bin/sh
# The real CIFAR-10: accuracy on the 10,000 test images, seconds of training, of which rows of
# BUDGETS are given. configs/cifar10.yaml as it is; the same network with Muon, the mean over views
# and, where the processor has its instructions, bf16; airbench94. Epochs follow from the step's
# speed, measured first; the decoding of 50,000 images is cheap beside it.
set -eu
: "${NNPIPE_DATA:?}"
: "${BUDGETS:=100 300}" "${AIRBENCH:=1000}" # seconds; AIRBENCH= leaves it out
cd "$(dirname "$0")/../.."
. tests/bench/field.sh
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
archive="$NNPIPE_DATA/cifar10-jpeg.tar.zst"
precision=f32
if grep -q avx512_bf16 /proc/cpuinfo; then
    precision=bf16
fi

# row TITLE SECONDS CONFIG OPTION...: as many epochs as the seconds hold, or the config's.
row() {
    title=$1 seconds=$2
    shift 2
    epochs=
    if [ "$seconds" ]; then
        ./nnpipe bench step "$@" --json >"$out/step"
        rate=$(tail -n 1 "$out/step" | field images_per_second)
        epochs=$(awk "BEGIN { printf \"%.1f\", $seconds * $rate / 50000 }")
        set -- "$@" -o train.epochs="$epochs"
    fi
    ./nnpipe train "$@" -o "runs=$out" --json >"$out/json"
    echo "| $title | ${epochs:-5} | $(field test_accuracy <"$out/json")" \
        "| $(field train_seconds <"$out/json" | cut -d. -f1) |"
}

echo "| | epochs | test accuracy | seconds of training |"
echo "|---|---|---|---|"
row "configs/cifar10.yaml" "" configs/cifar10.yaml
for budget in $BUDGETS; do
    row "the same network, Muon, $precision, flip_shift" "$budget" configs/cifar10.yaml \
        -o "optimizer={muon: {lr: 0.02, momentum: 0.9, weight_decay: 0.05, rest_lr: 0.005}}" \
        -o "schedule={one_cycle: {warmup: 10%}}" \
        -o precision="$precision" -o train.tta=flip_shift -o train.eval_every=never
done
if [ "$AIRBENCH" ]; then
    row "configs/airbench94.yaml, $precision" "$AIRBENCH" configs/airbench94.yaml \
        -o "data.train={source: tar, path: $archive, match: \"train/*\"}" \
        -o "data.test={source: tar, path: $archive, match: \"test/*\"}" \
        -o precision="$precision"
fi
