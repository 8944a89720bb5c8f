"""Measures and prints for bench_augment.sh, which has the settings."""
import glob
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from PIL import Image
from torchvision import datasets
from torchvision.transforms import InterpolationMode, v2

SIDE, PICTURES = 224, 100
ROUNDS, SECONDS = int(os.environ.get("ROUNDS", "3")), float(os.environ.get("SECONDS_EACH", "4"))
PHOTOS = os.environ["NNPIPE_PHOTOS"]
BILINEAR = InterpolationMode.BILINEAR
# Name, chain of a config, torchvision's transform: each changes every picture.
ROWS = [
    ("color jitter 0.4, 0.4, 0.4, hue 0.1",
     "{color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}}", v2.ColorJitter(0.4, 0.4, 0.4, 0.1)),
    ("brightness", "{color_jitter: {brightness: 0.4}}", v2.ColorJitter(brightness=0.4)),
    ("contrast", "{color_jitter: {contrast: 0.4}}", v2.ColorJitter(contrast=0.4)),
    ("saturation", "{color_jitter: {saturation: 0.4}}", v2.ColorJitter(saturation=0.4)),
    ("hue", "{color_jitter: {hue: 0.1}}", v2.ColorJitter(hue=0.1)),
    ("grayscale", "{grayscale: {p: 1}}", v2.RandomGrayscale(1)),
    ("solarize", "{solarize: {p: 1}}", v2.RandomSolarize(128, 1)),
    ("posterize, 3 bits", "{posterize: {bits: 3, p: 1}}", v2.RandomPosterize(3, 1)),
    ("equalize", "{equalize: {p: 1}}", v2.RandomEqualize(1)),
    ("autocontrast", "{autocontrast: {p: 1}}", v2.RandomAutocontrast(1)),
    ("invert", "{invert: {p: 1}}", v2.RandomInvert(1)),
    ("sharpness 2", "{sharpness: {factor: 2, p: 1}}", v2.RandomAdjustSharpness(2, 1)),
    ("vertical flip", "{vertical_flip: {p: 1}}", v2.RandomVerticalFlip(1)),
    ("rotation 30", "{rotation: {degrees: 30}}", v2.RandomRotation(30)),
    ("rotation 30, bilinear", "{rotation: {degrees: 30, filter: bilinear}}", v2.RandomRotation(30, BILINEAR)),
    ("affine", "{affine: {degrees: 20, translate: [0.1, 0.1], scale: [0.8, 1.2], shear: 10}}",
     v2.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10)),
    ("gaussian blur 23", "{gaussian_blur: {kernel: 23}}", v2.GaussianBlur(23)),
    ("random erasing", "{random_erasing: {p: 1}}", v2.RandomErasing(1)),
    ("RandAugment", "rand_augment", v2.RandAugment()),
    ("TrivialAugment", "trivial_augment", v2.TrivialAugmentWide()),
    ("AutoAugment", "auto_augment", v2.AutoAugment()),
]


def rows():
    names = os.environ.get("NAMES")
    return [row for row in ROWS if not names or row[0] in names.split(";")]


def crops():
    """Photographs of SIDE x SIDE, as Pillow has them."""
    crop = v2.Compose([v2.Resize(SIDE), v2.CenterCrop(SIDE)])
    return [crop(Image.open(f).convert("RGB")) for f in sorted(glob.glob(f"{PHOTOS}/*/*"))[:PICTURES]]


def cpu_us(transform, pictures):
    for picture in pictures[:5]:
        transform(picture)
    start = time.thread_time()
    for picture in pictures:
        transform(picture)
    return 1e6 * (time.thread_time() - start) / len(pictures)


def on_pillow(transform):
    """Random erasing wants a tensor: the picture's."""
    if isinstance(transform, v2.RandomErasing):
        return v2.Compose([v2.PILToTensor(), transform])
    return transform


def table(title, unit, found, names, better):
    """found: (name, column) -> the rounds' figures; better(ours, theirs): how many times ours is."""
    print(f"\n| {title} | nnpipe, {unit} | on Pillow | on tensors | of Pillow's | of tensors' |")
    print("|---|---|---|---|---|---|")
    for name in names:
        ours, pillow, tensor = (found[name, column] for column in ("nnpipe", "pillow", "tensor"))
        times = [statistics.median(better(a, b) for a, b in zip(ours, other)) for other in (pillow, tensor)]
        print(f"| {name} | " + " | ".join(f"{statistics.median(x):,.1f}" for x in (ours, pillow, tensor)) +
              f" | {times[0]:.1f} | {times[1]:.1f} |", flush=True)


def alone():
    torch.set_num_threads(1)
    pictures = crops()
    tensors = [v2.functional.pil_to_tensor(picture) for picture in pictures]
    raw = os.environ["OUT"] + "/pictures"
    with open(raw, "wb") as file:
        for picture in pictures:
            file.write(picture.tobytes())
    found = {}
    for _ in range(ROUNDS):
        for name, chain, transform in rows():
            done = subprocess.run([os.environ["TOOL"], raw, str(SIDE), f"[{chain}]"], capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            for column, value in (("nnpipe", float(done.stdout)), ("pillow", cpu_us(on_pillow(transform), pictures)),
                                  ("tensor", cpu_us(transform, tensors))):
                found.setdefault((name, column), []).append(value)
    table("one operation, one thread", "CPU us a picture", found, [row[0] for row in rows()], lambda a, b: b / a)


def ours(chain):
    words = ["./nnpipe", "bench", "loader", "tests/bench/photos.yaml", "-o",
             f"loader.augment=[{{random_resized_crop: {SIDE}}}, flip, {chain}]", "-o", "loader.cache=none", "-o",
             "loader.entries=off", "--seconds", str(SECONDS), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])["images_per_second"]


def theirs(transform, tensors):
    """Images a second of a DataLoader with two workers, after its start."""
    first = [v2.PILToTensor()] if tensors else []
    last = [] if tensors or isinstance(transform, v2.RandomErasing) else [v2.PILToTensor()]
    data = datasets.ImageFolder(PHOTOS, v2.Compose(
        [*first, v2.RandomResizedCrop(SIDE), v2.RandomHorizontalFlip(), transform if tensors else on_pillow(transform),
         *last, v2.ToDtype(torch.float32, scale=True), v2.Normalize([.485, .456, .406], [.229, .224, .225])]))
    loader = torch.utils.data.DataLoader(data, 64, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True)
    images, start = 0, None
    while True:
        for batch, _ in loader:
            if start is None:
                start = time.monotonic()  # the workers have started
            else:
                images += len(batch)
            if images and time.monotonic() - start > SECONDS:
                return images / (time.monotonic() - start)


def loaders():
    found = {}
    for _ in range(ROUNDS):
        for name, chain, transform in rows():
            for column, rate in (("nnpipe", ours(chain)), ("pillow", theirs(transform, False)),
                                 ("tensor", theirs(transform, True))):
                found.setdefault((name, column), []).append(rate)
    table("whole loader, two workers", "images/s", found, [row[0] for row in rows()], lambda a, b: a / b)


for part in os.environ.get("PARTS", "alone loaders").split():
    {"alone": alone, "loaders": loaders}[part]()
