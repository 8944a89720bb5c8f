"""One loader of the library in dealt order, for nnpipe.like()."""

import json

import PIL
import torch

from . import _nnpipe
from .like_chain import DTYPES
from .like_refuse import Unsupported

HELD = 32  # batches whose memory the program may have at a time; what it keeps beyond them is copied
COPY_FROM = 24
MAX_SEED = 10**15


def _exp(x):
    return torch.exp(torch.tensor([x])).item()


def _log(x):
    return torch.log(torch.tensor([x, x]))[0].item()


def _probes():
    """How this torch draws: as nnp_deal() wants it."""
    generator = torch.Generator()
    generator.manual_seed(1)
    draws = [torch.empty(1).uniform_(0.08, 1, generator=generator) for _ in range(256)]
    return torch.cat(draws).numpy()


def config_text(recipe, samples, batch, keys, seed):
    """The config of a loader, JSON; keys: more of `loader:`."""
    ops = list(recipe.ops)
    if recipe.size is None:
        ops.append({"center_crop": {"size": list(samples.common_size())}})
    height, width = recipe.size or samples.common_size()
    loader = {
        "batch": batch,
        "augment": ops,
        "test_augment": [{"resize": {"size": [int(height), int(width)]}}],
        "pixels": "pillow-13" if int(PIL.__version__.split(".")[0]) >= 13 else "pillow-12",
        **keys,
    }
    return json.dumps({"loader": loader, "seed": seed % MAX_SEED})


def open_loader(recipe, samples, batch, options, keys, seed=1):
    """The extension's loader over these samples. Unsupported: the library refuses the config."""
    labels = torch.zeros(len(samples), dtype=torch.int64).numpy()  # the labels are taken from `samples`
    options = [f"held={HELD}", f"dtype={DTYPES[recipe.dtype]}", "layout=nchw", *options]
    config = config_text(recipe, samples, batch, keys, seed)
    try:
        if samples.extents is not None:
            return _nnpipe.open_extents(config, ".", options, samples.archives, samples.extents, labels)
        if samples.pixels is not None:
            return _nnpipe.open_pixels(config, ".", options, samples.pixels, labels)
        return _nnpipe.open_files(config, ".", options, samples.root, samples.paths, labels)
    except ValueError as error:
        raise Unsupported(f"nnpipe.like(): {error}") from None


class Taker:
    """Makes tensors of a loader's batches. The program may keep them all: most borrow the loader's memory, and where
    it keeps many, they are copies."""

    def __init__(self, loader, recipe):
        self.loader = loader
        self._dense = recipe.contiguous
        self._nr_free = 0  # batches that may surely borrow memory, before the loader is asked again

    def images(self, batch):
        images = torch.from_dlpack(batch.images)
        if not self._dense[min(len(images), 2)]:  # this torch collates to channels_last
            images = images.contiguous(memory_format=torch.channels_last)
        if self._nr_free == 0:
            self._nr_free = max(0, COPY_FROM - json.loads(self.loader.counters())["held"])
        if self._nr_free == 0:
            return images.clone()
        self._nr_free -= 1
        return images


class Engine:
    """A loader that is dealt the rows of a DataLoader; used by one epoch at a time."""

    def __init__(self, recipe, samples, order, workers, keys):
        self.recipe = recipe
        self.samples = samples
        # Without random operations torch's generator is not used: batches need not wait for its state.
        self.follows_program = workers == 0 and recipe.random
        options = ["order=dealt", f"drop_last={'yes' if order.drop_last else 'no'}"]
        keys = {"bad_samples": {"policy": "replace", "budget": "100%"}, **keys}  # the dataset raises before
        self.loader = open_loader(recipe, samples, order.batch, options, keys)
        self._taker = Taker(self.loader, recipe)
        workers = workers if workers or self.follows_program else 1
        values = None if recipe.values is None else recipe.values.numpy()
        self.loader.deal(workers, recipe.version, _exp, _log, _probes(), values)

    def begin(self, numbers, base_seed, continues=False, nr_skipped=0):
        """Begins an epoch with these samples, int64 tensor."""
        self.loader.deal_epoch(numbers.contiguous().numpy(), base_seed, continues, nr_skipped)

    def next(self, timeout):
        """(images, batch of the extension). With follows_program torch's generator draws for it."""
        if not self.follows_program:
            batch = self.loader.next(timeout)
        else:
            state = torch.get_rng_state()
            buffer = state.numpy()
            self.loader.deal_state(buffer)
            batch = self.loader.next(timeout)
            self.loader.deal_after(buffer)
            torch.set_rng_state(state)
        if batch is None:
            raise RuntimeError("nnpipe: the epoch ended early")
        return self._taker.images(batch), batch

    def close(self):
        self.loader.close()
