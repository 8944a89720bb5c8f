#!/usr/bin/env python3
"""Times one loader that feeds a loop of PyTorch, for bench_pytorch.sh.

  torch_loop.py LOADER WORK FILES SECONDS

LOADER  torch         DataLoader, two workers: float32, normalized, NCHW
        like          nnpipe.like() of that DataLoader: the same tensors
        like-fast     the same with exact_order=False
        nnpipe-f32    nnpipe.Loader, two readers: float32, normalized, NCHW
        nnpipe        the same as it is: u8, NHWC
        spdl, dali, ffcv, tf    two threads, u8, by the project's fastest way to the same crops
WORK    photos        FILES/photos: random resized crop to 224, flip; batches of 64
        cifar         CIFAR-10 in memory for torchvision, its binary files for nnpipe.Loader, a .beton of raw pixels for
                      FFCV, JPEGs for the others: random crop 32 of 40, flip; batches of 512

The loop has the images and labels of a batch as tensors in host memory, and reads one element of each. Prints one JSON
line: images a second after a first pass over the set, CPU us an image and peak MiB with the worker processes'.
"""
import glob
import itertools
import json
import math
import os
import random
import sys
import time

MEAN, STD = [.485, .456, .406], [.229, .224, .225]
NAME, WORK, FILES, SECONDS = *sys.argv[1:4], float(sys.argv[4])
PHOTOS = WORK == "photos"
BATCH, SIDE = (64, 224) if PHOTOS else (512, 32)
FOLDER = f"{FILES}/photos" if PHOTOS else f"{FILES}/cifar/train"


def pairs():
    classes = sorted(os.listdir(FOLDER))
    return [(f, i) for i, c in enumerate(classes) for f in sorted(glob.glob(f"{FOLDER}/{c}/*"))]


# --- torch, and nnpipe in its place ----------------------------------------------------------------------------------

def cifar_pixels():
    """torchvision's CIFAR10 of the binary files, without its checksums of the files in Python's format."""
    import numpy
    from torchvision.datasets import CIFAR10
    data = CIFAR10.__new__(CIFAR10)
    files = sorted(glob.glob(f"{FILES}/cifar-bin/data_batch_*.bin"))
    records = numpy.concatenate([numpy.fromfile(f, numpy.uint8).reshape(-1, 3073) for f in files])
    data.data = numpy.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    data.targets = records[:, 0].tolist()
    data.root, data.train, data.target_transform, data.transforms = FILES, True, None, None
    return data


def data_loader():
    import torch
    from torchvision import datasets, transforms as t
    crop = t.RandomResizedCrop(224) if PHOTOS else t.RandomCrop(32, 4)
    transform = t.Compose([crop, t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)])
    data = datasets.ImageFolder(FOLDER, transform) if PHOTOS else cifar_pixels()
    data.transform = transform
    return torch.utils.data.DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True,
                                       drop_last=True)


def torch_batches():
    return data_loader()


def like_batches(**options):
    import nnpipe
    return nnpipe.like(data_loader(), **options)


def nnpipe_batches(**options):
    import nnpipe
    augment = "[{random_resized_crop: 224}, flip]" if PHOTOS else "[{random_crop: {size: 32, pad: 4}}, flip]"
    source = f"{{source: folder, path: {FOLDER}}}" if PHOTOS else \
        f"{{source: cifar10, path: '{FILES}/cifar-bin/data_batch_*.bin'}}"
    text = f"""
data: {{train: {source}}}
loader: {{batch: {BATCH}, readers: 2, cache: none, entries: 'off', augment: {augment},
         test_augment: [{{resize: {SIDE}}}, {{center_crop: {SIDE}}}], normalize: {{mean: {MEAN}, std: {STD}}}}}
"""
    return nnpipe.Loader(text, drop_last=True, **options)


# --- other projects --------------------------------------------------------------------------------------------------

def dali_batches():
    import torch
    from nvidia.dali import fn, pipeline_def, types
    files, labels = zip(*pairs())

    @pipeline_def(batch_size=BATCH, num_threads=2, device_id=None, prefetch_queue_depth=3)
    def pipe():
        raw, label = fn.readers.file(files=list(files), labels=list(labels), random_shuffle=True, name="r")
        if PHOTOS:
            x = fn.decoders.image_random_crop(raw, device="cpu", output_type=types.RGB, random_area=[.08, 1.],
                                              random_aspect_ratio=[3 / 4, 4 / 3], use_fast_idct=True,
                                              jpeg_fancy_upsampling=False)
            x = fn.resize(x, size=[224, 224], interp_type=types.INTERP_LINEAR, antialias=False)
        else:
            x = fn.decoders.image(raw, device="cpu", output_type=types.RGB)
            x = fn.slice(x, start=fn.random.uniform(range=[-4, 4], shape=[2], dtype=types.INT32), shape=[32, 32],
                         axes=[0, 1], out_of_bounds_policy="pad")
        return fn.flip(x, horizontal=fn.random.coin_flip()), label

    p = pipe()
    p.build()
    while True:
        images, labels = p.run()
        yield torch.from_dlpack(images.as_tensor()), torch.from_dlpack(labels.as_tensor())


def spdl_filter():
    """Crop, scale and flip as one graph of ffmpeg."""
    if PHOTOS:
        scale, ratio = math.sqrt(random.uniform(.08, 1)), math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)) / 2)
        w, h = min(1, scale * ratio), min(1, scale / ratio)
        x, y = random.uniform(0, 1 - w), random.uniform(0, 1 - h)
        text = f"crop=iw*{w:.4f}:ih*{h:.4f}:iw*{x:.4f}:ih*{y:.4f},scale=224:224:flags=bilinear"
    else:
        text = f"pad=40:40:4:4,crop=32:32:{random.randint(0, 8)}:{random.randint(0, 8)}"
    return text + (",hflip" if random.random() < .5 else "") + ",format=pix_fmts=rgb24"


def spdl_batches():
    import spdl.io
    import torch
    from spdl.pipeline import PipelineBuilder
    listed = pairs()

    def source():
        while True:
            random.shuffle(listed)
            for i in range(0, len(listed) - BATCH + 1, BATCH):
                yield listed[i:i + BATCH]

    def load(batch):
        frames = [spdl.io.decode_packets(spdl.io.demux_image(path), filter_desc=spdl_filter()) for path, _ in batch]
        return spdl.io.convert_frames(frames), [label for _, label in batch]

    pipeline = PipelineBuilder().add_source(source()).pipe(load, concurrency=2).add_sink(3).build(num_threads=2)
    with pipeline.auto_stop():
        for buffer, labels in pipeline:
            yield spdl.io.to_torch(buffer), torch.tensor(labels)


def ffcv_batches():
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, RandomTranslate, ToTensor, ToTorchImage
    beton = f"{FOLDER}.{'imagenet' if PHOTOS else 'cifar'}.beton"
    if not os.path.exists(beton):
        from PIL import Image
        from ffcv.writer import DatasetWriter
        listed = [(Image.open(path).convert("RGB"), label) for path, label in pairs()]
        field = RGBImageField(write_mode="jpg", max_resolution=512, jpeg_quality=90) if PHOTOS \
            else RGBImageField(write_mode="raw")
        DatasetWriter(beton, {"image": field, "label": IntField()}, num_workers=2).from_indexed_dataset(listed)
    if PHOTOS:
        chain = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()]
    else:
        chain = [SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomTranslate(padding=4)]
    return Loader(beton, batch_size=BATCH, num_workers=2, order=OrderOption.RANDOM, os_cache=True, drop_last=True,
                  pipelines={"image": [*chain, ToTensor(), ToTorchImage()], "label": [IntDecoder(), ToTensor()]})


def tf_batches():
    import tensorflow as tf
    sys.path.append(os.environ["TORCH_PACKAGES"])  # TensorFlow has a virtual environment of its own
    import torch
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(2)
    files, labels = zip(*pairs())

    def load(path, label):
        raw = tf.io.read_file(path)
        if PHOTOS:
            shape = tf.image.extract_jpeg_shape(raw)
            begin, size, _ = tf.image.sample_distorted_bounding_box(
                shape, tf.zeros([0, 0, 4]), area_range=(.08, 1.), aspect_ratio_range=(3 / 4, 4 / 3),
                min_object_covered=0., use_image_if_no_bounding_boxes=True)
            y, x, _ = tf.unstack(begin)
            h, w, _ = tf.unstack(size)
            image = tf.image.decode_and_crop_jpeg(raw, tf.stack([y, x, h, w]), channels=3, dct_method="INTEGER_FAST",
                                                  fancy_upscaling=False)
            image = tf.cast(tf.image.resize(image, [224, 224]), tf.uint8)
        else:
            image = tf.image.random_crop(tf.pad(tf.io.decode_jpeg(raw, channels=3), [[4, 4], [4, 4], [0, 0]]),
                                         [32, 32, 3])
        return tf.image.random_flip_left_right(image), label

    batches = (tf.data.Dataset.from_tensor_slices((list(files), list(labels))).shuffle(len(files)).repeat()
               .map(load, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
               .batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE))
    for images, labels in batches:
        yield torch.from_dlpack(images), torch.from_dlpack(labels)


LOADERS = {
    "torch": torch_batches, "like": like_batches, "like-fast": lambda: like_batches(exact_order=False),
    "nnpipe": nnpipe_batches, "nnpipe-f32": lambda: nnpipe_batches(dtype="float32", layout="nchw", as_="torch"),
    "dali": dali_batches, "spdl": spdl_batches, "ffcv": ffcv_batches, "tf": tf_batches,
}


# --- the loop --------------------------------------------------------------------------------------------------------

def usage():
    """CPU seconds and peak resident MiB of this process and its children."""
    cpu = memory = 0.0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            if os.getpid() in (int(pid), int(stat[1])):
                cpu += (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
                memory += sum(int(line.split()[1]) / 1024 for line in open(f"/proc/{pid}/status")
                              if line.startswith("VmHWM"))
        except OSError:
            pass
    return cpu, memory


def rounds(batches):
    """Epoch after epoch; a generator has no end of its own."""
    return itertools.chain.from_iterable(itertools.repeat(batches))


def main():
    if NAME != "tf":
        import torch
        torch.set_num_threads(1)
    warm, seen, start, cpu, read = len(pairs()) - BATCH if PHOTOS else 20000, 0, None, 0.0, 0.0
    for images, labels in rounds(LOADERS[NAME]()):
        assert len(images) == BATCH and len(labels) == BATCH and images.numel() == BATCH * SIDE * SIDE * 3
        read += images.flatten()[0].item() + labels.flatten()[0].item() if images.is_contiguous() else 0
        seen += BATCH
        now = time.perf_counter()
        if start is None and seen >= warm:
            start, cpu, seen = now, usage()[0], 0
        elif start is not None and now - start >= SECONDS:
            end, memory = usage()  # before the worker processes end with the loop
            break
    print(json.dumps({"images_per_second": seen / (now - start), "cpu_us_per_image": 1e6 * (end - cpu) / seen,
                      "peak_rss_mib": memory}), flush=True)
    os._exit(0)


main()
