#!/bin/sh
# One run in several processes: images a second of training, beside one process that computes whole batches. In
# turns; the median of ROUNDS, and of the ratios of a round. The real CIFAR-10 (NNPIPE_DATA).
#   ROUNDS (5), STEPS (60) of 128 images, LANES (4), CONFIGS ("cifar10 resnet20")
set -eu
: "${NNPIPE_DATA:?}"
cd "$(dirname "$0")/../.."
. tests/bench/field.sh
rounds=${ROUNDS:-5} steps=${STEPS:-60} lanes=${LANES:-4}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export XDG_CACHE_HOME="$out/cache"

# rate FILE CONFIG FLAG...
rate() {
    file=$1 config=$2
    shift 2
    ./nnpipe train "configs/$config.yaml" -o "runs=$out/runs" -o "train.steps=$steps" -o train.eval_every=never \
        -o "data={train: {source: tar, path: $NNPIPE_DATA/cifar10-jpeg.tar.zst, match: 'train/*'}}" \
        -o loader.batch=128 -o train.threads=2 -o checkpoint.every=never "$@" --json >"$out/json" 2>"$out/err"
    field images_per_second <"$out/json" >>"$out/$file"
}
echo "| config | whole batches | $lanes lanes, one process | of whole batches | two processes |" \
    "of whole batches | of one process |"
echo "|---|---|---|---|---|---|---|"
for config in ${CONFIGS:-cifar10 resnet20}; do
    rm -f "$out/whole" "$out/one" "$out/two"
    for _ in $(seq "$rounds"); do
        rate whole "$config"
        rate one "$config" -o "train.lanes=$lanes"
        rate two "$config" -o "train.lanes=$lanes" --processes 2
    done
    ratio() { paste "$out/$1" "$out/$2" | awk '{ print $1 / $2 }' | median; }
    printf '| %s | %.0f | %.0f | %.2f | %.0f | %.2f | %.2f |\n' "$config" "$(median <"$out/whole")" \
        "$(median <"$out/one")" "$(ratio one whole)" "$(median <"$out/two")" "$(ratio two whole)" "$(ratio two one)"
done
