"""The cases of like_batches.py: pictures, datasets and chains of transforms, and how two loaders are compared."""
import hashlib
import os
import random

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as v1
from torchvision.datasets import CIFAR10, ImageFolder
from torchvision.models import resnet18
from torchvision.transforms import v2
from torchvision.transforms._presets import ImageClassification
from torchvision.transforms.functional import InterpolationMode

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
FLOAT32 = dict(dtype=torch.float32, scale=True)


def v2_tail(*more):
    return [v2.ToImage(), v2.ToDtype(**FLOAT32), v2.Normalize(MEAN, STD), *more]


V1_TAIL = [v1.ToTensor(), v1.Normalize(MEAN, STD)]

# Chains whose result has one size for all pictures.
CHAINS = {
    "v1 training": [v1.RandomResizedCrop(48), v1.RandomHorizontalFlip(), *V1_TAIL],
    "v2 training": [v2.RandomResizedCrop(48), v2.RandomHorizontalFlip(), *v2_tail()],
    "v2 training, uint8": [
        v2.RandomResizedCrop((40, 56), antialias=True), v2.RandomHorizontalFlip(0.3), v2.PILToTensor(),
    ],
    "v1 test": [v1.Resize(64), v1.CenterCrop(56), *V1_TAIL],
    "v2 test": [v2.Resize(64, interpolation=InterpolationMode.BICUBIC), v2.CenterCrop((48, 56)), *v2_tail()],
    "a model's weights": [ImageClassification(crop_size=48, resize_size=60)],
    "v1 resize, random crop": [v1.Resize((60, 50)), v1.RandomCrop(48), v1.RandomHorizontalFlip(1.0), v1.ToTensor()],
    "v2 resize, random crop": [v2.Resize((60, 48)), v2.RandomCrop(48), v2.RandomHorizontalFlip(0.0), *v2_tail()],
    "v1 one axis": [v1.Resize((60, 48)), v1.RandomCrop(48), v1.PILToTensor()],
    "v1 crop with padding": [v1.Resize((32, 32)), v1.RandomCrop(32, padding=4), v1.RandomHorizontalFlip(), *V1_TAIL],
    "v2 crop with padding": [v2.Resize((32, 32)), v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), *v2_tail()],
    "v1 mirrored padding": [v1.Resize((32, 32)), v1.RandomCrop(32, padding=[4], padding_mode="reflect"), v1.ToTensor()],
    "v2 mirrored padding": [v2.Resize((32, 36)), v2.RandomCrop(32, padding=3, padding_mode="reflect"), *v2_tail()],
    "flip, then crop": [
        v1.RandomHorizontalFlip(), v1.RandomResizedCrop(40, scale=(0.3, 0.9), ratio=(0.5, 2.0)), *V1_TAIL,
    ],
    "nearest, narrow ratios": [
        v1.RandomResizedCrop(32, (0.9, 1.0), (3.0, 4.0), InterpolationMode.NEAREST), v1.ToTensor(),
    ],
    "bicubic, bfloat16": [v2.RandomResizedCrop(40, interpolation=3), v2.ToImage(), v2.ToDtype(torch.bfloat16, True)],
    "float16": [v1.Resize((40, 44)), v1.ToTensor(), v1.ConvertImageDtype(torch.float16)],
    "geometry behind ToTensor": [
        v1.Resize(60), v1.ToTensor(), v1.RandomCrop(44), v1.RandomHorizontalFlip(), v1.Normalize(MEAN, STD),
    ],
    "geometry behind ToImage": [v2.ToImage(), v2.RandomCrop(24), v2.RandomHorizontalFlip(), v2.ToDtype(**FLOAT32)],
    "nested": [
        v1.Compose([v2.Compose([v2.Resize(50), v1.CenterCrop(60)]), v1.RandomHorizontalFlip()]),
        *v2_tail(v2.ToPureTensor()),
    ],
    "v1 colours": [
        v1.RandomResizedCrop(48), v1.RandomApply([v1.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8), v1.RandomGrayscale(0.2),
        v1.RandomHorizontalFlip(), *V1_TAIL,
    ],
    "v2 colours before the crop": [
        v2.ColorJitter(brightness=(0.2, 3), hue=0.5), v2.RandomAdjustSharpness(2.5), v2.RandomResizedCrop(40),
        v2.RandomVerticalFlip(0.3), v2.RandomEqualize(), v2.Resize((30, 44)), *v2_tail(),
    ],
    "v1 policies": [
        v1.RandomResizedCrop(40), v1.AutoAugment(), v1.RandAugment(), v1.TrivialAugmentWide(), v1.ToTensor(),
    ],
    "v2 policies": [
        v2.RandomResizedCrop(40), v2.AutoAugment(), v2.RandAugment(3, 7, 15, InterpolationMode.BILINEAR, fill=9),
        v2.TrivialAugmentWide(), *v2_tail(),
    ],
    "v1 affine": [
        v1.Resize((44, 50)), v1.RandomAffine(20, (0.2, 0.1), (0.7, 1.4), (-5, 8, -3, 3)), v1.RandomRotation(30),
        *V1_TAIL,
    ],
    "v1 erasing": [
        v1.RandomResizedCrop(40), v1.ToTensor(), v1.RandomErasing(0.7), v1.RandomErasing(0.5, value=1),
        v1.Normalize(MEAN, STD),
    ],
    "v2 erasing": [
        v2.RandomResizedCrop(40), v2.ToImage(), v2.RandomErasing(0.9, (0.2, 1), (0.1, 9), value=(3, 99, 200)),
        v2.RandomCrop(37, padding=3), v2.ToDtype(**FLOAT32),
    ],
    "v2, three crops": [
        v2.Resize((70, 60)), v2.RandomCrop((60, 60)), v2.CenterCrop(52), v2.RandomCrop((50, 52)), *v2_tail(),
    ],
}
# Chains of CIFAR's users, and those whose size is the pictures' own.
CIFAR_CHAINS = {
    "to tensor": [v1.ToTensor()],
    "v1 CIFAR": [v1.RandomCrop(32, padding=4), v1.RandomHorizontalFlip(), *V1_TAIL],
    "v2 CIFAR": [v2.RandomCrop(32, padding=4, padding_mode="reflect"), v2.RandomHorizontalFlip(), *v2_tail()],
    "v2 uint8": [v2.RandomHorizontalFlip(), v2.ToImage()],
    "resized": [v1.RandomHorizontalFlip(), v1.Resize(59), v1.ToTensor()],
    "flip, then nearest": [v1.RandomHorizontalFlip(), v1.Resize(45, InterpolationMode.NEAREST), v1.ToTensor()],
    "two borders": [v1.RandomCrop(36, padding=4), v1.RandomHorizontalFlip(), v1.CenterCrop(40), v1.ToTensor()],
    "mirrored crop": [v2.CenterCrop(24), v2.RandomCrop(24, padding=3, padding_mode="reflect"), v2.ToImage()],
    "v1 shares": [
        v1.RandomSolarize(130.5), v1.RandomPosterize(3), v1.RandomAutocontrast(), v1.RandomInvert(0.2), v1.ToTensor(),
    ],
    "v2 upside down behind ToTensor": [v2.ToImage(), v2.RandomVerticalFlip(), v2.ToDtype(**FLOAT32)],
    "enlarged": [v1.Resize(40), v1.RandomCrop(36), v1.ToTensor()],
}


def random_chain(rng):
    """A chain that may be refused. rng: random.Random."""
    def size(low, high):
        return rng.choice([rng.randint(low, high), (rng.randint(low, high), rng.randint(low, high))])

    def operation(of):
        modes = [InterpolationMode.NEAREST, InterpolationMode.BILINEAR, InterpolationMode.BICUBIC]
        return rng.choice([
            lambda: of.Resize(size(8, 90), interpolation=rng.choice(modes)),
            lambda: of.CenterCrop(size(8, 60)),
            lambda: of.RandomCrop(size(8, 40), padding=rng.choice([None, 0, 1, 3, 5]),
                                  padding_mode=rng.choice(["constant", "reflect"])),
            lambda: of.RandomResizedCrop(size(8, 60), rng.choice([(0.08, 1.0), (0.01, 0.02), (1.0, 1.0)]),
                                         rng.choice([(0.75, 4 / 3), (1.0, 1.0), (0.1, 10.0), (5.0, 6.0)]),
                                         interpolation=rng.choice(modes)),
            lambda: of.RandomHorizontalFlip(rng.choice([0.5, 0.1, 0.9, 0.0, 1.0])),
            lambda: of.RandomVerticalFlip(rng.choice([0.5, 0.0, 1.0])),
            lambda: of.ColorJitter(*(rng.choice([0, 0.3, (0.2, 0.5)]) for _ in range(4))),
            lambda: of.RandomApply([of.ColorJitter(0.4, 0.4, 0.2, 0.1)], rng.choice([0.2, 0.8])),
            lambda: rng.choice([of.RandomGrayscale, of.RandomEqualize, of.RandomAutocontrast, of.RandomInvert])(0.4),
            lambda: of.RandomRotation(rng.choice([10, (0, 90), 180]), rng.choice(modes[:2])),
            lambda: of.RandomAffine(rng.choice([0, 25]), rng.choice([None, (0.3, 0.1)]), rng.choice([None, (0.5, 2)]),
                                    rng.choice([None, 20, (-9, 9, 0, 5)]), rng.choice(modes[:2]), 77),
            lambda: rng.choice([of.RandAugment, of.TrivialAugmentWide, of.AutoAugment])(
                interpolation=rng.choice(modes[:2])),
            lambda: of.RandomAdjustSharpness(rng.choice([0, 0.7, 3.1]), rng.choice([0.3, 1.0])),
        ])()

    of = rng.choice([v1, v2])
    geometry = [operation(of) for _ in range(rng.randint(1, 5))]
    at = rng.randint(0, len(geometry)) if rng.random() < 0.3 else len(geometry)
    tensor = rng.choice([[v1.ToTensor()], [v1.PILToTensor()], v2_tail()[:2], V1_TAIL,
                         [v2.ToImage(), v2.ToDtype(torch.float16, scale=True)]])
    return geometry[:at] + tensor + geometry[at:]


def picture(rng, width, height):
    """Smooth colours and noise."""
    small = rng.integers(0, 256, (5, 7, 3), dtype=numpy.uint8)
    smooth = numpy.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    return Image.fromarray(numpy.clip(smooth + rng.integers(-20, 20, smooth.shape), 0, 255).astype(numpy.uint8))


def make_folder(root, nr_pictures=44):
    """Pictures of odd sizes and all modes that people have, in three classes."""
    rng = numpy.random.default_rng(5)
    for i in range(nr_pictures):
        os.makedirs("%s/class%d" % (root, i % 3), exist_ok=True)
        name = "%s/class%d/%03d" % (root, i % 3, i)
        image = picture(rng, int(rng.integers(30, 110)), int(rng.integers(30, 110)))
        if i % 11 == 3:
            image.convert("L").save(name + ".jpg")
        elif i % 11 == 5:
            image.convert("CMYK").save(name + ".jpg")
        elif i % 11 == 6:
            image.quantize(100).save(name + ".png")
        elif i % 11 == 7:
            image.putalpha(image.convert("L"))
            image.save(name + ".png")
        elif i % 11 == 8:
            image.convert("LA").save(name + ".png")
        elif i % 11 == 9:
            image.save(name + ".ppm")
        else:
            image.save(name + ".JPEG", quality=50 + i, progressive=i % 4 == 0, subsampling=i % 3)
    return root


def make_transform(chain):
    return v1.Compose(chain)


def folder(root, chain):
    return ImageFolder(root, make_transform(chain))


def cifar(pixels, targets, chain):
    """torchvision's CIFAR10 over pixels in memory."""
    dataset = CIFAR10.__new__(CIFAR10)
    dataset.data, dataset.targets = pixels, targets
    dataset.transform, dataset.target_transform = v1.Compose(chain), None
    return dataset


def noise_pixels(n):
    rng = numpy.random.default_rng(6)
    pixels = numpy.stack([numpy.asarray(picture(rng, 32, 32)) for _ in range(n)])
    return pixels, [int(t) for t in rng.integers(0, 10, n)]


def facts(batch):
    """All that two batches must have in common."""
    assert type(batch) is list and len(batch) == 2, type(batch)
    told = []
    for part in batch:
        data = part.detach().contiguous().view(torch.uint8).numpy().tobytes()
        told.append((type(part).__name__, part.dtype, tuple(part.shape), part.stride(), part.is_pinned(),
                     part.requires_grad, hashlib.sha256(data).hexdigest()))
    return told


def epochs(loader, nr_epochs, seed=7, each=None):
    """What each batch was, and the state of torch's generator at the end."""
    torch.manual_seed(seed)
    told = []
    for epoch in range(nr_epochs):
        sampler = getattr(loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        for k, batch in enumerate(loader):
            told.append((epoch, k, *facts(batch)))
            if each:
                each(epoch, k)
    return told, hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()


def differ(saw, expected):
    """A sentence about the first difference; None: there is none."""
    if len(saw[0]) != len(expected[0]):
        return "%d batches, not %d" % (len(saw[0]), len(expected[0]))
    for a, b in zip(saw[0], expected[0]):
        if a != b:
            return "epoch %d, batch %d\nexpected: %r\nsaw:      %r" % (*b[:2], b[2:], a[2:])
    return None if saw[1] == expected[1] else "the generator's state at the end"


def make_loader(dataset, **options):
    return DataLoader(dataset, **{"batch_size": 16, "shuffle": True, **options})


def losses(loader, nr_steps):
    """The losses of a ResNet-18 on the CPU, as text with all their bits."""
    torch.manual_seed(5)
    torch.use_deterministic_algorithms(True)
    model = resnet18(num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    told = []
    while len(told) < nr_steps:
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            told.append(loss.item().hex())
            if len(told) == nr_steps:
                break
    return told
