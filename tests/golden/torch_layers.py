"""100 steps of small networks of the newer layers beside torch: torch_layers.py MODE NNPIPE TMP GOLDEN DEVICE STEPS.
A transformer (patches, a class token, two blocks of attention, gelu, layernorm) with AdamW, and convolutions with
groupnorm, silu, upsampling, blur, squeeze-and-excite, hardswish and stochastic depth at rate 0, with SGD. STEPS: 100,
or fewer.
MODE golden: the losses must be those in the file GOLDEN. live: losses and weights must be those of the torch here, the
weights at most 3 times as far from its f64 as its f32 is. write: torch's losses into GOLDEN. Prints one line a check;
exit 1 if one is not ok."""
import json
import math
import random
import sys

import torch_steps as steps
from torch_steps import check

mode, nnpipe, tmp, golden, device = sys.argv[1:6]
STEPS = int(sys.argv[6])
SIDE, CLASSES, IMAGES, DIM = 16, 4, 8, 16
STORED = [0, 1, 2, *range(9, STEPS, 10)]  # steps whose losses GOLDEN has
CONFIG = f"""
data: {{train: {{source: folder, path: "{tmp}/set"}}}}
loader: {{batch: {IMAGES}, normalize: {{mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}}}
device: {device}
precision: f32
train: {{steps: {STEPS}, threads: 2, eval_every: never}}
checkpoint: {{every: never}}
"""
TOKENS = """
model:
  - conv: {name: patch, out: 16, kernel: 4, stride: 4}
  - class_token: {name: cls_token}
  - position: {name: pos_embed}
  - block: {name: blocks, use: encoder, repeat: 2}
  - layernorm: {name: norm, eps: 1e-6}
  - first_token
  - linear: {name: head, out: classes}
blocks:
  encoder:
    - layernorm: {name: norm1, eps: 1e-6}
    - linear: {name: qkv, out: $in*3}
    - attention: {heads: 2}
    - linear: {name: proj, out: $in}
    - add: {name: mixed, from: [input, proj]}
    - layernorm: {name: norm2, eps: 1e-6}
    - linear: {name: fc1, out: $in*4}
    - gelu
    - linear: {name: fc2, out: $in}
    - add: [mixed, fc2]
optimizer: {adamw: {lr: 0.002, eps: 1e-4, weight_decay: 0.05}}
"""
CONVS = """
model:
  - conv: {name: stem, out: 16, kernel: 3, stride: 2, pad: 1, bias: false}
  - groupnorm: {name: norm1, groups: 4}
  - silu
  - upsample: {scale: 2, mode: bilinear}
  - blur: {stride: 2}
  - conv_transpose: {name: up, out: 16, kernel: 3, stride: 2, pad: 1, output_pad: 1, groups: 4}
  - adaptive_avgpool: {size: 5}
  - conv: {name: depth, out: 16, kernel: 3, pad: 1, groups: 16}
  - hardswish: {name: body}
  - global_avgpool
  - conv: {name: fc1, out: 4, kernel: 1}
  - silu
  - conv: {name: fc2, out: 16, kernel: 1}
  - sigmoid: {name: gate}
  - mul: {name: gated, from: [body, gate]}
  - conv: {name: project, out: 16, kernel: 1}
  - groupnorm: {name: norm2, groups: 2}
  - stochastic_depth: {name: kept, rate: 0}
  - add: [body, kept]
  - hardswish
  - global_avgpool
  - linear: {name: head, out: classes}
optimizer: {sgd: {lr: 0.05, momentum: 0.9, weight_decay: 1e-3}}
"""


def norm(name, channels):
    return {f"{name}.weight": (channels,), f"{name}.bias": (channels,)}


def layer(name, *shape):
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


BLOCK = {**norm("norm1", DIM), **layer("qkv", 3 * DIM, DIM), **layer("proj", DIM, DIM), **norm("norm2", DIM),
         **layer("fc1", 4 * DIM, DIM), **layer("fc2", DIM, 4 * DIM)}
CASES = {
    "a transformer": (TOKENS, {
        **layer("patch", DIM, 3, 4, 4), "cls_token": (1, 1, DIM), "pos_embed": (1, 17, DIM),
        **{f"blocks.{i}.{k}": v for i in range(2) for k, v in BLOCK.items()}, **norm("norm", DIM),
        **layer("head", CLASSES, DIM)}),
    "a network with gates and groups": (CONVS, {
        "stem.weight": (DIM, 3, 3, 3), **norm("norm1", DIM), "up.weight": (DIM, 4, 3, 3), "up.bias": (DIM,),
        **layer("depth", DIM, 1, 3, 3),
        **layer("fc1", 4, DIM, 1, 1), **layer("fc2", DIM, 4, 1, 1), **layer("project", DIM, DIM, 1, 1),
        **norm("norm2", DIM), **layer("head", CLASSES, DIM)})}


def initial(shapes):
    """name -> shape, values: normalisations and biases of 1 and 0 with noise, the others by their fan-in."""
    rng, state = random.Random(7), {}
    for name, shape in shapes.items():
        n = math.prod(shape)
        middle = 1 if "norm" in name and name.endswith("weight") else 0
        spread = 0.1 if len(shape) == 1 else 0.5 if shape[0] == 1 else (n / shape[0]) ** -0.5
        state[name] = shape, [rng.gauss(middle, spread) for _ in range(n)]
    return state


def transformer(p, x):
    import torch
    import torch.nn.functional as F

    def linear(name, x):
        return F.linear(x, p[name + ".weight"], p[name + ".bias"])

    def normal(name, x):
        return F.layer_norm(x, [DIM], p[name + ".weight"], p[name + ".bias"], 1e-6)

    x = F.conv2d(x, p["patch.weight"], p["patch.bias"], stride=4).flatten(2).transpose(1, 2)
    x = torch.cat([p["cls_token"].expand(len(x), -1, -1), x], 1) + p["pos_embed"]
    for i in range(2):
        at = f"blocks.{i}."
        q, k, v = linear(at + "qkv", normal(at + "norm1", x)).reshape(len(x), 17, 3, 2, DIM // 2).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + linear(at + "proj", y)
        x = x + linear(at + "fc2", F.gelu(linear(at + "fc1", normal(at + "norm2", x))))
    return linear("head", normal("norm", x)[:, 0])


def convolutions(p, x):
    import torch
    import torch.nn.functional as F

    def conv(name, x, **more):
        return F.conv2d(x, p[name + ".weight"], p.get(name + ".bias"), **more)

    x = F.silu(F.group_norm(conv("stem", x, stride=2, padding=1), 4, p["norm1.weight"], p["norm1.bias"]))
    x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
    tap = torch.tensor([1.0, 2, 1], dtype=x.dtype) / 4
    x = F.conv2d(x, torch.outer(tap, tap).expand(DIM, 1, 3, 3), stride=2, padding=1, groups=DIM)
    x = F.conv_transpose2d(x, p["up.weight"], p["up.bias"], stride=2, padding=1, output_padding=1, groups=4)
    x = F.adaptive_avg_pool2d(x, 5)
    x = F.hardswish(conv("depth", x, padding=1, groups=DIM))
    gate = torch.sigmoid(conv("fc2", F.silu(conv("fc1", x.mean((2, 3), keepdim=True)))))
    y = F.group_norm(conv("project", x * gate), 2, p["norm2.weight"], p["norm2.bias"])
    return F.linear(F.hardswish(x + y).mean((2, 3)), p["head.weight"], p["head.bias"])


def run_torch(name, shapes, kind):
    import torch

    net, make = {
        "a transformer": (transformer, lambda p: torch.optim.AdamW(p, 0.002, eps=1e-4, weight_decay=0.05)),
        "a network with gates and groups": (
            convolutions, lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=1e-3))}[name]
    params = {k: torch.tensor(v).reshape(s).to(kind).requires_grad_() for k, (s, v) in initial(shapes).items()}
    images, labels = steps.read_set(IMAGES, CLASSES, SIDE, kind)
    optimizer, losses = make(params.values()), []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(net(params, images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {k: v.detach().double() for k, v in params.items()}


def compare(name, model, shapes, stored):
    if mode != "golden":
        import torch
        torch.set_num_threads(1)
        losses, single = run_torch(name, shapes, torch.float32)
        if mode == "write":
            stored[name] = [float(f"{x:.6g}") for x in map(losses.__getitem__, STORED)]
            return
        steps.check_losses([losses[i] for i in STORED], stored[name], len(STORED), 1e-4,
                           f"{name}: the stored losses are those of the torch here")
    config, start = f"{tmp}/{name.split()[1]}.yaml", f"{tmp}/{name.split()[1]}.safetensors"
    with open(config, "w", encoding="utf-8") as out:
        out.write(CONFIG + model)
    steps.save_safetensors(start, initial(shapes))
    got, weights, _ = steps.train(nnpipe, f"{config}.runs", config, "--weights", start)
    check(set(weights) == set(shapes), f"{name}: its tensors have torch's names on {device}",
          f"{set(weights) ^ set(shapes)}")
    if mode == "golden":
        steps.check_losses([got[i] for i in STORED], stored[name], len(STORED), 1e-4,
                           f"{name}: losses of {STEPS} steps are torch's on {device}")
    else:
        steps.check_losses(got, losses, STEPS, 1e-4, f"{name}: losses of {STEPS} steps are torch's")
        steps.check_weights(weights, single, run_torch(name, shapes, torch.float64)[1], name)


def main():
    stored = {}
    if mode != "write":
        with open(golden, encoding="utf-8") as file:
            stored = json.load(file)
    steps.write_set(f"{tmp}/set", IMAGES, CLASSES, SIDE)
    for name, (model, shapes) in CASES.items():
        compare(name, model, shapes, stored)
    if mode == "write":
        steps.write_stored(golden, stored)
    sys.exit(1 if steps.failed else 0)


main()
