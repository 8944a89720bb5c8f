/* An array of a batch: images or labels. Python's buffer protocol and DLPack export it without a
 * copy. The array, each buffer view (through the array) and each DLPack tensor own the batch once. */
#include "loader/python/_nnpipe.h"

#include <string.h>

static const struct np_py_dtype dtypes[] = {
    {"uint8", "B", 1, 1},
    {"float32", "f", 2, 4},
    {"float16", "e", 2, 2},
    {"bfloat16", NULL, 4, 2},
    {"int64", "l", 0, 8},
};

const struct np_py_dtype *np_py_dtype_named(const char *name)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

struct np_py_array *np_py_array_new(PyObject *of, struct nnp_batch *batch)
{
    PyTypeObject *type = np_py_state_of(of)->array_type;
    struct np_py_array *self = (struct np_py_array *)(void *)PyType_GenericAlloc(type, 0);

    if (!self)
        return NULL;
    nnp_batch_retain(batch);
    self->batch = batch;
    self->device = NP_PY_CPU;
    return self;
}

static void end(PyObject *object)
{
    struct np_py_array *self = (struct np_py_array *)(void *)object;

    if (self->batch)
        nnp_batch_release(self->batch);
    np_py_free(object);
}

/* --- the buffer protocol ------------------------------------------------------------------------ */

static bool is_dense(const struct np_py_array *self)
{
    Py_ssize_t expected = self->dtype->bytes;

    for (int d = self->nr_dims - 1; d >= 0; d--) {
        if (self->shape[d] > 1 && self->strides[d] != expected)
            return false;
        expected *= self->shape[d];
    }
    return true;
}

static Py_ssize_t nr_bytes(const struct np_py_array *self)
{
    Py_ssize_t n = self->dtype->bytes;

    for (int d = 0; d < self->nr_dims; d++)
        n *= self->shape[d];
    return n;
}

/* Why the array cannot be given out as a buffer of this kind. NULL: it can. */
static const char *refusal(const struct np_py_array *self, int flags)
{
    const bool strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;

    if (self->device != NP_PY_CPU)
        return "the images are in GPU memory: use DLPack (torch.from_dlpack, cupy.from_dlpack)";
    if (!self->dtype->format)
        return "bfloat16 has no buffer format: use DLPack (torch.from_dlpack), or another dtype";
    if (!is_dense(self) && (!strided || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
                               (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS))
        return "the array is not contiguous in the order of its axes";
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && self->nr_dims > 1)
        return "the array is not contiguous in Fortran's order";
    return NULL;
}

static int get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    struct np_py_array *self = (struct np_py_array *)(void *)object;
    const char *why = refusal(self, flags);

    if (why) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, why);
        return -1;
    }
    *view = (Py_buffer){
        .buf = self->data,
        .obj = Py_NewRef(object),
        .len = nr_bytes(self),
        .itemsize = self->dtype->bytes,
        .ndim = flags & PyBUF_ND ? self->nr_dims : 1,
        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)self->dtype->format : NULL,
        .shape = flags & PyBUF_ND ? self->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL,
    };
    return 0;
}

/* --- NumPy and JAX by name ---------------------------------------------------------------------- */

/* NumPy asks for it where it got no buffer: the words that say why, instead of an array of one object. */
static PyObject *numpy_array(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dtype", "copy", NULL};
    const char *why = refusal((struct np_py_array *)(void *)object, PyBUF_FULL_RO);
    PyObject *dtype = Py_None, *copy = Py_None, *numpy, *array = NULL, *view;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", names, &dtype, &copy))
        return NULL;
    if (why) {
        PyErr_SetString(PyExc_BufferError, why);
        return NULL;
    }
    numpy = PyImport_ImportModule("numpy");
    view = numpy ? PyMemoryView_FromObject(object) : NULL;
    if (view)
        array =
            PyObject_CallMethod(numpy, copy == Py_True ? "array" : "asarray", "OO", view, dtype);
    Py_XDECREF(view);
    Py_XDECREF(numpy);
    return array;
}

/* jax.numpy.asarray() and array() ask for it. */
static PyObject *jax_array(PyObject *object, PyObject *none)
{
    PyObject *module = PyImport_ImportModule("jax.numpy"), *array = NULL;

    if (module)
        array = PyObject_CallMethod(module, "from_dlpack", "O", object);
    Py_XDECREF(module);
    return array;
}

/* --- attributes --------------------------------------------------------------------------------- */

static PyObject *tuple_of(const Py_ssize_t *values, int n)
{
    PyObject *tuple = PyTuple_New(n);

    for (int i = 0; tuple && i < n; i++) {
        PyObject *number = PyLong_FromSsize_t(values[i]);

        if (!number || PyTuple_SetItem(tuple, i, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *get_shape(PyObject *object, void *none)
{
    struct np_py_array *self = (struct np_py_array *)(void *)object;

    return tuple_of(self->shape, self->nr_dims);
}

static PyObject *get_strides(PyObject *object, void *none)
{
    struct np_py_array *self = (struct np_py_array *)(void *)object;

    return tuple_of(self->strides, self->nr_dims);
}

static PyObject *get_dtype(PyObject *object, void *none)
{
    return PyUnicode_FromString(((struct np_py_array *)(void *)object)->dtype->name);
}

static PyObject *get_nbytes(PyObject *object, void *none)
{
    return PyLong_FromSsize_t(nr_bytes((struct np_py_array *)(void *)object));
}

static Py_ssize_t length(PyObject *object)
{
    return ((struct np_py_array *)(void *)object)->shape[0];
}

static PyObject *represent(PyObject *object)
{
    struct np_py_array *self = (struct np_py_array *)(void *)object;
    PyObject *shape = get_shape(object, NULL), *text = NULL;

    if (shape)
        text = PyUnicode_FromFormat("<nnpipe array %S %s>", shape, self->dtype->name);
    Py_XDECREF(shape);
    return text;
}

static PyGetSetDef attributes[] = {
    {"shape", get_shape, NULL, "The length of each axis.", NULL},
    {"strides", get_strides, NULL, "Bytes from one element to the next along each axis.", NULL},
    {"dtype", get_dtype, NULL, "uint8, float32, float16, bfloat16 or int64.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))np_py_array_dlpack, METH_VARARGS | METH_KEYWORDS,
        "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
        "A DLPack capsule of the array, without a copy; as the Python array API has it.\n\n"
        "BufferError: a copy, or another device, is asked for."},
    {"__dlpack_device__", np_py_array_dlpack_device, METH_NOARGS,
        "__dlpack_device__()\n--\n\nThe device as DLPack numbers it: (1, 0) is the CPU."},
    {"__array__", (PyCFunction)(void (*)(void))numpy_array, METH_VARARGS | METH_KEYWORDS,
        "__array__(dtype=None, copy=None)\n--\n\n"
        "The array as NumPy's.\n\nBufferError: NumPy cannot read it (bfloat16, or GPU memory)."},
    {"__jax_array__", jax_array, METH_NOARGS,
        "__jax_array__()\n--\n\nThe array as JAX's, by DLPack; jax.numpy.asarray() calls it."},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
        "Images or labels of a batch.\n\n"
        "numpy.asarray(array), memoryview(array) and torch.from_dlpack(array) read and write its\n"
        "memory without a copy. The memory is used for another batch once the array and all that "
        "was\n"
        "made of it are gone."},
    {Py_tp_dealloc, end},
    {Py_tp_repr, represent},
    {Py_tp_getset, attributes},
    {Py_tp_methods, methods},
    {Py_sq_length, length},
    {Py_bf_getbuffer, get_buffer},
    {0},
};

PyType_Spec np_py_array_spec = {
    .name = "nnpipe._nnpipe.Array",
    .basicsize = sizeof(struct np_py_array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
