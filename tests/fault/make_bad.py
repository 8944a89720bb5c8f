#!/usr/bin/env python3
"""make_bad.py DIR: a good set of small images, and one folder or file for each way to be bad."""
import gzip
import io
import os
import struct
import sys
import tarfile

from PIL import Image, ImageDraw

root = sys.argv[1]


def picture(k, size=40, mode="RGB"):
    """A disc on a coloured ground: class and colour from k."""
    image = Image.new("RGB", (size, size), ((37 * k) % 255, (91 * k) % 255, 80 + k % 100))
    draw = ImageDraw.Draw(image)
    if k % 2:
        draw.ellipse((8, 8, size - 8, size - 8), fill=(230, 220, (13 * k) % 255))
    else:
        draw.rectangle((8, 8, size - 8, size - 8), fill=(20, (29 * k) % 255, 10))
    return image.convert(mode)


def coded(k, form="JPEG", **options):
    out = io.BytesIO()
    picture(k, mode=options.pop("mode", "RGB"), size=options.pop("size", 40)).save(out, form, **options)
    return out.getvalue()


def put(path, data):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def folder(name, extra):
    """60 good images in two classes, and `extra` (path -> bytes)."""
    for k in range(60):
        put(f"{name}/{'disc' if k % 2 else 'square'}/{k:03}.jpg", coded(k))
    for path, data in extra.items():
        put(f"{name}/{path}", data)


def tar_bytes(members, tear=0):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, data in members:
            info = tarfile.TarInfo(path)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = out.getvalue()
    return data[:len(data) - tear] if tear else data


good = coded(1, quality=90)
members = [(f"{'disc' if k % 2 else 'square'}/{k:03}.jpg", coded(k)) for k in range(60)]

folder("good", {})
folder("truncated", {"disc/bad.jpg": good[:len(good) // 2]})
folder("empty_file", {"disc/bad.jpg": b""})
folder("garbage", {"disc/bad.jpg": bytes(range(256)) * 4})
folder("cmyk", {"disc/cmyk.jpg": coded(1, mode="CMYK")})
folder("png_named_jpg", {"disc/png.jpg": coded(1, "PNG")})
folder("text", {"disc/readme.jpg": b"this is no picture at all\n"})
huge = bytearray(good)
at = huge.index(b"\xff\xc0") + 5
huge[at:at + 4] = struct.pack(">HH", 65535, 65535)
folder("absurd_jpeg", {"disc/bad.jpg": bytes(huge)})
png = bytearray(coded(1, "PNG"))
png[16:24] = struct.pack(">II", 0x7fffffff, 0x7fffffff)
folder("absurd_png", {"disc/bad.jpg": bytes(png)})
broken = bytearray(coded(1, "PNG"))
broken[len(broken) // 2] ^= 0xff
folder("broken_png", {"disc/bad.png": bytes(broken)})
folder("ppm_short", {"disc/bad.ppm": b"P6 40 40 255\n" + b"\0" * 100})
folder("wrong_huffman", {"disc/bad.jpg": good[:-60] + bytes(b ^ 0x5a for b in good[-60:])})
for k in range(60):  # every sample is bad
    put(f"all_bad/{'disc' if k % 2 else 'square'}/{k:03}.jpg", b"\xff\xd8\xff\xe0 no more")
os.makedirs(os.path.join(root, "empty_dir/disc"), exist_ok=True)
put("one_file_no_class/a.jpg", good)

put("good.tar", tar_bytes(members))
put("torn.tar", tar_bytes(members)[:50 * 512 + 700])
header = bytearray(tar_bytes(members))
header[10] ^= 1
put("bad_checksum.tar", bytes(header))
put("not_a.tar", b"hello, this is not an archive\n" * 100)
put("empty.tar", b"")
put("torn.tar.gz", gzip.compress(tar_bytes(members))[:-4000])
put("garbage.tar.zst", b"\x28\xb5\x2f\xfd" + b"\x11" * 5000)
put("huge_member.tar", tar_bytes(members[:1])[:124] + b"77777777777\0" + tar_bytes(members[:1])[136:])
put("duplicate.tar", tar_bytes([("a.jpg", good), ("a.cls", b"0"), ("a.cls", b"1")]))
put("bad_cls.tar", tar_bytes([("a.jpg", good), ("a.cls", b"cat\xff\xfe")]))

put("cifar/data_batch_1.bin", (b"\x01" + bytes(3072)) * 20)
put("cifar_torn/data_batch_1.bin", (b"\x01" + bytes(3072)) * 20 + b"\x01" * 100)
put("cifar_label/data_batch_1.bin", (b"\xc8" + bytes(3072)) * 20)
idx = struct.pack(">BBBBIII", 0, 0, 8, 3, 20, 8, 8) + bytes(20 * 64)
put("idx/images", idx)
put("idx/labels", struct.pack(">BBBBI", 0, 0, 8, 1, 20) + bytes([k % 2 for k in range(20)]))
put("idx/labels_short", struct.pack(">BBBBI", 0, 0, 8, 1, 19) + bytes(19))
put("idx/bad_magic", b"\x07" + idx[1:])
put("idx/torn", idx[:500])
