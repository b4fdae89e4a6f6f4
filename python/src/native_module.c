/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"

static PyObject *set_make_error(PyObject *module, PyObject *function)
{
    struct native_state *st = PyModule_GetState(module);
    PyObject *old = st->make_error;

    st->make_error = Py_NewRef(function);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

PyObject *native_raise(struct native_state *st)
{
    const FlError e = *fl_last_error();

    if (!st->make_error) {
        PyErr_SetString(PyExc_RuntimeError, e.message);
        return NULL;
    }
    PyObject *offset =
        e.offset == UINT64_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(e.offset);
    PyObject *error =
        offset ? PyObject_CallFunction(st->make_error, "isssLLsO", e.code, fl_stage_name(e.stage),
                                       e.message, e.key, (long long)e.sample, (long long)e.position,
                                       e.container, offset)
               : NULL;
    Py_XDECREF(offset);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

void native_log(void *callable, FlLogLevel level, const char *text)
{
    if (!Py_IsInitialized())
        return;
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace; // a message must not disturb an exception that is on its way
    PyErr_Fetch(&type, &value, &trace);
    PyObject *result = PyObject_CallFunction(callable, "is", (int)level, text);
    if (!result)
        PyErr_WriteUnraisable(callable);
    Py_XDECREF(result);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(gil);
}

/* A dict for the callable: what, done, total, bytes, total_bytes, bad, seconds. */
static int tell(PyObject *progress, const FlProgress *p)
{
    PyObject *dict = Py_BuildValue(
        "{ss,sL,sL,sK,sK,sL,sd}", "what", p->what, "done", (long long)p->done, "total",
        (long long)p->total, "bytes", (unsigned long long)p->bytes, "total_bytes",
        (unsigned long long)p->total_bytes, "bad", (long long)p->bad, "seconds", p->seconds);
    PyObject *result = dict ? PyObject_CallFunctionObjArgs(progress, dict, NULL) : NULL;

    Py_XDECREF(dict);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

int native_progress(void *progress, const FlProgress *p)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    const int stop =
        PyErr_Occurred() || PyErr_CheckSignals() || (progress && tell((PyObject *)progress, p));

    PyGILState_Release(gil);
    return stop;
}

static PyObject *build_info(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(fl_build_info());
}

static PyObject *index_build(PyObject *module, PyObject *args)
{
    FlDatasetOptions opt = FL_DATASET_OPTIONS_DEFAULT;
    PyObject *progress = Py_None;
    const char *path;
    int err;

    if (!PyArg_ParseTuple(args, "s|O", &path, &progress))
        return NULL;
    opt.progress = native_progress;
    opt.progress_cookie = progress == Py_None ? NULL : progress;
    Py_BEGIN_ALLOW_THREADS err = fl_index_build(path, &opt);
    Py_END_ALLOW_THREADS if (PyErr_Occurred()) return NULL;
    if (err)
        return native_raise(PyModule_GetState(module));
    Py_RETURN_NONE;
}

static PyObject *shard(PyObject *module, PyObject *args)
{
    struct native_state *st = PyModule_GetState(module);
    FlShardOptions opt = { .struct_size = sizeof(opt) };
    FlShardResult result = { 0 };
    unsigned long long bytes, seed;
    int shuffle, slice, overwrite, threads, max_side, quality, err;
    PyObject *source, *progress = Py_None;
    const char *target;

    if (!PyArg_ParseTuple(args, "OsKKpppiii|O", &source, &target, &bytes, &seed, &shuffle, &slice,
                          &overwrite, &threads, &max_side, &quality, &progress))
        return NULL;
    FlDataset *ds = native_dataset_enter(st, source);
    if (!ds)
        return NULL;
    opt.shard_bytes = bytes;
    opt.seed = seed;
    opt.no_shuffle = !shuffle;
    opt.no_slice = !slice;
    opt.overwrite = overwrite;
    opt.n_threads = threads;
    opt.max_side = max_side;
    opt.quality = quality;
    opt.progress = native_progress;
    opt.progress_cookie = progress == Py_None ? NULL : progress;
    Py_BEGIN_ALLOW_THREADS err = fl_shard(ds, target, &opt, &result);
    Py_END_ALLOW_THREADS native_dataset_leave(source);
    if (PyErr_Occurred())
        return NULL;
    if (err)
        return native_raise(st);
    return Py_BuildValue("{sL,sL,sK,sK,sL,sL,sL,sL}", "samples", (long long)result.samples,
                         "shards", (long long)result.shards, "bytes_in",
                         (unsigned long long)result.bytes_in, "bytes_out",
                         (unsigned long long)result.bytes_out, "sliced", (long long)result.sliced,
                         "kept", (long long)result.kept, "damaged", (long long)result.damaged,
                         "resumed", (long long)result.resumed);
}

static PyMethodDef methods[] = {
    { "set_error_factory", set_make_error, METH_O,
      "Function that makes the exception of an error." },
    { "build_info", build_info, METH_NOARGS, "What this build holds, as name=value words." },
    { "index_build", index_build, METH_VARARGS, "Build the index of a dataset anew." },
    { "shard", shard, METH_VARARGS, "Write a dataset as tar shards." },
    { NULL, NULL, 0, NULL },
};

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out ? PyModule_AddType(module, *out) : -1;
}

static int module_exec(PyObject *module)
{
    struct native_state *st = PyModule_GetState(module);

    if (add_type(module, &native_dataset_spec, &st->dataset) ||
        add_type(module, &native_loader_spec, &st->loader) ||
        add_type(module, &native_batch_spec, &st->batch) ||
        add_type(module, &native_tensor_spec, &st->tensor))
        return -1;
    return PyModule_AddStringConstant(module, "__version__", fl_version());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct native_state *st = PyModule_GetState(module);

    Py_VISIT(st->dataset);
    Py_VISIT(st->loader);
    Py_VISIT(st->batch);
    Py_VISIT(st->tensor);
    Py_VISIT(st->make_error);
    return 0;
}

static int module_clear(PyObject *module)
{
    struct native_state *st = PyModule_GetState(module);

    Py_CLEAR(st->dataset);
    Py_CLEAR(st->loader);
    Py_CLEAR(st->batch);
    Py_CLEAR(st->tensor);
    Py_CLEAR(st->make_error);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    { Py_mod_exec, module_exec },
#ifdef Py_GIL_DISABLED
    { Py_mod_gil, Py_MOD_GIL_NOT_USED },
#endif
    { 0, NULL },
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "feedline._native",
    .m_doc = "The C library's API.",
    .m_size = sizeof(struct native_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

struct native_state *native_state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
