/* loan.h - the segment of shared memory that a worker lends to the daemon, and payloads that lie in it.
 *
 * Runs on the loop thread. The step thread reads payloads there, as it reads those in memory of the daemon; nobody here
 * writes to the segment. A loan lives until its connection and all its payloads have dropped it, so a payload stays
 * readable after its worker has died. */
#ifndef PD_LOAN_H
#define PD_LOAN_H

#include "platform.h"
#include "request.h"
#include "segment.h"

typedef struct pd_loan pd_loan;

/* Maps the worker's segment of `bytes` bytes, and takes its descriptor, also after an error. The caller has one
 * reference. Errors: those of pd_segment_map_full, PD_NO_MEMORY. */
int pd_loan_new(pd_loan **out, int fd, uint64_t bytes, pd_error *err);
/* Drops the connection's reference. The memory is unmapped on another thread, because that may take long. Accepts
 * NULL. */
void pd_loan_unref(pd_loan *loan, const pd_platform *platform);
/* Returns whether `bytes` bytes from unit `place` (PD_PAYLOAD_ALIGN bytes each) on lie in the segment. */
bool pd_loan_has(const pd_loan *loan, uint32_t place, uint64_t bytes);
/* Makes a buffer of the payload at that place, which the segment has. It is charged with no bytes. NULL: out of
 * memory. */
pd_buffer *pd_loan_buffer(pd_loan *loan, uint64_t conn, uint32_t place, uint64_t bytes);
/* Frees a buffer that pd_loan_buffer made. */
void pd_loan_return(pd_buffer *buffer, const pd_platform *platform);

#endif
