"""nnpipe.Loader: a config's data set as an iterable of batches."""

from __future__ import annotations

import atexit
import errno
import json
import operator
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, SupportsIndex

from nnpipe import _nnpipe

LAYOUTS = ("nhwc", "nchw", "channels_last")

_open_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """The threads of a loader end before the interpreter does."""
    for loader in list(_open_loaders):
        loader.close()


# --- arguments -------------------------------------------------------------------------------------------------------

def _plain(value: object) -> object:
    """For json: paths, and the integers of other libraries."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"config: {value!r} is neither a text, a number, a list nor a dict") from None


def _read_config(config: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, str | None, str | None]:
    """Returns the config's text, the folder where its relative paths begin, and its file; None: there is none."""
    if isinstance(config, Mapping):
        # JSON is YAML
        return json.dumps(config, ensure_ascii=False, allow_nan=False, default=_plain), os.getcwd(), None
    if isinstance(config, str) and ("\n" in config or re.search(r":(\s|$)|^\s*\{", config)):
        return config, os.getcwd(), None
    path = os.path.abspath(os.fspath(config))
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "a folder, not a config; for pictures in class folders use {'data': "
                                "{'train': {'source': 'folder', 'path': ...}}, 'loader': ...}", path)
    with open(path, encoding="utf-8") as file:
        return file.read(), os.path.dirname(path), os.fspath(config)


def _ranks(rank: int | None, world: int | None) -> tuple[int, int]:
    """The defaults are those of torchrun's processes."""
    if rank is None and world is None:
        rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if rank is None or world is None:
        raise ValueError("rank and world are given together, or neither")
    return operator.index(rank), operator.index(world)


def _whole(name: str, value: SupportsIndex) -> int:
    """A number that fits into 64 bits."""
    number = operator.index(value)
    if not 0 <= number < 2**64:
        raise ValueError(f"{name}: expected a number of 0 or more, not {value}")
    return number


def _name(dtype: object) -> str:
    """torch.float32, numpy.float32 and "float32" are the same."""
    return str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")


def _kind(as_: str | None, dtype: str, device: str) -> str:
    """What the batches are."""
    if as_ not in (None, "torch", "numpy", "dlpack"):
        raise ValueError(f"as_: expected torch, numpy or dlpack, not {as_!r}")
    if as_ is not None:
        if as_ == "numpy" and dtype == "bfloat16":
            raise ValueError("as_: NumPy has no bfloat16; use as_='torch', as_='dlpack', or another dtype")
        if as_ == "numpy" and device != "cpu":
            raise ValueError("as_: NumPy's arrays are in host memory; use as_='torch', or as_='dlpack'")
        return as_
    if sys.modules.get("torch"):
        return "torch"
    if dtype == "bfloat16" or device != "cpu":
        return "dlpack"
    try:
        import numpy  # noqa: F401
    except ImportError:
        return "dlpack"
    return "numpy"


def _converter(kind: str, device: str) -> Callable[[Any], Any]:
    """What makes a tensor or an array of one of ours, without a copy."""
    if kind == "torch":
        import torch
        if device == "cpu":  # no stream to agree on: half the time
            return lambda array: torch.from_dlpack(array.__dlpack__())
        return torch.from_dlpack
    if kind == "numpy":
        import numpy
        return numpy.asarray
    return lambda array: array


def _reopen(text: str, folder: str | None, arguments: dict[str, Any], state: dict[str, Any] | None) -> Loader:
    """A pickled loader in its new process."""
    loader = Loader.__new__(Loader)
    loader._open(text, folder, None, arguments)
    if state is not None:
        loader.load_state_dict(state)
    return loader


# --- the loader ------------------------------------------------------------------------------------------------------

class _Epoch(Iterator[tuple[Any, Any]]):
    """The batches of an epoch that are left. It keeps none of them itself. Threads may share it: under the lock,
    none of them asks for a batch behind the epoch's end."""

    __slots__ = ("_loader", "_number", "_done", "_lock")

    def __init__(self, loader: Loader, number: int) -> None:
        self._loader, self._number, self._done = loader, number, False
        self._lock = threading.RLock()  # a signal's handler may ask, too

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> tuple[Any, Any]:
        loader = self._loader
        core = loader._own()  # a child of fork() may have the lock of a thread that it lacks
        with self._lock:
            batch = None
            if not self._done:
                loader._check(self._number)
                batch = core.next()
            if batch is None:
                self._done = True
                raise StopIteration
            convert = loader._converted
            return convert(batch.images), convert(batch.labels)


class Loader:
    """An iterable of (images, labels), made by the threads of nnpipe's loader.

    config     a path, a config's text (YAML), or a dict. Of its keys, `data`, `loader` and `seed` are used (and
               `base`). Relative paths begin at the file's folder, else at the working directory.
    set        "train", or "val" or "test": in order, without augmentation (loader.test_augment), each sample once.
    rank, world
               this process gets the rows of this rank. Defaults: torchrun's RANK and WORLD_SIZE, else 0 of 1.
    device     "cpu": memory that is not registered with CUDA; "cuda:N": the images lie in the GPU's memory.
    dtype      "uint8": pixels; "float32", "bfloat16" or "float16": (x / 255 - mean) / std, each operation in
               float32, with the config's loader.normalize.
    layout     the shape of images: "nhwc" (rows, height, width, channels); "nchw" (rows, channels, height, width);
               "channels_last": the shape of nchw over the memory of nhwc, which is torch.channels_last.
    drop_last  True: an epoch's last batch is left out if it is not full; False: it is short.
    as_        "torch", "numpy" or "dlpack". Default: torch where it is imported already, else NumPy where it can be
               imported, else objects for DLPack, which torch.from_dlpack(), jax.numpy.asarray(),
               cupy.from_dlpack(), and, with another dtype than bfloat16, memoryview() and numpy.asarray() read.
    held       the number of batches that the program may hold at a time; a for loop holds two.

    Each of the batches is (images, labels): images of the layout's shape, labels int64 (rows), -1 where a sample has
    no class. With `label_type: multi` labels are float32 (rows, classes) of 0 and 1, and with `value` (rows, values);
    NaN where a sample is bad and no other took its place. They are the loader's memory, which may be written to; the memory is used for another batch once
    the last tensor, array or view of it is gone. Copy what you keep: images.clone(), images.copy().

    Every iteration is one epoch, in an order of its own. A loop that breaks off does not continue: the next one
    begins the next epoch, unless set_epoch() or load_state_dict() says otherwise. One iteration runs at a time.

    A loader belongs to its process: after os.fork() the child opens its own. It can be pickled: the copy opens the
    same data, at the same position. Any thread may use it; a thread that waits for a batch holds no lock of
    Python, and Ctrl-C ends the wait. It does not end Loader() itself, which may list a set or unpack an archive.

    Errors of Loader(): ValueError: an argument, or the config (a line for each mistake); OSError: the data cannot be
    read; MemoryError. Errors of the iteration: HeldError: `held` batches are held; DataError: too many bad
    samples (loader.bad_samples); OSError: storage failed; RuntimeError: another process, or another iteration
    has begun; ValueError: the loader is closed.
    """

    def __init__(self, config: str | os.PathLike[str] | Mapping[str, Any], *, set: str = "train",
                 rank: int | None = None, world: int | None = None, device: Any = "cpu", dtype: Any = "uint8",
                 layout: str = "nhwc", drop_last: bool = False, as_: str | None = None, held: int = 32) -> None:
        text, folder, path = _read_config(config)
        rank, world = _ranks(rank, world)
        device, dtype = str(device), _name(dtype)
        self._open(text, folder, path, {
            "set": set, "rank": rank, "world": world, "device": "cuda:0" if device == "cuda" else device,
            "dtype": dtype, "layout": layout, "drop_last": bool(drop_last), "as_": _kind(as_, dtype, device),
            "held": operator.index(held)})

    def _open(self, text: str, folder: str | None, path: str | None, arguments: dict[str, Any]) -> None:
        if arguments["layout"] not in LAYOUTS:
            raise ValueError(f"layout: expected {', '.join(LAYOUTS[:-1])} or {LAYOUTS[-1]}, not "
                             f"{arguments['layout']!r}")
        options = {key: value for key, value in arguments.items() if key not in ("as_", "layout", "drop_last")}
        options["layout"] = "nchw" if arguments["layout"] == "nchw" else "nhwc"
        options["drop_last"] = "yes" if arguments["drop_last"] else "no"
        self._config, self._folder, self._arguments = text, folder, arguments
        self._converted = _converter(arguments["as_"], arguments["device"])
        self._pid = os.getpid()
        self._number = 0  # of the present iteration
        self._stays = False  # the next iteration begins at the position
        self._bad: list[str] = []
        try:
            self._core = _nnpipe.open(text, folder, [f"{key}={value}" for key, value in options.items()],
                                      arguments["layout"] == "channels_last")
        except ValueError as error:
            raise ValueError(re.sub(r"^config(?=:\d)", lambda _: path or "config", str(error), flags=re.M)) from None
        rows, height, width, channels = self._core.shape
        self._shape = ((rows, height, width, channels) if arguments["layout"] == "nhwc" else
                       (rows, channels, height, width))
        self._length, self._samples = self._core.length, self._core.samples
        self._classes = self._core.classes
        _open_loaders.add(self)

    def _own(self) -> _nnpipe.Loader:
        """The loader of the library, which another process cannot use."""
        if os.getpid() != self._pid:
            raise RuntimeError(f"this loader was opened by process {self._pid} and belongs to it: open one in each "
                               "process (after fork(), or in the worker itself)")
        return self._core

    # --- batches ---

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Begins an epoch: the next one, or the position that set_epoch() or load_state_dict() has set."""
        core = self._own()
        epoch, taken = core.position()
        if taken and not self._stays:
            self._seek(epoch + 1, 0)
        self._stays = False
        self._number += 1
        return _Epoch(self, self._number)

    def _check(self, number: int) -> None:
        if number != self._number:
            raise RuntimeError("another iteration of this loader has begun, or its position was set: open one Loader "
                               "for each of two loops that run side by side")

    def __len__(self) -> int:
        """Batches of an epoch of this rank."""
        return self._length

    # --- the position ---

    def _seek(self, epoch: int, batch: int) -> None:
        self.bad_samples()  # a start of the readers forgets them
        self._core.seek(epoch, batch)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, from 0.

        Not needed where epochs follow each other. After load_state_dict() with a state of the same epoch, it
        leaves the position there. ValueError: no such epoch.
        """
        core, epoch = self._own(), _whole("epoch", epoch)
        if self._stays and core.position()[0] == epoch:
            return
        self._seek(epoch, 0)
        self._number += 1
        self._stays = True

    def state_dict(self) -> dict[str, Any]:
        """The position behind the last batch that an iteration returned, for load_state_dict()."""
        epoch, taken = self._own().position()
        return {"version": 1, "epoch": epoch, "batch": taken, "fingerprint": f"{self._core.fingerprint:016x}"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration continues behind the last batch of the state: the rest of that epoch.

        The state may come from another rank and another process. ValueError: it is not of a loader with the same
        data, config, world, drop_last and set; the position stays.
        """
        core = self._own()
        try:
            version, epoch, batch, fingerprint = (state[key] for key in ("version", "epoch", "batch", "fingerprint"))
        except KeyError as error:
            raise ValueError(f"the state has no {error}: it is not one of nnpipe.Loader") from None
        if version != 1:
            raise ValueError(f"the state has version {version!r}, which this nnpipe does not know")
        if fingerprint != f"{core.fingerprint:016x}":
            raise ValueError(f"the state is of another loader (fingerprint {fingerprint}, and here "
                             f"{core.fingerprint:016x}): data, the config's `loader` and `seed`, world, drop_last and "
                             "set must be the same")
        self._seek(_whole("epoch", epoch), _whole("batch", batch))
        self._number += 1
        self._stays = True

    # --- what it tells ---

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the images of a full batch, in the layout's order."""
        return self._shape

    @property
    def dtype(self) -> str:
        """The type of the images."""
        return str(self._arguments["dtype"])

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by label; empty where the data have none."""
        return self._classes

    @property
    def samples(self) -> int:
        """Samples of the set, of all ranks together."""
        return self._samples

    @property
    def epoch(self) -> int:
        """The epoch of the position."""
        return self._own().position()[0]

    def counters(self) -> dict[str, Any]:
        """What the loader has done since it was opened or its position set.

        batches, images, bytes_read, bad_samples, ready (batches that wait for the program), held (batches that it
        has), made_batches and taken_batches (made here, taken from other jobs; 0 if the loader does not share),
        wait_seconds (the program's), readers (threads), io, cache, and seconds of work of all readers: read_seconds,
        decompress_seconds, decode_seconds, augment_seconds, batch_seconds.
        """
        self.bad_samples()
        counters: dict[str, Any] = json.loads(self._own().counters())
        return counters

    def bad_samples(self) -> list[str]:
        """All bad samples that were replaced so far, each as a sentence with its file, offset and fault."""
        core = self._own()
        while not core.closed and (text := core.bad_sample()) is not None:
            self._bad.append(text)
        return list(self._bad)

    # --- the end ---

    def close(self) -> None:
        """Stops the threads, and frees what no tensor holds. Batches that are held stay good. Again: nothing."""
        if hasattr(self, "_core"):
            self._core.close()

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._core.closed

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.state_dict() if os.getpid() == self._pid and not self.closed else None
        return _reopen, (self._config, self._folder, self._arguments, state)

    def __repr__(self) -> str:
        if not hasattr(self, "_core"):
            return "<nnpipe.Loader, not open>"
        what = self._arguments
        rank = f", rank {what['rank']} of {what['world']}" if what["world"] > 1 else ""
        return (f"<nnpipe.Loader {what['set']}: {self._samples} samples, {self._length} batches of {self._shape} "
                f"{what['dtype']} on {what['device']}{rank}{', closed' if self.closed else ''}>")
