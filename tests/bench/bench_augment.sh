#!/bin/sh
# Augmentation beside torchvision's transforms v2, on Pillow pictures and on tensors. First each operation alone, in
# one thread, on photographs of 224x224 in memory: CPU us a picture. Then whole loaders with two workers: JPEGs,
# random resized crop to 224, flip, the operation, float32, normalized: images a second. In turns; the median of
# ROUNDS, and of the ratios of a round.
#   PYTHON     a python3 with torch and torchvision
#   PHOTOS     a folder CLASS/NAME.jpg; else imagenet-sample-500.tar of $NNPIPE_DATA
#   ROUNDS, SECONDS_EACH (3, 4), PARTS ("alone loaders"), NAMES (only these operations, separated by semicolons)
set -eu
cd "$(dirname "$0")/../.."
: "${PYTHON:?}"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if [ -z "${PHOTOS:-}" ]; then
    tar xf "${NNPIPE_DATA:?}/imagenet-sample-500.tar" -C "$out"
    PHOTOS=$(dirname "$(dirname "$(find "$out" -name '*.JPEG' | head -n 1)")")
fi
# shellcheck disable=SC2046 # words
gcc -std=c11 -D_GNU_SOURCE -O2 -I. -o "$out/augment" tests/bench/bench_augment.c build/libnnpipe.a \
    $(pkg-config --libs libjpeg spng zlib libzstd yaml-0.1) -lm -pthread
XDG_CACHE_HOME=$out/cache NNPIPE_PHOTOS=$PHOTOS TOOL=$out/augment OUT=$out
export XDG_CACHE_HOME NNPIPE_PHOTOS TOOL OUT PYTHON
"$PYTHON" tests/bench/bench_augment.py
