/* header_image.h - writes and reads the header of an image: all state of a job that a restart must restore and that
 * belongs to no single parameter. The header contains the job's declarations (name, configuration, rules, parameters,
 * ranges), its ranks, its step groups and its overrides. Step thread. */
#ifndef PD_HEADER_IMAGE_H
#define PD_HEADER_IMAGE_H

#include "archive.h"
#include "jobs.h"
#include "override.h"

/* Writes the header to an archive. While a consistent cut quiesces the job's parameters, writes the header as of the
 * cut. */
void pd_header_image_write(pd_archive *archive, pd_job *job);
/* Reads the header from an archive, and makes the job. *out must be NULL before the call. An error is stored in the
 * archive; then *out is NULL, or a job with incomplete state, which the caller must free. */
void pd_header_image_read(pd_archive *archive, const pd_jobs *jobs, const pd_job_env *env, pd_job **out);
/* For a resize: writes the header without declarations and without ranks to an archive, or reads it into a job that was
 * made from the same declarations, depending on the archive's direction. */
void pd_header_image_visit_rankless(pd_archive *archive, pd_job *job);
/* For a record of a step: writes the header without declarations to an archive, or reads it into the job that replays
 * the record, depending on the archive's direction. */
void pd_header_image_visit_state(pd_archive *archive, pd_job *job);
/* For another number of shards: writes an override of rule `rule` as an image of its own, *bytes bytes, which the
 * caller frees. Equal overrides have equal images. PD_NO_MEMORY. */
int pd_override_image_write(uint8_t **image, size_t *bytes, const pd_override *override, uint32_t rule, pd_error *err);
/* Makes the override of such an image in a job, with one reference. PD_NO_MEMORY. */
int pd_override_image_read(pd_override **out, pd_job *job, const uint8_t *image, size_t bytes, pd_error *err);
/* Completes a job after its header and all its parameters were read: marks its ranks as lost unless they have left, and
 * starts the time of job_linger. PD_DATA_LOSS: the header and the parameters do not fit together. */
int pd_header_image_settle(pd_job *job, uint64_t now_ns, pd_error *err);

#endif
