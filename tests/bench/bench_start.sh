#!/bin/sh
# First batch of an index of 1.28 million samples (an IDX file of 8x8 pictures): seconds of the
# whole process, and its peak memory. The first run lists the set and writes the index; the others
# map it. The goal is 0.5 s.
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
python3 - "$out" <<'P'
import os, struct, sys
n = 1280000
with open(sys.argv[1] + "/images", "wb") as f:
    f.write(struct.pack(">BBBBIII", 0, 0, 8, 3, n, 8, 8) + os.urandom(64000) * (n // 1000))
with open(sys.argv[1] + "/labels", "wb") as f:
    f.write(struct.pack(">BBBBI", 0, 0, 8, 1, n) + bytes(range(100)) * (n // 100))
P
cat >"$out/big.yaml" <<Y
name: big
data: {train: {source: idx, path: $out/images, labels: $out/labels}}
loader: {batch: 64, readers: 2, channels: 1, augment: [flip]}
model: [global_avgpool, flatten, {linear: {out: classes}}]
train: {steps: 1}
Y
echo "| run | seconds, exec to exit | peak MiB |"
echo "|---|---|---|"
for run in "lists, writes the index" "maps the index" "maps the index" "maps the index"; do
    python3 - "$run" ./nnpipe bench loader "$out/big.yaml" --steps 1 --json <<'P' 3<&0
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
seconds = time.perf_counter() - start
print(f"| {sys.argv[1]} | {seconds:.2f} | {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} |")
P
done
