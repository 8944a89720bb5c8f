/* DLPack (github.com/dmlc/dlpack, version 1): an array as a capsule for torch, JAX, CuPy. The deleter
 * is plain C, since consumers call it in any thread, without the GIL, and while the process exits. */
#include "loader/python/_nnpipe.h"

#include <stdlib.h>

/* --- the structs, as dlpack.h lays them out ----------------------------------------------------- */

struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t nr_dims;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides in elements */
    uint64_t byte_offset;
};

struct dl_managed { /* "dltensor" */
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

struct dl_versioned { /* "dltensor_versioned" */
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags; /* 0: may be written to, and is no copy */
    struct dl_tensor tensor;
};

/* What one capsule owns. */
struct export
{
    union {
        struct dl_managed old;
        struct dl_versioned versioned;
    };
    struct nnp_batch *batch;
    int64_t shape[NP_PY_MAX_DIMS], strides[NP_PY_MAX_DIMS];
};

/* --- the end of a tensor ------------------------------------------------------------------------ */

/* Any thread, with or without the GIL. */
static void end(struct export *export)
{
    nnp_batch_release(export->batch);
    free(export);
}

static void end_old(struct dl_managed *self)
{
    end(self->context);
}

static void end_versioned(struct dl_versioned *self)
{
    end(self->context);
}

/* A capsule that nobody took the tensor of still owns it; a consumer renames the capsule. */
static void end_capsule(PyObject *capsule)
{
    static const char *const names[] = {"dltensor", "dltensor_versioned"};

    for (int i = 0; i < 2; i++)
        if (PyCapsule_IsValid(capsule, names[i]))
            end(PyCapsule_GetContext(capsule));
}

/* --- a new one ---------------------------------------------------------------------------------- */

static struct export *new_export(const struct np_py_array *array, bool versioned)
{
    struct export *export = calloc(1, sizeof(*export));
    struct dl_tensor *tensor;

    if (!export)
        return NULL;
    tensor = versioned ? &export->versioned.tensor : &export->old.tensor;
    tensor->data = array->data;
    tensor->device.type = array->device;
    tensor->device.id = array->device_id;
    tensor->nr_dims = array->nr_dims;
    tensor->dtype.code = (uint8_t)array->dtype->dl_code;
    tensor->dtype.bits = (uint8_t)(8 * array->dtype->bytes);
    tensor->dtype.lanes = 1;
    tensor->shape = export->shape;
    tensor->strides = export->strides;
    for (int d = 0; d < array->nr_dims; d++) {
        export->shape[d] = array->shape[d];
        export->strides[d] = array->strides[d] / array->dtype->bytes;
    }
    if (versioned) {
        export->versioned.version.major = 1;
        export->versioned.context = export;
        export->versioned.deleter = end_versioned;
    } else {
        export->old.context = export;
        export->old.deleter = end_old;
    }
    export->batch = array->batch;
    nnp_batch_retain(array->batch);
    return export;
}

static PyObject *new_capsule(const struct np_py_array *array, bool versioned)
{
    struct export *export = new_export(array, versioned);
    void *managed = versioned ? (void *)&export->versioned : (void *)&export->old;
    PyObject *capsule;

    if (!export)
        return PyErr_NoMemory();
    capsule = PyCapsule_New(managed, versioned ? "dltensor_versioned" : "dltensor", NULL);
    if (!capsule) {
        end(export);
        return NULL;
    }
    if (PyCapsule_SetContext(capsule, export) == 0 &&
        PyCapsule_SetDestructor(capsule, end_capsule) == 0)
        return capsule;
    Py_DECREF(capsule);
    end(export);
    return NULL;
}

/* --- what consumers ask for --------------------------------------------------------------------- */

static int parse_pair(PyObject *pair, const char *expected, int *ret_first, int *ret_second)
{
    if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2 &&
        PyArg_ParseTuple(pair, "ii", ret_first, ret_second))
        return 0;
    PyErr_SetString(PyExc_TypeError, expected);
    return -1;
}

/* 0: they ask for what the array is. */
static int check_device(const struct np_py_array *self, PyObject *device)
{
    int type, id;

    if (device == Py_None)
        return 0;
    if (parse_pair(device, "dl_device: expected (type, id)", &type, &id) < 0)
        return -1;
    if (type == self->device && id == self->device_id)
        return 0;
    PyErr_SetString(PyExc_BufferError, "nnpipe does not copy to another device: dl_device");
    return -1;
}

/* On a GPU: makes the consumer's stream wait for the images, and remembers it. None and 1: the legacy
 * default stream, 2: the thread's own (as CUDA's handles are); -1: no synchronization, so the
 * consumer neither sees that the images are there nor is waited for. */
static int use_stream(struct np_py_array *self, PyObject *object)
{
    char text[NP_PY_ERROR_BYTES / 8];
    long long stream = 1;
    int code;

    if (self->device != NP_PY_CUDA)
        return 0;
    if (object != Py_None)
        stream = PyLong_AsLongLong(object);
    if (stream == -1)
        return PyErr_Occurred() ? -1 : 0;
    if (stream <= 0) {
        PyErr_SetString(PyExc_ValueError,
            "stream: expected None, -1, 1, 2 or the address of a CUDA "
            "stream; 0 is ambiguous (DLPack)");
        return -1;
    }
    code = nnp_batch_use(self->batch, (void *)(intptr_t)stream);
    if (code == 0)
        return 0;
    nnp_batch_error(self->batch, text, sizeof(text));
    np_py_raise((PyObject *)self, code, text);
    return -1;
}

PyObject *np_py_array_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    struct np_py_array *self = (struct np_py_array *)(void *)object;
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    int major = 0, minor = 0, copies;

    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "|$OOOO:__dlpack__", names, &stream, &max_version, &device, &copy) ||
        check_device(self, device) < 0)
        return NULL;
    if (max_version != Py_None &&
        parse_pair(max_version, "max_version: expected (major, minor)", &major, &minor) < 0)
        return NULL;
    copies = PyObject_IsTrue(copy); /* None: where it must be */
    if (copies < 0)
        return NULL;
    if (copies) {
        PyErr_SetString(PyExc_BufferError, "nnpipe gives its memory without a copy: copy=True");
        return NULL;
    }
    if (use_stream(self, stream) < 0)
        return NULL;
    return new_capsule(self, major >= 1);
}

PyObject *np_py_array_dlpack_device(PyObject *object, PyObject *none)
{
    struct np_py_array *self = (struct np_py_array *)(void *)object;

    return Py_BuildValue("(ii)", self->device, self->device_id);
}
