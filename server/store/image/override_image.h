/* override_image.h - the overrides of a job in an image: each once, with the parameters that hold it. Step thread. */
#ifndef PD_OVERRIDE_IMAGE_H
#define PD_OVERRIDE_IMAGE_H

#include "archive.h"
#include "job.h"

/* Visits the overrides of all parameters, in either direction. */
void pd_overrides_visit(pd_archive *archive, pd_job *job);

#endif
