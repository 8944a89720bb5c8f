"""nnpipe.like() over webdataset.WebDataset beside the DataLoader or WebLoader that it stands for: SHA-256 of every
batch, strides, dtypes, containers, torch's generator; and every stage that is refused, by its name."""
import gzip
import io
import random
import shutil
import sys
import tarfile
import tempfile
import warnings

import numpy
import torch
from like_cases import CHAINS, differ, epochs
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as v1

import nnpipe

try:
    import webdataset as wds
except ImportError as why:
    print("skip - nnpipe.like() gives the batches of a WebDataset: %s" % why)
    sys.exit(0)
failed = 0
warnings.simplefilter("ignore")
TRAINING, TEST = v1.Compose(CHAINS["v1 training"]), v1.Compose(CHAINS["v1 test"])


def check(what, test):
    """test() returns None, or why it failed."""
    global failed
    try:
        why = test()
    except Exception as error:  # any exception fails the test
        why = "%s: %s" % (type(error).__name__, error)
    failed += why is not None
    what = "like: WebDataset, " + what
    print("ok - " + what if why is None else "not ok - %s: %s" % (what, str(why).replace("\n", "\n#   ")), flush=True)


def same(make, nr_epochs=2):
    expected = epochs(make(), nr_epochs)
    with nnpipe.like(make()) as loader:
        return differ(epochs(loader, nr_epochs), expected)


def refused(make, *words):
    try:
        nnpipe.like(make()).close()
    except nnpipe.Unsupported as error:
        missing = [word for word in words if word not in str(error)]
        return "%r does not have %r" % (str(error), missing) if missing else None
    return "it is taken"


def picture(number):
    draw = numpy.random.default_rng(number)
    height, width = 60 + number % 23, 58 + number % 17
    image = Image.fromarray(draw.integers(0, 256, (height // 4, width // 4, 3), dtype=numpy.uint8))
    out = io.BytesIO()
    image.resize((width, height)).save(out, "PNG" if number % 5 == 0 else "JPEG")
    return out.getvalue(), "png" if number % 5 == 0 else "JPG"


def make_archive(path, numbers, bad=None):
    """Samples as webdataset's: a picture, a label, and members that no stage uses, in different orders."""
    with tarfile.open(path, "w") as out:
        def add(name, data):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))

        add("__meta__", b"not a sample")
        for n in numbers:
            data, kind = picture(n)
            label = str(n * 7 % 50).encode()
            if n == bad:
                data = data[:20]
            members = [("cls", label), (kind, data)] if n % 2 else [(kind, data), ("txt", b"x"), ("cls", label)]
            for kind, data in members:
                add("part/%05d.%s" % (n, kind), data)
    return path


work = tempfile.mkdtemp(prefix="nnpipe-like-web.")
EQUAL = [make_archive("%s/equal-%d.tar" % (work, i), range(20 * i, 20 * i + 20)) for i in range(4)]
UNEVEN = [make_archive("%s/uneven-%d.tar" % (work, i), range(100 * i, 100 * i + 9 + 5 * i)) for i in range(3)]
only_jpeg = make_archive(work + "/jpeg.tar", [n for n in range(40) if n % 5])
packed = work + "/packed.tar.gz"
with open(EQUAL[0], "rb") as plain, gzip.open(packed, "wb") as out:
    shutil.copyfileobj(plain, out)


def data(urls=EQUAL, transform=TRAINING, shuffle=None, **options):
    """The pipeline of most programs."""
    pipe = wds.WebDataset(urls, **{"shardshuffle": False, **options})
    if shuffle:
        pipe = pipe.shuffle(shuffle, seed=5)
    return pipe.decode("pil").to_tuple("jpg;png", "cls").map_tuple(transform)


def load(pipe, workers=0, batch=5, **options):
    return DataLoader(pipe, batch_size=batch, num_workers=workers, **options)


for workers in 0, 1, 2, 4:
    check("random transforms, %d workers" % workers, lambda: same(lambda: load(data(), workers)))
check("a short last batch", lambda: same(lambda: load(data(UNEVEN), batch=8)))
check("drop_last, 1 worker", lambda: same(lambda: load(data(UNEVEN), 1, 8, drop_last=True)))
check("archives of different lengths, 3 workers, no random transform",
      lambda: same(lambda: load(data(UNEVEN, TEST), 3, 4, drop_last=True)))
check("a seeded shuffle", lambda: same(lambda: load(data(shuffle=30))))
check("a seeded shuffle, 2 workers", lambda: same(lambda: load(data(shuffle=30), 2)))
check("shuffled archives", lambda: same(lambda: load(data(shardshuffle=3, seed=11, shuffle=8))))
check("shuffled archives, 2 workers", lambda: same(lambda: load(data(shardshuffle=3, seed=11), 2)))
check("a list in braces", lambda: same(lambda: load(data(work + "/equal-{0..2}.tar", TEST))))
check("persistent workers", lambda: same(lambda: load(data(), 2, persistent_workers=True), 3))
check("map_dict", lambda: same(lambda: load(
    wds.WebDataset([only_jpeg], shardshuffle=False).decode("pilrgb").map_dict(jpg=TRAINING).to_tuple("jpg cls"))))
check("a WebLoader", lambda: same(lambda: wds.WebLoader(data(), batch_size=5, num_workers=2)))
check("a generator of the DataLoader",
      lambda: same(lambda: load(data(), 2, generator=torch.Generator().manual_seed(4))))


def bad_picture():
    """The same error at the same batch."""
    path = make_archive(work + "/bad.tar", range(20), bad=12)

    def last(loader):
        torch.manual_seed(1)
        nr = 0
        try:
            for _ in loader:
                nr += 1
        except Exception as error:
            return nr, type(error).__name__
        return nr, None

    for workers in 0, 1:
        want, seen = last(load(data([path]), workers)), last(nnpipe.like(load(data([path]), workers)))
        if want != seen or want[1] is None:
            return "%d workers: %s, not %s" % (workers, seen, want)
    return None


check("a damaged picture raises what it raises there", bad_picture)


def has_no_length():
    with nnpipe.like(load(data())) as loader:
        try:
            return "it has %d" % len(loader)
        except TypeError:
            return None


check("no length, as there", has_no_length)

# --- what is refused ------------------------------------------------------------------------------


def web(**options):
    return wds.WebDataset(EQUAL, **{"shardshuffle": False, **options})


def tail(pipe):
    return load(pipe.decode("pil").to_tuple("jpg;png", "cls").map_tuple(TRAINING))


STAGES = {
    "a shuffle without seed": (lambda: tail(web().shuffle(10)), "shuffle", "seed="),
    "a shuffle with its own generator": (lambda: tail(web().shuffle(10, rng=random.Random(1))), "shuffle", "seed="),
    "a shuffle behind the transforms": (
        lambda: load(data().shuffle(9, seed=1)), "shuffle", "before the transforms"),
    "detshuffle": (lambda: tail(web(shardshuffle=3, detshuffle=True)), "detshuffle"),
    "resampled": (lambda: tail(web(resampled=True)), "ResampledShards"),
    "repeat": (lambda: load(data().repeat(2)), "repeat()"),
    "with_epoch": (lambda: load(data().with_epoch(10)), "with_epoch()"),
    "select": (lambda: tail(web().select(bool)), "select"),
    "rsample": (lambda: tail(web().rsample(0.5)), "rsample"),
    "slice": (lambda: load(data().slice(5)), "slice"),
    "map": (lambda: load(data().map(lambda x: x)), "map"),
    "rename": (lambda: tail(web().rename(jpg="jpeg")), "rename"),
    "batched": (lambda: load(data().batched(4), batch=None), "batch"),
    "handler": (lambda: tail(web(handler=wds.warn_and_continue)), "handler"),
    "a handler of decode": (
        lambda: load(web().decode("pil", handler=wds.ignore_and_continue).to_tuple("jpg;png", "cls")),
        "map", "handler"),
    "select_files": (lambda: tail(web(select_files=bool)), "select_files"),
    "nodesplitter": (lambda: tail(web(nodesplitter=wds.split_by_node)), "split_by_node"),
    "a cache": (lambda: tail(web(cache_dir=work)), "FileCache"),
    "another decoder": (lambda: load(web().decode("rgb").to_tuple("jpg;png", "cls")), "decode"),
    "no decoder": (lambda: load(web().to_tuple("jpg;png", "cls")), "to_tuple"),
    "three keys": (lambda: load(web().decode("pil").to_tuple("jpg;png", "cls", "__key__")), "3 keys"),
    "a transform of the label": (
        lambda: load(web().decode("pil").to_tuple("jpg;png", "cls").map_tuple(TRAINING, int)), "map_tuple"),
    "a label that is no number": (lambda: load(web().decode("pil").to_tuple("jpg;png", "txt;cls")), "whole number"),
    "a pipe": (lambda: tail(wds.WebDataset("pipe:cat " + EQUAL[0], shardshuffle=False)), "files"),
    "a compressed archive": (lambda: tail(wds.WebDataset(packed, shardshuffle=False)), "unpack"),
    "a stage of the WebLoader": (lambda: wds.WebLoader(data(), batch_size=5).shuffle(3), "shuffle"),
    "more workers than archives": (lambda: load(data(), 5), "fewer archives"),
    "short batches within the epoch": (lambda: load(data(UNEVEN, TEST), 2, 8), "drop_last=True"),
    "random transforms over uneven workers": (
        lambda: load(data(UNEVEN), 3, 4, drop_last=True), "different numbers of batches"),
}
for what, (make, *words) in STAGES.items():
    check("%s is refused" % what, lambda: refused(make, *words))
shutil.rmtree(work)
sys.exit(failed > 0)
