/* slice.c - divides a machine's processors and memory among several daemons. */
#define _GNU_SOURCE
#include "slice.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

#define SYSTEM_FOLDER "/sys/devices/system/node"

/* Reads a number from 1 to CPU_SETSIZE, and advances *at past it. Returns 0 if there is none. */
static int read_number(const char **at)
{
    int number = 0;

    for (; **at >= '0' && **at <= '9'; (*at)++) {
        number = 10 * number + (**at - '0');
        if (number > CPU_SETSIZE) return 0;
    }
    return number;
}

int pd_slice_read(pd_slice *out, const char *text, pd_error *err)
{
    const char *at = text;

    *out = (pd_slice){ 0 };
    if (text[0] == '\0') return PD_OK;
    out->number = read_number(&at);
    if (*at == '/') {
        at++;
        out->of = read_number(&at);
    }
    if (*at == '\0' && out->number > 0 && out->number <= out->of) return PD_OK;
    *out = (pd_slice){ 0 };
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "server.slice = %.40s: expected I/N with I from 1 to N, such as 2/4 for the second quarter", text);
}

/* A processor, and the numbers by which processors are put in order. */
typedef struct processor {
    int node, core, cpu; /* core: lowest number of the processors that share its core */
} processor;

/* Returns the lowest number in the list of the hyperthreads of a processor's core; the processor itself if the list
 * cannot be read. */
static int core_of(const char *folder, int node, int cpu)
{
    char path[4096], text[8192];
    cpu_set_t siblings;

    snprintf(path, sizeof path, "%s/node%d/cpu%d/topology/thread_siblings_list", folder, node, cpu);
    if (!pd_host_read_text(path, text, sizeof text) || !pd_numa_read_list(text, &siblings)) return cpu;
    for (int i = 0; i < cpu; i++)
        if (CPU_ISSET(i, &siblings)) return i;
    return cpu;
}

static bool read_list_file(const char *path, cpu_set_t *out)
{
    char text[8192];

    return pd_host_read_text(path, text, sizeof text) && pd_numa_read_list(text, out);
}

/* Sets node and core of those processors that a node has. Leaves them as they are if the node cannot be read. */
static void see_node(processor *all, size_t n, const char *folder, int node)
{
    char path[4096];
    cpu_set_t cpus;

    snprintf(path, sizeof path, "%s/node%d/cpulist", folder, node);
    if (!read_list_file(path, &cpus)) return;
    for (size_t i = 0; i < n; i++)
        if (CPU_ISSET(all[i].cpu, &cpus)) {
            all[i].node = node;
            all[i].core = core_of(folder, node, all[i].cpu);
        }
}

static int compare(const void *left, const void *right)
{
    const processor *a = left, *b = right;

    if (a->node != b->node) return a->node < b->node ? -1 : 1;
    if (a->core != b->core) return a->core < b->core ? -1 : 1;
    return (a->cpu > b->cpu) - (a->cpu < b->cpu);
}

/* Lists the processors in *allowed, node by node and core by core. Returns their number. */
static size_t list_processors(processor all[CPU_SETSIZE], const char *folder, const cpu_set_t *allowed)
{
    char path[4096];
    cpu_set_t online;
    size_t n = 0;

    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, allowed)) all[n++] = (processor){ 0, cpu, cpu };
    snprintf(path, sizeof path, "%s/online", folder);
    if (read_list_file(path, &online))
        for (int node = 0; node < CPU_SETSIZE; node++)
            if (CPU_ISSET(node, &online)) see_node(all, n, folder, node);
    qsort(all, n, sizeof *all, compare);
    return n;
}

int pd_slice_choose(cpu_set_t *out, const char *folder, const cpu_set_t *allowed, pd_slice slice, pd_error *err)
{
    processor all[CPU_SETSIZE];
    size_t n, first, end;

    *out = *allowed;
    if (slice.of == 0) return PD_OK;
    n = list_processors(all, folder, allowed);
    if (n < (size_t)slice.of)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "server.slice = %d/%d: this process may use %zu processors, so at most %zu slices can be made",
                       slice.number, slice.of, n, n);
    first = n * (size_t)(slice.number - 1) / (size_t)slice.of;
    end = n * (size_t)slice.number / (size_t)slice.of;
    CPU_ZERO(out);
    for (size_t i = first; i < end; i++) CPU_SET(all[i].cpu, out);
    return PD_OK;
}

static pthread_once_t first_call = PTHREAD_ONCE_INIT;
static cpu_set_t at_first_call; /* written once, by see_first */
static int first_errno;

static void see_first(void)
{
    if (sched_getaffinity(0, sizeof at_first_call, &at_first_call) != 0) first_errno = errno;
}

int pd_slice_processors(cpu_set_t *out, pd_slice slice, pd_error *err)
{
    pthread_once(&first_call, see_first);
    CPU_ZERO(out);
    if (first_errno != 0 && slice.of == 0) return PD_OK; /* a kernel with more processors than the set has bits */
    if (first_errno != 0)
        return pd_fail(err, PD_INTERNAL, "server.slice: sched_getaffinity: %s", strerror(first_errno));
    return pd_slice_choose(out, SYSTEM_FOLDER, &at_first_call, slice, err);
}

int pd_slice_cores(pd_slice slice, const cpu_set_t *processors)
{
    int cores = CPU_COUNT(processors), limit = pd_host_limit_cores(INT_MAX);

    if (slice.of > 0 && limit != INT_MAX) limit = (limit + slice.of - 1) / slice.of;
    if (cores > limit) cores = limit;
    return cores > 0 ? cores : 1;
}

uint64_t pd_slice_memory(pd_slice slice)
{
    return slice.of > 0 ? pd_host_memory() / (uint64_t)slice.of : pd_host_memory();
}

int pd_slice_bind(pd_slice slice, pd_error *err)
{
    cpu_set_t processors;
    int rc;

    if (slice.of == 0) return PD_OK;
    if ((rc = pd_slice_processors(&processors, slice, err)) != PD_OK) return rc;
    if (sched_setaffinity(0, sizeof processors, &processors) == 0) return PD_OK;
    return pd_fail(err, PD_INTERNAL, "server.slice: sched_setaffinity: %s", strerror(errno));
}
