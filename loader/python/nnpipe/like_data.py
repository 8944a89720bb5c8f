"""The samples of a torchvision dataset: files or pixels in memory, with their labels."""

import copy
import os
import re
import time

import numpy
import PIL.Image
import torch
import torchvision
from torch.utils.data import Subset
from torchvision.datasets import CIFAR10, DatasetFolder
from torchvision.datasets.folder import default_loader, pil_loader

from .like_refuse import Unsupported

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".pgm")


class Samples:
    """What nnpipe loads for a dataset.

    root, paths: of files; pixels: uint8 array (samples, height, width, 3). One of them is None.
    labels: int64 tensor (samples).
    places: the samples of a Subset, int64 tensor; None: all.
    size: (height, width) of all pictures; None: each has its own.
    """

    def __init__(self, dataset):
        self.dataset = dataset
        self.base, self.places = _unwrap(dataset)
        self.root = self.paths = self.pixels = self.size = self.extents = None
        if type(self.base).__getitem__ is CIFAR10.__getitem__:
            self._read_pixels()
        elif type(self.base).__getitem__ is DatasetFolder.__getitem__:
            self._read_files()
        else:
            raise Unsupported(
                f"nnpipe.like(): the dataset {_type_name(self.base)} is not supported: it must be torchvision's "
                "ImageFolder, CIFAR10 or CIFAR100, or a Subset of them"
            )
        if self.base.target_transform is not None:
            raise Unsupported(
                "nnpipe.like(): target_transform is not supported: apply it to the labels in the training loop, or "
                "to the dataset's targets before"
            )

    def _read_pixels(self):
        data = self.base.data
        if data.ndim != 4 or data.shape[3] != 3 or data.dtype != "uint8":
            raise Unsupported("nnpipe.like(): the dataset's data is no uint8 array (samples, height, width, 3)")
        self._data = data
        self.pixels = numpy.ascontiguousarray(data)  # torchvision's is a transposed view of planes
        self.size = data.shape[1:3]
        self.labels = _labels(self.base.targets)

    def _read_files(self):
        loader = self.base.loader
        if loader not in (default_loader, pil_loader) or torchvision.get_image_backend() != "PIL":
            raise Unsupported(
                "nnpipe.like(): the dataset's own loader= is not supported: nnpipe reads files as the default loader "
                "does (Pillow, in RGB)"
            )
        samples = self.base.samples
        root, paths = os.path.join(os.fspath(self.base.root), ""), [os.fspath(path) for path, _ in samples]
        if not all(path.startswith(root) for path in paths):
            root, paths = "/", [os.path.abspath(path) for path in paths]
        self.paths = [path[len(root):] for path in paths]
        self.root = os.path.join(os.path.abspath(root), "")
        self.labels = _labels([label for _, label in samples])
        self._files = samples
        self._folders = _Folders(paths)
        for path in paths:
            _check_file(path)

    def __len__(self):
        return len(self.labels)

    def changed(self):
        """Has the program put other data into the dataset since, or has a file been replaced?"""
        if self.pixels is not None:
            return self.base.data is not self._data
        is_other = self.base.samples is not self._files or len(self._files) != len(self)
        return is_other or self.changed_file() is not None

    def changed_file(self):
        """A file that was removed or replaced by another one; None: there is none."""
        return None if self.paths is None else self._folders.changed_file()

    def name(self, number):
        """The file of a sample, or its number."""
        return str(number) if self.paths is None else self.root + self.paths[number]

    def only(self, numbers):
        """These samples alone, as a set of its own; pixels are copied."""
        part = copy.copy(self)
        part.labels = self.labels[numbers]
        if self.pixels is not None:
            part.pixels = self.pixels[numbers.numpy()]
        else:
            part.paths = [self.paths[i] for i in numbers.tolist()]
        return part

    def sample_numbers(self, indices):
        """The samples that a sampler's numbers mean, int64 tensor."""
        n = len(self.labels) if self.places is None else len(self.places)
        if len(indices) and (int(indices.min()) < -n or int(indices.max()) >= n):
            raise IndexError(f"the sampler gave an index that is not one of the dataset's {n} samples")
        indices = torch.where(indices < 0, indices + n, indices)
        return indices if self.places is None else self.places[indices]

    def common_size(self):
        """(height, width) of all pictures. Reads the header of each file."""
        if self.size is None:
            sizes = set()
            for path, _ in self.base.samples:
                with PIL.Image.open(path) as picture:
                    sizes.add((picture.height, picture.width))
                if len(sizes) > 1:
                    raise Unsupported(
                        "nnpipe.like(): the transforms leave pictures of different sizes, which torch cannot collate: "
                        "add a crop, or a Resize to [height, width]"
                    )
            self.size = sizes.pop()
        return self.size


class _Folders:
    """The folders of a dataset's files. A file that is removed, or replaced by another one of its name, changes the
    time of its folder, so that the files need not be asked."""

    def __init__(self, paths):
        self._read_ns = time.time_ns()
        self._paths = paths
        self._times = {folder: _time_of(folder) for folder in {os.path.dirname(path) for path in paths}}

    def changed_file(self):
        """The first file that was removed or replaced; None: there is none."""
        changed = {folder: at for folder, before in self._times.items() if (at := _time_of(folder)) != before}
        for path in self._paths if changed else ():
            if os.path.dirname(path) in changed and self._is_other(path):
                return path
        self._times.update(changed)  # other files came or went
        return None

    def _is_other(self, path):
        try:
            return os.stat(path).st_ctime_ns > self._read_ns
        except OSError:
            return True


def _time_of(folder):
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None


def _type_name(of):
    return f"{type(of).__module__}.{type(of).__qualname__}"


def _unwrap(dataset):
    """The dataset below all Subsets, and the samples that they leave of it."""
    places = None
    while type(dataset) is Subset:
        own = torch.as_tensor(dataset.indices, dtype=torch.int64)
        places = own if places is None else own[places]
        dataset = dataset.dataset
        own_length = len(dataset)
        places = torch.where(places < 0, places + own_length, places)
    return dataset, places


def _labels(targets):
    if not all(isinstance(t, int) and not isinstance(t, bool) for t in targets):
        raise Unsupported("nnpipe.like(): a label is not a whole number")
    return torch.tensor(targets, dtype=torch.int64)


def _check_file(path):
    """Refuses formats that Pillow reads, and nnpipe does not, or reads in another way."""
    name = path.lower()
    if not name.endswith(EXTENSIONS):
        raise Unsupported(f"nnpipe.like(): {path}: nnpipe reads {', '.join(EXTENSIONS)}: convert the other files")
    if name.endswith((".png", ".pgm", ".ppm")):
        try:
            with open(path, "rb") as file:
                head = file.read(200)
        except OSError:
            return  # the DataLoader's error at this sample
        if _is_deep(head):
            raise Unsupported(f"nnpipe.like(): {path}: Pillow reads 16-bit grey in another way: convert it to 8 bits")


def _is_deep(head):
    """Does a file begin as a PNG or PGM of grey with 16 bits?"""
    if head.startswith(b"\x89PNG"):
        return head[24:26] == b"\x10\0"
    words = re.sub(rb"#[^\n]*\n?", b" ", head).split(maxsplit=4)
    return len(words) >= 4 and words[0] in (b"P2", b"P5") and words[3].isdigit() and int(words[3]) > 255
