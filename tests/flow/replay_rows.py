"""replay_rows.py RUN NNPIPE: replays every step of a run on PPM files and compares, without nnpipe's code:
samples with history.bin, pixels of the PNG files with box and flip applied to the PPM file, checksums with
the pixels, replaced samples with bad_samples.jsonl, one row alone with the row among all."""
import json
import struct
import subprocess
import sys

from read_png import png

run, nnpipe = sys.argv[1:3]


def replay(step, *more):
    out = subprocess.run([nnpipe, "replay", run, "--step", str(step), "--json", *more],
                         capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def ppm(path):
    data = open(path, "rb").read()
    kind, width, height, depth = data.split(maxsplit=4)[:4]
    assert (kind, depth) == (b"P6", b"255")
    return int(width), int(height), data[-int(width) * int(height) * 3:]


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return "%08x" % (crc ^ 0xffffffff)


def made(row):
    """The row's pixels from its file: a window with a black border, flipped."""
    width, height, pixels = ppm(row["path"])
    assert row["source_size"] == [width, height] and row["size"] == [
        row["box"][2] - row["box"][0], row["box"][3] - row["box"][1]]
    left, top = row["box"][0] + row["window"][0], row["box"][1] + row["window"][1]
    out = b""
    for y in range(top, top + row["window"][3]):
        columns = list(range(left, left + row["window"][2]))
        for x in reversed(columns) if row["flip"] else columns:
            inside = row["box"][0] <= x < row["box"][2] and row["box"][1] <= y < row["box"][3]
            out += pixels[3 * (y * width + x):][:3] if inside else bytes(3)
    return out


history, at, step, replaced, flips = open(run + "/history.bin", "rb").read(), 0, 0, [], set()
seen = set()
while at < len(history):
    number, rows = struct.unpack_from("<QI", history, at)
    samples = struct.unpack_from("<%dI" % rows, history, at + 12)
    at += 12 + 4 * rows
    again = replay(step)
    assert number == step and [row["row"] for row in again] == list(range(rows))
    assert [row["sample"] for row in again] == list(samples), (step, samples)
    assert [json.loads(line) for line in open("%s/replay-step%d/rows.jsonl" % (run, step))] == again
    for row in again:
        width, height, pixels = png(row["file"])
        assert [width, height] == row["window"][2:] and pixels == made(row), row
        assert crc32c(pixels) == row["crc32c"] and "/%s/" % row["class"] in row["path"]
        assert row["replaced"] == len(row.get("bad", []))
        assert row["epoch"] * 1000000 + row["position"] not in seen
        seen.add(row["epoch"] * 1000000 + row["position"])
        flips.add(row["flip"])
        replaced += [(step, row["position"], bad["sample"], bad["path"], bad["reason"]) for bad in row.get("bad", [])]
    alone = replay(step, "--row", str(step % rows), "--out", run + "/alone")
    alone[0]["file"] = again[step % rows]["file"]
    assert alone == [again[step % rows]], (alone, again[step % rows])
    step += 1
listed = [(bad["step"], bad["position"], bad["sample"], bad["path"], bad["reason"])
          for bad in map(json.loads, open(run + "/bad_samples.jsonl")) if bad["set"] == "train"]
assert sorted(listed) == sorted(replaced) and len(listed) > 0 and flips == {True, False}, (listed, replaced)
print(step, "steps,", len(replaced), "replaced")
