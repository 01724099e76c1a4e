/* A stand-in for libcuda.so.1: GPUs whose memory is the host's, and copies that take the time they are told to take.
 *
 * gcc -shared -fPIC -O1 -Wall -Wextra -Werror -Wl,-soname,libcuda.so.1 -o libcuda.so.1 cuda.c
 *
 * The file named by STANDIN_CUDA is read by cuInit. Lines:
 *
 *   init CODE                    what cuInit returns
 *   gpu BUS_ID H2D D2H NAME      the next GPU, with its GB/s; "_" for a blank in the name
 *   fail FUNCTION CODE           the call returns CODE
 *
 * Copies really happen, and refuse memory that is not pinned. Signatures: cuda.h of CUDA 12 and 13. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500 };
enum { GPUS = 16, FAILURES = 16 };
#define EXPORT __attribute__((visibility("default")))

typedef struct { char bus_id[32], name[96]; double h2d, d2h; int retained; } Gpu;
typedef struct { char function[64]; int code; } Failure;
typedef struct { double at; } Event;

static Gpu gpu[GPUS];
static Failure failure[FAILURES];
static int gpus, failures, ready;
static double now; /* seconds of copying so far */
static _Thread_local Gpu *current;
static char *pinned;
static size_t pinned_size;

static int told(const char *function) {
    for (int n = 0; n < failures; n++) if (!strcmp(failure[n].function, function)) return failure[n].code;
    return OK;
}
#define CALLED if (!ready) return NOT_INITIALIZED; int code = told(__func__); if (code) return code
#define IN_CONTEXT CALLED; if (!current || !current->retained) return INVALID_CONTEXT

static int cuInit(unsigned flags) {
    (void)flags;
    const char *path = getenv("STANDIN_CUDA");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], name[96];
    int code = OK, value;
    gpus = failures = 0;
    while (file && fgets(line, sizeof line, file)) {
        Gpu *next = &gpu[gpus];
        if (sscanf(line, "init %d", &value) == 1) code = value;
        else if (sscanf(line, "gpu %31s %lf %lf %95s", next->bus_id, &next->h2d, &next->d2h, next->name) == 4) {
            for (char *c = next->name; *c; c++) if (*c == '_') *c = ' ';
            next->retained = 0;
            gpus++;
        } else if (sscanf(line, "fail %63s %d", name, &value) == 2) {
            snprintf(failure[failures].function, sizeof failure[0].function, "%.63s", name);
            failure[failures++].code = value;
        }
    }
    if (file) fclose(file);
    ready = code == OK;
    return code;
}

static int cuDriverGetVersion(int *version) { *version = 12080; return OK; }
static int cuDeviceGetCount(int *count) { CALLED; *count = gpus; return OK; }
static int cuDeviceGet(int *device, int place) {
    CALLED;
    if (place < 0 || place >= gpus) return INVALID_DEVICE;
    *device = place;
    return OK;
}
static int cuDeviceGetName(char *name, int length, int device) {
    CALLED;
    snprintf(name, length, "%s", gpu[device].name);
    return OK;
}
static int cuDeviceGetPCIBusId(char *bus_id, int length, int device) {
    CALLED;
    snprintf(bus_id, length, "%s", gpu[device].bus_id);
    return OK;
}
static int cuDevicePrimaryCtxRetain(void **context, int device) {
    CALLED;
    gpu[device].retained++;
    *context = &gpu[device];
    return OK;
}
static int cuDevicePrimaryCtxRelease(int device) { CALLED; gpu[device].retained--; return OK; }
static int cuCtxSetCurrent(void *context) { CALLED; current = context; return OK; }
static int cuMemAlloc(uint64_t *pointer, size_t size) {
    IN_CONTEXT;
    *pointer = (uint64_t)(uintptr_t)malloc(size);
    return OK;
}
static int cuMemFree(uint64_t pointer) { IN_CONTEXT; free((void *)(uintptr_t)pointer); return OK; }
static int cuMemHostRegister(void *pointer, size_t size, unsigned flags) {
    IN_CONTEXT;
    (void)flags;
    pinned = pointer;
    pinned_size = size;
    return OK;
}
static int cuMemHostUnregister(void *pointer) {
    IN_CONTEXT;
    if (pointer != pinned) return INVALID_VALUE;
    pinned = NULL;
    return OK;
}
static int is_pinned(const void *pointer, size_t size) {
    const char *first = pointer;
    return pinned && first >= pinned && first + size <= pinned + pinned_size;
}
static int cuMemcpyHtoDAsync(uint64_t to, const void *from, size_t size, void *stream) {
    IN_CONTEXT;
    (void)stream;
    if (!is_pinned(from, size)) return INVALID_VALUE;
    memcpy((void *)(uintptr_t)to, from, size);
    now += size / current->h2d / 1e9;
    return OK;
}
static int cuMemcpyDtoHAsync(void *to, uint64_t from, size_t size, void *stream) {
    IN_CONTEXT;
    (void)stream;
    if (!is_pinned(to, size)) return INVALID_VALUE;
    memcpy(to, (void *)(uintptr_t)from, size);
    now += size / current->d2h / 1e9;
    return OK;
}
static int cuEventCreate(Event **event, unsigned flags) {
    IN_CONTEXT;
    (void)flags;
    *event = calloc(1, sizeof **event);
    return OK;
}
static int cuEventRecord(Event *event, void *stream) { IN_CONTEXT; (void)stream; event->at = now; return OK; }
static int cuEventSynchronize(Event *event) { IN_CONTEXT; (void)event; return OK; }
static int cuEventElapsedTime(float *milliseconds, Event *start, Event *end) {
    IN_CONTEXT;
    *milliseconds = (float)((end->at - start->at) * 1e3);
    return OK;
}
static int cuEventDestroy(Event *event) { IN_CONTEXT; free(event); return OK; }

EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

#define HAS(name) { #name, (void *)name }
static const struct { const char *name; void *function; } table[] = {
    HAS(cuInit), HAS(cuDriverGetVersion), HAS(cuDeviceGetCount), HAS(cuDeviceGet), HAS(cuDeviceGetName),
    HAS(cuDeviceGetPCIBusId), HAS(cuDevicePrimaryCtxRetain), HAS(cuDevicePrimaryCtxRelease), HAS(cuCtxSetCurrent),
    HAS(cuMemAlloc), HAS(cuMemFree), HAS(cuMemHostRegister), HAS(cuMemHostUnregister), HAS(cuMemcpyHtoDAsync),
    HAS(cuMemcpyDtoHAsync), HAS(cuEventCreate), HAS(cuEventRecord), HAS(cuEventSynchronize), HAS(cuEventElapsedTime),
    HAS(cuEventDestroy), { "cuGetProcAddress", (void *)cuGetProcAddress_v2 },
};

/* The one symbol that NVIDIA's bindings look up; all others come from it by their names without a version. */
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    (void)version;
    (void)flags;
    *function = NULL;
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        if (!strcmp(table[n].name, symbol)) *function = table[n].function;
    if (status) *status = *function ? 0 : 1;
    return *function ? OK : NOT_FOUND;
}
