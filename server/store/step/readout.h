/* readout.h - answers workers that want the weights to evaluate with, which some optimizers keep beside those that are
 * trained (pd_optimizer_ops.readout). Step thread.
 *
 * They are computed when somebody asks, from the published weights and the optimizer's state after the same step. So
 * whoever asks gets the same bits for a step. While a step of the parameter is under way, its state is neither of that
 * step nor of the one before: then the answer waits until the round has closed. Nothing is kept: the version that is
 * made belongs to the answers that send it, and is counted as unread weights (published.h). */
#ifndef PD_READOUT_H
#define PD_READOUT_H

#include "steps.h"

/* Takes a PD_REQ_READ_OUT. Answers it at once, unless a step of its parameter is under way or `later` is set: then
 * pd_readout_look does. Takes ownership of the request. */
void pd_readout_take(pd_steps *steps, pd_request *request, bool later);
/* Answers the parameter's PD_REQ_READ_OUT, if there is one. Called when no step of the parameter is under way. */
void pd_readout_look(pd_steps *steps, pd_param *param);
/* Calls pd_readout_look for all parameters whose request could be answered now. */
void pd_readouts_look(pd_steps *steps);

#endif
