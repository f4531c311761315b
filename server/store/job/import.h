/* import.h - imports optimizer state that an operator sends, such as tensors of a saved file, or resets state
 * (reset_state.h). Either all of it is put into the job, or nothing. Step thread.
 *
 * After the begin request, the operator sends the tensors in several requests, and they are staged while the job
 * trains. The commit request checks that all tensors have come, and waits up to ten seconds until the job is quiesced:
 * no step and no preconditioner task of the job is under way, and nobody copies its state. Then the tensors are written
 * into the optimizers in parts, and no step begins until all are written. Rounds may be open meanwhile: in a new job
 * other ranks may have pushed for the first step already. Afterwards a job with checkpoints begins one at once. The
 * commit is answered when this one is durable.
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
    uint32_t param; /* index of the parameter */
    /* number of the parameter's block that the tensor belongs to; -1: the tensor is the whole slot */
    int32_t block;
    uint64_t slot;
} pd_address;

/* A tensor of optimizer state that waits for the commit. The import owns it. */
typedef struct pd_staged {
    UT_hash_handle hh;
    pd_address address;
    pd_part part;
    int64_t elements, landed; /* number of elements of the tensor; number of those that have come */
    bool wide;                /* true: the elements of the tensor are float64; false: float32 */
    /* true: the tensor is a pending root; false: it is a slot, or a block's section of a slot */
    bool root;
    uint8_t *at;            /* the elements */
    struct pd_staged *next; /* next staged tensor, in the order in which they came */
} pd_staged;

/* A job's import, or a reset, while it is under way. The job owns it. */
typedef struct pd_import {
    uint64_t conn; /* number of the connection that began the import */
    /* hash table of the staged tensors by address; first and last of their list, in the order in which they came */
    pd_staged *table, *first, *last;
    /* array with the largest step count that has come for each parameter, -1: none; NULL: none has come for any
     * parameter */
    int64_t *counts;
    size_t n_counts; /* number of parameters whose step count has come */
    uint64_t bytes;  /* bytes of the import that are charged to the job */
    /* number of elements of the largest staged tensor, for the buffer `wide` */
    int64_t largest;
    uint64_t touched_ns; /* time of the import's last request, or of the last look of its commit */
    size_t tensors;      /* number of staged tensors */

    /* the commit or reset request, while it waits until the job is quiesced, or while state is being written; NULL: it
     * has not come */
    pd_request *commit;
    /* time until which the commit waits, 0: state is being written; time of the next look whether the job is
     * quiesced */
    uint64_t until_ns, look_ns;
    pd_staged *next; /* the tensor that is written next; NULL: all are written */
    uint32_t busy;   /* index of the parameter that last prevented the commit, with which the next look begins */
    pd_reset *reset; /* the reset, if the import is one; NULL: it is none */
    double *wide;    /* buffer for the elements of one tensor as float64; has room for `largest` elements */
} pd_import;

/* Takes ownership of a PD_REQ_IMPORT for this job, and answers it. Keeps a commit or
 * a reset, and answers it when its state is written. */
void pd_job_import(pd_job *job, pd_request *request, uint64_t now_ns);

/* Returns whether a commit's tensors are being written into the optimizers. The job takes no steps meanwhile. */
bool pd_import_writes(const pd_job *job);
/* Writes tensors of the commit into the optimizers for about `slice_ns` of one core. When all are written, answers the
 * commit. If out of memory, writing continues a second later. */
void pd_import_write_some(pd_job *job, double slice_ns, uint64_t now_ns);
/* pd_import_expires_ns returns the time of the import's next deadline: when staged tensors are discarded unless a
 * further request comes, or when a waiting commit looks again whether the job is quiesced; UINT64_MAX: there is none.
 * pd_import_tick does what the deadline requires once it has passed. */
uint64_t pd_import_expires_ns(const pd_job *job);
void pd_import_tick(pd_job *job, uint64_t now_ns);
/* Discards the job's import because the job ends. Refuses a commit that is not answered yet with `err`. */
void pd_import_release(pd_job *job, const pd_error *err);

#endif
