#!/bin/sh
# nnpipe replay: the rows of any step of a run again, also of one that was stopped, resumed and made longer,
# whose bad samples were replaced and whose set is split; and its errors.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out drawn --samples 61 --test 8 --size 12 >/dev/null &&
    "$NNPIPE" data pack drawn/train-00000.tar.zst --raw --out raw >/dev/null && mkdir set &&
    tar -C set -xf raw/*.tar || exit 1
n=0
for f in set/*/*.ppm; do # three pictures are damaged
    n=$((n + 1))
    case $n in 7 | 30 | 52) printf 'P6 12 12' >"$f" ;; esac
done
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: folder, path: set}, split: 20%}
loader:
  batch: 7
  augment: [{random_crop: {size: 10, pad: 2}}, flip]
  test_augment: [{center_crop: {size: 10}}]
  bad_samples: {policy: replace, budget: 50%}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
train: {epochs: 2, history: true, threads: 1}
checkpoint: {every: 3 steps, keep: 100}
Y
"$NNPIPE" train net.yaml --json >out.json 2>err || { cat err; exit 1; }
run=$(ls -d runs/net-*)
rm -rf "$run/result.json" "$run"/checkpoints/step-1[0-9] "$run"/checkpoints/last # as if killed after step 9
"$NNPIPE" train --resume "$run" -o train.epochs=3 -o optimizer.sgd.lr=0.01 >out 2>&1 || { cat out; exit 1; }

t "every row of every step is the one that was trained on" python3 "$ROOT/tests/flow/replay_rows.py" "$run" "$NNPIPE"
t "the table names rows, classes, crops and files" says "cut" "$NNPIPE" replay "$run" --step 20 --out t
t "the last step is that of the resumed run's length" says "step 20 of 21 (21 in metrics.jsonl): 7 rows" \
    "$NNPIPE" replay "$run" --step 20 --out t
t "replaced rows are counted" says "rows, 1 of them in place of bad samples" "$NNPIPE" replay "$run" --step 0 --out t
t "the beginning of a run's name is enough" "$NNPIPE" replay net- --step 0 --out t
t "a step beyond the run" says "the last one is --step 20" exits 2 "$NNPIPE" replay "$run" --step 21
t "a row beyond the batch" says "the last one is --row 6" exits 2 "$NNPIPE" replay "$run" --step 2 --row 7
t "a step that is no number" says "--step takes a number" exits 2 "$NNPIPE" replay "$run" --step last
t "no step" says "expected RUN --step N" exits 2 "$NNPIPE" replay "$run"
t "a run that is not there" says "nowhere: no run" exits 2 "$NNPIPE" replay nowhere --step 1
t "a key that would make other rows" says "seed was" exits 2 "$NNPIPE" replay "$run" --step 1 -o seed=5
t "a folder that cannot be written" says "net.yaml" exits 1 "$NNPIPE" replay "$run" --step 1 --out net.yaml
crc() { sed -n 's/.*"crc32c": "\([0-9a-f]*\)".*/\1/p' "$1/rows.jsonl" | tr '\n' ' '; }
moved() {
    cp -r set elsewhere && mv set gone && "$NNPIPE" replay "$run" --step 5 --out moved -o data.train.path=elsewhere
    code=$?
    says "set" exits 2 "$NNPIPE" replay "$run" --step 5 --out t || code=1
    mv gone set
    [ $code -eq 0 ] && [ "$(crc moved)" = "$(crc "$run/replay-step5")" ]
}
t "a set that was moved gives the same rows" moved
other_name() {
    f=$(ls set/*/*.ppm | tail -n 1)
    mv "$f" "${f%.ppm}-.ppm" && says "other names or labels" exits 2 "$NNPIPE" replay "$run" --step 1 --out t
    code=$?
    mv "${f%.ppm}-.ppm" "$f"
    return $code
}
t "a set with another name is another set" other_name
one_less() {
    f=$(ls set/*/*.ppm | tail -n 1)
    mv "$f" kept && says "had 61 when the run began" exits 2 "$NNPIPE" replay "$run" --step 1 --out t
    code=$?
    mv kept "$f"
    return $code
}
t "a set with fewer pictures is another set" one_less
rewritten() {
    f=$(ls set/*/*.ppm | tail -n 1)
    cp "$f" kept && printf more >>"$f" && touch set/* && says "another size" "$NNPIPE" replay "$run" --step 1 --out t
    code=$?
    mv kept "$f"
    return $code
}
t "a file of another size is mentioned" rewritten
early() {
    cp -r "$run" runs/early && rm -r runs/early/checkpoints &&
        says "has no checkpoint" "$NNPIPE" replay runs/early --step 3 --out early &&
        [ "$(crc early)" = "$(crc "$run/replay-step3")" ]
}
t "a run without a checkpoint is replayed, with a note" early
# Weights that do not move: the loss of a row depends on its pixels and label alone, and predict gives it.
losses() {
    "$NNPIPE" train net.yaml -o runs=still -o optimizer.sgd.lr=1e-30 -o train.sample_losses=true >out 2>&1 || return 1
    still=$(ls -d still/net-*)
    for step in 0 6 13; do # the first, one of two epochs, the last
        "$NNPIPE" replay "$still" --step $step --json >rows && "$NNPIPE" predict --weights "$still" --top 8 --json \
            "$still/replay-step$step"/row*.png >guesses && python3 - "$still" rows guesses $step <<'P' || return 1
import json
import math
import struct
import sys
run, rows, guesses, step = sys.argv[1:5]
data = open(run + "/sample_losses.bin", "rb").read()
losses = struct.unpack_from("<7f", data, 24 + (8 + 4 * 7) * int(step) + 8)
guesses = [guess for guess in map(json.loads, open(guesses)) if "top" in guess]
rows = list(map(json.loads, open(rows)))
assert len(rows) == len(guesses) == 7
for row, guess, loss in zip(rows, guesses, losses):
    share = {top["class"]: top["probability"] for top in guess["top"]}[row["class"]]
    assert abs(-math.log(share) - loss) < 1e-4 * loss, (row, share, loss)
assert len(set(losses)) == 7
P
    done
}
t "the replayed pictures have the losses that were trained on" losses
[ "$failed" -eq 0 ]
