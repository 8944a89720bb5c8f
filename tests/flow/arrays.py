"""Batches of nnpipe.Loader in NumPy or JAX: arrays.py numpy|jax CONFIG. A line for each test."""
import gc
import sys
import time

import nnpipe
import numpy

library, config = sys.argv[1:]
DTYPES = ("uint8", "float32", "float16", "bfloat16")


def story(what):
    def run(function):
        try:
            function()
        except Exception as error:  # any failure is the test's
            print(f"not ok - {library}: {what}: {type(error).__name__}: {error}", flush=True)
        else:
            print(f"ok - {library}: {what}", flush=True)
    return run


def loader(**options):
    return nnpipe.Loader(config, as_="dlpack", **options)


def first(dtype="uint8", layout="nhwc"):
    """The first batch, copied by plain Python: images as uint8 bits or floats, labels."""
    with loader(dtype=dtype, layout=layout) as opened:
        images, labels = next(iter(opened))
        view = memoryview(images)
        copy = numpy.frombuffer(view.tobytes(), dtype=dtype).reshape(view.shape)
        return copy, memoryview(labels).tolist()


def becomes(opened, held):
    """A library may free what it got in another thread, a moment later."""
    gc.collect()
    until = time.monotonic() + 60
    while opened.counters()["held"] != held and time.monotonic() < until:
        time.sleep(0.01)
    now = opened.counters()["held"]
    assert now == held, f"{now} batches are held, not {held}"


def address(array):
    return array.__array_interface__["data"][0]


def numpy_stories():
    @story("from_dlpack() and asarray() are the batch's memory, in each dtype and layout")
    def same_memory():
        for dtype in DTYPES[:3]:
            for layout in ("nhwc", "nchw"):
                with loader(dtype=dtype, layout=layout) as opened:
                    images, labels = next(iter(opened))
                    a, b = numpy.from_dlpack(images), numpy.asarray(images)
                    assert a.dtype == b.dtype == dtype and a.shape == b.shape == tuple(images.shape), (a.dtype, a.shape)
                    assert address(a) == address(b)
                    values, numbers = first(dtype, layout)
                    assert (a == values).all() and (b == values).all() and a.any()
                    assert numpy.from_dlpack(labels).tolist() == numpy.asarray(labels).tolist() == numbers
                    assert numpy.asarray(labels).dtype == "int64" and len(set(numbers)) > 1

    @story("nchw has the values of nhwc, and floats those of uint8, normalized")
    def same_values():
        pixels, _ = first()
        mean, std = numpy.float32([0.5, 0.4, 0.3]), numpy.float32(0.25)
        floats = (pixels / numpy.float32(255) - mean) / std
        assert (first("float32")[0] == floats).all()
        assert (first("float32", "nchw")[0] == floats.transpose(0, 3, 1, 2)).all()
        assert (first("float16")[0] == floats.astype("float16")).all()

    @story("the slot goes back when the last view dies, not before")
    def last_view():
        with loader() as opened:
            epoch = iter(opened)
            images, labels = next(epoch)
            row = numpy.from_dlpack(images)[3:5].transpose(3, 0, 1, 2)[0]
            saved = row.copy()
            del images, labels
            becomes(opened, 1)
            for batches in (epoch, opened, opened, opened):  # more of them than there are slots
                for images, labels in batches:
                    pass
            del images, labels
            assert (row == saved).all(), "the memory of a live view was used again"
            becomes(opened, 1)
            del row
            becomes(opened, 0)

    @story("a view outlives its loader, and may be written to")
    def outlives():
        opened = loader()
        array = numpy.asarray(next(iter(opened))[0])
        saved = array.copy()
        opened.close()
        del opened
        gc.collect()
        assert (array == saved).all()
        array += 1
        assert (array == saved + 1).all()

    @story("Loader gives arrays of NumPy where it is imported")
    def as_numpy():
        with nnpipe.Loader(config, as_="numpy") as opened:
            images, labels = next(iter(opened))
            assert type(images) is type(labels) is numpy.ndarray
            assert (images == first()[0]).all()
            becomes(opened, 1)
            del images, labels
            becomes(opened, 0)

    @story("bfloat16 has no buffer: the error names DLPack")
    def bfloat16():
        with loader(dtype="bfloat16") as opened:
            images, _ = next(iter(opened))
            for read in (memoryview, numpy.asarray, numpy.array):
                try:
                    read(images)
                except BufferError as error:
                    assert "DLPack" in str(error), error
                else:
                    raise AssertionError(f"{read} took it")
            becomes(opened, 1)

    @story("__array__() is the batch's memory, or a copy of it")
    def array_method():
        with loader() as opened:
            images, _ = next(iter(opened))
            assert address(images.__array__()) == address(numpy.asarray(images))
            copy = images.__array__(copy=True)
            assert address(copy) != address(images.__array__()) and (copy == numpy.asarray(images)).all()
            assert images.__array__("float32").dtype == "float32"


def jax_stories():
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)  # for labels of int64

    @story("jax.numpy.from_dlpack() is the batch's memory, in each dtype")
    def same_memory():
        floats, numbers = first("float32", "nchw")
        for dtype in DTYPES:
            with loader(dtype=dtype, layout="nchw") as opened:
                images, labels = next(iter(opened))
                x, y = jnp.from_dlpack(images), jnp.from_dlpack(labels)
                assert x.dtype == dtype and x.shape == tuple(images.shape), (x.dtype, x.shape)
                want = first(dtype, "nchw")[0] if dtype == "uint8" else jnp.asarray(floats).astype(dtype)
                assert bool((x == want).all())
                assert y.dtype == "int64" and y.tolist() == numbers
                if dtype == "uint8":
                    assert x.unsafe_buffer_pointer() == address(numpy.asarray(images)), "it was copied"

    @story("jax.numpy.asarray() and array() take an array, too")
    def asarray():
        for dtype in DTYPES:
            with loader(dtype=dtype) as opened:
                images, labels = next(iter(opened))
                want = jnp.from_dlpack(images)
                for read in (jnp.asarray, jnp.array):
                    x = read(images)
                    assert x.dtype == dtype and bool((x == want).all()), x.dtype
                    assert read(labels).tolist() == memoryview(labels).tolist()
                    if dtype == "uint8" and read is jnp.asarray:
                        assert x.unsafe_buffer_pointer() == address(numpy.asarray(images)), "it was copied"

    @story("a step of training under jit reads it, and the slot goes back when the last array dies")
    def step():
        @jax.jit
        def loss(weights, images, labels):
            scores = images.reshape(len(images), -1) @ weights
            return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()

        weights = jnp.zeros((3 * 32 * 32, 8), "float32")
        with loader(dtype="float32", layout="nchw", drop_last=True) as opened:
            losses = []
            for images, labels in opened:
                x, y = jnp.from_dlpack(images), jnp.from_dlpack(labels)
                value, slope = jax.value_and_grad(loss)(weights, x, y)
                weights -= 0.001 * slope
                losses.append(float(value))
            assert len(losses) == len(opened) == 15 and losses[-1] < losses[0], losses
            del images, labels
            becomes(opened, 1)
            del x
            becomes(opened, 1)
            del y
            becomes(opened, 0)


numpy_stories() if library == "numpy" else jax_stories()
