#!/bin/sh
# Evaluations at another size than training: the size of test_augment.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
write_config() { # NAME AUGMENT TEST_AUGMENT
    cat >"$1.yaml" <<Y
name: net
device: cpu
precision: f32
data: {train: {source: folder, path: pics}, test: {source: folder, path: test}}
loader: {batch: 16, augment: $2, test_augment: $3}
model:
  - conv: {name: a, out: 8, kernel: 3, pad: 1, stride: 2}
  - batchnorm: {name: bn}
  - relu
  - conv: {name: b, out: 12, kernel: 3, pad: 1}
  - relu
  - global_avgpool
  - linear: {name: fc, out: classes}
optimizer: {sgd: {lr: 0.2}}
train: {epochs: 6, eval_every: 2 epochs, threads: 2}
checkpoint: {every: 2 epochs, keep: 9}
Y
}
"$NNPIPE" data synth --out s --samples 48 --test 21 --size 48 >/dev/null &&
    mkdir pics test && tar --zstd -C pics -xf s/train-00000.tar.zst &&
        tar --zstd -C test -xf s/test-00000.tar.zst || exit 1
small='[{random_resized_crop: {size: [24]}}, flip]'
write_config larger "$small" '[{resize: {size: [44]}}, {center_crop: {size: [36, 40]}}]'
write_config smaller "$small" '[{resize: {size: [20]}}, {center_crop: {size: [16]}}]'
write_config same "$small" '[{center_crop: {size: [24]}}]'
write_config alone '[{center_crop: {size: [36, 40]}}]' '[{resize: {size: [44]}}, {center_crop: {size: [36, 40]}}]'

# done_of FILE KEY: its value in the last event
done_of() { grep '"event": "done"' "$1" | sed "s/.*\"$2\": \"*\([^,\"}]*\).*/\1/"; }
train() { # NAME [OPTION...]: runs/NAME, NAME.json
    name=$1
    shift
    "$NNPIPE" train "$name.yaml" -o "runs=$TMP/runs-$name" --json "$@" >"$name.json" 2>"$name.err" ||
        { cat "$name.err"; return 1; }
}
both() { train larger && train smaller && train same; }
t "networks train with larger and with smaller tests" both
says() { grep -q '"size": \[24, 24\], "eval_size": \[36, 40\]' larger.json &&
    grep -q '"eval_size": \[16, 16\]' smaller.json; }
t "the first event has both sizes" says
trained() { [ "$(done_of larger.json weights_sha256)" = "$(done_of "$1.json" weights_sha256)" ]; }
t "the tests' size changes no weight: smaller" trained smaller
t "the tests' size changes no weight: the same" trained same
# evaluated NAME: eval of the run, and of its weights with a config that has this size only
evaluated() {
    loss=$(done_of larger.json test_loss)
    "$NNPIPE" eval --weights runs-larger/net-* --json >run.json 2>/dev/null &&
        "$NNPIPE" eval alone.yaml --weights "$(echo runs-larger/net-*/checkpoints/step-18/weights.safetensors)" \
            --json >alone.json 2>/dev/null &&
        [ "$(done_of run.json loss)" = "$loss" ] && [ "$(done_of alone.json loss)" = "$loss" ] &&
        [ "$loss" != "$(done_of same.json test_loss)" ]
}
t "eval finds the run's loss, as a network of that size alone does" evaluated
predicted() {
    set -- test/*/*.jpg
    "$NNPIPE" predict --weights runs-larger/net-* "$@" --format csv 2>/dev/null >run.csv &&
        "$NNPIPE" predict alone.yaml --weights "$(echo runs-larger/net-*/checkpoints/step-18/weights.safetensors)" \
            "$@" --format csv 2>/dev/null >alone.csv &&
        cmp run.csv alone.csv && [ "$(wc -l <run.csv)" -eq 22 ]
}
t "predict too" predicted

# as_before NAME [OPTION...]: the same weights, the same loss of every evaluation
as_before() {
    was=$1
    shift
    cp "$was.yaml" again.yaml
    rm -rf runs-again
    train again "$@" && [ "$(done_of again.json weights_sha256)" = "$(done_of "$was.json" weights_sha256)" ] &&
        [ "$(grep -o '"test_loss": [^,]*' again.json)" = "$(grep -o '"test_loss": [^,]*' "$was.json")" ]
}
for cache in encoded decoded; do
    t "loader.cache: $cache gives the same" as_before larger -o loader.cache=$cache
    [ "$cache" = decoded ] || continue
    t "smaller tests, too" as_before smaller -o loader.cache=$cache
done
t "one reader, two slots" as_before larger -o loader.readers=1 -o loader.prefetch=2
t "with recomputed activations" as_before larger -o train.recompute=true
shared() {
    peers=
    for i in 1 2; do
        cp larger.yaml peer$i.yaml
        train peer$i -o loader.share=sizes-$$ & peers="$peers $!"
    done
    for peer in $peers; do wait "$peer" || return 1; done
    for i in 1 2; do [ "$(done_of peer$i.json weights_sha256)" = "$(done_of larger.json weights_sha256)" ] &&
        [ "$(done_of peer$i.json test_loss)" = "$(done_of larger.json test_loss)" ] || return 1; done
}
t "two runs share the batches" shared
resumed() { # as a kill behind step 12 leaves it, after the evaluation there
    cp -r runs-larger part && rm -r part/*/result.json part/*/checkpoints/step-18 &&
        "$NNPIPE" train --resume part/net-* --json >part.json 2>part.err || { cat part.err; return 1; }
    [ "$(done_of part.json weights_sha256)" = "$(done_of larger.json weights_sha256)" ] &&
        [ "$(done_of part.json test_loss)" = "$(done_of larger.json test_loss)" ]
}
t "a killed run goes on" resumed
split() {
    sed 's/, test: {.*}}/, split: 25%}/' larger.yaml >split.yaml
    train split && grep -q '"val_images": 12' split.json && "$NNPIPE" eval --weights runs-split/net-* --set val --json \
        >run.json 2>/dev/null &&
        [ "$(done_of run.json loss)" = "$(grep -o '"val_loss": [^,]*' split.json | tail -n 1 | sed 's/.* //')" ]
}
t "data.split: the rows set aside have the tests' size" split
viewed() {
    cp larger.yaml tta.yaml && train tta -o train.tta=flip_shift && loss=$(done_of tta.json test_loss) &&
        "$NNPIPE" eval alone.yaml --tta flip_shift --json \
            --weights "$(echo runs-tta/net-*/checkpoints/step-18/weights.safetensors)" >alone.json 2>/dev/null &&
        [ "$(done_of alone.json loss)" = "$loss" ]
}
t "views are made of the larger image" viewed
worst() {
    "$NNPIPE" eval --weights runs-smaller/net-* --html page.html --json >/dev/null 2>worst.err ||
        { cat worst.err; return 1; }
    "$NNPIPE" data view larger.yaml --split test --sheet sheet.png >/dev/null || return 1
    [ -s page.html ] && [ -s sheet.png ]
}
t "eval's page and data view show them" worst
refused() {
    sed 's/- global_avgpool/- flatten/' larger.yaml >flat.yaml
    says "test_augment: its images are 40x36, those of augment 24x24, and fc.weight has 8 x 4320" \
        "$NNPIPE" check flat.yaml
}
t "a network whose weights depend on the size is refused" refused
emulated() { # NAME OPTION...
    was=$1
    shift
    NNPIPE_CUDA_LIBS=$EMU NNPIPE_CUDA_LIBS_ONLY=1 "$EMU/nnpipe" train "$was.yaml" --device cuda:0 --json \
        -o "runs=$TMP/emu" "$@" >emu.json 2>emu.err || { cat emu.err; return 1; }
    python3 - "$was.json" <<'P'
import json, sys
def losses(path):
    events = [json.loads(line) for line in open(path)]
    return [e["test_loss"] for e in events if e["event"] == "epoch" and e.get("test_loss") is not None]
ours, other = losses(sys.argv[1]), losses("emu.json")
assert len(ours) == len(other) > 2 and all(abs(a - b) < 1e-4 for a, b in zip(ours, other)), (ours, other)
P
}
if [ -x "$EMU/nnpipe" ]; then
    t "the emulated GPU finds the CPU's losses, larger" emulated larger
    t "smaller" emulated smaller
    t "with pictures on the device" emulated larger -o loader.cache=device
else
    skip "the same over the emulated GPU" "this build has no headers of CUDA and cuDNN"
fi
[ "$failed" -eq 0 ]
