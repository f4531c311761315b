/* host.c - reads how many processor cores and how much memory this process may use. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "host.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

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

/* Returns whether a list such as "cpu,cpuacct" has a controller. A name that contains another, such as cpuset, is not
 * it. */
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

/* Takes account of a limit of processor time in version 1 of control groups, whose file has only the allowed
 * microseconds per period. The period is 100 ms by default. */
static void see_cfs_quota(const char *text, void *arg)
{
    char both[160];

    snprintf(both, sizeof both, "%lld 100000", strtoll(text, NULL, 10));
    see_quota(both, arg);
}

int pd_host_cores(void)
{
    cpu_set_t set;
    int cores = 1;

    if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
    pd_host_walk("", "", "cpu.max", see_quota, &cores);
    pd_host_walk("", "cpu", "cpu.cfs_quota_us", see_cfs_quota, &cores);
    return cores > 0 ? cores : 1;
}

/* Takes account of a limit of memory. The text "max", which means no limit, reads as 0 and is skipped. */
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
