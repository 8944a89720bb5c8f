#!/bin/sh
# Runs every benchmark in turn and writes docs/BENCHMARKS.md. A benchmark that cannot run here (no peers, no data)
# has its reason in its place. NNPIPE_DATA, PEERS: see bench_loader.sh.
cd "$(dirname "$0")/../.." || exit 1
file=docs/BENCHMARKS.md
part() { # part "Title" "sentence" command...
    printf '\n## %s\n\n%s\n\n    %s\n\n' "$1" "$2" "$(shift 2; echo "$*")"
    shift 2
    echo "running: $*" >&2
    "$@" 2>/tmp/nnpipe-bench.err || { echo "*not run here:* $(tail -n 1 /tmp/nnpipe-bench.err)"; }
}
{
    echo "# Benchmarks"
    echo
    echo "\`make bench\` writes this page. Look at the ratios: both sides were measured in turn in one run, while other"
    echo "work on the machine moves the absolute figures. $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD),"
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    vectors=$(grep -q avx512f /proc/cpuinfo && echo 'AVX-512' || echo 'AVX2, no AVX-512')
    echo "$(nproc) cores of $cpu, $vectors, no GPU."
    part "The loader against other loaders" "Two readers, threads or worker processes each, the same pictures, from
the page cache, \`cache: none\`, in turns; five rounds. \`photos\`: 500 photographs, random resized crop to 224, flip.
\`cifar-jpeg\` and \`cifar-raw\`: CIFAR-10, crop 32 of 40, flip. *pixels*: Pillow's bytes; antialiased, but other
bytes; or fast and different (no antialiasing, or an inexact decoder). *files*: as the data set has them (CIFAR-10's
JPEGs from the tar for nnpipe, else from folders), or packed, that is converted first. *entries*: the second epoch and
later ones. CPU time and peak resident memory are with the worker processes', memory also with mapped files." \
        sh tests/bench/bench_loader.sh
    part "In a loop of PyTorch" "Loaders that feed the same loop of PyTorch with tensors in host memory: two readers,
threads or worker processes each, from the page cache, in turns. photos: random resized crop to 224, flip; cifar:
CIFAR-10, random crop 32 of 40, flip; from memory for the DataLoader and \`like()\`, from its binary files for
nnpipe.Loader, raw pixels packed for FFCV, JPEGs for the others." sh tests/bench/bench_pytorch.sh
    part "Our JPEG decoder against libjpeg-turbo" "CPU time of one thread in one program, 500 photographs, a
sweep over all of them for each work in turn. \`crop\`: as random resized crop draws them; libjpeg-turbo crops and
skips. \`last row\`: nearly all of the entropy decoding, and little else. \`entries\`: the decoder's states at every
16th MCU of each row, noted when the picture was decoded whole. The pixels are equal." sh tests/bench/bench_jpeg.sh
    part "The last pass of a row" "\`np_format_row()\`, which makes float types and planes for other programs, beside a
\`memcpy()\` of as many bytes as it writes: us a row of 224 x 224 x 3, median (least to most), of one thread's CPU time.
Rows go to 512 MiB in turn, or to 1 MiB, which stays in the L2 cache. From batches of 8 MiB on rows are written past the
caches." sh tests/bench/bench_format.sh
    part "Where a sample's time goes" "Photographs, random resized crop to 224, flip; two readers, page cache warm." \
        sh tests/bench/bench_where.sh
    part "The entries of JPEGs" "The places at which decoding can begin in the middle of a file. The goals: a cold epoch
of random crops reads at most 0.75 of the bytes, and the store of 1.28 million pictures opens in 50 ms." sh \
        tests/bench/bench_entries.sh
    part "Reading beside fio" "\`nnpipe bench io\` and fio: the same engine, file, blocks, threads (2) and depth
(16), in turns; each block once, in random order, with a cold page cache. The goal is 0.9." sh tests/bench/bench_io.sh
    part "Cold sets" "One epoch of the loader from the page cache, from a cold disk, and through a file system that
adds 1 ms to each open and read, as a file server does. Two readers, no cache, no entries." sh \
        tests/bench/bench_cold.sh
    part "The training step against PyTorch" "ResNet-20, 32x32, batch 128, two threads, PyTorch in channels_last." sh \
        tests/bench/bench_step.sh
    part "Training end to end" "Readers and compute threads share the cores." sh tests/bench/bench_end_to_end.sh
    part "A simulated device of 20 ms a step" "Is the device ever idle?" sh tests/bench/bench_sim.sh
    part "The cost of a trace" "Whole runs with \`--trace\` and without it, with equal work, in blocks of plain, traced,
traced, plain; means with 95 % intervals. The goal is 2 %." sh tests/bench/bench_trace.sh
    part "The cost of counters" "The counters are always on. This compares the program with a build that counts nothing,
in blocks of with, without, without, with; medians with 95 % intervals. The goal is 0.5 %." sh \
        tests/bench/bench_counters.sh
    part "Tuning" "\`profile --tune\` against an exhaustive grid (readers x depth x prefetch x cache), against
threads = cores and against as many random trials: images a second of real runs, in turn. The goals: within 3 % of
the grid's best in at most 15 trials, and never below the other two." sh tests/bench/bench_tune.sh
    part "Comparing profiles" "\`profile --compare\` on real runs, unchanged and 5 % slower. The goals: at most 5 %
false alarms, at least 95 % found." sh tests/bench/bench_compare.sh
    part "The service with a thousand idle connections" \
        "Half of them have sent half a request; 20 runs are queued. The goal is 50 ms at p99." sh \
        tests/bench/bench_service.sh
    part "The first batch of a large set" "1.28 million samples." sh tests/bench/bench_start.sh
    part "The demo" "\`configs/cnn.yaml\` on the sample set, and a single linear layer on the same set." sh \
        tests/bench/bench_demo.sh
    part "CIFAR-10" "\`configs/cifar10.yaml\` on the real images: accuracy and seconds of training." sh \
        tests/bench/bench_cifar10.sh
} >"$file.new" && mv "$file.new" "$file"
