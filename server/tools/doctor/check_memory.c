/* check_memory.c - checks memory: how much there is, what limits it, and huge pages. */
#include <inttypes.h>
#include <string.h>

#include "checks.h"
#include "format.h"
#include "host.h"

#define LITTLE (1ull << 30) /* bytes of free memory below which training even a small model is doubtful */

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
                  "`paramctl plan' says what a model needs. Free memory, raise the limit "
                  "(MemoryMax=, --memory), or lower limits.max_total_bytes.");
    if (pd_machine_number(machine, "/proc/sys/vm/overcommit_memory", 0) == 2)
        pd_advise(out, PD_HEALTH_WARN,
                  "The kernel promises no more memory than it has (vm.overcommit_memory = 2), so "
                  "large allocations may fail early: set it to 0.");
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
