"""Writes tests/golden/networks/NAME.txt: names and shapes of a torchvision network's state, one a line, without
num_batches_tracked. networks.py NAME...; needs torchvision, for vit_tiny timm. Unit tests compare the networks of
configs/ with them."""
import os
import sys

import torch
import torchvision

MODELS = {"squeezenet": "squeezenet1_1"}  # config: torchvision's name, where they differ

for name in sys.argv[1:]:
    with torch.device("meta"):  # shapes alone
        if name.startswith("vit_"):
            import timm

            net = timm.create_model(name + "_patch16_224")
        else:
            net = getattr(torchvision.models, MODELS.get(name, name))(weights=None)
    with open(os.path.join(os.path.dirname(__file__), "networks", name + ".txt"), "w", encoding="utf-8") as out:
        for key, tensor in net.state_dict().items():
            if not key.endswith("num_batches_tracked"):
                print(key, *tensor.shape, file=out)
