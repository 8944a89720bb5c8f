#!/bin/sh
# The last pass of a row (loader/pixels/format.h) beside memcpy(), with each instruction set of this CPU: a table for
# docs/BENCHMARKS.md; half a minute. ROUNDS (51).
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
gcc -std=c11 -D_GNU_SOURCE -O2 -I. -o "$out/bench" tests/bench/bench_format.c build/libnnpipe.a -lm -pthread
"$out/bench" "${ROUNDS:-51}"
