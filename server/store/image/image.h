/* image.h - writes the durable state of a job as bytes, and makes a job from such bytes. Step thread.
 *
 * An image contains the job's declarations (name, configuration, rules, parameters, ranges), the structs named
 * `saved`, the weights, the optimizers (optim/save.h), overrides and the scalars of the last rounds. It does not
 * contain requests that workers send again: contributions to open rounds, and barriers that are not passed. A
 * job whose initial weights are not complete has no image.
 *
 * The same functions write and read an image (optim/archive.h). A job that is read from an image computes the same bits
 * as the original job, on any number of threads. It continues once its workers have returned and have sent their
 * unanswered requests again. Until then its ranks are lost. */
#ifndef PD_IMAGE_H
#define PD_IMAGE_H

#include "jobs.h"

/* Returns whether an image of the job can be written now: every parameter has weights, no step is under way, no
 * preconditioner task is running, no import, export or consistent cut is under way, and no global norm is being
 * computed. If it returns false, the caller tries again after the next batch or the next preconditioner task. */
bool pd_image_is_possible(const pd_job *job);
/* Writes an image of the job, which must be possible now (pd_image_is_possible). Stores in *image an allocated buffer
 * of *n bytes, which the caller frees. PD_NO_MEMORY. */
int pd_image_write(pd_job *job, uint8_t **image, size_t *n, pd_error *err);
/* Makes a job from an image and puts it into the table of jobs. Its ranks are lost, and the time of
 * job_linger begins at `now_ns`. The image is borrowed for the call. After an error nothing has changed.
 *
 * Every byte of the image is checked:
 *
 *   PD_DATA_LOSS            the image is damaged
 *   PD_UNIMPLEMENTED        the image has another version of the format, or other fields
 *   PD_INVALID_ARGUMENT     the image does not fit this server or its configuration
 *   PD_FAILED_PRECONDITION  a job of that name exists
 *   PD_RESOURCE_EXHAUSTED   the job would exceed a limit
 *   PD_NO_MEMORY */
int pd_image_read(pd_jobs *jobs, const pd_job_env *env, const uint8_t *image, size_t n, uint64_t now_ns, pd_error *err);

#endif
