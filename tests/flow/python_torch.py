"""nnpipe.Loader's batches as torch tensors, and the functions of a dealt order that torch gives. python_loader.sh runs
it with a Python that has torch."""
import array
import gc
import io
import sys
import threading

import torch

import api
import nnpipe
from api import equal, expect, test
from nnpipe import _nnpipe
from python_data import MEAN, STD, config, make_set, picture, synth

TMP = sys.argv[1]
SET = make_set(TMP + "/torch")


def pictures(labels):
    return torch.stack([torch.frombuffer(bytearray(picture(label)), dtype=torch.uint8).view(6, 5, 3)
                        for label in labels.tolist()])


def held(loader):
    return loader.counters()["held"]


with test("python: batches are torch tensors where torch is imported, of each dtype and layout"):
    for dtype in (torch.uint8, torch.float32, torch.bfloat16, torch.float16):
        for layout in ("nhwc", "nchw", "channels_last"):
            with nnpipe.Loader(config(SET), dtype=dtype, layout=layout) as loader:
                images, labels = next(iter(loader))
                wanted = pictures(labels)
                if dtype != torch.uint8:
                    wanted = (wanted.float() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
                wanted = wanted.to(dtype)
                wanted = wanted if layout == "nhwc" else wanted.permute(0, 3, 1, 2)
                equal((images.dtype, labels.dtype), (dtype, torch.int64), "dtypes")
                expect(torch.equal(images, wanted), "%s %s differs" % (dtype, layout))
                equal(images.is_contiguous(memory_format=torch.channels_last), layout == "channels_last", "strides")
                equal((images.device.type, images.is_pinned(), images.requires_grad), ("cpu", False, False), "place")

with test("python: tensors are without a copy, may be written to, and keep their slot until the last view dies"):
    with nnpipe.Loader(config(SET), dtype="float32") as loader, \
            nnpipe.Loader(config(SET), as_="dlpack", dtype="float32") as other:
        array_ = next(iter(other))[0]
        equal(torch.from_dlpack(array_).data_ptr(), torch.from_dlpack(array_).data_ptr(), "the address")
        iterator = iter(loader)
        images, labels = next(iterator)
        view = images.permute(0, 3, 1, 2)[1:3]
        images.mul_(0).add_(4)
        expect(bool((view == 4).all()), "what was written")
        del images, labels
        gc.collect()
        equal(held(loader), 1, "batches held with a view")
        del view
        gc.collect()
        equal(held(loader), 0, "batches held without")
        loader.set_epoch(0)
        for images, labels in loader:
            expect(torch.equal(images, (pictures(labels).float() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)),
                   "an in-place change came back")

with test("python: a list of all batches gets HeldError, and tensors outlive their loader in another thread"):
    loader = nnpipe.Loader(synth(), held=4)
    kept = []
    try:
        for batch in loader:
            kept.append(batch)
        expect(False, "no HeldError was raised")
    except nnpipe.HeldError as error:
        expect("images.clone()" in str(error), error)
    sums = [int(images.sum()) for images, _ in kept]
    loader.close()
    del loader, batch
    thread = threading.Thread(target=lambda: (equal([int(x.sum()) for x, _ in kept], sums, "sums"), kept.clear()))
    thread.start()
    thread.join()
    equal(kept, [], "what the thread left")

with test("python: torch.save() and torch.load() keep the position"):
    with nnpipe.Loader(config(SET)) as loader, nnpipe.Loader(config(SET)) as other:
        iterator = iter(loader)
        next(iterator)
        file = io.BytesIO()
        torch.save(loader.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        for (one, _), (two, _) in zip(iterator, other, strict=True):
            expect(torch.equal(one, two), "the rest differs")

with test("python: threads that share an iterator of like() get each batch once, with its labels"):
    from torchvision import datasets, transforms

    dataset = datasets.ImageFolder(SET, transforms.Compose([transforms.Resize((6, 5)), transforms.PILToTensor()]))
    for workers in (0, 2):
        like = nnpipe.like(torch.utils.data.DataLoader(dataset, 2, shuffle=True, num_workers=workers))
        for _ in range(5):
            batches, got, errors = iter(like), [], []

            def take():
                try:
                    for images, labels in batches:
                        expect(torch.equal(images.permute(0, 2, 3, 1), pictures(labels)), "labels of another batch")
                        got.extend(labels.tolist())
                except Exception as error:
                    errors.append(repr(error))

            takers = [threading.Thread(target=take) for _ in range(6)]
            for taker in takers:
                taker.start()
            for taker in takers:
                taker.join()
            equal((errors, sorted(got)), ([], list(range(23))), "errors, and labels")
        like.close()

with test("python: an exception of torch's exp() or log() in a dealt order ends the call, and no batch differs"):
    pixels = bytes(range(256)) * 12 * 4
    pixels = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(4, 32, 32, 3).numpy()
    generator = torch.Generator()
    generator.manual_seed(1)
    probes = array.array("f", [torch.empty(1).uniform_(0.08, 1.0, generator=generator).item() for _ in range(256)])

    def log(x):
        return torch.log(torch.tensor([x, x]))[0].item()

    def run(log):
        """The bytes of two epochs, and the exceptions between them."""
        text = "loader: {batch: 2, augment: [{random_resized_crop: 8}]}"
        loader = _nnpipe.open_pixels(text, None, ["order=dealt"], pixels, array.array("q", range(4)))
        loader.deal(1, 2, lambda x: torch.exp(torch.tensor([x])).item(), log, probes)
        batches, errors = [], []
        for epoch in range(2):
            loader.deal_epoch(array.array("q", [0, 1, 2, 3, 3, 2, 1, 0]), epoch)
            batch = 0
            while batch is not None:
                try:
                    batch = loader.next()
                    batches.append(batch and bytes(batch.images))
                except ArithmeticError as error:
                    errors.append(str(error))
        return batches, errors

    calls = []

    def fails(x):
        calls.append(x)
        if len(calls) % 2:
            raise ArithmeticError("mine")
        return log(x)

    wanted, errors = run(log)
    equal((len(wanted), errors), (10, []), "batches, without an exception")
    equal(run(fails), (wanted, ["mine"] * (len(calls) // 2)), "batches and exceptions")
    expect(len(calls) > 2, calls)
    gc.collect()

sys.exit(api.failed > 0)
