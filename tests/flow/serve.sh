# `nnpipe serve`: answers equal predict's, alone and in company; bad requests, too many requests, the end of the
# server, its page in Chromium; on the CPU and over the emulated GPU. tests/flow/serve.py asks.
. "$(dirname "$0")/../lib.sh"
bad=${BAD:-700} # bad requests, and half as many that are not HTTP
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
sed -e 's/out: 8,/out: 96,/; s/resize: 20/resize: 80/; s/: 16}\]/: 64}]/; s/epochs: 2/steps: 1/; s/: 16$/: 2/' \
    -e "s|runs$|slow|; s|relu,|relu, {conv: {out: 96, kernel: 3}}, relu,|" net.yaml >slow.yaml
t "and a slow one" "$NNPIPE" train slow.yaml -o data.train.size=80
slow=$(ls -d slow/*)
ask() { PYTHONDONTWRITEBYTECODE=1 python3 "$ROOT/tests/flow/serve.py" "$@" || failed=$((failed + 1)); }
ask "$NNPIPE" "$run" "$slow" shown "$bad" cpu
if [ -e "$EMU/libnnpipe-cuda.so" ]; then
    export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1
    ask "$EMU/nnpipe" "$run" "$slow" shown 0 cuda:0
    unset NNPIPE_CUDA_LIBS NNPIPE_CUDA_LIBS_ONLY
else
    skip "serve on the emulated GPU" "this build has no headers of CUDA and cuDNN"
fi
usage() {
    says "expected a RUN" exits 2 "$NNPIPE" serve && says "'8500' is not an address" exits 2 "$NNPIPE" serve "$run" \
        --listen 8500 && says "--max-batch takes 1 to 4096" exits 2 "$NNPIPE" serve "$run" --max-batch 0 &&
        says "nowhere is not a run; a CONFIG needs --weights FILE beside it" exits 2 "$NNPIPE" serve nowhere &&
        says "net.yaml is not a run; a CONFIG needs --weights FILE beside it" exits 2 "$NNPIPE" serve net.yaml &&
        says "nowhere belongs to no run: it needs its CONFIG beside it" exits 2 "$NNPIPE" serve --weights nowhere &&
        says "expected a RUN without --weights" exits 2 "$NNPIPE" serve "$run" --weights "$run"
}
t "wrong operands, addresses and numbers end with 2" usage
[ "$failed" -eq 0 ]
