/* SPDX-License-Identifier: Apache-2.0 */
/* Settings by name, from dicts to FlConfig: one row of a table for each member. */
#include "native.h"

#include <stddef.h>
#include <string.h>

enum kind {
    INT32,
    INT64,
    UINT64,
    DOUBLE,
    FLOAT,
    FLOATS2,
    FLOATS3,
    BOOL,
    ENUM,
    TEXT,
    PATH,
    ARRAY_I64,
    ARRAY_F64
};

struct setting {
    const char *name;
    enum kind kind;
    size_t offset, count_offset; // of the member; of the number of an array's items
};

#define CFG(member, kind)                                                                          \
    {                                                                                              \
#member, kind, offsetof(FlConfig, member), 0                                               \
    }
#define IMG(member, kind)                                                                          \
    {                                                                                              \
#member, kind, offsetof(FlImage, member), 0                                                \
    }

static const struct setting config_settings[] = {
    CFG(batch_size, INT64),
    CFG(shuffle, ENUM),
    CFG(seed, UINT64),
    CFG(tail, ENUM),
    CFG(rank, INT32),
    CFG(world_size, INT32),
    CFG(epochs, INT64),
    CFG(block_bytes, INT64),
    CFG(window, INT64),
    { "subset", ARRAY_I64, offsetof(FlConfig, subset), offsetof(FlConfig, n_subset) },
    { "weights", ARRAY_F64, offsetof(FlConfig, weights), 0 },
    CFG(epoch_samples, INT64),
    CFG(balance, TEXT),
    CFG(n_workers, INT32),
    CFG(memory_limit, UINT64),
    CFG(host_slots, INT32),
    CFG(device_slots, INT32),
    { "device_type", INT32, offsetof(FlConfig, device.type), 0 },
    { "device_ordinal", INT32, offsetof(FlConfig, device.ordinal), 0 },
    CFG(decode, ENUM),
    CFG(gpu_priority, ENUM),
    CFG(gpu_blocks, INT32),
    CFG(io, ENUM),
    CFG(direct, ENUM),
    CFG(read_bytes, UINT64),
    CFG(depth, INT32),
    CFG(checksum, ENUM),
    CFG(stall_timeout_ms, INT64),
    CFG(bad_sample, ENUM),
    CFG(max_bad, INT64),
    CFG(max_bad_rate, DOUBLE),
    { "exclude", ARRAY_I64, offsetof(FlConfig, exclude), offsetof(FlConfig, n_exclude) },
    CFG(exclude_file, PATH),
    CFG(bad_report, PATH),
    CFG(max_pixels, INT64),
    CFG(max_scans, INT32),
    CFG(max_field_bytes, INT64),
    CFG(max_window_log, INT32),
};

static const struct setting image_settings[] = {
    IMG(width, INT32),   IMG(height, INT32),  IMG(crop, ENUM),     IMG(resize, INT32),
    IMG(scale, FLOATS2), IMG(ratio, FLOATS2), IMG(flip, FLOAT),    IMG(mean, FLOATS3),
    IMG(std, FLOATS3),   IMG(dtype, ENUM),    IMG(layout, ENUM),   IMG(channels, INT32),
    IMG(exact, ENUM),    IMG(orient, BOOL),   IMG(tolerate, BOOL),
};

int native_array(PyObject *value, size_t item, const void **data, int64_t *n, PyObject *keep)
{
    PyObject *bytes = PyBytes_FromObject(value); // a copy: the caller's array may change or go away

    if (!bytes)
        return -1;
    *data = PyBytes_AsString(bytes);
    *n = (int64_t)((size_t)PyBytes_Size(bytes) / item);
    const int err = PyList_Append(keep, bytes);
    Py_DECREF(bytes);
    return err;
}

static int set_floats(float *to, Py_ssize_t n, PyObject *value)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(value, i);
        if (!item)
            return -1;
        to[i] = (float)PyFloat_AsDouble(item);
        Py_DECREF(item);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int set_text(char *to, size_t size, const char *name, PyObject *value)
{
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(value, &len);

    if (!text)
        return -1;
    if ((size_t)len >= size) {
        PyErr_Format(PyExc_ValueError, "%s is longer than %zu bytes", name, size - 1);
        return -1;
    }
    memcpy(to, text, (size_t)len + 1);
    return 0;
}

static int set_long(const struct setting *s, void *at, PyObject *value)
{
    if (s->kind == UINT64) {
        *(uint64_t *)at = PyLong_AsUnsignedLongLong(value);
        return PyErr_Occurred() ? -1 : 0;
    }
    const long long v = PyLong_AsLongLong(value);
    if (v == -1 && PyErr_Occurred())
        return -1;
    if (s->kind == INT64) {
        *(int64_t *)at = v;
        return 0;
    }
    if (v < INT32_MIN || v > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%s = %lld is out of range", s->name, v);
        return -1;
    }
    if (s->kind == ENUM)
        *(unsigned *)at = (unsigned)v; // every enum of the API is an int of non-negative values
    else
        *(int32_t *)at = (int32_t)v;
    return 0;
}

static int set_one(const struct setting *s, char *base, PyObject *value, PyObject *keep)
{
    void *at = base + s->offset;
    int64_t ignored;

    switch (s->kind) {
    case DOUBLE:
        *(double *)at = PyFloat_AsDouble(value);
        return PyErr_Occurred() ? -1 : 0;
    case FLOAT:
        *(float *)at = (float)PyFloat_AsDouble(value);
        return PyErr_Occurred() ? -1 : 0;
    case FLOATS2:
        return set_floats(at, 2, value);
    case FLOATS3:
        return set_floats(at, 3, value);
    case BOOL:
        *(bool *)at = PyObject_IsTrue(value) == 1;
        return PyErr_Occurred() ? -1 : 0;
    case TEXT:
        return set_text(at, sizeof(((FlConfig *)0)->balance), s->name, value);
    case PATH: // the bytes of the path, as os.fsencode() makes them; `keep` has them until open is through
        *(const char **)at = PyBytes_AsString(value);
        return *(const char **)at ? PyList_Append(keep, value) : -1;
    case ARRAY_I64:
        return native_array(value, 8, at, (int64_t *)(base + s->count_offset), keep);
    case ARRAY_F64:
        return native_array(value, 8, at, &ignored, keep);
    default:
        return set_long(s, at, value);
    }
}

static int set_all(const struct setting *table, size_t n, char *base, PyObject *dict,
                   PyObject *keep)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(dict, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        size_t i = 0;
        if (!name)
            return -1;
        while (i < n && strcmp(table[i].name, name))
            i++;
        if (i == n) {
            PyErr_Format(PyExc_TypeError, "there is no setting \"%s\"", name);
            return -1;
        }
        if (set_one(&table[i], base, value, keep))
            return -1;
    }
    return 0;
}

static int add_raw(FlConfig *cfg, const char *field, PyObject *dict)
{
    PyObject *shape = PyDict_GetItemString(dict, "shape"),
             *dtype = PyDict_GetItemString(dict, "dtype");
    int64_t dims[FL_MAX_DIMS];
    const Py_ssize_t n = shape ? PySequence_Size(shape) : -1;

    if (n < 0 || n > FL_MAX_DIMS || !dtype) {
        PyErr_Format(PyExc_ValueError,
                     "column \"%s\": a shape of up to %d axes and a dtype are needed", field,
                     FL_MAX_DIMS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(shape, i);
        dims[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
    }
    if (PyErr_Occurred())
        return -1;
    return fl_config_raw(cfg, field, (FlDtype)PyLong_AsLong(dtype), (int32_t)n, dims);
}

/* Index of the column, -1 with an exception, or the library's error. */
static int add_column(FlConfig *cfg, PyObject *column, PyObject *keep)
{
    const char *kind, *field;
    PyObject *dict;
    FlImage image = { 0 };
    int optional = 0, i;

    if (!PyArg_ParseTuple(column, "ssOp", &kind, &field, &dict, &optional))
        return -1;
    if (!strcmp(kind, "image")) {
        if (set_all(image_settings, sizeof(image_settings) / sizeof(image_settings[0]),
                    (char *)&image, dict, keep))
            return -1;
        i = fl_config_image(cfg, field, &image);
    } else if (!strcmp(kind, "label")) {
        i = fl_config_label(cfg, field);
    } else if (!strcmp(kind, "raw")) {
        i = add_raw(cfg, field, dict);
    } else {
        PyObject *most = PyDict_GetItemString(dict, "max_bytes");
        i = fl_config_bytes(cfg, field, most ? PyLong_AsLongLong(most) : 0);
    }
    if (i >= 0)
        cfg->columns[i].optional = optional;
    return i;
}

/* The preset, but for a tail that was asked to be padded: its rows are masked. */
static void evaluate(FlConfig *cfg)
{
    const FlTail tail = cfg->tail;

    fl_config_evaluation(cfg);
    if (tail == FL_TAIL_PAD)
        cfg->tail = tail;
}

int native_config(FlConfig *cfg, PyObject *settings, PyObject *columns, bool evaluation,
                  PyObject *keep)
{
    fl_config_init(cfg);
    if (set_all(config_settings, sizeof(config_settings) / sizeof(config_settings[0]), (char *)cfg,
                settings, keep))
        return -1;
    for (Py_ssize_t i = 0; i < PyList_Size(columns); i++) {
        if (add_column(cfg, PyList_GetItem(columns, i), keep) >= 0)
            continue;
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, fl_last_error()->message);
        return -1;
    }
    if (evaluation)
        evaluate(cfg);
    return 0;
}
