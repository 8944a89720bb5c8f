"""20 steps of configs/airbench94.yaml beside torch: torch_air.py NNPIPE CONFIG TMP DEVICE. Small pictures without
augmentation, one batch an epoch. The whitening is that of torch.linalg.eigh; the losses are torch's, and the weights at
most 3 times as far from its f64 as its f32 is: frozen and thawed parameters, rates and decays of their own, Nesterov's
momentum, the triangle of the rates, Lookahead. predict's answers over six views are torch's for the same weights.
Prints one line a check; exit 1 if one is not ok."""
import json
import os
import random
import subprocess
import sys

import torch
import torch.nn.functional as F
import torch_steps as steps
from torch_steps import check

nnpipe, config, tmp, device = sys.argv[1:5]
STEPS, IMAGES, CLASSES, SIDE = 20, 20, 4, 32  # the 5,000 pictures that are whitened: each of the 20, 250 times
MEAN, STD = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
RATE, DECAY, BIASES = 0.15, 1.3304e-3, 8  # a tenth and an eighth of the config's: small batches learn much faster
WIDTHS = {"group1": (24, 64), "group2": (64, 256), "group3": (256, 256)}


def shapes():
    result = {"whiten.weight": (24, 3, 2, 2), "whiten.bias": (24,), "fc.weight": (CLASSES, 256), "output": (CLASSES,)}
    for group, (before, width) in WIDTHS.items():
        for i, inputs in enumerate((before, width), 1):
            result[f"{group}.conv{i}.weight"] = width, inputs, 3, 3
            result.update({f"{group}.norm{i}.{k}": (width,) for k in ("weight", "bias", "running_mean", "running_var")})
    return result


def initial():
    """All but the filters that the pictures give. Biases have noise, so that those that stand still are seen."""
    rng, state = random.Random(94), {}
    for name, shape in shapes().items():
        n = torch.Size(shape).numel()
        middle = {"weight": 1, "running_var": 1}.get(name.split(".")[-1], 0) if "norm" in name else 0
        spread = 0 if "norm" in name else 0.1 if len(shape) == 1 else (n / shape[0]) ** -0.5
        state[name] = shape, [1 / 9] * n if name == "output" else [rng.gauss(middle, spread) for _ in range(n)]
    del state["whiten.weight"]
    return state


def pictures():
    images, labels = steps.read_set(IMAGES, CLASSES, SIDE, torch.float64)
    middle, spread = (torch.tensor(v, dtype=torch.float64).reshape(3, 1, 1) for v in (MEAN, STD))
    return (images * 0.25 + 0.5 - middle) / spread, labels


def whitened(images):
    """The 12 filters of the first half, the largest axis first, the largest element of each positive."""
    windows = F.unfold(images, 2).transpose(1, 2).reshape(-1, 12)  # (windows, 3 * 2 * 2)
    values, vectors = torch.linalg.eigh(windows.T @ windows / len(windows))
    filters = (vectors / (values + 5e-4).sqrt()).T.flip(0)
    return filters * filters.gather(1, filters.abs().argmax(1, keepdim=True)).sign()


def network(p, x, training=True):
    def normal(name, x):
        return F.batch_norm(x, p[name + ".running_mean"], p[name + ".running_var"], p[name + ".weight"],
                            p[name + ".bias"], training, 0.4, 1e-12)

    x = F.gelu(F.conv2d(x, p["whiten.weight"], p["whiten.bias"]))
    for group in WIDTHS:
        x = F.max_pool2d(F.conv2d(x, p[f"{group}.conv1.weight"], padding=1), 2)
        x = F.gelu(normal(f"{group}.norm1", x))
        x = F.gelu(normal(f"{group}.norm2", F.conv2d(x, p[f"{group}.conv2.weight"], padding=1)))
    return F.linear(F.max_pool2d(x, 3).flatten(1), p["fc.weight"]) * p["output"]


def learns(name):
    return name not in ("whiten.weight", "output") and ("norm" not in name or name.endswith("bias"))


def run_torch(state, images, labels, kind):
    p = {k: torch.tensor(v, dtype=kind).reshape(s) for k, (s, v) in state.items()}
    groups = []
    for name in filter(learns, p):
        p[name].requires_grad_()
        many = BIASES if "norm" in name else 1
        groups.append({"params": [p[name]], "lr": RATE * many, "weight_decay": DECAY / many})
    optimizer = torch.optim.SGD(groups, RATE, momentum=0.85, nesterov=True)
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [g["lr"] for g in groups], STEPS, pct_start=0.23, div_factor=5, anneal_strategy="linear",
        cycle_momentum=False, final_div_factor=0.2 / 0.07)
    slow, losses, images = {k: v.detach().clone() for k, v in p.items()}, [], images.to(kind)
    for step in range(STEPS):
        loss = F.cross_entropy(network(p, images), labels, label_smoothing=0.2)
        optimizer.zero_grad()
        loss.backward()
        if step >= 3:  # an epoch is a step
            p["whiten.bias"].grad = None
        optimizer.step()
        rates.step()
        losses.append(loss.item())
        if (step + 1) % 5 == 0:
            look_ahead(p, slow, 0.77378 * ((step + 1) / STEPS) ** 3)
    return losses, {k: v.detach().double() for k, v in p.items()}


@torch.no_grad()
def look_ahead(p, slow, decay):
    """The average becomes the weights and running statistics, as airbench's LookaheadState copies its state."""
    for name, value in p.items():
        if learns(name) or "running" in name:
            slow[name].lerp_(value, 1 - decay)
            value.copy_(slow[name])


@torch.no_grad()
def infer(p, x):
    """airbench's tta_level 2: one half is the picture and its mirror image, one half both moved to two corners."""
    def mirrored(x):
        return (network(p, x, False) + network(p, x.flip(-1), False)) / 2

    around = F.pad(x, (1, 1, 1, 1), mode="reflect")
    moved = mirrored(around[:, :, :SIDE, :SIDE]) + mirrored(around[:, :, 2:, 2:])
    return ((mirrored(x) + moved / 2) / 2).softmax(1)


def check_views(run, weights, images):
    """The probabilities of `nnpipe predict`, which takes the config's tta, beside torch's in f64."""
    p = {k: torch.frombuffer(bytearray(weights[k]), dtype=torch.float32).double().reshape(s)
         for k, s in shapes().items()}
    said = subprocess.run([nnpipe, "predict", "--weights", run, f"{tmp}/set", "--top", str(CLASSES), "--json"],
                          capture_output=True, text=True, check=True).stdout
    got = torch.zeros(IMAGES, CLASSES, dtype=torch.float64)
    for answer in map(json.loads, said.splitlines()):
        for row in answer.get("top", ()):
            got[int(os.path.basename(answer["path"])[:-4]), int(row["class"][1:])] = row["probability"]
    off, moved = (got - infer(p, images)).abs().max(), (got - network(p, images, False).softmax(1)).abs().max()
    check(off < 1e-4 < 1e-3 < moved, f"answers over six views are torch's on {device}",
          f"{off:.2e} apart, and {moved:.2e} from those without")


def main():
    torch.set_num_threads(1)
    state, (images, labels) = initial(), pictures()
    steps.write_set(f"{tmp}/set", IMAGES, CLASSES, SIDE)
    steps.save_safetensors(f"{tmp}/start.safetensors", state)
    changed = ["data={train: {source: folder, path: " + f"{tmp}/set" + "}}", f"loader.batch={IMAGES}",
               "loader.augment=[]", f"device={device}", "precision=f32", "train.epochs=0", f"train.steps={STEPS}",
               "train.threads=2", "train.eval_every=never", "checkpoint.every=never", f"optimizer.sgd.lr={RATE}",
               f"params=[{{names: '*.norm?.bias', lr: {BIASES}, decay: {1 / BIASES}}}]"]
    got, weights, _ = steps.train(nnpipe, f"{tmp}/runs-{device}", config, "--weights", f"{tmp}/start.safetensors",
                                  *(word for o in changed for word in ("-o", o)))
    check(set(weights) == set(shapes()), f"its tensors have the expected names on {device}",
          f"{set(weights) ^ set(shapes())}")
    filters = torch.frombuffer(bytearray(weights["whiten.weight"]), dtype=torch.float32).double()
    wanted = whitened(images).flatten()
    off = (filters[:len(wanted)] - wanted).abs().max() / wanted.abs().max()
    check(off < 1e-5 and torch.equal(filters[:len(wanted)], -filters[len(wanted):]),
          f"whitening is that of torch.linalg.eigh on {device}", f"{off:.2e} apart")
    state["whiten.weight"] = (24, 3, 2, 2), filters.tolist()
    _, single = run_torch(state, images, labels, torch.float32)
    exact, double = run_torch(state, images, labels, torch.float64)
    steps.check_losses(got, exact, STEPS, 1e-4, f"losses of {STEPS} steps are torch's on {device}")
    steps.check_weights(weights, single, double, f"airbench94 on {device}")
    runs = f"{tmp}/runs-{device}"
    check_views(f"{runs}/{os.listdir(runs)[0]}", weights, images)
    sys.exit(1 if steps.failed else 0)


main()
