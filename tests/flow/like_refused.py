"""nnpipe.like() refuses by name what it does not have, and gives the data in nnpipe's own order."""
import inspect
import os
import shutil
import sys
import tempfile
import warnings
from unittest import mock

import torch
from like_cases import CHAINS, CIFAR_CHAINS, cifar, folder, make_folder, make_loader, make_transform, noise_pixels
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, Sampler, Subset, default_collate
from torchvision import transforms as v1
from torchvision.datasets import CIFAR10, ImageFolder
from torchvision.transforms import v2

import nnpipe

failed = 0
warnings.simplefilter("ignore")


def check(what, test):
    """test() returns None, or why it failed."""
    global failed
    try:
        why = test()
    except Exception as error:  # any exception fails the test
        why = "%s: %s" % (type(error).__name__, error)
    failed += why is not None
    what = "like: " + what
    print("ok - " + what if why is None else "not ok - %s: %s" % (what, str(why).replace("\n", "\n#   ")), flush=True)


def refused(dataloader, *words, **options):
    """Why it was not refused with these words."""
    try:
        nnpipe.like(dataloader, **options).close()
    except nnpipe.Unsupported as error:
        missing = [word for word in words if word not in str(error)]
        return "%r does not have %r" % (str(error), missing) if missing else None
    return "it was accepted"


def first_of(whys):
    return next((why for why in whys if why), None)


# --- transforms -------------------------------------------------------------------------------------------------------

TAKEN = {"Compose", "Resize", "CenterCrop", "RandomCrop", "RandomResizedCrop", "RandomHorizontalFlip", "ToTensor",
         "PILToTensor", "ToImage", "ToDtype", "ToPureTensor", "ConvertImageDtype", "Normalize", "Identity",
         "RandomVerticalFlip", "ColorJitter", "RandomApply", "RandomGrayscale", "RandomSolarize", "RandomPosterize",
         "RandomEqualize", "RandomAutocontrast", "RandomAdjustSharpness", "RandomInvert",
         "RandomRotation", "RandomAffine", "GaussianBlur", "RandomErasing", "RandAugment",
         "TrivialAugmentWide", "AutoAugment"}
NO_TRANSFORMS = {"Transform", "InterpolationMode", "AutoAugmentPolicy", "ColorJitterParams"}
FLOAT = [v1.ToTensor()]


def transforms_of(module):
    """The names of its transforms: classes whose objects are called."""
    return [name for name, thing in vars(module).items()
            if inspect.isclass(thing) and callable(getattr(thing, "__call__", None))
            and thing.__module__.startswith("torchvision.transforms") and name not in NO_TRANSFORMS
            and not name.startswith("_") and not issubclass(thing, (int, str))
            and thing.__call__ is not type.__call__ and ("forward" in dir(thing) or "__call__" in vars(thing))]


def every_transform(pixels):
    """An object of each class that is not taken, made without its arguments: its class alone is looked at."""
    def one(module, name):
        transform = object.__new__(getattr(module, name))
        data = cifar(*pixels, [v1.RandomHorizontalFlip(), transform, *FLOAT])
        return refused(make_loader(data), " %s: " % name.join(
            ("v2.", "") if module is v2 else ("transforms.", "")), "RandomHorizontalFlip", "could stay in Python")

    for module in (v1, v2):
        names = transforms_of(module)
        check("each transform of %s that it lacks is refused by its name" % module.__name__, lambda: first_of(
            why and "%s: %s" % (name, why) for name in names if name not in TAKEN for why in [one(module, name)]))
        check("%s has the transforms that these tests know" % module.__name__, lambda: None if len(
            [n for n in names if n not in TAKEN]) >= 4 and len(set(names) & TAKEN) >= 9 else names)


class OwnCrop(v1.CenterCrop):
    pass


def chains(root, pixels):
    cases = {
        "a transform of the program's": ([OwnCrop(8), *FLOAT], "OwnCrop"),
        "a function": ([make_folder, *FLOAT], "like_cases.make_folder()", "each image of a batch"),
        "no tensor": ([v1.RandomCrop(8)], "ToTensor"),
        "a resize behind ToTensor": ([v1.ToTensor(), v1.Resize(8)], "transforms.Resize", "before ToTensor"),
        "a resize behind ToImage": ([v2.ToImage(), v2.RandomResizedCrop(8)], "v2.RandomResizedCrop", "before ToTensor"),
        "two resizes": ([v1.Resize(9), v1.RandomResizedCrop(8), *FLOAT], "RandomResizedCrop", "once"),
        "max_size": ([v2.Resize(9, max_size=20), *FLOAT], "v2.Resize", "max_size"),
        "an interpolation": ([v1.Resize(9, v1.InterpolationMode.LANCZOS), *FLOAT], "Resize", "lanczos"),
        "a padding of two numbers": ([v1.RandomCrop(9, padding=(1, 2)), *FLOAT], "RandomCrop", "(1, 2)"),
        "a padding mode": ([v2.RandomCrop(9, padding=1, padding_mode="edge"), *FLOAT], "v2.RandomCrop", "edge"),
        "a fill": ([v1.RandomCrop(9, padding=1, fill=(0, 1, 0)), *FLOAT], "RandomCrop", "fill (0, 1, 0)"),
        "pad_if_needed": ([v1.RandomCrop(9, pad_if_needed=True), *FLOAT], "RandomCrop", "pad_if_needed"),
        "padding behind Normalize": (
            [*FLOAT, v1.Normalize([.5] * 3, [.5] * 3), v1.RandomCrop(32, padding=2)], "RandomCrop", "Normalize"),
        "padding before a resize": ([v1.RandomCrop(32, padding=2), v1.Resize(8), *FLOAT], "Resize", "resize first"),
        "mirrored padding of a border": (
            [v1.CenterCrop(40), v1.RandomCrop(40, padding=2, padding_mode="reflect"), *FLOAT],
            "RandomCrop", "mirrored border"),
        "a border behind mirrored padding": (
            [v1.RandomCrop(32, padding=2, padding_mode="reflect"), v1.CenterCrop(40), *FLOAT],
            "CenterCrop", "mirrored border"),
        "a scale above 1": ([v2.RandomResizedCrop(9, (0.5, 2.0)), *FLOAT], "v2.RandomResizedCrop", "2.0"),
        "crops of both kinds": ([v1.RandomCrop(20), v2.RandomCrop(18), *FLOAT], "v2.RandomCrop", "differently"),
        "colours behind ToTensor": ([v1.ToTensor(), v1.ColorJitter(0.4)], "transforms.ColorJitter", "before ToTensor"),
        "RandomApply of two": ([v2.RandomApply([v2.ColorJitter(0.4), v2.RandomInvert()]), *FLOAT], "v2.RandomApply"),
        "RandomApply of a crop": ([v1.RandomApply([v1.CenterCrop(20)]), *FLOAT], "transforms.RandomApply", "one Color"),
        "a RandomApply of the other kind": (
            [v1.RandomApply([v1.ColorJitter(0.4)]), v2.RandomCrop(20), *FLOAT], "v2.RandomCrop", "differently"),
        "a threshold above 256": ([v1.RandomSolarize(300), *FLOAT], "threshold"),
        "a rotation that expands": ([v1.RandomRotation(9, expand=True), *FLOAT], "RandomRotation", "expand"),
        "an affine centre": ([v2.RandomAffine(9, center=(1, 2)), *FLOAT], "v2.RandomAffine", "center"),
        "an affine scale of 1": ([v1.RandomAffine(9, scale=(1, 1)), *FLOAT], "RandomAffine", "changes nothing"),
        "a fill above 255": ([v1.RandomRotation(9, fill=300), *FLOAT], "RandomRotation", "fill 300"),
        "a bicubic policy": ([v2.RandAugment(interpolation=3), *FLOAT], "v2.RandAugment", "bicubic"),
        "policies of both kinds": ([v1.AutoAugment(), v2.RandAugment(), *FLOAT], "v2.RandAugment", "differently"),
        "erasing a picture": ([v1.RandomErasing(), *FLOAT], "RandomErasing", "behind ToTensor"),
        "erasing with random values": ([*FLOAT, v2.RandomErasing(value="random")], "v2.RandomErasing", "random values"),
        "erasing brighter than white": (
            [*FLOAT, v1.Normalize([.45] * 3, [.3] * 3), v1.RandomErasing(value=2)], "RandomErasing", "brighter"),
        "float64": ([v2.ToImage(), v2.ToDtype(torch.float64, scale=True)], "float64"),
        "other values of uint8": (
            [v2.ToImage(), v2.ToDtype(torch.int16), v2.ToDtype(torch.uint8, scale=True)], "uint8"),
    }
    for name, (chain, *words) in cases.items():
        check("%s is refused" % name, lambda: refused(make_loader(cifar(*pixels, chain)), *words))
    check("pictures of different sizes are refused", lambda: refused(
        make_loader(folder(root, [v1.Resize(20), *FLOAT])), "different sizes"))
    check("a dataset without transforms is refused", lambda: refused(
        make_loader(ImageFolder(root)), "no tensor"))


# --- the DataLoader ---------------------------------------------------------------------------------------------------


class OwnData(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.zeros(3), index


class OwnCifar(CIFAR10):
    def __getitem__(self, index):
        return super().__getitem__(index)


class OwnSampler(Sampler):
    def __iter__(self):
        return iter([1, 2])

    def __len__(self):
        return 2


class OwnLoader(DataLoader):
    def __iter__(self):
        return super().__iter__()


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(3), 1)])


def options(root, pixels, work):
    data = cifar(*pixels, FLOAT)
    cases = {
        "worker_init_fn": dict(num_workers=1, worker_init_fn=print),
        "collate_fn": dict(collate_fn=lambda samples: default_collate(samples)),
        "batch_sampler": dict(batch_size=1, shuffle=False, batch_sampler=[[1, 2], [3]]),
        "batch_size=None": dict(batch_size=None),
        "in_order": dict(num_workers=1, in_order=False),
        "OwnSampler": dict(shuffle=False, sampler=OwnSampler()),
        "generator=": dict(shuffle=False, sampler=RandomSampler(data, True, generator=torch.Generator())),
    }
    for name, options in cases.items():
        check("%s is refused" % name, lambda: refused(make_loader(data, **options), name))
    for key in ("batch", "augment", "shuffle"):
        check("loader={%r: ...} is refused" % key, lambda: refused(
            make_loader(data), "%r follows" % key, loader={key: 1}))
    check("own order: loader={'channels': 1} is refused", lambda: refused(
        make_loader(data), "'channels' follows", exact_order=False, loader={"channels": 1}))
    check("a dataset of the program's is refused", lambda: refused(DataLoader(OwnData()), "OwnData", "ImageFolder"))
    own = cifar(*pixels, FLOAT)
    own.__class__ = OwnCifar
    check("a dataset with its own samples is refused", lambda: refused(make_loader(own), "OwnCifar"))
    check("an iterable dataset is refused", lambda: refused(DataLoader(Stream()), "Stream", "IterableDataset"))
    tensors = make_transform(CHAINS["v1 test"])
    check("loader= is refused", lambda: refused(
        make_loader(ImageFolder(root, tensors, loader=lambda path: None)), "loader="))
    check("target_transform is refused", lambda: refused(
        make_loader(ImageFolder(root, tensors, target_transform=lambda label: label)), "target_transform"))
    shutil.copytree(root, work + "/other")
    open(work + "/other/class0/a.webp", "w").close()
    check("files of other formats are refused by their names", lambda: refused(
        make_loader(ImageFolder(work + "/other", tensors)), "a.webp", ".png"))
    os.unlink(work + "/other/class0/a.webp")
    with open(work + "/other/class0/deep.pgm", "wb") as file:
        file.write(b"P5 # grey\n1 1 65535\n12")
    check("16-bit grey is refused", lambda: refused(make_loader(ImageFolder(work + "/other", tensors)), "deep.pgm"))
    own = make_loader(data)
    own.__class__ = OwnLoader
    check("a DataLoader that iterates in its own way is refused", lambda: refused(own, "OwnLoader", "accelerate"))
    check("what is no DataLoader is refused", lambda: None if "DataLoader" in str(
        raised(lambda: nnpipe.like([1, 2]))) else "it was not")


def raised(do):
    try:
        do()
    except Exception as error:
        return error
    return None


def ranks(pixels):
    """Lightning puts a DistributedSampler into a DataLoader alone."""
    data = cifar(*pixels, FLOAT)

    def warned(loader):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with nnpipe.like(loader) as like:
                iter(like)
        return [str(w.message) for w in told if w.category is RuntimeWarning]

    def compare():
        if warned(make_loader(data)):
            return "warned in one process"
        with mock.patch.multiple(torch.distributed, is_initialized=lambda: True, get_world_size=lambda: 2):
            told = warned(make_loader(data))
            other = warned(make_loader(data, shuffle=False, sampler=DistributedSampler(data, 2, 1)))
        return None if "DistributedSampler" in "".join(told) and not other else "warned: %r and %r" % (told, other)

    check("processes that would each train on all samples are warned", compare)


# --- our own order ----------------------------------------------------------------------------------------------------


def own_order(root, pixels):
    def epoch_of(loader):
        return [(images, labels) for images, labels in loader]

    def compare(data, **more):
        torch.manual_seed(3)
        expected = epoch_of(make_loader(data, **more))
        state = torch.get_rng_state()
        with nnpipe.like(make_loader(data, **more), exact_order=False) as loader:
            saw = epoch_of(loader)
            again = epoch_of(loader)
        if not torch.equal(state, torch.get_rng_state()):
            return "torch's generator has moved"
        for (a, x), (b, y) in zip(saw, expected, strict=True):
            if (a.dtype, a.shape, a.stride(), x.dtype, x.shape) != (b.dtype, b.shape, b.stride(), y.dtype, y.shape):
                return "%r, not %r" % ((a.dtype, a.shape, a.stride(), x.shape), (b.dtype, b.shape, b.stride(), y.shape))
        if sorted(torch.cat([x for _, x in saw]).tolist()) != sorted(torch.cat([y for _, y in expected]).tolist()):
            return "the labels are others"
        if more.get("shuffle", True) and torch.equal(torch.cat([x for _, x in saw]), torch.cat([x for _, x in again])):
            return "two epochs have the same order"
        if not more.get("shuffle", True):
            pairs = zip(saw, expected)
            return None if all(torch.allclose(a, b, atol=1e-5) for (a, _), (b, _) in pairs) else "the pixels are others"
        return None

    plain = folder(root, CHAINS["v1 test"])
    check("own order: pictures", lambda: first_of((
        compare(folder(root, CHAINS["v1 training"])), compare(plain, shuffle=False))))
    check("own order: pixels in memory, bfloat16 and uint8", lambda: first_of((
        compare(cifar(*pixels, CIFAR_CHAINS["v2 uint8"])), compare(cifar(*pixels, CIFAR_CHAINS["v1 CIFAR"])),
        compare(folder(root, CHAINS["bicubic, bfloat16"])))))
    check("own order: a subset", lambda: compare(Subset(plain, [5, 1, 3, -2, 20]), shuffle=False, batch_size=2))

    def distributed():
        data = cifar(*pixels, CIFAR_CHAINS["to tensor"])
        samplers = [DistributedSampler(data, 2, rank) for rank in (0, 1)]
        loaders = [nnpipe.like(make_loader(data, shuffle=False, sampler=s), exact_order=False) for s in samplers]
        told = []
        for epoch in (1, 1, 2):
            for s in samplers:
                s.set_epoch(epoch)
            told.append([torch.cat([labels for _, labels in loader]) for loader in loaders])
        if sorted(torch.cat(told[0]).tolist()) != sorted(pixels[1]):
            return "the ranks do not have all samples once"
        if not torch.equal(told[0][0], told[1][0]) or torch.equal(told[0][0], told[2][0]):
            return "set_epoch() does not choose the epoch"
        return None

    check("own order: ranks and set_epoch()", distributed)
    together = nnpipe.like(make_loader(plain), exact_order=False)
    check("own order: two iterators at a time are refused", lambda: None if "one at a time" in str(
        raised(lambda: list(zip(together, together)))) else "they were not")


def main():
    work = tempfile.mkdtemp()
    try:
        root = make_folder(work + "/pictures")
        pixels = noise_pixels(150)
        every_transform(pixels)
        chains(root, pixels)
        options(root, pixels, work)
        ranks(pixels)
        own_order(root, pixels)
    finally:
        shutil.rmtree(work)
    sys.exit(failed > 0)


main()
