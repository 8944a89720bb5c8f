"""Compares the outputs of configs/NAME.yaml with torchvision's (vit_*: timm's) of the same random weights, which
torch.save() wrote and nnpipe reads with every name: networks_outputs.py NNPIPE NAME... prints the largest difference of
a logit (less the mean: predict prints probabilities), as a share of the largest, and fails above 1e-4."""
import json
import os
import subprocess
import sys
import tempfile

import numpy
import torch
import torchvision
from PIL import Image

MODELS = {"squeezenet": "squeezenet1_1"}  # config: torchvision's name, where they differ
CLASSES = 8  # of synthetic data, which predict needs for nothing else
DATA = "data={train: {source: synth, samples: 16, size: 224}}"


def network(name):
    if name.startswith("vit_"):
        import timm

        return timm.create_model(name + "_patch16_224", num_classes=CLASSES).eval()
    return getattr(torchvision.models, MODELS.get(name, name))(weights=None, num_classes=CLASSES).eval()


def stir(net):
    """Scales, offsets and statistics away from 1 and 0, so that leaving one out shows."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for key, tensor in net.state_dict().items():
            if key.endswith("layer_scale"):
                tensor.copy_(0.5 * torch.rand(tensor.shape, generator=generator))
            elif tensor.dtype == torch.float32 and tensor.dim() <= 3 and "head" not in key:
                tensor += 0.1 * torch.rand(tensor.shape, generator=generator)


def log_odds(p):
    logits = numpy.log(numpy.maximum(p, 1e-30))
    return logits - logits.mean()


def compare(nnpipe, name, folder):
    torch.manual_seed(3)
    net = network(name)
    stir(net)
    weights, picture = os.path.join(folder, name + ".pth"), os.path.join(folder, "picture.png")
    torch.save(net.state_dict(), weights)
    pixels = numpy.random.default_rng(5).integers(0, 256, (224, 224, 3), dtype=numpy.uint8)
    Image.fromarray(pixels).save(picture)
    options = [DATA, "loader.test_augment=[]", "loader.normalize={mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}",
               "precision=f32"]
    command = [nnpipe, "predict", f"configs/{name}.yaml", "--weights", weights, "--top", str(CLASSES), "--json",
               "--device", "cpu", *(word for option in options for word in ("-o", option)), picture]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    answer = json.loads(out.splitlines()[-1])
    found = numpy.array([top["probability"] for top in answer["top"]])  # the largest first
    with torch.no_grad():
        x = (torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255 - 0.5) / 0.5
        logits = net(x)[0].double()
    wanted = torch.softmax(logits, 0).sort(descending=True).values.numpy()
    off = numpy.abs(log_odds(found) - log_odds(wanted)).max() / numpy.abs(log_odds(wanted)).max()
    print(f"{name}: {off:.2g}")
    return off <= 1e-4 and answer["label"] == int(logits.argmax())


with tempfile.TemporaryDirectory() as folder:
    sys.exit(0 if all([compare(sys.argv[1], name, folder) for name in sys.argv[2:]]) else 1)
