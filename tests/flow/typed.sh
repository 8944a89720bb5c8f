#!/bin/sh
# Labels that are several classes or numbers: trained, resumed, evaluated, predicted, on CPU and emulated GPU.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
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
# resumed NAME DEVICE CONFIG FIGURE
resumed() {
    train_to "$1" "$3" -o "runs=$TMP/$1" -o "device=$2" && cut_behind 12 "$1" "$1-killed" &&
        train_to "$1-killed" "$3" --resume -o "runs=$TMP/$1-killed" -o "device=$2" &&
        same_weights "$1" "$1-killed" && [ -n "$(field "val_$4" "$1.json")" ] &&
        [ "$(field "val_$4" "$1.json")" = "$(field "val_$4" "$1-killed.json")" ]
}
t "a run of several classes, killed and resumed, has the same weights and figures" resumed multi cpu multi.yaml map
t "so has one of numbers" resumed value cpu value.yaml rmse
flags() { train_to flags flags.yaml -o "runs=$TMP/flags" && same_weights multi flags; }
t "a column of 0 and 1 for each class is the same as a list" flags
cached() {
    train_to again value.yaml -o "runs=$TMP/again" -o loader.readers=1 -o loader.cache=none &&
        same_weights value again
}
t "another number of readers and another cache give the same weights" cached

evaluated() { # NAME: the run's own figure again, and a line for each image
    "$NNPIPE" eval --weights "$1"/* --set val --json --predictions "$1-answers.csv" >"$1.eval" 2>"$1.err" &&
        awk -v a="$(field "$2" "$1.eval")" -v b="$(field "val_$2" "$1.json")" 'BEGIN { exit !(a != "" && a == b) }' &&
        [ "$(wc -l <"$1-answers.csv")" -eq 17 ] && [ "$(head -n 1 "$1-answers.csv")" = "$3" ]
}
t "eval gives the run's figures" evaluated multi map "path,a,a_predicted,b,b_predicted,c,c_predicted"
t "and those of numbers" evaluated value rmse "path,x,x_predicted,y,y_predicted"
cat >page.py <<'P'
import csv, json, math, sys
kind, rows = sys.argv[1], list(csv.DictReader(open(sys.argv[3])))
report = json.loads([l for l in open(sys.argv[2]) if '"report"' in l][0])
page = open(sys.argv[4]).read()
data = json.loads(page.split('id="evaluation">')[1].split("</script>")[0])
near = lambda a, b: abs(a - b) <= 1e-5 * max(1, abs(b))
names = [k for k in rows[0] if k != "path" and not k.endswith("_predicted")]
label, answer = ({k: [float(r[k + end]) for r in rows] for k in names} for end in ("", "_predicted"))
n = len(rows)
def spread(k): # the standard deviation of the labels
    mean = sum(label[k]) / n
    return math.sqrt(sum((v - mean) ** 2 for v in label[k]) / n)
if kind == "multi":
    part = lambda k, i: -math.log(answer[k][i] if label[k][i] else 1 - answer[k][i])
    loss = [sum(part(k, i) for k in names) / len(names) for i in range(n)]
    key = "loss"
    assert near(sum(loss) / n, report["loss"]), report["loss"]
    said = lambda i: ([k for k in names if label[k][i]], [k for k in names if answer[k][i] > 0.5])
else:
    part = lambda k, i: ((answer[k][i] - label[k][i]) / spread(k)) ** 2
    loss = [math.sqrt(sum(part(k, i) for k in names) / len(names)) for i in range(n)]
    key = "distance"
    said = lambda i: ([label[k][i] for k in names], [answer[k][i] for k in names])
    assert near(sum(d * d for d in loss) / n, 1 - report["r2"])
    for value, drawn in zip(report["values"], data["values"]):
        errors = [a - l for a, l in zip(answer[value["value"]], label[value["value"]])]
        most, bins = value["errors"]["most"], value["errors"]["images"]
        assert near(most, max(map(abs, errors))) and sum(bins) == n == len(drawn["points"]) and len(bins) == 21
        below = lambda b: sum(e <= (2 * (b + 1) / 21 - 1) * most for e in errors)
        assert all(abs(below(b) - sum(bins[:b + 1])) <= 1 for b in range(21))
        want = zip(label[value["value"]], answer[value["value"]])
        assert all(near(g, w) for got, want in zip(drawn["points"], want) for g, w in zip(got, want))
worst = sorted(range(n), key=lambda i: -loss[i])
assert len(report["worst"]) == len(data["worst"]) == n
assert all(near(w[key], loss[i]) for w, i in zip(report["worst"], worst))
where = {r["path"]: i for i, r in enumerate(rows)}
for w in report["worst"]:
    want = said(where[w["path"]])
    assert all(near(a, b) if kind == "value" else a == b for got, want in zip((w["label"], w["predicted"]), want)
               for a, b in zip(got, want)) and [len(w["label"]), len(w["predicted"])] == list(map(len, want)), w
assert all(w["picture"].startswith("data:image/png;base64,") for w in data["worst"])
assert page.count("</script") == 2 and report["label_type"] == data["label_type"] == kind
P
paged() {
    "$NNPIPE" eval --weights "$1"/* --set val --html "$1.html" >/dev/null 2>"$1.err" || { cat "$1.err"; return 1; }
    python3 page.py "$1" "$1.eval" "$1-answers.csv" "$1.html"
}
t "JSON and page have the worst images of several classes" paged multi
t "and of numbers, with their errors" paged value
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
cat >look.py <<'P'
import sys
from browser import Browser
page = Browser(sys.argv[1], sys.argv[2])
try:
    for name, title, rows, dots in (("multi", "mean average precision ", 3, 0),
                                    ("value", "root mean square error ", 2, 32)):
        page.open(f"file://{sys.argv[2]}/{name}.html")
        page.wait('document.querySelectorAll("#worst img").length')
        got = page.see("""({ h1: document.querySelector("h1").textContent, title: document.title,
            rows: document.querySelectorAll(".facts tbody tr").length, text: document.querySelector("main").innerText,
            dots: document.querySelectorAll("circle.got").length,
            bars: document.querySelectorAll("#answers .rates").length,
            images: [...document.images].filter(i => i.complete && i.naturalWidth === 12).length })""")
        assert got["h1"].startswith(title) and got["title"] == f"{name}: val" and got["rows"] == rows, got
        assert got["images"] == 16 and got["dots"] == dots and got["bars"] == (42 if dots else 0), got
        assert not page.complaints and "NaN" not in got["text"] and "undefined" not in got["text"], got
finally:
    page.close()
P
look() { PYTHONPATH="$ROOT/tests/flow" PYTHONDONTWRITEBYTECODE=1 python3 look.py "$browser" "$TMP"; }
if [ -n "$browser" ]; then
    t "a browser draws the pages" look
else
    skip "a browser draws the pages" "no chromium here"
fi
predicted() {
    set -- pics/*/*.jpg
    "$NNPIPE" predict --weights value/* "$1" "$2" --format csv 2>/dev/null >p.csv &&
        [ "$(head -n 1 p.csv)" = "path,x,y" ] && [ "$(wc -l <p.csv)" -eq 3 ] &&
        "$NNPIPE" predict --weights value/* "$1" --json 2>/dev/null | grep -q '"values": {"x": '
}
t "predict writes the numbers by name" predicted
several() { # the classes above 0.5, as eval found them
    "$NNPIPE" predict --weights multi/* pics/*/*.jpg --json 2>/dev/null >several.json &&
        "$NNPIPE" predict --weights multi/* pics/*/*.jpg --format csv 2>/dev/null >several.csv &&
        python3 - <<'P'
import csv, json
want = {r["path"]: [k[0] for k in r if k.endswith("_predicted") and float(r[k]) > 0.5]
        for r in csv.DictReader(open("multi-answers.csv"))}
got = {p["path"][5:]: p["classes"] for p in map(json.loads, open("several.json")) if p["event"] == "prediction"}
assert want and any(want.values()) and all(got[path] == classes for path, classes in want.items())
rows = {r["path"][5:]: [k for k in r if k != "path" and float(r[k]) > 0.5] for r in csv.DictReader(open("several.csv"))}
assert rows == got, (rows, got)
P
}
t "and all classes that a picture has" several
# served NAME JSON: what the server answers of a picture has JSON
served() {
    "$NNPIPE" serve "$1"/* --listen 127.0.0.1:0 >serve.txt 2>&1 & server=$!
    for _ in $(seq 100); do grep -q "http://[^ ]*" serve.txt && break; sleep 0.1; done
    url=$(grep -o "http://[0-9.:]*" serve.txt | head -n 1)
    set -- "$1" "$2" pics/*/*.jpg
    curl -s --data-binary "@$3" "$url/predict" >served.json
    curl -s "$url/model" >model.json
    kill "$server"
    wait "$server" 2>/dev/null
    grep -q "$2" served.json && grep -q "\"label_type\": \"$1\"" model.json || {
        cat serve.txt served.json model.json
        return 1
    }
}
t "serve answers with the classes" served multi '"classes": \['
t "and with the numbers" served value '"values": {"x": '
# The same labels for archives: from the tables, and from JSON beside each image; shards in the folder's order.
python3 - <<'P'
import csv, io, json, tarfile
def put(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
multi, flags, value = (list(csv.DictReader(open(f"{n}.csv"))) for n in ("multi", "flags", "value"))
for shard in range(4):
    with tarfile.open(f"plain-{shard}.tar", "w") as plain, tarfile.open(f"json-{shard}.tar", "w") as beside:
        for i in range(16 * shard, 16 * shard + 16):
            name, tags = multi[i]["file"], multi[i]["tags"]
            data = open("pics/" + name, "rb").read()
            put(plain, name, data)
            fields = {k: [bool, int][i % 2](int(flags[i][k])) for k in "abc"}
            fields |= {"tags": tags.split("|") if tags else [], "x": float(value[i]["x"]), "y": int(value[i]["y"])}
            put(beside, name, data)
            put(beside, name[:-4] + ".json", json.dumps(fields | {"kind": name.split("/")[0]}).encode())
P
# archived NAME PATH [OLD NEW]: NAME over archives has the weights of NAME; OLD in its keys is NEW
archived() {
    sed "s/source: folder, path: pics/source: tar, path: \"$2\"/; s/${3:-^$}/${4-}/" "$1.yaml" >"tar-$1.yaml"
    rm -rf "tar-$1" && train_to "tar-$1" "tar-$1.yaml" -o "runs=$TMP/tar-$1" && same_weights "$1" "tar-$1"
}
t "archives with a table of numbers have the folder's weights" archived value 'plain-*.tar'
t "with one of several classes, too" archived multi 'plain-*.tar'
packed() { # the advice for a set with a table works
    "$NNPIPE" data pack value.yaml --out packed >pack.txt 2>&1
    [ $? -ne 0 ] && grep -q "takes the same table" pack.txt && "$NNPIPE" data pack pics --out packed >/dev/null &&
        archived value 'packed\/train-*.tar'
}
t "a packed folder with its table does, too" packed
t "JSON with lists of classes, too" archived multi 'json-*.tar' 'labels: multi.csv' 'columns: tags'
t "with true and false or 1 and 0" archived flags 'json-*.tar' 'labels: flags.csv, \(.*\)"file,a' '\1"a'
t "and with numbers" archived value 'json-*.tar' 'labels: value.csv, \(.*\)"file,x' '\1"x'
json_classes() { # as the folders of the images are
    sed 's/^loss.*//; s/, best: .*}/}/; s/labels:.*}, split/match: "*"}, split/' value.yaml >classes.yaml
    train_to classes classes.yaml -o "runs=$TMP/classes" && cp classes.yaml kind.yaml &&
        train_to kind kind.yaml -o "runs=$TMP/kind" -o data.train.source=tar -o "data.train.path=$TMP/json-*.tar" \
            -o data.train.match= -o data.train.columns=kind && same_weights classes kind
}
t "a text of JSON is a class" json_classes
# refused TEXT ARGS...: the command fails with that text
refused() {
    text=$1
    shift
    "$@" >said.txt 2>&1
    [ $? -eq 2 ] && grep -qF -- "$text" said.txt || { cat said.txt; return 1; }
}
t "a loss that does not fit is refused" refused "does not fit labels" "$NNPIPE" check value.yaml -o loss=bce
t "a metric that the labels lack, too" refused "have loss, mae, rmse or r2" "$NNPIPE" check value.yaml -o train.best=map
t "as does one of train.stop" refused "stop.metric: sets with \`label_type: multi\` have loss, accuracy or map" \
    "$NNPIPE" check multi.yaml -o train.stop.metric=rmse
t "or of the schedule" refused "schedule.plateau.metric: sets with \`label_type: value\` have loss, mae, rmse or r2" \
    "$NNPIPE" check value.yaml -o schedule.plateau.metric=accuracy
# stops NAME METRIC: a run whose rate is 0 ends at its third evaluation, also resumed, for the metric's sake
stops() {
    rm -rf stops stops-killed &&
        train_to stops "$1.yaml" -o "runs=$TMP/stops" -o optimizer.adamw.lr=0 -o "train.stop.metric=$2" \
        -o train.stop.patience=1 -o "train.eval_every=4 steps" -o "schedule={plateau: {metric: $2, patience: 0}}" &&
        grep -q "\"event\": \"early_stop\", \"step\": 12,.*\"metric\": \"$2\"" stops.json &&
        grep -q "the $2 has not improved; the rate falls to 0.1" stops/*/log && cut_behind 12 stops stops-killed &&
        rm -rf stops-killed/*/checkpoints/step-12 && train_to again --resume stops-killed/* &&
        same_weights stops again &&
        [ "$(field best stops.json)" = "$(field best again.json)" ]
}
t "a run of several classes ends when its map does not improve" stops multi map
t "one of numbers, when its r2 does not" stops value r2
sed '5s/,[^,]*$/,high/' value.csv >bad.csv
t "a cell that is no number is named" refused "bad.csv:5: y is 'high'" "$NNPIPE" train value.yaml \
    -o data.train.labels="$TMP/bad.csv"
t "a field that the JSON lacks is named with its member" refused \
    "json-0.tar: the member 'circle/00000008.json' at offset " "$NNPIPE" train tar-value.yaml \
    -o 'data.train.columns="x,z"'
t "labels of an archive that are no classes need a place" refused "or \`columns\`, fields of .json members" \
    "$NNPIPE" check tar-value.yaml -o data.train.columns=
printf 'file,x,y\nnone,1,2\n' >gone.csv
t "a line without a member is named" refused "gone.csv:2: there is no image 'none' below " \
    "$NNPIPE" train value.yaml -o data.train.source=tar -o "data.train.path=$TMP/plain-*.tar" \
    -o data.train.labels="$TMP/gone.csv"

use_emulated_gpu "the same over the emulated GPU" || exit 0
t "several classes on the emulated GPU, resumed" resumed gpu-multi cuda:0 multi.yaml map
t "numbers on the emulated GPU, resumed" resumed gpu-value cuda:0 value.yaml rmse
t "whose losses are the CPU's: several classes" close_to val_loss multi.json gpu-multi.json 1e-3
t "numbers" close_to val_loss value.json gpu-value.json 1e-3
