"""like(exact_order=False): the data and the containers of a DataLoader, in nnpipe's own order."""

import torch
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data.distributed import DistributedSampler

from .like_engine import Taker, open_loader
from .like_refuse import Unsupported


def _normalize(recipe):
    """mean and std of loader.normalize for a table of values."""
    values = recipe.values
    tolerance = 4 * torch.finfo(recipe.dtype).eps * values.abs().amax(1)
    first, last = values[:, 0].double(), values[:, 255].double()
    line = first[:, None] + (last - first)[:, None] * torch.arange(256) / 255
    if not bool(((line - values).abs().amax(1) <= tolerance).all()):
        raise Unsupported("nnpipe.like(): exact_order=False takes only values that ToTensor and Normalize make")
    std = 1 / (last - first)
    return {"mean": (-first * std).tolist(), "std": std.tolist()}


def _order(sampler):
    """(the samples as a list or None: all, shuffle, rank, world) of a sampler."""
    if type(sampler) is SequentialSampler:
        return None, "none", 0, 1
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source):
        return None, "full", 0, 1
    if type(sampler) is SubsetRandomSampler:
        return list(sampler.indices), "full", 0, 1
    if type(sampler) is DistributedSampler:
        return None, "full" if sampler.shuffle else "none", sampler.rank, sampler.num_replicas
    if type(sampler) in (list, tuple, range):
        return list(sampler), "none", 0, 1
    raise Unsupported(
        f"nnpipe.like(): exact_order=False does not know the order of {type(sampler).__qualname__}: use the exact order"
    )


class OwnEpochs:
    """The epochs of like(exact_order=False)."""

    def __init__(self, recipe, samples, order, keys):
        chosen, shuffle, rank, world = _order(order.sampler)
        every = torch.arange(len(samples) if samples.places is None else len(samples.places))
        numbers = samples.sample_numbers(every if chosen is None else torch.tensor(chosen, dtype=torch.int64))
        self._sampler = order.sampler
        self._labels = samples.labels[numbers]
        keys = {"shuffle": shuffle, **keys}
        if recipe.values is not None:
            keys["normalize"] = _normalize(recipe)
        options = [f"drop_last={'yes' if order.drop_last else 'no'}", f"rank={rank}", f"world={world}"]
        seed = self._sampler.seed if world > 1 else torch.initial_seed()
        self._taker = Taker(open_loader(recipe, samples.only(numbers), order.batch, options, keys, seed), recipe)
        self._next = 0  # the epoch that comes next
        self._running = None  # an object of the epoch that began last

    def epoch(self, dataloader):
        """The iterator over the next epoch; over the sampler's, if it has set_epoch()."""
        epoch = getattr(self._sampler, "epoch", self._next)
        self._next = epoch + 1
        pin = dataloader.pin_memory and torch.accelerator.is_available()
        return self._batches(epoch, pin)

    def _batches(self, epoch, pin):
        loader = self._taker.loader
        self._running = running = object()
        loader.seek(epoch, 0)
        while (batch := loader.next()) is not None:
            images = self._taker.images(batch)
            result = [images, self._labels[torch.tensor(batch.samples)]]
            yield [part.pin_memory() for part in result] if pin else result
            if self._running is not running:
                raise RuntimeError("nnpipe: another epoch has begun; with exact_order=False there is one at a time")

    def close(self):
        self._taker.loader.close()
