"""Rows of 20 chains of augmentations, made with Pillow or torchvision.
    chains.py list UNIT     prints the chains, a line of JSON each, for pictures that are about UNIT wide
    chains.py pillow|torchvision SAMPLES CHAINS ROWS
compares. SAMPLES: from `nnpipe data ls --json`; CHAINS: a file of such lines; ROWS: a folder with a file for each
line, 1 to 20, from rows_log.c, of runs with seed 7 and the chain as loader.augment. The draws are made again here, as
np_draws_init() of loader/base/rng.h and the operations make them. Prints counts, `NAME NUMBER`; ends with 1 if a row
differs. A resize of a picture with a border is left out: nnpipe resizes the part without it.
"""
import functools
import io
import json
import math
import sys
import zlib

from PIL import Image

SEED, STREAM_AUGMENT = 7, 1
MASK = 0xffffffff


# --- the draws
def philox(key, counter):
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


KEY = philox((SEED, 0), (STREAM_AUGMENT, 0x6e6e7069, 0, 0))[:2]


class Draws:
    def __init__(self, epoch, position, op):
        self.counter, self.words = [epoch, position, op, 0], []

    def u32(self):
        if not self.words:
            self.words = list(philox(KEY, self.counter))
            self.counter[3] += 1
        return self.words.pop(0)

    def below(self, n):
        product = self.u32() * n
        if product & MASK < n:
            reject = (-n & MASK) % n
            while product & MASK < reject:
                product = self.u32() * n
        return product >> 32

    def uniform(self):
        return self.u32() / 2 ** 32

    def between(self, lo, hi):
        return lo + self.uniform() * (hi - lo)


def chains(u):
    big, half, third = u * 8 // 7, u // 2, u // 3
    return [
        [{"random_resized_crop": {"size": u}}, "flip"],
        [{"random_resized_crop": {"size": u, "filter": "bicubic"}}, "flip"],
        [{"random_resized_crop": {"size": [half, u], "filter": "nearest"}}, {"flip": {"p": 0.2}}],
        [{"random_resized_crop": {"size": [u, 7], "scale": [0.9, 1], "ratio": [0.2, 5]}}],
        [{"random_resized_crop": {"size": 1}}],
        [{"resize": {"size": big}}, {"center_crop": {"size": u}}],
        [{"resize": {"size": big}}, {"random_crop": {"size": u}}, "flip"],
        [{"resize": {"size": big, "filter": "bicubic"}}, {"center_crop": {"size": [u, half]}}],
        [{"resize": {"size": [u, u]}}],
        [{"resize": {"size": [third, half], "filter": "bicubic"}}, "flip"],
        ["flip", {"resize": {"size": half, "filter": "nearest"}}, {"center_crop": {"size": u}}],
        [{"resize": {"size": [2 * u, u]}}, {"random_crop": {"size": half, "pad": 5}}],
        [{"resize": {"size": [half, third]}},
         {"random_crop": {"height": third, "width": half, "pad": 6, "border": "reflect"}}],
        [{"center_crop": {"size": u}}, "flip"],
        [{"center_crop": {"size": half}}, {"random_resized_crop": {"size": third, "scale": [0.5, 1]}}],
        [{"center_crop": {"size": [u, third]}}, "flip", {"random_crop": {"size": half, "pad": 3}}],
        [{"random_crop": {"size": u}}, "flip"],
        [{"random_crop": {"size": u, "pad": u // 8}}, "flip"],
        [{"random_crop": {"size": u, "pad": u // 4, "border": "reflect"}}, {"flip": {"p": 0.3}}],
        ["flip", {"random_crop": {"height": third, "width": half}}, {"resize": {"size": [half, u // 5]}}, "flip"],
    ]


# --- pictures
class Pillow:
    FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "nearest": Image.NEAREST}

    @staticmethod
    def resized(im, w, h, method):
        return im.resize((w, h), Pillow.FILTERS[method])

    @staticmethod
    def cropped(im, x, y, w, h):
        return im.crop((x, y, x + w, y + h))

    @staticmethod
    def centred(im, w, h):
        return Pillow.cropped(im, *centre(im, w, h), w, h)

    @staticmethod
    def flipped(im):
        return im.transpose(Image.FLIP_LEFT_RIGHT)

    @staticmethod
    def shorter(im, n):
        w, h = im.size
        return (n, max(1, int(n * h / w))) if w <= h else (max(1, int(n * w / h)), n)


class Torchvision(Pillow):
    @staticmethod
    def resized(im, w, h, method):
        return F.resize(im, [h, w], F.InterpolationMode(method))

    @staticmethod
    def cropped(im, x, y, w, h):
        return F.crop(im, y, x, h, w)

    @staticmethod
    def centred(im, w, h):
        return F.center_crop(im, [h, w])

    @staticmethod
    def flipped(im):
        return F.hflip(im)

    @staticmethod
    def shorter(im, n):
        h, w = F._compute_resized_output_size((im.height, im.width), [n])
        return w, h


def centre(im, w, h):
    return tuple(round((n - crop) / 2) if n >= crop else -((crop - n) // 2) for n, crop in zip(im.size, (w, h)))


def mirror(at, n):
    at = abs(at) % max(2 * (n - 1), 1)
    return at if at < n else 2 * (n - 1) - at


def reflected(im, x, y, w, h):
    out = Image.new("RGB", (w, h))
    rows = Image.new("RGB", (im.width, h))
    for i in range(h):
        at = mirror(y + i, im.height)
        rows.paste(im.crop((0, at, im.width, at + 1)), (0, i))
    for i in range(w):
        at = mirror(x + i, im.width)
        out.paste(rows.crop((at, 0, at + 1, h)), (i, 0))
    return out


def outside(im, x, y, w, h):
    return x < 0 or y < 0 or x + w > im.width or y + h > im.height


def sides(size):
    size = size if isinstance(size, list) else [size]
    return size[-1], size[0]


# --- the operations: (picture, whether it has a border), draws, options
class Bordered(Exception):
    pass


def random_crop(state, draws, size=None, height=None, width=None, pad=0, border="zero"):
    im, bordered = state
    w, h = width or size, height or size
    place = [0, 0]
    for axis, n, crop in ((1, im.height, h), (0, im.width, w)):
        room = n + 2 * pad - crop
        place[axis] = centre(im, w, h)[axis] if room < 0 else draws.below(room + 1) - pad
    bordered |= outside(im, *place, w, h)
    if bordered and border == "reflect":
        return reflected(im, *place, w, h), True
    return kit.cropped(im, *place, w, h), bordered


def center_crop(state, draws, size):
    im, (w, h) = state[0], sides(size)
    return kit.centred(im, w, h), state[1] or outside(im, *centre(im, w, h), w, h)


def resize(state, draws, size, filter="bilinear"):
    im, bordered = state
    if bordered:
        raise Bordered
    w, h = sides(size) if isinstance(size, list) else kit.shorter(im, size)
    return kit.resized(im, w, h, filter), False


def random_resized_crop(state, draws, size, scale=(0.08, 1), ratio=(0.75, 4 / 3), filter="bilinear"):
    w, h = state[0].size
    for _ in range(10):
        area = w * h * draws.between(*scale)
        shape = math.exp(draws.between(math.log(ratio[0]), math.log(ratio[1])))
        bw, bh = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < bw <= w and 0 < bh <= h:
            y, x = draws.below(h - bh + 1), draws.below(w - bw + 1)
            break
    else:
        bw, bh = w, h
        if w / h < ratio[0]:
            bh = round(w / ratio[0])
        elif w / h > ratio[1]:
            bw = round(h * ratio[1])
        bw, bh = min(max(bw, 1), w), min(max(bh, 1), h)
        x, y = (w - bw) // 2, (h - bh) // 2
    return resize((kit.cropped(state[0], x, y, bw, bh), state[1]), draws, list(reversed(sides(size))), filter)


def flip(state, draws, p=0.5):
    return (kit.flipped(state[0]), state[1]) if draws.uniform() < p else state


def row(im, chain, epoch, position):
    state = im, False
    for i, op in enumerate(chain):
        name, options = (op, {}) if isinstance(op, str) else next(iter(op.items()))
        state = globals()[name](state, Draws(epoch, position, i), **options)
    return state[0]


@functools.lru_cache(maxsize=60000)
def picture(file, offset, nr_bytes):
    with open(file, "rb") as f:
        f.seek(offset)
        return Image.open(io.BytesIO(f.read(nr_bytes))).convert("RGB")


def compare(sample, chain, epoch, position, crc):
    """The name of the count."""
    try:
        made = row(picture(sample["file"], sample["offset"], sample["bytes"]), chain, epoch, position)
    except Bordered:
        return "bordered"
    return "rows" if zlib.crc32(made.tobytes()) == crc else "wrong"


if sys.argv[1] == "list":
    for chain in chains(int(sys.argv[2])):
        print(json.dumps(chain))
    sys.exit()
kit = Pillow
if sys.argv[1] == "torchvision":
    from torchvision.transforms import functional as F
    kit = Torchvision
samples = [s for s in map(json.loads, open(sys.argv[2])) if s["event"] == "sample"]
counts = {"rows": 0, "bordered": 0, "wrong": 0}
for number, chain in enumerate(map(json.loads, open(sys.argv[3])), 1):
    for line in open(f"{sys.argv[4]}/{number}"):
        sample, epoch, position, _, crc = line.split()[2:]
        kind = compare(samples[int(sample)], chain, int(epoch), int(position), int(crc, 16))
        counts[kind] += 1
        if kind == "wrong" and counts[kind] <= 5:
            print(f"# chain {number}: position {position} of epoch {epoch} differs: {samples[int(sample)]['path']}")
for name, count in counts.items():
    print(name, count)
sys.exit(counts["wrong"] != 0)
