/* override_image.h - the overrides of a job (values of hyperparameters that operators have set) in an image: each
 * override once, and for each parameter a list of the overrides that apply to it. Step thread. */
#ifndef PD_OVERRIDE_IMAGE_H
#define PD_OVERRIDE_IMAGE_H

#include "archive.h"
#include "job.h"

/* Writes the overrides of all parameters of the job to the archive, or reads them from it,
 * depending on the archive's direction. */
void pd_overrides_visit(pd_archive *archive, pd_job *job);

#endif
