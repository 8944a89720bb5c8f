#!/bin/sh
# The training step of ResNet-20 on resident data, batch 128, two threads: nnpipe and PyTorch in
# turn. Prints a table of images a second (median of the rounds) and the ratio.
#   PYTHON   a python3 that has torch (default: python3)
#   ROUNDS (5) SECONDS_EACH (5) PRECISIONS ("f32 bf16") BATCH (128) THREADS (2)
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/field.sh
python=${PYTHON:-python3} seconds=${SECONDS_EACH:-5} batch=${BATCH:-128} threads=${THREADS:-2}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for round in $(seq "${ROUNDS:-5}"); do
    for precision in ${PRECISIONS:-f32 bf16}; do
        ./nnpipe bench step configs/resnet20.yaml --seconds "$seconds" --json \
            -o precision="$precision" -o loader.batch="$batch" -o train.threads="$threads" \
            2>/dev/null | field images_per_second >>"$out/nnpipe.$precision"
        "$python" tests/bench/torch_step.py --seconds "$seconds" --precision "$precision" \
            --batch "$batch" --threads "$threads" | field images_per_second >>"$out/torch.$precision"
    done
done
echo "| ResNet-20, batch $batch, $threads threads | nnpipe | PyTorch | ratio |"
echo "|---|---|---|---|"
for precision in ${PRECISIONS:-f32 bf16}; do
    awk -v p="$precision" -v n="$(median <"$out/nnpipe.$precision")" \
        -v t="$(median <"$out/torch.$precision")" \
        'BEGIN { printf "| %s, images/s | %.0f | %.0f | %.2f |\n", p, n, t, n / t }'
done
