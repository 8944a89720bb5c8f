#!/usr/bin/env python3
"""Factors of torch's schedules at each update, for tests/unit/test_schedule_torch.c.

    torch_schedule.py header         prints tests/unit/golden_schedule.h
    torch_schedule.py check HEADER   compares the numbers of that file with those of the torch here

An epoch has 10 updates, a run 60.
"""
import re
import sys

import torch

L, UPDATES, EVALS = torch.optim.lr_scheduler, 60, 40


def linear(optimizer, updates):
    return L.LinearLR(optimizer, 0.04, 1, updates)


CASES = [  # our config, torch's scheduler
    ("{step: {every: 2, gamma: 0.5}}", lambda o: L.StepLR(o, 20, 0.5)),
    ("{step: {every: 1.5, gamma: 0.5, warmup_epochs: 1}}",
     lambda o: L.ChainedScheduler([linear(o, 10), L.StepLR(o, 15, 0.5)])),
    ("{exponential: {gamma: 0.7}}", lambda o: L.ExponentialLR(o, 0.7 ** 0.1)),
    ("{exponential: {gamma: 0.7, warmup_steps: 7}}",
     lambda o: L.ChainedScheduler([linear(o, 7), L.ExponentialLR(o, 0.7 ** 0.1)])),
    ("polynomial", lambda o: L.PolynomialLR(o, 60, 1)),
    ("{polynomial: {power: 2.5, warmup_epochs: 2}}",
     lambda o: L.SequentialLR(o, [linear(o, 20), L.PolynomialLR(o, 40, 2.5)], [20])),
    ("{restarts: {every: 2, final: 0.01}}", lambda o: L.CosineAnnealingWarmRestarts(o, 20, 1, 0.01)),
    ("{restarts: {every: 0.5, growth: 2}}", lambda o: L.CosineAnnealingWarmRestarts(o, 5, 2)),
    ("{constant: {warmup_steps: 5}}", lambda o: linear(o, 5)),
    ("{one_cycle: {warmup: 0.25, momentum_high: 0.95, momentum_low: 0.85}}",
     lambda o: L.OneCycleLR(o, 1, UPDATES, pct_start=0.25)),
    ("{one_cycle: {warmup: 0.25, momentum_high: 0.95, momentum_low: 0.5, anneal: linear}}",
     lambda o: L.OneCycleLR(o, 1, UPDATES, pct_start=0.25, anneal_strategy="linear", base_momentum=0.5)),
]
PLATEAUS = [
    ("{plateau: {patience: 2, threshold: 0.01, gamma: 0.5}}",
     lambda o: L.ReduceLROnPlateau(o, "min", 0.5, 2, 0.01)),
    ("{plateau: {patience: 0, threshold: 0.02, cooldown: 2, min: 0.03}}",
     lambda o: L.ReduceLROnPlateau(o, "min", 0.1, 0, 0.02, cooldown=2, min_lr=0.03)),
    ("{plateau: {metric: accuracy, patience: 1, gamma: 0.2, threshold: 0.05}}",
     lambda o: L.ReduceLROnPlateau(o, "max", 0.2, 1, 0.05)),
]


def optimizer_of():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0, momentum=0.9)


def factors(make):
    optimizer, rates, momenta = optimizer_of(), [], []
    scheduler = make(optimizer)
    for _ in range(UPDATES):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        scheduler.step() if len(rates) < UPDATES else None
    return rates, momenta if "OneCycle" in type(scheduler).__name__ else [0.0] * UPDATES


def metrics(better):
    """Equal in C: improves less and less, with noise."""
    state, value, out = 11, 1.0, []
    for i in range(EVALS):
        state = (state * 1664525 + 1013904223) % 2**32
        value = value * (1 - 0.1 / (1 + i)) if better == "min" else value + 0.5 / (1 + i)
        out.append(value + ((state >> 8) / 2**24 - 0.5) * 0.02)
    return out


def plateau(make):
    optimizer, rates = optimizer_of(), []
    scheduler = make(optimizer)
    for metric in metrics(scheduler.mode):
        scheduler.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def rows(values):
    lines = [", ".join(f"{v:.12g}" for v in values[i:i + 5]) for i in range(0, len(values), 5)]
    return "{" + ",\n            ".join(lines) + "}"


def header():
    print("/* Made by tests/golden/torch_schedule.py header: factors of torch's schedules at each update. */\n"
          "#ifndef NP_GOLDEN_SCHEDULE_H\n#define NP_GOLDEN_SCHEDULE_H\n\n/* clang-format off */\n"
          f"enum {{ GOLDEN_UPDATES = {UPDATES}, GOLDEN_EVALS = {EVALS} }};\n"
          "static const struct {\n    const char *config;\n    double rates[GOLDEN_UPDATES], "
          "momenta[GOLDEN_UPDATES];\n} golden_schedules[] = {")
    for config, make in CASES:
        rates, momenta = factors(make)
        print(f'    {{"{config}",\n        {rows(rates)},\n        {rows(momenta) if any(momenta) else "{0}"}}},')
    print("};\nstatic const struct {\n    const char *config;\n    double rates[GOLDEN_EVALS];\n"
          "} golden_plateaus[] = {")
    for config, make in PLATEAUS:
        print(f'    {{"{config}",\n        {rows(plateau(make))}}},')
    print("};\n/* clang-format on */\n\n#endif")


def check(path):
    text = open(path).read().split("golden_schedules[] = {")[1]
    text = re.sub(r'"[^"]*",', "", text).replace("{0}", "{" + "0, " * UPDATES)
    stored = [float(v) for v in re.findall(r"(?<![\w])-?\d[\d.e-]*", text)]
    here = [v for _, make in CASES for values in factors(make) for v in values]
    here += [v for _, make in PLATEAUS for v in plateau(make)]
    assert len(stored) == len(here), (len(stored), len(here))
    worst = max(abs(a - b) for a, b in zip(stored, here))
    print(f"{len(CASES) + len(PLATEAUS)} schedules, largest difference {worst:.2g}")
    return worst > 1e-9


if __name__ == "__main__":
    sys.exit(check(sys.argv[2]) if sys.argv[1:2] == ["check"] else header())
