# The plugin's kernels with products and sums contracted to fused multiply-adds, as nvcc compiles them: the
# same tolerances hold as without.
. "$(dirname "$0")/../lib.sh"
if [ ! -e "$EMU/fma/kernel_tests" ]; then
    skip "the kernels with fused multiply-adds" "this build has no headers of CUDA and cuDNN, or a sanitizer"
    exit 0
elif ! grep -qw fma /proc/cpuinfo; then
    skip "the kernels with fused multiply-adds" "this CPU has none"
    exit 0
fi
kernels() { # all of them: a filter that fits nothing passes, too
    "$EMU/fma/kernel_tests" --filter 'kernels_@(cuda|stats|rows|token)/*' --jobs 1 >"$TMP/tests.txt" 2>&1 &&
        [ "$(sed -n 's/.*Tested: \([0-9]*\).*/\1/p' "$TMP/tests.txt")" -ge 20 ] || {
            tail -n 3 "$TMP/tests.txt"
            return 1
        }
}
t "the kernels' tests pass with fused multiply-adds" kernels

cat >"$TMP/net.yaml" <<Y
name: net
seed: 3
data: {train: {source: synth, samples: 64, size: 16}, test: {source: synth, samples: 16, size: 16, seed: 9}}
loader: {batch: 16, readers: 2, augment: [flip]}
model:
  - conv: {out: 8, kernel: 3, pad: 1, bias: false}
  - batchnorm
  - relu
  - maxpool: {kernel: 2}
  - conv: {out: 12, kernel: 3, pad: 1}
  - global_avgpool
  - linear: {out: classes}
optimizer: {sgd: {lr: 0.05, momentum: 0.9, weight_decay: 5e-4}}
train: {epochs: 2, threads: 1}
precision: f32
Y
export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1
# train OUT FOLDER DEVICE: losses in $TMP/OUT.loss, the weights' hash in $TMP/OUT.hash
train() {
    "$2/nnpipe" train "$TMP/net.yaml" --json --device "$3" -o runs="$TMP/runs-$1" >"$TMP/$1" 2>"$TMP/$1.err" || {
        cat "$TMP/$1.err"
        return 1
    }
    sed -n 's/.*"event": "step".*"loss": \([^,]*\).*/\1/p' "$TMP/$1" >"$TMP/$1.loss"
    sed -n 's/.*"weights_sha256": "\([^"]*\).*/\1/p' "$TMP/$1" >"$TMP/$1.hash"
    [ "$(wc -l <"$TMP/$1.loss")" -eq 8 ]
}
follows() {
    train cpu "$EMU" cpu && train fma "$EMU/fma" cuda:0 &&
        paste "$TMP/fma.loss" "$TMP/cpu.loss" |
            awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 0.0001 * $1)) { print "line " NR ": " $0; bad = 1 } }
                END { exit bad }'
}
t "a run's losses are the CPU device's in f32, to 0.0001" follows
differs() { train plain "$EMU" cuda:0 && ! cmp -s "$TMP/plain.hash" "$TMP/fma.hash"; }
t "and differ from those without: they were fused" differs
[ "$failed" -eq 0 ]
