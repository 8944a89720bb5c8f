#!/bin/sh
# Weights that are not finite: eval and predict fail by name, the image and the output, instead of
# reporting a loss of null or a class of no probability. The NaN gets through a convolution with relu.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out "$TMP/data" --samples 200 --test 70 >/dev/null || exit 1

cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
  test: {source: tar, path: "$TMP/data/test-*.tar*"}
loader: {batch: 32}
model:
  - conv: {out: 8, kernel: 5, stride: 2}
  - relu
  - global_avgpool
  - flatten
  - linear: {out: classes}
optimizer: {sgd: {lr: 0.01}}
train: {steps: 4, threads: 2, eval_every: never}
Y
"$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs" >"$OUT" 2>&1 || { cat "$OUT"; exit 1; }
weights=$(ls "$TMP"/runs/*/checkpoints/step-4/weights.safetensors)
mkdir "$TMP/images"
tar -C "$TMP/images" -xf "$(ls "$TMP"/data/test-*.tar* | head -n 1)" || exit 1
image=$(find "$TMP/images" -type f ! -name '*.cls' ! -name '*.json' | head -n 1)

# spoil TENSOR INDEX VALUE OUT: the weights with one number changed
spoil() {
    python3 - "$weights" "$@" <<'P'
import json, struct, sys
path, tensor, index, value, out = sys.argv[1:]
data = bytearray(open(path, "rb").read())
size = struct.unpack("<Q", data[:8])[0]
at = json.loads(data[8:8 + size])[tensor]["data_offsets"][0] + 8 + size + 4 * int(index)
data[at:at + 4] = struct.pack("<f", float(value))
open(out, "wb").write(data)
P
}
spoil 0.weight 7 nan "$TMP/nan.safetensors" && spoil 4.bias 2 inf "$TMP/inf.safetensors" || exit 1

fails_by_name() { # WHAT FILE PRECISION
    exits 1 "$NNPIPE" eval "$TMP/net.yaml" --weights "$TMP/$2.safetensors" -o precision="$3" >"$TMP/said" 2>&1 || {
        cat "$TMP/said"
        return 1
    }
    grep -q "[^ ]*: the network's output for class '[^']*' is $1" "$TMP/said" && ! grep -q "accuracy" "$TMP/said" || {
        cat "$TMP/said"
        return 1
    }
}
predicts_by_name() {
    exits 1 "$NNPIPE" predict "$TMP/net.yaml" --weights "$TMP/$2.safetensors" "$image" -o precision="$3" >"$TMP/said" \
        2>&1 || {
            cat "$TMP/said"
            return 1
        }
    grep -qF "$image: the network's output for class" "$TMP/said" && grep -q "is $1" "$TMP/said" &&
        ! grep -q "%" "$TMP/said" || {
            cat "$TMP/said"
            return 1
        }
}
good() {
    "$NNPIPE" eval "$TMP/net.yaml" --weights "$weights" && "$NNPIPE" predict "$TMP/net.yaml" --weights "$weights" \
        "$image"
}
t "eval and predict take the unchanged weights" good
for precision in f32 bf16; do
    t "eval of a NaN in a convolution's weights names an image and its output, in $precision" fails_by_name \
        "not a number" nan $precision
    t "predict of it names the file and the output, in $precision" predicts_by_name "not a number" nan $precision
    t "an infinite bias is reported likewise, in $precision" fails_by_name infinite inf $precision
    t "and by predict, in $precision" predicts_by_name infinite inf $precision
done
[ "$failed" -eq 0 ]
