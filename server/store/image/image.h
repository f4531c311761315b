/* image.h - the durable state of a job as bytes: everything that a restart must bring back, and nothing else. Step
 * thread.
 *
 * An image holds what the job was declared as (names, configuration, rules, parameters, ranges), the structs named
 * `saved`, the weights, the optimizers (optim/save.h), overrides and the scalars of the last rounds. It does not hold
 * what workers send again: contributions to rounds that are open, barriers that are not passed. A job whose initial
 * weights are not complete has no image.
 *
 * One visitor writes and reads an image (optim/archive.h). A job that was read goes on bit for bit as the one that was
 * written would have, on any number of threads, once its workers have come back and have sent again what was not
 * answered. Ranks are lost until then. */
#ifndef PD_IMAGE_H
#define PD_IMAGE_H

#include "jobs.h"

/* Returns whether the job can be written now: every parameter has weights, no step is under way, no root task is out,
 * nothing is being imported or clipped. Otherwise try again after the next batch or task. */
bool pd_image_is_possible(const pd_job *job);
/* Writes the job. Gives *image (free() it) of *n bytes. PD_NO_MEMORY. */
int  pd_image_write(pd_job *job, uint8_t **image, size_t *n, pd_error *err);
/* Makes a job from an image and puts it into the table: its ranks are lost, and it lingers from `now_ns` on. The image
 * is borrowed for the call. Every byte is checked: PD_DATA_LOSS, PD_UNIMPLEMENTED, PD_INVALID_ARGUMENT,
 * PD_FAILED_PRECONDITION (a job of that name exists), PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY; after an error nothing has
 * changed. */
int  pd_image_read(pd_jobs *jobs, const pd_job_env *env, const uint8_t *image, size_t n, uint64_t now_ns,
                   pd_error *err);

#endif
