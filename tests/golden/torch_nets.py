"""The networks of configs/ against torchvision's: torch_nets.py NNPIPE CONFIGS TMP [DATA [NETWORK...]]. Weights of
torchvision's initialisation go to nnpipe as safetensors; predictions, the test loss, the loss of
three training steps and the weights after them must be torch's, and nnpipe's weights must load into
torchvision's network by name. The pictures are drawn, or photographs of DATA's sample of ImageNet.
Prints one line a check, `ok - ...` or `not ok - ...`; exit 1 if one is not ok."""
import json
import math
import os
import random
import struct
import subprocess
import sys
import tarfile

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image
from torchvision import transforms

CLASSES, PER_CLASS, STEPS, LR, DECAY = 5, 2, 3, 1e-3, 0.5
NETS = {"resnet18": 11689512, "resnet50": 25557032, "alexnet": 61100840, "efficientnet_b0": 5288548,
        "mobilenet_v2": 3504872, "squeezenet": 1235496, "vgg16": 138357544}
MODELS = {"squeezenet": "squeezenet1_1"}  # torchvision's name, where it differs
DROPOUTS = {"alexnet": ["2.block.layers.0.dropout.rate", "2.block.layers.3.dropout.rate"],
            "efficientnet_b0": ["2.block.layers.0.dropout.rate",
                                *(f"0.block.layers.{i}.block.drop" for i in range(2, 8))],
            "mobilenet_v2": ["2.block.layers.0.dropout.rate"], "squeezenet": ["1.block.layers.0.dropout.rate"],
            "vgg16": ["2.block.layers.2.dropout.rate", "2.block.layers.5.dropout.rate"]}
F32 = ("-o", "precision=f32")
nnpipe, configs, tmp = sys.argv[1:4]
data = sys.argv[4] if len(sys.argv) > 4 else None
failed = False


def check(good, what, why=""):
    global failed
    failed = failed or not good
    print(f"ok - {what}" if good else f"not ok - {what}: {why}", flush=True)


def draw_pictures(folder):
    rng = np.random.default_rng(3)
    for i in range(CLASSES * PER_CLASS):
        small = rng.integers(0, 256, (6 + i, 7, 3), dtype=np.uint8)
        path = f"{folder}/c{i // PER_CLASS}"
        os.makedirs(path, exist_ok=True)
        Image.fromarray(small).resize((300 + 7 * i, 331 - 5 * i), Image.BICUBIC).save(f"{path}/{i}.png")


def take_photographs(folder, archive):
    with tarfile.open(archive) as tar:
        members = [m for m in tar if m.isfile()]
        for i, member in enumerate(random.Random(5).sample(members, CLASSES * PER_CLASS)):
            path = f"{folder}/c{i // PER_CLASS}"
            os.makedirs(path, exist_ok=True)
            with open(f"{path}/{i}.jpg", "wb") as out:
                out.write(tar.extractfile(member).read())


def save_safetensors(path, state):
    header, blob = {}, b""
    for name, tensor in state.items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        kind = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape),
                        "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + blob)


def load_safetensors(path):
    with open(path, "rb") as file:
        raw = file.read()
    at = 8 + struct.unpack("<Q", raw[:8])[0]
    kinds = {"F32": np.float32, "I64": np.int64}
    state = {}
    for name, t in json.loads(raw[8:at]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            array = np.frombuffer(raw[at + begin:at + end], kinds[t["dtype"]])
            state[name] = torch.from_numpy(array.reshape(t["shape"]).copy())
    return state


def run(*args):
    done = subprocess.run([nnpipe, *args], capture_output=True, text=True, cwd=tmp,
                          env={**os.environ, "NNPIPE_DATA": tmp})
    if done.returncode:
        raise RuntimeError(f"nnpipe {' '.join(args)}: {done.stdout[-300:]} {done.stderr[-300:]}")
    return done.stdout


def events(text, kind):
    return [e for e in map(json.loads, text.splitlines()) if e.get("event") == kind]


def read_set(folder):
    """Images as torchvision's evaluation reads them; classes are folders, sorted."""
    chain = transforms.Compose([
        transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    files = torchvision.datasets.ImageFolder(folder, chain)
    images = torch.stack([files[i][0] for i in range(len(files))])
    return [p for p, _ in files.samples], images, torch.tensor(files.targets)


def make_net(name, images):
    """torchvision's initialisation, no dropout. Batchnorms lead few numbers close to 0: a relu whose
    input is rounded to the other side of 0 changes gradients by much more than rounding does.
    MobileNetV2's lead none there: torch's own gradient of it in f64 jumps by 2e-2 between weights 2e-8
    apart otherwise, after one step. AlexNet, whose outputs would hardly differ, gets larger weights."""
    torch.manual_seed(11)
    net = getattr(torchvision.models, MODELS.get(name, name))(weights=None, num_classes=CLASSES)
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    with torch.no_grad():
        for m in net.modules():
            if isinstance(m, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
                m.p = 0.0
        for m in norms:
            m.weight.uniform_(*((0.15, 0.3) if name == "mobilenet_v2" else (0.3, 0.6)))
            m.bias.uniform_(1, 2).mul_(torch.randint(0, 4, m.bias.shape).clamp(max=1) * 2 - 1)
            m.momentum = 1.0
        for m in net.modules() if name == "alexnet" else ():
            if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear)):
                m.weight.mul_(2)
        for m in net.modules() if not norms else ():
            if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear)):
                m.bias.add_(0.1)  # away from 0, where errors have no size to be compared with
        net.train()(images)
    for m in norms:
        m.momentum = 0.1
    return net


def compare_eval(name, weights, net, paths, images, labels):
    net.eval()
    with torch.no_grad():
        logits = net(images)
    want, loss = F.log_softmax(logits.double(), 1), F.cross_entropy(logits, labels).item()
    config = f"{configs}/{name}.yaml"
    got = events(run("predict", config, *F32, "--weights", weights, "--json", *paths), "prediction")
    worst = 0.0
    for row, guess in zip(want, got):
        for item in guess["top"]:
            worst = max(worst, abs(math.log(item["probability"]) - row[int(item["class"][1:])].item()))
    spread = (want.max(1).values - want.min(1).values).max().item()
    check(len(got) == len(paths) and worst < 1e-4 * max(1, spread),
          f"{name}: predictions are torchvision's (of {spread:.1f})", f"log odds differ by {worst:.2e}")
    done = events(run("eval", config, *F32, "--weights", weights, "--json"), "done")[0]
    check(abs(done["loss"] - loss) < 1e-4 * max(1, loss) and done["images"] == len(paths),
          f"{name}: test loss {loss:.4f} is torch's", f"{done}")


def compare_training(name, weights, net, images, labels):
    options = [f"loader.batch={len(labels)}", "train.epochs=0", f"train.steps={STEPS}", "schedule=constant",
               f"optimizer.sgd.lr={LR}", f"optimizer.sgd.weight_decay={DECAY}", "train.eval_every=never",
               "checkpoint.every=never",
               "loader.augment=[{resize: {size: [256]}}, {center_crop: {size: [224]}}]", f"runs={tmp}/runs-{name}"]
    options += [f"model.{place}=0" for place in DROPOUTS.get(name, ())]
    run("train", f"{configs}/{name}.yaml", *F32, "--weights", weights, *(w for o in options for w in ("-o", o)))
    folder = f"{tmp}/runs-{name}/" + os.listdir(f"{tmp}/runs-{name}")[0]
    with open(f"{folder}/metrics.jsonl", encoding="utf-8") as file:
        got_losses = [e["loss"] for e in events(file.read(), "step")]
    got = load_safetensors(f"{folder}/checkpoints/step-{STEPS}/weights.safetensors")

    begin = {k: v.clone() for k, v in net.state_dict().items()}
    sgd = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, weight_decay=DECAY)
    net.train()
    losses = []
    for _ in range(STEPS):
        loss = F.cross_entropy(net(images), labels)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    check(len(got_losses) == STEPS and all(abs(a - b) < 1e-4 * b for a, b in zip(got_losses, losses)),
          f"{name}: losses of {STEPS} steps are torch's", f"{got_losses}, not {losses}")
    off = {}
    for key, b in net.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            error = (got[key] - b).norm()
            off[key] = (error / b.norm()).item(), (error / (b - begin[key]).norm()).item()
    of_size, of_change = (max(off, key=lambda k: off[k][i]) for i in (0, 1))
    check(off[of_size][0] < 1e-4 and off[of_change][1] < 5e-2,
          f"{name}: weights after {STEPS} steps are torch's, to {off[of_size][0]:.0e}",
          f"{of_size} is off by {off[of_size][0]:.2e} of its size, "
          f"{of_change} by {off[of_change][1]:.2e} of its change")
    return got


def compare(name, count, paths, images, labels):
    with torch.device("meta"):  # shapes alone
        full = getattr(torchvision.models, MODELS.get(name, name))(weights=None)
    shown = run("show", f"{configs}/{name}.yaml", "-o", "data.train.path=/none").splitlines()
    total = [line.split()[2] for line in shown if line.startswith("# total")]
    have = sum(p.numel() for p in full.parameters())
    check(total == [str(count)] and have == count, f"{name}: {count} parameters", f"{total}, torchvision {have}")
    net = make_net(name, images)
    weights = f"{tmp}/{name}.safetensors"
    save_safetensors(weights, net.state_dict())
    compare_eval(name, weights, net, paths, images, labels)
    got = compare_training(name, weights, net, images, labels)
    missing, extra = net.load_state_dict(got, strict=False)
    missing = [m for m in missing if not m.endswith("num_batches_tracked")]
    check(not missing and not extra, f"{name}: its weights load into torchvision's by name", f"{missing} {extra}")


def main():
    torch.set_num_threads(2)
    folder = f"{tmp}/imagenet/val"
    archive = f"{data}/imagenet-sample-500.tar"
    if data and os.path.exists(archive):
        take_photographs(folder, archive)
    else:
        draw_pictures(folder)
    os.symlink("val", f"{tmp}/imagenet/train")
    paths, images, labels = read_set(folder)
    for name, count in NETS.items():
        if len(sys.argv) > 5 and name not in sys.argv[5:]:
            continue
        compare(name, count, paths, images, labels)
    sys.exit(1 if failed else 0)


main()
