/* wal_image.h - the records of a job's WAL as bytes, apart from aggregates. Step thread.
 *
 * A record of a step has two parts. The inputs say how the round of each parameter ended, and what its optimizer read.
 * The rest is all state after the step that no optimizer computes: the records of parameters, ranks, step groups and
 * overrides, and the worker states of the step. A replay reads the inputs, repeats the step, and then reads the rest.
 *
 * A record of decisions has those that wait for a record (step/wal.h), and the step of the checkpoint that they
 * follow. */
#ifndef PD_WAL_IMAGE_H
#define PD_WAL_IMAGE_H

#include "archive.h"
#include "job.h"
#include "wal.h"

/* These functions write to the archive, or read from it into the job and its WAL, depending on the archive's direction.
 * Errors are in the archive. PD_DATA_LOSS: the record does not fit the job. */

/* The step of the record, and the inputs of all parameters. */
void pd_wal_image_visit_inputs(pd_archive *archive, pd_job *job, uint64_t step);
/* The state after the step. A reader compares what its optimizers have computed: if a step differs from the recorded
 * one, the archive gets an error. */
void pd_wal_image_visit_rest(pd_archive *archive, pd_job *job, uint64_t step);

void pd_wal_image_write_decisions(pd_archive *archive, const pd_job *job);
/* Reads decisions for steps that the job will repeat. PD_FAILED_PRECONDITION: they follow a later checkpoint than the
 * one from which the job was restored. */
void pd_wal_image_read_decisions(pd_archive *archive, pd_job *job);

#endif
