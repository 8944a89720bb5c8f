#!/usr/bin/env python3
"""PyTorch's training step of ResNet-20 on resident data: the peer of `nnpipe bench step`.

    torch_step.py [--precision f32|bf16] [--batch N] [--threads N] [--seconds S]

channels_last, SGD with momentum, cross-entropy, u8 images normalised in the step. Prints one
JSON object with the fields of `nnpipe bench step --json`.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.down is None else self.down(x)
        return F.relu(y, inplace=True)


def resnet20(classes=10):
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    cin = 16
    for cout, stride in ((16, 1), (32, 2), (64, 2)):
        for i in range(3):
            layers.append(Block(cin, cout, stride if i == 0 else 1))
            cin = cout
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)]
    return nn.Sequential(*layers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    net = resnet20().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    images = torch.randint(0, 256, (args.batch, 3, 32, 32), dtype=torch.uint8)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (args.batch,))

    def step():
        x = images.to(torch.float32).sub_(127.5).div_(64).contiguous(
            memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
            loss = F.cross_entropy(net(x), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(3):
        step()
    times = []
    start = time.monotonic()
    while time.monotonic() - start < args.seconds:
        begin = time.monotonic()
        step()
        times.append(time.monotonic() - begin)
    total = sum(times)
    times.sort()
    print(json.dumps({
        "event": "done", "steps": len(times), "batch": args.batch,
        "images_per_second": args.batch * len(times) / total,
        "step_ms_p50": 1e3 * times[len(times) // 2],
        "step_ms_p99": 1e3 * times[min(len(times) - 1, len(times) * 99 // 100)],
        "precision": args.precision, "device": "cpu"}))


if __name__ == "__main__":
    main()
