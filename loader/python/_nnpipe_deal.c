/* Dealt order: the calls that give nnpipe.like() the rows of a torch DataLoader. */
#include "loader/python/_nnpipe.h"

#include <math.h>

/* The thread's call in the library, where it has no GIL; the library calls back in the same thread. */
static _Thread_local struct {
    PyThreadState *waiting;
    PyObject *raised, *value, *at; /* by exp or log; NULL: nothing */
} call;

void np_py_ask_begin(void)
{
    call.waiting = PyEval_SaveThread();
}

int np_py_ask_end(void)
{
    PyEval_RestoreThread(call.waiting);
    if (!call.raised)
        return 0;
    PyErr_Restore(call.raised, call.value, call.at);
    call.raised = call.value = call.at = NULL;
    return -1;
}

/* Not a number: the function has raised, and the library ends the call. */
static float ask(PyObject *function, float x)
{
    double value = NAN;
    PyObject *result;

    if (call.raised)
        return NAN;
    PyEval_RestoreThread(call.waiting);
    result = PyObject_CallFunction(function, "d", (double)x);
    if (result)
        value = PyFloat_AsDouble(result);
    Py_XDECREF(result);
    if (PyErr_Occurred()) {
        PyErr_Fetch(&call.raised, &call.value, &call.at);
        value = NAN;
    }
    call.waiting = PyEval_SaveThread();
    return (float)value;
}

static float ask_exp(void *context, float x)
{
    return ask(((struct np_py_loader *)context)->exp, x);
}

static float ask_log(void *context, float x)
{
    return ask(((struct np_py_loader *)context)->log, x);
}

/* The result of a call that has ended with `code`. */
static PyObject *left(struct np_py_loader *self, int code)
{
    if (code < 0)
        np_py_raise_last(self, code);
    np_py_leave(self);
    return code < 0 ? NULL : Py_NewRef(Py_None);
}

static int check_bytes(const Py_buffer *buffer, Py_ssize_t bytes, const char *name)
{
    if (buffer->len == bytes)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s: expected %zd bytes, not %zd", name, bytes, buffer->len);
    return -1;
}

/* --- deal() ------------------------------------------------------------------------------------- */

static PyObject *deal(
    struct np_py_loader *self, struct nnp_deal *deal, PyObject *exp, PyObject *log)
{
    struct nnp_loader *loader = np_py_enter(self);
    int code;

    if (!loader)
        return NULL;
    deal->bytes = sizeof(*deal);
    deal->exp = ask_exp;
    deal->log = ask_log;
    deal->context = self;
    Py_BEGIN_ALLOW_THREADS;
    code = nnp_deal(loader, deal);
    Py_END_ALLOW_THREADS;
    if (code == 0) {
        self->exp = Py_NewRef(exp);
        self->log = Py_NewRef(log);
    }
    return left(self, code);
}

PyObject *np_py_deal(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"workers", "version", "exp", "log", "probes", "values", NULL};
    struct np_py_loader *self = (struct np_py_loader *)(void *)object;
    Py_buffer probes = {0}, values = {0};
    PyObject *exp, *log, *result = NULL;
    struct nnp_deal what = {0};
    int64_t shape[4] = {0};

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiOOy*|z*:deal", names, &what.workers,
            &what.transforms_version, &exp, &log, &probes, &values))
        return NULL;
    if (self->loader)
        nnp_shape(self->loader, shape);
    if (check_bytes(&probes, NNP_DEAL_PROBES * 4, "probes") == 0 &&
        (!values.buf || check_bytes(&values, (Py_ssize_t)shape[3] * 256 * 4, "values") == 0)) {
        what.probes = probes.buf;
        what.values = values.buf;
        result = deal(self, &what, exp, log);
    }
    PyBuffer_Release(&probes);
    if (values.buf)
        PyBuffer_Release(&values);
    return result;
}

/* --- epochs ------------------------------------------------------------------------------------- */

PyObject *np_py_deal_epoch(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"samples", "base_seed", "continues", "nr_skipped", NULL};
    struct np_py_loader *self = (struct np_py_loader *)(void *)object;
    unsigned long long base_seed = 0, nr_skipped = 0;
    struct nnp_loader *loader;
    Py_buffer samples;
    int continues = 0, code;
    bool raised;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|KpK:deal_epoch", names, &samples, &base_seed,
            &continues, &nr_skipped))
        return NULL;
    loader = np_py_enter(self);
    if (!loader || samples.len % 8) {
        if (loader) {
            PyErr_SetString(PyExc_ValueError, "samples: expected int64");
            np_py_leave(self);
        }
        PyBuffer_Release(&samples);
        return NULL;
    }
    np_py_ask_begin();
    code = nnp_deal_epoch(
        loader, samples.buf, (uint64_t)samples.len / 8, base_seed, continues, nr_skipped);
    raised = np_py_ask_end() < 0;
    PyBuffer_Release(&samples);
    if (!raised)
        return left(self, code);
    np_py_leave(self);
    return NULL;
}

/* --- the program's generator -------------------------------------------------------------------- */

/* after: the state is written, else read. */
static PyObject *with_state(PyObject *object, PyObject *state, bool after)
{
    struct np_py_loader *self = (struct np_py_loader *)(void *)object;
    struct nnp_loader *loader;
    Py_buffer buffer;
    int code;

    if (PyObject_GetBuffer(state, &buffer, after ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
        return NULL;
    loader = np_py_enter(self);
    if (!loader) {
        PyBuffer_Release(&buffer);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = after ? nnp_deal_after(loader, buffer.buf, (size_t)buffer.len)
                 : nnp_deal_state(loader, buffer.buf, (size_t)buffer.len);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&buffer);
    return left(self, code);
}

PyObject *np_py_deal_state(PyObject *object, PyObject *state)
{
    return with_state(object, state, false);
}

PyObject *np_py_deal_after(PyObject *object, PyObject *state)
{
    return with_state(object, state, true);
}
