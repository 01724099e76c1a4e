/* A stand-in for libnvidia-ml.so.1: serves the machine that a text file describes.
 *
 * gcc -shared -fPIC -O1 -Wall -Wextra -Werror -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml.c
 *
 * The file is named by STANDIN_NVML, or else is /etc/nvml-standin. It is read by nvmlInit, and anew once it has changed;
 * a MIG device that it no longer has is an invalid argument then. Lines, blanks between the fields, "_" for a blank
 * within one, masks as hexadecimal 64-bit words joined by ",", the lowest word first; "-" where there is none:
 *
 *   driver VERSION
 *   gpu UUID BUS_ID MIB MINOR CPU_MASK NODE_MASK OWN_NODE PCIE_GENERATION NAME   the next index; -1: not supported
 *   level A B LEVEL                     nvmlGpuTopologyLevel_t between GPUs A and B
 *   nvlink A LINK KIND VERSION BUS_ID   an active link of GPU A; KIND is nvmlIntNvLinkDeviceType_t
 *   peer A B STATUS                     nvmlGpuP2PStatus_t between GPUs A and B, where it is not 0
 *   mig A PLACES                        MIG is on, with so many places
 *   part A PLACE UUID MIB NAME          a MIG device of GPU A
 *   used A PLACE MIB PROCESSES          what is in use of GPU A, or of its MIG device at PLACE (-1: of the whole)
 *   curve A PLACE FROM PERCENT MIB PROCESSES WATTS   the same and more from second FROM on, instead of "used"
 *   gpm A                               GPU A has GPM
 *   guarded A                           the memory of the whole of GPU A, which has MIG, is not for this process
 *   pending A MODE                      GPU A's pending MIG mode, where it is not the current one
 *   errors A PENDING FAILED RETIRED     rows to be remapped (2: only correctable errors so far), a remapping that
 *                                       failed, pages to be retired: 0 or 1
 *   wait FUNCTION SECONDS               the call takes so long
 *   fail FUNCTION CODE GPU              the call returns CODE; "hang": it never returns. GPU -1: for all
 *   devices PREFIX                      a GPU of which this process may not open PREFIX with its minor number is not
 *                                       there, and those after it count on, as in a device cgroup
 *
 * Seconds are those in the file that STANDIN_NVML_CLOCK names, or else those since nvmlInit.
 *
 * Signatures: nvml.h of CUDA 13.2. */

#define _GNU_SOURCE /* statx: stat and fstat of glibc 2.33 are not on an older node */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, SIZE = 7, HANG = -1 };
enum { GPUS = 64, LINKS = 36, USABLE_LINKS = 18, PARTS = 8, WORDS = 64, FAILURES = 128, STEPS = 256, WAITS = 8 };
#define EXPORT __attribute__((visibility("default")))

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { int kind; unsigned version; char bus_id[32]; } Link;
typedef struct { unsigned mib, processes; } Used;
typedef struct { int gpu, place; double from; unsigned percent; Used used; double watts; } Step;
typedef struct { char uuid[96], name[96]; unsigned mib; int parent, place; Used used; } Part;
typedef struct {
    char uuid[96], bus_id[32], name[96];
    unsigned mib;
    int minor, own_node, pcie, places, gpm, guarded, pending, errors[3], has_errors;
    unsigned long long cpus[WORDS], nodes[WORDS];
    Link links[LINKS];
    Part parts[PARTS];
    Used used;
} Gpu;
typedef struct { char function[64]; int code, gpu; } Failure;

static struct {
    int ready, gpus, failures, steps, waits;
    double began;
    struct statx as_read;
    char driver[64], devices[64];
    Gpu gpu[GPUS];
    int level[GPUS][GPUS], peer[GPUS][GPUS];
    Failure failure[FAILURES];
    Step step[STEPS];
    struct { char function[64]; unsigned seconds; } wait[WAITS];
} machine;

static void blanks(char *text) { for (; *text; text++) if (*text == '_') *text = ' '; }

static void mask(const char *text, unsigned long long *words) {
    for (int n = 0; n < WORDS && text && *text != '-'; n++) {
        words[n] = strtoull(text, NULL, 16);
        text = strchr(text, ',');
        if (text) text++;
    }
}

static void read_line(const char *line) {
    char a[512], b[512], c[512], d[512];
    int x, y, z, w;
    unsigned u, v;
    Step step;
    if (sscanf(line, "curve %d %d %lf %u %u %u %lf", &step.gpu, &step.place, &step.from, &step.percent,
               &step.used.mib, &step.used.processes, &step.watts) == 7) {
        machine.step[machine.steps++] = step;
        return;
    }
    if (sscanf(line, "pending %d %d", &x, &y) == 2) { machine.gpu[x].pending = y; return; }
    if (sscanf(line, "errors %d %d %d %d", &x, &y, &z, &w) == 4) {
        Gpu *gpu = &machine.gpu[x];
        gpu->has_errors = 1;
        gpu->errors[0] = y, gpu->errors[1] = z, gpu->errors[2] = w;
        return;
    }
    if (sscanf(line, "wait %63s %u", machine.wait[machine.waits].function, &u) == 2) {
        machine.wait[machine.waits++].seconds = u;
        return;
    }
    if (sscanf(line, "gpm %d", &x) == 1) { machine.gpu[x].gpm = 1; return; }
    if (sscanf(line, "guarded %d", &x) == 1) { machine.gpu[x].guarded = 1; return; }
    if (sscanf(line, "driver %63s", machine.driver) == 1) return;
    if (sscanf(line, "devices %63s", machine.devices) == 1) return;
    if (sscanf(line, "level %d %d %d", &x, &y, &z) == 3) { machine.level[x][y] = machine.level[y][x] = z; return; }
    if (sscanf(line, "peer %d %d %d", &x, &y, &z) == 3) { machine.peer[x][y] = machine.peer[y][x] = z; return; }
    if (sscanf(line, "mig %d %d", &x, &y) == 2) { machine.gpu[x].places = y; return; }
    if (sscanf(line, "nvlink %d %d %d %u %31s", &x, &y, &z, &u, a) == 5) {
        Link *link = &machine.gpu[x].links[y];
        link->kind = z;
        link->version = u;
        snprintf(link->bus_id, sizeof link->bus_id, "%.31s", a);
        return;
    }
    if (sscanf(line, "part %d %d %95s %u %95s", &x, &y, a, &u, b) == 5) {
        Part *part = &machine.gpu[x].parts[y];
        snprintf(part->uuid, sizeof part->uuid, "%.95s", a);
        snprintf(part->name, sizeof part->name, "%.95s", b);
        blanks(part->name);
        part->mib = u;
        part->parent = x;
        part->place = y;
        return;
    }
    if (sscanf(line, "used %d %d %u %u", &x, &y, &u, &v) == 4) {
        Used *used = y < 0 ? &machine.gpu[x].used : &machine.gpu[x].parts[y].used;
        used->mib = u;
        used->processes = v;
        return;
    }
    if (sscanf(line, "fail %63s %63s %d", a, b, &x) == 3) {
        Failure *failure = &machine.failure[machine.failures++];
        snprintf(failure->function, sizeof failure->function, "%.63s", a);
        failure->code = strcmp(b, "hang") ? atoi(b) : HANG;
        failure->gpu = x;
        return;
    }
    if (sscanf(line, "gpu %95s %31s %u %d %511s %511s %d %d %95s", a, b, &v, &x, c, d, &y, &z, machine.gpu[machine.gpus].name) == 9) {
        Gpu *gpu = &machine.gpu[machine.gpus++];
        snprintf(gpu->uuid, sizeof gpu->uuid, "%.95s", a);
        snprintf(gpu->bus_id, sizeof gpu->bus_id, "%.31s", b);
        blanks(gpu->name);
        gpu->mib = v;
        gpu->minor = x;
        gpu->own_node = y;
        gpu->pcie = z;
        gpu->places = -1;
        gpu->pending = -1;
        mask(c, gpu->cpus);
        mask(d, gpu->nodes);
        return;
    }
    if (*line != '\n' && *line != '#') fprintf(stderr, "nvml stand-in: %s", line);
}

static int may_open(int minor) {
    char path[96];
    snprintf(path, sizeof path, "%s%d", machine.devices, minor);
    int file = open(path, O_RDWR);
    if (file >= 0) close(file);
    return file >= 0 || (errno != EPERM && errno != EACCES);
}

static void hide(void) {
    int kept = 0, old[GPUS], now[GPUS];
    for (int n = 0; n < machine.gpus; n++) {
        now[n] = may_open(machine.gpu[n].minor) ? kept : GPUS;
        if (now[n] == GPUS) continue;
        old[kept] = n;
        machine.gpu[kept++] = machine.gpu[n];
    }
    for (int a = 0; a < kept; a++)
        for (int b = 0; b < kept; b++) machine.level[a][b] = machine.level[old[a]][old[b]];
    for (int n = 0; n < machine.failures; n++)
        if (machine.failure[n].gpu >= 0) machine.failure[n].gpu = now[machine.failure[n].gpu];
    for (int n = 0; n < machine.steps; n++) machine.step[n].gpu = now[machine.step[n].gpu];
    machine.gpus = kept;
}

static double seconds(void) {
    const char *path = getenv("STANDIN_NVML_CLOCK");
    FILE *file = path ? fopen(path, "r") : NULL;
    double now = 0;
    if (file) {
        if (fscanf(file, "%lf", &now) != 1) now = 0;
        fclose(file);
        return now;
    }
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9 - machine.began;
}

static const char *file_of_machine(void) {
    const char *path = getenv("STANDIN_NVML");
    return path ? path : "/etc/nvml-standin";
}

static void read_machine(void) {
    FILE *file = fopen(file_of_machine(), "r");
    char line[4096];
    memset(&machine, 0, sizeof machine);
    if (!file) return;
    statx(fileno(file), "", AT_EMPTY_PATH, STATX_INO | STATX_MTIME, &machine.as_read);
    while (fgets(line, sizeof line, file)) read_line(line);
    fclose(file);
    if (machine.devices[0]) hide();
}

static void read_again_if_changed(void) {
    struct statx now, *old = &machine.as_read;
    if (!machine.ready || statx(AT_FDCWD, file_of_machine(), 0, STATX_INO | STATX_MTIME, &now)) return;
    if (now.stx_ino == old->stx_ino && !memcmp(&now.stx_mtime, &old->stx_mtime, sizeof now.stx_mtime)) return;
    double began = machine.began;
    read_machine();
    machine.ready = 1;
    machine.began = began;
}

/* What the call is told to return, or OK. */
static int told(const char *function, int gpu) {
    for (int n = 0; n < machine.waits; n++)
        if (!strcmp(machine.wait[n].function, function)) sleep(machine.wait[n].seconds);
    for (int n = 0; n < machine.failures; n++) {
        Failure *failure = &machine.failure[n];
        if (strcmp(failure->function, function) || (failure->gpu >= 0 && failure->gpu != gpu)) continue;
        while (failure->code == HANG) pause();
        return failure->code;
    }
    return OK;
}

static int index_of(void *handle) {
    for (int n = 0; n < machine.gpus; n++) {
        if (handle == &machine.gpu[n]) return n;
        for (int p = 0; p < PARTS; p++) if (handle == &machine.gpu[n].parts[p]) return n;
    }
    return -1;
}

static Part *part_of(void *handle) {
    int n = index_of(handle);
    return n < 0 || handle == &machine.gpu[n] ? NULL : handle;
}

static void set_pci(Pci *pci, const char *bus_id) {
    memset(pci, 0, sizeof *pci);
    sscanf(bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", bus_id);
    snprintf(pci->legacy, sizeof pci->legacy, "%.15s", strlen(bus_id) > 12 ? bus_id + 4 : bus_id);
}

#define CALLED(handle) \
    if (!machine.ready) return UNINITIALIZED; \
    read_again_if_changed(); \
    int n = index_of(handle); \
    if (n < 0 || (part_of(handle) && !part_of(handle)->uuid[0])) return INVALID; \
    int failed = told(__func__, n); \
    if (failed) return failed; \
    Gpu *gpu = &machine.gpu[n]; \
    (void)gpu
#define WHOLE(handle) CALLED(handle); if (part_of(handle)) return INVALID

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    read_machine();
    int failed = told("nvmlInitWithFlags", -1);
    machine.ready = !failed;
    machine.began = seconds();
    return failed;
}
EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT int nvmlShutdown(void) { machine.ready = 0; return OK; }
EXPORT const char *nvmlErrorString(int code) {
    switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    case 999: return "Unknown Error";
    default: return "Some Error";
    }
}
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    int failed = told(__func__, -1);
    if (!failed) snprintf(text, length, "%s", machine.driver);
    return failed;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    int failed = machine.ready ? told(__func__, -1) : UNINITIALIZED;
    if (!failed) *count = machine.gpus;
    return failed;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (!machine.ready) return UNINITIALIZED;
    if (index >= (unsigned)machine.gpus) return INVALID;
    *handle = &machine.gpu[index];
    return told(__func__, index);
}
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    read_again_if_changed();
    for (int n = 0; n < machine.gpus; n++) {
        *handle = &machine.gpu[n];
        if (!strcmp(machine.gpu[n].uuid, uuid)) return told(__func__, n);
        for (int p = 0; p < PARTS; p++) {
            *handle = &machine.gpu[n].parts[p];
            if (!strcmp(machine.gpu[n].parts[p].uuid, uuid)) return told(__func__, n);
        }
    }
    return NOT_FOUND;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **handle) {
    for (int n = 0; n < machine.gpus; n++) {
        *handle = &machine.gpu[n];
        Pci given, own;
        set_pci(&given, bus_id);
        set_pci(&own, machine.gpu[n].bus_id);
        if (given.domain == own.domain && given.bus == own.bus && given.device == own.device) return told(__func__, n);
    }
    return NOT_FOUND;
}
EXPORT int nvmlDeviceGetIndex(void *handle, unsigned *index) { WHOLE(handle); *index = n; return OK; }
EXPORT int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor) {
    WHOLE(handle);
    if (gpu->minor < 0) return NOT_SUPPORTED;
    *minor = gpu->minor;
    return OK;
}
EXPORT int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    CALLED(handle);
    Part *part = part_of(handle);
    snprintf(text, length, "%s", part ? part->uuid : gpu->uuid);
    return OK;
}
EXPORT int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    CALLED(handle);
    Part *part = part_of(handle);
    snprintf(text, length, "%s", part ? part->name : gpu->name);
    return OK;
}
EXPORT int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) { WHOLE(handle); set_pci(pci, gpu->bus_id); return OK; }
static unsigned long long bytes_of(void *handle, Gpu *gpu) {
    Part *part = part_of(handle);
    return (unsigned long long)(part ? part->mib : gpu->mib) << 20;
}
/* The step of the device's curve at a time; NULL before the first. Steps are in order. */
static Step *step_at(void *handle, double when) {
    Part *part = part_of(handle);
    Step *found = NULL;
    for (int n = 0; n < machine.steps; n++) {
        Step *step = &machine.step[n];
        if (step->gpu == index_of(handle) && step->place == (part ? part->place : -1) && step->from <= when) found = step;
    }
    return found;
}
static Used used_of(void *handle, Gpu *gpu) {
    Part *part = part_of(handle);
    Step *step = step_at(handle, seconds());
    if (step) return step->used;
    return part ? part->used : gpu->used;
}
EXPORT int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    CALLED(handle);
    if (gpu->guarded && !part_of(handle)) return NO_PERMISSION;
    memory->total = bytes_of(handle, gpu);
    memory->used = (unsigned long long)used_of(handle, gpu).mib << 20;
    memory->free = memory->total - memory->used;
    return OK;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *memory) {
    CALLED(handle);
    if (gpu->guarded && !part_of(handle)) return NO_PERMISSION;
    memory->total = bytes_of(handle, gpu);
    memory->reserved = 0;
    memory->used = (unsigned long long)used_of(handle, gpu).mib << 20;
    memory->free = memory->total - memory->used;
    return OK;
}

static int give_mask(const unsigned long long *from, unsigned count, unsigned long long *words) {
    int any = 0;
    for (unsigned n = 0; n < WORDS; n++) {
        any |= from[n] != 0;
        if (n >= count && from[n]) return SIZE;
    }
    for (unsigned n = 0; n < count; n++) words[n] = n < WORDS ? from[n] : 0;
    return any ? OK : NOT_SUPPORTED;
}
EXPORT int nvmlDeviceGetCpuAffinity(void *handle, unsigned count, unsigned long long *words) {
    WHOLE(handle);
    return give_mask(gpu->cpus, count, words);
}
EXPORT int nvmlDeviceGetCpuAffinityWithinScope(void *handle, unsigned count, unsigned long long *words, unsigned scope) {
    WHOLE(handle);
    return scope > 1 ? INVALID : give_mask(gpu->cpus, count, words);
}
EXPORT int nvmlDeviceGetMemoryAffinity(void *handle, unsigned count, unsigned long long *words, unsigned scope) {
    WHOLE(handle);
    return scope > 1 ? INVALID : give_mask(gpu->nodes, count, words);
}
EXPORT int nvmlDeviceGetNumaNodeId(void *handle, unsigned *node) {
    WHOLE(handle);
    if (gpu->own_node < 0) return NOT_SUPPORTED;
    *node = gpu->own_node;
    return OK;
}
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned *generation) {
    WHOLE(handle);
    if (gpu->pcie < 0) return NOT_SUPPORTED;
    *generation = gpu->pcie;
    return OK;
}

EXPORT int nvmlDeviceGetTopologyCommonAncestor(void *handle, void *other, unsigned *level) {
    WHOLE(handle);
    int m = index_of(other);
    if (m < 0) return INVALID;
    *level = machine.level[n][m];
    return OK;
}
EXPORT int nvmlDeviceGetP2PStatus(void *handle, void *other, unsigned index, unsigned *status) {
    WHOLE(handle);
    int m = index_of(other);
    if (m < 0 || index > 4) return INVALID;
    *status = machine.peer[n][m];
    return OK;
}
#define LINK(handle, number) \
    WHOLE(handle); \
    if (number >= USABLE_LINKS) return INVALID; \
    Link *link = &gpu->links[number]
EXPORT int nvmlDeviceGetNvLinkState(void *handle, unsigned number, unsigned *active) {
    LINK(handle, number);
    *active = link->bus_id[0] != 0;
    return OK;
}
EXPORT int nvmlDeviceGetNvLinkVersion(void *handle, unsigned number, unsigned *version) {
    LINK(handle, number);
    *version = link->version;
    return link->bus_id[0] ? OK : NOT_SUPPORTED;
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned number, Pci *pci) {
    LINK(handle, number);
    set_pci(pci, link->bus_id);
    return link->bus_id[0] ? OK : NOT_SUPPORTED;
}
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned number, int *kind) {
    LINK(handle, number);
    *kind = link->kind;
    return link->bus_id[0] ? OK : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    WHOLE(handle);
    *current = *pending = gpu->places >= 0;
    if (gpu->pending >= 0) *pending = gpu->pending;
    return OK;
}
EXPORT int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    WHOLE(handle);
    if (!gpu->has_errors) return NOT_SUPPORTED;
    *corrected = gpu->errors[0] == 2; /* of rows remapped so far */
    *uncorrected = gpu->errors[0] == 1 || gpu->errors[1];
    *pending = gpu->errors[0] != 0;
    *failure = gpu->errors[1];
    return OK;
}
EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(void *handle, unsigned *pending) {
    WHOLE(handle);
    if (!gpu->has_errors) return NOT_SUPPORTED;
    *pending = gpu->errors[2];
    return OK;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    WHOLE(handle);
    *count = gpu->places < 0 ? 0 : gpu->places;
    return OK;
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned place, void **device) {
    WHOLE(handle);
    if (place >= PARTS || !gpu->parts[place].uuid[0]) return NOT_FOUND;
    *device = &gpu->parts[place];
    return OK;
}
EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **device) {
    CALLED(handle);
    if (!part_of(handle)) return INVALID;
    *device = gpu;
    return OK;
}
EXPORT int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is) { CALLED(handle); *is = part_of(handle) != NULL; return OK; }

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *processes) {
    CALLED(handle);
    unsigned room = *count;
    *count = used_of(handle, gpu).processes;
    if (room < *count) return SIZE;
    for (unsigned n = 0; n < *count; n++) processes[n] = (Process){1000 + n, 1 << 20, ~0u, ~0u};
    return OK;
}
EXPORT int nvmlDeviceGetUtilizationRates(void *handle, Utilization *rates) {
    CALLED(handle);
    if (part_of(handle)) return NOT_SUPPORTED;
    Step *step = step_at(handle, seconds());
    rates->gpu = step ? step->percent : 0;
    rates->memory = 0;
    return OK;
}
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *energy) {
    CALLED(handle);
    if (part_of(handle)) return NOT_SUPPORTED;
    double joules = 1, until = seconds();
    for (int m = machine.steps; m-- > 0;) {
        Step *step = &machine.step[m];
        if (step->gpu != n || step->place >= 0 || step->from > until) continue;
        joules += step->watts * (until - step->from);
        until = step->from;
    }
    *energy = joules * 1000;
    return OK;
}
EXPORT int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    CALLED(handle);
    if (part_of(handle)) return NOT_SUPPORTED;
    Step *step = step_at(handle, seconds());
    *milliwatts = step ? step->watts * 1000 : 0;
    return OK;
}

/* --- GPM: a sample is the device and the time at which it was taken --- */

typedef struct { void *device; double at; } GpmSample;
typedef struct { unsigned id; int result; double value; const char *names[3]; } GpmMetric;
typedef struct { unsigned version, number; GpmSample *before, *now; GpmMetric metrics[]; } GpmMetrics;
typedef struct { unsigned version, supported; } GpmSupport;

EXPORT int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) {
    CALLED(handle);
    if (!part_of(handle)) return INVALID;
    *id = part_of(handle)->place;
    return OK;
}
EXPORT int nvmlGpmQueryDeviceSupport(void *handle, GpmSupport *support) {
    CALLED(handle);
    if (support->version != 1) return INVALID;
    support->supported = gpu->gpm;
    return OK;
}
EXPORT int nvmlGpmSampleAlloc(GpmSample **sample) { *sample = calloc(1, sizeof **sample); return OK; }
EXPORT int nvmlGpmSampleFree(GpmSample *sample) { free(sample); return OK; }
EXPORT int nvmlGpmMigSampleGet(void *handle, unsigned instance, GpmSample *sample) {
    WHOLE(handle);
    if (!gpu->gpm) return NOT_SUPPORTED;
    if (instance >= PARTS || !gpu->parts[instance].uuid[0]) return NOT_FOUND;
    *sample = (GpmSample){&gpu->parts[instance], seconds()};
    return OK;
}
EXPORT int nvmlGpmMetricsGet(GpmMetrics *asked) {
    int failed = told(__func__, -1);
    if (failed) return failed;
    if (asked->version != 1 || asked->number != 1 || asked->metrics[0].id != 1) return INVALID;
    if (asked->now->at <= asked->before->at) return INVALID;
    Step *step = step_at(asked->now->device, asked->now->at);
    asked->metrics[0].result = OK;
    asked->metrics[0].value = step ? step->percent : 0;
    return OK;
}
