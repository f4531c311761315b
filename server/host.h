/* host.h - the processor cores and the memory that this process may use, according to CPU affinity and control
 * groups. */
#ifndef PD_HOST_H
#define PD_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int pd_host_cores(void);       /* number of processor cores that this process may use, at least 1 */
uint64_t pd_host_memory(void); /* bytes */

/* Reads the text "quota period" of a control group's file cpu.max (microseconds of processor time per period) as a
 * number of whole cores, rounded up; 0: no limit. */
int pd_host_quota(const char *text);
/* Reads a small file of /proc or /sys into text, cut to size - 1 bytes, and ends it with a zero. false: it cannot be
 * read, or is empty. */
bool pd_host_read_text(const char *path, char *text, size_t size);

#endif
