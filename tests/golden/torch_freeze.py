"""Frozen parameters, and rates of their own, against torch: torch_freeze.py MODE NNPIPE TMP GOLDEN LANES.
LANES: train.lanes; batchnorm is over all rows of the batch, as in torch, whatever they are.
MODE golden: 50 steps of each case, whose losses must be those in the file GOLDEN. live: losses and
weights must be those of the torch here, at most 3 times as far from it as its f32 is from its f64.
write: torch's losses into GOLDEN. Prints one line a check; exit 1 if one is not ok."""
import copy
import json
import random
import sys

import torch_steps as steps
from torch_steps import check

mode, nnpipe, tmp, golden, lanes = sys.argv[1:6]
SIDE, CLASSES, IMAGES, STEPS, LR = 16, 4, 8, 50, 0.05
MODEL = """
data: {train: {source: folder, path: "%s/set"}, test: {source: folder, path: "%s/set"}}
loader: {batch: 8, normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}
device: cpu
precision: f32
model:
  - conv: {name: conv1, out: 8, kernel: 3, pad: 1}
  - batchnorm: {name: bn1}
  - relu
  - maxpool: {kernel: 2, stride: 2}
  - conv: {name: conv2, out: 8, kernel: 3, pad: 1, bias: false}
  - batchnorm: {name: bn2}
  - relu
  - global_avgpool
  - linear: {name: fc, out: classes}
train: {steps: 50, threads: 2, eval_every: never, lanes: %s}
checkpoint: {every: never}
""" % (tmp, tmp, lanes)
NAMES = ["conv1", "bn1", "conv2", "bn2", "fc"]
SHAPES = {"conv1.weight": (8, 3, 3, 3), "conv1.bias": (8,), "conv2.weight": (8, 8, 3, 3), "fc.weight": (4, 8),
          "fc.bias": (4,)}
SGD = f"sgd: {{lr: {LR}, momentum: 0.9, weight_decay: 1e-3"
# name, lines of the config, and for torch: frozen prefixes, the step until which they are, do their
# batchnorms keep their statistics, (lr, decay) factors of prefixes, optimizer, clip_norm; train.sam's rho, adaptive
CASES = [
    ("nothing frozen", f"optimizer: {{{SGD}}}}}", [], 0, True, {}, "sgd", 0),
    ("the lower layers", f"optimizer: {{{SGD}}}}}\nfreeze: [conv1, bn1]", ["conv1", "bn1"], STEPS, True, {}, "sgd", 0),
    ("the lower layers, statistics of the batch",
     f"optimizer: {{{SGD}}}}}\nfreeze: {{names: [conv1, bn1], batchnorm: false}}",
     ["conv1", "bn1"], STEPS, False, {}, "sgd", 0),
    ("all batchnorms, with a gradient through them", f"optimizer: {{{SGD}}}}}\nfreeze: \"bn*\"",
     ["bn"], STEPS, True, {}, "sgd", 0),
    ("until a step, clipped", f"optimizer: {{{SGD}}}}}\nfreeze: {{names: [\"conv1*\", bn1, bn2], until: {{step: 20}}}}",
     ["conv1", "bn1", "bn2"], 20, True, {}, "sgd", 0.5),
    ("until an epoch, with Adam", "optimizer: {adam: {lr: 0.01}}\nfreeze: {names: [conv1, bn1], until: {epoch: 20}}",
     ["conv1", "bn1"], 20, True, {}, "adam", 0),
    ("a weight without its bias, clipped", f"optimizer: {{{SGD}}}}}\nfreeze: [conv1.weight, bn2.bias]",
     ["conv1.weight", "bn2.bias"], STEPS, True, {}, "sgd", 0.5),
    ("rates and decays of their own", f"optimizer: {{{SGD}}}}}\nparams: [{{names: \"conv*\", decay: 4}}, "
     "{names: fc, lr: 3, decay: 0}]", [], 0, True, {"conv": (1, 4), "fc": (3, 0)}, "sgd", 0),
    ("layer_decay, with AdamW", "optimizer: {adamw: {lr: 0.01, weight_decay: 0.1, layer_decay: 0.5}}", [], 0, True,
     {n: (0.5 ** (4 - i), 1) for i, n in enumerate(NAMES)}, "adamw", 0),
    ("SAM", f"optimizer: {{{SGD}}}}}", [], 0, True, {}, "sgd", 0, 0.1, False),
    ("ASAM until a step, clipped, with AdamW",
     "optimizer: {adamw: {lr: 0.01, weight_decay: 0.1}}\nfreeze: {names: [\"conv1*\", bn1], until: {step: 20}}",
     ["conv1", "bn1"], 20, True, {}, "adamw", 0.5, 0.5, True),
]


def initial():
    """Names with shape and values; batchnorms have seen other pictures."""
    rng, state = random.Random(7), {}
    for name, shape in SHAPES.items():
        n = 1
        for d in shape:
            n *= d
        fan = n // shape[0] if len(shape) > 1 else 8
        state[name] = shape, [rng.gauss(0, 1 / fan ** 0.5) for _ in range(n)]
    for bn in ("bn1", "bn2"):
        for what, low, high in (("weight", 0.5, 1.5), ("bias", 0.1, 0.9), ("running_mean", -0.5, 0.5),
                                ("running_var", 0.5, 1.5)):
            state[f"{bn}.{what}"] = (8,), [rng.uniform(low, high) for _ in range(8)]
    return state


def run_nnpipe(number, lines, clip, rho=0, adaptive=False):
    """Returns the losses of the steps, and the weights."""
    config = f"{tmp}/case{number}.yaml"
    with open(config, "w", encoding="utf-8") as out:
        out.write(MODEL + lines)
    return steps.train(nnpipe, f"{tmp}/runs{number}", config, "--weights", f"{tmp}/start.safetensors",
                       "-o", f"train.clip_norm={clip}",
                       *(["-o", f"train.sam={{rho: {rho}, adaptive: {str(adaptive).lower()}}}"] if rho else []))[:2]


def second_pass(net, images, labels, rho, adaptive):
    """SAM (arXiv:2010.01412), ASAM (arXiv:2102.11600): the gradient uphill. Statistics stay."""
    import torch
    ps = [p for p in net.parameters() if p.grad is not None]
    kept, buffers = [p.detach().clone() for p in ps], [b.clone() for b in net.buffers()]
    with torch.no_grad():
        norm = sum(((p * p.grad if adaptive else p.grad) ** 2).sum() for p in ps).sqrt()
        for p in ps:
            p += rho / (norm + 1e-12) * (p ** 2 * p.grad if adaptive else p.grad)
    net.zero_grad()
    torch.nn.functional.cross_entropy(net(images), labels).backward()
    with torch.no_grad():
        for now, then in zip(ps + list(net.buffers()), kept + buffers):
            now.copy_(then)


def run_torch(case, kind):
    import torch
    import torch.nn as nn

    _, _, frozen, until, keeps, factors, optimizer, clip, *sam = case
    net = nn.Sequential()
    for name, layer in (("conv1", nn.Conv2d(3, 8, 3, padding=1)), ("bn1", nn.BatchNorm2d(8)), ("r1", nn.ReLU()),
                        ("pool", nn.MaxPool2d(2)), ("conv2", nn.Conv2d(8, 8, 3, padding=1, bias=False)),
                        ("bn2", nn.BatchNorm2d(8)), ("r2", nn.ReLU()), ("gap", nn.AdaptiveAvgPool2d(1)),
                        ("flat", nn.Flatten()), ("fc", nn.Linear(8, CLASSES))):
        net.add_module(name, layer)
    state = {k: torch.tensor(v).float().reshape(s) for k, (s, v) in initial().items()}
    net.load_state_dict(state, strict=False)
    net = net.to(kind)
    images, labels = steps.read_set(IMAGES, CLASSES, SIDE, kind)
    wd = {"sgd": 1e-3, "adam": 0, "adamw": 0.1}[optimizer]
    lr = LR if optimizer == "sgd" else 0.01
    groups = []
    for name, p in net.named_parameters():
        rate, decay = next((f for n, f in factors.items() if name.startswith(n)), (1, 1))
        groups.append({"params": [p], "lr": lr * rate, "weight_decay": wd * decay})
    opt = {"sgd": lambda: torch.optim.SGD(groups, lr=lr, momentum=0.9), "adam": lambda: torch.optim.Adam(groups, lr=lr),
           "adamw": lambda: torch.optim.AdamW(groups, lr=lr)}[optimizer]()
    is_frozen = {n: any(n.startswith(f) for f in frozen) for n, _ in net.named_parameters()}
    losses = []
    for step in range(STEPS):
        net.train()
        for name, p in net.named_parameters():
            p.requires_grad = not (is_frozen[name] and step < until)
        for name, m in net.named_modules():
            if isinstance(m, nn.BatchNorm2d) and keeps and step < until and is_frozen[f"{name}.weight"] and \
                    is_frozen[f"{name}.bias"]:
                m.eval()
        opt.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        if sam:
            second_pass(net, images, labels, *sam)
        if clip:
            nn.utils.clip_grad_norm_([p for p in net.parameters() if p.grad is not None], clip)
        opt.step()
        losses.append(loss.item())
    return losses, {k: copy.deepcopy(v.detach()).double() for k, v in net.state_dict().items() if v.dim() > 0}


def compare_weights(case, got, single, double):
    """Each tensor: nnpipe's distance to torch's f32 beside torch's own error. A relu whose input is rounded
    to the other side of 0 changes a weight by more: by 1e-4 of its tensor."""
    import torch
    worst, where = 0.0, ""
    for name, exact in double.items():
        mine = torch.frombuffer(bytearray(got[name]), dtype=torch.float32).double().reshape(exact.shape)
        bound = 3 * (single[name] - exact).norm().item() + 3e-4 * exact.norm().item()
        share = (mine - single[name]).norm().item() / bound
        if share > worst:
            worst, where = share, name
    check(worst <= 1, f"{case[0]}: weights are as close to torch's f32 as that is to its f64, times 3",
          f"{where} is {worst:.1f} times as far as it may be")


def main():
    if mode != "golden":
        import torch
        torch.set_num_threads(1)
    steps.write_set(f"{tmp}/set", IMAGES, CLASSES, SIDE)
    steps.save_safetensors(f"{tmp}/start.safetensors", initial())
    stored = {}
    if mode != "write":
        with open(golden, encoding="utf-8") as file:
            stored = json.load(file)
    for number, case in enumerate(CASES):
        if mode != "golden":
            losses, single = run_torch(case, torch.float32)
            if mode == "write":
                stored[case[0]] = [float(f"{x:.6g}") for x in losses[9::10]]
                continue
            check(all(abs(a - b) < 1e-4 * max(1, b) for a, b in zip(losses[9::10], stored[case[0]])),
                  f"{case[0]}: the stored losses are those of the torch here", f"{losses[9::10]}")
        got, weights = run_nnpipe(number, case[1], *case[7:])
        if mode == "live":
            check(len(got) == STEPS and all(abs(a - b) < 1e-4 * max(1, b) for a, b in zip(got, losses)),
                  f"{case[0]}: losses of {STEPS} steps are torch's",
                  f"{max(abs(a - b) for a, b in zip(got, losses)):.2e} apart")
            compare_weights(case, weights, single, run_torch(case, torch.float64)[1])
        else:
            pairs = zip(got[9::10], stored[case[0]])
            check(len(got) == STEPS and all(abs(a - b) < 1e-3 * max(0.1, b) for a, b in pairs),
                  f"{case[0]}: losses of {STEPS} steps are torch's", f"{got[9::10]}, not {stored[case[0]]}")
    if mode == "write":
        steps.write_stored(golden, stored)
    sys.exit(1 if steps.failed else 0)


main()
