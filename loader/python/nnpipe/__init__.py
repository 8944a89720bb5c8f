"""Batches of images for training, made by nnpipe's loader.

    import nnpipe

    loader = nnpipe.Loader("config.yaml", dtype="float32", layout="nchw")
    for epoch in range(90):
        for images, labels in loader:
            ...

A Loader reads, decodes and augments a data set on threads of its own, and hands out the memory of its batches
without a copy: as torch tensors where torch is imported, else as NumPy arrays, or as objects for DLPack. The order
and the pixels depend on the config's data, `loader:` and `seed:` alone, not on the number of threads.

The text of nnpipe.Loader below says what its arguments and errors are; nnpipe's docs/CONFIG.md has the keys of a
config.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("nnpipe does not support the free-threaded build of Python yet: its extension is built for the"
                      " build with the global interpreter lock; install that one (python3.13, not python3.13t)")

from nnpipe._nnpipe import DataError, HeldError, version as __version__
from nnpipe.like_refuse import Unsupported
from nnpipe.loader import Loader

if TYPE_CHECKING:
    from nnpipe.like_loader import Like  # needs torch and torchvision

__all__ = ["DataError", "HeldError", "Loader", "Unsupported", "__version__", "like"]


def like(dataloader: Any, *, exact_order: bool = True, loader: Mapping[str, Any] | None = None) -> Like:
    """A loader that gives the batches of a torch.utils.data.DataLoader: the same bytes in the same order.

    dataloader: over torchvision's ImageFolder, CIFAR10 or CIFAR100, a Subset of them, or a webdataset.WebDataset (also
        a webdataset.WebLoader), with transforms (v1 or v2) out of Resize, CenterCrop, RandomCrop, RandomResizedCrop,
        RandomHorizontalFlip, ToTensor, PILToTensor, ToImage, ToDtype, ConvertImageDtype, Normalize and Compose; with
        torch's samplers. Its num_workers says which generators draw, as in torch; no process is started.
    exact_order: False: the same data, transforms and containers, but samples and draws are nnpipe's own, and torch's
        generators are left alone. A bad sample is then replaced, as `loader.bad_samples` of nnpipe's config says.
    loader: a dict with keys of nnpipe's `loader:` that change no batch, such as {"readers": 4, "cache": "decoded"};
        without the exact order `shuffle` and `bad_samples`, too.

    Each epoch yields [images, labels]: images (rows, channels, height, width) in the dtype that the transforms give,
    labels int64 (rows). Both belong to the program for as long as it keeps them.

    Raises Unsupported, a NotImplementedError, which names the part of the DataLoader that nnpipe does not have. An
    epoch raises what the DataLoader would raise at a sample that cannot be loaded.
    """
    from nnpipe.like_loader import Like

    return Like(dataloader, exact_order=exact_order, loader=loader)
