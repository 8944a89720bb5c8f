"""What torch_air.py, torch_freeze.py, torch_layers.py and torch_finetune.py share: pictures, files of weights, nnpipe's
steps, and how far its weights may be from torch's. Needs neither torch nor NumPy, but for the distances."""
import json
import os
import random
import struct
import subprocess
import zlib

failed = False


def check(good, what, why=""):
    global failed
    failed = failed or not good
    print(f"ok - {what}" if good else f"not ok - {what}: {why}", flush=True)


def picture(i, side):
    """Four squares of different colours, with noise: side * side * 3 bytes."""
    rng = random.Random(i)
    base, half = [rng.randrange(256) for _ in range(12)], side // 2
    return bytes((base[3 * (y // half * 2 + x // half) + c] * 3 + rng.randrange(256)) // 4
                 for y in range(side) for x in range(side) for c in range(3))


def write_set(folder, images, classes, side):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    for i in range(images):
        place, pixels = f"{folder}/c{i % classes}", picture(i, side)
        os.makedirs(place, exist_ok=True)
        rows = b"".join(b"\0" + pixels[3 * side * y:3 * side * (y + 1)] for y in range(side))
        with open(f"{place}/{i}.png", "wb") as out:
            out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
                      chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def read_set(images, classes, side, kind):
    """The same as torch's images and labels; mean 0.5, standard deviation 0.25."""
    import torch
    pixels = torch.tensor([list(picture(i, side)) for i in range(images)], dtype=kind)
    pixels = (pixels.reshape(-1, side, side, 3) / 255 - 0.5) / 0.25
    return pixels.permute(0, 3, 1, 2), torch.tensor([i % classes for i in range(images)])


def save_safetensors(path, state):
    """state: name -> shape, values"""
    header, blob = {}, b""
    for name, (shape, values) in state.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + blob)


def load_safetensors(path):
    """name -> the bytes of its f32 values"""
    with open(path, "rb") as file:
        raw = file.read()
    at, state = 8 + struct.unpack("<Q", raw[:8])[0], {}
    for name, t in json.loads(raw[8:at]).items():
        if name != "__metadata__" and t["dtype"] == "F32":
            begin, end = t["data_offsets"]
            state[name] = raw[at + begin:at + end]
    return state


def train(nnpipe, runs, config, *args):
    """Runs nnpipe train; returns the losses of its steps, its last weights, and what it printed."""
    done = subprocess.run([nnpipe, "train", config, *args, "-o", f"runs={runs}"], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise RuntimeError(f"{config}: {done.stdout[-300:]} {done.stderr[-300:]}")
    folder = f"{runs}/{os.listdir(runs)[0]}"
    with open(f"{folder}/metrics.jsonl", encoding="utf-8") as file:
        losses = [e["loss"] for e in map(json.loads, file) if e.get("event") == "step"]
    return losses, load_safetensors(f"{folder}/checkpoints/step-{len(losses)}/weights.safetensors"), done.stdout


def write_stored(path, stored):
    with open(path, "w", encoding="utf-8") as out:
        out.write("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in stored.items()) + "\n}\n")


def check_losses(got, wanted, steps, bound, what):
    """Each loss is within bound of the wanted one, or of its share of it where that is above 1."""
    off = [abs(a - b) / max(1, b) for a, b in zip(got, wanted)]
    check(len(got) == steps and max(off) < bound, what, f"{len(got)} steps, {max(off):.2e} apart")


def distances(got, single, double):
    """Of all weights from torch's in f64: nnpipe's, and those of torch in f32. States of torch: f64."""
    import torch
    mine = torch.cat([torch.frombuffer(bytearray(got[k]), dtype=torch.float32).double() - v.flatten()
                      for k, v in double.items()]).norm().item()
    return mine, torch.cat([(single[k] - v).flatten() for k, v in double.items()]).norm().item()


def check_weights(got, single, double, what):
    mine, theirs = distances(got, single, double)
    check(mine <= 3 * theirs, f"{what}: weights are {mine / theirs:.2f} times as far from torch's f64 as its f32 is",
          "3 at most")
