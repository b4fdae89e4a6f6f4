/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"

struct dataset {
    PyObject ob_base;
    FlDataset *ds;
    struct native_gate gate; // closed when ds is
    PyObject *log;
};

FlDataset *native_dataset_enter(struct native_state *st, PyObject *object)
{
    if (!PyObject_TypeCheck(object, st->dataset)) {
        PyErr_SetString(PyExc_TypeError, "a feedline.Dataset is needed");
        return NULL;
    }
    struct dataset *self = (struct dataset *)object;
    if (native_gate_enter(&self->gate))
        return self->ds;
    PyErr_SetString(PyExc_ValueError, "the dataset is closed");
    return NULL;
}

void native_dataset_leave(PyObject *object)
{
    native_gate_leave(&((struct dataset *)object)->gate);
}

static FlDataset *enter(PyObject *self)
{
    return native_dataset_enter(native_state_of(self), self);
}

/* The names of a sequence as C strings that the sequence keeps alive. */
static const char **names_of(PyObject *list, size_t *n)
{
    const Py_ssize_t len = PyList_Size(list);
    const char **names = len < 0 ? NULL : PyMem_Calloc((size_t)len + 1, sizeof(*names));

    if (!names)
        return NULL;
    for (Py_ssize_t i = 0; i < len; i++) {
        names[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL);
        if (!names[i]) {
            PyMem_Free(names);
            return NULL;
        }
    }
    *n = (size_t)len;
    return names;
}

static PyObject *dataset_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keys[] = { "path",
                            "require_index",
                            "index_path",
                            "index_cache",
                            "classes",
                            "allow_empty_classes",
                            "keep_sidecars",
                            "entry_points",
                            "log",
                            "progress",
                            NULL };
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    struct native_state *st = PyType_GetModuleState(type);
    PyObject *classes = Py_None, *log = Py_None, *progress = Py_None;
    const char *path, *index_path = NULL;
    int require = 0, empty = 0, sidecars = 0, points = 0, err;
    unsigned long long cache = 0;
    const char **names = NULL;
    FlDataset *ds = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|pzKOpppOO", keys, &path, &require,
                                     &index_path, &cache, &classes, &empty, &sidecars, &points,
                                     &log, &progress))
        return NULL;
    if (classes != Py_None && !(names = names_of(classes, &opt.n_classes)))
        return NULL;
    opt.classes = names;
    opt.index = require ? FL_INDEX_REQUIRE : FL_INDEX_AUTO;
    opt.index_path = index_path;
    opt.index_cache = cache;
    opt.allow_empty_classes = empty;
    opt.keep_sidecars = sidecars;
    opt.entry_points = points;
    opt.log = log == Py_None ? NULL : native_log;
    opt.log_cookie = log;
    opt.progress = native_progress;
    opt.progress_cookie = progress == Py_None ? NULL : progress;
    struct dataset *self =
        (struct dataset *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) {
        PyMem_Free(names);
        return NULL;
    }
    self->log = Py_NewRef(log);
    Py_BEGIN_ALLOW_THREADS err = fl_dataset_open(&ds, path, &opt);
    Py_END_ALLOW_THREADS PyMem_Free(names);
    self->ds = ds;
    if (!err && !PyErr_Occurred())
        return (PyObject *)self;
    if (!PyErr_Occurred())
        native_raise(st);
    Py_DECREF(self);
    return NULL;
}

static void dataset_dealloc(PyObject *object)
{
    struct dataset *self = (struct dataset *)object;
    PyTypeObject *type = Py_TYPE(object);

    fl_dataset_close(&self->ds);
    Py_CLEAR(self->log);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *dataset_close(PyObject *self, PyObject *unused)
{
    struct dataset *d = (struct dataset *)self;

    (void)unused;
    if (native_gate_close(&d->gate)) {
        Py_BEGIN_ALLOW_THREADS native_gate_wait(&d->gate);
        fl_dataset_close(&d->ds);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static PyObject *dataset_info(PyObject *self, PyObject *unused)
{
    FlDataset *ds = enter(self);
    FlDatasetInfo info;
    PyObject *dict = NULL;

    (void)unused;
    if (!ds)
        return NULL;
    if (fl_dataset_info(ds, &info))
        native_raise(native_state_of(self));
    else
        dict = Py_BuildValue("{sL,si,si,sL,sK,sK,sK,sL,ss,ss}", "samples",
                             (long long)info.n_samples, "fields", (int)info.n_fields, "classes",
                             (int)info.n_classes, "containers", (long long)info.n_containers,
                             "bytes", (unsigned long long)info.bytes, "index_bytes",
                             (unsigned long long)info.index_bytes, "fingerprint",
                             (unsigned long long)info.fingerprint, "skipped",
                             (long long)info.skipped, "path", info.path, "kind", info.kind);
    native_dataset_leave(self);
    return dict;
}

static PyObject *dataset_field(PyObject *self, PyObject *arg)
{
    const long i = PyLong_AsLong(arg);
    FlFieldInfo f;
    PyObject *dict = NULL;

    if (i == -1 && PyErr_Occurred())
        return NULL;
    FlDataset *ds = enter(self);
    if (!ds)
        return NULL;
    if (fl_dataset_field(ds, (int32_t)i, &f))
        native_raise(native_state_of(self));
    else
        dict = Py_BuildValue(
            "{ss,ss,sL,sK,sK,sO,sL,sL,sK}", "name", f.name, "kind",
            f.kind == FL_FIELD_INT ? "int" : "bytes", "count", (long long)f.count, "bytes",
            (unsigned long long)f.bytes, "max_bytes", (unsigned long long)f.max_bytes, "is_image",
            f.is_image ? Py_True : Py_False, "sliced", (long long)f.sliced, "entry_points",
            (long long)f.entry_points, "entry_bytes", (unsigned long long)f.entry_bytes);
    native_dataset_leave(self);
    return dict;
}

static PyObject *dataset_class_name(PyObject *self, PyObject *arg)
{
    const long i = PyLong_AsLong(arg);

    if (i == -1 && PyErr_Occurred())
        return NULL;
    FlDataset *ds = enter(self);
    if (!ds)
        return NULL;
    const char *name = fl_dataset_class_name(ds, (int32_t)i);
    PyObject *text = name ? PyUnicode_DecodeFSDefault(name) : Py_NewRef(Py_None);
    native_dataset_leave(self);
    return text;
}

static PyObject *dataset_key(PyObject *self, PyObject *arg)
{
    const long long i = PyLong_AsLongLong(arg);
    char buf[4096];

    if (i == -1 && PyErr_Occurred())
        return NULL;
    FlDataset *ds = enter(self);
    if (!ds)
        return NULL;
    const int64_t len = fl_dataset_key(ds, i, buf, sizeof(buf));
    native_dataset_leave(self);
    return len < 0 ? native_raise(native_state_of(self)) : PyUnicode_DecodeFSDefault(buf);
}

/* The bytes of a span that is present. */
static PyObject *read_bytes(struct native_state *st, FlDataset *ds, int64_t sample, int field,
                            uint64_t length)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    size_t len;
    int err;

    if (!bytes)
        return NULL;
    char *data = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS err = fl_dataset_read(ds, sample, field, data, length, &len);
    Py_END_ALLOW_THREADS if (err)
    {
        Py_DECREF(bytes);
        return native_raise(st);
    }
    return bytes;
}

/* Bytes of a field, an int for an integer field, None where the sample lacks it. */
static PyObject *dataset_read(PyObject *self, PyObject *args)
{
    PyObject *value = NULL;
    FlFieldSpan span;
    long long sample;
    int field;

    if (!PyArg_ParseTuple(args, "Li", &sample, &field))
        return NULL;
    FlDataset *ds = enter(self);
    if (!ds)
        return NULL;
    if (fl_dataset_span(ds, sample, field, &span))
        native_raise(native_state_of(self));
    else if (!span.present)
        value = Py_NewRef(Py_None);
    else if (span.kind == FL_FIELD_INT)
        value = PyLong_FromLongLong(span.value);
    else
        value = read_bytes(native_state_of(self), ds, sample, field, span.length);
    native_dataset_leave(self);
    return value;
}

static PyMethodDef methods[] = {
    { "close", dataset_close, METH_NOARGS, "Close it; loaders opened on it go on." },
    { "info", dataset_info, METH_NOARGS, "Counts and sizes, as a dict." },
    { "field", dataset_field, METH_O, "What is known of field i, as a dict." },
    { "class_name", dataset_class_name, METH_O, "Name of class i, None outside." },
    { "key", dataset_key, METH_O, "Key of a sample." },
    { "read", dataset_read, METH_VARARGS, "read(sample, field): bytes, int or None." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot slots[] = {
    { Py_tp_new, dataset_new },
    { Py_tp_dealloc, dataset_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_doc, "An open dataset." },
    { 0, NULL },
};

PyType_Spec native_dataset_spec = { .name = "feedline._native.Dataset",
                                    .basicsize = sizeof(struct dataset),
                                    .flags = Py_TPFLAGS_DEFAULT,
                                    .slots = slots };
