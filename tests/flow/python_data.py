"""Sets and configs for the tests of the Python package, and what they must give. Not a test."""
import array
import json
import os
import struct
import threading
import time
import zlib

from nnpipe import _nnpipe

MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]


def pixel(sample, y, x, c):
    return (sample * 31 + y * 7 + x * 13 + c * 101) % 256


def picture(sample, height=6, width=5):
    """u8 (height, width, 3) as bytes."""
    return bytes(pixel(sample, y, x, c) for y in range(height) for x in range(width) for c in range(3))


def png(pixels, height, width):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + pixels[y * width * 3:(y + 1) * width * 3] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def make_set(folder, samples=23):
    """PNGs in a folder of one class each, so that the label names the sample. Returns the folder."""
    for sample in range(samples):
        os.makedirs("%s/%03d" % (folder, sample), exist_ok=True)
        with open("%s/%03d/a.png" % (folder, sample), "wb") as file:
            file.write(png(picture(sample), 6, 5))
    return folder


def config(folder, batch=5, **loader):
    return {"data": {"train": {"source": "folder", "path": folder}, "test": {"source": "folder", "path": folder}},
            "loader": {"batch": batch, "augment": [{"resize": [6, 5]}], "test_augment": [{"resize": [6, 5]}],
                       "normalize": {"mean": MEAN, "std": STD}, "readers": 2, **loader}, "seed": 5}


def synth(samples=64, batch=10, size=8):
    return {"data": {"train": {"source": "synth", "samples": samples, "size": size}}, "loader": {"batch": batch}}


class Stuck:
    """A loader whose only picture is a FIFO that nobody writes to: no batch is ready until go()."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(self.folder)
        os.mkfifo(self.folder + "/a.png")
        self.loader = _nnpipe.open_files("loader: {batch: 1, augment: [{random_crop: 4}]}", None, [], self.folder,
                                         ["a.png"], array.array("q", [0]))

    def go(self):
        with open(self.folder + "/b.png", "wb") as file:
            file.write(png(picture(0), 6, 5))
        fifo = os.open(self.folder + "/a.png", os.O_RDWR)
        os.rename(self.folder + "/b.png", self.folder + "/a.png")
        os.close(fifo)

    def once_it_waits(self, call):
        """Starts a thread that does so when another one has waited in next() for a while."""
        def wait():
            before = json.loads(self.loader.counters())["wait_seconds"]
            while json.loads(self.loader.counters())["wait_seconds"] == before:
                time.sleep(0.01)
            call()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread


def threads(expected=None):
    """The number of threads. A thread that was joined stays in /proc for a moment: waits for the expected number."""
    for _ in range(500):
        number = len(os.listdir("/proc/self/task"))
        if expected is None or number == expected:
            break
        time.sleep(0.01)
    return number
