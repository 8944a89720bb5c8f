#!/bin/sh
# loader.grow: training images that are small in the first epochs; resumed at and between the changes of size.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: synth, samples: 100, size: 32}, test: {source: synth, samples: 20, size: 32, seed: 2}}
loader:
  batch: 8
  augment: [{random_resized_crop: {size: [24]}}, flip, {random_erasing: {p: 0.3}}]
  grow: {from: 12, since: 0, until: 3, step: 4}
  test_augment: [{center_crop: {size: [28]}}]
model:
  - conv: {name: a, out: 8, kernel: 3, pad: 1}
  - batchnorm: {name: bn}
  - relu
  - maxpool: {kernel: 2}
  - conv: {name: b, out: 12, kernel: 3, pad: 1}
  - relu
  - global_avgpool
  - dropout: {rate: 0.1}
  - linear: {name: fc, out: classes}
optimizer: {adamw: {lr: 0.01}}
schedule: cosine
train: {epochs: 4, eval_every: 1 epoch, threads: 2, ema: {decay: 0.9}}
checkpoint: {every: 13 steps, keep: 99}
Y
done_of() { grep '"event": "done"' "$1" | sed "s/.*\"$2\": \"*\([^,\"}]*\).*/\1/"; }
train() { # NAME [OPTION...]
    name=$1
    shift
    "$NNPIPE" train net.yaml -o "runs=$TMP/runs-$name" --json "$@" >"$name.json" 2>"$name.err" ||
        { cat "$name.err"; return 1; }
}
same() { # NAME NAME: the same weights, the same losses of the evaluations that both made
    [ -n "$(done_of "$1.json" weights_sha256)" ] &&
        [ "$(done_of "$1.json" weights_sha256)" = "$(done_of "$2.json" weights_sha256)" ] &&
        [ "$(done_of "$1.json" test_loss)" = "$(done_of "$2.json" test_loss)" ]
}
# 12 pixels, then 16 from step 13 on (row 100 is in the middle of a batch), 20 from 25, 24 from 38
t "a network trains on images that grow" train whole
sizes() {
    [ "$(grep -o 'step [0-9]*: training images of [0-9x]*' runs-whole/*/log | tr '\n' ' ')" = \
        "step 0: training images of \
12x12 step 13: training images of 16x16 step 25: training images of 20x20 step 38: training images of 24x24 " ]
}
t "and says when they do" sizes
# Where rows have one size, the run is that of a config with this size.
first() {
    sed -e '/grow:/d' -e 's/size: \[24\]/size: [12]/' net.yaml >small.yaml
    "$NNPIPE" train small.yaml -o "runs=$TMP/runs-small" --json >small.json 2>small.err || { cat small.err; return 1; }
    cmp runs-whole/*/checkpoints/step-13/weights.safetensors runs-small/*/checkpoints/step-13/weights.safetensors &&
        ! cmp -s runs-whole/*/checkpoints/step-26/weights.safetensors \
            runs-small/*/checkpoints/step-26/weights.safetensors
}
t "the first steps are those of a config with the small size" first
# resumed STEP [NAME]: what a kill behind the checkpoint of STEP leaves goes on to the same end
resumed() {
    of=${2:-whole}
    rm -rf part && cp -r "runs-$of" part && rm part/*/result.json || return 1
    for c in part/*/checkpoints/step-*; do [ "${c##*-}" -le "$1" ] || rm -r "$c"; done
    "$NNPIPE" train --resume part/net-* --json >part.json 2>part.err || { cat part.err; return 1; }
    same part "$of"
}
for step in 13 26 39; do t "a run killed behind step $step goes on bit for bit" resumed $step; done
stopped() { # by SIGTERM, wherever it is
    rm -rf runs-term
    "$NNPIPE" train net.yaml -o "runs=$TMP/runs-term" --json >term.json 2>term.err & pid=$!
    for _ in $(tries 100); do grep -q '"step": 2[0-9]' term.json && break; sleep 0.02; done
    kill -TERM $pid 2>/dev/null
    wait $pid
    code=$?
    [ $code -eq 0 ] && return 0 # it was faster
    [ $code -eq 75 ] || { cat term.err; return 1; }
    "$NNPIPE" train --resume runs-term/net-* --json >term.json 2>term.err && same term whole
}
t "so does a stopped one" stopped
as_whole() { name=$1; shift; train "$name" "$@" && same "$name" whole; }
t "decoded pictures in memory give the same" as_whole decoded -o loader.cache=decoded
t "encoded ones, one reader, two slots" \
    as_whole encoded -o loader.cache=encoded -o loader.readers=1 -o loader.prefetch=2
t "recomputed activations" as_whole again -o train.recompute=true
shared() {
    peers=
    for i in 1 2; do
        train peer$i -o loader.share=grow-$$ & peers="$peers $!"
    done
    for peer in $peers; do wait "$peer" || return 1; done
    same peer1 whole && same peer2 whole
}
t "two runs share the batches" shared
accumulated() {
    train sum -o train.accumulate=3 -o checkpoint.every="12 steps" && resumed 12 sum && resumed 24 sum &&
        grep -q 'step 15: training images of 16x16' runs-sum/*/log
}
t "a size begins with an update" accumulated
replayed() {
    "$NNPIPE" replay runs-whole/net-* --step 20 --out rows --json >rows.json 2>rows.err || { cat rows.err; return 1; }
    "$NNPIPE" data view net.yaml --step 20 --out view --json >view.json 2>view.err || { cat view.err; return 1; }
    [ "$(ls rows/*.png | wc -l)" -eq 8 ] && for r in 0 3 7; do
        cmp "rows/row000$r.png" "view/step000020-row000$r.png" || return 1
    done
    python3 - rows/row0000.png <<'P'
import struct, sys
assert struct.unpack(">II", open(sys.argv[1], "rb").read()[16:24]) == (16, 16)
P
}
t "replay and data view show the rows of a step in their size" replayed
changed() { says "loader.grow" exits 2 "$NNPIPE" train --resume part/net-* -o loader.grow.until=9; }
rm -rf part && cp -r runs-whole part && rm -r part/*/result.json part/*/checkpoints/step-[45]*
t "a resumed run keeps its sizes" changed
refused() {
    sed 's/- global_avgpool/- flatten/' net.yaml >flat.yaml
    says "grow: its images are 12x12, those of augment 24x24, and fc.weight has 10 x 432 values" \
        "$NNPIPE" check flat.yaml
}
t "a network whose weights depend on the size is refused" refused

emulated() { # NAME OPTION...
    name=$1
    shift
    NNPIPE_CUDA_LIBS=$EMU NNPIPE_CUDA_LIBS_ONLY=1 "$EMU/nnpipe" train net.yaml --device cuda:0 --json \
        -o "runs=$TMP/runs-$name" "$@" >"$name.json" 2>"$name.err" || { cat "$name.err"; return 1; }
    python3 - "$name.json" <<'P'
import json, sys
def losses(path):
    return [e["test_loss"] for e in map(json.loads, open(path)) if e["event"] == "epoch"]
ours, other = losses("whole.json"), losses(sys.argv[1])
assert len(ours) == len(other) == 4 and all(abs(a - b) < 1e-3 for a, b in zip(ours, other)), (ours, other)
P
}
emulated_on() {
    rm -rf part && cp -r runs-emu part && rm -r part/*/result.json part/*/checkpoints/step-[345]*
    NNPIPE_CUDA_LIBS=$EMU NNPIPE_CUDA_LIBS_ONLY=1 "$EMU/nnpipe" train --resume part/net-* --json \
        >part.json 2>part.err ||
        { cat part.err; return 1; }
    same part emu
}
if [ -x "$EMU/nnpipe" ]; then
    t "the emulated GPU finds the CPU's losses" emulated emu
    t "and goes on bit for bit" emulated_on
    sed -i '/random_erasing/s/, {random_erasing: {p: 0.3}}//' net.yaml
    t "pictures on the device are cut to each size" train whole
    t "as on the CPU" emulated device -o loader.cache=device
else
    skip "the same over the emulated GPU" "this build has no headers of CUDA and cuDNN"
fi
[ "$failed" -eq 0 ]
