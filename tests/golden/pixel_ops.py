"""What Pillow and torchvision make of pictures: pixel_ops.py COUNT SEED [colours] prints a line for each of COUNT
random operations with random values, with the CRC-32 of its pixels, as pixel_ops.c reads it; with `colours` also a few
of a picture that has every colour once, which needs NumPy. torchvision's functions over Pillow are called where it is
installed, else the calls of Pillow that they make. With torchvision come COUNT / 2 lines of chains, as torchvision's
transforms draw and make them. tests/golden/pixel_ops.txt was made with torchvision 0.29.2 and
Pillow 13.0.0:
    pixel_ops.py 600 1
"""
import random
import sys
import zlib

import PIL
from PIL import Image, ImageEnhance, ImageOps

rng = random.Random(int(sys.argv[2]))


class Seeded:
    def __init__(self, seed):
        self.seed = seed

    def next(self):
        self.seed = (self.seed * 1664525 + 1013904223) & 0xFFFFFFFF
        return self.seed >> 24


def picture(kind, seed, w, h, n):
    """As draw() of pixel_ops.c."""
    if kind == "colours":
        import numpy
        colours = numpy.arange(w * h, dtype=numpy.uint32)
        planes = [(colours >> (8 * c) & 255).astype(numpy.uint8) for c in range(3)]
        return Image.fromarray(numpy.stack(planes, -1).reshape(h, w, 3))
    noise, out = Seeded(seed), bytearray()
    for y in range(h):
        for x in range(w):
            for c in range(n):
                if kind == "noise":
                    out.append(noise.next())
                else:
                    out.append(40 + (x * (c + 2) + y * 3) % 97 + (noise.next() >> 5))
    return Image.frombytes("RGB" if n == 3 else "L", (w, h), bytes(out))


def hue(im, factor):
    if im.mode != "RGB":
        return im
    h, s, v = im.convert("HSV").split()
    shift = int(factor * 255)
    return Image.merge("HSV", (h.point(lambda value: (value + shift) % 256), s, v)).convert("RGB")


PILLOW = {
    "brightness": lambda im, f: ImageEnhance.Brightness(im).enhance(f),
    "contrast": lambda im, f: ImageEnhance.Contrast(im).enhance(f),
    "saturation": lambda im, f: ImageEnhance.Color(im).enhance(f),
    "hue": hue,
    "grayscale": lambda im: im.convert("L").convert(im.mode),
    "solarize": ImageOps.solarize,
    "posterize": lambda im, bits: ImageOps.posterize(im, int(bits)),
    "invert": ImageOps.invert,
    "autocontrast": ImageOps.autocontrast,
    "equalize": ImageOps.equalize,
    "sharpness": lambda im, f: ImageEnhance.Sharpness(im).enhance(f),
    "flip_down": lambda im: im.transpose(Image.FLIP_TOP_BOTTOM),
}


def torchvision():
    from torchvision.transforms import functional as F
    return {
        "brightness": F.adjust_brightness,
        "contrast": F.adjust_contrast,
        "saturation": F.adjust_saturation,
        "hue": F.adjust_hue,
        "grayscale": lambda im: F.rgb_to_grayscale(im, len(im.getbands())),
        "solarize": F.solarize,
        "posterize": lambda im, bits: F.posterize(im, int(bits)),
        "invert": F.invert,
        "autocontrast": F.autocontrast,
        "equalize": F.equalize,
        "sharpness": F.adjust_sharpness,
        "flip_down": F.vflip,
    }


def transforms():
    """(chain of a config, transforms of version 1 or 2)"""
    from torchvision import transforms as v1
    from torchvision.transforms import v2
    from torchvision.transforms import AutoAugmentPolicy as Policy
    bilinear = v1.InterpolationMode.BILINEAR
    chains = [
        ("[{color_jitter: {brightness: 0.4, contrast: 0.3, saturation: [0.2, 2], hue: 0.2}}]",
         lambda of: of.ColorJitter(0.4, 0.3, (0.2, 2), 0.2)),
        ("[{color_jitter: {hue: 0.5, p: 0.5}}]", lambda of: of.RandomApply([of.ColorJitter(hue=0.5)], 0.5)),
        ("[{grayscale: 0.5}]", lambda of: of.RandomGrayscale(0.5)),
        ("[{solarize: {threshold: 99.5}}]", lambda of: of.RandomSolarize(99.5)),
        ("[{posterize: {bits: 3}}]", lambda of: of.RandomPosterize(3)),
        ("[equalize]", lambda of: of.RandomEqualize()),
        ("[autocontrast]", lambda of: of.RandomAutocontrast()),
        ("[{sharpness: {factor: 2.5}}]", lambda of: of.RandomAdjustSharpness(2.5)),
        ("[invert]", lambda of: of.RandomInvert()),
        ("[vertical_flip]", lambda of: of.RandomVerticalFlip()),
        ("[{rotation: {degrees: 30}}]", lambda of: of.RandomRotation(30)),
        ("[{rotation: {degrees: [-90, 180], filter: bilinear, fill: [9, 99, 200]}}]",
         lambda of: of.RandomRotation((-90, 180), bilinear, fill=(9, 99, 200))),
        ("[{affine: {degrees: 20, translate: [0.2, 0.1], scale: [0.7, 1.4], shear: [-5, 8, -3, 3]}}]",
         lambda of: of.RandomAffine(20, (0.2, 0.1), (0.7, 1.4), (-5, 8, -3, 3))),
        ("[{affine: {degrees: 0, translate: [0.5, 0.5]}}]", lambda of: of.RandomAffine(0, (0.5, 0.5))),
        ("[{affine: {shear: 40, filter: bilinear, fill: 50}}]",
         lambda of: of.RandomAffine(0, shear=40, interpolation=bilinear, fill=50)),
        ("[{random_erasing: {p: 0.9}}]", lambda of: of.Compose([
            of.PILToTensor(), of.RandomErasing(0.9), of.ToPILImage()])),
        ("[{random_erasing: {p: 1, scale: [0.3, 1], ratio: [0.1, 9], value: [3, 99, 200]}}]", lambda of: of.Compose([
            of.PILToTensor(), of.RandomErasing(1, (0.3, 1), (0.1, 9), (3, 99, 200)), of.ToPILImage()])),
        ("[rand_augment]", lambda of: of.RandAugment()),
        ("[{rand_augment: {ops: 3, magnitude: 7, bins: 15, filter: bilinear}}]",
         lambda of: of.RandAugment(3, 7, 15, bilinear)),
        ("[trivial_augment]", lambda of: of.TrivialAugmentWide()),
        ("[auto_augment]", lambda of: of.AutoAugment()),
        ("[{auto_augment: cifar10}]", lambda of: of.AutoAugment(Policy.CIFAR10)),
        ("[{auto_augment: {policy: svhn, fill: 128}}]", lambda of: of.AutoAugment(Policy.SVHN, fill=128)),
        ("[{random_resized_crop: 24}, {color_jitter: {contrast: 0.9}}, flip, {resize: 20}]",
         lambda of: of.Compose([of.RandomResizedCrop(24), of.ColorJitter(contrast=0.9), of.RandomHorizontalFlip(),
                                of.Resize(20)])),
    ]
    return [(text, version, make(of)) for text, make in chains for version, of in ((1, v1), (2, v2))]


def drawn(chains, count):
    import torch
    for i in range(count):
        text, version, transform = chains[i % len(chains)]
        seed = rng.randint(0, 10**6)
        largest = 200 if i // len(chains) % 4 == 1 else 60
        grey = i // len(chains) % 4 == 2 and "fill" not in text and "erasing" not in text
        shape = "smooth", rng.randint(0, 9999), rng.randint(25, largest), rng.randint(25, largest), 1 if grey else 3
        im = picture(*shape)
        torch.manual_seed(seed)
        crc = zlib.crc32(transform(im).tobytes())
        print(f"torch {version}:{seed} {':'.join(map(str, shape[:4]))} {shape[4]} {crc:08x} {text}")


def blurred(count):
    """Lines of pictures that may differ by 1."""
    from torchvision.transforms import functional as F
    for i in range(count):
        kernel, sigma = [rng.choice([1, 3, 5, 9]), rng.choice([3, 7, 13])], rng.uniform(0.1, 3)
        shape = rng.choice(["noise", "smooth"]), rng.randint(0, 9999), rng.randint(14, 18), rng.randint(14, 18), 3
        pixels = F.gaussian_blur(picture(*shape), kernel, sigma).tobytes()
        print("near blur", f"{kernel[0]},{kernel[1]},{sigma!r}", ":".join(map(str, shape[:4])), shape[4], pixels.hex())


def factor():
    return rng.choice([0, 1, 0.5, 2, rng.uniform(0, 1), rng.uniform(0, 2), rng.uniform(1, 5)])


VALUES = {
    "brightness": lambda: [factor()],
    "contrast": lambda: [factor()],
    "saturation": lambda: [factor()],
    "hue": lambda: [rng.choice([0, 0.5, -0.5, rng.uniform(-0.5, 0.5)])],
    "solarize": lambda: [rng.choice([0, 128, 256, rng.uniform(0, 256)])],
    "posterize": lambda: [rng.randint(1, 8)],
    "sharpness": lambda: [factor()],
}


def main():
    makers, name = PILLOW, f"Pillow {PIL.__version__}"
    try:
        import torchvision as tv
        makers, name = torchvision(), f"torchvision {tv.__version__.split('+')[0]} on {name}"
    except ImportError:
        pass
    print(f"# {name}: OP VALUES PICTURE CHANNELS CRC")
    names = sorted(makers)
    for i in range(int(sys.argv[1])):
        kind, seed = rng.choice(["noise", "smooth", "smooth"]), rng.randint(0, 9999)
        w, h = rng.choice([(1, 1), (2, 3), (37, 29), (64, 5), (rng.randint(3, 70), rng.randint(3, 70))])
        report(makers, names[i % len(names)], (kind, seed, w, h, 3 if rng.random() < 0.8 else 1))
    if makers is not PILLOW:
        blurred(int(sys.argv[1]) // 60)
        drawn(transforms(), int(sys.argv[1]) // 2)
    for op in ["hue", "hue", "saturation"] if "colours" in sys.argv else []:
        report(makers, op, ("colours", 0, 4096, 4096, 3))


def report(makers, op, shape):
    values = VALUES.get(op, list)()
    text = ",".join(repr(float(v)) for v in values) or "-"
    im = makers[op](picture(*shape), *values)
    print(op, text, ":".join(map(str, shape[:4])), shape[4], f"{zlib.crc32(im.tobytes()):08x}")


main()
