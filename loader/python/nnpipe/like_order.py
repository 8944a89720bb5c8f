"""The order of a DataLoader's samples, with the draws of torch's generators that it makes."""

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from .like_refuse import Unsupported

SAMPLERS = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


class Order:
    """The batches of a DataLoader: sampler, batch size, drop_last."""

    def __init__(self, dataloader):
        batches = dataloader.batch_sampler
        if batches is None:
            raise Unsupported("nnpipe.like(): batch_size=None is not supported: nnpipe makes batches")
        if type(batches) is not BatchSampler:
            raise Unsupported(
                f"nnpipe.like(): batch_sampler {type(batches).__qualname__} is not supported: torch's "
                "BatchSampler is"
            )
        self.sampler = batches.sampler
        self.batch = batches.batch_size
        self.drop_last = batches.drop_last
        _check(self.sampler)

    def length(self, nr_samples):
        return (nr_samples + (0 if self.drop_last else self.batch - 1)) // self.batch

    def draw(self):
        """The sampler's numbers for an epoch, int64 tensor; draws what it draws when its first number is taken."""
        s = self.sampler
        if type(s) is SequentialSampler:
            return torch.arange(len(s.data_source))
        if type(s) is RandomSampler and not s.replacement and s.num_samples <= len(s.data_source):
            n = len(s.data_source)
            generator = s.generator
            if generator is None:
                generator = torch.Generator()
                generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
            return torch.randperm(n, generator=generator)[: s.num_samples]
        return torch.tensor(list(s), dtype=torch.int64)

    def draw_end(self):
        """Draws what the sampler draws when a number behind its last one is asked for."""
        s = self.sampler
        if type(s) is RandomSampler and s.generator is not None and s.num_samples == len(s.data_source):
            torch.randperm(s.num_samples, generator=s.generator)

    def end_request(self, nr_samples):
        """The request for a batch, from 0, that asks for a number behind the last one."""
        return nr_samples // self.batch


def _check(sampler):
    if type(sampler) in (list, tuple, range):
        return
    if type(sampler) not in SAMPLERS:
        names = ", ".join(s.__name__ for s in SAMPLERS)
        raise Unsupported(
            f"nnpipe.like(): the sampler {type(sampler).__module__}.{type(sampler).__qualname__} is not one of torch's "
            f"{names}: give the DataLoader its numbers as a list (sampler=list(...))"
        )
    if type(sampler) is RandomSampler and sampler.generator is not None:
        if sampler.replacement or sampler.num_samples > len(sampler.data_source):
            raise Unsupported(
                "nnpipe.like(): a RandomSampler with generator= draws while the epoch runs, if it has replacement=True "
                "or more num_samples than the dataset has: leave generator= out of it"
            )
