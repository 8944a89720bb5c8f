#!/bin/sh
# Frozen parameters in whole runs: resumed across the step that thaws them, on the emulated GPU, refused in words;
# and the page about fine-tuning, whose commands run here on made-up pictures.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
cat >net.yaml <<'Y'
name: net
device: cpu
precision: f32
data: {train: {source: synth, samples: 128, size: 16}, test: {source: synth, samples: 16, size: 16}}
loader: {batch: 16}
model:
  - conv: {name: conv1, out: 8, kernel: 3, pad: 1, bias: false}
  - batchnorm: {name: bn1}
  - relu
  - conv: {name: conv2, out: 8, kernel: 3, pad: 1, bias: false}
  - batchnorm: {name: bn2}
  - relu
  - global_avgpool
  - linear: {name: fc, out: classes}
freeze: [{names: bn1}, {names: [bn2, conv2], until: {step: 12}}, {names: fc.bias, from: {step: 10}}]
params: [{names: ["fc.*"], lr: 3, decay: 0}]
optimizer: {sgd: {lr: 0.05, weight_decay: 1e-3, layer_decay: 0.9}}
train: {steps: 24, threads: 2, clip_norm: 1, eval_every: never}
checkpoint: {every: 4 steps, keep: 10}
Y
weights() { sed -n 's/.* weights \([0-9a-f]*\).*/\1/p' "$1" | tail -n 1; }

resumed() {
    rm -rf whole again*
    "$NNPIPE" train net.yaml -o runs=whole "$@" >whole.txt || return 1
    for step in 8 12 16; do
        cp -r whole "again$step"
        find "again$step" -name 'step-*' -type d | while read -r folder; do
            [ "${folder##*-}" -le "$step" ] || rm -r "$folder"
        done
        rm -f "again$step"/*/exit.json
        "$NNPIPE" train --resume "again$step"/net-* >"again$step.txt" 2>&1 || return 1
        [ "$(weights "again$step.txt")" = "$(weights whole.txt)" ] || return 1
    done
    [ -n "$(weights whole.txt)" ]
}
t "a run resumed before, at and after the step that thaws parameters ends with the same weights" resumed

# the losses of the last resumed() again, with the same arguments
emulated() (
    export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1
    rm -rf gpu
    "$EMU/nnpipe" train net.yaml --device cuda:0 -o runs=gpu "$@" >gpu.txt 2>&1 || exit 1
    python3 - <<'P'
import glob, json
losses = {}
for where in ("whole", "gpu"):
    with open(glob.glob(f"{where}/net-*/metrics.jsonl")[0], encoding="utf-8") as file:
        losses[where] = [e["loss"] for e in map(json.loads, file) if e["event"] == "step"]
assert len(losses["gpu"]) == 24
off = max(abs(a - b) for a, b in zip(losses["whole"], losses["gpu"]))
assert off < 2e-4, off
P
)
as_cpu() {
    what=$1
    shift
    if [ -e "${NNPIPE_BUILD:-$ROOT/build}/tests/emu/libnnpipe-cuda.so" ]; then
        t "losses on the emulated GPU are those of the CPU$what" emulated "$@"
    else
        skip "losses on the emulated GPU are those of the CPU$what" "this build has no headers of CUDA and cuDNN"
    fi
}
as_cpu ""

t "so does one with SAM" resumed -o train.sam.rho=0.3
as_cpu ", with SAM, too" -o "train.sam.rho=0.3"
same_bits() {
    python3 - whole/net-*/checkpoints/step-24/weights.safetensors <<'P'
import json, struct, sys
with open(sys.argv[1], "rb") as file:
    raw = file.read()
size = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8:8 + size])
for name, start in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
    a, b = header["bn1." + name]["data_offsets"]
    assert raw[8 + size + a:8 + size + b] == struct.pack("<8f", *[start] * 8), name
P
}
t "which keeps the bits of what is frozen" same_bits

t "a pattern without a parameter has its line and a suggestion" \
    says "net.yaml:15:18: 'bm1' matches no parameter; did you mean 'bn1'?" \
    exits 2 sh -c 'mkdir bad && sed "s/bn1}, /bm1}, /" net.yaml >bad/net.yaml && cd bad && "$0" check net.yaml' \
    "$NNPIPE"
t "nothing left to train is an error" says "freezes all 8 parameters" exits 2 "$NNPIPE" check net.yaml -o 'freeze="*"'
t "until: needs one of epoch and step" says "expected {epoch: 3} or {step: 500}" \
    exits 2 "$NNPIPE" check net.yaml -o 'freeze={names: conv1, until: {epoch: 1, step: 3}}'
t "a resumed run cannot freeze other parameters" says "freeze" \
    exits 2 "$NNPIPE" train --resume whole/net-* -o 'freeze=[]' -o train.steps=30
shown() { "$NNPIPE" show net.yaml >a.yaml && "$NNPIPE" show a.yaml >b.yaml && cmp a.yaml b.yaml; }
t "what show prints is read back as the same rules" shown

# The page's commands and configs, in its order; the pictures and the weights are made here.
page() {
    "$NNPIPE" data synth --out s --samples 64 --test 8 >/dev/null || return 1
    mkdir -p pets/train pets/val && tar --zstd -C pets/train -xf s/train-00000.tar.zst &&
        tar --zstd -C pets/val -xf s/test-00000.tar.zst || return 1
    cp "$ROOT/configs/resnet18.yaml" . || return 1
    "$NNPIPE" train resnet18.yaml -o data.train.path=pets/train -o data.test.path=pets/val -o train.epochs=0 \
        -o train.steps=1 -o loader.batch=4 -o 'loader.augment=[{resize: {size: [32, 32]}}]' -o \
            'loader.test_augment=[]' \
        -o runs=first >/dev/null 2>&1
    cp first/*/checkpoints/step-1/weights.safetensors resnet18.safetensors || return 1
    sed -n '/^```yaml/,/^```/{/^```/!p;}' "$ROOT/docs/FINETUNE.md" >pets.yaml
    sed -n '/^```sh/,/^```/{/^```/!p;}' "$ROOT/docs/FINETUNE.md" | grep '^nnpipe' >commands.txt
    while read -r command; do
        command=$(printf '%s\n' "$command" | sed "s|^nnpipe|\"$NNPIPE\"|; s|pets.yaml|& $SMALL|")
        eval "$command" </dev/null || return 1
    done <commands.txt
    grep -q "lr: 10" pets.yaml && ls report.html
}
SMALL="-o loader.batch=8 -o 'loader.augment=[{resize: {size: [32, 32]}}]' \
-o 'loader.test_augment=[{resize: {size: [32, 32]}}]' -o train.epochs=0 -o train.steps=4 -o runs=runs"
t "the commands of docs/FINETUNE.md run, from a folder of pictures to a report" page
[ "$failed" -eq 0 ]
