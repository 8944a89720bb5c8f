"""Writes tests/golden/layers.txt: outputs and gradients of torch's normalisations and attention for operands that
tests/kernel/test_layers_torch.c makes too; a line for each: name, then numbers in the order of nnpipe's memory (NHWC).
layers.py; needs torch."""
import os

import torch

N, H, W, C, HEADS = 2, 3, 2, 12, 2


def made(seed, *shape):
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    values = ((i * 7919 + seed * 104729) % 997).double() / 498.5 - 1
    return values.reshape(shape).requires_grad_()


def write(out, name, tensor):
    print(name, *(f"{v:.9g}" for v in tensor.detach().flatten().tolist()), file=out)


def norm(out, name, groups):
    x, gamma, beta, dy = made(1, N, H, W, C), made(2, C), made(3, C), made(4, N, H, W, C)
    if groups:
        y = torch.nn.functional.group_norm(x.permute(0, 3, 1, 2), groups, gamma, beta, 1e-3).permute(0, 2, 3, 1)
    else:
        y = torch.nn.functional.layer_norm(x, [C], gamma, beta, 1e-3)
    dx, dgamma, dbeta = torch.autograd.grad(y, [x, gamma, beta], dy)
    for what, tensor in {"y": y, "dx": dx, "dgamma": dgamma, "dbeta": dbeta}.items():
        write(out, f"{name}.{what}", tensor)


def attention(out):
    x, dy = made(1, N, H, W, 3 * C), made(4, N, H, W, C)
    q, k, v = (2 * x).reshape(N, H * W, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4)
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(N, H, W, C)
    (dx,) = torch.autograd.grad(y, [x], dy)
    write(out, "attention.y", y)
    write(out, "attention.dx", dx / 2)  # of what the node reads: 2 x


with open(os.path.join(os.path.dirname(__file__), "layers.txt"), "w", encoding="utf-8") as file:
    norm(file, "layernorm", 0)
    norm(file, "groupnorm", 3)
    attention(file)
