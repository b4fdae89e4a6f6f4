/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's own library, found at run time, so that one build runs with and without it. */
#ifndef FL_GPU_DRIVER_H
#define FL_GPU_DRIVER_H

#include <feedline/error.h>

/* Calls that the runtime has no equal of: a context is made current without forgetting the caller's. */
struct fl_cuda_driver {
    void *library;
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*pci_bus_id)(char *id, int size, int device);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*error_text)(int code, const char **text);
};

/* Load libcuda.so.1 and initialise it. @return 0, or FL_ERR(ENODEV) with the reason in *err. The library
 * stays loaded until fl_cuda_driver_unload(). */
int fl_cuda_driver_load(struct fl_cuda_driver *driver, FlError *err);
void fl_cuda_driver_unload(struct fl_cuda_driver *driver);

#endif
