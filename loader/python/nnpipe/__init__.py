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

import sysconfig

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("nnpipe does not support the free-threaded build of Python yet: its extension is built for the"
                      " build with the global interpreter lock; install that one (python3.13, not python3.13t)")

from nnpipe._nnpipe import DataError, HeldError, version as __version__
from nnpipe.loader import Loader

__all__ = ["DataError", "HeldError", "Loader", "__version__"]
