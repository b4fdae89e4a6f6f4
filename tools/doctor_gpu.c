/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU as the driver's own library sees it (NVML, found at run time), and as CUDA does. */
#define _GNU_SOURCE
#include "doctor.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "gpu/bench_gpu.h"

/* nvmlPciInfo_t */
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver)(char *, unsigned);
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*name)(void *, char *, unsigned);
    int (*pci)(void *, struct pci *);
};

static bool find(void *library, const char *name, void *fn)
{
    void *p = dlsym(library, name);

    memcpy(fn, &p, sizeof(p)); // ISO C has no cast from object to function pointer
    return p != NULL;
}

static int numa_node_of(const char *bus_id)
{
    char path[96], id[32];
    int node = -1;
    size_t n = 0;

    // NVML writes eight digits of the domain, sysfs four.
    if (strlen(bus_id) > 8 && bus_id[8] == ':')
        bus_id += 4;
    for (; bus_id[n] && n + 1 < sizeof(id); n++)
        id[n] = (char)tolower((unsigned char)bus_id[n]);
    id[n] = '\0';
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", id);
    FILE *f = fopen(path, "re");
    if (f) {
        if (fscanf(f, "%d", &node) != 1)
            node = -1;
        fclose(f);
    }
    return node;
}

static void ask_nvml(struct doctor_gpu *g, const struct nvml *m, int ordinal)
{
    struct pci pci = { 0 };
    void *device = NULL;
    unsigned count = 0;

    if (m->init())
        return;
    m->driver(g->driver, sizeof(g->driver));
    g->seen = m->count(&count) ? 0 : (int)count;
    if (!m->handle((unsigned)ordinal, &device)) {
        m->name(device, g->name, sizeof(g->name));
        if (!m->pci(device, &pci))
            g->numa_node = numa_node_of(pci.bus_id);
    }
    m->shutdown();
}

static void look_with_nvml(struct doctor_gpu *g, int ordinal)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct nvml m;

    g->seen = -1;
    g->numa_node = -1;
    if (!library)
        return;
    if (find(library, "nvmlInit_v2", &m.init) && find(library, "nvmlShutdown", &m.shutdown) &&
        find(library, "nvmlSystemGetDriverVersion", &m.driver) &&
        find(library, "nvmlDeviceGetCount_v2", &m.count) &&
        find(library, "nvmlDeviceGetHandleByIndex_v2", &m.handle) &&
        find(library, "nvmlDeviceGetName", &m.name) &&
        find(library, "nvmlDeviceGetPciInfo_v3", &m.pci))
        ask_nvml(g, &m, ordinal);
    dlclose(library);
}

void doctor_look_at_gpu(struct doctor_gpu *g, int ordinal)
{
    const size_t batch = (size_t)256 * 224 * 224 * 3;
    struct bench_gpu *gpu = NULL;
    struct bench_gpu_info info;

    look_with_nvml(g, ordinal);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) { // the runtime would say that the driver is too old
        snprintf(g->why, sizeof(g->why), "there is no CUDA driver (libcuda.so.1) here");
        return;
    }
    dlclose(driver);
    if (bench_gpu_open(&gpu, ordinal, 0, g->why, sizeof(g->why)))
        return;
    g->cuda = true;
    bench_gpu_info(gpu, &info);
    memcpy(g->name, info.name, sizeof(g->name));
    g->cuda_driver = info.driver;
    g->cuda_runtime = info.runtime;
    g->memory = info.memory;
    g->memory_free = info.memory_free;
    g->pinned = bench_gpu_copy(gpu, batch, 1, 0);
    g->pageable = bench_gpu_copy(gpu, batch, 0, 0);
    bench_gpu_close(&gpu);
}
