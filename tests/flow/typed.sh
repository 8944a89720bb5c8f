#!/bin/sh
# Labels that are several classes or numbers: trained, resumed, evaluated, predicted, on CPU and emulated GPU.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
EMU=${NNPIPE_BUILD:-$ROOT/build}/tests/emu
mkdir pics && "$NNPIPE" data synth --out s --samples 64 --test 8 >/dev/null &&
    tar --zstd -C pics -xf s/train-00000.tar.zst || exit 1
python3 - <<'P'
import glob
with open("multi.csv", "w") as m, open("flags.csv", "w") as f, open("value.csv", "w") as v:
    m.write("file,tags\n")
    f.write("file,b,a,c\n")
    v.write("file,x,y\n")
    for i, name in enumerate(sorted(glob.glob("pics/*/*.jpg"))):
        n = name[5:]
        a, b, c = i % 2, i % 3 == 0, i % 5 < 2
        m.write(f"{n},{'|'.join(w for w, k in zip('abc', (a, b, c)) if k)}\n")
        f.write(f"{n},{int(b)},{a},{int(c)}\n")
        v.write(f"{n},{i / 64},{i % 7 - 3}\n")
P

# config NAME TABLE KEYS LOSS MORE
config() {
    cat >"$1.yaml" <<Y
name: $1
device: cpu
precision: f32
data: {train: {source: folder, path: pics, labels: $2.csv, $3}, split: 25%}
loader: {batch: 8, readers: 2, augment: [{center_crop: {size: 12}}], test_augment: [{center_crop: {size: 12}}]}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, flatten, {linear: {out: classes}}]
loss: $4
optimizer: {adamw: {lr: 1e-2}}
train: {steps: 24, threads: 1, eval_every: 12 steps, $5}
checkpoint: {every: 4 steps, keep: 100}
Y
}
config multi multi "label_type: multi" bce "best: map, mixup: 0.4"
config flags flags 'label_type: multi, columns: "file,a,b,c"' bce "best: map, mixup: 0.4"
config value value 'label_type: value, columns: "file,x,y"' "{huber: {delta: 0.5}}" "best: rmse"
field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$2" | tail -n 1; }
go() { out=$1; shift; "$NNPIPE" train "$@" --json >"$out" 2>"$out.err" || { cat "$out.err"; return 1; }; }
same() { [ -n "$(field weights_sha256 "$1")" ] && [ "$(field weights_sha256 "$1")" = "$(field weights_sha256 "$2")" ]; }
killed() {
    cp -r "$1" "$2" || return 1
    rm -f "$2"/*/result.json
    for c in "$2"/*/checkpoints/step-*; do [ "${c##*-}" -le 12 ] || rm -r "$c"; done
}
# resumed NAME DEVICE CONFIG FIGURE
resumed() {
    go "$1.json" "$3" -o "runs=$TMP/$1" -o "device=$2" && killed "$1" "$1-killed" &&
        go "$1-killed.json" "$3" --resume -o "runs=$TMP/$1-killed" -o "device=$2" &&
        same "$1.json" "$1-killed.json" && [ -n "$(field "val_$4" "$1.json")" ] &&
        [ "$(field "val_$4" "$1.json")" = "$(field "val_$4" "$1-killed.json")" ]
}
t "a run of several classes, killed and resumed, has the same weights and figures" resumed multi cpu multi.yaml map
t "so has one of numbers" resumed value cpu value.yaml rmse
flags() { go flags.json flags.yaml -o "runs=$TMP/flags" && same multi.json flags.json; }
t "a column of 0 and 1 for each class is the same as a list" flags
cached() {
    go again.json value.yaml -o "runs=$TMP/again" -o loader.readers=1 -o loader.cache=none &&
        same value.json again.json
}
t "another number of readers and another cache give the same weights" cached

evaluated() { # NAME: the run's own figure again, and a line for each image
    "$NNPIPE" eval --weights "$1"/* --set val --json --predictions "$1-answers.csv" >"$1.eval" 2>"$1.err" &&
        awk -v a="$(field "$2" "$1.eval")" -v b="$(field "val_$2" "$1.json")" 'BEGIN { exit !(a != "" && a == b) }' &&
        [ "$(wc -l <"$1-answers.csv")" -eq 17 ] && [ "$(head -n 1 "$1-answers.csv")" = "$3" ]
}
t "eval gives the run's figures" evaluated multi map "path,a,a_predicted,b,b_predicted,c,c_predicted"
t "and those of numbers" evaluated value rmse "path,x,x_predicted,y,y_predicted"
predicted() {
    set -- pics/*/*.jpg
    "$NNPIPE" predict --weights value/* "$1" "$2" --format csv 2>/dev/null >p.csv &&
        [ "$(head -n 1 p.csv)" = "path,x,y" ] && [ "$(wc -l <p.csv)" -eq 3 ] &&
        "$NNPIPE" predict --weights value/* "$1" --json 2>/dev/null | grep -q '"values": {"x": '
}
t "predict writes the numbers by name" predicted
# refused TEXT ARGS...: the command fails with that text
refused() {
    text=$1
    shift
    "$@" >said.txt 2>&1
    [ $? -eq 2 ] && grep -qF -- "$text" said.txt || { cat said.txt; return 1; }
}
t "a page of classes is refused" refused "--html draws classes" "$NNPIPE" eval --weights multi/* --html x.html
t "a loss that does not fit is refused" refused "does not fit labels" "$NNPIPE" check value.yaml -o loss=bce
t "a metric that the labels lack, too" refused "have loss, mae, rmse or r2" "$NNPIPE" check value.yaml -o train.best=map
sed '5s/,[^,]*$/,high/' value.csv >bad.csv
t "a cell that is no number is named" refused "bad.csv:5: y is 'high'" "$NNPIPE" train value.yaml \
    -o data.train.labels="$TMP/bad.csv"

if [ ! -e "$EMU/libnnpipe-cuda.so" ]; then
    skip "the same over the emulated GPU" "this build has no headers of CUDA and cuDNN"
    exit 0
fi
NNPIPE=$EMU/nnpipe
export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1
t "several classes on the emulated GPU, resumed" resumed gpu-multi cuda:0 multi.yaml map
t "numbers on the emulated GPU, resumed" resumed gpu-value cuda:0 value.yaml rmse
close() {
    awk -v a="$(field val_loss "$1")" -v b="$(field val_loss "$2")" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d < 1e-3 * a) }'
}
t "whose losses are the CPU's: several classes" close multi.json gpu-multi.json
t "numbers" close value.json gpu-value.json
