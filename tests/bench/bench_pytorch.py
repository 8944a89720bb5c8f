"""Measures and prints for bench_pytorch.sh, which has the settings."""
import json
import os
import statistics
import subprocess
import sys

FILES = os.environ["PEERS"] + "/data"
SECONDS = os.environ.get("SECONDS_EACH", "3")
F32, U8 = "float32, normalized", "uint8"

# Of a row: the loader, what the loop has, and the name in torch_loop.py; None: `nnpipe bench loader`.
ROWS = [
    ("torch's DataLoader", F32, "torch"),
    ("nnpipe.like()", F32, "like"),
    ("nnpipe.like(exact_order=False)", F32, "like-fast"),
    ("nnpipe.Loader", F32, "nnpipe-f32"),
    ("nnpipe.Loader", U8, "nnpipe"),
    ("`nnpipe bench loader`", U8, None),
    ("SPDL", U8, "spdl"),
    ("DALI", U8, "dali"),
    ("FFCV, packed", U8, "ffcv"),
    ("tf.data", U8, "tf"),
]
BENCH = {
    "photos": ["tests/bench/photos.yaml", "-o", "loader.batch=64"],
    "cifar": ["tests/bench/cifar.yaml", "-o", "loader.batch=512", "-o",
              f"data.train={{source: cifar10, path: {FILES}/cifar-bin/data_batch_*.bin}}"],
}


def last_line(words):
    """The JSON of the last line that a program prints."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=400)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return json.loads(lines[-1])


def measure(work, name):
    """Images a second, CPU us an image, peak MiB."""
    if name is None:
        done = last_line([os.environ["NNPIPE"], "bench", "loader", *BENCH[work], "-o", "loader.readers=2", "-o",
                          "loader.cache=none", "-o", "loader.entries=off", "--seconds", SECONDS, "--json"])
        return (done["images_per_second"], 1e6 * done["cpu_seconds"] / done["images"],
                done["peak_rss_bytes"] / 2 ** 20)
    python = f"{os.environ['PEERS']}/{'tf' if name == 'tf' else 'torch'}/bin/python"
    done = last_line([python, "tests/bench/torch_loop.py", name, work, FILES, SECONDS])
    return done["images_per_second"], done["cpu_us_per_image"], done["peak_rss_mib"]


def print_table(work, found):
    print(f"\n| {work} | the loop has | images/s: median (least to most) | of the DataLoader's | CPU us an image "
          "| peak MiB |\n|---|---|---|---|---|---|")
    base = statistics.median(f[0] for f in found["torch"]) if found.get("torch") else None
    for title, gives, name in ROWS:
        if not found.get(name):
            continue
        rate, cpu, memory = zip(*found[name])
        middle = statistics.median(rate)
        print(f"| {title} | {gives} | {middle:,.0f} ({min(rate):,.0f} to {max(rate):,.0f}) | "
              f"{f'{middle / base:.1f}x' if base else ''} | {statistics.median(cpu):,.1f} | {max(memory):,.0f} |")
    if found.get("nnpipe") and found.get(None):
        pairs = [(a[0] / b[0], a[1] / b[1]) for a, b in zip(found["nnpipe"], found[None])]
        rate, cpu = (statistics.median(p) for p in zip(*pairs))
        print(f"\n{work}: nnpipe.Loader has {100 * rate:.1f} % of the rate of `nnpipe bench loader`, with "
              f"{100 * cpu:.1f} % of its CPU time (medians of {len(pairs)} pairs).")


def main():
    names = os.environ.get("NAMES")
    wanted = [row[2] for row in ROWS if not names or (row[2] or "bench") in names.split(";")]
    for work in os.environ.get("WORKS", "photos cifar").split():
        found = {}
        for turn in range(int(os.environ.get("ROUNDS", "5"))):
            for name in wanted if turn % 2 == 0 else wanted[::-1]:
                try:
                    found.setdefault(name, []).append(measure(work, name))
                except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
                    print(f"{work}, {name or 'bench loader'}: not measured: {error}", file=sys.stderr)
        print_table(work, found)


main()
