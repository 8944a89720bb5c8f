#!/bin/sh
# The demo's network and a single linear layer on the same sample set: accuracy on the test part,
# seconds of training. Goals: at least 95 % in at most 60 s; the linear layer at most 60 %.
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/field.sh
[ -e data/shapes/.complete ] || {
    rm -rf data/shapes && ./nnpipe data synth --out data/shapes 1>&2 && : >data/shapes/.complete
}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
echo "| config | test accuracy | seconds of training |"
echo "|---|---|---|"
for config in configs/cnn.yaml tests/bench/linear.yaml; do
    ./nnpipe train "$config" -o "runs=$out" --json >"$out/json"
    echo "| $config | $(field test_accuracy <"$out/json") | $(field train_seconds <"$out/json") |"
done
