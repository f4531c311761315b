/* payloads.h - memory for the payloads of frames: which share of the ingest budget a rank may use, where a payload is
 * received, and where it lies in a segment that its worker lends. Loop thread.
 *
 * **Budget.** A payload is in flight from the time its memory is taken until its buffer is freed. Each rank that has
 * declared its parameters owns a reserve: as many bytes of the budget as its largest frame has, which no other rank may
 * use. The bytes that are not reserved are divided equally among the ranks. A rank with nothing in flight may always
 * send one frame, so ranks never wait for each other's memory in a circle.
 *
 * **Pool.** Buffers are reused by size class, because filling 64 MiB of new memory from the kernel takes 30 ms, and
 * filling used memory takes 4 ms. New memory of the larger classes is allocated and populated on other threads, because
 * the first access to a huge page can take milliseconds. The frame waits meanwhile.
 *
 * **Loan.** The segment of shared memory that a worker lends to the daemon. The step thread reads payloads there as it
 * reads those in memory of the daemon. The daemon never writes to the segment. A loan lives until its connection and
 * all its payloads have dropped it, so a payload stays readable after its worker has died. */
#ifndef PD_PAYLOADS_H
#define PD_PAYLOADS_H

#include "paramd/error.h"
#include "daemon_config.h"
#include "request.h"
#include "segment.h"

#include <stdbool.h>
#include <stdint.h>

/* The ingest budget, and how much of it all ranks together use. */
typedef struct pd_admission {
    uint64_t budget;         /* payload bytes that all ranks together may have in flight */
    uint64_t reserved, used; /* reserved: sum of the reserves of all ranks. used: payload bytes of all connections in
                              * flight */
    uint32_t ranks;          /* number of ranks that have a reserve */
} pd_admission;

/* What one connection uses of the ingest budget. */
typedef struct pd_quota {
    uint64_t reserve; /* payload bytes of the rank's largest frame, which no other rank may use; 0: the connection is an
                       * operator's, or the rank has not declared its parameters */
    uint64_t charged; /* payload bytes of this connection in flight */
} pd_quota;

/* Gives a rank a reserve of `reserve` bytes. It replaces the reserve that the rank has, if any. PD_RESOURCE_EXHAUSTED:
 * the reserves of all ranks would exceed the budget; nothing has changed. */
int pd_admission_join(pd_admission *admission, pd_quota *quota, uint64_t reserve, pd_error *err);
/* Ends a rank's reserve, so that other ranks may use its bytes. Does nothing if the rank has no reserve. */
void pd_admission_leave(pd_admission *admission, pd_quota *quota);

/* Takes `bytes` bytes from the ingest budget for a payload of a rank; they may not exceed the rank's reserve. Returns
 * false if the rank must wait until payload buffers are freed. A connection without a reserve, such as that of an
 * operator who imports, gets the bytes if the payloads in flight leave so many, or if there are none in flight. */
bool pd_admission_take(pd_admission *admission, pd_quota *quota, uint64_t bytes);
/* Returns to the ingest budget the `bytes` bytes that a payload took from it. `quota` is the connection's use of the
 * budget; NULL: the connection is closed. */
void pd_admission_give(pd_admission *admission, pd_quota *quota, uint64_t bytes);

typedef struct pd_pool pd_pool;

/* Makes a pool of payload buffers. Returns NULL if out of memory.
 *
 *   limit     most bytes of used and unused buffers together: above it, unused buffers are freed
 *   platform  is copied; its background threads allocate new memory. If it is NULL or has none, the loop thread does
 *   ready     is called when memory is allocated for which a frame waits */
pd_pool *pd_pool_new(uint64_t limit, const pd_platform *platform, void (*ready)(void *arg), void *arg);
/* Frees the pool of payload buffers. All buffers must have been returned, and no background work may be under way.
 * Accepts NULL. */
void pd_pool_free(pd_pool *pool);

/* Sets *out to a buffer of `size` bytes (> 0), aligned to 64 bytes, for a payload of the connection with number `conn`.
 * The contents are undefined.
 *
 * PD_UNAVAILABLE: another thread is allocating memory; call again after `ready`, with `asked` true. PD_NO_MEMORY: out
 * of memory. */
int pd_pool_get(pd_pool *pool, size_t size, uint64_t conn, bool asked, pd_buffer **out);
/* Returns the buffer of a payload to the pool, which may use it again. */
void pd_pool_put(pd_pool *pool, pd_buffer *buffer);

/* Return how many bytes of payload buffers the pool has: in use (used), and unused (kept). */
uint64_t pd_pool_used(const pd_pool *pool);
uint64_t pd_pool_kept(const pd_pool *pool);

typedef struct pd_loan pd_loan;

/* Maps the segment of `bytes` bytes that a worker lends. Takes over its file descriptor, also after an error. The
 * caller gets one reference. Errors: PD_NO_MEMORY, and those of pd_segment_map_full. */
int pd_loan_new(pd_loan **out, int fd, uint64_t bytes, pd_error *err);
/* Drops the connection's reference to a loan. When the last reference is dropped, unmaps the segment, on another thread
 * because that may take long. Accepts NULL. */
void pd_loan_unref(pd_loan *loan, const pd_platform *platform);
/* Returns whether the segment has `bytes` bytes at the offset `place` * PD_PAYLOAD_ALIGN. */
bool pd_loan_has(const pd_loan *loan, uint32_t place, uint64_t bytes);
/* Makes a buffer that refers to the `bytes` bytes at the offset `place` * PD_PAYLOAD_ALIGN, which the segment must
 * have. The buffer takes nothing from the ingest budget, and holds a reference to the loan. Returns NULL if out of
 * memory. */
pd_buffer *pd_loan_buffer(pd_loan *loan, uint64_t conn, uint32_t place, uint64_t bytes);
/* Frees a buffer that pd_loan_buffer made, and drops its reference to the loan. */
void pd_loan_return(pd_buffer *buffer, const pd_platform *platform);

#endif
