"""Fine-tuning beside torch: torch_finetune.py NNPIPE CONFIG TMP ARCHIVE. torchvision's ResNet-18, trained for two
epochs on ten classes in torch and saved by torch.save(), then 50 steps on eight others by nnpipe, by torch and by torch
in f64: with nothing frozen, with the lower half, with all but the last layer. ARCHIVE: a tar of photographs in folders.
Prints one line a check; exit 1 if one is not ok."""
import os
import sys
import tarfile

import torch
import torch.nn.functional as F
import torch_steps as steps
import torchvision
from PIL import Image
from torch_steps import check
from torchvision.transforms.functional import normalize, to_tensor

nnpipe, config, tmp, archive = sys.argv[1:5]
SIDE, PER_CLASS, FIRST, SECOND, STEPS, LR, DECAY = 96, 4, 10, 8, 50, 1e-4, 1e-4
LOWER = ["conv1", "bn1", "layer1", "layer2"]
UPPER = ["layer3", "layer4"]
CASES = [  # what is frozen, and the rows of the table of weights
    ("nothing frozen", [], ["conv1 to layer4 loaded 100 tensors, 11186112 values"]),
    ("the lower half frozen", LOWER, ["conv1 to layer2 loaded 50 tensors, 684992 values, 30 frozen",
                                      "layer3, layer4 loaded 50 tensors, 10501120 values"]),
    ("all but fc frozen", LOWER + UPPER, ["conv1 to layer4 loaded 100 tensors, 11186112 values, 60 frozen"])]
FRESH = f"fc fresh weight is {FIRST}x512 in the file, {SECOND}x512 here; bias is {FIRST} in the file, {SECOND} here"


def take_photographs():
    """Four photographs a class, at the size that both programs train with, as PNG."""
    with tarfile.open(archive) as tar:
        members = sorted((m for m in tar if m.isfile()), key=lambda m: m.name)[:(FIRST + SECOND) * PER_CLASS]
        for i, member in enumerate(members):
            number = i // PER_CLASS
            folder = f"{tmp}/first/c{number}" if number < FIRST else f"{tmp}/second/c{number - FIRST}"
            os.makedirs(folder, exist_ok=True)
            picture = Image.open(tar.extractfile(member)).convert("RGB")
            picture.resize((SIDE, SIDE), Image.BILINEAR).save(f"{folder}/{i}.png")


def read_set(folder):
    files = torchvision.datasets.ImageFolder(
        folder, lambda picture: normalize(to_tensor(picture), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    return torch.stack([files[i][0] for i in range(len(files))]), torch.tensor(files.targets)


def train_first():
    """Two epochs of five steps, whose result torch.save() writes."""
    images, labels = read_set(f"{tmp}/first")
    torch.manual_seed(5)
    net = torchvision.models.resnet18(num_classes=FIRST)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.5  # ten steps are few: statistics of the first would stay
    sgd = torch.optim.SGD(net.parameters(), lr=0.005, momentum=0.9, weight_decay=DECAY)
    for _ in range(2):
        for rows in torch.randperm(len(labels)).split(8):
            loss = F.cross_entropy(net(images[rows]), labels[rows])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
    torch.save(net.state_dict(), f"{tmp}/first.pth")


def run_nnpipe(name, frozen, *more):
    options = [f"data.train.path={tmp}/second", f"data.test.path={tmp}/second", "device=cpu", "precision=f32",
               "loader.batch=32", "loader.augment=[]", "loader.test_augment=[]", "train.epochs=0",
               f"train.steps={STEPS}", "train.threads=2", "train.eval_every=never", "checkpoint.every=never",
               "schedule=constant", f"optimizer.sgd.lr={LR}", f"optimizer.sgd.weight_decay={DECAY}",
               f"freeze=[{', '.join(frozen)}]", *more]
    return steps.train(nnpipe, f"{tmp}/runs-{name}", config, "--weights", f"{tmp}/first.pth",
                       *(word for option in options for word in ("-o", option)))


def as_tensor(raw):
    return torch.frombuffer(bytearray(raw), dtype=torch.float32)


def run_torch(frozen, head, kind):
    images, labels = read_set(f"{tmp}/second")
    net = torchvision.models.resnet18(num_classes=SECOND)
    state = torch.load(f"{tmp}/first.pth")
    for name in ("fc.weight", "fc.bias"):
        state[name] = as_tensor(head[name]).reshape(net.state_dict()[name].shape)
    net.load_state_dict(state)
    net, images = net.to(kind), images.to(kind)
    net.train()
    for name, module in net.named_children():
        if name in frozen:
            module.requires_grad_(False).eval()
    sgd = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=LR, momentum=0.9, weight_decay=DECAY)
    losses = []
    for _ in range(STEPS):
        loss = F.cross_entropy(net(images), labels)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    return losses, {k: v.detach().double() for k, v in net.state_dict().items() if v.dim() > 0}


def compare(case, head):
    what, frozen, rows = case
    got_losses, got, said = run_nnpipe(what.replace(" ", "-"), frozen)
    table = [" ".join(line.split()) for line in said.splitlines() if line.startswith("  ")]
    check(table == [*rows, FRESH], f"{what}: the table names what is loaded, fresh and frozen", f"{table}")
    losses, single = run_torch(frozen, head, torch.float32)
    exact, double = run_torch(frozen, head, torch.float64)
    # Rounding grows from step to step: torch's own f32 may be further than 1e-4 from its f64.
    own = max(abs(a - b) for a, b in zip(losses, exact))
    steps.check_losses(got_losses, exact, STEPS, max(1e-4, 3 * own),
                       f"{what}: losses of {STEPS} steps are torch's in f64, from which its f32 is {own:.1e}")
    steps.check_weights(got, single, double, what)
    first = torch.load(f"{tmp}/first.pth")
    same = {k for k in first if k in got and torch.equal(as_tensor(got[k]), first[k].flatten())}
    stays = {k for k in got if k.split(".")[0] in frozen}
    check(same == stays, f"{what}: {len(stays)} tensors keep their bits, and no others", f"{same ^ stays}")


def main():
    torch.set_num_threads(2)
    take_photographs()
    train_first()
    # the fresh layer's values, as a run without a learning rate leaves them
    head = run_nnpipe("head", [], "train.steps=1", "optimizer.sgd.lr=0")[1]
    for case in CASES:
        compare(case, head)
    sys.exit(1 if steps.failed else 0)


main()
