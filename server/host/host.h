/* host.h - finds out how many processor cores and how much memory this process may use (CPU affinity, control groups),
 * and chooses a NUMA node for the step threads and the memory of jobs. The daemon takes its defaults from these values,
 * and `paramctl doctor' shows them.
 *
 * **NUMA.** A machine with several nodes reads the memory of another node more slowly. So the step thread, whose OpenMP
 * team inherits its processors, stays on one node, and the daemon allocates the memory of jobs on that node while it
 * has free memory. The preconditioner pool uses the processors of all nodes: its tasks compute more than they read, and
 * on one node they would slow the steps down while other nodes idle. Each of its threads allocates working memory on
 * the node where it runs. Results have the same bits on any node. */
#ifndef PD_HOST_H
#define PD_HOST_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int pd_host_cores(void);       /* number of processor cores that this process may use, at least 1 */
int pd_host_limit_cores(int);  /* lowers a number of cores to the limits of processor time of the control groups */
uint64_t pd_host_memory(void); /* bytes of memory that this process may use */

/* Returns the smallest memory limit of this process's control group and its parents, in bytes; UINT64_MAX: no limit.
 * `root` is the path prefix of /proc and /sys: normally "", in tests a directory. */
uint64_t pd_host_memory_limit(const char *root);
/* Calls `see` with the text of one file, such as cpu.max, of this process's control group and of each parent group,
 * because the limits of parents apply too. `controller` is "" for version 2 of control groups; for version 1 it is the
 * controller's name, such as "cpu". */
void pd_host_walk(const char *root, const char *controller, const char *file, void (*see)(const char *text, void *arg),
                  void *arg);

/* Reads the text "quota period" of a control group's file cpu.max (microseconds of processor time per period) as a
 * number of whole cores, rounded up; 0: no limit. */
int pd_host_quota(const char *text);
/* Reads a small file of /proc or /sys into text, cut to size - 1 bytes, and ends it with a zero. Returns false if the
 * file cannot be read or is empty. */
bool pd_host_read_text(const char *path, char *text, size_t size);

/* Whether a NUMA node is chosen, or why not. */
typedef enum pd_numa_finding {
    PD_NUMA_OFF,      /* the configuration switches NUMA off */
    PD_NUMA_UNKNOWN,  /* the system does not list its nodes, or the list cannot be read */
    PD_NUMA_ONE_NODE, /* the machine has one node */
    PD_NUMA_CONFINED, /* all processors that this process may use are on one node */
    PD_NUMA_CROWDED,  /* no node has enough processors for the step threads */
    PD_NUMA_POLICY,   /* the process was started with a memory policy, by numactl for instance */
    PD_NUMA_CHOSEN    /* a node is chosen */
} pd_numa_finding;

/* The NUMA node of the step threads, or why none is chosen. */
typedef struct pd_numa {
    pd_numa_finding finding;
    int nodes, node, cpus; /* number of nodes with processors; the best node; number of CPUs in `mask` */
    int threads;           /* number of step threads in the configuration; 0: as many as the node has processors */
    cpu_set_t mask;        /* processors of `node` that this process may use */
} pd_numa;

/* Reads a list of processors or nodes as the kernel writes it, such as "0-3,8,10-11\n". An empty list is valid. Returns
 * false if the text is not such a list, or contains a number above 1023. */
bool pd_numa_read_list(const char *text, cpu_set_t *out);
/* Chooses the node with most of the processors in *allowed for `threads` step threads (0: as many as the node has
 * processors). Of equal nodes, the one with the lowest number is chosen. `folder`
 * lists the machine's nodes, as /sys/devices/system/node does. Stores the result in *out. */
void pd_numa_choose(pd_numa *out, const char *folder, const cpu_set_t *allowed, int threads);
/* Chooses a node of this machine for `threads` step threads that may use the processors in *allowed, and stores it in
 * *out, or the reason why no node is chosen. `off`: the configuration switches NUMA off. */
void pd_numa_find(pd_numa *out, bool off, const cpu_set_t *allowed, int threads);
/* Writes into `text` which node is chosen, or why none is, as a line for the log. */
void pd_numa_describe(const pd_numa *numa, char *text, size_t size);

/* Restricts the calling thread, and threads that it starts later, to the processors of the chosen node. Does nothing if
 * no node is chosen. Returns 0, or the errno of the system call. */
int pd_numa_bind(const pd_numa *numa);
/* Makes the calling thread, and threads that it starts later, allocate memory on the chosen node while it has free
 * memory. Does nothing if no node is chosen. Returns 0, or the errno of the system call. */
int pd_numa_prefer(const pd_numa *numa);

#endif
