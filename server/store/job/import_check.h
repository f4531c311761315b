/* import_check.h - an import of optimizer state (import.h) while it is staged, and the conditions of its commit, which
 * are checked before anything is written. Step thread. */
#ifndef PD_IMPORT_CHECK_H
#define PD_IMPORT_CHECK_H

#include "part.h"
#include "reset_state.h"

/* Identifies a tensor of the job's optimizer state; the key of a hash table. The table compares the bytes of this
 * struct, so its padding must be zero. */
typedef struct pd_address {
    uint32_t param;
    /* number of the parameter's block that the tensor belongs to; -1: the tensor is the whole
     * slot */
    int32_t block;
    uint64_t slot;
} pd_address;

typedef struct pd_staged {
    UT_hash_handle hh;
    pd_address address;
    pd_part part;
    int64_t elements, landed;
    bool wide; /* true: the elements of the tensor are float64; false: float32 */
    /* the tensor is a pending root (a matrix root that no step has used yet), not a part of a slot */
    bool root;
    uint8_t *at;
    struct pd_staged *next; /* next staged tensor (kept apart until the commit), in the order in which they came */
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

/* Returns the smallest step count that the import may give to the parameter's optimizer. Normally it is the present
 * count, because counts must not go back. It is 0 before the parameter has closed a round: the state may come from a
 * job that skipped some rounds and so counted fewer steps than rounds. */
int64_t pd_import_least_count(const pd_job *job, const pd_param *param);
/* Writes the error for a count that would go back. Returns PD_INVALID_ARGUMENT. */
int pd_import_goes_back(const pd_param *param, int64_t count, pd_error *err);
/* Returns the step count that was brought for a parameter; -1: none was. */
int64_t pd_import_brought_count(const pd_job *job, uint32_t param);
/* Checks that the job rests: no step or preconditioner task that matters is under way, and nobody copies its state.
 * PD_FAILED_PRECONDITION. */
int pd_import_check_rest(pd_job *job, pd_error *err);
/* Checks what does not change while the commit waits for the job to rest. */
int pd_import_check_brought(const pd_job *job, bool partial, pd_error *err);
/* Checks what depends on the steps that the job has taken. */
int pd_import_check_steps(const pd_job *job, pd_error *err);

#endif
