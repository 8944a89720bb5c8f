#!/bin/sh
# What the always-on counters cost: the program against a build of it that counts nothing (NP_NO_STAT, in
# a folder of its own), the same work each, in blocks of four runs (with, without, without, with). Prints
# for each case the median change of a block's seconds and of its CPU seconds with a 95 % confidence
# interval (bootstrap over the blocks), and what one count of each kind takes here. The goal is 0.5 %.
#   loader: batches of small packed pictures, as fast as two readers can: the most counts a second
#   cached: the same from memory: the least work a count
#   train:  a whole run on the sim device without weight
#   BLOCKS (15), RUN_SECONDS (2) of a loader's run, STEPS (600) of the run
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/nnpipe-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache"
make nnpipe >/dev/null
make B=build-nostat NNPIPE=build-nostat/nnpipe OPT='-O2 -g -DNP_NO_STAT' build-nostat/nnpipe >/dev/null
./nnpipe data synth --out "$work/data" --samples 4000 --test 64 >/dev/null
cat >"$work/loader.yaml" <<Y
name: counters
device: {sim: {h2d_gbps: 25, step_ms: 0.05}}
data:
  train: {source: tar, path: "$work/data/train-*.tar*"}
loader: {batch: 128, readers: 2, cache: none, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [flatten, linear: {out: classes}]
optimizer: {sgd: {lr: 0.1}}
train: {steps: ${STEPS:-600}, eval_every: never}
checkpoint: {every: never}
Y
sed 's/cache: none/cache: decoded/' "$work/loader.yaml" >"$work/cached.yaml"
${CC:-cc} -O2 -D_GNU_SOURCE -I. tests/bench/counter_cost.c build/libnnpipe.a -o "$work/counter_cost" -pthread -lm \
    -lxxhash
"$work/counter_cost"
echo
python3 - "$work" "${BLOCKS:-15}" "${RUN_SECONDS:-2}" <<'PY'
import json, os, random, statistics, subprocess, sys
work, blocks, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3]
programs = {True: "./nnpipe", False: "build-nostat/nnpipe"}
cases = {
    "loader": ["bench", "loader", f"{work}/loader.yaml", "--seconds", seconds, "--json"],
    "cached": ["bench", "loader", f"{work}/cached.yaml", "--seconds", seconds, "--json"],
    "train": ["train", f"{work}/loader.yaml", "-o", f"runs={work}/runs", "--json"],
}

def run(case, counts):
    """Wall and CPU seconds an image."""
    before = os.times()
    process = subprocess.run([programs[counts], *cases[case]], capture_output=True, text=True)
    after = os.times()
    if process.returncode:
        sys.exit(f"{case}: {process.stderr}")
    done = json.loads(process.stdout.splitlines()[-1])
    rate = done["images_per_second"]
    images = done.get("images") or rate * done["seconds"]
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return 1 / rate, cpu / images

def interval(changes):
    random.seed(1)
    medians = sorted(statistics.median(random.choices(changes, k=len(changes))) for _ in range(4000))
    return statistics.median(changes), medians[100], medians[3899]

print("| case | images/s | seconds | CPU seconds |")
print("|---|---|---|---|")
for case in cases:
    run(case, True), run(case, False)
    wall, cpu, rates = [], [], []
    for _ in range(blocks):
        took = {True: [0, 0], False: [0, 0]}
        for counts in (True, False, False, True):
            result = run(case, counts)
            took[counts] = [a + b for a, b in zip(took[counts], result)]
            rates.append(1 / result[0])
        wall.append(100 * (took[True][0] / took[False][0] - 1))
        cpu.append(100 * (took[True][1] / took[False][1] - 1))
    cells = ["{:+.2f} % ({:+.2f} to {:+.2f})".format(*interval(x)) for x in (wall, cpu)]
    print(f"| {case}, {blocks} blocks | {statistics.median(rates):,.0f} | {cells[0]} | {cells[1]} |", flush=True)
PY
