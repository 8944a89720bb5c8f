#!/bin/sh
# A kernel of the library that is wrong on this machine (planted: every forward convolution of oneDNN's) is
# found at a run's start, named, and not used; the run keeps the same kernels when it is resumed
# where the library is right: bit for bit. With the unchanged library there is no message.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
what="a wrong kernel of the library is found, avoided, and stays so on resume"
case ${NNPIPE_BUILD:-build} in
*build) ;;
*) skip "$what" "a library is preloaded, which a build with sanitizers does not allow"; exit 0 ;;
esac
"$NNPIPE" data synth --out "$TMP/data" --samples 200 --test 70 >/dev/null || exit 1
gcc -std=c11 -D_GNU_SOURCE -shared -fPIC -O1 -o "$TMP/wrong.so" "$ROOT/tests/fault/wrong_onednn.c" -ldl || exit 1

cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
  test: {source: tar, path: "$TMP/data/test-*.tar*"}
loader: {batch: 16}
model:
  - conv: {name: first, out: 8, kernel: 5, stride: 2}
  - relu
  - conv: {name: second, out: 8, kernel: 5, stride: 2}
  - relu
  - global_avgpool
  - flatten
  - linear: {out: classes}
optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
train: {steps: 8, threads: 2, eval_every: never}
checkpoint: {every: 4 steps, keep: 5}
Y
wrong() { LD_PRELOAD=$TMP/wrong.so "$@"; }
train() { # OUT: a run in a folder of its own; what wraps it stands in front
    out=$1
    shift
    "$@" "$NNPIPE" train "$TMP/net.yaml" --json -o runs="$TMP/runs-$(basename "$out")" >"$out" 2>"$out.err"
}
t "a run with the unchanged library" train "$TMP/right" env
t "and one with a library with wrong convolutions" train "$TMP/wrong" wrong
run=$(field run_dir "$TMP/wrong")
quiet() { ! grep -q "is not used" "$(field run_dir "$TMP/right")/log" "$TMP/right.err"; }
t "right kernels give no message" quiet
named() {
    for layer in first second; do
        [ "$(grep -c "layer '$layer': the kernel 'onednn conv f32' gives wrong numbers" "$run/log")" -eq 1 ] || {
            cat "$run/log"
            return 1
        }
    done
}
t "the log names the layers and the kernel, once" named
close() {
    awk -v a="$(field test_loss "$TMP/wrong")" -v b="$(field test_loss "$TMP/right")" \
        'BEGIN { exit !(a > 0 && (a - b) / b < 1e-3 && (b - a) / b < 1e-3) }' || {
            field test_loss "$TMP/wrong"
            field test_loss "$TMP/right"
            return 1
        }
}
t "its numbers are those of the right library, up to rounding" close
other_bits() { [ "$(field weights_sha256 "$TMP/wrong")" != "$(field weights_sha256 "$TMP/right")" ]; }
t "but not its bits: other kernels round otherwise" other_bits

# back to step 4, and on with the library as it is
rm -rf "$run/checkpoints/step-8" "$run/result.json"
lines=$(grep -c "is not used" "$run/log")
resume() { "$NNPIPE" train "$TMP/net.yaml" --json --resume "$run" >"$TMP/resumed" 2>"$TMP/resumed.err"; }
t "the run resumes from step 4 with the right library" resume
same_bits() {
    [ "$(field weights_sha256 "$TMP/resumed")" = "$(field weights_sha256 "$TMP/wrong")" ] || {
        field weights_sha256 "$TMP/resumed"
        field weights_sha256 "$TMP/wrong"
        return 1
    }
}
t "and ends with the same weights, bit for bit" same_bits
not_again() { [ "$(grep -c "is not used" "$run/log")" -eq "$lines" ]; }
t "and prints nothing twice" not_again
evaluates() { # with the run's verdict: the wrong library is not even asked
    wrong "$NNPIPE" eval "$TMP/net.yaml" --weights "$run" --json >"$TMP/eval" 2>"$TMP/eval.err" || {
        cat "$TMP/eval.err"
        return 1
    }
    [ "$(field loss "$TMP/eval")" = "$(field test_loss "$TMP/resumed")" ] || {
        field loss "$TMP/eval"
        field test_loss "$TMP/resumed"
        return 1
    }
}
t "eval takes the run's kernels, too: its loss is the run's" evaluates
[ "$failed" -eq 0 ]
