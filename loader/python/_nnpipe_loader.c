/* A loader of the library as a Python object. Calls that wait release the GIL, so another thread may
 * close the loader meanwhile: each call counts as a user, and the last user closes. */
#include "loader/python/_nnpipe.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#define SLICE_MS 50 /* between two looks for Ctrl-C */

static struct np_py_loader *loader_of(PyObject *object)
{
    return (struct np_py_loader *)(void *)object;
}

/* --- calls and the end -------------------------------------------------------------------------- */

/* The loader is closed, and nothing reads the pixels any more. */
static void let_go(struct np_py_loader *self)
{
    if (self->has_pixels)
        PyBuffer_Release(&self->pixels);
    self->has_pixels = false;
}

static void close_now(struct np_py_loader *self)
{
    struct nnp_loader *loader = self->loader;

    self->loader = NULL;
    if (loader) {
        Py_BEGIN_ALLOW_THREADS;
        nnp_close(loader);
        Py_END_ALLOW_THREADS;
    }
    let_go(self);
}

static void *close_aside(void *loader)
{
    nnp_close(loader);
    return NULL;
}

/* As close_now(), but Ctrl-C ends the wait, since a reader may hang in its storage: then -1, another
 * thread goes on closing, and the pixels stay. */
static int close_or_interrupt(struct np_py_loader *self)
{
    pthread_t thread;
    int code = EBUSY;

    if (!self->loader)
        return 0;
    if (pthread_create(&thread, NULL, close_aside, self->loader) != 0) {
        close_now(self);
        return 0;
    }
    self->loader = NULL;
    while (code != 0) {
        struct timespec until;

        Py_BEGIN_ALLOW_THREADS;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += SLICE_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        code = pthread_timedjoin_np(thread, NULL, &until);
        Py_END_ALLOW_THREADS;
        if (code != 0 && PyErr_CheckSignals() < 0) {
            pthread_detach(thread);
            self->has_pixels = false;
            return -1;
        }
    }
    let_go(self);
    return 0;
}

struct nnp_loader *np_py_enter(struct np_py_loader *self)
{
    if (!self->loader || self->closing) {
        PyErr_SetString(PyExc_ValueError, "the loader is closed");
        return NULL;
    }
    self->nr_users++;
    return self->loader;
}

void np_py_leave(struct np_py_loader *self)
{
    if (--self->nr_users == 0 && self->closing)
        close_now(self);
}

static PyObject *close_loader(PyObject *object, PyObject *none)
{
    struct np_py_loader *self = loader_of(object);

    self->closing = true;
    if (self->nr_users == 0 && close_or_interrupt(self) < 0)
        return NULL;
    return Py_NewRef(Py_None);
}

static int traverse(PyObject *object, visitproc visit, void *arg)
{
    struct np_py_loader *self = loader_of(object);

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->exp);
    Py_VISIT(self->log);
    return 0;
}

static int clear(PyObject *object)
{
    struct np_py_loader *self = loader_of(object);

    Py_CLEAR(self->exp);
    Py_CLEAR(self->log);
    return 0;
}

static void end(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    close_now(loader_of(object));
    clear(object);
    np_py_free(object);
}

PyObject *np_py_raise_last(struct np_py_loader *self, int code)
{
    char text[2048];

    if (nnp_error(self->loader, text, sizeof(text)) == 0)
        snprintf(text, sizeof(text), "error %d", -code);
    return np_py_raise((PyObject *)self, code, text);
}

/* --- batches ------------------------------------------------------------------------------------ */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* One slice of waiting. -ETIMEDOUT: no exception is set. Else 1, 0 or, with an exception, -1. */
static int next_slice(struct np_py_loader *self, int timeout_ms, PyObject **ret_batch)
{
    struct nnp_loader *loader = np_py_enter(self);
    struct nnp_batch *batch;
    int code;

    if (!loader)
        return -1;
    np_py_ask_begin();
    code = nnp_next(loader, timeout_ms, &batch);
    if (np_py_ask_end() < 0 || self->closing) {
        if (code > 0)
            nnp_batch_release(batch);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "the loader is closed");
        code = -1;
    } else if (code > 0) {
        *ret_batch = np_py_batch_new(self, batch);
        code = *ret_batch ? 1 : -1;
    } else if (code < 0 && code != -ETIMEDOUT) {
        np_py_raise_last(self, code);
        code = -1;
    }
    np_py_leave(self);
    return code;
}

static PyObject *next(PyObject *object, PyObject *args)
{
    struct np_py_loader *self = loader_of(object);
    PyObject *batch = NULL;
    double timeout = -1;
    bool ends;
    int64_t until_ms;

    if (!PyArg_ParseTuple(args, "|d:next", &timeout))
        return NULL;
    ends = timeout >= 0 && timeout <= 1e9;
    until_ms = ends ? now_ms() + (int64_t)(timeout * 1e3) : 0;
    for (;;) {
        const int64_t left_ms = ends ? until_ms - now_ms() : SLICE_MS;
        const int wait_ms = left_ms > SLICE_MS ? SLICE_MS : left_ms > 0 ? (int)left_ms : 0;
        const int code = next_slice(self, wait_ms, &batch);

        if (code == 0)
            return Py_NewRef(Py_None);
        if (code != -ETIMEDOUT)
            return batch;
        if (PyErr_CheckSignals() < 0)
            return NULL;
        if (ends && left_ms <= SLICE_MS) {
            PyErr_SetString(PyExc_TimeoutError, "no batch was ready within the timeout");
            return NULL;
        }
    }
}

static PyObject *position(PyObject *object, PyObject *none)
{
    struct np_py_loader *self = loader_of(object);
    struct nnp_loader *loader = np_py_enter(self);
    uint64_t epoch, nr_batches;

    if (!loader)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    nnp_position(loader, &epoch, &nr_batches);
    Py_END_ALLOW_THREADS;
    np_py_leave(self);
    return Py_BuildValue("KK", (unsigned long long)epoch, (unsigned long long)nr_batches);
}

static PyObject *seek(PyObject *object, PyObject *args)
{
    struct np_py_loader *self = loader_of(object);
    unsigned long long epoch, nr_batches;
    struct nnp_loader *loader;
    int code;

    if (!PyArg_ParseTuple(args, "KK:seek", &epoch, &nr_batches) || !(loader = np_py_enter(self)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = nnp_seek(loader, epoch, nr_batches);
    Py_END_ALLOW_THREADS;
    if (code < 0)
        np_py_raise_last(self, code);
    np_py_leave(self);
    return code < 0 ? NULL : Py_NewRef(Py_None);
}

/* --- what it tells ------------------------------------------------------------------------------ */

static PyObject *counters(PyObject *object, PyObject *none)
{
    struct np_py_loader *self = loader_of(object);
    struct nnp_loader *loader = np_py_enter(self);
    char json[8192];
    int code;

    if (!loader)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = nnp_counters(loader, json, sizeof(json));
    Py_END_ALLOW_THREADS;
    if (code < 0)
        np_py_raise_last(self, code);
    np_py_leave(self);
    return code < 0 ? NULL : PyUnicode_DecodeUTF8(json, code, "replace");
}

static PyObject *bad_sample(PyObject *object, PyObject *none)
{
    struct np_py_loader *self = loader_of(object);
    struct nnp_loader *loader = np_py_enter(self);
    char text[8192];
    int code;

    if (!loader)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = nnp_bad_sample(loader, text, sizeof(text));
    Py_END_ALLOW_THREADS;
    if (code < 0)
        np_py_raise_last(self, code);
    np_py_leave(self);
    if (code < 0)
        return NULL;
    if (code >= (int)sizeof(text))
        code = sizeof(text) - 1;
    return code == 0 ? Py_NewRef(Py_None) : PyUnicode_DecodeFSDefaultAndSize(text, code);
}

static PyObject *flush(PyObject *object, PyObject *none)
{
    struct np_py_loader *self = loader_of(object);
    struct nnp_loader *loader = np_py_enter(self);
    int code;

    if (!loader)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = nnp_flush(loader);
    Py_END_ALLOW_THREADS;
    if (code < 0)
        np_py_raise_last(self, code);
    np_py_leave(self);
    return code < 0 ? NULL : Py_NewRef(Py_None);
}

/* The attributes do not wait, so that they need no np_py_leave(). */
static struct nnp_loader *open_one(PyObject *object)
{
    struct np_py_loader *self = loader_of(object);

    if (!self->loader || self->closing)
        PyErr_SetString(PyExc_ValueError, "the loader is closed");
    return self->closing ? NULL : self->loader;
}

static PyObject *get_shape(PyObject *object, void *none)
{
    const struct nnp_loader *loader = open_one(object);
    int64_t s[4];

    if (!loader)
        return NULL;
    nnp_shape(loader, s);
    return Py_BuildValue(
        "LLLL", (long long)s[0], (long long)s[1], (long long)s[2], (long long)s[3]);
}

static PyObject *get_dtype(PyObject *object, void *none)
{
    const struct nnp_loader *loader = open_one(object);

    return loader ? PyUnicode_FromString(nnp_dtype(loader)) : NULL;
}

static PyObject *get_layout(PyObject *object, void *none)
{
    const struct nnp_loader *loader = open_one(object);

    if (!loader)
        return NULL;
    return PyUnicode_FromString(
        loader_of(object)->channels_last ? "channels_last" : nnp_layout(loader));
}

static PyObject *get_samples(PyObject *object, void *none)
{
    const struct nnp_loader *loader = open_one(object);

    return loader ? PyLong_FromUnsignedLongLong(nnp_samples(loader)) : NULL;
}

static PyObject *get_length(PyObject *object, void *none)
{
    const struct nnp_loader *loader = open_one(object);

    return loader ? PyLong_FromUnsignedLongLong(nnp_length(loader)) : NULL;
}

static PyObject *get_fingerprint(PyObject *object, void *none)
{
    const struct nnp_loader *loader = open_one(object);

    return loader ? PyLong_FromUnsignedLongLong(nnp_fingerprint(loader)) : NULL;
}

static PyObject *get_classes(PyObject *object, void *none)
{
    const struct nnp_loader *loader = open_one(object);
    const int n = loader ? nnp_nr_classes(loader) : 0;
    PyObject *tuple = loader ? PyTuple_New(n) : NULL;

    for (int i = 0; tuple && i < n; i++) {
        PyObject *name = PyUnicode_DecodeFSDefault(nnp_class(loader, i));

        if (!name || PyTuple_SetItem(tuple, i, name) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *get_closed(PyObject *object, void *none)
{
    struct np_py_loader *self = loader_of(object);

    return PyBool_FromLong(!self->loader || self->closing);
}

static PyGetSetDef attributes[] = {
    {"shape", get_shape, NULL, "Rows, height, width, channels of a full batch.", NULL},
    {"dtype", get_dtype, NULL, "As the option.", NULL},
    {"layout", get_layout, NULL, "nhwc, nchw or channels_last.", NULL},
    {"samples", get_samples, NULL, "Samples of the set, all ranks together.", NULL},
    {"length", get_length, NULL, "Batches of an epoch of this rank.", NULL},
    {"classes", get_classes, NULL, "The names of the classes, by label.", NULL},
    {"fingerprint", get_fingerprint, NULL, "The number of nnp_fingerprint().", NULL},
    {"closed", get_closed, NULL, "True after close().", NULL},
    {0},
};

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

static PyMethodDef methods[] = {
    {"next", next, METH_VARARGS,
        "next(timeout=-1.0)\n--\n\n"
        "The next Batch; None: the epoch has ended, and the next call begins the next one.\n"
        "Waits at most timeout seconds (TimeoutError), without limit if it is negative."},
    {"position", position, METH_NOARGS, "position()\n--\n\n(epoch, batches taken of it)"},
    {"seek", seek, METH_VARARGS, "seek(epoch, nr_batches)\n--\n\nSets the position."},
    {"counters", counters, METH_NOARGS, "counters()\n--\n\nThe counters, a JSON text."},
    {"bad_sample", bad_sample, METH_NOARGS,
        "bad_sample()\n--\n\nThe next bad sample that was replaced, as a sentence; None: none."},
    {"flush", flush, METH_NOARGS,
        "flush()\n--\n\nWrites what was learnt of the data to the cache folder."},
    {"close", close_loader, METH_NOARGS,
        "close()\n--\n\nStops the threads; at the end of the last call that runs. Again: nothing."},
    {"deal", KEYWORDS(np_py_deal),
        "deal(workers, version, exp, log, probes, values=None)\n--\n\n"
        "nnp_deal(): exp, log: functions of a float; probes: a buffer of 256 float32; values: a\n"
        "buffer of float32 (channels, 256). Once."},
    {"deal_epoch", KEYWORDS(np_py_deal_epoch),
        "deal_epoch(samples, base_seed=0, continues=False, nr_skipped=0)\n--\n\n"
        "nnp_deal_epoch(): samples: a buffer of int64."},
    {"deal_state", np_py_deal_state, METH_O,
        "deal_state(state)\n--\n\nnnp_deal_state(): a buffer with torch.get_rng_state()."},
    {"deal_after", np_py_deal_after, METH_O,
        "deal_after(state)\n--\n\nnnp_deal_after(): changes the state in a writable buffer."},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A loader of libnnpipe; loader/nnpipe.h says what each call does."},
    {Py_tp_dealloc, end},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_getset, attributes},
    {Py_tp_methods, methods},
    {0},
};

PyType_Spec np_py_loader_spec = {
    .name = "nnpipe._nnpipe.Loader",
    .basicsize = sizeof(struct np_py_loader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
