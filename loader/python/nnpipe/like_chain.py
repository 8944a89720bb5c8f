"""The transforms of a torchvision dataset as a recipe for nnpipe: a chain of geometry, and the value of each pixel.

Geometry (crops, resizes, flips) becomes the list `loader.augment` of a config. All else works on each value alone
(ToTensor, ToDtype, Normalize ...): it is run once, on a picture that has all 256 values, which gives a table. So
rounding is as torchvision's, whatever its version does.
"""

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FunctionType

import PIL.Image
import torch
from torch.utils.data import default_collate
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms._presets import ImageClassification

from .like_refuse import Unsupported

DTYPES = {
    torch.uint8: "uint8",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}


@dataclass
class Recipe:
    """What nnpipe does for a chain of transforms."""

    ops: list = field(default_factory=list)  # of loader.augment
    size: tuple = None  # of the result: (height, width); None: as the pictures
    random: bool = False
    version: int = 1  # of transforms whose draws differ between transforms and transforms.v2
    dtype: torch.dtype = None
    values: torch.Tensor = None  # float32 (3, 256); None: uint8 as decoded
    contiguous: dict = None  # by the number of rows (1, 2): are torch's batches dense, as ours are?

    def is_like(self, other):
        if (self.ops, self.version, self.dtype) != (other.ops, other.version, other.dtype):
            return False
        return self.values is None or torch.equal(self.values, other.values)


class _Reader:
    """Reads a chain from left to right."""

    def __init__(self, size):
        self.recipe = Recipe(size=size)
        self.known = []  # transforms that were read
        self.values = []  # those that work on each value alone
        self.is_tensor = self.is_normalized = self.is_resized = False
        self.has_border = self.is_mirrored = False
        self.erasings = []  # (transform, its options, number of value transforms before it)
        self.version_of = None  # the transform that the recipe has the version of

    def refuse(self, transform, why):
        name = _name(transform)
        if self.known:
            before = "The transforms before it (" + ", ".join(_name(t) for t in self.known) + ") nnpipe can do; "
        else:
            before = ""
        raise Unsupported(
            f"nnpipe.like(): {name}: {why}. {before}{name} could stay in Python: take it out of the dataset's "
            "transforms, and apply it to each image of a batch in the training loop (applied to the whole batch, a "
            "random one draws once for all images): torch.stack([transform(image) for image in images])."
        )

    def read(self, transform):
        handler = HANDLERS.get(type(transform))
        if handler is None:
            self.refuse(transform, "this transform is not one of nnpipe's")
        handler(self, transform)
        if handler not in (_compose, _preset):
            self.known.append(transform)

    def resizes(self, transform):
        name = type(transform).__name__
        if self.is_tensor:
            self.refuse(transform, f"a tensor is resized in another way than a picture: put {name} before ToTensor, "
                        "PILToTensor or ToImage")
        if self.is_resized:
            self.refuse(transform, "nnpipe resizes a picture once")
        if self.has_border:
            self.refuse(transform, "a crop before it may have a border, which nnpipe would not resize: put the "
                        "resize first")
        self.is_resized = True
        return _filter(self, transform)

    def draws_as(self, transform):
        """transform draws in its version's way, as all others of the chain must."""
        version = 2 if type(transform).__module__.startswith("torchvision.transforms.v2") else 1
        if self.version_of is not None and self.recipe.version != version:
            self.refuse(transform, f"the chain also has {_name(self.version_of)}, and transforms and transforms.v2 "
                        "draw differently")
        self.version_of = transform
        self.recipe.version = version

    def touches(self, transform):
        """An operation on pixels, behind which geometry begins anew."""
        if self.is_tensor:
            name = type(transform).__name__
            self.refuse(transform, f"a tensor is rounded in another way than a picture: put {name} before ToTensor, "
                        "PILToTensor or ToImage")
        self.recipe.random = True
        self.is_resized = self.has_border = self.is_mirrored = False

    def borders(self, transform, reflect=False):
        """A crop that may exceed the picture."""
        if self.is_normalized:
            self.refuse(transform, "a border behind Normalize is not 0: put the crop before it")
        if self.has_border and (reflect or self.is_mirrored):
            self.refuse(transform, "a crop before it may have a border, too, and beside a mirrored border nnpipe makes "
                        "no other")
        self.has_border = True
        self.is_mirrored = reflect


def _name(transform):
    """transforms.Resize, v2.Resize; the full name of what is not torchvision's."""
    if isinstance(transform, FunctionType):
        return f"{transform.__module__}.{transform.__qualname__}()"
    module = type(transform).__module__
    name = getattr(type(transform), "__name__", str(type(transform)))
    if module.startswith("torchvision.transforms.v2"):
        return f"v2.{name}"
    if module.startswith("torchvision."):
        return f"transforms.{name}"
    return f"{module}.{name}"


def _filter(reader, transform):
    mode = transform.interpolation
    mode = getattr(mode, "value", mode)
    mode = {0: "nearest", 2: "bilinear", 3: "bicubic"}.get(mode, mode)
    if mode not in ("nearest", "bilinear", "bicubic"):
        reader.refuse(transform, f"interpolation {mode} is not one of nearest, bilinear and bicubic")
    return mode


def _pair(size):
    if isinstance(size, numbers.Integral):
        return int(size), int(size)
    return int(size[0]), int(size[-1])


# --- geometry ---------------------------------------------------------------------------------------------------------


def _resize(reader, t):
    size = t.size
    if t.max_size is not None or size is None:
        reader.refuse(t, "max_size is not supported")
    mode = reader.resizes(t)
    recipe = reader.recipe
    if isinstance(size, Sequence) and len(size) == 2:
        recipe.ops.append({"resize": {"size": [int(size[0]), int(size[1])], "filter": mode}})
        recipe.size = _pair(size)
        return
    side = int(size if isinstance(size, numbers.Integral) else size[0])
    if recipe.size:
        height, width = recipe.size
        recipe.size = (int(side * height / width), side) if width <= height else (side, int(side * width / height))
    recipe.ops.append({"resize": {"size": list(recipe.size or [side]), "filter": mode}})


def _center_crop(reader, t):
    height, width = _pair(t.size)
    size = reader.recipe.size
    if not size or size[0] < height or size[1] < width:
        reader.borders(t)
    reader.recipe.ops.append({"center_crop": {"size": [height, width]}})
    reader.recipe.size = (height, width)


def _padding(reader, t):
    """Pixels of border on every side."""
    padding = t.padding
    if padding is None:
        return 0
    if isinstance(padding, numbers.Integral):
        return int(padding)
    if len(set(padding)) != 1:
        reader.refuse(t, f"padding {tuple(padding)} is not the same on all sides")
    return int(padding[0])


def _random_crop(reader, t):
    height, width = _pair(t.size)
    pad = _padding(reader, t)
    fill = t.fill if isinstance(t.fill, (tuple, list)) else [t.fill]
    if t.pad_if_needed:
        reader.refuse(t, "pad_if_needed is not supported")
    reader.draws_as(t)
    if pad:
        if t.padding_mode not in ("constant", "reflect"):
            reader.refuse(t, f"padding_mode {t.padding_mode!r} is not one of constant and reflect")
        if t.padding_mode == "constant" and any(not isinstance(f, numbers.Number) or f != 0 for f in fill):
            reader.refuse(t, f"fill {t.fill!r} is not 0")
        reader.borders(t, reflect=t.padding_mode == "reflect")
    if pad >= min(height, width):
        reader.refuse(t, "the padding is as large as the crop")
    border = "reflect" if pad and t.padding_mode == "reflect" else "zero"
    reader.recipe.ops.append({"random_crop": {"height": height, "width": width, "pad": pad, "border": border}})
    reader.recipe.random = True
    reader.recipe.size = (height, width)


def _random_resized_crop(reader, t):
    mode = reader.resizes(t)
    height, width = _pair(t.size)
    if not (0 < t.scale[0] <= t.scale[1] <= 1 and 0 < t.ratio[0] <= t.ratio[1]):
        reader.refuse(t, f"scale {tuple(t.scale)} is not within 0 and 1, or ratio {tuple(t.ratio)} is not in order")
    reader.recipe.ops.append({
        "random_resized_crop": {
            "size": [height, width],
            "scale": [float(s) for s in t.scale],
            "ratio": [float(r) for r in t.ratio],
            "filter": mode,
        }
    })
    reader.recipe.random = True
    reader.recipe.size = (height, width)


def _flip(reader, t):
    reader.recipe.ops.append({"flip": {"p": float(t.p)}})
    reader.recipe.random = True


# --- pixels -----------------------------------------------------------------------------------------------------------


def _vertical_flip(reader, t):
    if not reader.is_tensor:
        reader.touches(t)
    reader.recipe.ops.append({"vertical_flip": {"p": float(t.p)}})
    reader.recipe.random = True


def _color_jitter(reader, t):
    reader.touches(t)
    centres = {"brightness": 1, "contrast": 1, "saturation": 1, "hue": 0}
    ranges = {name: [float(v) for v in getattr(t, name) or (centre, centre)] for name, centre in centres.items()}
    reader.recipe.ops.append({"color_jitter": ranges})


def _look(reader, t):
    """filter and fill of an affine map."""
    fill = t.fill if isinstance(t.fill, (tuple, list)) else [t.fill or 0]
    if not all(isinstance(f, numbers.Number) and 0 <= f <= 255 for f in fill) or len(fill) not in (1, 3):
        reader.refuse(t, f"fill {t.fill!r} is not a pixel's value")
    mode = _filter(reader, t)
    if mode == "bicubic":
        reader.refuse(t, "interpolation bicubic is not one of nearest and bilinear")
    return {"filter": mode, "fill": [int(f) for f in fill]}


def _rotation(reader, t):
    reader.touches(t)
    if t.expand or t.center is not None:
        reader.refuse(t, "expand and center are not supported")
    reader.recipe.ops.append({"rotation": {"degrees": [float(d) for d in t.degrees], **_look(reader, t)}})


def _affine(reader, t):
    reader.touches(t)
    reader.draws_as(t)
    args = {"degrees": [float(d) for d in t.degrees], **_look(reader, t)}
    if t.center is not None:
        reader.refuse(t, "center is not supported")
    for name, nothing in (("translate", [0, 0]), ("scale", [1, 1]), ("shear", None)):
        value = getattr(t, name)
        if value is not None:
            args[name] = [float(v) for v in value]
            if args[name] == nothing or not any(args[name]):
                reader.refuse(t, f"{name} {tuple(value)} changes nothing: leave it out")
    reader.recipe.ops.append({"affine": args})


def _automatic(name, **options):
    """The handler of an automatic policy; options: attribute of the transform by ours."""

    def handler(reader, t):
        reader.touches(t)
        reader.draws_as(t)
        args = {ours: getattr(t, theirs) for ours, theirs in options.items()}
        if "policy" in args:
            args["policy"] = args["policy"].value
        reader.recipe.ops.append({name: {**args, **_look(reader, t)}})

    return handler


_rand_augment = _automatic("rand_augment", ops="num_ops", magnitude="magnitude", bins="num_magnitude_bins")
_trivial_augment = _automatic("trivial_augment", bins="num_magnitude_bins")
_auto_augment = _automatic("auto_augment", policy="policy")


def _gaussian_blur(reader, t):
    """Within one level of torchvision, whose sums depend on the CPU."""
    reader.touches(t)
    width, height = _pair(t.kernel_size)
    reader.recipe.ops.append({"gaussian_blur": {"kernel": [height, width], "sigma": [float(s) for s in t.sigma]}})


def _random_erasing(reader, t):
    """Its value is found when the table of values is known: _erase()."""
    if not reader.is_tensor:
        reader.refuse(t, "torchvision erases tensors only: it must stand behind ToTensor or ToImage")
    if t.value is None or isinstance(t.value, str):
        reader.refuse(t, "random values are not supported")
    if not (0 < t.scale[0] <= t.scale[1] <= 1 and 0 < t.ratio[0] <= t.ratio[1]):
        reader.refuse(t, f"scale {tuple(t.scale)} is not within 0 and 1, or ratio {tuple(t.ratio)} is not in order")
    args = {"p": float(t.p), "scale": [float(s) for s in t.scale], "ratio": [float(r) for r in t.ratio]}
    reader.recipe.ops.append({"random_erasing": args})
    reader.recipe.random = True
    reader.is_resized = reader.has_border = reader.is_mirrored = False
    reader.erasings.append((t, args, len(reader.values)))


def _share(name, **options):
    """The handler of a transform with p; options: attribute of the transform by ours."""

    def handler(reader, t):
        reader.touches(t)
        args = {ours: getattr(t, theirs) for ours, theirs in options.items()}
        reader.recipe.ops.append({name: {**args, "p": float(t.p)}})

    return handler


def _random_apply(reader, t):
    inner = list(t.transforms)
    if len(inner) != 1 or HANDLERS.get(type(inner[0])) not in WITH_P or not t.p < 1:
        reader.refuse(t, "nnpipe has it for one ColorJitter, GaussianBlur, RandomRotation or RandomAffine, with p "
                      "below 1")
    reader.draws_as(t)
    reader.read(inner[0])
    next(iter(reader.recipe.ops[-1].values()))["p"] = float(t.p)


WITH_P = (_color_jitter, _rotation, _affine, _gaussian_blur)  # operations that draw for p only if it is given


# --- values and containers --------------------------------------------------------------------------------------------


def _to_tensor(reader, t):
    reader.is_tensor = True
    reader.values.append(t)


def _value(reader, t):
    reader.values.append(t)


def _normalize(reader, t):
    if not reader.is_tensor:
        reader.refuse(t, "torchvision normalizes tensors only: it must stand behind ToTensor or ToDtype")
    reader.is_normalized = True
    reader.values.append(t)


def _compose(reader, t):
    for part in t.transforms if hasattr(t, "transforms") else t:
        reader.read(part)


def _preset(reader, t):
    """What torchvision.models.ResNet18_Weights.DEFAULT.transforms() and the others give."""
    for part in (
        v1.Resize(t.resize_size, t.interpolation, antialias=t.antialias),
        v1.CenterCrop(t.crop_size),
        v1.PILToTensor(),
        v1.ConvertImageDtype(torch.float),
        v1.Normalize(t.mean, t.std),
    ):
        reader.read(part)


HANDLERS = {
    v1.Compose: _compose,
    v2.Compose: _compose,
    torch.nn.Sequential: _compose,
    ImageClassification: _preset,
    v1.Resize: _resize,
    v2.Resize: _resize,
    v1.CenterCrop: _center_crop,
    v2.CenterCrop: _center_crop,
    v1.RandomCrop: _random_crop,
    v2.RandomCrop: _random_crop,
    v1.RandomResizedCrop: _random_resized_crop,
    v2.RandomResizedCrop: _random_resized_crop,
    v1.RandomHorizontalFlip: _flip,
    v2.RandomHorizontalFlip: _flip,
    v1.RandomVerticalFlip: _vertical_flip,
    v2.RandomVerticalFlip: _vertical_flip,
    v1.ColorJitter: _color_jitter,
    v2.ColorJitter: _color_jitter,
    v1.RandomRotation: _rotation,
    v2.RandomRotation: _rotation,
    v1.RandomAffine: _affine,
    v2.RandomAffine: _affine,
    v1.RandAugment: _rand_augment,
    v2.RandAugment: _rand_augment,
    v1.TrivialAugmentWide: _trivial_augment,
    v2.TrivialAugmentWide: _trivial_augment,
    v1.AutoAugment: _auto_augment,
    v2.AutoAugment: _auto_augment,
    v1.GaussianBlur: _gaussian_blur,
    v2.GaussianBlur: _gaussian_blur,
    v1.RandomErasing: _random_erasing,
    v2.RandomErasing: _random_erasing,
    v1.RandomApply: _random_apply,
    v2.RandomApply: _random_apply,
    v1.RandomGrayscale: _share("grayscale"),
    v2.RandomGrayscale: _share("grayscale"),
    v1.RandomSolarize: _share("solarize", threshold="threshold"),
    v2.RandomSolarize: _share("solarize", threshold="threshold"),
    v1.RandomPosterize: _share("posterize", bits="bits"),
    v2.RandomPosterize: _share("posterize", bits="bits"),
    v1.RandomEqualize: _share("equalize"),
    v2.RandomEqualize: _share("equalize"),
    v1.RandomAutocontrast: _share("autocontrast"),
    v2.RandomAutocontrast: _share("autocontrast"),
    v1.RandomAdjustSharpness: _share("sharpness", factor="sharpness_factor"),
    v2.RandomAdjustSharpness: _share("sharpness", factor="sharpness_factor"),
    v1.RandomInvert: _share("invert"),
    v2.RandomInvert: _share("invert"),
    v1.ToTensor: _to_tensor,
    v2.ToTensor: _to_tensor,
    v1.PILToTensor: _to_tensor,
    v2.PILToTensor: _to_tensor,
    v2.ToImage: _to_tensor,
    v2.ToPureTensor: _value,
    v2.ToDtype: _value,
    v1.ConvertImageDtype: _value,
    v2.ConvertImageDtype: _value,
    v1.Normalize: _normalize,
    v2.Normalize: _normalize,
    v2.Identity: _value,
}


# --- what torchvision does with values --------------------------------------------------------------------------------


def _run(transforms, picture):
    for t in transforms:
        picture = t(picture)
    return picture


def _all_values():
    """A picture whose pixels have all 256 values, the same in each channel: (16, 16), RGB."""
    grey = PIL.Image.frombytes("L", (16, 16), bytes(range(256)))
    return PIL.Image.merge("RGB", (grey, grey, grey))


def _probe(recipe, transforms):
    """Runs the transforms of values, as torch would, for the table and for what a batch is."""
    result = _run(transforms, _all_values())
    if not isinstance(result, torch.Tensor):
        raise Unsupported("nnpipe.like(): the transforms give no tensor: add ToTensor, PILToTensor or ToImage")
    if result.dtype not in DTYPES:
        names = ", ".join(str(d) for d in DTYPES)
        raise Unsupported(f"nnpipe.like(): the transforms give {result.dtype}, which is not one of {names}")
    recipe.dtype = result.dtype
    table = result.reshape(3, 256).to(torch.float32)
    if result.dtype != torch.uint8:
        recipe.values = table.contiguous()
    elif not torch.equal(table, torch.arange(256.0).expand(3, 256)):
        raise Unsupported("nnpipe.like(): the transforms change the values of uint8 pixels")
    recipe.contiguous = {}
    for rows in (1, 2):
        samples = [_run(transforms, PIL.Image.new("RGB", (7, 5))) for _ in range(rows)]
        batch = default_collate(samples)
        if type(batch) is not torch.Tensor:
            raise Unsupported(f"nnpipe.like(): this torch collates samples to {type(batch).__name__}, not Tensor")
        recipe.contiguous[rows] = batch.is_contiguous()


def _erase(reader, transform, args, at):
    """Finds the pixel's value from which the transforms of values make what the erased box becomes, or, behind
    Normalize, where none does, the nearest to it: within half a level."""
    values = reader.values
    box = _run(values[:at], _all_values())[:, :1, :1].clone()
    value = transform.value if isinstance(transform.value, (tuple, list)) else [transform.value]
    box[:] = torch.tensor([float(v) for v in value])[:, None, None]
    wanted = _run(values[at:], box).reshape(3, 1)
    table = _run(values, _all_values()).reshape(3, 256)
    within = (table.amin(dim=1, keepdim=True) <= wanted) & (wanted <= table.amax(dim=1, keepdim=True))
    if not within.all():
        reader.refuse(transform, f"what the value {transform.value!r} becomes is darker or brighter than any pixel")
    args["value"] = [int(level) for level in (table.double() - wanted.double()).abs().argmin(dim=1)]


def read_chain(transform, size):
    """The recipe of a dataset's `transform`. size: (height, width) of all pictures, or None. Unsupported: it has a part
    that nnpipe does not have. Leaves torch's generator as it was."""
    if torch.get_default_dtype() != torch.float32:
        raise Unsupported("nnpipe.like(): torch's default dtype is not float32, which transforms draw with")
    reader = _Reader(size)
    if transform is not None:
        reader.read(transform)
    state = torch.get_rng_state()
    try:
        _probe(reader.recipe, reader.values)
        for erasing in reader.erasings:
            _erase(reader, *erasing)
    finally:
        torch.set_rng_state(state)
    return reader.recipe
