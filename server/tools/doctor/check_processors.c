/* check_processors.c - checks processors: how many, how much of their time, and which NUMA nodes they are on. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "host.h"

/* What control groups grant of processor time, and how often they have stopped us. */
typedef struct grant {
    double processors; /* least grant of the group and its parents; 0: no limit */
    int64_t stopped;   /* periods in which processes had to wait for the next one */
} grant;

static void take_least(grant *out, double quota, double period)
{
    if (quota <= 0 || period <= 0) return;
    if (out->processors == 0 || quota / period < out->processors) out->processors = quota / period;
}

/* Reads cpu.max of version 2: "QUOTA PERIOD", or "max PERIOD". */
static void see_max(const char *text, void *arg)
{
    double quota, period;

    if (sscanf(text, "%lf %lf", &quota, &period) == 2) take_least(arg, quota, period);
}

/* Reads cpu.cfs_quota_us of version 1; -1: no limit. The period is 100 ms by default. */
static void see_cfs_quota(const char *text, void *arg)
{
    take_least(arg, strtod(text, NULL), 100000);
}

static void see_stat(const char *text, void *arg)
{
    grant *out = arg;

    out->stopped += pd_number_after(text, "nr_throttled ", 0);
}

static grant read_grant(const char *root)
{
    grant out = { 0 };

    pd_host_walk(root, "", "cpu.max", see_max, &out);
    pd_host_walk(root, "cpu", "cpu.cfs_quota_us", see_cfs_quota, &out);
    pd_host_walk(root, "", "cpu.stat", see_stat, &out);
    pd_host_walk(root, "cpu", "cpu.stat", see_stat, &out);
    return out;
}

void pd_check_processors(const pd_machine *machine, pd_finding *out)
{
    grant given = read_grant(machine->root);
    cpu_set_t set;
    int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

    pd_found(out, "%d processors", allowed);
    if (given.processors > 0) pd_found(out, ", control group grants %.2f", given.processors);
    if (given.processors > 0 && given.processors < allowed && given.processors != (int)given.processors)
        pd_advise(out, PD_HEALTH_WARN,
                  "The daemon rounds the grant up to whole threads, so they are stopped in each period: grant %d.",
                  (int)given.processors + 1);
    if (given.stopped > 0) {
        pd_found(out, ", stopped in %lld periods", (long long)given.stopped);
        pd_advise(out, PD_HEALTH_WARN,
                  "Raise the limit of processor time (CPUQuota=, --cpus), or set threads.step_threads and "
                  "threads.pool_threads so that both together need no more.");
    }
    if (allowed == 1 && given.processors == 0)
        pd_advise(out, PD_HEALTH_WARN, "Steps and roots share one processor: second-order optimizers need more.");
}

void pd_check_numa(const pd_machine *machine, pd_finding *out)
{
    char folder[1024], text[200], choice[16] = "auto";
    pd_numa numa = { 0 };
    cpu_set_t allowed;

    pd_machine_setting(machine, "numa", choice, sizeof choice);
    snprintf(folder, sizeof folder, "%s/sys/devices/system/node", machine->root);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) pd_numa_choose(&numa, folder, &allowed, 0);
    pd_numa_describe(&numa, text, sizeof text);
    pd_found(out, "%s", strncmp(text, "numa: ", 6) == 0 ? text + 6 : text);
    if (numa.finding == PD_NUMA_CHOSEN && strcmp(choice, "off") == 0)
        pd_advise(out, PD_HEALTH_WARN,
                  "The configuration turns the choice of a node off: set threads.numa = auto, so "
                  "that steps read the memory of their own node.");
}
