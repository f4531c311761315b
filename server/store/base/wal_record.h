/* wal_record.h - a record of a job's WAL in memory: on its way from the step thread to the disk, or back.
 *
 * The step thread makes a pd_wal_record and hands it to the WAL thread in an effect PD_EFF_WAL. From then on the WAL
 * thread owns and reads it. The WAL thread hands it back, with the result, in a request PD_REQ_WAL.
 *
 * A job with durability = log writes a record for each step that all its parameters have closed. Aggregates are not
 * copied: the record has the buffers that the optimizers have read, and the step thread returns these to their pools
 * when the record has come back.
 *
 * The same struct is what a daemon reads from the disk when it starts. Then all bytes lie in memory that the
 * pd_wal_record owns. */
#ifndef PD_WAL_RECORD_H
#define PD_WAL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

struct pd_buffer_pool;

/* What a pd_wal_record is: a record, or an order about all records of both streams of a job, because it goes back to an
 * earlier step. Dropped records never count again. Their files are removed later.
 *
 *   PD_WAL_DROP       drops the records of steps after `step`, and all records of decisions. The job continues from
 *                     the checkpoint at place `base`
 *   PD_WAL_SET_ASIDE  sets the files of all records aside, for people */
typedef enum pd_wal_act { PD_WAL_APPEND, PD_WAL_DROP, PD_WAL_SET_ASIDE } pd_wal_act;

/* The aggregate of one parameter in a step, which its optimizer took for the gradient. */
typedef struct pd_wal_part {
    const float *at;  /* the aggregate; NULL: the step of this parameter needs none */
    int64_t elements; /* number of elements of the aggregate; 0 if `at` is NULL */
    /* the pool to which the buffer `at` returns; NULL in a record that was read from the disk */
    struct pd_buffer_pool *pool;
} pd_wal_part;

/* The two streams of a job's WAL: all that steps took, and decisions alone. Each has files of its own, because small
 * decisions become durable long before the aggregates of a step. Jobs without durability = log have only decisions. */
typedef enum pd_wal_stream { PD_WAL_STEPS, PD_WAL_DECISIONS } pd_wal_stream;

typedef struct pd_wal_record {
    /* of an order only `job`, `number`, `creator` and the result are used, of PD_WAL_DROP also `step` and `base` */
    pd_wal_act act;
    char *job; /* name of the job */
    pd_wal_stream stream;
    uint32_t number;  /* number of the job in this daemon; 0 in a record that was read from the disk */
    uint64_t creator; /* tells the job from other jobs of the same name: pd_job_saved.creator */
    /* Number of the record. In the stream of steps it is the step that all parameters have closed; if the job has
     * several fragments, the number of steps that they have taken together (pd_steps.place) */
    uint64_t step;
    uint32_t fragment; /* stream of steps, not on the disk: fragment whose step it is; 0 if the job has only one */
    uint64_t step_of;  /* and the number of the step in this fragment */
    /* The WAL thread removes records up to `base` from the stream; it is less than `step`. In the stream of steps it
     * is the number of the last step in a durable checkpoint: the newest one, or in a cluster an earlier one to which
     * all shards may have to go back (pd_step_stream.oldest). A record with step = base + 1 begins a chain,
     * and all other records of the stream are removed. Any other record follows the record of step - 1, which this
     * daemon or the last one has written. If the stream lacks that record (an earlier write has failed, or the store
     * has left records out), the new record comes back with PD_FAILED_PRECONDITION. */
    uint64_t base;
    uint8_t *head; /* everything but the aggregates, as an archive (optim/archive.h) */
    size_t head_bytes;
    pd_wal_part *parts; /* stream of steps: one aggregate for each parameter of the job, in order */
    uint32_t n_parts;
    void *memory;               /* in a record from the disk: one allocation that has all aggregates; else NULL */
    struct pd_wal_record *next; /* the next one in a list of records that were read from the disk */

    /* the result, which the WAL thread fills in */
    pd_error error; /* PD_OK: the record is durable, and so are all earlier ones of its chain */
    uint64_t bytes; /* bytes that were written */
    uint64_t ns;    /* time in ns that the WAL thread took to make the record durable */
} pd_wal_record;

/* Frees a record. The caller must have returned its buffers to their pools before. Accepts NULL. */
void pd_wal_record_free(pd_wal_record *record);
/* Takes the first record out of a list, and returns it. NULL: the list is empty. */
pd_wal_record *pd_wal_record_take(pd_wal_record **list);

#endif
