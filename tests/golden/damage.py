"""Damaged pictures, each with the verdict that Pillow has of it.
  damage.py make BASES DIR   500 files DIR/CLASS/NUMBER-KIND.EXT of the sound JPEGs in BASES, and as many that
                             are sound; DIR/verdicts: a line a file, `good|bad outside|inside|nowhere NAME`;
                             counts on stdout
  damage.py judge DIR        holds DIR/verdicts against the Pillow that is installed
outside: the damage lies in rows above or below the middle 40 of the picture. The same files each time."""
import os
import random
import struct
import sys
import zlib

FILES = 500
rng = random.Random(13)


# --- JPEG: bytes -> bytes
def scan(b):
    """Where the data of the first scan begin."""
    at = 2
    while b[at + 1] != 0xda:
        at += 2 + struct.unpack(">H", b[at + 2:at + 4])[0]
    return at + 2 + struct.unpack(">H", b[at + 2:at + 4])[0]


def place(b, share):
    """So far into the data of the scan or scans, and not behind a 0xff."""
    at = scan(b) + int((len(b) - 2 - scan(b)) * share)
    while b[at - 1] == 0xff or b[at] == 0xff:
        at += 1
    return at


def put(b, share, more):
    at = place(b, share)
    return b[:at] + more + b[at:]


def codes(b, share, n=12):
    """Other codes, and no new markers."""
    at, b = place(b, share), bytearray(b)
    for i in range(at, min(at + n, len(b) - 2)):
        if b[i] != 0xff and b[i - 1] != 0xff:
            b[i] = rng.randrange(0xfe)
    return bytes(b)


def restart(b, change):
    at = next(i for i in range(place(b, 0.5), len(b)) if b[i] == 0xff and 0xd0 <= b[i + 1] <= 0xd7)
    return b[:at] + change(b[at:at + 2]) + b[at + 2:]


def renamed(b, marker):
    """The first segment of this marker becomes a comment."""
    at = b.index(bytes([0xff, marker]))
    return b[:at] + b"\xff\xfe" + b[at + 2:]


def first_scan(b):
    """A progressive file that ends behind its first scan."""
    at = scan(b)
    while b[at] != 0xff or b[at + 1] == 0:
        at += 1
    return b[:at] + b"\xff\xd9"


# --- PNG
def chunk(kind, data, off=0):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data) + off & 0xffffffff)


def rows(i, bad_filter=False):
    w, h = 88 + 9 * (i % 5), 96 - 7 * (i % 5)
    lines = [bytes([1]) + bytes((x * 3 + y * 5 + i) % 7 for x in range(3 * w)) for y in range(h)]
    if bad_filter:
        lines[-2] = b"\x05" + lines[-2][1:]
    return w, h, lines


def png(i, text=0, header=0, data=0, cut=0, flip=0, nr_rows=None, part=0, between=False, end=True, after=b"",
        filters=False):
    w, h, lines = rows(i, filters)
    z = bytearray(zlib.compress(b"".join(lines[:nr_rows]), 6))
    if flip:
        z[-flip] ^= 0x10
    z = bytes(z[:len(z) - cut])
    parts = [z[k:k + part] for k in range(0, len(z), part)] if part else [z]
    body = [chunk(b"IDAT", p, data) for p in parts]
    if between:
        body.insert(1, chunk(b"tEXt", b"a\0b"))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0), header) + chunk(b"tEXt",
        b"a\0b", text) +
            b"".join(body) + (chunk(b"IEND", b"") if end else b"") + after)


def cut_png(i, n):
    return png(i)[:-n]


GOOD, BAD, OUT, IN = "good", "bad", "outside", "inside"
KINDS = [(f"cut{k}", BAD, OUT if k > 15 else IN, "plain", lambda b, k=k: b[:4 + (len(b) - 6) * k // 20])
         for k in range(20)] + [
    ("codes-first-row", GOOD, OUT, "plain", lambda b: codes(b, 0.01)),
    ("codes-last-row", GOOD, OUT, "full", lambda b: codes(b, 0.97)),
    ("codes-middle", GOOD, IN, "grey", lambda b: codes(b, 0.5)),
    ("codes-restart", GOOD, OUT, "restart", lambda b: codes(b, 0.9, 40)),
    ("codes-progressive", GOOD, IN, "progressive", lambda b: codes(b, 0.005, 6)),
    ("codes-arithmetic", GOOD, OUT, "arithmetic", lambda b: codes(b, 0.9)),
    ("restart-wrong", GOOD, IN, "restart", lambda b: restart(b, lambda m: bytes([0xff, 0xd0 | (m[1] + 3) & 7]))),
    ("restart-missing", GOOD, IN, "restart", lambda b: restart(b, lambda m: b"")),
    ("restart-stray", GOOD, OUT, "plain", lambda b: put(b, 0.9, b"\xff\xd3")),
    ("end-early", GOOD, IN, "plain", lambda b: put(b, 0.4, b"\xff\xd9")),
    ("end-late", GOOD, OUT, "full", lambda b: b[:place(b, 0.95)] + b"\xff\xd9"),
    ("end-progressive", GOOD, IN, "progressive", first_scan),
    ("fill-bytes", GOOD, OUT, "plain", lambda b: b[:-2] + b"\xff\xff\xff\xd9"),
    ("tail", GOOD, OUT, "plain", lambda b: b + b"\xff\x02 whatever"),
    ("stray-comment", GOOD, OUT, "plain", lambda b: put(b, 0.96, b"\xff\xfe\0\4ab")),
    ("stray-unknown", BAD, OUT, "plain", lambda b: put(b, 0.96, b"\xff\x02")),
    ("stray-start", BAD, OUT, "full", lambda b: put(b, 0.96, b"\xff\xd8")),
    ("no-end", BAD, OUT, "grey", lambda b: b[:-2]),
    ("no-end-progressive", BAD, OUT, "progressive", lambda b: b[:-2]),
    ("no-end-arithmetic", BAD, OUT, "arithmetic", lambda b: b[:-40]),
    ("no-codes", BAD, IN, "progressive", lambda b: renamed(b, 0xc4)),
    ("no-quantization", BAD, IN, "plain", lambda b: renamed(b, 0xdb)),
    ("png-data-crc", GOOD, OUT, None, lambda i: png(i, data=1)),
    ("png-no-end", GOOD, OUT, None, lambda i: png(i, end=False)),
    ("png-tail", GOOD, OUT, None, lambda i: png(i, after=b"whatever")),
    ("png-parts", GOOD, OUT, None, lambda i: png(i, part=50, data=7)),
    ("png-cut-adler", GOOD, OUT, None, lambda i: cut_png(i, 18)),
    ("png-rows-missing", GOOD, OUT, None, lambda i: png(i, nr_rows=60)),
    ("png-adler", BAD, OUT, None, lambda i: png(i, flip=1)),
    ("png-text-crc", BAD, OUT, None, lambda i: png(i, text=1)),
    ("png-header-crc", BAD, OUT, None, lambda i: png(i, header=1)),
    ("png-cut-data", BAD, OUT, None, lambda i: cut_png(i, 40)),
    ("png-between", BAD, IN, None, lambda i: png(i, part=100, between=True)),
    ("png-filter", BAD, OUT, None, lambda i: png(i, filters=True)),
    ("png-cut-chunk", BAD, OUT, None, lambda i: png(i, end=False, after=b"\0\0\1\0tEXtab\0\0")),
]


def make(bases, folder):
    counts = {}
    with open(os.path.join(folder, "verdicts"), "w") as verdicts:
        for i in range(FILES):
            name, verdict, where, base, damage = KINDS[i % len(KINDS)]
            if base:
                with open(os.path.join(bases, f"{base}-{i // len(KINDS) % 5}.jpg"), "rb") as f:
                    data = damage(f.read())
            else:
                data = damage(i)
            path = f"{'ab'[i // len(KINDS) % 2]}/{i:03}-{name}.{'jpg' if base else 'png'}"
            os.makedirs(os.path.join(folder, path[0]), exist_ok=True)
            with open(os.path.join(folder, path), "wb") as f:
                f.write(data)
            verdicts.write(f"{verdict} {where} {path}\n")
            for what in (verdict, where):
                counts[what] = counts.get(what, 0) + 1
        for i in range(FILES):
            path = f"{'ab'[i % 2]}/{i:03}-sound.png"
            with open(os.path.join(folder, path), "wb") as f:
                f.write(png(i))
            verdicts.write(f"{GOOD} nowhere {path}\n")
    kinds = {v: sum(k[1] == v for k in KINDS) for v in (GOOD, BAD)}
    print(f"{FILES} files, {len(KINDS)} kinds: {kinds[GOOD]} good, {kinds[BAD]} bad; files: {counts[GOOD]} good, "
          f"{counts[BAD]} bad, damage outside of the crops in {counts[OUT]}")


def judge(folder):
    from PIL import Image
    differ = 0
    for line in open(os.path.join(folder, "verdicts")):
        verdict, _, path = line.split()
        try:
            Image.open(os.path.join(folder, path)).convert("RGB")
            found = GOOD
        except Exception:
            found = BAD
        if found != verdict:
            print(f"{path}: {verdict} expected, Pillow says {found}")
            differ += 1
    return differ


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3])
else:
    sys.exit(judge(sys.argv[2]) != 0)
