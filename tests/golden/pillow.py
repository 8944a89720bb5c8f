"""Rows as Pillow makes them: pillow.py FOLDER COUNT [DATA] writes pictures of every kind that Pillow writes
into FOLDER (existing pictures stay), and rows-N.txt: a line for each row, with the CRC-32 of its bytes, as
pillow_rows.c reads it. N is 12 for Pillows that resize as 12 does, 13 for those that resize as 13. COUNT: rows of
noise, and of photographs where DATA has imagenet-sample-500.tar.

The files of tests/golden/pillow were made so, with Pillow 12.3.0 and then with Pillow 13.0.0:
    pillow.py tests/golden/pillow 300
"""
import io
import os
import random
import sys
import tarfile
import zlib

import PIL
from PIL import Image, features

FILTERS = [Image.BILINEAR, Image.BICUBIC, Image.NEAREST]
folder, count = sys.argv[1], int(sys.argv[2])
rule = 13 if int(PIL.__version__.split(".")[0]) >= 13 else 12
rng = random.Random(7)


def noise(seed, w, h):
    """The picture that pillow_rows.c draws for noise:SEED:W:H."""
    out = bytearray(w * h * 3)
    for i in range(len(out)):
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = seed >> 24
    return Image.frombytes("RGB", (w, h), bytes(out))


def picture(name):
    if name.startswith("noise:"):
        return noise(*map(int, name.split(":")[1:]))
    im = Image.open(f"{folder}/{name}")
    if im.mode.startswith("I"):  # Pillow clips 16-bit grey; nnpipe shifts it
        im = im.point(lambda v: v * (1 / 256)).convert("L")
    return im


def row(im, g, channels):
    left, top, right, bottom, sw, sh, wx, wy, ww, wh, flip, border, filt = g
    im = im.convert("L" if channels == 1 else "RGB")
    im = im.crop((left, top, right, bottom)).resize((sw, sh), FILTERS[filt])
    if border and (wx < 0 or wy < 0 or wx + ww > sw or wy + wh > sh):
        im = reflected(im, wx, wy, ww, wh)
    else:
        im = im.crop((wx, wy, wx + ww, wy + wh))
    return (im.transpose(Image.FLIP_LEFT_RIGHT) if flip else im).tobytes()


def mirror(at, n):
    at = abs(at) % max(2 * (n - 1), 1)
    return at if at < n else 2 * (n - 1) - at


def reflected(im, wx, wy, ww, wh):
    out = Image.new(im.mode, (ww, wh))
    for y in range(wh):
        for x in range(ww):
            out.putpixel((x, y), im.getpixel((mirror(wx + x, im.width), mirror(wy + y, im.height))))
    return out


def rrc(w, h, size=224):
    for _ in range(10):
        area = w * h * rng.uniform(0.08, 1)
        ratio = 2 ** rng.uniform(-0.415, 0.415)
        bw, bh = round((area * ratio) ** .5), round((area / ratio) ** .5)
        if 0 < bw <= w and 0 < bh <= h:
            break
    else:
        bw, bh = w, h
    x, y = rng.randint(0, w - bw), rng.randint(0, h - bh)
    return (x, y, x + bw, y + bh, size, size, 0, 0, size, size, rng.randint(0, 1), 0, 0)


def shorter(w, h, size=256, crop=224):
    sw, sh = (size, int(size * h / w)) if w <= h else (int(size * w / h), size)
    return (0, 0, w, h, sw, sh, round((sw - crop) / 2), round((sh - crop) / 2), crop, crop, 0, 0, 0)


def anything(w, h):
    bw, bh = rng.randint(1, w), rng.randint(1, h)
    x, y = rng.randint(0, w - bw), rng.randint(0, h - bh)
    sw, sh = (bw, bh) if rng.random() < .3 else (rng.randint(1, 120), rng.randint(1, 120))
    if rng.random() < .1:
        sw = bw
    if rng.random() < .1:
        sh = bh
    border = rng.randint(0, 1) if sw > 8 and sh > 8 else 0
    wx, wy = rng.randint(-8, max(0, sw - 8)), rng.randint(-8, max(0, sh - 8))
    return (x, y, x + bw, y + bh, sw, sh, wx, wy, rng.randint(1, 60), rng.randint(1, 60),
            rng.randint(0, 1), border, rng.choice([0, 0, 1, 2]))


def turning(w, h):
    """A box and a size at the edge of Pillow 13's rule, where the vertical pass begins to come first."""
    bw, bh = rng.randint(max(1, w // 2), w), rng.randint(max(2, h // 2), h)
    x, y = rng.randint(0, w - bw), rng.randint(0, h - bh)
    sw = max(1, bw + rng.randint(-bw // 3, bw // 4))
    sh = max(1, bh - max(2 * (bw - sw), 0) + rng.randint(-2, 1))
    return (x, y, x + bw, y + bh, sw, sh, 0, 0, sw, sh, rng.randint(0, 1), 0, rng.randint(0, 1))


def make_files():
    """Files of every kind Pillow writes; their names."""
    w, h = 53, 39
    rgb = Image.frombytes("RGB", (w, h), bytes(
        (x * (3 + c) + y * (5 - c) + (255 if (x // 9 + y // 7) % 2 else 0)) % 256
        for y in range(h) for x in range(w) for c in range(3)))
    grey, cmyk, rgba = rgb.convert("L"), rgb.convert("CMYK"), rgb.convert("RGBA")
    rgba.putalpha(grey)
    wide = Image.frombytes("I;16", (24, 20), bytes(rng.randrange(256) for _ in range(24 * 20 * 2)))
    names = []

    def put(name, data):
        if not os.path.exists(f"{folder}/{name}"):
            with open(f"{folder}/{name}", "wb") as f:
                f.write(data)
        names.append(name)

    def save(im, name, kind, **kw):
        out = io.BytesIO()
        im.save(out, kind, **kw)
        put(name, out.getvalue())

    for s in (0, 1, 2):
        save(rgb, f"sub{s}.jpg", "JPEG", quality=85, subsampling=s)
        save(rgb, f"sub{s}p.jpg", "JPEG", quality=85, subsampling=s, progressive=True)
    save(grey, "grey.jpg", "JPEG")
    save(cmyk, "cmyk.jpg", "JPEG", quality=90)
    save(rgb, "png.jpg", "PNG")
    save(rgba, "rgba.png", "PNG")
    save(rgba.convert("LA"), "la.png", "PNG")
    save(grey, "grey.png", "PNG")
    save(wide, "grey16.png", "PNG")
    for bits in (1, 2, 4, 8):
        save(rgb.quantize(1 << bits if bits < 8 else 200), f"pal{bits}.png", "PNG", bits=bits)
    save(rgb.quantize(37), "pal_alpha.png", "PNG", transparency=3)
    save(rgb.convert("1"), "bits.png", "PNG")
    save(rgb, "rgb.ppm", "PPM")
    save(grey, "grey.pgm", "PPM")
    put("max.ppm", b"P6\n# a comment\n24 20\n100\n" + bytes(rng.randrange(101) for _ in range(24 * 20 * 3)))
    put("wide.ppm", b"P6 24 20 1023\n" + b"".join(rng.randrange(1024).to_bytes(2, "big") for _ in range(24 * 20 * 3)))
    return names


def make_photos(data):
    names = []
    with tarfile.open(data + "/imagenet-sample-500.tar") as tar:
        for i, member in enumerate(m for m in tar if m.isfile()):
            names.append(f"photo{i}.jpg")
            with open(f"{folder}/{names[-1]}", "wb") as f:
                f.write(tar.extractfile(member).read())
    return names


def jobs():
    """(name, geometry, channels) of all rows, in an order that the version of Pillow does not change."""
    for name in make_files():
        with Image.open(f"{folder}/{name}") as im:
            size = im.size
        for k in range(12):
            yield name, turning(*size) if k % 3 == 0 else anything(*size), rng.choice([1, 3, 3])
    for k in range(count):
        w, h = rng.randint(1, 90), rng.randint(2, 150)
        name = f"noise:{rng.randrange(1 << 32)}:{w}:{h}"
        yield name, turning(w, h) if k % 2 else anything(w, h), rng.choice([1, 3, 3])
    photos = make_photos(sys.argv[3]) if len(sys.argv) > 3 else []
    for k in range(count if photos else 0):
        name = photos[k % len(photos)]
        with Image.open(f"{folder}/{name}") as im:
            size = im.size
        yield name, rrc(*size), 3
        yield name, anything(*size), rng.choice([1, 3])
        if k % 4 == 0:
            yield name, shorter(*size), 3


with open(f"{folder}/rows-{rule}.txt", "w") as out:
    out.write(f"# Pillow {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}\n")
    for name, g, channels in jobs():
        crc = zlib.crc32(row(picture(name), g, channels))
        out.write(" ".join(map(str, g)) + f" {rule} {channels} {name} {crc:08x}\n")
