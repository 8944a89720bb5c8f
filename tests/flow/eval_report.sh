#!/bin/sh
# eval --json, --classes, --predictions, --html: the figures again from the answer for each image, on sets of several
# kinds; and the page, in a browser where there is one.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out "$TMP/data" --samples 64 --test 48 --size 16 >/dev/null || exit 1
mkdir pictures && for f in "$TMP"/data/test-*.tar.zst; do tar -xf "$f" -C pictures; done
hostile="pictures/<!--<b>&\"',x" # a class
mkdir "$hostile" && mv $(find pictures/ring pictures/rod -type f | sort | head -n 4) "$hostile"
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: folder, path: "$TMP/pictures"}
  split: 50%
  test: {source: synth, samples: 20, size: 16}
loader: {batch: 7, test_augment: [{center_crop: {size: 12}}], augment: [{random_crop: {size: 12}}]}
model: [{conv: {out: 8, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 2, threads: 1}
Y
sed 's/  test: .*//' net.yaml >train.yaml
"$NNPIPE" train train.yaml -o "runs=$TMP/runs" >/dev/null || exit 1
run=$(ls -d "$TMP"/runs/net-*)
cat >again.py <<'P'
import csv, json, math, sys
report, done = [json.loads(line) for line in open(sys.argv[1]) if '"report"' in line or '"done"' in line]
rows = list(csv.DictReader(open(sys.argv[2], newline="")))
near = lambda a, b: abs(a - b) < 1e-6
names = [c["class"] for c in report["classes"]]
n = len(rows)
assert n == report["images"] == done["images"] > 10
assert near(sum(float(r["loss"]) for r in rows) / n, done["loss"])
assert near(report["top_accuracy"][0], done["accuracy"]) and near(report["top_accuracy"][4], done["top5_accuracy"])
for k, top in enumerate(report["top_accuracy"], 1):
    assert near(sum(int(r["rank"]) < k for r in rows) / n, top)
f1s = []
for c in report["classes"]:
    name = c["class"]
    tp = sum(r["label"] == r["predicted"] == name for r in rows)
    fp = sum(r["label"] != name == r["predicted"] for r in rows)
    fn = sum(r["label"] == name != r["predicted"] for r in rows)
    assert (c["images"], c["predicted"], c["correct"]) == (tp + fn, tp + fp, tp), name
    assert near(c["precision"], tp / (tp + fp) if tp + fp else 0)
    assert near(c["recall"], tp / (tp + fn) if tp + fn else 0)
    if tp + fp + fn:
        f1s.append(2 * tp / (2 * tp + fp + fn))
        assert near(c["f1"], f1s[-1])
assert near(report["macro"]["f1"], sum(f1s) / len(f1s))
cells = {(names[i], names[j]): images for i, j, images in report["confusion"]}
for (label, predicted), images in cells.items():
    assert images == sum(r["label"] == label and r["predicted"] == predicted for r in rows)
assert sum(cells.values()) == n
error = 0
for b, box in enumerate(report["calibration"]["bins"]):
    inside = [r for r in rows if b < float(r["probability"]) * 15 <= b + 1]
    assert len(inside) == box["images"]
    if inside:
        right = sum(r["label"] == r["predicted"] for r in inside)
        error += abs(right - sum(float(r["probability"]) for r in inside)) / n
assert near(error, report["calibration"]["error"])
for r in rows:
    assert float(r["own"]) == 0 or abs(-math.log(float(r["own"])) - float(r["loss"])) < 1e-5
worst = sorted((float(r["loss"]) for r in rows), reverse=True)[:24]
assert all(abs(w["loss"] - l) < 1e-5 for w, l in zip(report["worst"], worst)) and len(report["worst"]) == len(worst)
assert {w["path"] for w in report["worst"]} <= {r["path"] for r in rows}
if len(sys.argv) > 3: # the page's JSON has the same figures, and a picture for each of the worst
    page = open(sys.argv[3]).read()
    data = json.loads(page.split('id="evaluation">')[1].split("</script>")[0])
    for key in ("confusion", "classes", "calibration", "macro", "loss"):
        assert data[key] == report[key], key
    assert all(w["picture"].startswith("data:image/png;base64,") for w in data["worst"])
    assert page.count("</script") == 2 and "<!--" not in page and "<b>" not in page
P
figures() { # figures SET
    "$NNPIPE" eval net.yaml --weights "$run" --set "$1" --json --predictions "$1.csv" --html "$1.html" >"$1.json" &&
        python3 again.py "$1.json" "$1.csv" "$1.html"
}
t "the figures of a split folder are those of its answers, and the page has them" figures val
t "also of a set that is drawn" figures test
t "also of all training images" figures train
names() { grep -q "^\"<!--<b>&\"\"',x/" val.csv || grep -q "^\"<!--<b>&\"\"',x/" train.csv; }
t "a name with a comma and quotes is one cell" names
table() {
    "$NNPIPE" eval net.yaml --weights "$run" --set val --classes >classes.txt &&
        grep -q "^class  *images  *precision  *recall  *F1$" classes.txt &&
        grep -q "^mean of the classes " classes.txt &&
        grep -q "^val set, 24 images: loss " classes.txt && [ "$(grep -c '%' classes.txt)" -eq 11 ]
}
t "--classes prints a line for each class" table
plain() {
    "$NNPIPE" eval net.yaml --weights "$run" --set val >plain.txt && [ "$(wc -l <plain.txt)" -eq 2 ] &&
        grep -v '%  *[0-9]\|^class' classes.txt | sed 's/, [0-9]* img.*//' >rest.txt &&
        sed 's/, [0-9]* img.*//' plain.txt | diff - rest.txt
}
t "without these flags eval prints what it did" plain
no_folder() { says "none/p.html" exits 1 "$NNPIPE" eval net.yaml --weights "$run" --set val --html none/p.html; }
t "a page that cannot be written is a mistake" no_folder
mkfifo page.fifo && ln -s /dev/full full
into() {
    eval_val() { timeout 300 "$NNPIPE" eval net.yaml --weights "$run" --set val --html "$1"; }
    cat page.fifo >from_fifo.html &
    eval_val page.fifo >/dev/null && wait $! && grep -q '</html>' from_fifo.html && [ -p page.fifo ] &&
        eval_val /dev/stdout | grep -q '</html>' && [ -L full ] &&
        says "full: No space left on device" exits 1 eval_val full && [ -L full ]
}
t "a page goes into a pipe, standard output or a device, which stays" into

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
cat >look.py <<'P'
import os, sys
from browser import Browser
page = Browser(sys.argv[1], sys.argv[2])
try:
    page.open("file://" + sys.argv[3])
    page.wait('document.querySelectorAll("#worst img").length')
    got = page.see("""({ h1: document.querySelector("h1").textContent,
        rows: document.querySelectorAll("#classes tbody tr").length,
        cells: document.querySelectorAll(".matrix tbody td").length, bars: document.querySelectorAll(".got").length,
        shown: [...document.images].filter(i => i.complete && i.naturalWidth === 12).length,
        images: document.images.length,
        bold: document.querySelectorAll("figcaption div b").length, title: document.title })""")
    assert got["h1"].endswith("of 24 images are right") and got["rows"] == 9 and got["cells"] == 81, got
    assert got["bars"] > 0 and got["shown"] == got["images"] == 24 >= got["bold"] > 0, got
    assert got["title"] == "net: val" and not page.complaints, page.complaints
    assert all(url.startswith(("file://", "data:")) for url in page.asked), page.asked
finally:
    page.close()
P
if [ -n "$browser" ]; then
    export PYTHONPATH="$ROOT/tests/flow" PYTHONDONTWRITEBYTECODE=1
    t "a browser draws it" python3 look.py "$browser" "$TMP" "$TMP/val.html"
else
    skip "a browser draws it" "no chromium here"
fi
[ "$failed" -eq 0 ]
