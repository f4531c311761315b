/* members_image.h - writes and reads the part of an image's header that tells who is a member of the job. Step
 * thread. */
#ifndef PD_MEMBERS_IMAGE_H
#define PD_MEMBERS_IMAGE_H

#include "archive.h"
#include "job.h"

/* Returns whether the image of the job has this part: members may come and go, its generation is known, or an operator
 * has removed a worker. */
bool pd_members_image_has(const pd_job *job);
/* Writes or reads this part, with the first `ranks` ranks. If an image lacks it, the job keeps the members that it was
 * made with. */
void pd_members_image_visit(pd_archive *archive, pd_job *job, uint32_t ranks);

#endif
