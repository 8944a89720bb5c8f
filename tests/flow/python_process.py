"""nnpipe.Loader and its process: fork, spawn, Ctrl-C, threads, exceptions, the interpreter's exit, and many loops in
one process. python_loader.sh runs it. LOOPS of them (300)."""
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import api
import nnpipe
from api import equal, expect, raises, test
from nnpipe import _nnpipe
from python_data import Stuck, config, make_set, synth, threads

TMP = sys.argv[1]
LOOPS = int(os.environ.get("LOOPS", "300"))
HERE = os.path.dirname(os.path.abspath(__file__))


def labels_of(loader):
    return [label for _, labels in loader for label in labels.tolist()]


def in_child(call):
    """Runs call() in a child of fork(); returns its exit code, 0 where call() returns."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            call()
            code = 0
        except BaseException as error:
            print("# in the child: %r" % error, flush=True)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def program(text, *arguments):
    """Runs a Python program beside this one; returns (exit code, stdout, stderr)."""
    try:
        # of fork() beside threads
        done = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", text, *arguments],
                              capture_output=True, text=True, timeout=120,
                              env=dict(os.environ, PYTHONPATH=os.environ["PYTHONPATH"] + ":" + HERE))
    except subprocess.TimeoutExpired:
        raise AssertionError("the program hangs") from None
    return done.returncode, done.stdout, done.stderr


# --- waiting ---

with test("python: a wait has a time limit, ends by Ctrl-C, and lets other threads run"):
    stuck = Stuck(TMP + "/wait")
    raises(TimeoutError, "no batch", lambda: stuck.loader.next(0.02))
    thread = stuck.once_it_waits(lambda: os.kill(os.getpid(), signal.SIGINT))
    raises(KeyboardInterrupt, "", stuck.loader.next)
    thread.join()
    stuck.go()
    stuck.loader.close()

with test("python: close() in another thread ends a wait"):
    stuck = Stuck(TMP + "/close")
    thread = stuck.once_it_waits(lambda: (stuck.loader.close(), stuck.go()))
    raises(ValueError, "closed", stuck.loader.next)
    thread.join()

with test("python: Ctrl-C ends a loop, close() and the interpreter while storage hangs"):
    for how in ("stuck.loader.next()", "stuck.loader.close()"):
        code, _, error = program("""
import os, signal, sys, threading, time
from python_data import Stuck
stuck = Stuck(sys.argv[1])
def interrupt():
    while True:
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
while True:
    %s
""" % how, TMP + "/stuck-" + how[13:17])
        expect(code != 0 and "KeyboardInterrupt" in error, "%s: exit code %d: %s" % (how, code, error))

with test("python: two threads share a loader, and each batch goes to one of them"):
    core = _nnpipe.open("data: {train: {source: synth, samples: 64, size: 8}}\nloader: {batch: 4}\n", None, [])
    seen, lock = [], threading.Lock()

    def take(number):
        for _ in range(number):
            batch = core.next()
            with lock:
                seen.append((batch.epoch, batch.number))

    takers = [threading.Thread(target=take, args=(8,)) for _ in range(2)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    equal(sorted(seen), [(0, number) for number in range(16)], "batches")
    equal(core.next(), None, "the end of the epoch")
    core.close()

# --- processes ---

with test("python: in a child of fork() the loader is refused and closing it is harmless; the parent's goes on"):
    with nnpipe.Loader(synth()) as loader:
        wanted = labels_of(loader)
        loader.set_epoch(0)
        iterator = iter(loader)
        got = next(iterator)

        def child():
            text = "belongs to it"
            raises(RuntimeError, text, lambda: next(iterator))
            raises(RuntimeError, text, lambda: iter(loader))
            raises(RuntimeError, text, loader.counters)
            raises(RuntimeError, text, loader.state_dict)
            raises(RuntimeError, text, lambda: loader.set_epoch(1))
            raises(RuntimeError, text, loader._core.next)
            raises(RuntimeError, text, lambda: loader._core.seek(1, 0))
            len(loader), repr(loader), loader.classes
            loader.close()
            with nnpipe.Loader(synth()) as own:
                equal(labels_of(own), wanted, "labels of the child's own loader")

        equal(in_child(child), 0, "the child's exit code")
        rest = [label for _, labels in iterator for label in labels.tolist()]
        equal(got[1].tolist() + rest, wanted, "the parent's labels")

with test("python: multiprocessing's fork, spawn and fork server give a worker a loader of its own"):
    with nnpipe.Loader(synth()) as loader:
        wanted = labels_of(loader)
        loader.set_epoch(0)
        code, out, error = program("""
import multiprocessing, sys
import nnpipe, python_data
if __name__ == "__main__":
    from python_process_worker import work
    for how in ("spawn", "forkserver"):
        with multiprocessing.get_context(how).Pool(1) as pool:
            print(pool.apply(work, (nnpipe.Loader(python_data.synth()),)))
""")
        equal((code, out.split("\n")), (0, [repr(wanted)] * 2 + [""]),
              "the labels of workers that were spawned, and of a fork server's: %s" % error[-400:])
        with multiprocessing.get_context("fork").Pool(1) as pool:
            equal(pool.apply(labels_of, (loader,)), wanted, "the forked worker's labels")

EXITS = {
    "with a loader open": "loader = nnpipe.Loader(c)",
    "in the middle of an epoch": "loader = nnpipe.Loader(c); batch = next(iter(loader)); keep = [batch]",
    "with an exception in the loop": "for batch in nnpipe.Loader(c): raise KeyError('mine')",
    "with two loaders in a cycle": "a = nnpipe.Loader(c); b = nnpipe.Loader(c); a.other = b; b.other = a; iter(a)",
    "with a capsule that nobody takes": "k = next(iter(nnpipe.Loader(c, as_='dlpack')))[0].__dlpack__()",
    "with a thread in the loop": """
import threading
loader, begun = nnpipe.Loader(c), threading.Event()
def loop():
    while True:
        for batch in loader:
            begun.set()
threading.Thread(target=loop, daemon=True).start()
begun.wait()
""",
    "in a child of fork()": "l = nnpipe.Loader(c); i = iter(l); next(i); p = os.fork(); p and os.waitpid(p, 0)",
    "by sys.exit()": "l = nnpipe.Loader(c); i = iter(l); next(i); sys.exit(0)",
}
for name, text in EXITS.items():
    with test("python: the interpreter ends %s" % name):
        code, _, error = program("import os, sys\nimport nnpipe, python_data\nc = python_data.synth()\n" + text)
        if "mine" in text:
            equal(code, 1, "the exit code")
            expect(error.rstrip().endswith("KeyError: 'mine'"), error)
        else:
            equal((code, error if "daemon" not in text else ""), (0, ""), "the exit code, and stderr")

with test("python: the threads of all loaders end before the interpreter does"):
    code, out, error = program("""
import atexit
atexit.register(lambda: print(python_data.threads(1)))
import nnpipe, python_data
loader = nnpipe.Loader(python_data.synth(), as_="dlpack")  # NumPy may have threads of its own
loader.itself = loader
next(iter(loader))
del loader
""")
    equal((code, out.strip(), error), (0, "1", ""), "threads at the end")

with test("python: a build of Python without the lock is refused in words"):
    code, _, error = program("import sysconfig\nsysconfig.get_config_var = lambda name: name == 'Py_GIL_DISABLED'\n"
                             "import nnpipe\n")
    equal(code, 1, "the exit code")
    expect("ImportError: nnpipe does not support the free-threaded build" in error, error)

with test("python: a subinterpreter of its own has its own loaders, or is refused in words"):
    code, out, error = program("""
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
i = interpreters.create()
interpreters.run_string(i, '''
try:
    import nnpipe, python_data
    loader = nnpipe.Loader(python_data.synth(), as_="dlpack")
    print(sum(len(labels) for _, labels in loader))
    loader.close()
except ImportError as error:
    print(error)
''')
interpreters.destroy(i)
""")
    equal(code, 0, "the exit code: %s" % error[-400:])
    expect(out.strip() == "64" or "does not support loading in subinterpreters" in out, out)

# --- threads and memory ---

with test("python: no thread is left of loaders that are closed, dropped, or left by an exception"):
    def by_exception():
        for _ in nnpipe.Loader(synth()):
            raise KeyError

    before = threads()
    loader = nnpipe.Loader(synth())
    expect(threads() > before, "a loader has no thread")
    loader.close()
    equal(threads(before), before, "threads after close()")
    loader = nnpipe.Loader(synth())
    next(iter(loader))
    del loader
    gc.collect()
    equal(threads(before), before, "threads after the last reference")
    raises(KeyError, "", by_exception)
    gc.collect()
    equal(threads(before), before, "threads after an exception")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def one_loop(number, folder):
    """Opens, takes some batches, and ends in one of many ways."""
    loader = nnpipe.Loader(config(folder) if number % 10 == 0 else synth(32, 4, 8),
                           dtype=("uint8", "float32", "float16")[number % 3], layout=nnpipe.loader.LAYOUTS[number % 2],
                           held=4)
    kept = []
    try:
        for count, batch in enumerate(loader):
            if number % 5 == 0:
                kept.append(batch)  # ends with HeldError
            if number % 7 == 0 and count == 1:
                raise KeyError
            if count == number % 9:
                break
    except (KeyError, nnpipe.HeldError):
        pass
    if number % 11 == 0:
        loader.set_epoch(number % 3)
        loader.itself = loader  # a cycle
        del loader
        gc.collect()  # or many loaders wait for it, and the memory depends on when it comes
        return
    if number % 25 == 0:
        equal(in_child(loader.close), 0, "the child's exit code")
    if number % 2:
        loader.close()
    try:
        nnpipe.Loader({"data": {"train": {"source": "folder", "path": "/nix"}}}) if number % 13 == 0 else None
    except FileNotFoundError:
        pass


with test("python: %d loops of open, batches, exceptions, forks and close leave no thread, file or memory" % LOOPS):
    folder = make_set(TMP + "/loops", 9)
    for number in range(100):
        one_loop(number, folder)
    gc.collect()
    before = threads(), len(os.listdir("/proc/self/fd"))
    memory = resident()
    for number in range(LOOPS):
        one_loop(number, folder)
    gc.collect()
    equal((threads(before[0]), len(os.listdir("/proc/self/fd"))), before, "threads and files")
    # A batch that is not freed would be 1 KiB, a loader 1 MiB.
    grown = (resident() - memory) / 2**20
    expect(grown < 8, "%.1f MiB more after %d loops" % (grown, LOOPS))
    print("# %d loops: %+.2f MiB" % (LOOPS, grown))

sys.exit(api.failed > 0)
