#!/bin/sh
# One epoch from a cold disk beside one from the page cache: 500 photographs of NNPIPE_DATA, each in a folder of its
# own and in a tar, and 20,000 CIFAR-10 JPEGs in ten folders; on the disk, and through a FUSE that adds 1 ms to each
# open and read (tests/fault/faulty_fs.c), as a file server does. As root, to drop the caches. Medians, in turns.
# IO_DIR: a folder on the disk to measure (0.3 GiB). ROUNDS: 5. NNPIPE: the program.
set -eu
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "not root" >&2; exit 1; }
out=$(mktemp -d -p "${IO_DIR:-/var/tmp}")
trap 'umount -l "$out/slow" 2>/dev/null; rm -rf "$out"' EXIT
mkdir -p "$out/disk/photos" "$out/disk/cifar" "$out/slow"
tar xf "${NNPIPE_DATA:?}/imagenet-sample-500.tar" -C "$out/disk/photos"
cp "$NNPIPE_DATA/imagenet-sample-500.tar" "$out/disk/photos.tar"
zstd -dcq "$NNPIPE_DATA/cifar10-jpeg.tar.zst" |
    tar x --wildcards -C "$out/disk/cifar" --strip-components=1 'train/*/[01]???.jpg'
# shellcheck disable=SC2046 # flags are words
if cc -O2 -o "$out/faulty_fs" tests/fault/faulty_fs.c $(pkg-config --cflags --libs fuse3) 2>/dev/null; then
    "$out/faulty_fs" "$out/disk" "$out/slow" && echo "latency 1" >"$out/slow/.control"
fi
XDG_CACHE_HOME=$out/cache python3 - "$out" "${NNPIPE:-./nnpipe}" "${ROUNDS:-5}" <<'P'
import json, os, statistics, subprocess, sys
out, program, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
places = ["disk"] + (["slow"] if os.path.exists(out + "/slow/.control") else [])
SETS = {"photographs, folder": ("photos", "{random_resized_crop: {size: [224]}}, flip"),
        "photographs, tar": ("photos.tar", "{random_resized_crop: {size: [224]}}, flip"),
        "20,000 CIFAR-10 files": ("cifar", "{random_crop: {size: 32, pad: 4}}, flip")}

def epoch(place, name, io, cold):
    path, augment = SETS[name]
    with open(out + "/c.yaml", "w") as f:
        f.write(f"""name: cold
data: {{train: {{source: {'tar' if path.endswith('.tar') else 'folder'}, path: {out}/{place}/{path}}}}}
loader: {{batch: 50, readers: 2, cache: none, entries: off, io: {io}, augment: [{augment}]}}
model: [global_avgpool, flatten, {{linear: {{out: classes}}}}]
train: {{steps: 1}}
""")
    words = [program, "bench", "loader", out + "/c.yaml", "--epochs", "1", "--json"]
    if not cold:
        subprocess.run(words, check=True, capture_output=True)
    else:
        subprocess.run([program, "data", "index", out + "/c.yaml"], check=True, capture_output=True)
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        subprocess.run([program, "version"], capture_output=True) # the program itself
        subprocess.run(["cat"] + [r + "/" + n for r, _, names in os.walk(out + "/cache") for n in names],
                       check=True, stdout=subprocess.DEVNULL)
    done = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return done["images_per_second"], done["cpu_seconds"] / done["images"] * 1e6

print("| set | from | `io` | images/s: median (least to most) | CPU us an image |\n|---|---|---|---|---|")
for name in SETS:
    cases = [("the page cache", "disk", "uring", False)]
    cases += [("a cold disk" if p == "disk" else "1 ms a call", p, io, True)
              for p in places for io in ("uring", "pread")]
    taken = [[] for _ in cases]
    for _ in range(rounds):
        for case, times in zip(cases, taken):
            times.append(epoch(case[1], name, case[2], case[3]))
    for case, times in zip(cases, taken):
        rates = [t[0] for t in times]
        print(f"| {name} | {case[0]} | {case[2]} | {statistics.median(rates):,.0f} ({min(rates):,.0f} to "
              f"{max(rates):,.0f}) | {statistics.median(t[1] for t in times):,.0f} |", flush=True)
P
