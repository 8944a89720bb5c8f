"""Four jobs with different augmentations over one shared decoded cache: the CPU time (user and system) of their reader
threads, divided by the mean of the same jobs alone, one after another: each with a decoded cache of its own, and each
without one. The goal is at most 1.6. In each round the three take turns. Usage, after `make python`:
PYTHONPATH=build/python python3 tests/bench/bench_share_pictures.py FOLDER [EPOCHS [ROUNDS]]; FOLDER is an ImageFolder.
STEP_MS (100) is the time of a step, so that the device limits the jobs, as in a sweep."""
import multiprocessing
import os
import sys
import time

import nnpipe

CHAINS = [
    [{"random_resized_crop": {"size": [224]}}, "flip"],
    [{"random_resized_crop": {"size": [224], "scale": [0.3, 1.0]}}],
    [{"resize": {"size": [256]}}, {"center_crop": {"size": [224]}}, "flip"],
    [{"resize": {"size": [224, 224]}}],
]
STEP_S = float(os.environ.get("STEP_MS", 100)) / 1000


def readers_seconds():
    """The time of this process's readers on a core."""
    sum_ns = 0
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm") as comm, open(f"/proc/self/task/{task}/schedstat") as stat:
            if comm.read().startswith("reader "):
                sum_ns += int(stat.read().split()[0])
    return sum_ns / 1e9


def job(folder, chain, epochs, keys, start, results):
    config = {"data": {"train": {"source": "folder", "path": folder}}, "seed": 1,
              "loader": {"batch": 50, "augment": chain, **keys}}
    with nnpipe.Loader(config, as_="numpy") as loader:
        start.wait()
        for _ in range(epochs):
            for _ in loader:
                time.sleep(STEP_S)
        results.put(readers_seconds())


def run(folder, chains, epochs, keys):
    """Seconds of all readers of jobs that start together, one for each chain."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(len(chains)), context.Queue()
    jobs = [context.Process(target=job, args=(folder, chain, epochs, keys, start, results)) for chain in chains]
    for one in jobs:
        one.start()
    seconds = sum(results.get() for _ in jobs)
    for one in jobs:
        one.join()
    return seconds


def main():
    folder, epochs, rounds = sys.argv[1], *(int(a) for a in [*sys.argv[2:], "1", "3"][:2])
    own = {"cache": {"decoded": 2 << 30}, "share": "off"}
    run(folder, CHAINS[:1], 1, own)  # the page cache, the index and the entries
    for _ in range(rounds):
        alone = sum(run(folder, [chain], epochs, own) for chain in CHAINS) / len(CHAINS)
        four = run(folder, CHAINS, epochs, {"cache": {"decoded": 2 << 30}})
        bare = sum(run(folder, [chain], epochs, {"cache": "none", "share": "off"}) for chain in CHAINS) / len(CHAINS)
        print(f"{epochs} epochs: one job {alone:.2f} s, without a cache {bare:.2f} s; {len(CHAINS)} jobs {four:.2f} s: "
              f"{four / alone:.2f} and {four / bare:.2f} times", flush=True)


if __name__ == "__main__":
    main()
