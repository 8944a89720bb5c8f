#!/bin/sh
# What --trace costs: whole runs with it and without, in blocks of four (plain, traced, traced,
# plain), the same work each. Prints a table: the change of seconds and of CPU seconds with 95 %
# confidence intervals (Student's t over the blocks' log ratios), spans and bytes a second. The
# goal is 2 %. A device without weight (sim, 0.05 ms a step) lets the readers run as fast as they
# can; on the CPU device they share the cores with the steps; pictures are of 224 pixels.
#   BLOCKS (10) STEPS (1000) RUNS (readers cpu pictures)
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/nnpipe-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache"
./nnpipe data synth --out "$work/data" --samples 4000 --test 64 >/dev/null
./nnpipe data pack "$work"/data/train-*.tar* --out "$work/plain" >/dev/null
./nnpipe data synth --out "$work/large" --samples 600 --test 8 --size 224 >/dev/null
./nnpipe data pack "$work"/large/train-*.tar* --out "$work/pictures" >/dev/null
cat >"$work/readers.yaml" <<Y
name: trace
device: {sim: {step_ms: 0.05}}
data:
  train: {source: tar, path: "$work/plain/train-*.tar"}
loader: {batch: 128, cache: none, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [flatten, linear: {out: classes}]
optimizer: {sgd: {lr: 1e-4}}
train: {steps: ${STEPS:-1000}, eval_every: never}
checkpoint: {every: never}
Y
head='flatten, {linear: {out: classes}}'
sed -e 's/^device:.*/device: cpu/' -e 's/steps: [0-9]*/steps: '"$((${STEPS:-1000} / 5))"'/' \
    -e "s/^model:.*/model: [{conv: {out: 16, kernel: 3, pad: 1}}, relu, {maxpool: {kernel: 4}}, $head]/" \
    "$work/readers.yaml" >"$work/cpu.yaml"
sed -e 's/steps: [0-9]*/steps: '"$((${STEPS:-1000} / 50))"'/' -e "s,$work/plain,$work/pictures," -e \
    's/size: 32, pad: 4/size: 224, pad: 8/' \
    "$work/readers.yaml" >"$work/pictures.yaml"
python3 - "$work" "${BLOCKS:-10}" <<'PY'
import json, math, os, resource, statistics, subprocess, sys
work, blocks = sys.argv[1], int(sys.argv[2])
T975 = [0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
        2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09]

def run(config, traced):
    args = ["./nnpipe", "train", f"{work}/{config}.yaml", "-o", f"runs={work}/runs", "--json"]
    if traced:
        args += ["--trace", f"{work}/trace.pftrace"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, said = process.communicate()
    if process.returncode:
        sys.exit(f"{' '.join(args)}: {said}")
    done = json.loads(out.splitlines()[-1])
    return done["train_seconds"], done["images"], said

def children(): # CPU seconds of all that have ended
    t = resource.getrusage(resource.RUSAGE_CHILDREN)
    return t.ru_utime + t.ru_stime

def interval(ratios):
    logs = [math.log(r) for r in ratios]
    mean = statistics.mean(logs)
    half = T975[min(len(logs) - 1, 20)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return [100 * (math.exp(x) - 1) for x in (mean, mean - half, mean + half)]

print("| run | images/s | spans/s | MB/s | seconds | CPU seconds |")
print("|---|---|---|---|---|---|")
for config in os.environ.get("RUNS", "readers cpu pictures").split():
    seconds, cpu, rates, spans, sizes, dropped = [], [], [], [], [], 0
    run(config, True)
    for block in range(blocks):
        took = {False: 0.0, True: 0.0}
        used = {False: 0.0, True: 0.0}
        for traced in (False, True, True, False):
            before = children()
            t, images, said = run(config, traced)
            took[traced] += t
            used[traced] += children() - before
            if traced:
                line = [l for l in said.splitlines() if l.startswith("trace: ")][0]
                spans.append(int(line.split()[1]) / t)
                sizes.append(os.path.getsize(f"{work}/trace.pftrace") / t)
                dropped += "dropped" in line or "left out" in line
            else:
                rates.append(images / t)
        seconds.append(took[True] / took[False])
        cpu.append(used[True] / used[False])
    cells = ["{:+.2f} % ({:+.2f} to {:+.2f})".format(*interval(x)) for x in (seconds, cpu)]
    print(f"| {config}, {blocks} blocks | {statistics.median(rates):,.0f} | {statistics.median(spans):,.0f} | "
          f"{statistics.median(sizes) / 1e6:.1f} | {cells[0]} | {cells[1]} |", flush=True)
    if dropped:
        print(f"\n{dropped} of these traces lack spans")
PY
