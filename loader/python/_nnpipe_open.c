/* Opens a loader: over a config's data, over files, over pixels. */
#include "loader/python/_nnpipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- lists of texts ----------------------------------------------------------------------------- */

struct texts {
    PyObject *list; /* of bytes objects, which own the items */
    const char **items;
    Py_ssize_t nr_items; /* items ends with a NULL */
};

static void end_texts(struct texts *texts)
{
    Py_CLEAR(texts->list);
    PyMem_Free(texts->items);
    texts->items = NULL;
}

/* sequence: of str, bytes or path objects. */
static int make_texts(PyObject *sequence, struct texts *texts)
{
    texts->list = PySequence_List(sequence);
    if (!texts->list)
        return -1;
    texts->nr_items = PyList_Size(texts->list);
    texts->items = PyMem_Calloc((size_t)texts->nr_items + 1, sizeof(*texts->items));
    if (!texts->items) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < texts->nr_items; i++) {
        PyObject *bytes;

        if (!PyUnicode_FSConverter(PyList_GetItem(texts->list, i), &bytes))
            return -1;
        texts->items[i] = PyBytes_AsString(bytes);
        if (PyList_SetItem(texts->list, i, bytes) < 0)
            return -1;
    }
    return 0;
}

/* --- a loader ----------------------------------------------------------------------------------- */

struct opening {
    const char *config, *folder;
    PyObject *options;
    int channels_last;
};

static struct np_py_loader *new_loader(PyObject *module, const struct opening *opening)
{
    PyTypeObject *type = np_py_state_of(module)->loader_type;
    struct np_py_loader *self = (struct np_py_loader *)(void *)PyType_GenericAlloc(type, 0);

    if (!self)
        return NULL;
    self->channels_last = opening->channels_last;
    self->device = NP_PY_CPU;
    return self;
}

/* The device of the images, as the last such option says. */
static void set_device(struct np_py_loader *self, const struct texts *options)
{
    for (Py_ssize_t i = 0; i < options->nr_items; i++)
        if (strncmp(options->items[i], "device=", strlen("device=")) == 0) {
            const char *colon = strchr(options->items[i], ':');

            self->device = strstr(options->items[i], "=cuda") ? NP_PY_CUDA : NP_PY_CPU;
            self->device_id = colon ? atoi(colon + 1) : 0;
        }
}

/* data: taken over; NULL: none. self: taken over. */
static PyObject *open_loader(PyObject *module, struct np_py_loader *self,
    const struct opening *opening, struct nnp_data *data)
{
    struct texts options = {0};
    char *error = PyMem_Calloc(1, NP_PY_ERROR_BYTES);
    int code = error ? make_texts(opening->options, &options) : -1;

    if (code < 0) {
        if (!error)
            PyErr_NoMemory();
        nnp_data_free(data);
        Py_CLEAR(self);
    } else {
        set_device(self, &options);
        Py_BEGIN_ALLOW_THREADS;
        code = nnp_open(opening->config, opening->folder, data, options.items, &self->loader, error,
            NP_PY_ERROR_BYTES);
        if (code < 0)
            nnp_data_free(data);
        Py_END_ALLOW_THREADS;
    }
    if (self && code < 0) {
        np_py_raise(module, code, error);
        Py_CLEAR(self);
    }
    end_texts(&options);
    PyMem_Free(error);
    return (PyObject *)self;
}

PyObject *np_py_open(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"config", "folder", "options", "channels_last", NULL};
    struct opening opening = {0};
    struct np_py_loader *self;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "szO|p:open", names, &opening.config,
            &opening.folder, &opening.options, &opening.channels_last))
        return NULL;
    self = new_loader(module, &opening);
    return self ? open_loader(module, self, &opening, NULL) : NULL;
}

/* --- over the program's data -------------------------------------------------------------------- */

/* labels: a buffer of n int64. */
static int check_labels(const Py_buffer *labels, Py_ssize_t n)
{
    if (labels->len == n * (Py_ssize_t)sizeof(int64_t))
        return 0;
    PyErr_Format(PyExc_ValueError, "labels: expected %zd int64, one for each sample, not %zd bytes",
        n, labels->len);
    return -1;
}

/* The code of a failure whose text the library has given without one. */
static PyObject *raise_data(PyObject *module, const char *error)
{
    return np_py_raise(module, strstr(error, "out of memory") ? -ENOMEM : -EINVAL, error);
}

static struct nnp_data *new_files(PyObject *module, const char *root, const struct texts *paths,
    const Py_buffer *labels, const struct texts *classes)
{
    struct nnp_data *data;
    char error[1024] = "";

    if (check_labels(labels, paths->nr_items) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    data = nnp_data_files(root, paths->items, labels->buf, (uint64_t)paths->nr_items,
        classes->items, (int)classes->nr_items, error, sizeof(error));
    Py_END_ALLOW_THREADS;
    if (!data)
        raise_data(module, error);
    return data;
}

PyObject *np_py_open_files(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "config", "folder", "options", "root", "paths", "labels", "classes", "channels_last", NULL};
    struct opening opening = {0};
    struct texts paths = {0}, classes = {0};
    PyObject *path_list, *class_list = NULL, *root = NULL, *result = NULL;
    struct np_py_loader *self;
    struct nnp_data *data = NULL;
    Py_buffer labels;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "szOO&Oy*|Op:open_files", names, &opening.config,
            &opening.folder, &opening.options, PyUnicode_FSConverter, &root, &path_list, &labels,
            &class_list, &opening.channels_last))
        return NULL;
    self = new_loader(module, &opening);
    if (self && make_texts(path_list, &paths) == 0 &&
        (!class_list || make_texts(class_list, &classes) == 0))
        data = new_files(module, PyBytes_AsString(root), &paths, &labels, &classes);
    if (data)
        result = open_loader(module, self, &opening, data);
    else
        Py_XDECREF((PyObject *)self);
    end_texts(&paths);
    end_texts(&classes);
    PyBuffer_Release(&labels);
    Py_DECREF(root);
    return result;
}

static struct nnp_data *new_extents(
    PyObject *module, const struct texts *paths, const Py_buffer *extents, const Py_buffer *labels)
{
    const Py_ssize_t n = extents->len / (Py_ssize_t)sizeof(struct nnp_extent);
    struct nnp_data *data;
    char error[1024] = "";

    if (extents->len % (Py_ssize_t)sizeof(struct nnp_extent)) {
        PyErr_SetString(PyExc_ValueError, "extents: expected uint64 (samples, 3)");
        return NULL;
    }
    if (check_labels(labels, n) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    data = nnp_data_extents(paths->items, (uint64_t)paths->nr_items, extents->buf, labels->buf,
        (uint64_t)n, error, sizeof(error));
    Py_END_ALLOW_THREADS;
    if (!data)
        raise_data(module, error);
    return data;
}

PyObject *np_py_open_extents(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "config", "folder", "options", "paths", "extents", "labels", "channels_last", NULL};
    struct opening opening = {0};
    struct texts paths = {0};
    PyObject *path_list, *result = NULL;
    struct np_py_loader *self;
    struct nnp_data *data = NULL;
    Py_buffer extents, labels;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "szOOy*y*|p:open_extents", names,
            &opening.config, &opening.folder, &opening.options, &path_list, &extents, &labels,
            &opening.channels_last))
        return NULL;
    self = new_loader(module, &opening);
    if (self && make_texts(path_list, &paths) == 0)
        data = new_extents(module, &paths, &extents, &labels);
    if (data)
        result = open_loader(module, self, &opening, data);
    else
        Py_XDECREF((PyObject *)self);
    end_texts(&paths);
    PyBuffer_Release(&extents);
    PyBuffer_Release(&labels);
    return result;
}

static struct nnp_data *new_pixels(
    PyObject *module, const Py_buffer *pixels, const Py_buffer *labels)
{
    const Py_ssize_t *shape = pixels->shape;
    struct nnp_data *data;
    char error[1024] = "";

    if (pixels->ndim != 4 || pixels->itemsize != 1 || shape[1] > INT16_MAX ||
        shape[2] > INT16_MAX || shape[3] > 4 || shape[1] < 1 || shape[2] < 1 || shape[3] < 1) {
        PyErr_SetString(
            PyExc_ValueError, "pixels: expected uint8 (samples, height, width, channels)");
        return NULL;
    }
    if (check_labels(labels, shape[0]) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    data = nnp_data_pixels(pixels->buf, (uint64_t)shape[0], (int)shape[1], (int)shape[2],
        (int)shape[3], labels->buf, error, sizeof(error));
    Py_END_ALLOW_THREADS;
    if (!data)
        raise_data(module, error);
    return data;
}

PyObject *np_py_open_pixels(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "config", "folder", "options", "pixels", "labels", "channels_last", NULL};
    struct opening opening = {0};
    struct np_py_loader *self;
    struct nnp_data *data = NULL;
    PyObject *pixels, *result = NULL;
    Py_buffer labels;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "szOOy*|p:open_pixels", names, &opening.config,
            &opening.folder, &opening.options, &pixels, &labels, &opening.channels_last))
        return NULL;
    self = new_loader(module, &opening);
    if (self && PyObject_GetBuffer(pixels, &self->pixels, PyBUF_ND) == 0) {
        self->has_pixels = true;
        data = new_pixels(module, &self->pixels, &labels);
    }
    if (data)
        result = open_loader(module, self, &opening, data);
    else
        Py_XDECREF((PyObject *)self);
    PyBuffer_Release(&labels);
    return result;
}
