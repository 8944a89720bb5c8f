#!/bin/sh
# The code for CPUs without AVX2, on a CPU with it (NNPIPE_CPU=sse2): the kernels hold against the
# reference, and the program's own loops give the same bits either way. What needs AVX-512 runs
# only on a CPU that has it.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
build=${NNPIPE_BUILD:-$ROOT/build}

if [ -x "$build/tests/unit_tests" ] && [ "$build" = "$ROOT/build" ]; then
    plain_tests() { # the suites of the CPU's kernels
        NNPIPE_CPU=sse2 ONEDNN_MAX_CPU_ISA=SSE41 "$build/tests/unit_tests" --jobs 2 \
            --filter '@(kernels_@(conv|cpu|linear|rest)|dags|program|trainer)/*' >"$TMP/unit.txt" 2>&1 || return 1
        grep -q 'Tested: [1-9][0-9]* .*Failing: 0 | Crashing: 0' "$TMP/unit.txt"
    }
    t "without AVX2 the kernels and the nets are the reference's" plain_tests
else
    skip "without AVX2 the kernels and the nets are the reference's" "needs the plain build of the unit tests"
fi

# Convolutions and products are oneDNN's in both runs; the rest is ours.
cat >"$TMP/net.yaml" <<Y
name: net
seed: 1
device: cpu
runs: $TMP/runs
data:
  train: {source: synth, samples: 400, size: 16}
  test: {source: synth, samples: 100, size: 16, seed: 2}
loader: {batch: 20, augment: [{random_crop: {size: 16, pad: 2}}, flip]}
model:
  - conv: {out: 10, kernel: 3, stride: 2, pad: 1, bias: false}
  - batchnorm
  - relu: {name: a}
  - avgpool: {name: b, kernel: 3, stride: 1, pad: 1}
  - concat: [a, b]
  - dropout: {rate: 0.2}
  - conv: {name: c, out: 21, kernel: 1}
  - maxpool: {kernel: 3, stride: 1, pad: 1}
  - add: {name: d, from: [c, "7"]}
  - batchnorm
  - relu
  - flatten
  - dropout
  - linear: {out: classes}
loss: {cross_entropy: {label_smoothing: 0.1}}
train: {epochs: 2, threads: 2}
Y
weights() {
    "$NNPIPE" train "$TMP/net.yaml" --json -o precision="$1" | sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' |
        tail -n 1
}
same_bits() {
    wide=$(weights "$1") && plain=$(NNPIPE_CPU=sse2 weights "$1") || return 1
    [ -n "$wide" ] && [ "$wide" = "$plain" ] || { echo "'$wide' and '$plain'"; return 1; }
}
t "without AVX2 our own loops give the same bits, f32" same_bits f32
t "without AVX2 our own loops give the same bits, bf16" same_bits bf16
# JPEGs: libjpeg-turbo without AVX2, our own decoder with it; and the resizer's versions.
"$NNPIPE" data synth --out "$TMP/shapes" --samples 300 --test 100 >/dev/null || exit 1
cat >"$TMP/rows.yaml" <<Y
name: rows
data: {train: {source: tar, path: "$TMP/shapes/train-*.tar.zst"}}
loader: {batch: 20, cache: none, augment: [{random_resized_crop: {size: 24}}, flip]}
model: [global_avgpool, flatten, {linear: {out: classes}}]
Y
digest() { "$NNPIPE" bench loader "$TMP/rows.yaml" --steps 30 | sed -n 's/^digest \([0-9a-f]*\) .*/\1/p'; }
same_rows() {
    wide=$(digest) && plain=$(NNPIPE_CPU=sse2 digest) && avx2=$(NNPIPE_CPU=avx2 digest) || return 1
    [ -n "$wide" ] && [ "$wide" = "$plain" ] && [ "$wide" = "$avx2" ] || { echo "$wide, $avx2, $plain"; return 1; }
}
t "rows of JPEGs are the same with each instruction set" same_rows
t "the devices say which vectors are used" says "vectors sse2" env NNPIPE_CPU=sse2 "$NNPIPE" devices
[ "$failed" -eq 0 ]
