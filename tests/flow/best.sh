#!/bin/sh
# train.best: the evaluation with the best accuracy, loss, top-5 accuracy or F1 makes the best checkpoint; also after a
# resume, and after a resume with another metric.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: synth, samples: 128, size: 12}, test: {source: synth, samples: 60, size: 12, seed: 3}}
loader: {batch: 8, share: off}
model: [{conv: {out: 8, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.3, momentum: 0.9}}
train: {epochs: 8, threads: 1}
checkpoint: {keep: 100}
Y
cat >want.py <<'P'
import json, sys
key, sign, metrics = sys.argv[1], float(sys.argv[2]), sys.argv[3]
first = int(sys.argv[4]) if len(sys.argv) > 4 else 0
rows = [r for r in map(json.loads, open(metrics)) if r["event"] == "eval" and r["step"] >= first]
best = max(rows, key=lambda r: sign * r["test_" + key])
assert len(rows) > 2 and len({r["test_" + key] for r in rows}) > 1
assert key == "accuracy" or [r["step"] for r in rows if r["best"]][-1] == best["step"]
print(best["step"])
P
best() { # best METRIC KEY SIGN
    "$NNPIPE" train net.yaml -o "runs=runs-$1" -o "train.best=$1" >/dev/null && run=$(ls -d runs-$1/net-*) &&
        want=$(python3 want.py "$2" "$3" "$run/metrics.jsonl") && [ -n "$want" ] &&
        [ "$(readlink "$run/checkpoints/best")" = "step-$want" ] &&
        grep -q "\"best_step\": $want," "$run/result.json" &&
        "$NNPIPE" runs "runs-$1" --json | grep -q "\"best_step\": $want[,}]" &&
        rm "$run/result.json" && "$NNPIPE" runs "runs-$1" --json | grep -q "\"best_step\": $want[,}]"
}
t "the highest accuracy" best accuracy accuracy 1
t "the lowest loss" best loss loss -1
t "the highest top-5 accuracy" best top5 top5_accuracy 1
t "the highest F1" best f1 f1 1
plain() { ! grep -q '"best"\|_f1' runs-accuracy/net-*/metrics.jsonl; }
t "by default the evaluations' lines are as ever" plain
f1() { # of the last evaluation, as eval has it
    run=$(ls -d runs-f1/net-*)
    "$NNPIPE" eval --weights "$run:last" --json >f1.json &&
        sed -n 's/.*"macro": {"precision": [^,]*, "recall": [^,]*, "f1": \([^}]*\)}.*/\1/p' f1.json >f1.txt &&
        grep -qF "\"test_f1\": $(cat f1.txt)," "$run/metrics.jsonl" && [ -s f1.txt ]
}
t "its F1 is eval's" f1
resumed() { # resumed METRIC KEY SIGN: from the middle, with the metric of the run that began with accuracy
    rm -rf again && cp -r runs-accuracy again && run=$(ls -d again/net-*) &&
        for step in 96 112 128; do rm -r "$run/checkpoints/step-$step"; done
    begin=$(sed -n 's/.*"best_step": \([0-9]*\).*/\1/p' \
        "$run/checkpoints/step-80/manifest.json" | head -n 1)
    "$NNPIPE" train --resume "$run" -o "train.best=$1" >/dev/null || return 1
    python3 - "$2" "$3" "$run" "$begin" <<'P'
import json, os, sys
key, sign, run, begin = sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
rows = {r["step"]: r for r in map(json.loads, open(run + "/metrics.jsonl")) if r["event"] == "eval"}
best = begin
for step in (96, 112, 128): # the best so far keeps its place until one is better by this metric
    old = rows[best].get("test_" + key)
    if old is None or sign * rows[step]["test_" + key] > sign * old:
        best = step
assert os.readlink(run + "/checkpoints/best") == f"step-{best}", (best, os.readlink(run + "/checkpoints/best"))
P
}
t "a resumed run goes on" resumed accuracy accuracy 1
t "with the loss instead" resumed loss loss -1
t "with F1, which the older evaluations lack" resumed f1 f1 1
[ "$failed" -eq 0 ]
