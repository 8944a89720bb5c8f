"""torch_weights.py NNPIPE CONFIG TMP: saves torchvision's ResNet-18 in each form that torch.save() has; nnpipe's
predictions with such a file must be, digit for digit, those with a safetensors file of what torch.load() reads from it,
and torch's to 1e-4. Prints one line a check, `ok - ...` or `not ok - ...`; exit 1 if one is not ok."""
import argparse
import json
import math
import os
import struct
import subprocess
import sys

import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision import transforms

CLASSES = 5
nnpipe, config, tmp = sys.argv[1:4]
failed = False


def check(good, what, why=""):
    global failed
    failed = failed or not good
    print(f"ok - {what}" if good else f"not ok - {what}: {why}", flush=True)


def save_safetensors(path, state):
    header, blob = {}, b""
    for name, tensor in state.items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "I64" if tensor.dtype == torch.int64 else "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + blob)


def predict(weights, picture):
    done = subprocess.run([nnpipe, "predict", config, "--weights", weights, "--json", "--top", str(CLASSES), "-o",
                           "precision=f32", picture],
                          capture_output=True, text=True, cwd=tmp, env={**os.environ, "NNPIPE_DATA": tmp})
    lines = [line for line in done.stdout.splitlines() if '"event": "prediction"' in line]
    return lines[0] if done.returncode == 0 and lines else done.stderr[-300:]


def forms(net):
    """name -> what is saved, options of torch.save(), the part that nnpipe shall find"""
    state, old = net.state_dict(), {"_use_new_zipfile_serialization": False}
    flat = torch.cat([v.flatten().float() for v in state.values()])
    views, at = {}, 0
    for key, value in state.items():
        views[key] = flat[at:at + value.numel()].view(value.shape)
        at += value.numel()
    last = {k: v.to(memory_format=torch.channels_last) if v.dim() == 4 else v for k, v in state.items()}
    yield "state dict", state, {}, ""
    yield "state dict, before 1.6", state, old, ""
    for protocol in 3, 4, 5:
        yield f"protocol {protocol}", state, {"pickle_protocol": protocol}, ""
    yield "protocol 5, before 1.6", state, {"pickle_protocol": 5, **old}, ""
    for dtype in torch.float64, torch.float16, torch.bfloat16:
        yield f"{dtype}", {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}, {}, ""
    yield "channels last", last, {}, ""
    yield "channels last, before 1.6", last, old, ""
    yield "views of one storage", views, {}, ""
    yield "views of one storage, before 1.6", views, old, ""
    yield "module.", {"state_dict": {"module." + k: v for k, v in state.items()}, "best": torch.tensor(1.)}, {}, \
        "state_dict"
    yield "a whole module", net, {}, "state_dict()"
    yield "a whole module, before 1.6", net, old, "state_dict()"
    adam = torch.optim.AdamW(net.parameters())
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    adam.step()
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    whole = {"model": state, "optimizer": adam.state_dict(), "args": argparse.Namespace(lr=0.1), "epoch": 3,
             "model_ema": average.state_dict(), "best": np.float64(0.5)}
    yield "torchvision's reference", whole, {}, "model"
    yield "torchvision's reference, before 1.6", whole, old, "model"


def compare(net, picture):
    for i, (name, saved, options, part) in enumerate(forms(net)):
        path, reference = f"{tmp}/{i}.pth", f"{tmp}/{i}.safetensors"
        torch.save(saved, path, **options)
        state = torch.load(path, weights_only=False)
        state = state.state_dict() if part == "state_dict()" else state[part] if part else state
        save_safetensors(reference, {k.removeprefix("module."): v.float() if v.is_floating_point() else v
                                     for k, v in state.items()})
        got, want = predict(path, picture), predict(reference, picture)
        check(got == want and "prediction" in want, f"{name}: the weights are torch's", f"{got}, not {want}")
        if i == 0:
            chain = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(),
                                        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
            net.eval()
            with torch.no_grad():
                logs = torch.log_softmax(net(chain(Image.open(picture))[None]).double(), 1)[0]
            top = {int(t["class"][1:]): math.log(t["probability"]) for t in json.loads(got)["top"]}
            off = max(abs(log - logs[i].item()) for i, log in top.items())
            check(off < 1e-4, "predictions are torch's", f"log odds differ by {off:.2e}")
        os.remove(path)
        os.remove(reference)


def main():
    torch.manual_seed(5)
    rng = np.random.default_rng(3)
    for i in range(CLASSES):
        os.makedirs(f"{tmp}/imagenet/train/c{i}")
        Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)).resize((300, 331), Image.BICUBIC).save(
            f"{tmp}/imagenet/train/c{i}/{i}.png")
    os.symlink("train", f"{tmp}/imagenet/val")
    net = torchvision.models.resnet18(weights=None, num_classes=CLASSES)
    with torch.no_grad():
        net(torch.randn(8, 3, 64, 64))  # running means
    compare(net, f"{tmp}/imagenet/train/c0/0.png")
    sys.exit(1 if failed else 0)


main()
