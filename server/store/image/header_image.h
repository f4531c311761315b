/* header_image.h - the header of an image: everything that a restart must bring back of a job and that belongs to no
 * single parameter. These are the job's declarations (names, configuration, rules, parameters, ranges), its ranks, its
 * step groups and its overrides. Step thread. */
#ifndef PD_HEADER_IMAGE_H
#define PD_HEADER_IMAGE_H

#include "archive.h"
#include "jobs.h"

/* Writes the header to an archive. While a cut (consistent_cut.h) stops the job's parameters, it is the header as of
 * the cut. */
void pd_header_image_write(pd_archive *archive, pd_job *job);
/* Reads the header from an archive, and makes the job. *out must be NULL before the call; it becomes the job once this
 * is made. After an error, which the archive has, *out may be a job whose state was read only in part, which the caller
 * frees. */
void pd_header_image_read(pd_archive *archive, const pd_jobs *jobs, const pd_job_env *env, pd_job **out);
/* Writes the part of the header to an archive that does not depend on the job's number of ranks, or reads it into a job
 * that was made from the same declarations, depending on the archive's direction. */
void pd_header_image_visit_rankless(pd_archive *archive, pd_job *job);
/* Writes the header to an archive without the job's declarations, or reads it into a job that exists and was at the
 * step before, depending on the archive's direction. */
void pd_header_image_visit_state(pd_archive *archive, pd_job *job);
/* Finishes a job after its header and all its parameters were read: its ranks are lost, and the time of job_linger
 * begins. PD_DATA_LOSS: the header and the parameters do not fit together. */
int pd_header_image_settle(pd_job *job, uint64_t now_ns, pd_error *err);

#endif
