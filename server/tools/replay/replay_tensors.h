/* replay_tensors.h - weights and gradients of a recorded run while it is played, in this process or through a
 * daemon. */
#ifndef PD_REPLAY_TENSORS_H
#define PD_REPLAY_TENSORS_H

#include "replay_net.h"
#include "trace.h"
#include "verdict.h"

typedef struct pd_replay_tensors {
    const pd_trace *trace;
    const pd_trace_param *params;
    size_t n; /* number of parameters in the trace */
    float **weights, **gradient;
    bool *present;      /* for each parameter whether it has a gradient in the present step */
    pd_replay_net *net; /* network that computes the gradients; NULL: gradients were recorded */
    double loss;        /* the network's loss with the weights before the present step */
    double *recorded;   /* buffer for one recorded tensor; has room for the largest parameter */
} pd_replay_tensors;

/* Makes the weights and gradients of a run, beginning with the initial weights of a checked trace (file of the
 * run). Borrows `trace`. The caller frees *out, also after an error. Returns the errors of pd_replay_net_open. */
int pd_replay_tensors_new(pd_replay_tensors *out, const pd_trace *trace, pd_error *err);
void pd_replay_tensors_free(pd_replay_tensors *t);
/* Sets the gradients to those of a replica in a step: reads them from the trace, or
 * computes them. A trace of Trax's averaging has only one gradient for each parameter, which is read in any step. */
void pd_replay_tensors_fill(pd_replay_tensors *t, int64_t step, int replica);
/* Compares the weights after a step with the recorded ones, and notes the error in verdicts[parameter]. If a
 * network computes the gradients, compares its loss instead, and notes the error in verdicts[n]. */
void pd_replay_tensors_judge(const pd_replay_tensors *t, int64_t step, pd_verdict *verdicts);

#endif
