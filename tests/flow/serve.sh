# `nnpipe serve`: answers equal predict's, alone and in company; bad requests, too many requests, the end of the
# server, its page in Chromium; on the CPU and over the emulated GPU. tests/flow/serve.py asks.
. "$(dirname "$0")/../lib.sh"
EMU=${NNPIPE_BUILD:-$ROOT/build}/tests/emu
bad=${BAD:-60} # bad requests; the campaign sends 1,000
cd "$TMP" || exit 1
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: synth, samples: 64, size: 24}}
loader:
  batch: 16
  test_augment: [{resize: 20}, {center_crop: 16}]
  augment: [{random_crop: 16}]
model: [{conv: {out: 8, kernel: 3}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 2, threads: 2}
runs: $TMP/runs
Y
t "a run to serve is there" "$NNPIPE" train net.yaml
"$NNPIPE" data synth --out drawn --samples 48 --test 8 --size 40 >/dev/null 2>&1 &&
    "$NNPIPE" data pack drawn/train-00000.tar* --out packed >/dev/null 2>&1 && mkdir shown &&
    tar -xf packed/train-00000.tar -C shown
run=$(ls -d runs/*)
ask() { PYTHONDONTWRITEBYTECODE=1 python3 "$ROOT/tests/flow/serve.py" "$@" || failed=$((failed + 1)); }
ask "$NNPIPE" "$run" shown "$bad" cpu
if [ -e "$EMU/libnnpipe-cuda.so" ]; then
    NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1 ask "$EMU/nnpipe" "$run" shown 0 cuda:0
else
    skip "serve on the emulated GPU" "this build has no headers of CUDA and cuDNN"
fi
usage() {
    says "expected a RUN" exits 2 "$NNPIPE" serve && says "'8500' is not an address" exits 2 "$NNPIPE" serve "$run" \
        --listen 8500 && says "--max-batch takes 1 to 4096" exits 2 "$NNPIPE" serve "$run" --max-batch 0 &&
        says "nowhere" exits 2 "$NNPIPE" serve nowhere
}
t "wrong operands, addresses and numbers end with 2" usage
[ "$failed" -eq 0 ]
