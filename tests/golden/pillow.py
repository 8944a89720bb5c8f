"""Compares rows of nnpipe with Pillow's: pillow.py TOOL TMP COUNT [DATA]. Prints one line a check,
`NAME: ROWS rows, BYTES bytes, DIFFER differ`; exit 1 if a byte differs anywhere."""
import io
import random
import subprocess
import sys
import tarfile

from PIL import Image

FILTERS = [Image.BILINEAR, Image.BICUBIC, Image.NEAREST]
tool, tmp, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(7)
status = 0


def pillow(path, g, channels):
    left, top, right, bottom, sw, sh, wx, wy, ww, wh, flip, border, filt = g
    im = Image.open(path)
    if im.mode.startswith("I"):  # Pillow clips 16-bit grey; nnpipe shifts it
        im = im.point(lambda v: v * (1 / 256)).convert("L")
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


def check(name, jobs):
    """jobs: (path, geometry, channels). Runs the tool plain and with SIMD."""
    global status
    want = [pillow(*j) for j in jobs]
    lines = "".join(" ".join(map(str, g)) + f" {c} {p}\n" for p, g, c in jobs).encode()
    for simd in (0, 1):
        run = subprocess.run([tool, str(simd)], input=lines, capture_output=True)
        at = differ = 0
        for w in want:
            got = run.stdout[at:at + len(w)]
            at += len(w)
            differ += len(w) - len(got) + sum(a != b for a, b in zip(w, got)) if got != w else 0
        label = f"{name}, {'AVX2' if simd else 'plain C'}"
        print(f"{label}: {len(jobs)} rows, {at} bytes, {differ} differ")
        if differ or at != len(run.stdout) or run.returncode:
            status = 1
            print(f"{label}: exit {run.returncode}, {run.stderr.decode()[:300]}")


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


def made():
    """Files of every kind Pillow writes."""
    rgb = Image.frombytes("RGB", (157, 111), bytes(
        (x * (3 + c) + y * (5 - c) + (255 if (x // 9 + y // 7) % 2 else 0)) % 256
        for y in range(111) for x in range(157) for c in range(3)))
    grey, cmyk, rgba = rgb.convert("L"), rgb.convert("CMYK"), rgb.convert("RGBA")
    rgba.putalpha(grey)
    wide = Image.frombytes("I;16", (64, 48), bytes(rng.randrange(256) for _ in range(64 * 48 * 2)))
    pal = rgb.quantize(37)
    files = []

    def save(im, name, **kw):
        im.save(f"{tmp}/{name}", **kw)
        files.append(f"{tmp}/{name}")

    for s in (0, 1, 2):
        save(rgb, f"sub{s}.jpg", quality=85, subsampling=s)
        save(rgb, f"sub{s}p.jpg", quality=85, subsampling=s, progressive=True)
    save(grey, "grey.jpg")
    save(cmyk, "cmyk.jpg", quality=90)
    save(rgb, "png.jpg", format="PNG")
    save(rgba, "rgba.png")
    save(rgba.convert("LA"), "la.png")
    save(grey, "grey.png")
    save(wide, "grey16.png")
    for bits in (1, 2, 4, 8):
        save(rgb.quantize(1 << bits if bits < 8 else 200), f"pal{bits}.png", bits=bits)
    save(pal, "pal_alpha.png", transparency=3)
    save(rgb.convert("1"), "bits.png")
    save(rgb, "rgb.ppm")
    save(grey, "grey.pgm")
    with open(f"{tmp}/max.ppm", "wb") as f:
        f.write(b"P6\n# a comment\n64 48\n100\n" + bytes(rng.randrange(101) for _ in range(64 * 48 * 3)))
    with open(f"{tmp}/wide.ppm", "wb") as f:
        f.write(b"P6 64 48 1023\n" + b"".join(rng.randrange(1024).to_bytes(2, "big") for _ in range(64 * 48 * 3)))
    return files + [f"{tmp}/max.ppm", f"{tmp}/wide.ppm"]


def size_of(path):
    with Image.open(path) as im:
        return im.size


for path in made():
    check(path.rsplit("/", 1)[1],
          [(path, anything(*size_of(path)), rng.choice([1, 3, 3])) for _ in range(max(count // 8, 20))])
if len(sys.argv) > 4:
    photos = []
    with tarfile.open(sys.argv[4] + "/imagenet-sample-500.tar") as tar:
        for i, member in enumerate(m for m in tar if m.isfile()):
            photos.append(f"{tmp}/photo{i}.jpg")
            with open(photos[-1], "wb") as f:
                f.write(tar.extractfile(member).read())
    some = [photos[rng.randrange(len(photos))] if count < 500 else photos[i % len(photos)] for i in range(count)]
    check("photographs, random resized crop", [(p, rrc(*size_of(p)), 3) for p in some])
    check("photographs, resize 256 and centre crop", [(p, shorter(*size_of(p)), 3) for p in some[:count // 4]])
    check("photographs, any box, filter and window", [(p, anything(*size_of(p)), rng.choice([1, 3])) for p in some])
sys.exit(status)
