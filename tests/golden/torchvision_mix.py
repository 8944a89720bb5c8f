#!/usr/bin/env python3
"""The boxes and shares of torchvision's CutMix for given draws, for the table in tests/kernel/test_mix.c. Replaces
torch's draws by the given ones and prints the table's rows."""
import torch
from torchvision.transforms import v2

DRAWS = [(0.3, 5, 2, 9, 7), (0.9, 0, 0, 9, 7), (0.0, 4, 3, 9, 7), (0.5, 31, 0, 32, 32), (0.999, 3, 3, 32, 32),
         (0.25, 100, 223, 224, 224), (0.01, 0, 479, 480, 640)]


def box_of(keep, x, y, height, width):
    cutmix = v2.CutMix(alpha=1.0, num_classes=2)
    cutmix._dist.sample = lambda shape: torch.tensor([keep], dtype=torch.float64)
    draws, real = iter([x, y]), torch.randint
    torch.randint = lambda high, size: torch.tensor([next(draws)])
    try:
        params = cutmix.make_params([torch.zeros(2, 3, height, width)])
    finally:
        torch.randint = real
    return params


def main():
    for draw in DRAWS:
        params = box_of(*draw)
        x1, y1, x2, y2 = params["box"]
        print(f"    {{{', '.join(map(str, draw))}, {{{params['lam_adjusted']:.9f}f, 1, {y1}, {x1}, {y2}, {x2}}}}},")


if __name__ == "__main__":
    main()
