/* import.h - imports optimizer state that an operator sends, such as tensors of a saved file, or runs a reset of state
 * (reset_state.h). Either all of it is put into the job, or nothing. Step thread.
 *
 * After the begin request, the operator sends the tensors in parts, which are staged while the job trains. The commit
 * request checks that all tensors have come, and waits up to ten seconds for a moment at which no step or
 * preconditioner task of the job is under way and nobody copies its state. Then the tensors are written into the
 * optimizers in bounded batches, and no step begins until all are written. Rounds may be open meanwhile: in a new job
 * other ranks may have pushed for the first step already. A job with checkpoints begins one at once.
 *
 * The staged tensors are discarded when an operator begins another import, after a minute without a request, and when
 * the job ends. */
#ifndef PD_IMPORT_H
#define PD_IMPORT_H

#include "job.h"
#include "part.h"
#include "reset_state.h"

/* Identifies a tensor of the job's optimizer state; the key of a hash table. The table compares the bytes of this
 * struct, so its padding must be zero. */
typedef struct pd_address {
    uint32_t param;
    /* number of the parameter's block that the tensor belongs to; -1: the tensor is the whole slot */
    int32_t block;
    uint64_t slot;
} pd_address;

typedef struct pd_staged {
    UT_hash_handle hh;
    pd_address address;
    pd_part part;
    int64_t elements, landed;
    bool wide; /* true: the elements of the tensor are float64; false: float32 */
    /* the tensor is a pending root, not a part of a slot */
    bool root;
    uint8_t *at;
    struct pd_staged *next; /* next staged tensor, in the order in which they came */
} pd_staged;

typedef struct pd_import {
    uint64_t conn;
    pd_staged *table, *first, *last;
    /* for each parameter the largest step count that has come, -1: none; NULL: none of any parameter */
    int64_t *counts;
    size_t n_counts; /* number of parameters whose step count has come */
    uint64_t bytes;  /* bytes that the import counts against max_total_bytes */
    /* number of elements of the largest staged tensor, for the buffer `wide` */
    int64_t largest;
    uint64_t touched_ns;
    size_t tensors;

    /* the commit request, while it waits for the job to rest, or while the tensors are being written; NULL: it has not
     * come */
    pd_request *commit;
    uint64_t until_ns, look_ns; /* until when it waits, and when it looks next; 0: the tensors are being written */
    pd_staged *next;
    uint32_t busy;   /* parameter that was found at work last, so that the next look begins with it */
    pd_reset *reset; /* the import sets state back to its initial values, and brings none; NULL: it does not */
    double *wide;    /* buffer for the elements of one tensor as float64; has room for `largest` elements */
} pd_import;

/* Takes ownership of a PD_REQ_IMPORT for this job, and answers it. A commit is kept, and answered when its tensors
 * are written. */
void pd_job_import(pd_job *job, pd_request *request, uint64_t now_ns);

/* Returns whether a commit's tensors are being written into the optimizers. The job takes no steps meanwhile. */
bool pd_import_writes(const pd_job *job);
/* Writes tensors of the commit into the optimizers for about `slice_ns` of one core. When all are written, answers the
 * commit. If out of memory, writing continues a second later. */
void pd_import_write_some(pd_job *job, double slice_ns, uint64_t now_ns);
/* pd_import_expires_ns returns the time at which the staged tensors are discarded unless a further request comes;
 * UINT64_MAX: nothing is staged. pd_import_tick discards them if that time has passed. */
uint64_t pd_import_expires_ns(const pd_job *job);
void pd_import_tick(pd_job *job, uint64_t now_ns);
/* Discards the job's import because the job ends. If a commit's tensors are being written, the commit is refused with
 * `err`. */
void pd_import_release(pd_job *job, const pd_error *err);

#endif
