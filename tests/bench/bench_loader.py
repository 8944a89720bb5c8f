"""Measures and prints for bench_loader.sh, which has the settings."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SAME, SMOOTH, FAST = "Pillow's bytes", "antialiased", "fast and different"
FOLDER, PACKED = "as they are", "packed"
PHOTOS = ["tests/bench/photos.yaml"]
CIFAR = ["tests/bench/cifar.yaml"]
NO_ENTRIES = ["-o", "loader.entries=off"]
FILES = os.environ["PEERS"] + "/data"
RAW = ["-o", f"data.train={{source: cifar10, path: {FILES}/cifar-bin/data_batch_*.bin}}"]
AVX512 = "avx512" in open("/proc/cpuinfo").read()

# For each work: the folder for the peers, and rows of the table: name, pixels, files, and for nnpipe the flags of
# `bench loader` and its environment. The others are compared with the first row.
WORKS = {
    "photos": ("photos", [
        ("nnpipe", SAME, FOLDER, PHOTOS + NO_ENTRIES, {}),
        ("nnpipe, entries", SAME, FOLDER, PHOTOS, {}),
        ("nnpipe, AVX2", SAME, FOLDER, PHOTOS + NO_ENTRIES, {"NNPIPE_CPU": "avx2"}),
        ("nnpipe, AVX2, entries", SAME, FOLDER, PHOTOS, {"NNPIPE_CPU": "avx2"}),
        ("torch", SAME, FOLDER, None, {}),
        ("torch-io", SMOOTH, FOLDER, None, {}),
        ("spdl", SMOOTH, FOLDER, None, {}),
        ("dali-aa", SMOOTH, FOLDER, None, {}),
        ("ffcv", SMOOTH, PACKED, None, {}),
        ("dali", FAST, FOLDER, None, {}),
        ("tf", FAST, FOLDER, None, {}),
    ]),
    "cifar-jpeg": ("cifar/train", [
        ("nnpipe", SAME, FOLDER, CIFAR, {}),
        ("nnpipe, folder", SAME, FOLDER,
         CIFAR + ["-o", f"data.train={{source: folder, path: {FILES}/cifar/train}}"], {}),
        ("torch", SAME, FOLDER, None, {}),
        ("torch-io", SAME, FOLDER, None, {}),
        ("dali", SAME, FOLDER, None, {}),
        ("spdl", FAST, FOLDER, None, {}),
        ("tf", FAST, FOLDER, None, {}),
    ]),
    "cifar-raw": ("cifar/train", [
        ("nnpipe", SAME, FOLDER, CIFAR + RAW, {}),
        ("nnpipe, decoded", SAME, "in memory", CIFAR + RAW + ["-o", "loader.cache=decoded"], {}),
        ("ffcv", SAME, PACKED, None, {}),
    ]),
}

SECONDS = os.environ.get("SECONDS_EACH", "3")
BEGIN = time.monotonic()
END = BEGIN + 60 * float(os.environ.get("MINUTES", "14"))


def last_line(words, environment):
    """The JSON of the last line that the program prints."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return json.loads(lines[-1])


def nnpipe(flags, environment):
    """Images a second, CPU us an image, peak MiB."""
    flags = flags if "loader.cache=decoded" in flags else flags + ["-o", "loader.cache=none"]
    done = last_line([os.environ["NNPIPE"], "bench", "loader", *flags, "--seconds", SECONDS, "--json"], environment)
    return (done["images_per_second"], 1e6 * done["cpu_seconds"] / done["images"], done["peak_rss_bytes"] / 2 ** 20)


def peer(name, work, folder):
    """The same of a peer: processor time and memory with its worker processes'."""
    environment = "tf" if name == "tf" else "torch"
    program = os.environ.get("LOADERS", os.environ["PEERS"] + "/loaders.py")
    done = last_line([f"{os.environ['PEERS']}/{environment}/bin/python", program, name,
                      "imagenet" if work == "photos" else "cifar", f"{FILES}/{folder}", "--threads", "2",
                      "--seconds", SECONDS], {})
    return done["images_per_second"], done["cpu_us_per_image"], done["peak_rss_mib"]


def measure(work, turn, results, seen):
    """One measurement of each loader of a work, until the time is over."""
    folder, rows = WORKS[work]
    names = os.environ.get("NAMES")
    for name, _, _, flags, environment in rows if turn % 2 == 0 else rows[::-1]:
        key = (work, str(turn), name)
        if key in seen or (names and name not in names.split(";")) or ("AVX2" in name and not AVX512):
            continue
        if time.monotonic() > END:
            return
        try:
            figures = nnpipe(flags, environment) if flags else peer(name, work, folder)
        except (RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            print(f"{work}, {name}: not measured: {error}", file=sys.stderr)
            continue
        with open(results, "a") as f:
            f.write("\t".join([*key, *(f"{x:.1f}" for x in figures)]) + "\n")


def load(results):
    """(work, name) -> the rounds' figures."""
    found = {}
    for line in open(results):
        work, turn, name, *figures = line.rstrip("\n").split("\t")
        found.setdefault((work, name), {})[turn] = [float(x) for x in figures]
    return found


def print_table(works, found):
    print("| work | loader | pixels | files | images/s: median (least to most) | nnpipe is | CPU us an image "
          "| peak MiB |\n|---|---|---|---|---|---|---|---|")
    for work in works:
        ours = None
        for name, pixels, files, *_ in WORKS[work][1]:
            if (work, name) not in found:
                continue
            rate, cpu, memory = zip(*found[work, name].values())
            middle = statistics.median(rate)
            ours = ours or middle
            print(f"| {work} | {name} | {pixels} | {files} | {middle:,.0f} ({min(rate):,.0f} to {max(rate):,.0f}) | "
                  f"{ours / middle:.2f}x | {statistics.median(cpu):,.1f} | {max(memory):,.0f} |")


def print_versions():
    text = ""
    for environment in "torch", "tf":
        python = f"{os.environ['PEERS']}/{environment}/bin/python"
        listed = subprocess.run([python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True).stdout
        text += "".join(f", {line.replace('==', ' ')}" for line in listed.splitlines()
                        if line.lower().startswith(("torch==", "torchvision==", "pillow==", "nvidia-dali", "spdl==",
                                                    "ffcv==", "tensorflow")) and "tf-" not in line)
    print("\n" + text[2:])


def main():
    works = os.environ.get("WORKS", "photos cifar-jpeg cifar-raw").split()
    results = os.environ.get("RESULTS") or tempfile.mkstemp(suffix=".tsv")[1]
    if os.path.exists(results):
        seen = {(work, turn, name) for (work, name), turns in load(results).items() for turn in turns}
    else:
        seen = set()
        open(results, "w").close()
    if "photos" in works: # the entries' file
        subprocess.run([os.environ["NNPIPE"], "data", "index", "--entries", *PHOTOS], check=True, capture_output=True)
    for turn in range(int(os.environ.get("ROUNDS", "5"))):
        for work in works:
            measure(work, turn, results, seen)
    print_table(works, load(results))
    print_versions()
    print(f"{time.monotonic() - BEGIN:.0f} s; each measurement: {results}", file=sys.stderr)
    if time.monotonic() > END:
        print(f"stopped before the last round: RESULTS={results} continues", file=sys.stderr)


main()
