#!/bin/sh
# `nnpipe bench io` beside fio: the same engine, file, block size, threads and depth, in turns, the file dropped from
# the page cache before each. Both read each block once, in random order, through the page cache. fio runs with its
# hint to the kernel that reads are random and without; its better median counts. The goal is 90 %.
# IO_DIR: a folder on the disk to measure (needs 0.5 GiB). ROUNDS: 5. NNPIPE: the program.
set -eu
cd "$(dirname "$0")/../.."
command -v fio >/dev/null || { echo "fio is not installed" >&2; exit 1; }
dir=$(mktemp -d -p "${IO_DIR:-/var/tmp}")
trap 'rm -rf "$dir"' EXIT
python3 - "$dir" "${NNPIPE:-./nnpipe}" "${ROUNDS:-5}" <<'P'
import json, os, statistics, struct, subprocess, sys
folder, program, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
BYTES, THREADS, DEPTH, HEADER = 512 << 20, 2, 16, 16
SIZES = [("4 KiB", 64, 64), ("16 KiB", 128, 128), ("112 KiB", 256, 448), ("1 MiB", 1024, 1024)]

def make(height, width):
    n = BYTES // (height * width)
    with open(folder + "/images", "wb") as f:
        f.write(struct.pack(">BBBBIII", 0, 0, 8, 3, n, height, width))
        for _ in range(n):
            f.write(os.urandom(height * width))
        os.fsync(f.fileno())
    with open(folder + "/labels", "wb") as f:
        f.write(struct.pack(">BBBBI", 0, 0, 8, 1, n) + bytes(i % 10 for i in range(n)))
    with open(folder + "/io.yaml", "w") as f:
        f.write(f"""name: io
data: {{train: {{source: idx, path: {folder}/images, labels: {folder}/labels}}}}
loader: {{batch: 64, readers: {THREADS}, depth: {DEPTH}, channels: 1, augment: [{{resize: {{size: [16, 16]}}}}]}}
model: [global_avgpool, flatten, {{linear: {{out: classes}}}}]
train: {{steps: 1}}
""")
    return n

def last_json(words, first="{"):
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return json.loads(text[text.index(first):])

def nnpipe(engine, n, block):
    done = last_json([program, "bench", "io", folder + "/io.yaml", "--cold", "--epochs", "1", "--json", "-o",
                      "loader.io=" + engine], '{"event": "done"')
    return done["bytes_per_second"] / 1e6, done["cpu_seconds"] / done["reads"] * 1e6

# Each of fio's jobs reads its own part of the file.
def fio(engine, hint, n, block):
    part = n // THREADS * block
    read = last_json(["fio", "--name=io", f"--filename={folder}/images", "--readonly", "--rw=randread",
                      f"--bs={block}", f"--offset={HEADER}", f"--size={part}", f"--offset_increment={part}",
                      f"--ioengine={engine}", f"--iodepth={DEPTH}", f"--numjobs={THREADS}", "--direct=0",
                      f"--fadvise_hint={hint}", "--group_reporting", "--output-format=json"])["jobs"][0]
    cpu = (read["usr_cpu"] + read["sys_cpu"]) / 100 * read["read"]["runtime"] * 1e3 * THREADS
    return read["read"]["bw_bytes"] / 1e6, cpu / read["read"]["total_ios"]

print("| block | engine | fio MB/s | nnpipe MB/s: median (least to most) | nnpipe / fio "
      "| CPU us a read: fio | nnpipe |")
print("|---|---|---|---|---|---|---|")
for name, height, width in SIZES:
    block = height * width
    n = make(height, width)
    for ours, theirs in (("uring", "io_uring"), ("pread", "psync")):
        works = [lambda: nnpipe(ours, n, block), lambda: fio(theirs, 0, n, block), lambda: fio(theirs, 1, n, block)]
        taken = [[], [], []]
        for r in range(rounds):
            for w in range(3):
                taken[(w + r) % 3].append(works[(w + r) % 3]())
        rates = [[t[0] for t in times] for times in taken]
        us = [statistics.median(t[1] for t in times) for times in taken]
        mine, best = statistics.median(rates[0]), max((1, 2), key=lambda i: statistics.median(rates[i]))
        peer = statistics.median(rates[best])
        print(f"| {name} | {ours}, {theirs} | {peer:,.0f} "
              f"| {mine:,.0f} ({min(rates[0]):,.0f} to {max(rates[0]):,.0f}) | "
              f"{mine / peer:.2f} | {us[best]:.1f} | {us[0]:.1f} |", flush=True)
P
