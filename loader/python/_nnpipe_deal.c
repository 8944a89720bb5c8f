/* Dealt order: the calls that give nnpipe.like() the rows of a torch DataLoader. */
#include "loader/python/_nnpipe.h"

#include <errno.h>

/* The thread's state while it is in the library without the GIL; the library calls back in the thread
 * that called it. */
static _Thread_local PyThreadState *waiting;

void np_py_ask_begin(void)
{
    waiting = PyEval_SaveThread();
}

int np_py_ask_end(struct np_py_loader *self)
{
    PyEval_RestoreThread(waiting);
    if (!self->raised)
        return 0;
    PyErr_Restore(self->raised, self->raised_value, self->raised_at);
    self->raised = self->raised_value = self->raised_at = NULL;
    return -1;
}

/* After one of them has raised, the result does not matter: the call ends with the exception. */
static float ask(struct np_py_loader *self, PyObject *function, float x)
{
    double value = 0;
    PyObject *result;

    PyEval_RestoreThread(waiting);
    if (!self->raised) {
        result = PyObject_CallFunction(function, "d", (double)x);
        value = result ? PyFloat_AsDouble(result) : 0;
        Py_XDECREF(result);
        if (PyErr_Occurred())
            PyErr_Fetch(&self->raised, &self->raised_value, &self->raised_at);
    }
    waiting = PyEval_SaveThread();
    return (float)value;
}

static float ask_exp(void *context, float x)
{
    return ask(context, ((struct np_py_loader *)context)->exp, x);
}

static float ask_log(void *context, float x)
{
    return ask(context, ((struct np_py_loader *)context)->log, x);
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
    if (np_py_ask_end(self) < 0) {
        np_py_leave(self);
        PyBuffer_Release(&samples);
        return NULL;
    }
    PyBuffer_Release(&samples);
    return left(self, code);
}

PyObject *np_py_deal_state(PyObject *object, PyObject *state)
{
    struct np_py_loader *self = (struct np_py_loader *)(void *)object;
    struct nnp_loader *loader;
    Py_buffer buffer;
    int code;

    if (PyObject_GetBuffer(state, &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    loader = np_py_enter(self);
    if (!loader) {
        PyBuffer_Release(&buffer);
        return NULL;
    }
    np_py_ask_begin(); /* a guess that is taken back may draw again */
    code = nnp_deal_state(loader, buffer.buf, (size_t)buffer.len);
    if (np_py_ask_end(self) < 0) {
        np_py_leave(self);
        PyBuffer_Release(&buffer);
        return NULL;
    }
    PyBuffer_Release(&buffer);
    return left(self, code);
}

PyObject *np_py_deal_after(PyObject *object, PyObject *state)
{
    struct np_py_loader *self = (struct np_py_loader *)(void *)object;
    struct nnp_loader *loader;
    Py_buffer buffer;
    int code;

    if (PyObject_GetBuffer(state, &buffer, PyBUF_WRITABLE) < 0)
        return NULL;
    loader = np_py_enter(self);
    if (!loader) {
        PyBuffer_Release(&buffer);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = nnp_deal_after(loader, buffer.buf, (size_t)buffer.len);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&buffer);
    if (code < 0) {
        np_py_leave(self);
        return np_py_raise(object, code, "deal_after(): expected a state of torch's generator");
    }
    return left(self, code);
}
