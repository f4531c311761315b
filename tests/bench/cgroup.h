/* cgroup.h - a control group with a limit of memory, for figures that need one. */
#ifndef PD_BENCH_CGROUP_H
#define PD_BENCH_CGROUP_H

#include <stdbool.h>
#include <sys/types.h>

#include "paramd/error.h"

typedef struct pd_cgroup {
    char folder[128], before[512]; /* before: the group that this process was in */
} pd_cgroup;

/* Makes a group of at most `bytes` bytes of memory without swap, below the root of cgroup v2 or of the memory hierarchy
 * of v1. PD_UNAVAILABLE: this machine or user can make none. */
int pd_cgroup_make(pd_cgroup *out, long long bytes, pd_error *err);
/* Move a process into the group, and back to the group that this process was in when pd_cgroup_make was called: from
 * then on its new pages count there. PD_UNAVAILABLE. */
int pd_cgroup_enter(const pd_cgroup *group, pid_t pid, pd_error *err);
int pd_cgroup_leave(const pd_cgroup *group, pid_t pid, pd_error *err);
/* Returns how many bytes count in the group; -1: unknown. */
long long pd_cgroup_bytes(const pd_cgroup *group);
/* Removes the group, whose processes have ended. */
void pd_cgroup_remove(const pd_cgroup *group);

#endif
