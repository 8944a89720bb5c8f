"""nnpipe.Loader where it meets other things: loaders that share and have bad samples, a config that changes on disk, a
handler of SIGCHLD, a small Python. python_loader.sh runs it."""
import json
import os
import signal
import subprocess
import sys

import api
import nnpipe
from api import equal, expect, raises, test
from python_data import config, make_set

TMP = sys.argv[1]
SET = make_set(TMP + "/seams")


def copies(loader, epochs=2):
    """Images and labels of the batches of some epochs."""
    return [(memoryview(images).tobytes(), memoryview(labels).tolist()) for _ in range(epochs)
            for images, labels in loader]


def opened(what, **options):
    return nnpipe.Loader(what, as_="dlpack", **options)


# --- sharing ---

with test("python: two loaders of one process that share give the batches of a lone one, in step and apart"):
    with opened(config(SET, share="off")) as lone:
        wanted = copies(lone)
    with opened(config(SET, share="seams")) as one, opened(config(SET, share="seams")) as other:
        saw = []
        for a, b in zip(one, other):
            equal(memoryview(a[0]).tobytes(), memoryview(b[0]).tobytes(), "a batch of both")
            saw.append(memoryview(a[0]).tobytes())
        equal(saw, [images for images, _ in wanted[:len(saw)]], "the first epoch")
        del a, b
        one.set_epoch(0)
        other.set_epoch(1)
        equal(copies(one), wanted, "from the start")
        equal(copies(other, 1), wanted[len(wanted) // 2:], "one epoch ahead")

BAD = make_set(TMP + "/seams-bad")
with open(BAD + "/004/a.png", "wb") as file:
    file.write(b"no picture")

with test("python: of jobs that share each judges a bad sample by its own policy"):
    def bad(policy, share):
        return opened(config(BAD, share=share, bad_samples=policy))

    with bad({"budget": "50%"}, "off") as lone:
        wanted, named = copies(lone), lone.bad_samples()
    expect(named and all("004/a.png" in text for text in named), named)
    with bad({"budget": "50%"}, "judges") as one, bad({"policy": "fail"}, "judges") as strict:
        with bad({"budget": "50%"}, "judges") as other:
            equal((copies(one), one.bad_samples()), (wanted, named), "the first")
            raises(nnpipe.DataError, "004/a.png", lambda: copies(strict))
            equal((copies(other), other.bad_samples()), (wanted, named), "the last, after one has failed")

# --- the config ---

with test("python: a loader keeps the config with which it was opened, however its file changes"):
    path = TMP + "/changing.yaml"

    def write(seed, batch):
        with open(path, "w") as file:
            json.dump(dict(config(SET, batch=batch), seed=seed), file)

    write(5, 5)
    first = opened(path)
    wanted = copies(first, 1)
    write(6, 4)
    second = opened(path)
    equal((first.shape[0], second.shape[0]), (5, 4), "batches")
    raises(ValueError, "the state is of another loader", lambda: second.load_state_dict(first.state_dict()))
    first.set_epoch(0)
    equal(copies(first, 1), wanted, "the first loader")
    with open(path, "w") as file:
        file.write("loader: [")
    raises(ValueError, path, lambda: opened(path))
    function, arguments = first.__reduce__()
    with function(*arguments) as copy:  # as pickle does
        equal(copy.shape, first.shape, "a pickled copy")
    first.close()
    second.close()

# --- the process ---

with test("python: children that end beside a loop reach the program's handler of SIGCHLD, and the loop goes on"):
    ended = []
    before = signal.signal(signal.SIGCHLD, lambda number, frame: ended.append(number))
    try:
        with opened(config(SET)) as loader:
            wanted = copies(loader, 1)
            loader.set_epoch(0)
            saw = []
            for images, labels in loader:
                subprocess.run(["true"], check=True)
                saw.append((memoryview(images).tobytes(), memoryview(labels).tolist()))
            equal(saw, wanted, "batches")
    finally:
        signal.signal(signal.SIGCHLD, before)
    expect(ended, "the handler was not called")

with test("python: it needs neither ssl nor ctypes nor NumPy"):
    text = """
import sys
for name in ("ssl", "_ssl", "ctypes", "_ctypes", "numpy", "torch", "sqlite3", "_hashlib", "lzma", "bz2"):
    sys.modules[name] = None  # import fails
import nnpipe
with nnpipe.Loader({"data": {"train": {"source": "synth", "samples": 20, "size": 8}}, "loader": {"batch": 10}}) as one:
    print(sum(len(memoryview(labels)) for images, labels in one))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    equal((done.returncode, done.stdout, done.stderr), (0, "20\n", ""), "a small Python")

os.unlink(path)
sys.exit(api.failed > 0)
