#!/bin/sh
# Our JPEG decoder beside libjpeg-turbo in one program: CPU time of one thread on the photographs of
# imagenet-sample-500.tar in $NNPIPE_DATA, with all instruction sets of this CPU and with AVX2 alone. ROUNDS (5).
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
tar xf "${NNPIPE_DATA:?}/imagenet-sample-500.tar" -C "$out"
gcc -std=c11 -D_GNU_SOURCE -O2 -I. -o "$out/bench" tests/bench/bench_jpeg.c build/libnnpipe.a \
    $(pkg-config --libs libjpeg spng zlib libzstd) -lm -pthread
find "$out" -name '*.JPEG' -print0 | sort -z | xargs -0 "$out/bench" "${ROUNDS:-5}"
echo
find "$out" -name '*.JPEG' -print0 | sort -z | NNPIPE_CPU=avx2 xargs -0 "$out/bench" "${ROUNDS:-5}"
