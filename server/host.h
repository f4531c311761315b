/* host.h - what this process may use of the machine: processors and memory, as affinity and control groups allow. */
#ifndef PD_HOST_H
#define PD_HOST_H

#include <stdint.h>

int      pd_host_cores(void);           /* at least 1 */
uint64_t pd_host_memory(void);          /* bytes */

/* The smaller limit in a file of "quota period" (cpu.max) as whole cores, rounded up; 0: none there. */
int      pd_host_quota(const char *text);

#endif
