/* The module nnpipe._nnpipe: its functions, types and exceptions. The package's Python files are its
 * callers; users see nnpipe.Loader. */
#include "loader/python/_nnpipe.h"

#include <errno.h>

struct np_py_state *np_py_state_of(PyObject *of)
{
    return PyModule_Check(of) ? PyModule_GetState(of) : PyType_GetModuleState(Py_TYPE(of));
}

void np_py_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    release(object);
    Py_DECREF(type);
}

PyObject *np_py_raise(PyObject *of, int code, const char *text)
{
    struct np_py_state *state = np_py_state_of(of);
    PyObject *type = NULL, *arguments;

    switch (-code) {
    case EINVAL: type = PyExc_ValueError; break;
    case ENOMEM: type = PyExc_MemoryError; break;
    case EBUSY: type = state->held_error; break;
    case EBADMSG: type = state->data_error; break;
    case ENOTSUP: type = PyExc_NotImplementedError; break;
    case ECHILD:
    case ESHUTDOWN: type = PyExc_RuntimeError; break;
    default: break;
    }
    if (type) {
        PyErr_SetString(type, text);
        return NULL;
    }
    arguments = Py_BuildValue("is", -code, text);
    if (arguments)
        PyErr_SetObject(PyExc_OSError, arguments);
    Py_XDECREF(arguments);
    return NULL;
}

/* --- the module --------------------------------------------------------------------------------- */

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);

    if (type && PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

static PyObject *add_exception(PyObject *module, const char *name, const char *doc, PyObject *base)
{
    PyObject *type = PyErr_NewExceptionWithDoc(name, doc, base, NULL);

    if (type && PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(type);
    return type;
}

/* No call of Python's while an exception is set. */
static bool add_types(PyObject *module, struct np_py_state *state)
{
    return (state->loader_type = add_type(module, &np_py_loader_spec)) &&
           (state->batch_type = add_type(module, &np_py_batch_spec)) &&
           (state->array_type = add_type(module, &np_py_array_spec));
}

static int begin(PyObject *module)
{
    struct np_py_state *state = PyModule_GetState(module);

    state->held_error = add_exception(module, "nnpipe.HeldError",
        "The program holds as many batches as `held` allows, and asks for one more.\n\n"
        "Each tensor, array or view of a batch keeps the batch's memory. Copy what you keep (in "
        "torch\n"
        "images.clone(), in NumPy images.copy()), or open the loader with a larger `held`.",
        PyExc_BufferError);
    if (!state->held_error)
        return -1;
    state->data_error = add_exception(module, "nnpipe.DataError",
        "More samples are bad than the config's policy (loader.bad_samples) allows.",
        PyExc_RuntimeError);
    if (!state->data_error || !add_types(module, state))
        return -1;
    return PyModule_AddStringConstant(module, "version", nnp_version());
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    struct np_py_state *state = PyModule_GetState(module);

    Py_VISIT(state->held_error);
    Py_VISIT(state->data_error);
    Py_VISIT(state->loader_type);
    Py_VISIT(state->batch_type);
    Py_VISIT(state->array_type);
    return 0;
}

static int clear(PyObject *module)
{
    struct np_py_state *state = PyModule_GetState(module);

    Py_CLEAR(state->held_error);
    Py_CLEAR(state->data_error);
    Py_CLEAR(state->loader_type);
    Py_CLEAR(state->batch_type);
    Py_CLEAR(state->array_type);
    return 0;
}

static PyMethodDef functions[] = {
    {"open", (PyCFunction)(void (*)(void))np_py_open, METH_VARARGS | METH_KEYWORDS,
        "open(config, folder, options, channels_last=False)\n--\n\n"
        "Opens a loader; options: a list of \"key=value\", as nnp_open() has them."},
    {"open_files", (PyCFunction)(void (*)(void))np_py_open_files, METH_VARARGS | METH_KEYWORDS,
        "open_files(config, folder, options, root, paths, labels, classes=(), "
        "channels_last=False)\n--\n\n"
        "The same over files, relative to root; labels: a buffer of int64, one each."},
    {"open_extents", (PyCFunction)(void (*)(void))np_py_open_extents, METH_VARARGS | METH_KEYWORDS,
        "open_extents(config, folder, options, paths, extents, labels, channels_last=False)\n--\n\n"
        "The same over parts of files; extents: a buffer of uint64 (samples, 3): the file's place "
        "in\n"
        "paths, offset and bytes; labels: a buffer of int64, one each."},
    {"open_pixels", (PyCFunction)(void (*)(void))np_py_open_pixels, METH_VARARGS | METH_KEYWORDS,
        "open_pixels(config, folder, options, pixels, labels, channels_last=False)\n--\n\n"
        "The same over pixels: a contiguous buffer of uint8 (samples, height, width, channels), "
        "kept\n"
        "until the loader is closed; labels: a buffer of int64, one each."},
    {0},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, begin}, {0}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "nnpipe._nnpipe",
    .m_doc = "The C half of nnpipe. Programs use the package nnpipe.",
    .m_size = sizeof(struct np_py_state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__nnpipe(void); /* called by Python's import */
PyMODINIT_FUNC PyInit__nnpipe(void)
{
    return PyModuleDef_Init(&definition);
}
