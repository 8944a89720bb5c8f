"""nnpipe.Loader without torch: shapes, values, views, the position. python_loader.sh runs it with NumPy."""
import ast
import ctypes
import gc
import json
import os
import pickle
import subprocess
import sys
import zlib

import numpy as np

import api
import nnpipe
from api import equal, expect, raises, skip, test
from nnpipe import _nnpipe
from python_data import MEAN, STD, config, make_set, picture, png, synth

TMP = sys.argv[1]
SET = make_set(TMP + "/set")
SAMPLES = 23


def pictures(labels):
    return np.stack([np.frombuffer(picture(label), np.uint8).reshape(6, 5, 3) for label in labels.tolist()])


def order(loader):
    return [label for _, labels in loader for label in labels.tolist()]


def held(loader):
    return loader.counters()["held"]


# --- shapes and values ---

with test("python: an epoch has each sample once, with its pixels and its label, and ends with a short batch"):
    with nnpipe.Loader(config(SET)) as loader:
        for epoch in range(2):
            batches = list(loader)
            equal([images.shape for images, _ in batches], [(5, 6, 5, 3)] * 4 + [(3, 6, 5, 3)], "shapes")
            equal(len(loader), 5, "len()")
            equal(sorted(label for _, labels in batches for label in labels), list(range(SAMPLES)), "labels")
            for images, labels in batches:
                equal((images.dtype, labels.dtype), (np.dtype("u1"), np.dtype("i8")), "dtypes")
                expect(np.array_equal(images, pictures(labels)), "the pixels differ")
            batches = images = labels = None

what = "python: the bytes are those that nnpipe's own loader gives to a training"
try:
    xxhash = ctypes.CDLL("libxxhash.so.0")
except OSError:
    skip(what, "there is no libxxhash.so.0")
else:
    with test(what):
        with open(TMP + "/same.yaml", "w") as file:
            json.dump(dict(config(SET), model=["flatten", {"linear": {"out": "classes"}}]), file)
        told = subprocess.run([api.NNPIPE, "bench", "loader", TMP + "/same.yaml", "--steps", "4", "--json"],
                              check=True, capture_output=True, text=True, timeout=60).stdout
        with nnpipe.Loader(TMP + "/same.yaml", drop_last=True) as loader:
            rows = b"".join(images.tobytes() for images, _ in loader)
        xxhash.XXH3_64bits.restype = ctypes.c_uint64
        digest = xxhash.XXH3_64bits(rows, ctypes.c_size_t(len(rows)))
        expect('"digest": "%016x"' % digest in told or '"digest":"%016x"' % digest in told,
               "%016x is not the digest of %s" % (digest, told))

with test("python: drop_last leaves the short batch out"):
    with nnpipe.Loader(config(SET), drop_last=True) as loader:
        equal([len(labels) for _, labels in loader], [5] * 4, "rows")

with test("python: each dtype and layout has the values that NumPy computes"):
    for dtype in ("uint8", "float32", "float16"):
        for layout in ("nhwc", "nchw", "channels_last"):
            with nnpipe.Loader(config(SET), dtype=dtype, layout=layout) as loader:
                images, labels = next(iter(loader))
                wanted = pictures(labels)
                if dtype != "uint8":
                    wanted = (wanted.astype("f4") / np.float32(255) - np.float32(MEAN)) / np.float32(STD)
                wanted = wanted.astype(dtype)
                wanted = wanted if layout == "nhwc" else wanted.transpose(0, 3, 1, 2)
                equal((images.shape, loader.shape), (wanted.shape, wanted.shape), "%s %s: shape" % (dtype, layout))
                expect(images.dtype == dtype and np.array_equal(images, wanted), "%s %s differs" % (dtype, layout))
                equal(images.transpose(0, 2, 3, 1).flags.c_contiguous, layout == "channels_last", "memory of nhwc")

with test("python: set=test is in order, and the same for each rank together"):
    with nnpipe.Loader(config(SET), set="test") as loader:
        equal(order(loader), list(range(SAMPLES)), "order")

with test("python: two ranks have each sample once, from arguments and from torchrun's environment"):
    for environment in (False, True):
        seen = []
        for rank in range(2):
            if environment:
                os.environ.update(RANK=str(rank), WORLD_SIZE="2")
            with nnpipe.Loader(config(SET, batch=4), **({} if environment else dict(rank=rank, world=2))) as loader:
                seen += order(loader)
        os.environ.pop("RANK", None)
        os.environ.pop("WORLD_SIZE", None)
        equal(sorted(set(seen)), list(range(SAMPLES)), "samples")
        expect(len(seen) <= SAMPLES + 1, "%d rows of %d samples" % (len(seen), SAMPLES))

with test("python: a path, a text and a dict are the same config"):
    os.makedirs(TMP + "/there", exist_ok=True)
    text = "data: {train: {source: folder, path: ../set}}\nloader: {batch: 5, augment: [{resize: [6, 5]}]}\n"
    with open(TMP + "/there/c.yaml", "w") as file:
        file.write(text)
    os.chdir(TMP + "/there")
    dictionary = {"data": {"train": {"source": "folder", "path": "../set"}},
                  "loader": {"batch": np.int64(5), "augment": [{"resize": (6, 5)}]}}
    one = order(nnpipe.Loader(TMP + "/there/c.yaml"))
    equal(order(nnpipe.Loader("c.yaml")), one, "a relative path")
    equal(order(nnpipe.Loader(text)), one, "a text")
    equal(order(nnpipe.Loader(dictionary)), one, "a dict")
    os.chdir(TMP)

with test("python: every mistake of a config is named, with its line; other errors have their types"):
    with open(TMP + "/bad.yaml", "w") as file:
        file.write("data: {train: {source: nix}}\nloader: {batch: 0}\n")
    raises(ValueError, TMP + "/bad.yaml:2:", lambda: nnpipe.Loader(TMP + "/bad.yaml"))
    raises(ValueError, TMP + "/bad.yaml:1:", lambda: nnpipe.Loader(TMP + "/bad.yaml"))
    raises(IsADirectoryError, "'source': 'folder'", lambda: nnpipe.Loader(TMP))
    raises(FileNotFoundError, "/nix.yaml", lambda: nnpipe.Loader(TMP + "/nix.yaml"))
    raises(FileNotFoundError, "/nix", lambda: nnpipe.Loader(config("/nix")))
    raises(ValueError, "dtype", lambda: nnpipe.Loader(synth(), dtype="int8"))
    raises(ValueError, "layout", lambda: nnpipe.Loader(synth(), layout="chwn"))
    raises(ValueError, "as_", lambda: nnpipe.Loader(synth(), as_="list"))
    raises(ValueError, "bfloat16", lambda: nnpipe.Loader(synth(), as_="numpy", dtype="bfloat16"))
    raises(ValueError, "rank", lambda: nnpipe.Loader(synth(), rank=1))
    raises(ValueError, "rank 2 of 2", lambda: nnpipe.Loader(synth(), rank=2, world=2))
    raises(TypeError, "config", lambda: nnpipe.Loader({"data": {1, 2}}))

def typed(kind, columns, folder=SET, **loader):
    """A config whose samples have the label (number, -number / 4), or the classes of the number's bits."""
    path = TMP + "/" + kind + ".csv"
    with open(path, "w") as file:
        print("file,x,y,tags", file=file)
        for k in range(SAMPLES):
            print(f"{k:03}/a.png,{k},{-k / 4},{'|'.join(c for i, c in enumerate('abcde') if k >> i & 1)}", file=file)
    made = config(folder, **loader)
    for source in made["data"].values():
        source.update(labels=path, label_type=kind, columns=columns)
    return made

def numbers(images):
    return [next(k for k in range(SAMPLES) if image.tobytes() == picture(k)) for image in images]

for cache in "none", "encoded", "decoded":
    with test("python: labels that are numbers are float32 (rows, values), those of their samples; cache " + cache):
        with nnpipe.Loader(typed("value", "file,y,x", cache=cache)) as loader:
            equal(loader.classes, ("y", "x"), "classes")
            for epoch in range(3):
                saw = []
                for images, labels in loader:
                    here = numbers(images)
                    equal((labels.dtype, labels.tolist()), (np.dtype("f4"), [[-k / 4, k] for k in here]), "labels")
                    saw += here
                equal(sorted(saw), list(range(SAMPLES)), "samples")
            labels[0, 0] = 5  # the program may write
            images = labels = None

with test("python: of several classes they are 0 and 1 for each; jobs that share give each other them"):
    one = nnpipe.Loader(typed("multi", "file,tags", share="typed"))
    other = nnpipe.Loader(typed("multi", "file,tags", share="typed"), as_="dlpack")
    for (images, labels), (_, same) in zip(one, other):
        equal(labels.tolist(), [[k >> i & 1 for i in range(5)] for k in numbers(images)], "labels")
        equal(memoryview(same).tolist(), labels.tolist(), "the peer's")
    equal(one.classes, tuple("abcde"), "classes")
    images = labels = same = _ = None
    other.close()
    one.close()

with test("python: a bad sample that no other replaces has NaN"):
    make_set(TMP + "/bad-typed")
    with open(TMP + "/bad-typed/002/a.png", "wb") as file:
        file.write(b"no picture")
    with nnpipe.Loader(typed("value", "file,x,y", TMP + "/bad-typed"), set="test") as loader:
        labels = np.concatenate([labels.copy() for _, labels in loader])
        equal(np.isnan(labels).tolist(), [[k == 2] * 2 for k in range(SAMPLES)], "NaN")
        equal(np.delete(labels, 2, 0).tolist(), [[k, -k / 4] for k in range(SAMPLES) if k != 2], "the others")

with test("python: bad samples are named, and end the iteration above their budget"):
    make_set(TMP + "/bad", 8)
    for sample in (3, 6):
        with open("%s/bad/%03d/a.png" % (TMP, sample), "wb") as file:
            file.write(b"no picture")
    with nnpipe.Loader(config(TMP + "/bad", bad_samples={"budget": "50%"})) as loader:
        labels = order(loader)
        equal(len(labels), 8, "rows")
        bad = loader.bad_samples()
        equal(sorted({name for name in ("003/a.png", "006/a.png") for text in bad if name in text}),
              ["003/a.png", "006/a.png"], "the names in %s" % bad)
        equal(loader.counters()["bad_samples"], len(bad), "counters()")
        for _ in range(5):  # loops that break off: the readers start again
            next(iter(loader))
        counted = loader.counters()["bad_samples"]
        expect(counted > len(bad), "counters()")
        equal(len(loader.bad_samples()), counted, "bad samples after loops that broke off")
    with nnpipe.Loader(config(TMP + "/bad", bad_samples={"policy": "fail"})) as loader:
        raises(nnpipe.DataError, "a.png", lambda: order(loader))

# --- views and their memory ---

with test("python: views are without a copy: the buffer protocol, and DLPack old and new"):
    with nnpipe.Loader(config(SET), as_="dlpack", dtype="float32") as loader:
        images, labels = next(iter(loader))
        one = np.asarray(images)
        address = one.ctypes.data
        equal(np.asarray(memoryview(images)).ctypes.data, address, "the address of memoryview()")
        expect("dltensor_versioned" in repr(images.__dlpack__(max_version=(1, 1))), "the new capsule")
        expect('"dltensor"' in repr(images.__dlpack__()), "the old capsule")
        expect('"dltensor"' in repr(images.__dlpack__(max_version=(0, 8))), "max_version 0.8")
        two = np.from_dlpack(images)
        equal((two.ctypes.data, two.shape, two.strides), (address, one.shape, one.strides), "from_dlpack()")
        equal(np.from_dlpack(labels).tolist(), np.asarray(labels).tolist(), "labels by DLPack")
        one[:] = 7
        equal(float(two.max()), 7.0, "what was written")
        equal((images.__dlpack_device__(), images.dtype, len(images)), ((1, 0), "float32", 5), "attributes")
        raises(BufferError, "copy", lambda: images.__dlpack__(copy=True))
        raises(BufferError, "dl_device", lambda: images.__dlpack__(dl_device=(2, 0)))
        expect("dltensor" in repr(images.__dlpack__(stream=None, dl_device=(1, 0), copy=False)), "the whole protocol")
    with nnpipe.Loader(config(SET), as_="dlpack", dtype="bfloat16") as loader:
        raises(BufferError, "bfloat16", lambda: memoryview(next(iter(loader))[0]))
    with nnpipe.Loader(config(SET), as_="dlpack", layout="channels_last") as loader:
        images, _ = next(iter(loader))
        raises(BufferError, "contiguous", lambda: zlib.crc32(images))
        equal(len(bytes(memoryview(images))), images.nbytes, "bytes of a copy")

with test("python: a slot goes back when the last view of it dies, of whatever kind"):
    views = {
        "array": lambda images: images, "memoryview": memoryview, "asarray": np.asarray,
        "slice": lambda images: np.asarray(images)[1:, ::2], "from_dlpack": np.from_dlpack,
        "old capsule": lambda images: images.__dlpack__(),
        "new capsule": lambda images: images.__dlpack__(max_version=(1, 0)),
    }
    with nnpipe.Loader(config(SET), as_="dlpack") as loader:
        for name, view in views.items():
            iterator = iter(loader)
            images = next(iterator)[0]
            kept = view(images)
            del images
            gc.collect()
            equal(held(loader), 1, "%s: batches held with the view" % name)
            del kept
            gc.collect()
            equal(held(loader), 0, "%s: batches held without it" % name)

with test("python: a loop that keeps every batch gets HeldError, and goes on where it was once it lets go"):
    with nnpipe.Loader(config(SET), held=3) as loader:
        wanted = order(loader)
        loader.set_epoch(0)
        kept, iterator = [], iter(loader)

        def keep():
            for batch in iterator:
                kept.append(batch)

        raises(nnpipe.HeldError, "clone()", keep)
        expect(issubclass(nnpipe.HeldError, BufferError), "HeldError is a BufferError")
        equal(len(kept), 3, "batches kept")
        got = [label for _, labels in kept for label in labels.tolist()]
        kept.clear()
        equal(got + [label for _, labels in iterator for label in labels.tolist()], wanted, "order")

with test("python: batches outlive their loader"):
    with nnpipe.Loader(config(SET)) as loader:
        iterator = iter(loader)
        images, labels = next(iterator)
    expect(np.array_equal(images, pictures(labels)), "the pixels differ after close()")
    raises(ValueError, "closed", lambda: next(iterator))
    raises(ValueError, "closed", lambda: iter(loader))
    del loader
    gc.collect()
    expect(np.array_equal(images, pictures(labels)), "the pixels differ without a loader")
    loader = nnpipe.Loader(config(SET))
    loader.close()
    loader.close()
    expect(loader.closed and "closed" in repr(loader), repr(loader))

# --- the position ---

with test("python: a loop that breaks off is followed by the next epoch, and set_epoch() repeats one"):
    with nnpipe.Loader(config(SET)) as loader:
        first, second = order(loader), order(loader)
        expect(first != second, "two epochs have one order")
        loader.set_epoch(0)
        for _, labels in loader:
            break
        equal(labels.tolist(), first[:5], "epoch 0")
        equal(order(loader), second, "epoch 1")
        loader.set_epoch(1)
        equal(order(loader), second, "set_epoch(1)")
        equal(loader.epoch, 2, "the epoch behind it")
        raises(ValueError, "epoch", lambda: loader.set_epoch(-1))

with test("python: a second iteration, or a new position, ends the first with an error"):
    with nnpipe.Loader(config(SET)) as loader:
        one = iter(loader)
        next(one)
        two = iter(loader)
        raises(RuntimeError, "another iteration", lambda: next(one))
        next(two)
        loader.set_epoch(4)
        raises(RuntimeError, "another iteration", lambda: next(two))
        one = iter(loader)
        list(one)
        raises(StopIteration, "", lambda: next(one))

with test("python: another loader continues from the state, at each batch, and after set_epoch() as in a script"):
    with nnpipe.Loader(config(SET)) as loader, nnpipe.Loader(config(SET)) as other:
        whole = order(loader) + order(loader)
        loader.set_epoch(0)
        seen = 0
        for _, labels in loader:
            seen += len(labels)
            other.load_state_dict(loader.state_dict())
            other.set_epoch(0)
            rest = order(other)
            equal(rest, whole[seen:SAMPLES], "the rest behind %d samples" % seen)
            other.set_epoch(1)
            equal(order(other), whole[SAMPLES:], "the epoch behind it")
        other.load_state_dict(loader.state_dict())
        equal(order(other), whole[SAMPLES:], "from the end of an epoch")

with test("python: a state of another config, seed or world is refused, and the position stays"):
    with nnpipe.Loader(config(SET)) as loader:
        next(iter(loader))
        state = loader.state_dict()
        for other in (nnpipe.Loader(dict(config(SET), seed=6)), nnpipe.Loader(config(SET, batch=6)),
                      nnpipe.Loader(config(SET), rank=0, world=2), nnpipe.Loader(config(SET), drop_last=True)):
            before = other.state_dict()
            raises(ValueError, "another loader", lambda: other.load_state_dict(state))
            equal(other.state_dict(), before, "the state")
            other.close()
        raises(ValueError, "'fingerprint'", lambda: loader.load_state_dict({"version": 1, "epoch": 0, "batch": 0}))
        raises(ValueError, "version 2", lambda: loader.load_state_dict(dict(state, version=2)))
        raises(ValueError, "no such position", lambda: loader.load_state_dict(dict(state, batch=99)))
        equal(loader.state_dict(), state, "the loader's own state")
    with nnpipe.Loader(config(SET, readers=1)) as other:
        equal(other.state_dict()["fingerprint"] != "", True, "a fingerprint")

with test("python: a pickled loader opens again at the same place"):
    with nnpipe.Loader(config(SET), dtype="float32", layout="nchw") as loader:
        iterator = iter(loader)
        next(iterator)
        with pickle.loads(pickle.dumps(loader)) as other:
            equal((other.shape, other.dtype), (loader.shape, "float32"), "shape and dtype")
            for (images, labels), (others, other_labels) in zip(iterator, other, strict=True):
                expect(np.array_equal(images, others) and np.array_equal(labels, other_labels), "the rest differs")

# --- the parts below it ---

with test("python: files and pixels that the program names are read, and rejected with words"):
    pixels = np.frombuffer(b"".join(picture(i) for i in range(9)), np.uint8).reshape(9, 6, 5, 3)
    labels = np.arange(9, dtype="i8")
    text = "loader: {batch: 4}"
    loader = _nnpipe.open_pixels(text, None, ["set=test"], pixels, labels)
    got = [np.asarray(batch.images).copy() for batch in iter(loader.next, None)]
    expect(np.array_equal(np.concatenate(got), pixels), "the pixels differ")
    loader.close()
    raises(ValueError, "uint8 (samples", lambda: _nnpipe.open_pixels(text, None, [], pixels[0], labels))
    raises(ValueError, "9 int64", lambda: _nnpipe.open_pixels(text, None, [], pixels, labels[1:]))
    raises(ValueError, "no option 'nix", lambda: _nnpipe.open_pixels(text, None, ["nix=1"], pixels, labels))
    sizes = "loader: {batch: 4, test_augment: [{resize: [6, 5]}]}"
    paths = ["%03d/a.png" % i for i in range(9)]
    loader = _nnpipe.open_files(sizes, None, ["set=test"], SET, paths, labels, ["c%d" % i for i in range(9)])
    equal((loader.classes[8], loader.samples, loader.length), ("c8", 9, 3), "about the set")
    batch = loader.next()
    expect(np.array_equal(np.asarray(batch.images), pixels[:4]), "the files' pixels differ")
    equal((batch.rows, batch.epoch, batch.number, batch.nr_bad, batch.samples), (4, 0, 0, 0, [0, 1, 2, 3]), "a batch")
    loader.close()
    raises(TypeError, "", lambda: _nnpipe.open_files(sizes, None, [], SET, [1], labels[:1]))
    with open(TMP + "/one.png", "wb") as file:
        file.write(png(picture(1), 6, 5))

with test("python: what the functions of a dealt order raise ends the call"):
    probes = np.zeros(256, "f4")
    loader = _nnpipe.open_pixels("loader: {batch: 4}", None, ["order=dealt"], pixels, labels)
    raises(NotImplementedError, "exact_order", lambda: loader.deal(1, 1, None, None, probes))
    raises(ValueError, "probes", lambda: loader.deal(1, 1, None, None, probes[1:]))
    raises(ValueError, "nnp_deal()", lambda: loader.deal_epoch(labels))
    loader.close()
    loader = _nnpipe.open_pixels("loader: {batch: 4}", None, [], pixels, labels)
    raises(ValueError, "order=dealt", lambda: loader.deal_epoch(labels))
    loader.close()

with test("python: the stubs name what the extension has, and everything is documented"):
    with open(os.path.join(os.path.dirname(_nnpipe.__file__), "_nnpipe.pyi")) as file:
        stubs = ast.parse(file.read())
    for kind in [node for node in stubs.body if isinstance(node, ast.ClassDef) and "Error" not in node.name]:
        named = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
        there = {name for name in vars(getattr(_nnpipe, kind.name))
                 if not name.startswith("__") or "dlpack" in name or "array__" in name}
        equal({name for name in named if name not in ("__len__", "__buffer__")}, there, kind.name)
        for name in there:
            expect(getattr(getattr(_nnpipe, kind.name), name).__doc__, "%s.%s has no text" % (kind.name, name))
    named = {node.name for node in stubs.body if isinstance(node, ast.FunctionDef)}
    equal(named, {name for name in vars(_nnpipe) if name.startswith("open")}, "functions")
    for name, value in vars(nnpipe.Loader).items():
        if not name.startswith("_"):
            expect(value.__doc__, "Loader.%s has no text" % name)

sys.exit(api.failed > 0)
