#!/bin/sh
# predict: files, folders, globs, lists and pipes, in batches; text, JSON and CSV; bad images are named and counted.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out "$TMP/data" --samples 40 --test 30 --size 16 >/dev/null || exit 1
mkdir p && for f in "$TMP"/data/test-*.tar.zst; do tar -xf "$f" -C p; done
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: tar, path: "$TMP/data/train-*.tar*"}, test: {source: folder, path: "$TMP/p"}}
loader: {batch: 7, test_augment: [{resize: 14}, {center_crop: {size: 12}}],
  augment: [{random_resized_crop: {size: 12}}]}
model: [{conv: {out: 8, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 2, threads: 1}
Y
"$NNPIPE" train net.yaml -o "runs=$TMP/runs" >/dev/null || exit 1
run=$(ls -d "$TMP"/runs/net-*)
n=$(find p -type f | wc -l)
predict() { "$NNPIPE" predict --weights "$run" "$@"; }

cat >compare.py <<'P'
import csv, json, sys
lines = [json.loads(line) for line in open("p.jsonl")]
rows = list(csv.reader(open("p.csv", newline="")))
answers = {r["path"]: r for r in csv.DictReader(open("eval.csv", newline=""))}
assert rows[0] == ["path"] + [f"{what}_{k}" for k in (1, 2, 3) for what in ("class", "probability")]
assert len(lines) == len(rows) - 1 == len(answers) == int(sys.argv[1])
assert [line["path"] for line in lines] == sorted(line["path"] for line in lines)
text = open("p.txt").read().splitlines()
for line, row, said in zip(lines, rows[1:], text):
    assert line["path"] == row[0] and line["class"] == line["top"][0]["class"] and len(line["top"]) == 3
    assert row[1:] == [str(x) for top in line["top"] for x in (top["class"], "%.6g" % top["probability"])]
    tops = ["%s %.2f%%" % (t["class"], 100 * t["probability"]) for t in line["top"]]
    assert said == row[0] + ": " + ", ".join(tops), said
    answer = answers[line["path"][2:]]
    assert answer["predicted"] == line["class"]
    assert abs(float(answer["probability"]) - line["probability"]) < 1e-6
P
formats() {
    predict p --top 3 --out p.jsonl && predict p --top 3 --format csv >p.csv && predict p --top 3 >p.txt &&
        predict p --top 3 --json | cmp - p.jsonl &&
        "$NNPIPE" eval --weights "$run" --predictions eval.csv >/dev/null && python3 compare.py "$n"
}
t "text, JSON and CSV agree with each other, and with eval's answers" formats
one_by_one() {
    predict p --top 3 --out one.csv -o loader.batch=1 && python3 - <<'P'
import csv
both = [list(csv.reader(open(name, newline="")))[1:] for name in ("p.csv", "one.csv")]
for a, b in zip(*both):
    assert a[:2] == b[:2] and abs(float(a[2]) - float(b[2])) < 1e-5, (a, b)
assert len(both[0]) == len(both[1])
P
}
t "the batch changes no answer" one_by_one
paths() { cut -d , -f 1 | tail -n +2; }
places() {
    predict 'p/ring/*.jpg' --format csv | paths >got && ls p/ring/*.jpg | cmp - got || return 1
    { ls p/star/*; echo; echo 'p/r*'; } >list.txt
    { ls p/star/*; ls p/ring/*; ls p/rod/*; } >want
    for how in "--list list.txt" "@list.txt"; do
        predict $how --format csv | paths | cmp - want || return 1
    done
    predict --list - --format csv <list.txt | paths | cmp - want &&
        (cd p && predict ../p/star --format csv) | paths >got && (cd p && ls -d ../p/star/*) | cmp - got
}
t "globs, lists and folders, in order" places
pipe() {
    first=$(ls p/star/* | head -n 1)
    predict "$first" --format csv | tail -n 1 | cut -d , -f 2- >want &&
        predict /dev/stdin --format csv <"$first" | tail -n 1 | cut -d , -f 2- | cmp - want &&
        cat "$first" | predict /dev/stdin --format csv | tail -n 1 | cut -d , -f 2- | cmp - want
}
t "a pipe" pipe
bad() {
    echo no >bad.jpg
    mkdir -p empty && printf 'p/ring\nbad.jpg\nmissing.png\n%05000d\np/star\n' 7 >list.txt
    exits 1 predict @list.txt --out bad.csv 2>err || return 1
    grep -q "bad.jpg: neither JPEG, PNG nor PNM" err && grep -q "missing.png: cannot be opened: No such file" err &&
        [ "$(wc -l <bad.csv)" -eq $((1 + $(ls p/ring p/star | grep -c jpg))) ] &&
        grep -q "^$(($(wc -l <bad.csv) + 2)) images, 3 bad ones$" err
}
t "bad images are named and counted, the others are classified" bad
mistakes() {
    exits 1 predict 'none*.jpg' 2>err && grep -q "none\*.jpg: no file matches" err &&
        exits 1 predict --list none.txt 2>err && grep -q "none.txt: cannot be opened" err &&
        : >none.txt && exits 1 predict @none.txt 2>err && grep -q "the lists name no image" err &&
        exits 1 predict p --out none/p.csv 2>err && grep -q "none/p.csv: cannot be opened" err &&
        exits 1 predict p --out /dev/full --format csv 2>err && grep -q "/dev/full: cannot be written: No space" err &&
        exits 2 predict p --format xml 2>err && grep -q "takes text, jsonl or csv, not xml" err
}
t "what cannot be read or written is named" mistakes
[ "$failed" -eq 0 ]
