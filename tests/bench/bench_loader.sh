#!/bin/sh
# The loader beside other projects' loaders: the same pictures, from the page cache, two readers, threads or worker
# processes each, in turns. Prints a table for docs/BENCHMARKS.md; about 11 minutes.
#   NNPIPE_DATA   the folder of cifar10-jpeg.tar.zst and imagenet-sample-500.tar
#   PEERS         a folder with the peers' virtual environments, torch/ and tf/; their pictures are made in data/ there
#   LOADERS       the program that times one peer and prints a JSON line: $PEERS/loaders.py
#   WORKS         "photos cifar-jpeg cifar-raw"
#   NAMES         only these loaders, separated by semicolons
#   ROUNDS, SECONDS_EACH, MINUTES   5, 3, 14: after so many minutes nothing more is measured
#   RESULTS       a file to which each measurement is added; what it has already is not measured again, so that a
#                 run that was cut off continues. By default a new file.
#   NNPIPE        the program
set -eu
cd "$(dirname "$0")/../.."
: "${NNPIPE_DATA:?}" "${PEERS:?}"
files=$PEERS/data
[ -d "$files/photos" ] || {
    mkdir -p "$files/photos" && tar xf "$NNPIPE_DATA/imagenet-sample-500.tar" -C "$files/photos"
}
[ -d "$files/cifar" ] || {
    mkdir -p "$files/cifar" && zstd -dc "$NNPIPE_DATA/cifar10-jpeg.tar.zst" | tar x -C "$files/cifar"
}
[ -d "$files/cifar-bin" ] || "$PEERS/torch/bin/python" - "$files/cifar/train" "$files/cifar-bin" <<'P'
# CIFAR-10's binary version of the same pictures, in a random order as the original is.
import os, random, sys
import numpy
from PIL import Image
folder, out = sys.argv[1:]
classes = sorted(os.listdir(folder))
pictures = [(f"{folder}/{c}/{f}", i) for i, c in enumerate(classes) for f in sorted(os.listdir(f"{folder}/{c}"))]
random.Random(0).shuffle(pictures)
os.makedirs(out + ".new")
for part in range(5):
    records = bytearray()
    for path, label in pictures[part * len(pictures) // 5:(part + 1) * len(pictures) // 5]:
        pixels = numpy.asarray(Image.open(path).convert("RGB"))
        records += bytes([label]) + pixels.transpose(2, 0, 1).tobytes()
    with open(f"{out}.new/data_batch_{part + 1}.bin", "wb") as f:
        f.write(records) # at once: the page cache then has large folios, as after a copy
with open(f"{out}.new/batches.meta.txt", "w") as f:
    f.write("\n".join(classes) + "\n")
os.rename(out + ".new", out)
P
export NNPIPE_PHOTOS="$files/photos" XDG_CACHE_HOME="$files/cache" NNPIPE="${NNPIPE:-./nnpipe}"
exec python3 tests/bench/bench_loader.py
