#!/bin/sh
# The loader against other projects' loaders, in turn, on the same files with two workers or
# threads each. Prints a table of images a second (median of the rounds) and the ratio to the
# fastest peer.
#   NNPIPE_DATA   cifar10-jpeg.tar.zst and imagenet-sample-500.tar
#   PEERS         a folder with the peers' virtual environments: torch/ and tf/
#   LOADERS       loaders.py, which times one peer and prints a JSON line
#   ROUNDS (3) SECONDS_EACH (8)
set -eu
cd "$(dirname "$0")/../.."
: "${NNPIPE_DATA:?}" "${PEERS:?}" "${LOADERS:?}"
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-8}
files=${FILES:-$PEERS/data}
[ -d "$files/photos" ] || {
    mkdir -p "$files/photos" && tar xf "$NNPIPE_DATA/imagenet-sample-500.tar" -C "$files/photos"
}
[ -d "$files/cifar" ] || {
    mkdir -p "$files/cifar" && zstd -dc "$NNPIPE_DATA/cifar10-jpeg.tar.zst" | tar x -C "$files/cifar"
}
out=$(mktemp)
trap 'rm -f "$out"' EXIT

peer() { # peer NAME WORK DIR
    python=$PEERS/torch/bin/python
    [ "$1" = tf ] && python=$PEERS/tf/bin/python
    "$python" "$LOADERS" "$1" "$2" "$3" --threads 2 --seconds "$seconds" 2>/dev/null | tail -n 1 |
        sed -n 's/.*"images_per_second": \([0-9.]*\).*/'"$2 $1"' \1/p' >>"$out"
}
ours() { # ours WORK CONFIG [-o ...]
    work=$1
    shift
    ./nnpipe bench loader "$@" -o loader.cache=none --seconds "$seconds" --json | tail -n 1 |
        sed -n 's/.*"images_per_second": *\([0-9.]*\).*/'"$work nnpipe"' \1/p' >>"$out"
}
export NNPIPE_PHOTOS="$files/photos"
for round in $(seq "$rounds"); do
    for work in ${WORKS:-imagenet cifar}; do
        if [ "$work" = imagenet ]; then
            dir=$files/photos config=tests/bench/photos.yaml
        else
            dir=$files/cifar/train config=tests/bench/cifar.yaml
        fi
        ours "$work" "$config"
        for name in ${PEER_NAMES:-torch torch-io spdl dali tf ffcv}; do
            peer "$name" "$work" "$dir"
        done
        ours "$work" "$config"
    done
done
python3 - "$out" <<'PY'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    work, name, rate = line.split()
    rows.setdefault(work, {}).setdefault(name, []).append(float(rate))
print("| work | loader | images/s, median | min | max | nnpipe is |")
print("|---|---|---|---|---|---|")
for work, peers in rows.items():
    mine = statistics.median(peers.get("nnpipe", [0]))
    for name, r in sorted(peers.items(), key=lambda x: -statistics.median(x[1])):
        m = statistics.median(r)
        print(f"| {work} | {name} | {m:,.0f} | {min(r):,.0f} | {max(r):,.0f} | {mine / m:.2f}x |")
PY
