/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"

#include <stddef.h>
#include <string.h>

#define SLICE_MS 100 // a wait looks at signals this often

struct loader {
    PyObject ob_base;
    FlLoader *loader;
    struct native_gate gate; // closed when loader is
    PyObject *log;
};

/* The loader, open until leave(); NULL with an exception. */
static FlLoader *enter(PyObject *object)
{
    struct loader *self = (struct loader *)object;

    if (native_gate_enter(&self->gate))
        return self->loader;
    PyErr_SetString(PyExc_ValueError, "the loader is closed");
    return NULL;
}

static void leave(PyObject *object)
{
    native_gate_leave(&((struct loader *)object)->gate);
}

/* One part of a mixture: (dataset, weight, subset or None, exclude or None). The dataset stays open until
 * leave_parts(). */
static int get_part(struct native_state *st, PyObject *tuple, FlPart *part, PyObject *keep)
{
    PyObject *ds, *subset, *exclude;

    if (!PyArg_ParseTuple(tuple, "OdOO", &ds, &part->weight, &subset, &exclude))
        return -1;
    if (subset != Py_None &&
        native_array(subset, 8, (const void **)&part->subset, &part->n_subset, keep))
        return -1;
    if (exclude != Py_None &&
        native_array(exclude, 8, (const void **)&part->exclude, &part->n_exclude, keep))
        return -1;
    part->dataset = native_dataset_enter(st, ds);
    return part->dataset ? 0 : -1;
}

static void leave_parts(PyObject *list, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        native_dataset_leave(PyTuple_GetItem(PyList_GetItem(list, i), 0));
}

/* *n parts are filled, also when it fails. */
static int get_parts(struct native_state *st, PyObject *list, FlPart parts[16], int32_t *n,
                     PyObject *keep)
{
    const Py_ssize_t len = PyList_Size(list);

    if (len < 1 || len > 16) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "1 to 16 datasets can be mixed");
        return -1;
    }
    while (*n < len) {
        if (get_part(st, PyList_GetItem(list, *n), &parts[*n], keep))
            return -1;
        ++*n;
    }
    return 0;
}

static FlLoader *open_loader(struct native_state *st, PyObject *list, PyObject *settings,
                             PyObject *columns, PyObject *log, bool evaluation)
{
    FlPart parts[16] = { { 0 } };
    PyObject *keep = PyList_New(0); // memory that the settings point into, until open has copied it
    FlLoader *loader = NULL;
    int32_t n = 0;
    FlConfig cfg;
    int err;

    if (!keep)
        return NULL;
    if (!get_parts(st, list, parts, &n, keep) &&
        !native_config(&cfg, settings, columns, evaluation, keep)) {
        cfg.log = log == Py_None ? NULL : native_log;
        cfg.log_cookie = log;
        Py_BEGIN_ALLOW_THREADS err = fl_loader_open_mixture(&loader, parts, n, &cfg);
        Py_END_ALLOW_THREADS if (err) native_raise(st);
    }
    leave_parts(list, n);
    Py_DECREF(keep);
    return loader;
}

static PyObject *loader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keys[] = { "parts", "settings", "columns", "log", "evaluation", NULL };
    struct native_state *st = PyType_GetModuleState(type);
    PyObject *parts, *settings, *columns, *log = Py_None;
    int evaluation = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|Op", keys, &parts, &settings, &columns,
                                     &log, &evaluation))
        return NULL;
    struct loader *self = (struct loader *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    self->log = Py_NewRef(log);
    self->loader = open_loader(st, parts, settings, columns, log, evaluation);
    if (!self->loader) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void close_loader(struct loader *self)
{
    FlLoader *l = self->loader;

    self->loader = NULL;
    if (!l)
        return;
    Py_BEGIN_ALLOW_THREADS fl_loader_close(
        &l); // threads of ours may be waiting for the interpreter's lock to log
    Py_END_ALLOW_THREADS
}

static void loader_dealloc(PyObject *object)
{
    struct loader *self = (struct loader *)object;
    PyTypeObject *type = Py_TYPE(object);

    close_loader(self);
    Py_CLEAR(self->log);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *loader_close(PyObject *self, PyObject *unused)
{
    struct loader *l = (struct loader *)self;

    (void)unused;
    if (native_gate_close(&l->gate)) {
        Py_BEGIN_ALLOW_THREADS native_gate_wait(&l->gate); // a wait in next() ends within a slice
        Py_END_ALLOW_THREADS close_loader(l);
    }
    Py_RETURN_NONE;
}

/* Wait without the interpreter's lock, in slices between which signals and close() are looked at. EAGAIN: the
 * time is over, or the loader is being closed, or an exception is set. */
static int wait_next(struct loader *self, FlBatch *batch, void *stream, long long timeout_ms)
{
    FlLoader *l = self->loader;
    long long slice = 0;
    int err;

    do {
        slice = timeout_ms < 0 || timeout_ms > SLICE_MS ? SLICE_MS : timeout_ms;
        Py_BEGIN_ALLOW_THREADS err = fl_loader_next_timeout(l, batch, stream, slice);
        Py_END_ALLOW_THREADS if (timeout_ms >= 0) timeout_ms -= slice;
    } while (err == FL_ERR(EAGAIN) && !PyErr_CheckSignals() && timeout_ms &&
             !native_gate_closed(&self->gate));
    return err;
}

/* next(stream, timeout_ms=-1): the next batch, or None at the end of an epoch. */
static PyObject *loader_next(PyObject *self, PyObject *args)
{
    struct native_state *st = native_state_of(self);
    unsigned long long stream;
    long long timeout_ms = -1;
    FlBatch batch = { 0 };

    if (!PyArg_ParseTuple(args, "K|L", &stream, &timeout_ms))
        return NULL;
    if (!enter(self))
        return NULL;
    const int err = wait_next((struct loader *)self, &batch, (void *)(uintptr_t)stream, timeout_ms);
    const bool closed = native_gate_closed(&((struct loader *)self)->gate);
    leave(self);
    if (PyErr_Occurred()) {
        if (!err)
            fl_batch_release(&batch, (void *)(uintptr_t)stream);
        return NULL;
    }
    if (err == FL_EPOCH_END)
        Py_RETURN_NONE;
    if (err == FL_ERR(EAGAIN) && closed) {
        PyErr_SetString(PyExc_ValueError, "the loader was closed by another thread");
        return NULL;
    }
    if (err == FL_ERR(EAGAIN)) {
        PyErr_SetString(PyExc_TimeoutError, "no batch was ready in time");
        return NULL;
    }
    return err ? native_raise(st) : native_batch_new(st, &batch, (void *)(uintptr_t)stream);
}

static PyObject *loader_batches(PyObject *self, PyObject *unused)
{
    FlLoader *l = enter(self);

    (void)unused;
    if (!l)
        return NULL;
    const int64_t n = fl_loader_batches(l);
    leave(self);
    return PyLong_FromLongLong(n);
}

static PyObject *loader_samples(PyObject *self, PyObject *unused)
{
    FlLoader *l = enter(self);

    (void)unused;
    if (!l)
        return NULL;
    const int64_t n = fl_loader_samples(l);
    leave(self);
    return PyLong_FromLongLong(n);
}

static PyObject *loader_state(PyObject *self, PyObject *unused)
{
    FlLoader *l = enter(self);
    char state[FL_STATE_BYTES];

    (void)unused;
    if (!l)
        return NULL;
    const int n = fl_loader_state(l, state, sizeof(state));
    leave(self);
    return n < 0 ? native_raise(native_state_of(self)) : PyBytes_FromStringAndSize(state, n);
}

static PyObject *loader_restore(PyObject *self, PyObject *args)
{
    const char *state;
    Py_ssize_t size;
    int force = 0, err;

    if (!PyArg_ParseTuple(args, "y#|p", &state, &size, &force))
        return NULL;
    FlLoader *l = enter(self);
    if (!l)
        return NULL;
    Py_BEGIN_ALLOW_THREADS err = fl_loader_restore(l, state, (size_t)size, force);
    Py_END_ALLOW_THREADS leave(self);
    if (err)
        return native_raise(native_state_of(self));
    Py_RETURN_NONE;
}

static PyObject *loader_seek(PyObject *self, PyObject *args)
{
    long long epoch, position;
    int err;

    if (!PyArg_ParseTuple(args, "LL", &epoch, &position))
        return NULL;
    FlLoader *l = enter(self);
    if (!l)
        return NULL;
    Py_BEGIN_ALLOW_THREADS err = fl_loader_seek(l, epoch, position);
    Py_END_ALLOW_THREADS leave(self);
    if (err)
        return native_raise(native_state_of(self));
    Py_RETURN_NONE;
}

static PyObject *loader_position(PyObject *self, PyObject *unused)
{
    FlLoader *l = enter(self);
    int64_t epoch;

    (void)unused;
    if (!l)
        return NULL;
    const int64_t position = fl_loader_position(l, &epoch);
    leave(self);
    return Py_BuildValue("LL", (long long)epoch, (long long)position);
}

static PyObject *stage_dict(const FlStageStats *s)
{
    return Py_BuildValue("{sd,sd,sd,sL,sK,si,sd}", "busy", s->busy, "wait_in", s->wait_in,
                         "wait_out", s->wait_out, "items", (long long)s->items, "bytes",
                         (unsigned long long)s->bytes, "threads", (int)s->threads, "stall",
                         s->stall);
}

static PyObject *stages_dict(const FlLoaderStats *st)
{
    PyObject *dict = PyDict_New();

    for (int i = 0; dict && i < FL_N_STAGES; i++) {
        PyObject *stage = stage_dict(&st->stages[i]);
        if (!stage || PyDict_SetItemString(dict, fl_stage_name((FlStage)i), stage))
            Py_CLEAR(dict);
        Py_XDECREF(stage);
    }
    return dict;
}

/* Members of FlLoaderStats but for stages and limiting: l: int64_t, u: uint64_t, i: int32_t, d: double, s: text. */
#define COUNTER(member, kind)                                                                      \
    {                                                                                              \
#member, offsetof(FlLoaderStats, member), kind                                             \
    }

static const struct counter {
    const char *name;
    size_t offset;
    char kind;
} counters[] = {
    COUNTER(samples, 'l'),
    COUNTER(batches, 'l'),
    COUNTER(bad_samples, 'l'),
    COUNTER(substituted, 'l'),
    COUNTER(seconds, 'd'),
    COUNTER(first_batch_seconds, 'd'),
    COUNTER(stall_seconds, 'd'),
    COUNTER(cpu_seconds, 'd'),
    COUNTER(memory_budget, 'u'),
    COUNTER(memory_limit, 'u'),
    COUNTER(memory_high_water, 'u'),
    COUNTER(pinned_bytes, 'u'),
    COUNTER(device_bytes, 'u'),
    COUNTER(huge_pages, 'i'),
    COUNTER(numa_node, 'i'),
    COUNTER(h2d_seconds, 'd'),
    COUNTER(kernel_seconds, 'd'),
    COUNTER(io_backend, 's'),
    COUNTER(io_reason, 's'),
    COUNTER(io_depth, 'i'),
    COUNTER(io_direct, 'i'),
    COUNTER(io_registered, 'i'),
    COUNTER(bytes_read, 'u'),
    COUNTER(bytes_wanted, 'u'),
    COUNTER(reads, 'l'),
    COUNTER(cached_reads, 'l'),
    COUNTER(cached_bytes, 'u'),
    COUNTER(cached_seconds, 'd'),
    COUNTER(retries, 'l'),
    COUNTER(decoded_cpu, 'l'),
    COUNTER(decoded_gpu, 'l'),
    COUNTER(n_workers, 'i'),
    COUNTER(codec, 's'),
    COUNTER(left_kind, 'l'),
    COUNTER(left_balance, 'l'),
    COUNTER(left_room, 'l'),
    COUNTER(left_again, 'l'),
};

static PyObject *counter(const struct counter *c, const FlLoaderStats *stats)
{
    const void *at = (const char *)stats + c->offset;

    switch (c->kind) {
    case 'l':
        return PyLong_FromLongLong(*(const int64_t *)at);
    case 'u':
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case 'i':
        return PyLong_FromLong(*(const int32_t *)at);
    case 'd':
        return PyFloat_FromDouble(*(const double *)at);
    default:
        return PyUnicode_FromString(at);
    }
}

/* Steals the value; 0, or -1 with an exception set (a value of NULL has set one). */
static int put(PyObject *dict, const char *name, PyObject *value)
{
    const int err = value ? PyDict_SetItemString(dict, name, value) : -1;

    Py_XDECREF(value);
    return err;
}

static PyObject *loader_stats(PyObject *self, PyObject *unused)
{
    FlLoader *l = enter(self);
    FlLoaderStats s = { .struct_size = sizeof(s) };

    (void)unused;
    if (!l)
        return NULL;
    const int err = fl_loader_stats(l, &s);
    leave(self);
    if (err)
        return native_raise(native_state_of(self));
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof(counters) / sizeof(counters[0]); i++)
        if (put(dict, counters[i].name, counter(&counters[i], &s)))
            Py_CLEAR(dict);
    if (dict && (put(dict, "stages", stages_dict(&s)) ||
                 put(dict, "limiting", PyUnicode_FromString(fl_stage_name(s.limiting)))))
        Py_CLEAR(dict);
    return dict;
}

static PyMethodDef methods[] = {
    { "close", loader_close, METH_NOARGS, "Stop the threads; batches that are held stay valid." },
    { "next", loader_next, METH_VARARGS,
      "next(stream, timeout_ms=-1): the next batch, None at the end of an epoch." },
    { "batches", loader_batches, METH_NOARGS, "Batches of this rank in an epoch." },
    { "samples", loader_samples, METH_NOARGS, "Samples of this rank in an epoch." },
    { "state", loader_state, METH_NOARGS, "Where the consumer is, as bytes." },
    { "restore", loader_restore, METH_VARARGS, "restore(state, force=False): go on from a state." },
    { "seek", loader_seek, METH_VARARGS, "seek(epoch, position): go to a place of the order." },
    { "position", loader_position, METH_NOARGS, "(epoch, position) of the consumer." },
    { "stats", loader_stats, METH_NOARGS, "Counters, as a dict." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot slots[] = {
    { Py_tp_new, loader_new },
    { Py_tp_dealloc, loader_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_doc, "A loader." },
    { 0, NULL },
};

PyType_Spec native_loader_spec = { .name = "feedline._native.Loader",
                                   .basicsize = sizeof(struct loader),
                                   .flags = Py_TPFLAGS_DEFAULT,
                                   .slots = slots };
