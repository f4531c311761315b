/* check_machine.c - checks processors, NUMA nodes, memory, resource limits, and clocks. */
#include "doctor.h"

#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <time.h>

#include "format.h"
#include "host.h"

/* The processor time that control groups allow this process, and how often its use was stopped. */
typedef struct grant {
    double processors; /* number of processors that the group and its parents allow: the least of them; 0: no limit */
    int64_t stopped;   /* number of periods in which processes used up their time and had to wait for the next period */
} grant;

static void take_least(grant *out, double quota, double period)
{
    if (quota <= 0 || period <= 0) return;
    if (out->processors == 0 || quota / period < out->processors) out->processors = quota / period;
}

/* Reads the file cpu.max of control groups version 2: "QUOTA PERIOD", or "max PERIOD". */
static void see_max(const char *text, void *arg)
{
    double quota, period;

    if (sscanf(text, "%lf %lf", &quota, &period) == 2) take_least(arg, quota, period);
}

/* Reads the file cpu.cfs_quota_us of control groups version 1; -1: no limit. Assumes a period of 100 ms, the
 * default. */
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

/* Tells how many movers the configuration asks for, and warns if they take most of the processors from steps. */
static void see_movers(const pd_machine *machine, int processors, pd_finding *out)
{
    char text[16];
    long movers;

    if (!pd_machine_setting(machine, "movers", text, sizeof text)) return;
    movers = strtol(text, NULL, 10);
    pd_found(out, ", %ld movers", movers);
    if (2 * movers > processors)
        pd_advise(
            out, PD_HEALTH_WARN,
            "Movers take the processors that steps need: set threads.movers at most to a quarter of the processors.");
}

void pd_check_processors(const pd_machine *machine, pd_finding *out)
{
    grant given = read_grant(machine->root);
    cpu_set_t set;
    int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

    pd_found(out, "%d processors", allowed);
    see_movers(machine, allowed, out);
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
                  "The configuration turns the choice of a node off: set threads.numa = auto, so that steps read the "
                  "memory of their own node.");
}

#define LITTLE (1ull << 30) /* bytes of free memory below which even a small model may not fit */

void pd_check_memory(const pd_machine *machine, pd_finding *out)
{
    char text[8192], total[PD_CELL], free_[PD_CELL], most[PD_CELL];
    uint64_t limit = pd_host_memory_limit(machine->root), bytes, available;

    if (!pd_machine_text(machine, "/proc/meminfo", text, sizeof text)) {
        pd_found(out, "/proc/meminfo cannot be read");
        pd_advise(out, PD_HEALTH_WARN, "Mount /proc: the daemon takes its limits from it.");
        return;
    }
    bytes = (uint64_t)pd_number_after(text, "MemTotal:", 0) * 1024;
    available = (uint64_t)pd_number_after(text, "MemAvailable:", 0) * 1024;
    pd_found(out, "%s, %s free", pd_bytes_text(total, bytes), pd_bytes_text(free_, available));
    if (limit < bytes) pd_found(out, ", control group allows %s", pd_bytes_text(most, limit));
    if (available < LITTLE || limit < LITTLE)
        pd_advise(out, PD_HEALTH_WARN,
                  "`paramctl plan' says what a model needs. Free memory, raise the limit (MemoryMax=, --memory), or "
                  "lower limits.max_total_bytes.");
    if (pd_machine_number(machine, "/proc/sys/vm/overcommit_memory", 0) == 2)
        pd_advise(out, PD_HEALTH_WARN,
                  "The kernel promises no more memory than it has (vm.overcommit_memory = 2), so large allocations may "
                  "fail early: set it to 0.");
}

#define PAGES "/sys/kernel/mm/transparent_hugepage/"

void pd_check_huge_pages(const pd_machine *machine, pd_finding *out)
{
    char own[32], shared[32] = "unknown", wanted[8] = "yes";

    if (!pd_machine_choice(machine, PAGES "enabled", own, sizeof own)) {
        pd_found(out, "this kernel has no transparent huge pages");
        pd_advise(out, PD_HEALTH_WARN, "Large tensors cost more page faults: use a kernel that has them.");
        return;
    }
    pd_machine_choice(machine, PAGES "shmem_enabled", shared, sizeof shared);
    pd_machine_setting(machine, "shared_memory", wanted, sizeof wanted);
    pd_found(out, "%s; for shared memory %s", own, shared);
    if (strcmp(own, "never") == 0) pd_advise(out, PD_HEALTH_WARN, "As root: echo madvise > " PAGES "enabled");
    if (strcmp(shared, "never") == 0 && strcmp(wanted, "yes") == 0)
        pd_advise(out, PD_HEALTH_WARN,
                  "Workers on Unix sockets share memory faster with them. As root: echo advise > " PAGES
                  "shmem_enabled");
}

/* OWN_DESCRIPTORS: descriptors that the daemon needs besides those of its connections. CONNECTIONS: default of
 * server.max_connections. */
enum { OWN_DESCRIPTORS = 64, CONNECTIONS = 4096 };

/* Appends a limit in bytes to the text of a finding. */
static void found_limit(pd_finding *out, const char *name, rlim_t limit)
{
    char text[PD_CELL];

    pd_found(out, "%s%s %s", out->found[0] != '\0' ? ", " : "", name,
             limit == RLIM_INFINITY ? "unlimited" : pd_bytes_text(text, limit));
}

void pd_check_descriptors(const pd_machine *machine, pd_finding *out)
{
    struct rlimit limit;
    char text[32];
    uint64_t most = CONNECTIONS;

    if (pd_machine_setting(machine, "max_connections", text, sizeof text)) most = strtoull(text, NULL, 10);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
    if (limit.rlim_cur == RLIM_INFINITY)
        pd_found(out, "unlimited");
    else
        pd_found(out, "%" PRIu64 " for %" PRIu64 " connections", (uint64_t)limit.rlim_cur, most);
    if (limit.rlim_cur < most + OWN_DESCRIPTORS)
        pd_advise(out, PD_HEALTH_WARN,
                  "A daemon that this shell starts turns connections away before server.max_connections is reached: "
                  "ulimit -n %" PRIu64 ". The systemd unit sets LimitNOFILE itself.",
                  most + OWN_DESCRIPTORS);
}

void pd_check_address_space(const pd_machine *machine, pd_finding *out)
{
    struct rlimit space, locked;
    (void)machine;

    if (getrlimit(RLIMIT_AS, &space) != 0) space.rlim_cur = RLIM_INFINITY;
    if (getrlimit(RLIMIT_MEMLOCK, &locked) != 0) locked.rlim_cur = RLIM_INFINITY;
    found_limit(out, "address space", space.rlim_cur);
    found_limit(out, "locked memory", locked.rlim_cur);
    if (space.rlim_cur != RLIM_INFINITY)
        pd_advise(out, PD_HEALTH_WARN,
                  "Shared segments and libraries count against the limit of the address space: ulimit -v unlimited, "
                  "and limit memory by a control group instead.");
}

enum { READS = 2000 };

#define COSTLY_NS 1000 /* ns that reading the clock may take: a slower read enters the kernel, or even reads a device */

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

/* Returns the mean time of a read of the monotonic clock, in ns. */
static int64_t cost_of_read(void)
{
    struct timespec first, last;

    clock_gettime(CLOCK_MONOTONIC, &first);
    for (int i = 0; i < READS; i++) clock_gettime(CLOCK_MONOTONIC, &last);
    return (ns_of(&last) - ns_of(&first)) / READS;
}

/* Checks whether the time of day is synchronized, as a daemon such as chrony does over the network. */
static void check_time_of_day(pd_finding *out)
{
    struct timex state = { .modes = 0 };
    int rc = adjtimex(&state);

    if (rc < 0) {
        pd_found(out, ", synchronization unknown");
        return;
    }
    if (rc != TIME_ERROR && (state.status & STA_UNSYNC) == 0) {
        pd_found(out, ", synchronized");
        return;
    }
    pd_found(out, ", not synchronized");
    pd_advise(out, PD_HEALTH_WARN,
              "Certificates and the times in logs need the time of day: install systemd-timesyncd or chrony, or ignore "
              "this where the host sets the clock.");
}

void pd_check_clock(const pd_machine *machine, pd_finding *out)
{
    char source[64] = "unknown";
    struct timespec resolution = { .tv_nsec = 1 };
    int64_t cost = cost_of_read();

    clock_getres(CLOCK_MONOTONIC, &resolution);
    pd_machine_text(machine, "/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
    source[strcspn(source, "\n")] = '\0';
    pd_found(out, "%s, resolution %lld ns, %lld ns a read", source, (long long)ns_of(&resolution), (long long)cost);
    if (ns_of(&resolution) > 1000)
        pd_advise(out, PD_HEALTH_WARN,
                  "The clock is coarse, so figures of steps are too: enable high resolution timers.");
    if (cost > COSTLY_NS || strcmp(source, "hpet") == 0 || strcmp(source, "acpi_pm") == 0)
        pd_advise(
            out, PD_HEALTH_WARN,
            "Reading the clock is slow: choose the clock source tsc or kvm-clock (kernel parameter clocksource=).");
    check_time_of_day(out);
}
