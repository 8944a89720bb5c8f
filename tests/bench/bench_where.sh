#!/bin/sh
# Where a sample's CPU time goes: `perf` over the loader on the photographs of imagenet-sample-500.tar in
# $NNPIPE_DATA, in the first epoch and with entries; functions are counted by the file they are compiled from, the
# kernel's as one. Microseconds an image and their share; and how many cores would feed an H200.
set -eu
cd "$(dirname "$0")/../.."
command -v perf >/dev/null || { echo "perf is missing (linux-perf)" >&2; exit 1; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
XDG_CACHE_HOME=$out/cache NNPIPE_PHOTOS=$out/photos
export XDG_CACHE_HOME NNPIPE_PHOTOS
mkdir -p "$out/photos" "$out/cache"
tar xf "${NNPIPE_DATA:?}/imagenet-sample-500.tar" -C "$out/photos"
for object in $(find build/loader build/daemon -name '*.o'); do # a function's file: static names, too
    nm --defined-only "$object" | awk -v file="${object#build/}" '$2 ~ /[tT]/ { print $3, file }'
done >"$out/functions"
where() { # where TITLE ARGUMENTS...: a table and its bars
    title=$1
    shift
    set -- ./nnpipe bench loader tests/bench/photos.yaml -o loader.batch=50 -o loader.cache=none --epochs 20 --json "$@"
    "$@" >"$out/json" # without perf, which costs time itself
    perf record -q -o "$out/data" -e cpu-clock -F 2000 "$@" >/dev/null 2>&1
    perf report -q -i "$out/data" --stdio --percentage absolute -F overhead,symbol 2>/dev/null >"$out/report"
    python3 - "$out" "$title" <<'P'
import collections, json, os, sys
out, title = sys.argv[1:]
file_of = dict(line.split() for line in open(out + "/functions"))
done = json.loads(open(out + "/json").read().splitlines()[-1])
us = done["cpu_seconds"] / done["images"] * 1e6
rooms = [("entropy decoding", ("jpeg_entropy", "jpeg_segments", "jpeg_lanes")),
         ("inverse DCT, upsampling, colour", ("jpeg_rows", "jpeg_avx2", "jpeg_avx512", "jpeg_kernels")),
         ("other of the decoder", ("jpeg", "jpeg_header", "codec", "codec_jpeg")),
         ("resize", ("resize",)), ("checksums", ("crc32c",)), ("entries", ("entries", "row_entries"))]

def room_of(symbol):
    kind, name = symbol.split(None, 1)
    if kind == "[k]":
        return "the kernel: reads, files, page faults"
    base = os.path.basename(file_of.get(name.split(".")[0], ""))[:-2]
    if not base:
        return "libraries"
    if base.startswith("bench"):
        return "the benchmark's digest"
    for room, files in rooms:
        if any(base == f or base.startswith(f + "_") and f != "jpeg" for f in files):
            return room
    return "the rest of the loader"

sums = collections.Counter()
for line in open(out + "/report"):
    words = line.split(None, 1)
    if len(words) == 2 and words[0].endswith("%"):
        sums[room_of(words[1].split("  ")[0].strip())] += float(words[0][:-1])
total = sum(sums.values())
print("    %s, %.0f us of CPU an image" % (title, us))
for room, share in sums.most_common():
    print("    %-38s %5.0f us %5.1f %%  %s" % (room, us * share / total, 100 * share / total,
                                             "#" * round(share / total * 60)))
# The H200's rate on ResNet-50 in MLPerf Training, fed on its host by 14 cores.
print("    cores that decode 7,950 images a second: %.1f" % (us * 7950e-6))
print()
P
}
./nnpipe data index tests/bench/photos.yaml >/dev/null
where "first epoch"
./nnpipe data index --entries tests/bench/photos.yaml >/dev/null
where "with entries"
