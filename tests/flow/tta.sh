#!/bin/sh
# train.tta: evaluations of a run, eval and predict take the mean of the logits over views; the same mean is made here
# from the answers for pictures that were mirrored and shifted before, on the CPU and on the emulated GPU.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: folder, path: set}, test: {source: folder, path: set}}
loader: {batch: 4, readers: 1, share: off, normalize: {mean: [0.3, 0.4, 0.5], std: [0.1, 0.2, 0.3]}}
model: [{conv: {out: 6, kernel: 3, pad: 1}}, batchnorm, relu, {dropout: {rate: 0.2}}, flatten, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.02}}
train: {epochs: 2, threads: 1}
checkpoint: {every: never}
Y
# 7 pictures (7, 5), their views as files, and symmetric ones; pictures are PPM
python3 - <<'P'
import os, random
rng = random.Random(5)
H, W = 5, 7


def write(path, rows):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"P6 %d %d 255\n" % (W, H) + bytes(v for row in rows for pixel in row for v in pixel))


def shifted(rows, by):  # padded by one pixel on each side, reflected, then cut at (1 + by, 1 + by)
    padded = [[row[1]] + row + [row[-2]] for row in [rows[1]] + rows + [rows[-2]]]
    return [row[1 + by:1 + by + W] for row in padded[1 + by:1 + by + H]]


for i in range(7):
    rows = [[[rng.randrange(256) for _ in range(3)] for _ in range(W)] for _ in range(H)]
    write(f"set/{'abc'[i % 3]}/{i}.ppm", rows)
    for v, by in enumerate((0, -1, 1)):
        write(f"views/{i}-{2 * v}.ppm", shifted(rows, by))
        write(f"views/{i}-{2 * v + 1}.ppm", [row[::-1] for row in shifted(rows, by)])
    write(f"pictures/{i}.ppm", rows)
    write(f"symmetric/{i}.ppm", [row[:3] + [row[3]] + row[2::-1] for row in rows])
P
train() { # train RUNS CHANGE...
    out=$1
    shift
    rm -rf "$out" && "$NNPIPE" train net.yaml -o "runs=$out" "$@" --json >"$out.json" && run=$(ls -d "$out"/net-*)
}
t "a run trains with it and names it" train runs -o train.tta=flip_shift
run=$(ls -d runs/net-*)
first=$run
named() {
    grep -q '"event": "start".*"tta": "flip_shift"' runs.json &&
        grep -q 'evaluations take the mean of 6 views of each image (train.tta: flip_shift)' "$run/log"
}
t "in its log, too" named

# asks OUT PICTURES ARGUMENT...: the probabilities of all classes for each picture
asks() {
    out=$1 pictures=$2
    shift 2
    "$NNPIPE" predict --weights "$run" "$pictures" --top 3 --json "$@" >"$out" 2>"$out.err" || {
        cat "$out.err" "$out"
        return 1
    }
}
# the mean of the logits is that of the log-probabilities, but for a constant
means() { # means OFF ARGUMENT...
    off=$1
    shift
    asks views.txt views --tta none "$@" && asks flip.txt pictures --tta flip "$@" &&
        asks shift.txt pictures "$@" && grep -q 'the mean of 6 views (train.tta: flip_shift)' shift.txt.err || return 1
    python3 - "$off" <<'P'
import json, math, os, sys


def read(path):
    found = {}
    for line in open(path):
        line = json.loads(line)
        if "top" in line:
            found[os.path.basename(line["path"])[:-4]] = {c["class"]: c["probability"] for c in line["top"]}
    return found


views, worst, moved = read("views.txt"), 0, 0
for file, weights in ("flip.txt", [1 / 2] * 2), ("shift.txt", [1 / 4] * 2 + [1 / 8] * 4):
    got = read(file)
    assert len(got) == 7, got
    for name, answer in got.items():
        assert len(answer) == 3
        mean = {c: math.exp(sum(w * math.log(views[f"{name}-{v}"][c]) for v, w in enumerate(weights))) for c in answer}
        total = sum(mean.values())
        for c in answer:
            worst = max(worst, abs(mean[c] / total - answer[c]))
            moved = max(moved, abs(answer[c] - views[f"{name}-0"][c]))
print(worst, moved)
assert worst < float(sys.argv[1]) and moved > 0.01, (worst, moved)
P
}
t "predict's answers are the means of those for the views" means 1e-6
t "in bf16, too" means 0.01 -o precision=bf16
t "in batches of other sizes and with other threads, too" means 1e-6 -o loader.batch=3 -o train.threads=3
same() { # same ARGUMENT...: predict gives the same with and without flip
    asks with.txt symmetric --tta flip "$@" && asks without.txt symmetric --tta none "$@" &&
        [ "$(wc -l <with.txt)" -ge 7 ] && diff with.txt without.txt
}
t "pictures that are their own mirror images have the answers that they have without it" same

as_run() { # the run's evaluation is eval's, to the last digit; that without views is another
    "$NNPIPE" eval --weights "$run" "$@" --json >eval.json && "$NNPIPE" eval --weights "$run" --tta none "$@" --json \
        >none.json && [ -n "$(field loss eval.json)" ] && [ "$(field tta eval.json)" = flip_shift ] &&
        [ "$(field loss eval.json)" = "$(field test_loss runs.json)" ] &&
        [ "$(field loss none.json)" != "$(field loss eval.json)" ]
}
t "eval's loss is the run's" as_run
cached() { as_run -o loader.cache=device; }
t "and with pictures in the device's memory" cached
reported() {
    "$NNPIPE" eval --weights "$run" --tta flip --html page.html --predictions answers.csv >eval.txt 2>&1 &&
        grep -q 'evaluating in f32 on cpu, .*; the mean of 2 views (train.tta: flip)' eval.txt &&
        grep -q '"tta": *"flip"' page.html &&
        "$NNPIPE" predict --weights "$run" --tta flip set --top 1 --json 2>/dev/null >one.txt && python3 - <<'P'
import csv, json, os
answers = {os.path.basename(row["path"]): float(row["probability"]) for row in csv.DictReader(open("answers.csv"))}
for line in open("one.txt"):
    line = json.loads(line)
    if "top" in line:
        assert abs(answers.pop(os.path.basename(line["path"])) - line["probability"]) < 1e-5, line
assert not answers, answers
P
}
t "eval's page and its answers for each image are those of the mean" reported

resumed() { # plateau and best checkpoints judge the mean; a resumed run ends with the same weights
    train whole -o train.tta=flip -o 'schedule={plateau: {patience: 0, gamma: 0.5}}' -o train.epochs=6 \
        -o 'checkpoint={every: 1 step, keep: 100}' && whole=$(field weights_sha256 whole.json) || return 1
    rm -rf "$run/result.json" "$run"/checkpoints/step-[4-9] "$run"/checkpoints/step-1? &&
        exits 2 "$NNPIPE" train net.yaml --resume "$run" -o train.tta=none -o train.epochs=6 \
            -o 'schedule={plateau: {patience: 0, gamma: 0.5}}' 2>err.txt &&
        grep -q 'train.tta was flip and is none' err.txt &&
        "$NNPIPE" train --resume "$run" --json >again.json && [ -n "$whole" ] &&
        [ "$(field weights_sha256 again.json)" = "$whole" ]
}
t "with plateau a run resumes with the same weights, and only with its own tta" resumed
free() { # without it the key changes no weight
    train other -o train.epochs=2 && none=$(field weights_sha256 other.json) && [ -n "$none" ] &&
        [ "$none" = "$(field weights_sha256 runs.json)" ]
}
t "weights do not depend on it" free
changed() {
    rm -f "$run/result.json" &&
        "$NNPIPE" train net.yaml --resume "$run" -o train.tta=flip -o train.epochs=3 --json >more.json
}
t "without plateau and stop a resumed run may change it" changed
t "a word that is none of it is refused by the config" exits 2 "$NNPIPE" check net.yaml -o train.tta=flips
t "and by --tta, which lists them" says "--tta takes none, flip or flip_shift, not flips" \
    exits 2 "$NNPIPE" eval --weights "$run" --tta flips
t "flip_shift of pictures of one pixel is refused" says "flip_shift moves pictures by a pixel, and these are 1 x 1" \
    exits 2 "$NNPIPE" train net.yaml -o train.tta=flip_shift -o 'loader.test_augment=[{center_crop: {size: 1}}]' \
    -o 'loader.augment=[{random_crop: {size: 1}}]' \
    -o 'model=[flatten, {linear: {out: classes}}]'

if use_emulated_gpu "the answers of the emulated GPU are the means, too"; then
    run=$first
    t "the answers of the emulated GPU are the means, too" means 1e-6 -o device=cuda:0
    t "in f16" means 0.003 -o precision=f16 -o device=cuda:0
    as_cpu() {
        train gpu --device cuda:0 -o train.tta=flip_shift && close_to test_loss gpu.json runs.json 1e-4
    }
    t "a run's evaluation there is the CPU's" as_cpu
fi
[ "$failed" -eq 0 ]
