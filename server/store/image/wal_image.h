/* wal_image.h - the head of an entry of a job's log (base/wal_record.h): all that a step has read except the
 * aggregates, and all state after the step that no optimizer computes. Step thread.
 *
 * The head has two parts. The inputs say how the round of each parameter ended, and what its optimizer read. The rest
 * is the state after the step: the records of parameters, ranks, step groups and overrides, and the notes that workers
 * gave to the step. A replay reads the inputs, repeats the step, and then reads the rest. */
#ifndef PD_WAL_IMAGE_H
#define PD_WAL_IMAGE_H

#include "archive.h"
#include "job.h"
#include "wal.h"

/* Each function writes to the archive, or reads from it into the job and its log (pd_steps.log), depending on the
 * archive's direction. Errors are in the archive. PD_DATA_LOSS: the entry does not fit the job. */

/* The step of the entry, and the inputs of all parameters. */
void pd_wal_image_visit_inputs(pd_archive *archive, pd_job *job, uint64_t step);
/* The state after the step. A reader compares what its optimizers have computed: if a step has taken another course
 * than it had, the archive gets an error. */
void pd_wal_image_visit_rest(pd_archive *archive, pd_job *job, uint64_t step);

#endif
