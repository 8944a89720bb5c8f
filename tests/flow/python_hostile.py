"""nnpipe.Loader in the hands of a careless program: iterators that threads and signal handlers share, numbers that do
not fit, strange arguments of DLPack. python_loader.sh runs it."""
import json
import os
import pickle
import signal
import subprocess
import sys
import threading

import api
import nnpipe
from api import equal, expect, test
from python_data import config, make_set

SET = make_set(sys.argv[1] + "/hostile")
SAMPLES = 23


def opened(**options):
    return nnpipe.Loader(config(SET, 2), as_="dlpack", **options)


def raised(call):
    """The type of the exception, and its text."""
    try:
        call()
    except Exception as error:
        return type(error), str(error)
    return None, "nothing was raised"


with test("python: eight threads that share an iterator get each sample of the epoch once, and none of the next"):
    with opened() as loader:
        for epoch in range(20):
            batches, seen, errors = iter(loader), [], []

            def take():
                try:
                    for _, labels in batches:
                        seen.extend(memoryview(labels).tolist())
                except Exception as error:
                    errors.append(error)

            threads = [threading.Thread(target=take) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            equal(errors, [], "errors")
            equal(sorted(seen), list(range(SAMPLES)), "labels of epoch %d" % epoch)

with test("python: a signal's handler may take a batch, and close the loader, while the loop waits for one"):
    with opened() as loader:
        batches = iter(loader)
        handled = []
        signal.signal(signal.SIGUSR1, lambda *_: handled.append(next(batches)))
        next(batches)
        signal.raise_signal(signal.SIGUSR1)
        equal((len(handled), sum(1 for _ in batches)), (1, len(loader) - 2), "batches")
        signal.signal(signal.SIGUSR1, lambda *_: loader.close())

        def loop():
            for _ in loader:
                signal.raise_signal(signal.SIGUSR1)

        equal(raised(loop), (ValueError, "the loader is closed"), "error")

with test("python: positions that do not fit are refused, and the position stays"):
    with opened() as loader:
        next(iter(loader))
        state = loader.state_dict()
        for epoch in (-1, 2**32, 2**63, 2**64, 2**70):
            equal(raised(lambda: loader.set_epoch(epoch))[0], ValueError, "set_epoch(%d)" % epoch)
            equal(raised(lambda: loader.load_state_dict({**state, "epoch": epoch}))[0], ValueError, "epoch %d" % epoch)
        for batch in (-1, len(loader) + 1, 2**64 + 1):
            equal(raised(lambda: loader.load_state_dict({**state, "batch": batch}))[0], ValueError, "batch %d" % batch)
        for value in ("1", 1.0, None):
            equal(raised(lambda: loader.set_epoch(value))[0], TypeError, "set_epoch(%r)" % value)
            equal(raised(lambda: loader.load_state_dict({**state, "batch": value}))[0], TypeError, "batch %r" % value)
        equal(loader.state_dict(), state, "position")

with test("python: what DLPack does not have is a TypeError, what nnpipe does not give a BufferError"):
    with opened() as loader:
        images, _ = next(iter(loader))
        for options in ({"max_version": 1}, {"max_version": [1, 0]}, {"max_version": ("1", "0")}, {"dl_device": 1},
                        {"dl_device": (1, 0, 0)}, {"stream_": None}):
            equal(raised(lambda: images.__dlpack__(**options))[0], TypeError, str(options))
        for options in ({"copy": True}, {"dl_device": (2, 0)}):
            equal(raised(lambda: images.__dlpack__(**options))[0], BufferError, str(options))
        for options in ({}, {"max_version": (0, 8)}, {"max_version": (2, 0), "dl_device": (1, 0), "copy": False}):
            images.__dlpack__(**options)  # a capsule that nobody takes
        del images, _
        equal(loader.counters()["held"], 0, "held")

with test("python: a closed loader says so, and may be pickled: the copy begins anew"):
    loader = opened()
    batches = iter(loader)
    next(batches)
    loader.close()
    for call in (lambda: next(batches), lambda: iter(loader), loader.counters, loader.state_dict,
                 lambda: loader.set_epoch(1)):
        equal(raised(call), (ValueError, "the loader is closed"), "error")
    loader.close()
    expect("closed" in repr(loader) and len(loader) == 12, repr(loader))
    with pickle.loads(pickle.dumps(loader)) as copy:
        equal(sum(1 for _ in copy), 12, "batches")

WHAT = "python: in a locale whose numbers have a comma, configs mean the same, and counters are JSON"
PLACE = sys.argv[1] + "/locales"
os.mkdir(PLACE)
made = subprocess.run(["sh", "-c", "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8" % PLACE], capture_output=True,
                      text=True)
if made.returncode:
    api.skip(WHAT, "localedef cannot make de_DE: " + (made.stderr.strip().split("\n") or [""])[-1])
else:
    with test(WHAT):
        program = ("import locale, sys, json, nnpipe\n"
                   "locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8')\n"
                   "assert locale.localeconv()['decimal_point'] == ','\n"
                   "with nnpipe.Loader(json.loads(sys.argv[1]), as_='dlpack', dtype='float32') as loader:\n"
                   "    images, _ = next(iter(loader))\n"
                   "    print(json.dumps([loader.counters()['images'], bytes(images).hex()]))\n")
        done = subprocess.run([sys.executable, "-c", program, json.dumps(config(SET, 2))], text=True,
                              capture_output=True, env=dict(os.environ, LOCPATH=PLACE), timeout=60)
        equal((done.returncode, done.stderr), (0, ""), "exit code and stderr")
        with opened(dtype="float32") as loader:
            images, _ = next(iter(loader))
            equal(json.loads(done.stdout), [2, bytes(images).hex()], "the first batch")

sys.exit(api.failed > 0)
