/* wal_image.h - writes and reads the content of WAL records, except their aggregates. Step thread.
 *
 * A record of a step consists of the inputs and the rest. The inputs say how the round of each parameter ended, and
 * what its optimizer read besides the aggregate. The rest is all state after the step that no optimizer computes:
 * counters of parameters and ranks, step groups, overrides, and the worker states of the step. A replay reads the
 * inputs, repeats the step, and then reads the rest.
 *
 * A record of decisions contains the step of the checkpoint that the decisions follow, the decisions that no earlier
 * record contains (step/wal.h), and the job's course (job/repeats.h): after a change of course, records from before it
 * are on the disk until the first record after the next checkpoint replaces them. It also says which ranks have left
 * for good, or have come back. */
#ifndef PD_WAL_IMAGE_H
#define PD_WAL_IMAGE_H

#include "archive.h"
#include "job.h"
#include "wal.h"

/* Writes the number of the record and the inputs of all parameters of its fragment to the archive, or reads them into
 * the job's WAL, depending on the archive's direction. An error is stored in the archive. PD_DATA_LOSS: the record does
 * not fit the job. */
void pd_wal_image_visit_inputs(pd_archive *archive, pd_job *job, uint64_t number);
/* Writes the state after the step (pd_step_inputs.step) to the archive, or reads it into the job, depending on the
 * archive's direction. An error is stored in the archive. PD_DATA_LOSS: the record does not fit the job, or the
 * repeated step differs from the recorded one. */
void pd_wal_image_visit_rest(pd_archive *archive, pd_job *job);

/* Writes to the archive the decisions that no record contains yet. */
void pd_wal_image_write_decisions(pd_archive *archive, const pd_job *job);
/* Reads decisions from the archive into the job's WAL, for steps that the job will repeat. Of a record from before the
 * job's last change of course, only overrides are read, and which ranks have left. An error is stored in the archive.
 * PD_FAILED_PRECONDITION: the decisions follow a later checkpoint than the one from which the job was restored. */
void pd_wal_image_read_decisions(pd_archive *archive, pd_job *job);

#endif
