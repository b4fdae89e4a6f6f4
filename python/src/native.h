/* SPDX-License-Identifier: Apache-2.0 */
/* The extension module feedline._native: a thin skin over the public C API. What is convenient is written
 * in Python on top of it (feedline/). */
#ifndef FL_PYTHON_NATIVE_H
#define FL_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
// The build defines Py_LIMITED_API, but for a free-threaded interpreter, which has none.
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>

#include <feedline/feedline.h>

#include "native_gate.h"

/* State of the module, one for each interpreter. */
struct native_state {
    PyTypeObject *dataset, *loader, *batch, *tensor;
    PyObject *make_error; // Python function (code, stage, message, ...) -> exception
};

/* ---- native_module.c --------------------------------------------------------------------------- */

struct native_state *native_state_of(PyObject *self);

/* Raise the exception for a failed call, from fl_last_error(). Returns NULL. */
PyObject *native_raise(struct native_state *st);

/* A log callback for `callable`, which gets (level, text) under the interpreter's lock. */
void native_log(void *callable, FlLogLevel level, const char *text);

/* What a long operation calls about ten times a second: `progress` (a callable or NULL) is told of it, and a
 * signal's handler runs. Both may raise: then the operation is stopped, and the exception stands. */
int native_progress(void *progress, const FlProgress *p);

/* ---- native_dataset.c -------------------------------------------------------------------------- */

extern PyType_Spec native_dataset_spec;

/* The dataset inside a feedline._native.Dataset, open until native_dataset_leave(); NULL, with an exception:
 * it is closed, or something else. */
FlDataset *native_dataset_enter(struct native_state *st, PyObject *object);
void native_dataset_leave(PyObject *object);

/* ---- native_config.c --------------------------------------------------------------------------- */

/* Settings by name. `settings` is a dict of FlConfig's members; `columns` a list of (kind, field, dict).
 * Lists of samples become memory that *keep (a list) owns. `evaluation`: then fl_config_evaluation(), with the tail
 * partial or padded. Returns 0, or -1 with an exception. */
int native_config(FlConfig *cfg, PyObject *settings, PyObject *columns, bool evaluation,
                  PyObject *keep);

/* An array of int64 or float64 from a bytes-like object, kept alive by `keep`. */
int native_array(PyObject *value, size_t item, const void **data, int64_t *n, PyObject *keep);

/* ---- native_loader.c --------------------------------------------------------------------------- */

extern PyType_Spec native_loader_spec;

/* ---- native_batch.c ---------------------------------------------------------------------------- */

extern PyType_Spec native_batch_spec, native_tensor_spec;

/* A Python object that owns the batch from now on. */
PyObject *native_batch_new(struct native_state *st, const FlBatch *batch, void *stream);

#endif
