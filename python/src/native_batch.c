/* SPDX-License-Identifier: Apache-2.0 */
/* Batches and their tensors. The memory belongs to a holder that is counted without the interpreter: a
 * framework may drop its tensor in any thread, with or without the interpreter's lock. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

#include "dlpack.h"

struct holder {
    _Atomic int refs;
    FlBatch batch;
    void *stream;        // the one that the release is recorded on
    _Atomic bool locked; // guards stream: two tensors may be exported at once
};

struct batch {
    PyObject ob_base;
    struct holder *holder;
    PyObject *columns; // tuple of tensors
};

struct tensor {
    PyObject ob_base;
    struct holder *holder;
    FlColumn column;
    FlDevice device;
    bool read_only;
    int64_t shape[FL_MAX_DIMS + 1];
    Py_ssize_t strides[FL_MAX_DIMS + 1]; // bytes
};

/* ---- holder ------------------------------------------------------------------------------------ */

static void holder_get(struct holder *h)
{
    atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
}

static void holder_put(struct holder *h)
{
    // Release and acquire: what each user did to the batch comes before its slot is given back.
    if (!h || atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) != 1)
        return;
    fl_batch_release(&h->batch,
                     h->stream); // a forked child cannot: then the memory goes with the process
    free(h);
}

/* A stream uses the batch: make it wait for the content, and the slot's reuse wait for it. */
static int holder_use(struct holder *h, void *stream)
{
    int err = fl_batch_acquire(&h->batch, stream);

    while (atomic_exchange(&h->locked, true))
        ;
    if (!err && stream != h->stream) {
        // The last stream asked for is the one to release on; the one before it is noted.
        err = fl_batch_record(&h->batch, h->stream);
        h->stream = stream;
    }
    atomic_store(&h->locked, false);
    return err;
}

/* ---- tensors ----------------------------------------------------------------------------------- */

static PyObject *tensor_new(struct native_state *st, struct holder *h, const FlColumn *column)
{
    struct tensor *t = (struct tensor *)PyType_GenericAlloc(st->tensor, 0);

    if (!t)
        return NULL;
    holder_get(h);
    t->holder = h;
    t->column = *column;
    t->device = h->batch.device;
    Py_ssize_t stride = (Py_ssize_t)fl_dtype_bytes(column->dtype);
    for (int i = column->ndim - 1; i >= 0; i--) {
        t->shape[i] = column->shape[i];
        t->strides[i] = stride;
        stride *= (Py_ssize_t)column->shape[i];
    }
    return (PyObject *)t;
}

/* What the loader says of a batch: in host memory whatever the device, to be read only. */
static PyObject *host_note(struct native_state *st, struct holder *h, const FlColumn *column)
{
    struct tensor *t = (struct tensor *)tensor_new(st, h, column);

    if (t) {
        t->device = FL_CPU;
        t->read_only = true;
    }
    return (PyObject *)t;
}

static void tensor_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    holder_put(((struct tensor *)object)->holder);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static struct dl_dtype dl_dtype_of(FlDtype dtype)
{
    static const uint8_t codes[] = {
        [FL_U8] = DL_UINT,   [FL_I8] = DL_INT,      [FL_I16] = DL_INT,   [FL_U16] = DL_UINT,
        [FL_I32] = DL_INT,   [FL_U32] = DL_UINT,    [FL_I64] = DL_INT,   [FL_U64] = DL_UINT,
        [FL_F16] = DL_FLOAT, [FL_BF16] = DL_BFLOAT, [FL_F32] = DL_FLOAT, [FL_F64] = DL_FLOAT,
    };
    return (struct dl_dtype){ codes[dtype], (uint8_t)(8 * fl_dtype_bytes(dtype)), 1 };
}

/* What an exported tensor keeps alive; freed by its deleter, which needs no interpreter. */
struct export
{
    union {
        struct dl_managed plain;
        struct dl_managed_versioned versioned;
    } managed;
    struct holder *holder;
    void *copy; // of the data, where sharing it would let the consumer write to it
    int64_t shape[FL_MAX_DIMS + 1], strides[FL_MAX_DIMS + 1];
};

static void delete_export(struct export *e)
{
    holder_put(e->holder);
    free(e->copy);
    free(e);
}

static void delete_plain(struct dl_managed *m)
{
    delete_export(m->ctx);
}

static void delete_versioned(struct dl_managed_versioned *m)
{
    delete_export(m->ctx);
}

/* A capsule that nobody took still owns its tensor; one that was taken has another name by then. */
static void capsule_gone(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
        m->deleter(m);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct dl_managed_versioned *m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        m->deleter(m);
    }
}

static struct dl_tensor describe(const struct tensor *t, struct export *e)
{
    const int64_t item = (int64_t)fl_dtype_bytes(t->column.dtype);

    memcpy(e->shape, t->shape, sizeof(e->shape));
    for (int i = 0; i < t->column.ndim; i++)
        e->strides[i] = t->strides[i] / item;
    return (struct dl_tensor){ .data = e->copy ? e->copy : t->column.data,
                               .device = { t->device.type == FL_DEVICE_CUDA ? DL_CUDA : DL_CPU,
                                           t->device.ordinal },
                               .ndim = t->column.ndim,
                               .dtype = dl_dtype_of(t->column.dtype),
                               .shape = e->shape,
                               .strides = e->strides };
}

static size_t tensor_bytes(const struct tensor *t)
{
    size_t n = fl_dtype_bytes(t->column.dtype);

    for (int i = 0; i < t->column.ndim; i++)
        n *= (size_t)t->shape[i];
    return n;
}

/* The older protocol cannot say "read-only": its consumers get a copy of such a tensor. */
static int copy_out(const struct tensor *t, struct export *e)
{
    const size_t n = tensor_bytes(t);

    e->copy = malloc(n ? n : 1);
    if (e->copy)
        memcpy(e->copy, t->column.data, n);
    return e->copy ? 0 : -1;
}

static PyObject *export_tensor(struct tensor *t, bool versioned)
{
    struct export *e = calloc(1, sizeof(*e));

    if (!e)
        return PyErr_NoMemory();
    if (t->read_only && !versioned && copy_out(t, e)) {
        free(e);
        return PyErr_NoMemory();
    }
    e->holder = t->holder;
    holder_get(e->holder);
    if (versioned)
        e->managed.versioned =
            (struct dl_managed_versioned){ .major = DL_MAJOR,
                                           .minor = DL_MINOR,
                                           .ctx = e,
                                           .deleter = delete_versioned,
                                           .flags = t->read_only ? DL_FLAG_READ_ONLY : 0,
                                           .tensor = describe(t, e) };
    else
        e->managed.plain =
            (struct dl_managed){ .tensor = describe(t, e), .ctx = e, .deleter = delete_plain };
    PyObject *capsule =
        PyCapsule_New(&e->managed, versioned ? "dltensor_versioned" : "dltensor", capsule_gone);
    if (!capsule)
        delete_export(e);
    return capsule;
}

/* The consumer's stream by the protocol's rules for CUDA: None and 1 are the legacy default stream, 2 the
 * per-thread one, -1 asks for no synchronisation, 0 is not allowed. */
static int use_stream(struct native_state *st, struct tensor *t, PyObject *stream)
{
    long long s = 1;

    if (t->device.type != FL_DEVICE_CUDA) {
        if (stream == Py_None || (PyLong_Check(stream) && PyLong_AsLongLong(stream) == -1))
            return 0;
        PyErr_SetString(PyExc_BufferError, "a tensor in host memory takes no stream");
        return -1;
    }
    if (stream != Py_None && (s = PyLong_AsLongLong(stream)) == -1 && PyErr_Occurred())
        return -1;
    if (s == -1)
        return 0;
    if (s == 0) {
        PyErr_SetString(PyExc_BufferError,
                        "stream 0 is ambiguous: 1 is the legacy default stream, 2 the "
                        "per-thread one");
        return -1;
    }
    if (holder_use(t->holder, s == 1 ? NULL : (void *)(intptr_t)s)) {
        native_raise(st);
        return -1;
    }
    return 0;
}

static int two_ints(PyObject *pair, const char *what, int *first, int *second)
{
    if (!PyTuple_Check(pair)) {
        PyErr_Format(PyExc_TypeError, "%s is a pair of integers", what);
        return -1;
    }
    return PyArg_ParseTuple(pair, "ii", first, second) ? 0 : -1;
}

static int check_request(struct tensor *t, PyObject *dl_device, PyObject *copy)
{
    int type, id;

    if (copy == Py_True) {
        PyErr_SetString(PyExc_BufferError, "feedline does not copy on export");
        return -1;
    }
    if (dl_device == Py_None)
        return 0;
    if (two_ints(dl_device, "dl_device", &type, &id))
        return -1;
    if (type != (t->device.type == FL_DEVICE_CUDA ? DL_CUDA : DL_CPU) || id != t->device.ordinal) {
        PyErr_SetString(PyExc_BufferError,
                        "feedline does not move a tensor to another device on export");
        return -1;
    }
    return 0;
}

static PyObject *tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *keys[] = { "stream", "max_version", "dl_device", "copy", NULL };
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    struct tensor *t = (struct tensor *)self;
    int major = 0, minor = 0;

    if (PyTuple_Size(args)) {
        PyErr_SetString(PyExc_TypeError, "__dlpack__ takes keyword arguments only");
        return NULL;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOO", keys, &stream, &version, &device,
                                     &copy) ||
        (version != Py_None && two_ints(version, "max_version", &major, &minor)) ||
        check_request(t, device, copy) || use_stream(native_state_of(self), t, stream))
        return NULL;
    return export_tensor(t, major >= DL_MAJOR);
}

static PyObject *tensor_dlpack_device(PyObject *self, PyObject *unused)
{
    const struct tensor *t = (const struct tensor *)self;

    (void)unused;
    return Py_BuildValue("ii", t->device.type == FL_DEVICE_CUDA ? DL_CUDA : DL_CPU,
                         t->device.ordinal);
}

static int tensor_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    static char *const formats[] = {
        [FL_U8] = "B",  [FL_I8] = "b",   [FL_I16] = "h", [FL_U16] = "H",
        [FL_I32] = "i", [FL_U32] = "I",  [FL_I64] = "q", [FL_U64] = "Q",
        [FL_F16] = "e", [FL_BF16] = "H", [FL_F32] = "f", [FL_F64] = "d"
    };
    struct tensor *t = (struct tensor *)self;

    if (t->read_only && (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "this tensor is read-only");
        view->obj = NULL;
        return -1;
    }
    if (t->device.type != FL_DEVICE_CPU) {
        PyErr_SetString(PyExc_BufferError, "this tensor is on the device: use DLPack");
        view->obj = NULL;
        return -1;
    }
    *view = (Py_buffer){ .buf = t->column.data,
                         .obj = Py_NewRef(self),
                         .len = (Py_ssize_t)tensor_bytes(t),
                         .readonly = t->read_only,
                         .itemsize = (Py_ssize_t)fl_dtype_bytes(t->column.dtype),
                         .ndim = t->column.ndim,
                         .format = flags & PyBUF_FORMAT ? formats[t->column.dtype] : NULL,
                         .shape = flags & PyBUF_ND ? (Py_ssize_t *)t->shape : NULL,
                         .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? t->strides : NULL };
    return 0;
}

static PyObject *tensor_shape(PyObject *self, void *closure)
{
    const struct tensor *t = (const struct tensor *)self;
    PyObject *shape = PyTuple_New(t->column.ndim);

    (void)closure;
    for (int i = 0; shape && i < t->column.ndim; i++)
        PyTuple_SetItem(shape, i, PyLong_FromLongLong(t->shape[i]));
    return shape;
}

static PyObject *tensor_dtype(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(fl_dtype_name(((struct tensor *)self)->column.dtype));
}

static PyObject *tensor_pointer(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(((struct tensor *)self)->column.data);
}

static PyObject *tensor_read_only(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((struct tensor *)self)->read_only);
}

static PyObject *tensor_offsets(PyObject *self, void *closure)
{
    struct tensor *t = (struct tensor *)self;
    const FlBatch *b = &t->holder->batch;
    struct native_state *st = native_state_of(self);

    (void)closure;
    if (!t->column.offsets)
        Py_RETURN_NONE;
    FlColumn offsets = {
        .data = (void *)t->column.offsets, .dtype = FL_I64, .ndim = 1, .shape = { b->size + 1 }
    };
    return host_note(st, t->holder, &offsets);
}

static PyMethodDef tensor_methods[] = {
    { "__dlpack__", (PyCFunction)(void (*)(void))tensor_dlpack, METH_VARARGS | METH_KEYWORDS,
      "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None): a capsule, no "
      "copy." },
    { "__dlpack_device__", tensor_dlpack_device, METH_NOARGS, "(device type, device number)" },
    { NULL, NULL, 0, NULL },
};

static PyGetSetDef tensor_getset[] = {
    { "shape", tensor_shape, NULL, "Lengths of the axes.", NULL },
    { "dtype", tensor_dtype, NULL, "Name of the element type.", NULL },
    { "pointer", tensor_pointer, NULL, "Address of the first element.", NULL },
    { "read_only", tensor_read_only, NULL, "Whether it may only be read.", NULL },
    { "offsets", tensor_offsets, NULL, "Where each value of a bytes column begins, or None.",
      NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot tensor_slots[] = {
    { Py_tp_dealloc, tensor_dealloc },
    { Py_tp_methods, tensor_methods },
    { Py_tp_getset, tensor_getset },
    { Py_bf_getbuffer, tensor_getbuffer },
    { Py_tp_doc,
      "One column of a batch: DLPack, and the buffer protocol where it is in host memory." },
    { 0, NULL },
};

PyType_Spec native_tensor_spec = { .name = "feedline._native.Tensor",
                                   .basicsize = sizeof(struct tensor),
                                   .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   .slots = tensor_slots };

/* ---- batches ----------------------------------------------------------------------------------- */

PyObject *native_batch_new(struct native_state *st, const FlBatch *batch, void *stream)
{
    struct holder *h = calloc(1, sizeof(*h));
    FlBatch taken = *batch;

    if (!h) {
        fl_batch_release(&taken, stream);
        return PyErr_NoMemory();
    }
    h->batch = taken;
    h->stream = stream;
    atomic_init(&h->refs, 1);
    struct batch *b = (struct batch *)PyType_GenericAlloc(st->batch, 0);
    if (!b) {
        holder_put(h);
        return NULL;
    }
    b->holder = h;
    b->columns = PyTuple_New(taken.n_columns);
    for (int i = 0; b->columns && i < taken.n_columns; i++) {
        PyObject *t = tensor_new(st, h, &taken.columns[i]);
        if (!t || PyTuple_SetItem(b->columns, i, t))
            Py_CLEAR(b->columns);
    }
    if (!b->columns)
        Py_CLEAR(b);
    return (PyObject *)b;
}

static void batch_dealloc(PyObject *object)
{
    struct batch *b = (struct batch *)object;
    PyTypeObject *type = Py_TYPE(object);

    Py_CLEAR(b->columns);
    holder_put(b->holder);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *batch_columns(PyObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef(((struct batch *)self)->columns);
}

static PyObject *batch_number(PyObject *self, void *closure)
{
    const FlBatch *b = &((struct batch *)self)->holder->batch;
    const int64_t numbers[] = { b->size, b->n_valid, b->epoch, b->position };

    return PyLong_FromLongLong(numbers[(intptr_t)closure]);
}

/* ids, valid, parts: host memory of the batch. */
static PyObject *batch_notes(PyObject *self, void *closure)
{
    struct holder *h = ((struct batch *)self)->holder;
    const FlBatch *b = &h->batch;
    const void *data[] = { b->ids, b->valid, b->parts };
    const intptr_t i = (intptr_t)closure;
    const FlColumn column = {
        .data = (void *)data[i], .dtype = i ? FL_U8 : FL_I64, .ndim = 1, .shape = { b->size }
    };

    if (!data[i])
        Py_RETURN_NONE;
    return host_note(native_state_of(self), h, &column);
}

static PyObject *batch_device_valid(PyObject *self, void *closure)
{
    struct holder *h = ((struct batch *)self)->holder;
    const FlColumn column = {
        .data = (void *)h->batch.device_valid, .dtype = FL_U8, .ndim = 1, .shape = { h->batch.size }
    };

    (void)closure;
    if (!column.data)
        Py_RETURN_NONE;
    return tensor_new(native_state_of(self), h, &column);
}

static PyObject *batch_seeds(PyObject *self, PyObject *unused)
{
    const FlBatch *b = &((struct batch *)self)->holder->batch;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)b->size * 8);

    (void)unused;
    if (bytes && fl_batch_seeds(b, (uint64_t *)(void *)PyBytes_AsString(bytes))) {
        Py_DECREF(bytes);
        return native_raise(native_state_of(self));
    }
    return bytes;
}

static PyObject *batch_record_stream(PyObject *self, PyObject *arg)
{
    void *stream = PyLong_AsVoidPtr(arg);

    if (PyErr_Occurred())
        return NULL;
    if (holder_use(((struct batch *)self)->holder, stream))
        return native_raise(native_state_of(self));
    Py_RETURN_NONE;
}

static PyMethodDef batch_methods[] = {
    { "seeds", batch_seeds, METH_NOARGS, "A keyed uint64 for each row, as bytes." },
    { "record_stream", batch_record_stream, METH_O,
      "record_stream(stream): a cudaStream_t, as a number, uses the batch too." },
    { NULL, NULL, 0, NULL },
};

static PyGetSetDef batch_getset[] = {
    { "columns", batch_columns, NULL, "The tensors, in the order of the loader's columns.", NULL },
    { "size", batch_number, NULL, "Rows.", (void *)0 },
    { "n_valid", batch_number, NULL, "Rows that hold a good sample.", (void *)1 },
    { "epoch", batch_number, NULL, "Epoch.", (void *)2 },
    { "position", batch_number, NULL, "Place of row 0 in the epoch's order.", (void *)3 },
    { "ids", batch_notes, NULL, "Index of each row's sample, -1 for padding.", (void *)0 },
    { "valid", batch_notes, NULL, "1 for a good sample, 0 for a hole.", (void *)1 },
    { "parts", batch_notes, NULL, "Which dataset of a mixture, or None.", (void *)2 },
    { "device_valid", batch_device_valid, NULL, "The same on the device, or None.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot batch_slots[] = {
    { Py_tp_dealloc, batch_dealloc },
    { Py_tp_methods, batch_methods },
    { Py_tp_getset, batch_getset },
    { Py_tp_doc, "A batch; its memory is reused when it and its tensors are gone." },
    { 0, NULL },
};

PyType_Spec native_batch_spec = { .name = "feedline._native.Batch",
                                  .basicsize = sizeof(struct batch),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  .slots = batch_slots };
