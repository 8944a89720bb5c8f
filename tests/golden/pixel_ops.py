"""What Pillow and torchvision make of pictures: pixel_ops.py COUNT SEED [colours] prints a line for each of COUNT
random operations with random values, with the CRC-32 of its pixels, as pixel_ops.c reads it; with `colours` also a few
of a picture that has every colour once, which needs NumPy. torchvision's functions over Pillow are called where it is
installed, else the calls of Pillow that they make. tests/golden/pixel_ops.txt was made with torchvision 0.29.2 and
Pillow 13.0.0:
    pixel_ops.py 240 1
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
    for op in ["hue", "hue", "saturation"] if "colours" in sys.argv else []:
        report(makers, op, ("colours", 0, 4096, 4096, 3))


def report(makers, op, shape):
    values = VALUES.get(op, list)()
    text = ",".join(repr(float(v)) for v in values) or "-"
    im = makers[op](picture(*shape), *values)
    print(op, text, ":".join(map(str, shape[:4])), shape[4], f"{zlib.crc32(im.tobytes()):08x}")


main()
