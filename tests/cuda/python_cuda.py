"""nnpipe.Loader(device="cuda:0") over the emulated runtime (python_cuda.sh), without NumPy and torch: a consumer of
DLPack in ctypes. Prints an "ok -" or "not ok -" line each."""
import ctypes as c
import errno
import gc
import sys

import nnpipe

RUNTIME = c.CDLL(sys.argv[1])  # the emulated one, which the plugin has, too
CONFIG = {"seed": 4, "data": {"train": {"source": "synth", "samples": 45, "size": 16}},
          "loader": {"batch": 8, "readers": 2, "augment": ["flip"]}}
failed = 0


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", c.c_int32), ("id", c.c_int32), ("nr_dims", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Managed(c.Structure):
    pass


DELETER = c.CFUNCTYPE(None, c.POINTER(Managed))
Managed._fields_ = [("tensor", Tensor), ("context", c.c_void_p), ("deleter", DELETER)]
pointer_of = c.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
rename = c.pythonapi.PyCapsule_SetName
rename.argtypes = [c.py_object, c.c_char_p]


def ok(passed, sentence, why=""):
    global failed
    print(f"{'ok' if passed else 'not ok'} - {sentence}{'' if passed else f': {why}'}")
    failed += not passed


def check(code):
    assert code == 0, code


def new_stream():
    stream = c.c_void_p()
    check(RUNTIME.cudaStreamCreateWithFlags(c.byref(stream), 1))
    return stream


class Taken:
    """A tensor that a consumer has taken out of its capsule."""

    def __init__(self, array, stream):
        capsule = array.__dlpack__(stream=stream)
        self.managed = c.cast(pointer_of(capsule, b"dltensor"), c.POINTER(Managed))
        check(rename(capsule, b"used_dltensor"))
        tensor = self.managed.contents.tensor
        self.data, self.device = tensor.data, (tensor.device, tensor.id)
        self.shape = tuple(tensor.shape[:tensor.nr_dims])
        self.bytes = tensor.bits // 8
        for n in self.shape:
            self.bytes *= n

    def delete(self):
        self.managed.contents.deleter(self.managed)


def copy_out(data, n, stream):
    out = c.create_string_buffer(n)
    check(RUNTIME.cudaMemcpyAsync(out, c.c_void_p(data), c.c_size_t(n), 2, stream))
    check(RUNTIME.cudaStreamSynchronize(stream))
    return out.raw


def opened(**more):
    return nnpipe.Loader(CONFIG, dtype="float32", layout="nchw", as_="dlpack", **more)


def test_same():
    stream, wrong = new_stream(), 0
    with opened() as cpu, opened(device="cuda:0") as cuda:
        for (x, y), (image, label) in zip(cpu, cuda, strict=True):
            taken = Taken(image, stream.value)
            del image
            wrong += taken.device != (2, 0) or taken.shape != tuple(memoryview(x).shape)
            wrong += copy_out(taken.data, taken.bytes, stream) != memoryview(x).tobytes()
            wrong += label.__dlpack_device__() != (1, 0) or memoryview(y).tolist() != memoryview(label).tolist()
            taken.delete()
    ok(wrong == 0, "images on the GPU are those of device='cpu'; labels are on the host", f"{wrong} differ")


def test_late():
    """Views die with copies of them queued on the stream that __dlpack__() was given."""
    stream, kept, wanted = new_stream(), [], []
    with opened() as cpu, opened(device="cuda:0") as cuda:
        for _ in range(4):
            for (x, _), (image, _) in zip(cpu, cuda, strict=True):
                taken, memory = Taken(image, stream.value), c.c_void_p()
                del image
                check(RUNTIME.cudaMalloc(c.byref(memory), c.c_size_t(taken.bytes)))
                check(RUNTIME.cudaMemcpyAsync(memory, c.c_void_p(taken.data), c.c_size_t(taken.bytes), 3, stream))
                kept.append((memory, taken.bytes))
                wanted.append(memoryview(x).tobytes())
                taken.delete()
        wrong = sum(copy_out(memory.value, n, stream) != bytes_
                    for (memory, n), bytes_ in zip(kept, wanted, strict=True))
    for memory, _ in kept:
        check(RUNTIME.cudaFree(memory))
    ok(wrong == 0 and len(kept) == 24, "a view that dies with work queued on its stream is not overwritten",
       f"{wrong} of {len(kept)} were")


def raises(kind, call, text=""):
    try:
        call()
    except kind as error:
        return text in str(error)
    return False


def test_streams():
    with opened(device="cuda:0") as cuda:
        image, _ = next(iter(cuda))
        for stream in (None, 1, 2, -1, new_stream().value):
            image.__dlpack__(stream=stream)
        ok(raises(ValueError, lambda: image.__dlpack__(stream=0), "ambiguous"), "stream=0 is refused as ambiguous")
        ok(raises(TypeError, lambda: image.__dlpack__(stream="1")), "and a stream that is no number")
        ok(image.__dlpack_device__() == (2, 0), "the images say that they are on cuda:0")
        ok(raises(BufferError, lambda: memoryview(image)), "the buffer protocol refuses memory of a GPU")
    ok(raises(ValueError, lambda: nnpipe.Loader(CONFIG, device="cuda:0", as_="numpy")), "as_='numpy' is refused there")


def test_errors():
    ok(raises(OSError, lambda: opened(device="cuda:7"), "there is no cuda:7"), "a GPU that is not there is named")
    try:
        opened(device="cuda:7")
    except OSError as error:
        ok(error.errno == errno.ENODEV, "its errno is ENODEV", error.errno)
    ok(raises(ValueError, lambda: opened(device="gpu"), "cuda:N"), "a wrong device is refused with the choices")


test_same()
test_late()
test_streams()
test_errors()
gc.collect()
# The interpreter exits with a loader open, and a view that nobody deletes.
last = opened(device="cuda:0")
image, _ = next(iter(last))
forgotten = Taken(image, 1)
sys.exit(failed > 0)
