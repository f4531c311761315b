/* host.c - reads how many processor cores and how much memory this process may use, and chooses a NUMA node.
 *
 * NUMA needs only two system calls and the parsing of lists of numbers. libnuma is not used, because it prints to the
 * standard error, and reads nothing but /sys, so tests could not simulate other machines. */
#define _GNU_SOURCE
#include "host.h"

#include <ctype.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

bool pd_host_read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t n;

    if (file == NULL) return false;
    n = fread(text, 1, size - 1, file);
    text[n] = '\0';
    fclose(file);
    return n > 0;
}

/* Returns whether a list such as "cpu,cpuacct" contains this controller. Names must be equal: "cpuset" is not "cpu". */
static bool has_controller(const char *list, const char *controller)
{
    size_t n = strlen(controller);

    for (; *list != '\0'; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == n && strncmp(list, controller, n) == 0) return true;
    return false;
}

/* Finds the path of this process's control group, from a line of /proc/self/cgroup such as "0::/path" (version 2 of
 * control groups) or "5:memory:/path" (version 1). */
static bool group_path(const char *root, const char *controller, char *path, size_t size)
{
    char name[1024], text[4096], *line, *state = NULL;

    snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    if (!pd_host_read_text(name, text, sizeof text)) return false;
    for (line = strtok_r(text, "\n", &state); line != NULL; line = strtok_r(NULL, "\n", &state)) {
        char *list = strchr(line, ':'), *at = list != NULL ? strchr(list + 1, ':') : NULL;
        if (at == NULL) continue;
        *at = '\0';
        if (controller[0] == '\0' ? list[1] != '\0' : !has_controller(list + 1, controller)) continue;
        snprintf(path, size, "%s", at + 1);
        return true;
    }
    return false;
}

void pd_host_walk(const char *root, const char *controller, const char *file, void (*see)(const char *text, void *arg),
                  void *arg)
{
    char path[2048], full[4096], text[1024], *slash;

    if (!group_path(root, controller, path, sizeof path)) return;
    for (;;) {
        snprintf(full, sizeof full, "%s/sys/fs/cgroup%s%s%s/%s", root, controller[0] != '\0' ? "/" : "", controller,
                 strcmp(path, "/") == 0 ? "" : path, file);
        if (pd_host_read_text(full, text, sizeof text)) see(text, arg);
        if ((slash = strrchr(path, '/')) == NULL || path[1] == '\0') return;
        slash[slash == path ? 1 : 0] = '\0';
    }
}

int pd_host_quota(const char *text)
{
    long long quota, period;

    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;
    return (int)((quota + period - 1) / period);
}

static void see_quota(const char *text, void *arg)
{
    int *cores = arg, quota = pd_host_quota(text);
    if (quota > 0 && quota < *cores) *cores = quota;
}

/* Lowers the number of cores to a limit of processor time in version 1 of control groups. The file contains only the
 * allowed microseconds per period, so the default period of 100 ms is assumed. */
static void see_cfs_quota(const char *text, void *arg)
{
    char both[160];

    snprintf(both, sizeof both, "%lld 100000", strtoll(text, NULL, 10));
    see_quota(both, arg);
}

int pd_host_limit_cores(int cores)
{
    pd_host_walk("", "", "cpu.max", see_quota, &cores);
    pd_host_walk("", "cpu", "cpu.cfs_quota_us", see_cfs_quota, &cores);
    return cores;
}

int pd_host_cores(void)
{
    cpu_set_t set;
    int cores = 1;

    if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
    cores = pd_host_limit_cores(cores);
    return cores > 0 ? cores : 1;
}

/* Lowers the number of bytes to a memory limit. The text "max" means no limit; it is read as 0 and skipped. */
static void see_bytes(const char *text, void *arg)
{
    uint64_t *least = arg, bytes = strtoull(text, NULL, 10);
    if (bytes > 0 && bytes < *least) *least = bytes;
}

uint64_t pd_host_memory_limit(const char *root)
{
    uint64_t bytes = UINT64_MAX;

    pd_host_walk(root, "", "memory.max", see_bytes, &bytes);
    pd_host_walk(root, "memory", "memory.limit_in_bytes", see_bytes, &bytes);
    return bytes;
}

uint64_t pd_host_memory(void)
{
    struct sysinfo info;
    uint64_t limit = pd_host_memory_limit(""), bytes = UINT64_MAX;

    if (sysinfo(&info) == 0) bytes = (uint64_t)info.totalram * info.mem_unit;
    return bytes < limit ? bytes : limit;
}

#define SYSTEM_FOLDER "/sys/devices/system/node"

/* Reads a number below CPU_SETSIZE, and advances *at past it. Returns -1 if there is no such number. */
static int read_number(const char **at)
{
    int number = -1;

    for (; isdigit((unsigned char)**at); (*at)++) {
        number = (number < 0 ? 0 : 10 * number) + (**at - '0');
        if (number >= CPU_SETSIZE) return -1;
    }
    return number;
}

/* Adds a number or a range, such as 8 or 0-3, to the set, and advances *at past it. Returns false if there is none. */
static bool read_range(const char **at, cpu_set_t *out)
{
    int first = read_number(at), last = first;

    if (first >= 0 && **at == '-') {
        (*at)++;
        last = read_number(at);
    }
    if (first < 0 || last < first) return false;
    for (int i = first; i <= last; i++) CPU_SET(i, out);
    return true;
}

bool pd_numa_read_list(const char *text, cpu_set_t *out)
{
    bool more = *text != '\n' && *text != '\0';

    CPU_ZERO(out);
    while (more) {
        if (!read_range(&text, out)) return false;
        if ((more = *text == ',')) text++;
    }
    return text[*text == '\n'] == '\0';
}

static bool read_list_file(const char *path, cpu_set_t *out)
{
    char text[8192]; /* more than the longest list of numbers below 1024 */

    return pd_host_read_text(path, text, sizeof text) && pd_numa_read_list(text, out);
}

/* Reads the processors of a node, and stores the node in *out if it is the best so far. Adds 1 to *usable if this
 * process may use some of its processors. Returns false if the node's file cannot be read. */
static bool see_node(pd_numa *out, const char *folder, int node, const cpu_set_t *allowed, int *usable)
{
    char path[4096];
    cpu_set_t cpus;

    snprintf(path, sizeof path, "%s/node%d/cpulist", folder, node);
    if (!read_list_file(path, &cpus)) return false;
    if (CPU_COUNT(&cpus) > 0) out->nodes++;
    CPU_AND(&cpus, &cpus, allowed);
    if (CPU_COUNT(&cpus) > 0) ++*usable;
    if (CPU_COUNT(&cpus) <= out->cpus) return true;
    out->node = node;
    out->cpus = CPU_COUNT(&cpus);
    out->mask = cpus;
    return true;
}

static pd_numa_finding finding_of(const pd_numa *numa, int usable)
{
    if (usable == 0) return PD_NUMA_UNKNOWN;
    if (numa->nodes == 1) return PD_NUMA_ONE_NODE;
    if (usable == 1) return PD_NUMA_CONFINED;
    return numa->threads > numa->cpus ? PD_NUMA_CROWDED : PD_NUMA_CHOSEN;
}

void pd_numa_choose(pd_numa *out, const char *folder, const cpu_set_t *allowed, int threads)
{
    char path[4096];
    cpu_set_t online;
    int usable = 0;

    *out = (pd_numa){ .finding = PD_NUMA_UNKNOWN, .threads = threads };
    snprintf(path, sizeof path, "%s/online", folder);
    if (!read_list_file(path, &online)) return;
    for (int node = 0; node < CPU_SETSIZE; node++)
        if (CPU_ISSET(node, &online) && !see_node(out, folder, node, allowed, &usable)) return;
    out->finding = finding_of(out, usable);
}

void pd_numa_find(pd_numa *out, bool off, const cpu_set_t *allowed, int threads)
{
    int policy = MPOL_DEFAULT;

    *out = (pd_numa){ .finding = off ? PD_NUMA_OFF : PD_NUMA_UNKNOWN };
    if (off) return;
    pd_numa_choose(out, SYSTEM_FOLDER, allowed, threads);
    if (out->finding != PD_NUMA_CHOSEN && out->finding != PD_NUMA_CROWDED) return;
    syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0); /* if this fails, `policy` stays MPOL_DEFAULT */
    if (policy != MPOL_DEFAULT) out->finding = PD_NUMA_POLICY;
}

void pd_numa_describe(const pd_numa *numa, char *text, size_t size)
{
    switch (numa->finding) {
    case PD_NUMA_OFF: snprintf(text, size, "numa: off"); return;
    case PD_NUMA_UNKNOWN:
        snprintf(text, size, "numa: off, because %s does not list the machine's nodes", SYSTEM_FOLDER);
        return;
    case PD_NUMA_ONE_NODE: snprintf(text, size, "numa: one node"); return;
    case PD_NUMA_CONFINED:
        snprintf(text, size, "numa: all CPUs that this process may use are on node %d of %d", numa->node, numa->nodes);
        return;
    case PD_NUMA_CROWDED:
        snprintf(text, size, "numa: off, because %d step threads do not fit on node %d of %d, which has %d CPUs",
                 numa->threads, numa->node, numa->nodes, numa->cpus);
        return;
    case PD_NUMA_POLICY:
        snprintf(text, size, "numa: off, because paramd was started with a memory policy (numactl)");
        return;
    case PD_NUMA_CHOSEN: break;
    }
    snprintf(text, size, "numa: step threads on node %d of %d, %d CPUs", numa->node, numa->nodes, numa->cpus);
}

int pd_numa_bind(const pd_numa *numa)
{
    if (numa->finding != PD_NUMA_CHOSEN) return 0;
    return sched_setaffinity(0, sizeof numa->mask, &numa->mask) == 0 ? 0 : errno;
}

int pd_numa_prefer(const pd_numa *numa)
{
    cpu_set_t nodes; /* the kernel reads a set of nodes in the form of a set of processors */

    if (numa->finding != PD_NUMA_CHOSEN) return 0;
    CPU_ZERO(&nodes);
    CPU_SET(numa->node, &nodes);
    /* the kernel subtracts 1 from the number of bits */
    return syscall(SYS_set_mempolicy, MPOL_PREFERRED, &nodes, CPU_SETSIZE + 1) == 0 ? 0 : errno;
}
