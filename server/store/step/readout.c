/* readout.c - computes the weights to evaluate with, and sends them to the loop thread. */
#include "readout.h"

/* Returns whether the optimizer's state is that of the published weights. */
static bool is_between_steps(const pd_param *param)
{
    return param->current != NULL && pd_optim_done(param->optim);
}

static void answer(pd_steps *steps, pd_param *param, pd_request *request)
{
    pd_effect *effect = pd_answer(request, PD_EFF_CLOSED);
    pd_closed *closed = request->u.read_out.at;
    const bool own = pd_optim_has_readout(param->optim);

    request->u.read_out.at = NULL;
    *closed = (pd_closed){ .param = param->index, .step = param->saved.step, .read_out = true };
    if (own && (closed->published = pd_param_read_out(param, steps->config->threads)) == NULL) closed->starved = true;
    if (closed->published != NULL) pd_published_lend(steps->unread, closed->published);
    effect->u.closed.at = closed;
    effect->u.closed.n = 1;
    pd_request_free(request);
    pd_withheld_send(&steps->withheld, steps->outbox, effect);
}

void pd_readout_look(pd_steps *steps, pd_param *param)
{
    pd_request *request = param->reader;

    if (request == NULL) return;
    param->reader = NULL;
    answer(steps, param, request);
}

void pd_readout_take(pd_steps *steps, pd_request *request, bool later)
{
    pd_param *param = &steps->params[request->u.read_out.param];

    /* The answer to an earlier request serves all who wait. */
    pd_request_free(param->reader);
    param->reader = request;
    if (!later && is_between_steps(param)) pd_readout_look(steps, param);
}

void pd_readouts_look(pd_steps *steps)
{
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (is_between_steps(&steps->params[i])) pd_readout_look(steps, &steps->params[i]);
}
