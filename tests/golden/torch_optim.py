#!/usr/bin/env python3
"""Parameters after 1 and 100 updates of torch's optimizers in f32, for tests/unit/test_optim_torch.c.

    torch_optim.py header         prints tests/unit/golden_optim.h
    torch_optim.py check HEADER   compares the numbers of that file with those of the torch here

Lion and LAMB are in no torch: their papers' formulas stand here in tensors.
"""
import re
import sys

import torch

N, UPDATES = 16, 100


def numbers(seed):
    """Equal in C: numbers of 24 bits between -0.5 and 0.5."""
    state = seed
    while True:
        state = (state * 1664525 + 1013904223) % 2**32
        yield (state >> 8) / 2**24 - 0.5


class Lion(torch.optim.Optimizer):  # arXiv:2302.06675, algorithm 2
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            one, two = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(torch.sign(one * m + (1 - one) * p.grad), alpha=group["lr"])
                m.mul_(two).add_(p.grad, alpha=1 - two)


class Lamb(torch.optim.Optimizer):  # arXiv:1904.00962, algorithm 2
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, t=0))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            one, two = group["betas"]
            group["t"] += 1
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                v = self.state[p].setdefault("v", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - one)
                v.mul_(two).addcmul_(p.grad, p.grad, value=1 - two)
                r = m / (1 - one ** group["t"]) / ((v / (1 - two ** group["t"])).sqrt() + group["eps"])
                r = r + group["weight_decay"] * p
                p.sub_(r, alpha=(group["lr"] * p.norm() / r.norm()).item())


O = torch.optim
def muon(*args, **more):
    """torch's Muon, with its iteration in f32 instead of bf16."""
    import torch.optim._muon as module

    def whole(grad, coefficients, steps, eps):
        a, b, c = coefficients
        x = grad.T if grad.size(0) > grad.size(1) else grad
        x = x / x.norm().clamp(min=eps)
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x.T if grad.size(0) > grad.size(1) else x

    module._zeropower_via_newtonschulz = whole
    return module.Muon(*args, **more)


CASES = [  # our config, whether the parameter decays, torch's optimizer, and rows of a matrix
    ("{sgd: {lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.01}}", 1,
     lambda p: O.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("{sgd: {lr: 0.1, momentum: 0}}", 1, lambda p: O.SGD(p, 0.1)),
    ("adamw", 1, lambda p: O.AdamW(p)),
    ("{adamw: {lr: 0.02, beta1: 0.8, beta2: 0.95, eps: 1e-3, weight_decay: 0.1}}", 1,
     lambda p: O.AdamW(p, 0.02, (0.8, 0.95), 1e-3, 0.1)),
    ("adam", 1, lambda p: O.Adam(p)),
    ("{adam: {lr: 0.02, beta1: 0.8, beta2: 0.95, eps: 1e-3, weight_decay: 0.1}}", 1,
     lambda p: O.Adam(p, 0.02, (0.8, 0.95), 1e-3, 0.1)),
    ("{adam: {weight_decay: 0.1}}", 0, lambda p: O.Adam(p)),
    ("nadam", 1, lambda p: O.NAdam(p)),
    ("{nadam: {lr: 0.02, beta1: 0.8, beta2: 0.95, eps: 1e-3, momentum_decay: 0.1, weight_decay: 0.1}}", 1,
     lambda p: O.NAdam(p, 0.02, (0.8, 0.95), 1e-3, 0.1, 0.1)),
    ("rmsprop", 1, lambda p: O.RMSprop(p)),
    ("{rmsprop: {lr: 0.02, alpha: 0.9, eps: 0.0316, momentum: 0.9, weight_decay: 0.01}}", 1,
     lambda p: O.RMSprop(p, 0.02, 0.9, 0.0316, 0.01, 0.9)),
    ("{lion: {lr: 0.01, weight_decay: 0.5}}", 1, lambda p: Lion(p, 0.01, weight_decay=0.5)),
    ("{lamb: {lr: 0.01}}", 1, lambda p: Lamb(p, 0.01)),
    ("{lamb: {lr: 0.01, beta1: 0.8, beta2: 0.95, eps: 1e-3, weight_decay: 0.3}}", 1,
     lambda p: Lamb(p, 0.01, (0.8, 0.95), 1e-3, 0.3)),
    ("{lamb: {lr: 0.01, eps: 1e-3}}", 0, lambda p: O.Adam(p, 0.01, eps=1e-3)),
    ("muon", 1, lambda p: muon(p), 4),
    ("{muon: {lr: 0.002, momentum: 0.6, nesterov: false, iterations: 3, weight_decay: 0}}", 1,
     lambda p: muon(p, 0.002, 0, 0.6, False, ns_steps=3), 2),
    ("{muon: {lr: 0.002}}", 1, lambda p: muon(p, 0.002), 8),
    ("{muon: {rest_lr: 0.02}}", 1, lambda p: O.AdamW(p, 0.02, weight_decay=0.1)),
]


def run(make, rows=0):
    """The parameters after the first and after the last update."""
    draw = numbers(7)
    shape = (rows, N // rows) if rows else (N,)
    param = torch.nn.Parameter(torch.tensor([2 * next(draw) for _ in range(N)]).view(shape))
    optimizer, after = make([param]), []
    for update in range(UPDATES):
        param.grad = torch.tensor([next(draw) * 2.0 ** -(i % 8) for i in range(N)]).view(shape)
        optimizer.step()
        if update in (0, UPDATES - 1):
            after.append(param.flatten().tolist())
    return after


def rows(values):
    lines = [", ".join(f"{v:.9g}" for v in values[i:i + 6]) for i in range(0, N, 6)]
    return "{" + ",\n            ".join(lines) + "}"


def header():
    print("/* Made by tests/golden/torch_optim.py header: parameters after 1 and 100 updates. */\n"
          "#ifndef NP_GOLDEN_OPTIM_H\n#define NP_GOLDEN_OPTIM_H\n\n/* clang-format off */\n"
          f"enum {{ GOLDEN_N = {N}, GOLDEN_UPDATES = {UPDATES} }};\n"
          "static const struct {\n    const char *config;\n    int decay, rows;\n"
          "    double first[GOLDEN_N], last[GOLDEN_N];\n} golden_optim[] = {")
    for config, decay, make, *rows_of in CASES:
        first, last = run(make, *rows_of)
        print(f'    {{"{config}", {decay}, {sum(rows_of)},\n        {rows(first)},\n        {rows(last)}}},')
    print("};\n/* clang-format on */\n\n#endif")


def check(path):
    text = re.sub(r'"[^"]*", \d, \d,', "", open(path).read().split("golden_optim[] = {")[1])
    stored = [float(v) for v in re.findall(r"-?\d[\d.e-]*", text)]
    here = [v for _, _, make, *rows in CASES for values in run(make, *rows) for v in values]
    assert len(stored) == len(here), (len(stored), len(here))
    worst = max(abs(a - b) / (1 + abs(b)) for a, b in zip(stored, here))
    print(f"{len(CASES)} optimizers, largest difference {worst:.2g}")
    return worst > 1e-5


if __name__ == "__main__":
    sys.exit(check(sys.argv[2]) if sys.argv[1:2] == ["check"] else header())
