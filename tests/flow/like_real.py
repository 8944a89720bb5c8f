"""nnpipe.like() beside torch's DataLoader on real data: 20 chains of transforms, 0, 1, 4 and 8 workers, 3 epochs, over
the ImageNet sample (500 photographs) and CIFAR-10 (3,000 of its pictures; one chain over all 50,000), and 300 steps of
ResNet-18. The data are those of $NNPIPE_DATA. What passed stands in $STATE/like-real.txt, a line for each set, chain
and number of workers, and does not run again. About 15 minutes on two quiet cores.

torch's side decodes each photograph once (a loader= that keeps Pillow's pictures); nnpipe's has the plain dataset."""
import functools
import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings

import numpy
import torch
from like_cases import MEAN, STD, V1_TAIL, differ, epochs, losses, make_loader, v2_tail
from PIL import Image
from torch.utils.data import Subset
from torchvision import transforms as v1
from torchvision.datasets import CIFAR10, ImageFolder
from torchvision.datasets.folder import default_loader
from torchvision.transforms import v2
from torchvision.transforms.functional import InterpolationMode

import nnpipe

WORKERS = (0, 1, 4, 8)
NR_EPOCHS = 3
NR_CIFAR = 3000  # of the 50,000, so far apart that all files have some
BICUBIC, NEAREST = InterpolationMode.BICUBIC, InterpolationMode.NEAREST


def real_chains(u, to_square):
    """20 chains that give pictures of about u x u. to_square: the transforms that make a picture u x u."""
    big, half, pad = u * 8 // 7, u // 2, u // 8
    flip = v1.RandomHorizontalFlip
    return {
        "v1 training": [v1.RandomResizedCrop(u), flip(), *V1_TAIL],
        "v2 training": [v2.RandomResizedCrop(u), v2.RandomHorizontalFlip(), *v2_tail()],
        "v2 training, bicubic": [v2.RandomResizedCrop(u, interpolation=BICUBIC), v2.RandomHorizontalFlip(), *v2_tail()],
        "v1 training, nearest": [v1.RandomResizedCrop((u, half), interpolation=NEAREST), flip(), *V1_TAIL],
        "v2 training, uint8": [v2.RandomResizedCrop(u), v2.RandomHorizontalFlip(0.3), v2.PILToTensor()],
        "v2 training, bfloat16": [v2.RandomResizedCrop(u), v2.ToImage(), v2.ToDtype(torch.bfloat16, scale=True)],
        "v1 narrow boxes": [v1.RandomResizedCrop((u, half), (0.05, 0.3), (0.2, 5.0)), flip(), *V1_TAIL],
        "v1 flip first": [flip(), v1.RandomResizedCrop(u, (0.3, 0.9), (0.5, 2.0)), *V1_TAIL],
        "v1 test": [v1.Resize(big), v1.CenterCrop(u), *V1_TAIL],
        "v2 test, bicubic": [v2.Resize(big, interpolation=BICUBIC), v2.CenterCrop((u, half)), *v2_tail()],
        "v1 test, nearest": [v1.Resize(big, NEAREST), v1.CenterCrop(u), v1.PILToTensor()],
        "v1 resize, random crop": [v1.Resize(big), v1.RandomCrop(u), flip(), *V1_TAIL],
        "v2 resize, random crop": [v2.Resize(big), v2.RandomCrop(u), v2.RandomHorizontalFlip(), *v2_tail()],
        "v1 one axis": [v1.Resize((big, u)), v1.RandomCrop(u), v1.ToTensor(), v1.ConvertImageDtype(torch.float16)],
        "v2 one axis": [v2.Resize((big, u)), v2.RandomCrop(u), *v2_tail()],
        "v1 padding": [*to_square, v1.RandomCrop(u, padding=pad), flip(), *V1_TAIL],
        "v2 padding": [*to_square, v2.RandomCrop(u, padding=pad), v2.RandomHorizontalFlip(), *v2_tail()],
        "v2 mirrored padding": [*to_square, v2.RandomCrop(u, padding=pad, padding_mode="reflect"), *v2_tail()],
        "v1 geometry behind ToTensor": [
            v1.Resize(big), v1.ToTensor(), v1.RandomCrop(u), flip(), v1.Normalize(MEAN, STD)],
        "v2 three crops": [
            v2.Compose([v2.Resize((big, u)), v2.RandomCrop(u)]), v2.CenterCrop(u - 3), v2.RandomCrop((half, u - 3)),
            *v2_tail()],
    }


# --- the data ---------------------------------------------------------------------------------------------------------


class Cifar(CIFAR10):
    """torchvision's, without the checksums: the pixels are those of JPEGs."""

    train_list = [["data_batch_%d" % i, None] for i in range(1, 6)]
    test_list = []
    meta = {"filename": "batches.meta", "key": "label_names", "md5": None}


def make_cifar(archive, root):
    """The training set in the layout of cifar-10-python.tar.gz."""
    folder = root + "/" + CIFAR10.base_folder
    os.makedirs(folder)
    pictures = []
    with subprocess.Popen(["zstd", "-dc", archive], stdout=subprocess.PIPE) as zstd:
        with tarfile.open(fileobj=zstd.stdout, mode="r|") as tar:
            for member in tar:
                parts = member.name.split("/")
                if member.isfile() and "train" in parts:
                    image = Image.open(tar.extractfile(member)).convert("RGB")
                    pictures.append((hash_of(parts[-1]), parts[-2], numpy.asarray(image).transpose(2, 0, 1).tobytes()))
    pictures.sort()  # classes mixed, as in the original
    names = sorted({name for _, name, _ in pictures})
    part = len(pictures) // 5
    for i in range(5):
        of = pictures[i * part : (i + 1) * part]
        pixels = numpy.frombuffer(b"".join(p for _, _, p in of), numpy.uint8).reshape(len(of), 3072)
        with open("%s/data_batch_%d" % (folder, i + 1), "wb") as file:
            pickle.dump({"data": pixels, "labels": [names.index(n) for _, n, _ in of]}, file)
    with open(folder + "/batches.meta", "wb") as file:
        pickle.dump({"label_names": names}, file)


def hash_of(name):
    return hashlib.sha256(name.encode()).hexdigest()


def class_folders(root):
    while len(os.listdir(root)) == 1:
        root += "/" + os.listdir(root)[0]
    return root


@functools.cache
def picture_of(path):
    return default_loader(path)


class Photographs:
    batch = 50

    def __init__(self, archive, work):
        with tarfile.open(archive) as tar:
            tar.extractall(work + "/sample", filter="data")
        self.root = class_folders(work + "/sample")
        self.chains = real_chains(112, [v1.Resize((112, 112))])

    def reference(self, chain):
        data = ImageFolder(self.root, v1.Compose(chain), loader=picture_of)
        for path, _ in data.samples:
            picture_of(path)
        return data

    def plain(self, chain):
        return ImageFolder(self.root, v1.Compose(chain))


class Pixels:
    batch = 128

    def __init__(self, archive, work):
        make_cifar(archive, work + "/cifar")
        self._whole = Cifar(work + "/cifar")
        self.chains = real_chains(32, [])
        self.chains["v1 padding, all of the set"] = self.chains["v1 padding"]

    def reference(self, chain):
        self._whole.transform = v1.Compose(chain)
        is_all = chain is self.chains["v1 padding, all of the set"]
        return self._whole if is_all else Subset(self._whole, range(0, 16 * NR_CIFAR, 16))

    plain = reference


# --- the comparison ---------------------------------------------------------------------------------------------------


class Results:
    """Lines of what passed, in a file that outlives this process."""

    def __init__(self, path):
        self._path, self._lines, self.nr_failed = path, {}, 0
        if os.path.exists(path):
            with open(path) as file:
                self._lines = dict(line.rstrip("\n").split(": ", 1) for line in file if line.endswith("\n"))

    def get(self, what, test):
        """What test() says of its success; it raises AssertionError. None: it failed, and is reported."""
        if what not in self._lines:
            begin = time.monotonic()
            try:
                told = test()
            except Exception as error:  # any exception fails the test
                self.nr_failed += 1
                text = str(error).replace("\n", "\n#   ")
                print("not ok - like: %s: %s: %s" % (what, type(error).__name__, text), flush=True)
                return None
            self._lines[what] = told
            with open(self._path, "a") as file:
                file.write("%s: %s\n" % (what, told))
            print("# %s: %s (%.1f s)" % (what, told, time.monotonic() - begin), flush=True)
        return self._lines[what]


def compare(data, chain, workers):
    options = dict(batch_size=data.batch, num_workers=workers, drop_last=workers == 4)
    expected = epochs(make_loader(data.reference(chain), **options), NR_EPOCHS)
    with nnpipe.like(make_loader(data.plain(chain), **options)) as loader:
        why = differ(epochs(loader, NR_EPOCHS), expected)
    assert why is None, why
    return "%d batches, SHA-256 %s" % (len(expected[0]), hash_of(repr(expected))[:16])


def all_chains(results, name, data):
    for chain in data.chains:
        told = [results.get("%s, %s, %d workers" % (name, chain, workers),
                            lambda: compare(data, data.chains[chain], workers)) for workers in WORKERS]
        if None not in told:
            nr_batches = sum(int(t.split()[0]) for t in told)
            print("ok - like: %s, %s, 0, 1, 4 and 8 workers, 3 epochs: %d batches have the same SHA-256" % (
                name, chain, nr_batches), flush=True)


def train(data):
    def run(wrap):
        dataset = data.reference(data.chains["v1 padding"])
        return losses(wrap(make_loader(dataset, batch_size=16, num_workers=2)), 300)

    expected, saw = run(lambda loader: loader), run(nnpipe.like)
    assert saw == expected, "the losses differ at step %d" % next(
        i for i, (a, b) in enumerate(zip(saw, expected)) if a != b)
    assert len(set(saw)) > 290, "the losses do not change"
    return "the last loss is %s" % saw[-1]


def main():
    warnings.simplefilter("ignore")
    folder = os.environ.get("NNPIPE_DATA", "")
    sample, cifar = folder + "/imagenet-sample-500.tar", folder + "/cifar10-jpeg.tar.zst"
    if not (os.path.exists(sample) and os.path.exists(cifar)):
        print("skip - like: the ImageNet sample and CIFAR-10: NNPIPE_DATA does not have them", flush=True)
        return 0
    work = tempfile.mkdtemp()
    try:
        results = Results(os.environ.get("STATE", work) + "/like-real.txt")
        pixels = Pixels(cifar, work)
        all_chains(results, "CIFAR-10", pixels)
        all_chains(results, "ImageNet sample", Photographs(sample, work))
        if results.get("300 steps of ResNet-18", lambda: train(pixels)):
            print("ok - like: 300 steps of ResNet-18 on CIFAR-10 have the same losses, bit for bit", flush=True)
    finally:
        shutil.rmtree(work)
    return results.nr_failed > 0


if __name__ == "__main__":
    sys.exit(main())
