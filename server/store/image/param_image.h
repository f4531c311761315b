/* param_image.h - writes and reads one parameter of an image: all its state that a restart must restore, except its
 * weights. Step thread. */
#ifndef PD_PARAM_IMAGE_H
#define PD_PARAM_IMAGE_H

#include "archive.h"
#include "steps.h"

/* Writes the state of a parameter to an archive, or reads it into a parameter that was just made from the same
 * declaration, depending on the archive's direction. When writing, all preconditioner tasks of the parameter must have
 * returned (pd_optim_may_be_saved). After reading, the caller writes the weights into param->next->at[PD_F32] and calls
 * pd_param_image_publish. */
void pd_param_image_visit(pd_archive *archive, pd_steps *steps, pd_param *param);
/* For a record of a step: writes the counters of a parameter and the scalars of its last round to an archive, or reads
 * them into the parameter of the job that replays the record, depending on the archive's direction. */
void pd_param_image_visit_record(pd_archive *archive, pd_steps *steps, pd_param *param);
/* Publishes the parameter's weights, which have just been read from an image: param->next becomes param->current. */
void pd_param_image_publish(pd_steps *steps, pd_param *param);

/* Writes the state of a quiesced parameter (pd_optim_may_be_written) to an archive, except the results of
 * preconditioner tasks that are still under way. Returns the number of these tasks. The caller must give each of them
 * to pd_optim_write_task when it has returned, and then call pd_param_image_write_end. */
size_t pd_param_image_write(pd_archive *archive, pd_steps *steps, pd_param *param);
void pd_param_image_write_end(pd_archive *archive);

#endif
