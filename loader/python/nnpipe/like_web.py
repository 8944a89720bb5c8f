"""A webdataset.WebDataset as samples for nnpipe: the members of its tar archives, in the order of its stages."""

import io
import re
import tarfile
from itertools import islice
from urllib.parse import urlparse

import numpy
import PIL.Image
import torch
import webdataset
from torch.utils.data import BatchSampler
from webdataset import autodecode, cache, compat, filters, shardlists, tariterators

from .like_data import EXTENSIONS
from .like_refuse import Unsupported

META = re.compile(r"__[^/]*__($|/)")  # the members that webdataset leaves out
LABEL_BYTES = 64  # of a member that may be a label


def is_web(dataset):
    return isinstance(dataset, webdataset.WebDataset)


def loader_of(webloader):
    """The DataLoader in a webdataset.WebLoader without further stages; anything else is returned as it is."""
    if not isinstance(webloader, webdataset.WebLoader):
        return webloader
    if len(webloader.pipeline) > 1 or webloader.repetitions != 1:
        more = [_stage_name(s) for s in webloader.pipeline[1:]] or ["repeat() or with_epoch()"]
        raise Unsupported(f"nnpipe.like(): the WebLoader's {more[0]} is not supported: do it in the training loop")
    return webloader.pipeline[0]


def _stage_name(stage):
    f = getattr(stage, "f", stage)
    return getattr(f, "__name__", type(f).__name__).lstrip("_")


def _refuse(stage, why):
    raise Unsupported(f"nnpipe.like(): the WebDataset's {_stage_name(stage)}: {why}")


def _is(stage, function):
    return isinstance(stage, filters.FilterFunction) and stage.f is function


def _plain(stage, *allowed):
    """Refuses options of a stage but for these."""
    for key, value in stage.kw.items():
        if key == "handler" and value is not filters.reraise_exception:
            _refuse(stage, "handler= is not supported: errors are raised")
        if key not in ("handler", *allowed) and value is not None:
            _refuse(stage, f"{key}= is not supported")


class _Stages:
    """The stages that nnpipe knows, read from the front. Order of samples: `shuffles`; of urls: `urls`."""

    def __init__(self, dataset):
        if dataset.repetitions != 1 or dataset.nsamples > 0:
            raise Unsupported("nnpipe.like(): the WebDataset's repeat() or with_epoch() is not supported")
        rest = list(dataset.pipeline)
        self.urls = self._take_urls(rest)
        self.group = self._take_files(rest)
        self.shuffles, self.keys, self.transform, self.decoder = [], None, None, None
        mapped = {}
        for stage in rest:
            self._take_sample_stage(stage, mapped)
        if self.decoder is None or self.keys is None:
            raise Unsupported('nnpipe.like(): the WebDataset needs .decode("pil") and .to_tuple("jpg;png", "cls")')
        if mapped:
            self._take_mapped(mapped)

    def _take_urls(self, rest):
        first = rest.pop(0)
        if type(first) is not shardlists.SimpleShardList or first.seed is not None:
            _refuse(first, "expected a list of archives (urls as a list, or with braces)")
        self.order_of_urls, self.splits = [], False
        while rest and not isinstance(rest[0], (cache.StreamingOpen, cache.FileCache)):
            stage = rest.pop(0)
            if stage is shardlists.split_by_worker:
                self.splits = True
            elif stage is shardlists.single_node_only:
                if torch.distributed.is_available() and torch.distributed.is_initialized() and (
                        torch.distributed.get_world_size() > 1):
                    _refuse(stage, "there are several processes, and it has no nodesplitter")
            elif _is(stage, filters._shuffle):
                _check_shuffle(stage)
                self.order_of_urls.append((stage, self.splits))
            else:
                _refuse(stage, "this stage is not one of nnpipe's")
        return list(first.urls)

    def _take_files(self, rest):
        opener = rest.pop(0)
        if type(opener) is not cache.StreamingOpen or opener.handler is not filters.reraise_exception:
            _refuse(opener, "cache_dir and handler are not supported: nnpipe reads the archives itself")
        expander, group = rest.pop(0), rest.pop(0)
        if not _is(expander, tariterators.tar_file_expander):
            _refuse(expander, "this stage is not one of nnpipe's")
        _plain(expander)
        if not _is(group, tariterators.group_by_keys):
            _refuse(group, "this stage is not one of nnpipe's")
        _plain(group)
        if rest and rest[0] is compat.check_empty:
            rest.pop(0)
        return group

    def _take_sample_stage(self, stage, mapped):
        if _is(stage, filters._shuffle):
            if self.transform is not None or mapped:
                _refuse(stage, "put it before the transforms")
            _check_shuffle(stage)
            self.shuffles.append(stage)
        elif _is(stage, filters._map) and type(stage.args[0]) is autodecode.Decoder and self.decoder is None:
            _plain(stage)
            self.decoder = _check_decoder(stage.args[0])
        elif _is(stage, filters._to_tuple) and self.keys is None and self.decoder is not None:
            _plain(stage)
            keys = stage.args[0].split() if len(stage.args) == 1 and isinstance(stage.args[0], str) else stage.args
            if len(keys) != 2:
                _refuse(stage, f"expected a picture and a label, not {len(keys)} keys")
            self.keys = [key.split(";") if isinstance(key, str) else list(key) for key in keys]
        elif _is(stage, filters._map_tuple) and self.keys is not None and self.transform is None:
            _plain(stage)
            functions = list(stage.args)
            if len(functions) > 1 and functions[1] is not None or not functions:
                _refuse(stage, "expected the picture's transforms alone: do the label's in the training loop")
            self.transform = functions[0]
        elif _is(stage, filters._map_dict) and self.keys is None and self.decoder is not None and not mapped:
            _plain(stage, *[key for key in stage.kw if key != "handler"])
            mapped.update({key: f for key, f in stage.kw.items() if key != "handler"})
        else:
            _refuse(stage, "this stage, or its place, is not one of nnpipe's")

    def _take_mapped(self, mapped):
        images = self.keys[0]
        if self.transform is not None or len(mapped) != 1 or len(images) != 1 or images[0] not in mapped:
            raise Unsupported(
                "nnpipe.like(): the WebDataset's map_dict: expected the transforms of the one picture of to_tuple(), "
                "and no other key"
            )
        self.transform = mapped[images[0]]


def _check_shuffle(stage):
    size = stage.args[0] if stage.args else stage.kw.get("bufsize", 1)
    if stage.kw.get("rng") is not None or (stage.kw.get("seed") is None and int(size) > 0):
        _refuse(stage, "its order is another one each time: give it seed=")


def _check_decoder(decoder):
    pre, post = autodecode.default_pre_handlers, autodecode.default_post_handlers
    handlers = decoder.handlers[len(pre): len(decoder.handlers) - len(post)]
    known = decoder.handlers == pre + handlers + post and len(handlers) == 1 and decoder.only is None
    if not known or type(handlers[0]) is not autodecode.ImageHandler or handlers[0].imagespec not in ("pil", "pilrgb"):
        raise Unsupported('nnpipe.like(): the WebDataset\'s decode: expected .decode("pil"), without other handlers')
    return decoder


def _members(number, path, url):
    """The members of an archive as webdataset's expander gives them, with (file, offset, bytes, start) as data."""
    parsed = urlparse(url)
    if parsed.scheme not in ("", "file"):
        raise Unsupported(f"nnpipe.like(): {url}: nnpipe reads archives that are files here")
    try:
        archive = tarfile.open(path, "r:")
    except tarfile.ReadError:
        raise Unsupported(f"nnpipe.like(): {path} is compressed, or no tar archive: unpack it to .tar") from None
    with archive:
        for member in archive:
            if not member.isreg() or META.match(member.name):
                continue
            start = archive.extractfile(member).read() if member.size <= LABEL_BYTES else None
            yield {"fname": member.name, "data": (number, member.offset_data, member.size, start), "__url__": url}
            archive.members = []
    yield {}


class WebSamples:
    """As like_data.Samples, for a WebDataset. extents: uint64 (samples, 3): file, offset and bytes."""

    def __init__(self, dataset):
        self.dataset = dataset
        self.base = self
        self._pipeline = list(dataset.pipeline)
        self.stages = _Stages(dataset)
        self.transform = self.stages.transform
        self.pixels = self.root = self.places = self.size = None
        self.archives = [urlparse(url).path for url in self.stages.urls]
        self._raw, self._first = [], []  # samples, and the number of the first one of each archive
        for number, (path, url) in enumerate(zip(self.archives, self.stages.urls)):
            self._first.append(len(self._raw))
            self._raw += self.stages.group(iter(list(_members(number, path, url))))
        self._first.append(len(self._raw))
        self._images = [self._key(sample, 0) for sample in self._raw]
        self.labels = torch.tensor([self._label(sample) for sample in self._raw], dtype=torch.int64)
        extents = [sample[key][:3] for sample, key in zip(self._raw, self._images)]
        self.extents = numpy.array(extents, dtype=numpy.uint64).reshape(-1, 3)

    def _key(self, sample, which):
        """The first key of to_tuple() that the sample has."""
        for key in self.stages.keys[which]:
            if key in sample:
                if which == 0 and "." + key.split(".")[-1] not in EXTENSIONS:
                    raise Unsupported(f"nnpipe.like(): {sample['__key__']}.{key}: nnpipe reads {', '.join(EXTENSIONS)}")
                return key
        raise Unsupported(
            f"nnpipe.like(): {sample['__url__']}: the sample {sample['__key__']} has none of "
            f"{';'.join(self.stages.keys[which])}"
        )

    def _label(self, sample):
        key = self._key(sample, 1)
        start = sample[key][3]
        label = None if start is None else self.stages.decoder.decode1(key, start)
        if not isinstance(label, int) or isinstance(label, bool):
            raise Unsupported(f"nnpipe.like(): {sample['__key__']}.{key}: the label is not a whole number")
        return label

    def __len__(self):
        return len(self._raw)

    def changed(self):
        return self._pipeline != list(self.dataset.pipeline)

    def changed_file(self):
        return None

    def name(self, number):
        return f"{self._raw[number]['__url__']}, {self._raw[number]['__key__']}"

    def sample_numbers(self, indices):
        return indices

    def only(self, numbers):
        raise Unsupported("nnpipe.like(): exact_order=False does not take a WebDataset: use nnpipe.Loader")

    def _bytes(self, part):
        with open(self.archives[part[0]], "rb") as file:
            file.seek(part[1])
            return file.read(part[2])

    def common_size(self):
        """(height, width) of all pictures. Reads the header of each."""
        if self.size is None:
            sizes = set()
            for sample, key in zip(self._raw, self._images):
                with PIL.Image.open(io.BytesIO(self._bytes(sample[key]))) as picture:
                    sizes.add((picture.height, picture.width))
            if len(sizes) != 1:
                raise Unsupported(
                    "nnpipe.like(): the transforms leave pictures of different sizes, which torch cannot collate: "
                    "add a crop, or a Resize to [height, width]"
                )
            self.size = sizes.pop()
        return self.size

    def __getitem__(self, number):
        """(image, label) as webdataset makes them: for samples that nnpipe cannot decode."""
        sample = {k: self._bytes(v) if isinstance(v, tuple) else v for k, v in self._raw[number].items()}
        image = self.stages.decoder(sample)[self._images[number]]
        return (image if self.transform is None else self.transform(image)), int(self.labels[number])

    def of_worker(self, worker, workers):
        """The numbers of the samples that a worker gives, in its order."""
        urls = list(range(len(self.archives)))
        split = not self.stages.splits or workers < 2
        for stage, behind_split in self.stages.order_of_urls:
            if behind_split and not split:
                urls, split = list(islice(urls, worker, None, workers)), True
            urls = list(stage(iter(urls)))
        if not split:
            urls = list(islice(urls, worker, None, workers))
        numbers = [n for url in urls for n in range(self._first[url], self._first[url + 1])]
        for stage in self.stages.shuffles:
            numbers = list(stage(iter(numbers)))
        return numbers


class WebOrder:
    """As like_order.Order, for a WebDataset: each worker gives batches of its own archives, in turn."""

    def __init__(self, dataloader, samples, random):
        if type(dataloader.batch_sampler) is not BatchSampler:
            raise Unsupported("nnpipe.like(): batch_size=None is not supported: nnpipe makes batches")
        self.batch, self.drop_last = dataloader.batch_size, dataloader.drop_last
        self.sampler = range(len(samples))
        workers = max(1, dataloader.num_workers)
        queues = [self._batches(samples.of_worker(worker, workers)) for worker in range(workers)]
        if not all(queues):
            raise Unsupported("nnpipe.like(): a worker has no sample: the WebDataset has fewer archives than workers")
        turns = [queue[i] for i in range(max(map(len, queues))) for queue in queues if i < len(queue)]
        if any(len(batch) < self.batch for batch in turns[:-1]):
            raise Unsupported(
                "nnpipe.like(): a worker's last batch is short, in the middle of the epoch: use drop_last=True, or "
                "num_workers=0 or 1"
            )
        if random and len(set(map(len, queues))) > 1:
            raise Unsupported(
                "nnpipe.like(): the workers give different numbers of batches, and the transforms are random: use "
                "num_workers=0 or 1, or archives of one length"
            )
        self._numbers = torch.tensor([n for batch in turns for n in batch], dtype=torch.int64)

    def _batches(self, numbers):
        batches = [numbers[i : i + self.batch] for i in range(0, len(numbers), self.batch)]
        if self.drop_last and batches and len(batches[-1]) < self.batch:
            batches.pop()
        return batches

    def length(self, nr_samples):
        return -(-nr_samples // self.batch)

    def draw(self):
        return self._numbers

    def draw_end(self):
        """A WebDataset draws nothing at its end."""

    def end_request(self, nr_samples):
        return -1
