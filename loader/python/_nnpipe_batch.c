/* A batch: what the program gets of nnp_next(). It owns the memory once; its arrays own it, too. */
#include "loader/python/_nnpipe.h"

#include <string.h>

struct np_py_batch {
    PyObject_HEAD struct nnp_batch *batch;
    const struct np_py_dtype *dtype;
    int64_t shape[4]; /* rows, height, width, channels */
    int nr_values;    /* of a label; 0: a class */
    bool planar, channels_last;
    int device, device_id;
};

static struct np_py_batch *batch_of(PyObject *object)
{
    return (struct np_py_batch *)(void *)object;
}

PyObject *np_py_batch_new(struct np_py_loader *loader, struct nnp_batch *batch)
{
    PyTypeObject *type = np_py_state_of((PyObject *)loader)->batch_type;
    struct np_py_batch *self = batch_of(PyType_GenericAlloc(type, 0));

    if (!self) {
        nnp_batch_release(batch);
        return NULL;
    }
    self->batch = batch;
    self->dtype = np_py_dtype_named(nnp_dtype(loader->loader));
    nnp_shape(loader->loader, self->shape);
    self->nr_values = nnp_nr_values(loader->loader);
    self->shape[0] = nnp_batch_rows(batch);
    self->planar = strcmp(nnp_layout(loader->loader), "nchw") == 0;
    self->channels_last = loader->channels_last;
    self->device = loader->device;
    self->device_id = loader->device_id;
    return (PyObject *)self;
}

static void end(PyObject *object)
{
    if (batch_of(object)->batch)
        nnp_batch_release(batch_of(object)->batch);
    np_py_free(object);
}

/* --- arrays ------------------------------------------------------------------------------------- */

/* The axis of the memory, (rows, height, width, channels) or, if planar, (rows, channels, height,
 * width), that each axis of the array is. */
static const int *order_of(const struct np_py_batch *self)
{
    static const int same[] = {0, 1, 2, 3}, channels_second[] = {0, 3, 1, 2};

    return self->channels_last && !self->planar ? channels_second : same;
}

static PyObject *get_images(PyObject *object, void *none)
{
    const struct np_py_batch *self = batch_of(object);
    const int64_t *s = self->shape;
    const int64_t packed[] = {s[0], s[1], s[2], s[3]}, planar[] = {s[0], s[3], s[1], s[2]};
    const int64_t *memory = self->planar ? planar : packed;
    struct np_py_array *array = np_py_array_new(object, self->batch);
    Py_ssize_t strides[4], bytes = self->dtype->bytes;

    if (!array)
        return NULL;
    for (int d = 3; d >= 0; d--) {
        strides[d] = bytes;
        bytes *= (Py_ssize_t)memory[d];
    }
    for (int d = 0; d < 4; d++) {
        array->shape[d] = (Py_ssize_t)memory[order_of(self)[d]];
        array->strides[d] = strides[order_of(self)[d]];
    }
    array->nr_dims = 4;
    array->data = nnp_batch_images(self->batch);
    array->dtype = self->dtype;
    array->device = self->device;
    array->device_id = self->device_id;
    return (PyObject *)array;
}

static PyObject *get_labels(PyObject *object, void *none)
{
    const struct np_py_batch *self = batch_of(object);
    struct np_py_array *array = np_py_array_new(object, self->batch);
    const bool values = self->nr_values > 0;

    if (!array)
        return NULL;
    array->nr_dims = values ? 2 : 1;
    array->dtype = np_py_dtype_named(values ? "float32" : "int64");
    array->shape[0] = (Py_ssize_t)self->shape[0];
    array->shape[1] = self->nr_values;
    array->strides[0] = array->dtype->bytes * (values ? self->nr_values : 1);
    array->strides[1] = array->dtype->bytes;
    array->data = values ? (void *)nnp_batch_values(self->batch) : nnp_batch_labels(self->batch);
    return (PyObject *)array;
}

/* --- about the batch ---------------------------------------------------------------------------- */

static PyObject *get_rows(PyObject *object, void *none)
{
    return PyLong_FromLong(nnp_batch_rows(batch_of(object)->batch));
}

static PyObject *get_epoch(PyObject *object, void *none)
{
    return PyLong_FromUnsignedLongLong(nnp_batch_epoch(batch_of(object)->batch));
}

static PyObject *get_number(PyObject *object, void *none)
{
    return PyLong_FromUnsignedLongLong(nnp_batch_number(batch_of(object)->batch));
}

static PyObject *get_nr_bad(PyObject *object, void *none)
{
    return PyLong_FromLong(nnp_batch_nr_bad(batch_of(object)->batch));
}

static PyObject *get_samples(PyObject *object, void *none)
{
    struct nnp_batch *batch = batch_of(object)->batch;
    const int n = nnp_batch_rows(batch);
    PyObject *list = PyList_New(n);

    for (int r = 0; list && r < n; r++) {
        const uint64_t sample = nnp_batch_sample(batch, r);
        PyObject *item =
            sample == UINT64_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(sample);

        if (!item || PyList_SetItem(list, r, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyGetSetDef attributes[] = {
    {"images", get_images, NULL, "The images, an Array of 4 axes.", NULL},
    {"labels", get_labels, NULL,
        "The labels, an Array of int64 (rows), -1: no class; of several classes or numbers, of "
        "float32 "
        "(rows, values), NaN: the row was bad.",
        NULL},
    {"rows", get_rows, NULL, "The number of rows.", NULL},
    {"epoch", get_epoch, NULL, "The epoch, from 0.", NULL},
    {"number", get_number, NULL, "The batch's number in its epoch, from 0.", NULL},
    {"nr_bad", get_nr_bad, NULL, "Rows whose sample is bad and was not replaced.", NULL},
    {"samples", get_samples, NULL, "The sample of each row; None: it was bad.", NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A batch of a loader."},
    {Py_tp_dealloc, end},
    {Py_tp_getset, attributes},
    {0},
};

PyType_Spec np_py_batch_spec = {
    .name = "nnpipe._nnpipe.Batch",
    .basicsize = sizeof(struct np_py_batch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
