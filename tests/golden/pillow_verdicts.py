"""Reads damaged files with nnpipe's verdicts from stdin (jpegs.c, verdicts) and compares them with Pillow's:
the same files are good, and have the same pixels. Prints counts, `NAME NUMBER`; ends with 1 if any differs.
`header`: Pillow refuses the header in Python, before libjpeg reads it, and nnpipe does not (docs/PIXELS.md)."""
import collections
import io
import struct
import sys
import warnings
import zlib

from PIL import Image

warnings.simplefilter("ignore")
counts = collections.Counter(files=0, good=0, header=0, wrong=0)


def verdict(data):
    """(good, size, CRC of the pixels), and whether libjpeg has seen the file."""
    try:
        im = Image.open(io.BytesIO(data))
    except Exception:
        return (False, None, None), False
    try:
        return (True, im.size, zlib.crc32(im.convert("RGB").tobytes())), True
    except Exception:
        return (False, None, None), True


while head := sys.stdin.buffer.read(20):
    nr, good, width, height, crc = struct.unpack("<5I", head)
    data = sys.stdin.buffer.read(nr)
    ours = (True, (width, height), crc) if good else (False, None, None)
    pillows, opened = verdict(data)
    counts["files"] += 1
    counts["good"] += good
    if ours == pillows:
        continue
    kind = "wrong" if opened or not good else "header"
    counts[kind] += 1
    if kind == "wrong" and counts[kind] <= 10:
        print(f"# file {counts['files'] - 1}: nnpipe {ours}, Pillow {pillows}")
        if len(sys.argv) > 1:
            with open(f"{sys.argv[1]}/wrong-{counts[kind]}.jpg", "wb") as out:
                out.write(data)
for name, count in counts.items():
    print(name, count)
sys.exit(counts["wrong"] != 0)
