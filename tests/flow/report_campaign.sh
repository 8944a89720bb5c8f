#!/bin/sh
# What nnpipe writes for other programs, read by those programs: track.sh with TensorBoard, MLflow and W&B, and the
# figures of eval beside scikit-learn's. Makes a venv of 1 GiB, unless NNPIPE_TRACK_PYTHON names such a Python.
. "$(dirname "$0")/../lib.sh"
dir=${STATE:-$TMP}/report-venv
if [ -z "${NNPIPE_TRACK_PYTHON:-}" ]; then
    export NNPIPE_TRACK_PYTHON="$dir/bin/python"
    programs="tensorboard mlflow-skinny wandb scikit-learn"
    [ -e "$dir/done" ] || { python3 -m venv "$dir" && "$dir/bin/pip" -q install $programs && : >"$dir/done"; } \
        >"$TMP/pip.log" 2>&1 || {
            skip "other programs read what nnpipe writes" "$(tail -n 1 "$TMP/pip.log")"
            exit 0
        }
fi
bash "$ROOT/tests/flow/track.sh" >"$TMP/track.log" 2>&1 || failed=1
grep -E '^(ok|not ok|skip|#)' "$TMP/track.log"
! grep -q '^skip' "$TMP/track.log" || failed=1

cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
data: {train: {source: synth, samples: 256, size: 16}, test: {source: synth, samples: 500, size: 16, seed: 5}}
loader: {batch: 16}
model: [{conv: {out: 16, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
train: {epochs: 10}
runs: $TMP/runs
Y
cat >"$TMP/judge.py" <<'P'
import csv, json, sys
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support as figures
report = next(json.loads(line) for line in open(sys.argv[1]) if '"report"' in line)
rows = list(csv.DictReader(open(sys.argv[2], newline="")))
names = [c["class"] for c in report["classes"]]
truth, answer = [r["label"] for r in rows], [r["predicted"] for r in rows]
near = lambda a, b: abs(a - b) < 1e-9
for what, values in zip(("precision", "recall", "f1", "images"), figures(truth, answer, labels=names, zero_division=0)):
    assert all(near(c[what], value) for c, value in zip(report["classes"], values)), what
for kind in ("macro", "weighted"):
    for what, value in zip(("precision", "recall", "f1"), figures(truth, answer, average=kind, zero_division=0)):
        assert near(report[kind][what], value), (kind, what)
assert near(report["top_accuracy"][0], accuracy_score(truth, answer))
matrix = confusion_matrix(truth, answer, labels=names)
assert {(i, j): n for i, j, n in report["confusion"]} == {
    (i, j): int(n) for i, line in enumerate(matrix) for j, n in enumerate(line) if n}
P
judged() {
    "$NNPIPE" train "$TMP/net.yaml" >/dev/null && run=$(ls -d "$TMP"/runs/net-*) &&
        "$NNPIPE" eval --weights "$run" --json --predictions "$TMP/eval.csv" >"$TMP/eval.json" &&
        "$NNPIPE_TRACK_PYTHON" "$TMP/judge.py" "$TMP/eval.json" "$TMP/eval.csv"
}
t "scikit-learn has eval's figures" judged
[ "$failed" -eq 0 ]
