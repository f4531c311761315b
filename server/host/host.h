/* host.h - the processor cores and the memory that this process may use, according to CPU affinity and control
 * groups. The daemon takes its defaults from it, and `paramctl doctor' shows what it finds. */
#ifndef PD_HOST_H
#define PD_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int pd_host_cores(void);       /* number of processor cores that this process may use, at least 1 */
uint64_t pd_host_memory(void); /* bytes */

/* Returns the least limit of memory of this process's control group and its parents, in bytes; UINT64_MAX: none. `root`
 * stands before /proc and /sys: "" on this machine. */
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

#endif
