/* traffic.h - counts the bytes that the connections of each job have received and sent, for operators. Loop thread. */
#ifndef PD_TRAFFIC_H
#define PD_TRAFFIC_H

#include <stdint.h>

typedef struct pd_traffic pd_traffic; /* the byte counts of all jobs; NULL: there are no jobs */

/* Adds a job with 0 bytes, unless the job is known already. If memory is out, the job's bytes are not counted. */
void pd_traffic_add(pd_traffic **jobs, uint32_t job);
/* Adds to the byte counts of a job. Does nothing if the job was not added. */
void pd_traffic_count(pd_traffic *jobs, uint32_t job, uint64_t in, uint64_t out);
/* Reads the byte counts of a job: 0 if the job was not added. */
void pd_traffic_read(pd_traffic *jobs, uint32_t job, uint64_t *in, uint64_t *out);
/* Removes a job that has ended. */
void pd_traffic_remove(pd_traffic **jobs, uint32_t job);
void pd_traffic_free(pd_traffic **jobs); /* removes the byte counts of all jobs */

#endif
