/* wal_record.h - one step of a job for the log, in memory: on its way from the step thread to the disk, or back.
 *
 * A job with durability = log writes an entry for each step that all its parameters have closed. The step thread makes
 * a pd_wal_record and hands it to the WAL thread in an effect PD_EFF_WAL. From then on the WAL thread owns it
 * and reads it, until it hands it back in a request PD_REQ_WAL with the result. Aggregates are not copied: the entry
 * has the buffers which the optimizers read, and the step thread returns them to their pools when the entry has come
 * back.
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

/* The aggregate of one parameter: what its optimizer took for the gradient in this step. */
typedef struct pd_wal_part {
    const float *at;  /* NULL: the step of this parameter needs none */
    int64_t elements; /* 0 if `at` is NULL */
    /* the pool that the buffer goes back to; NULL in an entry that was read from the disk */
    struct pd_buffer_pool *pool;
} pd_wal_part;

/* The two streams of a job's WAL, each with files of its own: decisions are durable long before the aggregates of a
 * step are, and jobs without durability = log have no others. */
typedef enum pd_wal_stream { PD_WAL_STEPS, PD_WAL_DECISIONS } pd_wal_stream;

typedef struct pd_wal_record {
    char *job; /* name of the job */
    pd_wal_stream stream;
    uint32_t number;  /* number of the job in this daemon; 0 in an entry that was read from the disk */
    uint64_t creator; /* tells the job from other jobs of the same name: pd_job_saved.creator */
    uint64_t step;    /* the step that all parameters have closed */
    /* Step of the newest checkpoint of the job that is durable; it is less than `step`. The log forgets entries up to
     * it. An entry of step base + 1 begins a chain: whatever else the log has is dropped. Any other entry follows that
     * of step - 1, which this daemon or the last one has written. If the log does not have that one (an earlier write
     * has failed, or the store has left entries out), it comes back with PD_FAILED_PRECONDITION. */
    uint64_t base;
    uint8_t *head; /* everything but the aggregates, as an archive (optim/archive.h) */
    size_t head_bytes;
    pd_wal_part *parts; /* one for each parameter of the job, in order */
    uint32_t n_parts;
    void *memory; /* an entry from the disk: one block that has all aggregates; else NULL */

    /* the result, which the WAL thread fills in */
    pd_error error; /* PD_OK: the entry is durable, and so are all of its chain before it */
    uint64_t bytes; /* bytes that were written */
    uint64_t ns;    /* time from its turn to its end on the disk */
} pd_wal_record;

/* Frees an entry. The caller must have returned its buffers before. Accepts NULL. */
void pd_wal_record_free(pd_wal_record *record);

#endif
