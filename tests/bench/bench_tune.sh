#!/bin/sh
# `nnpipe profile --tune` against an exhaustive grid (readers x depth x prefetch x cache), against threads =
# cores, and against as many trials drawn at random from the grid, on six workloads on the sim device. All
# are real runs, counted by the clock from outside (tests/bench/plants/rate.c); with a cache they are counted
# from the second epoch on. At the end the four choices run in turn, ROUNDS times there and back. Goals: within
# 3 % of the grid's best, in at most 15 trials, and never below the default or the random search.
#   WORKLOADS (all)  RUN_SECONDS (1)  ROUNDS (2)  CORES (as there are): grid's and search's cap of readers
# Needs `make plants` and python3; twenty minutes.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/nnpipe-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache"
./nnpipe data synth --out "$work/small" --samples 6000 --test 0 >/dev/null
./nnpipe data synth --out "$work/large" --samples 400 --test 0 --size 320 >/dev/null
./nnpipe data pack "$work"/large/train-*.tar* --out "$work/photos" >/dev/null
config() { # config NAME SET BATCH AUGMENT STEP_MS LOADER-KEYS [DISK]
    cat >"$work/$1.yaml" <<Y
name: $1
device: {sim: {h2d_gbps: 25, step_ms: $5}}
data: {train: {source: tar, path: "$work/$2/train-*.tar*"}}
loader: {batch: $3, augment: [$4, flip], $6}
model: [global_avgpool, flatten, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.1}}
train: {epochs: 1000000}
checkpoint: {every: never}
runs: $work/runs
Y
    : >"$work/$1.plant"
    [ -z "${7:-}" ] || echo "$7" | tr ' ' '\n' >"$work/$1.plant"
}
crop='{random_crop: {size: 32, pad: 4}}'
resize='{random_resized_crop: {size: 160}}'
config one-reader small 128 "$crop" 1 'readers: 1, cache: none'
config pictures photos 16 "$resize" 2 'cache: none'
config slow-to-answer small 128 "$crop" 2 'readers: 1, depth: 1, io: uring, cache: none' 'disk_latency_us=150'
config slow-disk photos 16 "$resize" 8 'io: uring, cache: none' 'disk_mbps=12'
config short-ring small 128 "$crop" 4 'prefetch: 2, cache: none'
config device-bound photos 16 "$resize" 40 'cache: none'
python3 - "$work" <<'PY'
import itertools, json, os, random, statistics, subprocess, sys
work = sys.argv[1]
seconds = os.environ.get("RUN_SECONDS", "1")
rounds = int(os.environ.get("ROUNDS", "2"))
cores = int(os.environ.get("CORES", len(os.sched_getaffinity(0))))
names = os.environ.get("WORKLOADS", "one-reader pictures slow-to-answer slow-disk short-ring device-bound").split()
rate, nnpipe = "build/tests/plants/rate", "build/tests/plants/nnpipe"
readers = sorted({1, cores // 2 or 1, cores})
grid = [dict(readers=r, depth=d, prefetch=p, cache=c)
        for r, d, p, c in itertools.product(readers, (1, 4, 16), (2, 8), ("none", "encoded", "decoded"))]

def run(name, knobs):
    """Images a second."""
    warmup = "epochs" if knobs.get("cache", "none") != "none" else "0.4"
    batch = 16 if name in ("pictures", "slow-disk", "device-bound") else 128
    words = [rate, warmup, seconds, nnpipe, "train", f"{work}/{name}.yaml", "--json"]
    for key, value in knobs.items():
        words += ["-o", f"loader.{key}={value}"]
    env = dict(os.environ, NNPIPE_SIM_PLANT=f"{work}/{name}.plant")
    out = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env).stdout
    return float(out.split()[0]) * batch if out else 0.0

def tune(name):
    env = dict(os.environ, NNPIPE_SIM_PLANT=f"{work}/{name}.plant")
    words = [nnpipe, "profile", f"{work}/{name}.yaml", "--tune", "--max-cores", str(cores), "--json",
             "--out", f"{work}/out"]
    lines = subprocess.run(words, capture_output=True, text=True, timeout=400, env=env).stdout.splitlines()
    tuned = next(json.loads(l) for l in lines if '"tuned"' in l)
    return {k.split(".", 1)[1]: v for k, v in tuned["settings"].items()}, len(tuned["trials"])

def text(knobs):
    return " ".join(f"{k} {v}" for k, v in knobs.items()) or "as it is"

print("| workload | trials | default | random | tuned | grid's best | tuned / best | tuned / default "
      "| tuned / random | tuned to | best is |")
print("|---|---|---|---|---|---|---|---|---|---|---|")
random.seed(7)
totals = dict(default=0, random=0, tuned=0, best=0)
for name in names:
    default = dict(readers=cores)
    seen = [(run(name, knobs), i) for i, knobs in enumerate(grid)]
    best = grid[max(seen)[1]]
    chosen, trials = tune(name)
    drawn = grid[max((run(name, grid[i]), i) for i in random.sample(range(len(grid)), trials))[1]]
    sides = dict(default=default, random=drawn, tuned=chosen, best=best)
    rates = {side: [] for side in sides}
    for _ in range(rounds):
        for side in list(sides) + list(sides)[::-1]:
            rates[side].append(run(name, sides[side]))
    r = {side: statistics.mean(values) for side, values in rates.items()}
    for side in totals:
        totals[side] += r[side] / r["best"] / len(names)
    print(f"| {name} | {trials} | {r['default']:,.0f} | {r['random']:,.0f} | {r['tuned']:,.0f} | {r['best']:,.0f} "
          f"| {r['tuned'] / r['best']:.3f} | {r['tuned'] / r['default']:.3f} | {r['tuned'] / r['random']:.3f} "
          f"| {text(chosen)} | {text(best)} |", flush=True)
print(f"| mean of shares of the best | | {totals['default']:.3f} | {totals['random']:.3f} | {totals['tuned']:.3f} "
      "| 1 | | | | | |")
PY
