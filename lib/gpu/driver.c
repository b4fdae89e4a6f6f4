/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { CUDA_NOT_INITIALIZED = 3, CUDA_NO_DEVICE = 100 }; // CUresult values

static int symbol(void *library, const char *name, void *fn, FlError *err)
{
    void *p = dlsym(library, name);

    if (!p)
        return fl_err_set(err, FL_ERR(ENODEV), FL_STAGE_DEVICE,
                          "the CUDA driver (libcuda.so.1) lacks %s: it is too old", name);
    memcpy(fn, &p, sizeof(p)); // ISO C has no cast from object to function pointer
    return 0;
}

static int init(const struct fl_cuda_driver *d, FlError *err)
{
    const char *text = NULL, *visible = getenv("CUDA_VISIBLE_DEVICES");
    const int code = d->init(0);

    if (!code)
        return 0;
    if (code == CUDA_NO_DEVICE)
        return fl_err_set(err, FL_ERR(ENODEV), FL_STAGE_DEVICE,
                          "the CUDA driver sees no device (CUDA_VISIBLE_DEVICES is %s%s%s)",
                          visible ? "\"" : "not set", visible ? visible : "", visible ? "\"" : "");
    if (code == CUDA_NOT_INITIALIZED)
        return fl_err_set(err, FL_ERR(ENODEV), FL_STAGE_DEVICE,
                          "the CUDA driver cannot be used here: this process was forked from one "
                          "that had used it already; start it with spawn or exec instead");
    d->error_text(code, &text);
    return fl_err_set(err, FL_ERR(ENODEV), FL_STAGE_DEVICE,
                      "the CUDA driver does not start: %s (CUresult %d)",
                      text ? text : "unknown error", code);
}

int fl_cuda_driver_load(struct fl_cuda_driver *d, FlError *err)
{
    int e;

    memset(d, 0, sizeof(*d));
    d->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!d->library)
        return fl_err_set(err, FL_ERR(ENODEV), FL_STAGE_DEVICE,
                          "there is no CUDA driver on this machine: %s", dlerror());
    if ((e = symbol(d->library, "cuInit", &d->init, err)) ||
        (e = symbol(d->library, "cuDriverGetVersion", &d->version, err)) ||
        (e = symbol(d->library, "cuDeviceGetPCIBusId", &d->pci_bus_id, err)) ||
        (e = symbol(d->library, "cuDevicePrimaryCtxRetain", &d->retain, err)) ||
        (e = symbol(d->library, "cuDevicePrimaryCtxRelease_v2", &d->release, err)) ||
        (e = symbol(d->library, "cuCtxPushCurrent_v2", &d->push, err)) ||
        (e = symbol(d->library, "cuCtxPopCurrent_v2", &d->pop, err)) ||
        (e = symbol(d->library, "cuGetErrorString", &d->error_text, err)) || (e = init(d, err)))
        fl_cuda_driver_unload(d);
    return e;
}

void fl_cuda_driver_unload(struct fl_cuda_driver *d)
{
    if (d->library)
        dlclose(d->library);
    memset(d, 0, sizeof(*d));
}
