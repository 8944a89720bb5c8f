/* The parts of nnpipe._nnpipe, the Python extension over loader/nnpipe.h, for the files of this room.
 * It stays within the stable ABI of CPython 3.11. Each function wants the GIL, unless its comment
 * says otherwise; where one waits for the library, it releases the GIL. An object returned is a new
 * reference; NULL, or -1: an exception is set. */
#ifndef NP_PYTHON_H
#define NP_PYTHON_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "loader/nnpipe.h"

#define NP_PY_MAX_DIMS    4
#define NP_PY_ERROR_BYTES 16384

/* --- the module (_nnpipe.c) --------------------------------------------------------------------- */

struct np_py_state {
    PyObject *held_error, *data_error;
    PyTypeObject *loader_type, *batch_type, *array_type;
};
/* of: the module, or an object of one of its types. */
struct np_py_state *np_py_state_of(PyObject *of);
/* Sets the exception of a negative errno of the library. Returns NULL. */
PyObject *np_py_raise(PyObject *of, int code, const char *text);
/* Frees an object of one of our types, and lets go of the type. */
void np_py_free(PyObject *object);

/* --- arrays of a batch (_nnpipe_array.c, _nnpipe_dlpack.c) --------------------------------------- */

struct np_py_dtype {
    const char *name, *format; /* of the struct module; NULL: it has none */
    int dl_code;               /* of DLPack */
    int bytes;
};
const struct np_py_dtype *np_py_dtype_named(const char *name); /* NULL: there is none */

enum np_py_device { NP_PY_CPU = 1, NP_PY_CUDA = 2 }; /* as DLPack numbers them */

struct np_py_array {
    PyObject_HEAD struct nnp_batch *batch; /* one of its owners */
    void *data;
    const struct np_py_dtype *dtype;
    int nr_dims;
    Py_ssize_t shape[NP_PY_MAX_DIMS], strides[NP_PY_MAX_DIMS]; /* strides in bytes */
    int device, device_id;                                     /* enum np_py_device */
};
/* An array without data, whose batch is one more time owned. */
struct np_py_array *np_py_array_new(PyObject *of, struct nnp_batch *batch);
PyObject *np_py_array_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *np_py_array_dlpack_device(PyObject *self, PyObject *none);

/* --- the loader (_nnpipe_loader.c, _nnpipe_open.c, _nnpipe_deal.c) -------------------------------- */

struct np_py_loader {
    PyObject_HEAD struct nnp_loader *loader; /* NULL: closed */
    int nr_users; /* calls that run; the last one closes a loader that is closing */
    bool closing;
    bool has_pixels, channels_last;
    Py_buffer pixels; /* has_pixels: the set, until the loader is closed */
    int device, device_id;
    PyObject *exp, *log; /* of nnp_deal() */
};
/* Begins a call: the library's loader, which stays until np_py_leave(). */
struct nnp_loader *np_py_enter(struct np_py_loader *self);
void np_py_leave(struct np_py_loader *self);
/* The loader's exception; within a call. */
PyObject *np_py_raise_last(struct np_py_loader *self, int code);
/* A batch of this loader, which takes over the one ownership. */
PyObject *np_py_batch_new(struct np_py_loader *loader, struct nnp_batch *batch);

/* Functions of the module. */
PyObject *np_py_open(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *np_py_open_files(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *np_py_open_extents(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *np_py_open_pixels(PyObject *module, PyObject *args, PyObject *kwargs);

/* Around a call that may ask the program for exp and log: releases the GIL, and takes it again.
 * np_py_ask_end() returns -1 if one of them raised. */
void np_py_ask_begin(void);
int np_py_ask_end(void);
/* Methods of the loader. */
PyObject *np_py_deal(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *np_py_deal_epoch(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *np_py_deal_state(PyObject *self, PyObject *state);
PyObject *np_py_deal_after(PyObject *self, PyObject *state);

extern PyType_Spec np_py_loader_spec, np_py_batch_spec, np_py_array_spec;

#endif
