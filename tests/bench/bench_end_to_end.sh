#!/bin/sh
# Training from files where readers and compute threads share the cores, against what the two
# could do at best in turn: 1 / (1/step + 1/loader). And the feed on the sim device with a 20 ms
# step. The three are run in turn, ROUNDS (3) times.
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/field.sh
: "${NNPIPE_DATA:?}"
rounds=${ROUNDS:-3} config=${CONFIG:-configs/cifar10.yaml} epochs=${EPOCHS:-0.6}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
quiet="-o train.eval_every=never -o checkpoint.every=never -o runs=$out/runs"

for round in $(seq "$rounds"); do
    # shellcheck disable=SC2086 # words are flags
    ./nnpipe bench step "$config" --seconds 8 --json | field images_per_second >>"$out/step"
    ./nnpipe bench loader "$config" --seconds 6 --json | field images_per_second >>"$out/loader"
    ./nnpipe train "$config" $quiet -o train.epochs="$epochs" --json >"$out/train.json"
    tail -n 1 "$out/train.json" |
        awk -v RS=, '/"images":/ { split($0, a, ":"); i = a[2] } /"train_seconds":/ { split($0, a, ":"); s = a[2] }
            END { print i / s }' >>"$out/train"
done
step=$(median <"$out/step") loader=$(median <"$out/loader") train=$(median <"$out/train")
echo "| $config | images/s |"
echo "|---|---|"
echo "| step alone | $step |"
echo "| loader alone | $loader |"
awk -v s="$step" -v l="$loader" -v t="$train" 'BEGIN {
    b = 1 / (1 / s + 1 / l)
    printf "| 1 / (1/step + 1/loader) | %.0f |\n| training end to end | %.0f (%.1f %% of it) |\n", b, t, 100 * t / b }'
