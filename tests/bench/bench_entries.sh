#!/bin/sh
# The entries of JPEGs: the time to find those of the photographs of imagenet-sample-500.tar in $NNPIPE_DATA, their
# size, and what share of the bytes a cold epoch of random crops reads with them; then the store of 1.28 million
# made-up pictures with the same entries.
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
XDG_CACHE_HOME=$out/cache
export XDG_CACHE_HOME
mkdir -p "$out/photos" "$out/cache" "$out/coded" "$out/made"
tar xf "${NNPIPE_DATA:?}/imagenet-sample-500.tar" -C "$out/photos"
NNPIPE_PHOTOS=$out/photos
export NNPIPE_PHOTOS
python3 - "$out" <<'P'
import os, resource, struct, subprocess, sys, time
out = sys.argv[1]
files = [os.path.join(folder, f) for folder, _, names in os.walk(out + "/photos") for f in names]
size = sum(os.path.getsize(f) for f in files)
os.sync()

def used(words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, cpu, (after.ru_inblock - before.ru_inblock) * 512

def cold_epoch(entries):
    for f in files:
        fd = os.open(f, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    return used(["./nnpipe", "bench", "loader", "tests/bench/photos.yaml", "-o", "loader.batch=50", "-o",
                 "loader.cache=none", "-o", "loader.entries=" + entries, "--steps", "10"])[2] / size

used(["./nnpipe", "data", "index", "tests/bench/photos.yaml"])
seconds, cpu, _ = used(["./nnpipe", "data", "index", "--entries", "tests/bench/photos.yaml"])
print("| photographs | %d |\n|---|---|" % len(files))
print("| `data index --entries`, CPU us a picture | %.0f |" % (cpu * 1e6 / len(files)))
off, on = cold_epoch("off"), cold_epoch("auto")
print("| read by a cold epoch of random crops, share of the files' bytes | %.3f |" % off)
print("| with entries | %.3f |" % on)
folder = [d for d, _, names in os.walk(out + "/cache") if d.endswith(".entries")][0]
nr = 0
for name in sorted(os.listdir(folder)):
    if not name.endswith(".segment"):
        continue
    data = open(os.path.join(folder, name), "rb").read()
    n, at = struct.unpack_from("<I", data, 12)[0], 48  # struct np_segment_header, np_entries_record
    for _ in range(n):
        coded = struct.unpack_from("<I", data, at + 8)[0]
        open(out + "/coded/%05d" % nr, "wb").write(data[at + 24 : at + 24 + coded])
        nr, at = nr + 1, at + (24 + coded + 7) // 8 * 8
P
gcc -std=c11 -D_GNU_SOURCE -O2 -I. -o "$out/bench" tests/bench/bench_entries.c build/libnnpipe.a \
    $(pkg-config --libs libjpeg spng zlib libzstd libxxhash libcrypto jansson yaml-0.1 liburing) -lm -pthread
echo
echo "| 1.28 million pictures, made up | |"
echo "|---|---|"
find "$out/coded" -type f | sort | xargs "$out/bench" "$out/made"
