"""Makes tests/fuzz/corpus/torch, with any torch of 2.4 or later: make_torch.py FOLDER. The same three tensors in the
forms that torch.save() has, and files that are refused; tests/unit/test_torch.c loads each of them. All but `new` and
`old` have no CRC-32, so that a fuzzer's changes of a pickle are not found before it is parsed."""
import argparse
import collections
import pickle
import struct
import sys
import zipfile

import numpy
import torch

folder = sys.argv[1]
Old = {"_use_new_zipfile_serialization": False}
state = collections.OrderedDict([
    ("fc.weight", (torch.arange(6.) * 0.25 - 1).view(2, 3)), ("fc.bias", torch.tensor([1.5, -2.])),
    ("bn.running_mean", torch.tensor([0.5, 3.])), ("bn.num_batches_tracked", torch.tensor(7))])


def save(name, what, **options):
    torch.save(what, f"{folder}/{name}", **options)


def as_type(dtype):
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}


def with_prefix(prefix):
    return {prefix + k: v for k, v in state.items()}


def strided():
    """A transposed tensor, every second element of a vector, and one value that stands for two."""
    other = dict(state)
    other["fc.weight"] = state["fc.weight"].t().contiguous().t()
    other["fc.bias"] = torch.tensor([1.5, 9., -2., 9.])[::2]
    return other


def views():
    """All of one storage, with other values around them."""
    flat = torch.cat([torch.tensor([9.])] + [v.flatten() for k, v in state.items() if k != "bn.num_batches_tracked"])
    return {"fc.weight": flat[1:7].view(2, 3), "fc.bias": flat[7:9], "bn.running_mean": flat[9:]}


class Python2(pickle._Pickler):
    """As torch 0.3 on Python 2 wrote: an OrderedDict is a call with a list of pairs; tensors of one storage have views
    of it, each with an offset."""
    dispatch_table = {collections.OrderedDict: lambda d: (collections.OrderedDict, ([list(i) for i in d.items()],))}

    def reducer_override(self, value):
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        return torch._utils._rebuild_tensor, (View(value), 0, tuple(value.shape), value.stride())

    def persistent_id(self, value):
        if not isinstance(value, View):
            return None
        at = value.tensor.storage_offset()
        return "storage", torch.FloatStorage, "root", "cpu", 11, (f"view{at}", at, value.tensor.numel())


class View:
    def __init__(self, tensor):
        self.tensor = tensor


def save_python2(name, what, flat):
    with open(f"{folder}/{name}", "wb") as out:
        for first in 0x1950a86a20f9469cfc6c, 1001, {"little_endian": True}:
            pickle.dump(first, out, 2)
        Python2(out, 2).dump(collections.OrderedDict(what))
        pickle.dump(["root"], out, 2)
        out.write(struct.pack("<q", flat.numel()) + flat.numpy().tobytes())
    back = torch.load(f"{folder}/{name}", weights_only=False)
    assert all(torch.equal(back[key], value) for key, value in what.items())


def save_zip64(name, source):
    """The list of entries as a file of more than 4 GiB has it: all sizes and places are 64-bit numbers."""
    with open(f"{folder}/{source}", "rb") as file:
        raw = file.read()
    entries = zipfile.ZipFile(f"{folder}/{source}").infolist()
    none, rows = 0xffffffff, b""
    for e in entries:
        large = struct.pack("<HHQQQ", 1, 24, e.file_size, e.compress_size, e.header_offset)
        rows += struct.pack("<4s6H3I5H2I", b"PK\1\2", 45, 45, e.flag_bits, 0, 0, 0, e.CRC, none, none,
                            len(e.filename), len(large), 0, 0, 0, 0, none) + e.filename.encode() + large
    start = raw.index(b"PK\1\2")
    end = start + len(rows)
    with open(f"{folder}/{name}", "wb") as out:
        out.write(raw[:start] + rows)
        out.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, len(entries), len(entries), len(rows), start))
        out.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        out.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xffff, 0xffff, none, none, 0))
    assert torch.equal(torch.load(f"{folder}/{name}")["fc.bias"], state["fc.bias"])


class Labelled(torch.Tensor):
    pass


save("new", state)
save("old", state, **Old)
torch.serialization.set_crc32_options(False)
for protocol in 3, 4, 5:
    save(f"protocol{protocol}", state, pickle_protocol=protocol)
save("old_protocol4", state, pickle_protocol=4, **Old)
for dtype in "float16", "bfloat16", "float64":
    save(dtype, as_type(getattr(torch, dtype)))
save("float16_old", as_type(torch.float16), **Old)
save("strided", strided())
save("strided_old", strided(), **Old)
save("views", views())
save("views_old", views(), **Old)
save_zip64("zip64", "new")
save_python2("python2", views(), views()["fc.weight"]._base)
save("parameters", {k: torch.nn.Parameter(v, requires_grad=v.is_floating_point()) for k, v in state.items()})
marked = torch.nn.Parameter(state["fc.bias"])
marked.note = "an attribute"
save("attributes", {**state, "fc.bias": marked, "epoch": 3, "names": ["a", "b"], "lr": 0.1, "none": None,
                    "size": torch.Size([2]), "type": torch.float32})
save("subclass", {**state, "fc.bias": state["fc.bias"].as_subclass(Labelled)})
net = torch.nn.Linear(3, 2)
adam = torch.optim.Adam(net.parameters())
net(torch.ones(1, 3)).sum().backward()
adam.step()
save("reference", {
    "model": state, "optimizer": adam.state_dict(), "lr_scheduler": {"last_epoch": 3}, "epoch": 3,
    "args": argparse.Namespace(lr=0.1, device=torch.device("cpu")), "best": numpy.float64(0.7),
    "model_ema": {**{"module." + k: v + 1 for k, v in state.items()}, "n_averaged": torch.tensor(3)}})
save("imagenet", {"epoch": 9, "arch": "resnet18", "state_dict": with_prefix("module."), "best_acc1": torch.tensor(7.)})
save("lightning", {"state_dict": with_prefix("model._orig_mod."), "callbacks": {"a": {"best": torch.tensor(1.)}},
                   "hyper_parameters": {"lr": 0.1}})
save("nested", {"params": {"lr": 0.1}, "network": {"state_dict": state}})
save("odd_name", {"weights_of_mine": state, "small": {"fc.bias": torch.zeros(2)}})
save("contrast", {"state_dict": with_prefix("encoder_q.")})
whole = torch.nn.Sequential(collections.OrderedDict([("fc", torch.nn.Linear(3, 2)), ("bn", torch.nn.BatchNorm1d(2))]))
whole.load_state_dict({**whole.state_dict(), **state})
save("whole_model", whole)
save("whole_part", {"ema": None, "model": torch.nn.DataParallel(whole).half(), "epoch": 3})
save("whole_old", whole.float(), **Old)
save("only_fc", {"model": {k: v for k, v in state.items() if k.startswith("fc.")}})

# Refused.
save("empty", {})
save("list", [state])
save("an_object", argparse.Namespace(a=1))
save("object_inside", {**state, "fc.bias": numpy.ones(2)})
save("sparse", {**state, "fc.bias": torch.tensor([1.5, -2.]).to_sparse()})
save("quantized", {**state, "fc.bias": torch.quantize_per_tensor(state["fc.bias"], 0.1, 0, torch.qint8)})
save("float8", {**state, "fc.bias": state["fc.bias"].to(torch.float8_e4m3fn)})
save("meta", {**state, "fc.bias": torch.zeros(2, device="meta")})
torch.jit.save(torch.jit.script(torch.nn.Linear(3, 2)), f"{folder}/script")
