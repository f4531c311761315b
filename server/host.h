/* host.h - the processors and the memory that this process may use, by affinity and control groups. */
#ifndef PD_HOST_H
#define PD_HOST_H

#include <stdint.h>

int      pd_host_cores(void);           /* at least 1 */
uint64_t pd_host_memory(void);          /* bytes */

/* Reads "quota period" (cpu.max) as whole cores, rounded up; 0: no limit. */
int      pd_host_quota(const char *text);

#endif
