"""nnpipe.like(): the batches of a torch DataLoader, made by nnpipe."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import distributed
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, default_collate

from .like_chain import read_chain
from .like_data import Samples
from .like_engine import Engine
from .like_order import Order
from .like_own import OwnEpochs
from .like_refuse import Unsupported


def _check(dataloader):
    """Refuses what runs the program's own code in torch's workers."""
    if not isinstance(dataloader, DataLoader):
        raise TypeError(f"nnpipe.like() takes a torch.utils.data.DataLoader, not {type(dataloader).__name__}")
    if type(dataloader).__iter__ is not DataLoader.__iter__:
        raise Unsupported(
            f"nnpipe.like(): {type(dataloader).__qualname__} iterates in a way of its own: give nnpipe.like() torch's "
            "own DataLoader (before accelerate prepares it, for example)"
        )
    if isinstance(dataloader.dataset, IterableDataset) and not _is_web(dataloader.dataset):
        raise Unsupported(
            f"nnpipe.like(): the dataset {type(dataloader.dataset).__qualname__} is an IterableDataset: it must be "
            "torchvision's ImageFolder, CIFAR10 or CIFAR100, a Subset of them, or a webdataset.WebDataset"
        )
    if dataloader.worker_init_fn is not None:
        raise Unsupported("nnpipe.like(): worker_init_fn is not supported: nnpipe has no worker processes")
    if dataloader.collate_fn is not default_collate and dataloader.batch_sampler is not None:
        raise Unsupported(
            "nnpipe.like(): collate_fn is not supported: call it on the batch in the training loop (torchvision's "
            "CutMix and MixUp take batches)"
        )
    if not getattr(dataloader, "in_order", True) and dataloader.num_workers:
        raise Unsupported("nnpipe.like(): in_order=False is not supported: nnpipe's batches come in order")
    if dataloader.num_workers and dataloader.prefetch_factor == 0:
        raise Unsupported("nnpipe.like(): prefetch_factor=0 is not supported")


FIXED = ("batch", "augment", "test_augment", "normalize", "channels", "pixels", "max_pixels")
FIXED_BY_ORDER = ("shuffle", "bad_samples")


def _check_keys(keys, exact_order):
    """Refuses keys of `loader:` that would change what the DataLoader says."""
    for key in FIXED if not exact_order else FIXED + FIXED_BY_ORDER:
        if key in keys:
            raise Unsupported(
                f"nnpipe.like(): loader: {key!r} follows from the DataLoader: change it there (keys such as readers, "
                "io, depth, cache and share can be set here)"
            )


def _check_ranks(order):
    """Warns where each process would train on all samples: Lightning and accelerate put a DistributedSampler into a
    DataLoader, but not into what nnpipe.like() returns."""
    world = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
    if world > 1 and isinstance(getattr(order, "sampler", None), RandomSampler):
        warnings.warn(
            f"nnpipe.like(): each of the {world} processes gets all samples: give the DataLoader a DistributedSampler",
            RuntimeWarning,
            stacklevel=3,
        )


def _is_web(of):
    """Is it webdataset's? Imports webdataset only if the program has done so."""
    return type(of).__module__.startswith("webdataset.")


class Like:
    """What nnpipe.like() returns. Iterate over it as over the DataLoader."""

    def __init__(self, dataloader: Any, *, exact_order: bool = True, loader: Mapping[str, Any] | None = None) -> None:
        if _is_web(dataloader):
            from .like_web import loader_of

            dataloader = loader_of(dataloader)
        _check(dataloader)
        self.dataloader = dataloader
        self.exact_order = exact_order
        self._keys = dict(loader or {})
        _check_keys(self._keys, exact_order)
        self._read()
        self._free = []  # engines without an epoch
        self._iterator = None  # of persistent workers
        self._closed = False
        self._own = None
        if exact_order:
            self._free.append(self._engine())
        else:
            self._own = OwnEpochs(self._recipe, self._samples, self._order, self._keys)

    def __getattr__(self, name: str) -> Any:
        """dataset, sampler, batch_size, num_workers and so on are the DataLoader's."""
        if name.startswith("_") or name == "dataloader":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dataloader, name)

    def __len__(self) -> int:
        return len(self.dataloader)

    def __repr__(self) -> str:
        return f"nnpipe.like({self.dataloader!r}, exact_order={self.exact_order})"

    def __iter__(self) -> Iterator[list[Any]]:
        if self._closed:
            raise ValueError("the loader is closed")
        if sys._getframe(1).f_code.co_name == "_check_dataloader_iterable":
            return self._at_first_batch()
        _check_ranks(self._order)
        if self._own:
            return self._own.epoch(self.dataloader)
        if not (self.dataloader.persistent_workers and self.dataloader.num_workers):
            return _Epoch(self)
        if self._iterator is None:
            self._iterator = _Epoch(self)
        else:
            self._iterator.reset()
        return self._iterator

    def _at_first_batch(self):
        """For Lightning, which makes an iterator of what is no DataLoader to see whether it can, and drops it: one that
        draws nothing before its first batch."""
        yield from self

    def close(self) -> None:
        """Ends the threads. Batches that the program keeps stay good."""
        self._closed = True
        self._iterator = None
        for engine in self._free:
            engine.close()
        self._free.clear()
        if self._own:
            self._own.close()

    def __enter__(self) -> Like:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self):
        """Reads dataset, transforms and order out of the DataLoader."""
        dataloader = self.dataloader
        if not _is_web(dataloader.dataset):
            self._order = Order(dataloader)
            self._samples = Samples(dataloader.dataset)
            self._recipe = read_chain(self._samples.base.transform, self._samples.size)
            return
        from .like_web import WebOrder, WebSamples

        self._samples = WebSamples(dataloader.dataset)
        self._recipe = read_chain(self._samples.base.transform, self._samples.size)
        self._order = WebOrder(dataloader, self._samples, self._recipe.random)

    def _engine(self):
        return Engine(self._recipe, self._samples, self._order, self.dataloader.num_workers, self._keys)

    def _take(self):
        """An engine for an epoch; a new one while others are in use, or if the program changed the dataset."""
        recipe = read_chain(self._samples.base.transform, self._samples.size)
        if self._samples.changed() or not recipe.is_like(self._recipe):
            self._read()
            for engine in self._free:
                engine.close()
            self._free.clear()
        return self._free.pop() if self._free else self._engine()

    def _give_back(self, engine):
        if self._closed or engine.recipe is not self._recipe:
            engine.close()
        else:
            self._free.append(engine)


class _Epoch:
    """The iterator over an epoch. It asks generators and sampler for what torch's iterator asks, at the same time."""

    def __init__(self, owner):
        self._engine = None
        self._owner = owner
        self._pid, self._lock = os.getpid(), threading.RLock()  # threads may share the iterator
        dataloader = owner.dataloader
        self._workers = dataloader.num_workers
        if not self._workers and dataloader.timeout:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        self._ahead = dataloader.prefetch_factor * self._workers if self._workers else 0
        self._pin = dataloader.pin_memory and torch.accelerator.is_available()
        self._timeout = dataloader.timeout if dataloader.timeout > 0 else -1
        self._engine = owner._take()
        self._numbers = None
        self._base_seed = torch.empty((), dtype=torch.int64).random_(generator=dataloader.generator).item()
        if self._workers:
            self._begin(False, 0)

    def reset(self):
        """The next epoch with persistent workers: they had been given some batches that were not taken."""
        if (path := self._engine.samples.changed_file()) is not None:
            raise RuntimeError(
                f"nnpipe.like(): {path} was removed or replaced since the epoch before: with persistent_workers=True "
                "call nnpipe.like() again"
            )
        self._begin(True, min(self._length, self._taken + self._ahead))

    def _begin(self, continues, nr_skipped):
        order, samples = self._owner._order, self._engine.samples
        drawn = order.draw()
        self._numbers = samples.sample_numbers(drawn)
        self._length = order.length(len(drawn))
        self._end_request = order.end_request(len(drawn))
        self._taken = self._requests = 0
        self._engine.begin(self._numbers, self._base_seed, continues, nr_skipped)
        for _ in range(self._ahead):
            self._request()

    def _request(self):
        """torch asks the sampler for one more batch."""
        if self._requests == self._end_request:
            self._owner._order.draw_end()
        self._requests += 1

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._owner)

    def __next__(self):
        if os.getpid() != self._pid:
            return self._next()  # refused; the lock may be that of a thread that fork() left behind
        with self._lock:
            return self._next()

    def _next(self):
        if self._engine is None:
            raise StopIteration
        if self._numbers is None:
            self._begin(False, 0)
        k = self._taken
        if k == self._length:
            self._end()
            raise StopIteration
        if not self._workers:
            self._request()
        try:
            images, batch = self._engine.next(self._timeout)
        except TimeoutError:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds") from None
        if self._workers:
            self._request()
        self._taken = k + 1
        first = k * self._owner._order.batch
        numbers = self._numbers[first : first + len(images)]
        if batch.nr_bad:
            self._mend(images, numbers, batch.samples)
        result = [images, self._engine.samples.labels[numbers]]
        return [part.pin_memory() for part in result] if self._pin else result

    def _end(self):
        if not self._workers:
            self._request()
        if self._owner._iterator is not self:  # of persistent workers
            engine, self._engine = self._engine, None
            self._owner._give_back(engine)

    def _mend(self, images, numbers, samples):
        """Does as torch would with the samples that nnpipe could not decode: raises, or fills their rows."""
        for row, sample in enumerate(samples):
            if sample is None:
                images[row] = self._by_python(int(numbers[row]))

    def _by_python(self, number):
        state = torch.get_rng_state()
        wrapper = None
        try:
            image, _ = self._engine.samples.base[number]
        except Exception as error:
            error.add_note(f"sample {number} of the dataset: {self._engine.samples.name(number)}")
            if not self._workers:
                raise
            wrapper = ExceptionWrapper(where=f"in DataLoader worker process {(self._taken - 1) % self._workers}")
        finally:
            torch.set_rng_state(state)
        if wrapper:
            wrapper.reraise()
        if self._engine.recipe.random:
            raise RuntimeError(
                f"nnpipe cannot decode sample {number} of the dataset ({self._engine.samples.name(number)}), which "
                "Pillow can: if the file was replaced since, call nnpipe.like() again, else convert it to JPEG or PNG"
            )
        return image

    def __del__(self):
        if self._engine is not None:
            self._owner._give_back(self._engine)
