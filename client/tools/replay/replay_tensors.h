/* replay_tensors.h - weights and gradients of a run while it is played, in this process or through a daemon. */
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
    bool *present;      /* for each parameter whether it has a gradient in this step */
    pd_replay_net *net; /* network that computes gradients; NULL: gradients were recorded */
    double loss;        /* the network's loss with the weights before this step */
    double *recorded;   /* buffer for a recorded tensor; has room for the largest parameter */
} pd_replay_tensors;

/* Makes the tensors, with the initial weights of a checked trace, which is borrowed. The caller frees *out, also
 * after an error. Returns the errors of pd_replay_net_open. */
int pd_replay_tensors_new(pd_replay_tensors *out, const pd_trace *trace, pd_error *err);
void pd_replay_tensors_free(pd_replay_tensors *t);
/* Reads the gradients that a replica had in a step from the trace, or computes them. A trace of Trax's averaging has
 * one gradient for each parameter, whatever the step: there, that one is read. */
void pd_replay_tensors_fill(pd_replay_tensors *t, int64_t step, int replica);
/* Compares the weights after a step with the recorded ones, in verdicts[parameter]. If the network computes
 * gradients, compares the loss instead, in verdicts[n]. */
void pd_replay_tensors_judge(const pd_replay_tensors *t, int64_t step, pd_verdict *verdicts);

#endif
