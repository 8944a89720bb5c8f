#!/usr/bin/env python3
"""The GPU as cuDNN describes it (DEVICEPROP's JSON), by its C interface, and how that differs from the
description in scripts/gpus or tests/cuda/gpus with as many multiprocessors and the same architecture.

    cudnn_props.py [--ordinal N]      exit 3: there is no driver, GPU or cuDNN to ask
"""
import argparse
import ctypes
import glob
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# cudnn_backend.h, cuDNN 9
DEVICEPROP, DEVICE_ID, JSON = 38, 2700, 2702
TYPE_INT32, TYPE_CHAR = 23, 24


def not_here(why):
    print(why)
    sys.exit(3)


def load(names, folders):
    for folder in folders:
        for name in names:
            try:
                return ctypes.CDLL(os.path.join(folder, name) if folder else name, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
    return None


def folders_of(package):
    """The system's, the toolkit's, pip's."""
    found = ["", "/usr/local/cuda/lib64"] + os.environ.get("NNPIPE_CUDA_LIBS", "").split(":")
    for path in sys.path:
        found += glob.glob(os.path.join(path, "nvidia", package, "lib")) + glob.glob(os.path.join(path, "nvidia", "cu*",
            "lib"))
    return found


class Cudnn:
    def __init__(self, library):
        self.library = library
        library.cudnnGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            sys.exit(f"{name}: {self.library.cudnnGetErrorString(status).decode()}")

    def describe(self, ordinal=None, text=None):
        """Returns the JSON of a GPU, or of a description given as text."""
        props, count = ctypes.c_void_p(), ctypes.c_int64()
        self.call("cudnnBackendCreateDescriptor", DEVICEPROP, ctypes.byref(props))
        if text is None:
            number = ctypes.c_int32(ordinal)
            self.call("cudnnBackendSetAttribute", props, DEVICE_ID, TYPE_INT32, ctypes.c_int64(1), ctypes.byref(number))
        else:
            self.call("cudnnBackendSetAttribute", props, JSON, TYPE_CHAR, ctypes.c_int64(len(text)), text)
        self.call("cudnnBackendFinalize", props)
        self.call("cudnnBackendGetAttribute", props, JSON, TYPE_CHAR, ctypes.c_int64(0), ctypes.byref(count), None)
        buffer = ctypes.create_string_buffer(count.value + 1)
        self.call("cudnnBackendGetAttribute", props, JSON, TYPE_CHAR, count, ctypes.byref(count), buffer)
        self.call("cudnnBackendDestroyDescriptor", props)
        return json.loads(buffer.value)


def differences(found, ours):
    return [f"{key}: {found.get(key)} here, {ours.get(key)} there" for key in sorted(set(found) | set(ours))
            if found.get(key) != ours.get(key)]


def nearest(found):
    """Finds our description with the same architecture and size that differs in the fewest fields."""
    best = None
    for folder in (os.path.join(HERE, "..", "gpus"), os.path.join(HERE, "..", "..", "tests", "cuda", "gpus")):
        for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
            with open(path, encoding="utf-8") as file:
                ours = json.load(file)
            if any(ours.get(key) != found.get(key) for key in ("deviceVer", "multiProcessorCount")):
                continue
            other = differences(found, ours)
            if best is None or len(other) < len(best[1]):
                best = path, other
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ordinal", type=int, default=0)
    parser.add_argument("--like", help="a file to describe instead of a GPU, to try the calls out")
    args = parser.parse_args()
    cudnn = load(("libcudnn.so.9", "libcudnn.so"), folders_of("cudnn"))
    if not cudnn:
        not_here("cuDNN 9 is not installed")
    cudnn = Cudnn(cudnn)
    if args.like:
        with open(args.like, "rb") as file:
            found = cudnn.describe(text=file.read())
    else:
        driver = load(("libcuda.so.1",), ("", "/usr/local/nvidia/lib64"))
        if not driver or driver.cuInit(0):
            not_here("there is no NVIDIA driver or GPU")
        found = cudnn.describe(ordinal=args.ordinal)
    print(json.dumps(found))
    best = nearest(found)
    if not best:
        print(f"no description of ours has deviceVer {found.get('deviceVer')} and "
              f"{found.get('multiProcessorCount')} multiprocessors: keep the line above as one")
        return
    print(f"{os.path.basename(best[0])}: " + ("; ".join(best[1]) or "the same in all fields"))


if __name__ == "__main__":
    main()
