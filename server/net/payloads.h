/* payloads.h - memory for the payloads of frames: who may have how much of the ingest budget, where a payload is
 * received, and where it lies in a segment that its worker lends. Loop thread.
 *
 * **Budget.** A payload is in flight from the time its memory is taken until its buffer is freed. Each rank that has
 * declared its parameters owns a reserve: bytes of the budget that no other rank may use, as many as its largest frame
 * has. The bytes that are not reserved are divided equally among the ranks. A rank with nothing in flight may always
 * send one frame, so ranks never wait for each other's memory in a circle.
 *
 * **Pool.** Buffers are used again by size class, because filling 64 MiB of new memory from the kernel takes 30 ms, and
 * filling used memory takes 4 ms. New memory of the larger classes is allocated and touched on other threads, because
 * the first touch of a huge page can take milliseconds. The frame waits meanwhile.
 *
 * **Loan.** The segment of shared memory that a worker lends to the daemon. The step thread reads payloads there, as it
 * reads those in memory of the daemon; nobody here writes to the segment. A loan lives until its connection and all its
 * payloads have dropped it, so a payload stays readable after its worker has died. */
#ifndef PD_PAYLOADS_H
#define PD_PAYLOADS_H

#include "paramd/error.h"
#include "daemon_config.h"
#include "request.h"
#include "segment.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_admission {
    uint64_t budget;         /* payload bytes that all ranks together may have in flight */
    uint64_t reserved, used; /* sums over all ranks: bytes reserved, and payload bytes in flight */
    uint32_t ranks;
} pd_admission;

/* What one connection uses of the ingest budget. */
typedef struct pd_quota {
    uint64_t reserve; /* bytes of the rank's largest frame, which no other rank may use; 0: the connection is an
                       * operator's, or the rank has not declared its parameters */
    uint64_t charged; /* payload bytes of this connection in flight */
} pd_quota;

/* Gives a rank its reserve. A second call for the same rank replaces the first reserve. PD_RESOURCE_EXHAUSTED: the
 * reserves of all ranks would exceed the budget; nothing has changed. */
int pd_admission_join(pd_admission *admission, pd_quota *quota, uint64_t reserve, pd_error *err);
/* Ends a rank's reserve, which others may use then. Does nothing if the rank has no reserve. */
void pd_admission_leave(pd_admission *admission, pd_quota *quota);

/* Takes `bytes`, which may not exceed the rank's reserve, from the ingest budget for a payload of the rank. Returns
 * false if the rank has to wait until payload buffers are freed. A connection without a reserve, such as an operator
 * who imports, may use the part of the budget that is free. */
bool pd_admission_take(pd_admission *admission, pd_quota *quota, uint64_t bytes);
/* Gives back to the ingest budget the `bytes` that a payload took from it. `quota` is the connection's use of the
 * budget, or NULL if the connection is closed. */
void pd_admission_give(pd_admission *admission, pd_quota *quota, uint64_t bytes);

typedef struct pd_pool pd_pool;

/* Makes a pool of payload buffers. Returns NULL if out of memory.
 *
 *   limit     bounds the bytes of used and unused buffers together: above it, unused buffers are freed
 *   platform  is copied; its other threads allocate new memory. Without them, or if NULL, memory is allocated at once
 *   ready     is called when memory is allocated for which a frame waits */
pd_pool *pd_pool_new(uint64_t limit, const pd_platform *platform, void (*ready)(void *arg), void *arg);
/* Frees the pool of payload buffers. All buffers must have been returned, and no background work may be under way.
 * Accepts NULL. */
void pd_pool_free(pd_pool *pool);

/* Gives a buffer of `size` bytes (> 0), aligned to 64 bytes, for a payload of the connection with number `conn`. Its
 * contents are undefined.
 *
 * PD_UNAVAILABLE: another thread is allocating memory; call again after `ready`, with `asked` true. PD_NO_MEMORY: there
 * is none. */
int pd_pool_get(pd_pool *pool, size_t size, uint64_t conn, bool asked, pd_buffer **out);
/* Returns the buffer of a payload to the pool, which may use it again. */
void pd_pool_put(pd_pool *pool, pd_buffer *buffer);

/* Return how many bytes of memory the pool has in payload buffers: in those that are in use, and in those that are kept
 * for later use. */
uint64_t pd_pool_used(const pd_pool *pool);
uint64_t pd_pool_kept(const pd_pool *pool);

typedef struct pd_loan pd_loan;

/* Maps the worker's segment of `bytes` bytes, and takes its descriptor, also after an error. The caller has one
 * reference. Errors: those of pd_segment_map_full, PD_NO_MEMORY. */
int pd_loan_new(pd_loan **out, int fd, uint64_t bytes, pd_error *err);
/* Drops the connection's reference. The memory is free_loan on another thread, because that may take long. Accepts
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
