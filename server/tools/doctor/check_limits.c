/* check_limits.c - checks the limits of resources that this process has, as a daemon that it starts would have. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "checks.h"
#include "format.h"

enum { OWN_DESCRIPTORS = 64, CONNECTIONS = 4096 }; /* CONNECTIONS: default of max_connections */

/* Adds a limit of bytes to the text of a finding. */
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
