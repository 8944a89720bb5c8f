#!/bin/sh
# Training steps in several processes (`nnpipe bench step`, no data): images a second of one process with two threads
# that computes whole batches, of one that computes them in lanes, and of two processes of one thread each with half
# of the lanes. In turns; the median of ROUNDS, and of the ratios of a round. CPU: the ratio of CPU seconds of whole
# batches and of lanes, which other programs on the machine disturb less.
#   ROUNDS (5), STEPS (40), LANES (8), CONFIGS ("cifar10 resnet20"; "alexnet" ...), FLAGS (more -o)
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/field.sh
rounds=${ROUNDS:-5} steps=${STEPS:-40} lanes=${LANES:-8} nnpipe=${NNPIPE:-./nnpipe}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# step FILE CONFIG FLAG...: adds a rate to FILE, and CPU seconds to FILE.cpu
step() {
    file=$1 config=$2
    shift 2
    "$nnpipe" bench step "configs/$config.yaml" --steps "$steps" -o device=cpu -o train.threads=2 ${FLAGS:-} "$@" \
        --json >"$out/json" 2>"$out/err" || { cat "$out/err"; return 1; }
    field images_per_second <"$out/json" >>"$out/$file"
    field cpu_seconds <"$out/json" >>"$out/$file.cpu"
}
two() {
    export NNPIPE_WORLD=2 NNPIPE_COMM="unix:nnpipe-bench-$$"
    NNPIPE_RANK=1 "$nnpipe" bench step "configs/$1.yaml" --steps "$steps" -o device=cpu -o train.threads=2 ${FLAGS:-} \
        -o "train.lanes=$lanes" --json >/dev/null 2>&1 &
    NNPIPE_RANK=0 step two "$1" -o "train.lanes=$lanes"
    wait
    unset NNPIPE_WORLD NNPIPE_COMM
}
echo "| config | whole batches | $lanes lanes, one process | of whole batches | CPU | two processes |" \
    "of whole batches | of one process |"
echo "|---|---|---|---|---|---|---|---|"
for config in ${CONFIGS:-cifar10 resnet20}; do
    rm -f "$out"/*
    for _ in $(seq "$rounds"); do
        step whole "$config"
        step lanes "$config" -o "train.lanes=$lanes"
        two "$config"
    done
    ratio() { paste "$out/$1" "$out/$2" | awk '{ print $1 / $2 }' | median; }
    printf '| %s | %.0f | %.0f | %.2f | %.2f | %.0f | %.2f | %.2f |\n' "$config" "$(median <"$out/whole")" \
        "$(median <"$out/lanes")" "$(ratio lanes whole)" "$(ratio whole.cpu lanes.cpu)" "$(median <"$out/two")" \
        "$(ratio two whole)" "$(ratio two lanes)"
done
