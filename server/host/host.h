/* host.h - what this process may use of the machine: processor cores and memory according to CPU affinity and
 * control groups, and one NUMA node for the step threads and the memory of jobs. The daemon takes its defaults from it,
 * and `paramctl doctor' shows what it finds.
 *
 * **NUMA.** A machine with several nodes reads the memory of another node more slowly. So the step thread, whose OpenMP
 * team inherits its processors, stays on one node, and the memory that the daemon writes is taken there while the node
 * has any. The preconditioner pool keeps all processors: its tasks compute more than they read, and would otherwise
 * share the processors of steps while those of other nodes idle. Its threads take working memory where they run.
 * Results have the same bits on any node. */
#ifndef PD_HOST_H
#define PD_HOST_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int pd_host_cores(void);       /* number of processor cores that this process may use, at least 1 */
uint64_t pd_host_memory(void); /* bytes */

/* Returns the least limit of memory of this process's control group and its parents, in bytes; UINT64_MAX: none. `root`
 * is the path prefix of /proc and /sys: normally "", in tests a directory. */
uint64_t pd_host_memory_limit(const char *root);
/* Calls `see` with the text of one file, such as cpu.max, of this process's control group and of each parent group,
 * because the limits of parents apply too. `controller` is "" for version 2 of control groups; for version 1 it is the
 * controller's name, such as "cpu". */
void pd_host_walk(const char *root, const char *controller, const char *file, void (*see)(const char *text, void *arg),
                  void *arg);

/* Reads the text "quota period" of a control group's file cpu.max (microseconds of processor time per period) as a
 * number of whole cores, rounded up; 0: no limit. */
int pd_host_quota(const char *text);
/* Reads a small file of /proc or /sys into text, cut to size - 1 bytes, and ends it with a zero. false: it cannot be
 * read, or is empty. */
bool pd_host_read_text(const char *path, char *text, size_t size);

typedef enum pd_numa_finding {
    PD_NUMA_OFF,      /* the configuration says so */
    PD_NUMA_UNKNOWN,  /* the system lists no nodes, or lists that cannot be read */
    PD_NUMA_ONE_NODE, /* the machine has one node */
    PD_NUMA_CONFINED, /* the processors that this process may use are on one node already */
    PD_NUMA_CROWDED,  /* no node has enough processors for the step threads */
    PD_NUMA_POLICY,   /* the process was started with a memory policy, by numactl for instance */
    PD_NUMA_CHOSEN    /* a node is chosen */
} pd_numa_finding;

typedef struct pd_numa {
    pd_numa_finding finding;
    int nodes, node, cpus; /* nodes that have processors; the best of them, and how many of its processors we may use */
    int threads;           /* number of step threads that were asked for; 0: as many as the node has processors */
    cpu_set_t mask;        /* those processors */
} pd_numa;

/* Reads a list of processors or nodes as the kernel writes it, such as "0-3,8,10-11\n". An empty list is valid. false:
 * the text is not such a list, or a number is above 1023. */
bool pd_numa_read_list(const char *text, cpu_set_t *out);
/* Chooses the node with most of the processors in *allowed, and the lowest such node. `folder` lists the machine's
 * nodes, as /sys/devices/system/node does. Sets *out to the finding. */
void pd_numa_choose(pd_numa *out, const char *folder, const cpu_set_t *allowed, int threads);
/* Chooses a node of this machine for `threads` step threads, or finds out why there is none to choose. */
void pd_numa_find(pd_numa *out, bool off, int threads);
/* Writes the finding as a line of the log. */
void pd_numa_describe(const pd_numa *numa, char *text, size_t size);

/* The next two change nothing unless a node is chosen. They return 0, or the errno of a system that refuses. */

/* Lets the calling thread, and threads that it starts later, run on the chosen node alone. */
int pd_numa_bind(const pd_numa *numa);
/* Lets the calling thread, and threads that it starts later, take new memory from the chosen node while it has any. */
int pd_numa_prefer(const pd_numa *numa);

#endif
