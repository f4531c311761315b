/* traffic.h - counts the bytes that the connections of each job have received and sent, for operators. Loop thread. */
#ifndef PD_TRAFFIC_H
#define PD_TRAFFIC_H

#include <stdint.h>

typedef struct pd_traffic pd_traffic; /* byte counters of one job, linked to those of all others; NULL: there are no
                                       * jobs */

/* Makes the byte counters of a job, unless it has them already. If out of memory, its bytes are not counted. */
void pd_traffic_add(pd_traffic **jobs, uint32_t job);
/* Adds to the byte counters of a job. Does nothing if the job has none. */
void pd_traffic_count(pd_traffic *jobs, uint32_t job, uint64_t in, uint64_t out);
/* Reads the byte counters of a job. They are 0 if the job has none. */
void pd_traffic_read(pd_traffic *jobs, uint32_t job, uint64_t *in, uint64_t *out);
/* Removes the byte counters of a job that has ended. */
void pd_traffic_remove(pd_traffic **jobs, uint32_t job);
void pd_traffic_free(pd_traffic **jobs); /* removes the byte counters of all jobs */

#endif
