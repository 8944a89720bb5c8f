#!/usr/bin/env python3
"""PyTorch's half of bench_gpu.sh: the same work as nnpipe, as well as PyTorch does it.

    peer.py step|copy|feed|cifar|profile|versions ...      prints one JSON object

u8 pictures in channels_last, normalised in the step; autocast; f16 with a GradScaler; fused SGD.
"""
import argparse
import glob
import io
import json
import os
import random
import tarfile
import time

import torch
import torch.nn.functional as F
from torch import nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# --- networks: those of configs/, parameters named as torchvision's ------------------------------


def conv(cin, cout, kernel, stride=1):
    return nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)


class Basic(nn.Module):
    grow = 1

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(cin, cout, 3, stride), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = conv(cout, cout, 3), nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(conv(cin, cout, 1, stride), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


class Bottleneck(nn.Module):
    grow = 4

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(cin, cout, 1), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = conv(cout, cout, 3, stride), nn.BatchNorm2d(cout)
        self.conv3, self.bn3 = conv(cout, 4 * cout, 1), nn.BatchNorm2d(4 * cout)
        self.downsample = None
        if stride != 1 or cin != 4 * cout:
            self.downsample = nn.Sequential(conv(cin, 4 * cout, 1, stride), nn.BatchNorm2d(4 * cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


def resnet(block, repeats, classes, small=False):
    stem = [conv(3, 64, 3)] if small else [conv(3, 64, 7, 2)]
    layers = stem + [nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    if not small:
        layers.append(nn.MaxPool2d(3, 2, 1))
    cin = 64
    for stage, repeat in enumerate(repeats):
        cout = 64 << stage
        for i in range(repeat):
            layers.append(block(cin, cout, 2 if stage and i == 0 else 1))
            cin = cout * block.grow
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, classes)]
    net = nn.Sequential(*layers)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net


def network(name, classes):
    if name == "resnet50":
        return resnet(Bottleneck, (3, 4, 6, 3), classes)
    return resnet(Basic, (2, 2, 2, 2), classes, small=name == "cifar")


# --- one step -----------------------------------------------------------------------------------


class Trainer:
    def __init__(self, args, net, smoothing=0.0, nesterov=False, weight_decay=1e-4, mean=MEAN, std=STD):
        self.device = torch.device(args.device)
        self.gpu = self.device.type == "cuda"
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.deterministic = args.deterministic
        self.dtype = {"f32": None, "bf16": torch.bfloat16, "f16": torch.float16}[args.precision]
        self.net = net.to(self.device, memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9, nesterov=nesterov,
                                         weight_decay=weight_decay, **({"fused": True} if self.gpu else {}))
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=args.precision == "f16")
        scale = 1 / (255 * torch.tensor(std, device=self.device))
        self.scale = scale.view(1, 3, 1, 1)
        self.shift = (torch.tensor(mean, device=self.device) * 255 * scale).view(1, 3, 1, 1)
        self.smoothing = smoothing
        mode = {"mode": "max-autotune"} if self.gpu else {}
        self.loss = torch.compile(self.forward, **mode) if args.compile else self.forward

    def logits(self, images):
        x = (images * self.scale - self.shift).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None):
            return self.net(x)

    def forward(self, images, labels):
        return F.cross_entropy(self.logits(images).float(), labels, label_smoothing=self.smoothing)

    def step(self, images, labels):
        loss = self.loss(images, labels)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def wait(self):
        if self.gpu:
            torch.cuda.synchronize()


def drawn_batch(args, device):
    images = torch.randint(0, 256, (args.batch, 3, args.size, args.size), dtype=torch.uint8)
    labels = torch.randint(0, 1000, (args.batch,))
    return images.to(device, memory_format=torch.channels_last), labels.to(device)


def measure(args, trainer, batches, warmup):
    """Images a second over args.seconds, in runs of steps without a wait between them."""
    for _ in range(warmup):
        trainer.step(*next(batches))
    trainer.wait()
    steps, start = 0, time.monotonic()
    while time.monotonic() - start < args.seconds:
        for _ in range(10 if trainer.gpu else 1):
            trainer.step(*next(batches))
            steps += 1
        trainer.wait()
    seconds = time.monotonic() - start
    return {"images_per_second": steps * args.batch / seconds, "steps": steps, "seconds": seconds}


def step(args):
    trainer = Trainer(args, network(args.model, 1000))
    batch = drawn_batch(args, trainer.device)
    return measure(args, trainer, iter(lambda: batch, None), 20 if trainer.gpu else 1)


def copy(args):
    """By the device's clock, as nnpipe times its own copies: the time of each copy, without the host's."""
    device = torch.device(args.device)
    size = (args.batch, args.size, args.size, 3)
    host = [torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda") for _ in range(2)]
    target = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2)]

    def copies(n):
        """Seconds that n copies took."""
        if device.type == "cuda":
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            marks[0].record()
        start = time.monotonic()
        for i in range(n):
            target[i % 2].copy_(host[i % 2], non_blocking=True)
        if device.type != "cuda":
            return time.monotonic() - start
        marks[1].record()
        torch.cuda.synchronize()
        return marks[0].elapsed_time(marks[1]) / 1e3

    copies(20)
    done, seconds, start = 0, 0.0, time.monotonic()
    while time.monotonic() - start < args.seconds:
        seconds += copies(50)
        done += 50
    wall = time.monotonic() - start
    return {"gigabytes_per_second": done * host[0].numel() / seconds / 1e9, "copy_seconds": seconds,
            "wall_gigabytes_per_second": done * host[0].numel() / wall / 1e9, "seconds": wall}


# --- feeding ------------------------------------------------------------------------------------


class Shards(torch.utils.data.Dataset):
    """Pictures of tar shards, CLASS/NAME, read by offset; random resized crop and flip, as nnpipe draws."""

    def __init__(self, folder, size, decode):
        self.size, self.decode, self.items, names = size, decode, [], set()
        for path in sorted(glob.glob(os.path.join(folder, "*.tar"))):
            with tarfile.open(path) as tar:
                for member in tar:
                    if member.isfile():
                        self.items.append((path, member.offset_data, member.size, member.name.split("/")[-2]))
                        names.add(member.name.split("/")[-2])
        self.classes = {name: i for i, name in enumerate(sorted(names))}
        self.files = {}

    def __len__(self):
        return 1 << 40  # endless: workers must not restart in each epoch

    def __getitem__(self, i):
        from torchvision.transforms import RandomResizedCrop, v2

        path, offset, size, name = self.items[i % len(self.items)]
        if path not in self.files:
            self.files[path] = os.open(path, os.O_RDONLY)
        data = os.pread(self.files[path], size, offset)
        if self.decode == "torchvision":
            from torchvision.io import ImageReadMode, decode_jpeg

            picture = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)
        else:
            from PIL import Image

            picture = Image.open(io.BytesIO(data)).convert("RGB")
        box = RandomResizedCrop.get_params(picture, (0.08, 1.0), (3 / 4, 4 / 3))
        picture = v2.functional.resized_crop(picture, *box, [self.size, self.size], antialias=True)
        if random.random() < 0.5:
            picture = v2.functional.horizontal_flip(picture)
        return v2.functional.pil_to_tensor(picture) if self.decode == "pil" else picture, self.classes[name]


def feed(args):
    shards = Shards(args.shards, args.size, args.decode)
    trainer = Trainer(args, network(args.model, len(shards.classes)))
    order = torch.utils.data.RandomSampler(range(len(shards.items)), replacement=True, num_samples=1 << 30) \
        if len(shards.items) < 1 << 20 else None
    loader = torch.utils.data.DataLoader(shards, args.batch, sampler=order, num_workers=args.workers,
                                         pin_memory=trainer.gpu, drop_last=True, prefetch_factor=4)

    def batches():
        for images, labels in loader:
            yield (images.to(trainer.device, non_blocking=True).contiguous(memory_format=torch.channels_last),
                   labels.to(trainer.device, non_blocking=True))

    return measure(args, trainer, batches(), 20 if trainer.gpu else 1)


# --- CIFAR-10 -----------------------------------------------------------------------------------


def load_cifar(folder, classes, device):
    images, labels = [], []
    for path in sorted(glob.glob(os.path.join(folder, "*.tar"))):
        with tarfile.open(path) as tar:
            for member in tar:
                if not member.name.endswith(".ppm"):
                    continue
                data = tar.extractfile(member).read()
                images.append(torch.frombuffer(bytearray(data[-3072:]), dtype=torch.uint8).view(32, 32, 3))
                labels.append(classes.setdefault(member.name.split("/")[-2], len(classes)))
    return torch.stack(images).permute(0, 3, 1, 2).to(device), torch.tensor(labels, device=device)


def one_cycle(at, warmup=0.25, start=0.04, end=4e-6):
    return start + (1 - start) * at / warmup if at < warmup else 1 + (end - 1) * (at - warmup) / (1 - warmup)


def augment(images, indices):
    """Crop of the picture with 4 mirrored pixels around it, and a flip, drawn for each on the device."""
    n, device = len(indices), images.device
    rows = torch.randint(0, 9, (n, 1), device=device) + torch.arange(32, device=device)
    cols = torch.randint(0, 9, (n, 1), device=device) + torch.arange(32, device=device)
    cols = torch.where(torch.rand(n, 1, device=device) < 0.5, cols, cols.flip(1))
    return images[indices[:, None, None], :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)


def cifar(args):
    torch.manual_seed(args.seed)
    trainer = Trainer(args, network("cifar", 10), 0.1, True, 5e-4, (0.4914, 0.4822, 0.4465),
                      (0.2470, 0.2435, 0.2616))
    classes = {}
    images, labels = load_cifar(os.path.join(args.shards, "train"), classes, trainer.device)
    test, test_labels = load_cifar(os.path.join(args.shards, "test"), classes, trainer.device)
    padded = F.pad(images.float(), (4, 4, 4, 4), mode="reflect").to(torch.uint8)
    batch, epochs = args.batch, 24
    an_epoch = max(1, len(images) // batch)
    total = args.steps or epochs * an_epoch
    for group in trainer.optimizer.param_groups:
        group["lr"] = 0.0
    trainer.step(augment(padded, torch.arange(batch, device=trainer.device)), labels[:batch])  # compiles
    trainer.wait()
    start, reached, accuracy = time.monotonic(), None, 0.0
    for i in range(total):
        if i % an_epoch == 0:
            order = torch.randperm(len(images), device=trainer.device)
        for group in trainer.optimizer.param_groups:
            group["lr"] = 0.2 * one_cycle(i / total)
        indices = order[i % an_epoch * batch:][:batch]
        trainer.step(augment(padded, indices), labels[indices])
        if (i + 1) % an_epoch == 0 or i + 1 == total:
            trainer.net.eval()
            with torch.no_grad():
                right = sum((trainer.logits(test[j:j + 1000]).argmax(1) == test_labels[j:j + 1000]).sum()
                            for j in range(0, len(test), 1000))
            trainer.net.train()
            accuracy = float(right) / len(test)
            if reached is None and accuracy >= 0.94:
                reached = time.monotonic() - start
    return {"test_accuracy": accuracy, "seconds": time.monotonic() - start, "seconds_to_target": reached}


def profile(args):
    """The kernels that take most of a step's device time, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile as profiler

    trainer = Trainer(args, network(args.model, 1000))
    batch = drawn_batch(args, trainer.device)
    for _ in range(10 if trainer.gpu else 1):
        trainer.step(*batch)
    trainer.wait()
    with profiler(activities=[ProfilerActivity.CUDA if trainer.gpu else ProfilerActivity.CPU]) as run:
        for _ in range(5):
            trainer.step(*batch)
        trainer.wait()
    name = "self_device_time_total" if trainer.gpu else "self_cpu_time_total"
    rows = sorted(run.key_averages(), key=lambda row: -getattr(row, name))[:25]
    return {"kernels": [{"name": row.key[:120], "calls": row.count / 5, "ms": getattr(row, name) / 5e3}
                        for row in rows]}


def versions(_):
    facts = {"torch": torch.__version__, "cuda": torch.version.cuda,
             "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
             "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None}
    try:
        import torchvision

        facts["torchvision"] = torchvision.__version__
    except ImportError:
        facts["torchvision"] = None
    return facts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("step", "copy", "feed", "cifar", "profile", "versions"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--precision", choices=("f32", "bf16", "f16"), default="f32")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards")
    parser.add_argument("--decode", choices=("pil", "torchvision"), default="pil")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--deterministic", action="store_true", help="of cuDNN's convolutions")
    parser.add_argument("--tf32", action="store_true", help="in products of f32, convolutions too")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
    torch.backends.cuda.matmul.allow_tf32 = args.tf32
    torch.backends.cudnn.allow_tf32 = args.tf32
    result = {"step": step, "copy": copy, "feed": feed, "cifar": cifar, "profile": profile,
              "versions": versions}[args.what](args)
    print(json.dumps({"event": "done", **result}), flush=True)
    os._exit(0)  # loader processes that wait for a full queue would delay the exit


if __name__ == "__main__":
    main()
