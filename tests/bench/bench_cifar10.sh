#!/bin/sh
# The real CIFAR-10: accuracy on the 10,000 test images, seconds of training. Goals: 80 %, 300 s.
set -eu
: "${NNPIPE_DATA:?}"
cd "$(dirname "$0")/../.."
. tests/bench/field.sh
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
echo "| config | test accuracy | seconds of training |"
echo "|---|---|---|"
for config in configs/cifar10.yaml; do
    ./nnpipe train "$config" -o "runs=$out" --json >"$out/json"
    echo "| $config | $(field test_accuracy <"$out/json") | $(field train_seconds <"$out/json") |"
done
