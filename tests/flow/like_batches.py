"""nnpipe.like() beside the DataLoader that it stands for: SHA-256 of every batch, strides, dtypes, containers, and the
state of torch's generator. $LIKE: some, or all (tests/flow/like_campaign.sh)."""
import os
import random
import shutil
import sys
import tempfile
import traceback
import warnings

import torch
from PIL import Image
from like_cases import CHAINS, CIFAR_CHAINS, STD, V1_TAIL, cifar, differ, epochs, facts, folder, losses
from like_cases import make_folder, make_loader, make_transform, noise_pixels, random_chain
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Subset, SubsetRandomSampler
from torch.utils.data import SequentialSampler, WeightedRandomSampler
from torchvision import transforms as v1

import nnpipe

ALL = os.environ.get("LIKE") == "all"
WORKERS = (0, 1, 4, 8)
SOME_WORKERS = ((0,), (1,), (0,), (2,), (0,), (1,), (4,))
failed = 0
warnings.simplefilter("ignore")


def say(what, why):
    global failed
    failed += why is not None
    print("ok - " + what if why is None else "not ok - %s: %s" % (what, str(why).replace("\n", "\n#   ")), flush=True)


def check(what, test):
    """test() returns None, or why it failed."""
    try:
        why = test()
    except Exception as error:  # any exception fails the test
        why = "%s: %s" % (type(error).__name__, error)
    say("like: " + what, why)


def same(make, nr_epochs=2, each=None):
    """make(): a DataLoader, twice. Why the batches of like() differ; None: they do not."""
    expected = epochs(make(), nr_epochs, each=each)
    with nnpipe.like(make()) as loader:
        assert len(loader) == len(make())
        return differ(epochs(loader, nr_epochs, each=each), expected)


def first_of(whys):
    return next((why for why in whys if why), None)


# --- chains, samplers, epochs -----------------------------------------------------------------------------------------


def chains(root, pixels):
    for at, (name, chain) in enumerate([*CHAINS.items(), *CIFAR_CHAINS.items()]):
        def make(workers):
            if name in CHAINS:
                return make_loader(folder(root, chain), num_workers=workers)
            return make_loader(cifar(*pixels, chain), num_workers=workers, batch_size=32, drop_last=workers == 1)

        workers = WORKERS if ALL else SOME_WORKERS[at % len(SOME_WORKERS)]
        check("%s, %s workers" % (name, " ".join(map(str, workers))),
              lambda: first_of(same(lambda: make(w), 3 if ALL else 1) for w in workers))


def blurs(root):
    """Batches with a blur, whose pixels may differ by one level; the generator's state may not."""
    chain = [v1.RandomApply([v1.GaussianBlur((5, 3), (0.1, 3))], 0.7), v1.RandomResizedCrop(40), v1.PILToTensor()]

    def why(workers):
        made = []
        for loader in (make_loader(folder(root, chain), num_workers=workers), nnpipe.like(
                make_loader(folder(root, chain), num_workers=workers))):
            torch.manual_seed(3)
            made.append(([images.int() for images, _ in loader], torch.get_rng_state()))
        far = max((a - b).abs().max().item() for a, b in zip(made[0][0], made[1][0]))
        return None if far <= 2 and torch.equal(made[0][1], made[1][1]) else "a pixel differs by %d" % far

    check("a blur, within a level before it is resized", lambda: first_of(why(w) for w in (0, 2)))


def erasings(root):
    """Boxes of 0 behind Normalize, which no pixel becomes: within half a level there, all else is the same."""
    chain = [v1.RandomResizedCrop(40), *V1_TAIL, v1.RandomErasing(0.8)]
    half = 0.5 / 255 / torch.tensor(STD)[:, None, None] + 1e-6

    def why(workers):
        torch.manual_seed(3)
        expected = [images for images, _ in make_loader(folder(root, chain), num_workers=workers)]
        torch.manual_seed(3)
        with nnpipe.like(make_loader(folder(root, chain), num_workers=workers)) as loader:
            got = [images for images, _ in loader]
        boxes = sum((want == 0).sum().item() for want in expected)
        for a, b in zip(expected, got, strict=True):
            if not torch.equal(a[a != 0], b[a != 0]) or ((a - b).abs() > half).any():
                return "a pixel differs by %g" % (a - b).abs().max()
        return None if boxes > 1000 else "only %d values are erased" % boxes

    check("erasing behind Normalize, within half a level", lambda: first_of(why(w) for w in (0, 2)))


def orders(root, pixels):
    data = cifar(*pixels, CIFAR_CHAINS["v1 CIFAR"])
    n = len(data)
    part = Subset(Subset(data, range(10, n)), [5, -1, 3, 3, *range(20, 60)])

    def seeded():
        return torch.Generator().manual_seed(3)

    cases = {
        "sequential, persistent": dict(shuffle=False, persistent_workers=True),
        "generator=": lambda: dict(generator=seeded()),
        "generator=, all rows used": lambda: dict(generator=seeded(), batch_size=10, drop_last=True),
        "persistent workers, generator=": lambda: dict(generator=seeded(), persistent_workers=True),
        "prefetch_factor": dict(prefetch_factor=5, batch_size=4, persistent_workers=True),
        "drop_last": dict(drop_last=True),
        "distributed": lambda: dict(shuffle=False, sampler=DistributedSampler(data, 3, 1)),
        "subset random": dict(shuffle=False, sampler=SubsetRandomSampler(range(5, 90))),
        "random with replacement": dict(shuffle=False, sampler=RandomSampler(data, replacement=True, num_samples=100)),
        "random, more than all": dict(shuffle=False, sampler=RandomSampler(data, num_samples=2 * n + 7)),
        "random, fewer": lambda: dict(shuffle=False, sampler=RandomSampler(data, num_samples=40, generator=seeded())),
        "weighted": dict(shuffle=False, sampler=WeightedRandomSampler([1 + i % 5 for i in range(n)], 90)),
        "a list": dict(shuffle=False, sampler=[3, 1, -2, *range(40)]),
        "batch_sampler": lambda: dict(
            batch_size=1, shuffle=False, batch_sampler=BatchSampler(SequentialSampler(data), 9, True)),
    }
    for at, (name, options) in enumerate(cases.items()):
        def make(workers, of=data):
            own = options() if callable(options) else options
            dropped = ("persistent_workers", "prefetch_factor") if workers == 0 else ()
            return make_loader(of, num_workers=workers, **{k: v for k, v in own.items() if k not in dropped})

        workers = (0, 1, 3) if ALL else (0, 2) if "generator" in name else (2,)
        check(name, lambda: first_of(same(lambda: make(w), 3 if ALL else 2) for w in workers))
    check("a subset of a subset", lambda: first_of(same(lambda: make_loader(part, num_workers=w)) for w in (0, 2)))
    check("pictures in order", lambda: same(lambda: make_loader(folder(root, CHAINS["v1 test"]), shuffle=False)))


def broken_off(loader, nr_epochs=4):
    """Facts of epochs that end after 2 batches, and at their end, in turn."""
    torch.manual_seed(11)
    told = []
    for epoch in range(nr_epochs):
        for k, batch in enumerate(loader):
            told.append((epoch, k, *facts(batch)))
            if epoch % 2 == 0 and k == 1:
                break
    return told, torch.get_rng_state().sum().item()


def interruptions(pixels):
    data = cifar(*pixels, CIFAR_CHAINS["v1 CIFAR"])

    def compare(do, **options):
        expected = do(make_loader(data, **options))
        with nnpipe.like(make_loader(data, **options)) as loader:
            return differ(do(loader), expected)

    check("epochs broken off", lambda: first_of(
        compare(broken_off, num_workers=w, persistent_workers=p, batch_size=8)
        for w, p in ((0, False), (3, False), (1, True), (3, True))[:: 1 if ALL else 3]))

    def draws(epoch, k):
        if (epoch + k) % 3 != 1:
            torch.nn.functional.dropout(torch.ones(k + 1), 0.5)

    check("a program that draws between batches", lambda: first_of(
        same(lambda: make_loader(data, num_workers=w, batch_size=4), 2, each=draws) for w in (0, 2)))

    def side_by_side(loader):
        torch.manual_seed(2)
        told = []
        for k, (a, b) in enumerate(zip(loader, loader)):
            told += [(0, k, *facts(a)), (1, k, *facts(b))]
        return told, None

    check("two iterators side by side", lambda: first_of(compare(side_by_side, num_workers=w) for w in (0, 2)))

    def endless(loader):
        torch.manual_seed(2)
        told, batches = [], iter(loader)
        for step in range(45):
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                batch = next(batches)
            told.append((0, step, *facts(batch)))
        return told, torch.get_rng_state().sum().item()

    check("an iterator that is made anew at its end", lambda: first_of(
        compare(endless, num_workers=w, persistent_workers=p) for w, p in ((0, False), (2, False), (2, True))))

    def dropped(loader):
        torch.manual_seed(6)
        iter(loader)
        between = torch.get_rng_state().sum().item()
        return [(0, k, *facts(batch)) for k, batch in enumerate(loader)], between

    check("an iterator that is dropped before its first batch", lambda: first_of(
        compare(dropped, num_workers=w, persistent_workers=p) for w, p in ((0, False), (2, False), (2, True))))

    def _check_dataloader_iterable(loader):  # the name of Lightning's function
        iter(loader)

    def looked_at(loader):
        torch.manual_seed(6)
        if type(loader) is not DataLoader:
            _check_dataloader_iterable(loader)
        return [(0, k, *facts(batch)) for k, batch in enumerate(loader)], torch.get_rng_state().sum().item()

    check("Lightning looks whether it is iterable", lambda: first_of(
        compare(looked_at, num_workers=w, persistent_workers=p) for w, p in ((0, False), (2, True))))

    def all_kept(loader):
        torch.manual_seed(4)
        batches = list(loader) + list(loader)
        return [(0, k, *facts(batch)) for k, batch in enumerate(batches)], None

    check("a program that keeps all batches", lambda: first_of(
        compare(all_kept, num_workers=w, batch_size=2) for w in (0, 2)))


def changes(pixels):
    """A program that changes the dataset between two epochs."""
    def run(make):
        data = cifar(pixels[0].copy(), list(pixels[1]), CIFAR_CHAINS["to tensor"])
        loader = make(make_loader(data, num_workers=1))
        told = epochs(loader, 1)[0]
        data.transform = make_data().transform
        told += epochs(loader, 1)[0]
        data.data = data.data[:60].copy()
        data.targets = data.targets[:60]
        return told + epochs(make(make_loader(data, num_workers=1)), 1)[0], None

    def make_data():
        return cifar(*pixels, CIFAR_CHAINS["v1 CIFAR"])

    check("another transform after an epoch", lambda: differ(run(nnpipe.like), run(lambda loader: loader)))


def other_files(root, work):
    """A folder whose files change between two epochs."""
    def replaced(path):
        Image.new("RGB", (71, 83), "red").save(path + ".new", "jpeg")
        os.rename(path + ".new", path)

    def added(path):
        shutil.copy(path, os.path.dirname(path) + "/000.JPEG")

    def run(make, change, options):
        where = work + "/changing"
        shutil.rmtree(where, ignore_errors=True)
        shutil.copytree(root, where)
        path = "%s/class1/%s" % (where, min(n for n in os.listdir(where + "/class1") if n.endswith(".JPEG")))
        loader = make(make_loader(folder(where, CHAINS["v1 training"]), **options))
        told, _ = epochs(loader, 1)
        change(path)
        try:
            return told + epochs(loader, 1)[0], None
        except Exception as error:
            return told + [(1, 0, type(error), str(error).split("\n")[0])], None

    def compare(change, **options):
        return differ(run(nnpipe.like, change, options), run(lambda loader: loader, change, options))

    check("a picture that is replaced after an epoch", lambda: first_of(
        compare(replaced, num_workers=w) for w in (0, 2)))
    check("a picture that is removed after an epoch", lambda: compare(os.unlink, num_workers=0, batch_size=50))
    check("a picture that is added after an epoch", lambda: compare(added, num_workers=1, persistent_workers=True))
    persistent = dict(num_workers=1, persistent_workers=True)
    for change, name in ((os.unlink, "removed"), (replaced, "replaced")):
        check("a picture that is %s under persistent workers is an error" % name, lambda: None if (
            "was removed or replaced" in str(run(nnpipe.like, change, persistent)[0][-1])) else "it is none")


def random_chains(root, pixels):
    """Chains drawn from a seed; those that are refused do not count. An exception must be the same."""
    rng = random.Random(1)
    nr_wanted, nr_same = 300 if ALL else 12, 0

    def told(loader, seed):
        try:
            return epochs(loader, 1, seed)
        except Exception as error:
            return [(-1, -1, type(error), str(error).split("\n")[0])], None

    while nr_same < nr_wanted:
        chain, workers, batch, seed = random_chain(rng), rng.choice([0, 0, 1, 2]), rng.choice([1, 5, 16]), rng.random()
        data = cifar(*pixels, chain) if rng.random() < 0.4 else folder(root, chain)
        options = dict(num_workers=workers, batch_size=batch)
        try:
            loader = nnpipe.like(make_loader(data, **options))
        except nnpipe.Unsupported:
            continue
        why = differ(told(loader, int(seed * 1000)), told(make_loader(data, **options), int(seed * 1000)))
        loader.close()
        if why:
            return "%s\n%r with %r" % (why, chain, options)
        nr_same += 1
    return None


# --- bad pictures -----------------------------------------------------------------------------------------------------


def bad_pictures(root, work):
    bad = work + "/bad"
    shutil.copytree(root, bad)
    names = sorted(os.listdir(bad + "/class1"))
    jpeg = next(n for n in names if n.endswith(".JPEG"))
    with open("%s/class1/%s" % (bad, jpeg), "r+b") as file:
        file.truncate(os.path.getsize(file.name) // 2)

    def error_of(loader):
        torch.manual_seed(1)
        try:
            for _ in loader:
                pass
        except Exception as error:
            told = "".join(traceback.format_exception(error))
            return type(error), str(error).split("\n")[0], jpeg in told
        return None

    data = folder(bad, CHAINS["v1 training"])

    def compare(workers):
        with nnpipe.like(make_loader(data, num_workers=workers)) as loader:
            saw = error_of(loader)
        expected = error_of(make_loader(data, num_workers=workers))
        return None if saw and saw[:2] == expected[:2] and saw[2] else "expected %r, saw %r" % (expected, saw)

    check("a truncated picture raises what it raises in torch, and its file is named", lambda: first_of(
        compare(w) for w in (0, 2)))
    with open("%s/class1/%s" % (bad, jpeg), "wb") as file:
        file.write(b"no picture")
    check("a file that is no picture, too", lambda: first_of(compare(w) for w in (0, 2)))
    os.unlink("%s/class1/%s" % (bad, jpeg))
    check("a missing file, too", lambda: first_of(compare(w) for w in (0, 2)))
    with Image.open("%s/class1/%s" % (root, jpeg)) as image:
        image.resize((60, 70)).save("%s/class1/%s" % (bad, jpeg), "webp")
    data.transform = make_transform(CHAINS["v1 resize, random crop"][:1] + CHAINS["v1 test"][2:])
    check("a WebP named .JPEG is decoded by Pillow", lambda: first_of(
        same(lambda: make_loader(data, num_workers=w)) for w in (0, 2)))
    data.transform = make_transform(CHAINS["v1 training"])
    check("where its draws are not known, it is refused", lambda: None if "cannot decode" in str(error_of(
        nnpipe.like(make_loader(data)))) else "it was not")


# --- training ---------------------------------------------------------------------------------------------------------


def training(pixels):
    data = cifar(*pixels, CIFAR_CHAINS["v1 CIFAR"])
    nr_steps = 8

    def run():
        expected = losses(make_loader(data, batch_size=16, num_workers=2), nr_steps)
        saw = losses(nnpipe.like(make_loader(data, batch_size=16, num_workers=2)), nr_steps)
        return None if saw == expected else "the losses differ at step %d" % next(
            i for i, (a, b) in enumerate(zip(saw, expected)) if a != b)

    check("%d steps of ResNet-18 have the same losses, bit for bit" % nr_steps, run)


def main():
    work = tempfile.mkdtemp()
    try:
        root = make_folder(work + "/pictures")
        pixels = noise_pixels(150)
        chains(root, pixels)
        blurs(root)
        erasings(root)
        orders(root, pixels)
        interruptions(pixels)
        changes(pixels)
        other_files(root, work)
        check("chains drawn at random", lambda: random_chains(root, noise_pixels(60)))
        bad_pictures(root, work)
        training(pixels)
    finally:
        shutil.rmtree(work)
    sys.exit(failed > 0)


main()
