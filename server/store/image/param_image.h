/* param_image.h - one parameter in an image: everything that a restart must bring back of it, except its weights. Step
 * thread. */
#ifndef PD_PARAM_IMAGE_H
#define PD_PARAM_IMAGE_H

#include "archive.h"
#include "steps.h"

/* Writes the state of a parameter to an archive, or reads it into a parameter that was just made from the same
 * declaration, depending on the archive's direction. Only for a parameter whose preconditioner tasks have all returned
 * (pd_optim_may_be_saved). After reading, the caller writes the weights into param->next->at[PD_F32] and calls
 * pd_param_image_publish. */
void pd_param_image_visit(pd_archive *archive, pd_steps *steps, pd_param *param);
/* Writes what a parameter has besides its weights and the state of its optimizer (counters, and the scalars of the last
 * round), or reads it into a parameter that exists. */
void pd_param_image_visit_record(pd_archive *archive, pd_steps *steps, pd_param *param);
/* Publishes the parameter's weights, which have just been read from an image: param->next becomes param->current. */
void pd_param_image_publish(pd_steps *steps, pd_param *param);

/* Writes the state of a quiesced parameter (pd_optim_may_be_written) to an archive, except the results of
 * preconditioner tasks that are still at the preconditioner pool. Returns how many these are. Each of them must be
 * given to pd_optim_write_task when it has returned; then pd_param_image_write_end ends the writing. */
size_t pd_param_image_write(pd_archive *archive, pd_steps *steps, pd_param *param);
void pd_param_image_write_end(pd_archive *archive);

#endif
