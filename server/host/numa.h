/* numa.h - chooses one NUMA node (processors, and the memory that they reach fastest) for the step threads and for the
 * memory of jobs. Results have the same bits on any node.
 *
 * A machine with several nodes reads the memory of another node more slowly. So the step thread, whose OpenMP team
 * inherits its processors, stays on one node, and the memory that the daemon writes is taken there while the node has
 * any. The preconditioner pool keeps all processors: preconditioner tasks compute more than they read, and would
 * otherwise share the processors of steps while those of other nodes idle. Its threads take working memory where they
 * run. */
#ifndef PD_NUMA_H
#define PD_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

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
 * the text is no such list, or a number is above 1023. */
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
