/* replay_tensors.h - weights and gradients of a run while it is played, whichever way. */
#ifndef PD_REPLAY_TENSORS_H
#define PD_REPLAY_TENSORS_H

#include "replay_net.h"
#include "trace.h"
#include "verdict.h"

typedef struct pd_replay_tensors {
    const pd_trace       *trace;
    const pd_trace_param *params;
    size_t                n;            /* parameters of the trace */
    float               **weights, **gradient;
    bool                 *present;      /* there is a gradient in this step */
    pd_replay_net        *net;          /* NULL: gradients were recorded */
    double                loss;         /* of the net, before this step */
    double               *recorded;     /* room for the largest parameter */
} pd_replay_tensors;

/* Makes the tensors, with the initial weights of a checked trace, which is borrowed. Free *out, also after an error.
 * Errors as in pd_replay_net_open. */
int  pd_replay_tensors_new(pd_replay_tensors *out, const pd_trace *trace, pd_error *err);
void pd_replay_tensors_free(pd_replay_tensors *t);
/* Takes a replica's gradients of a step from the trace, or computes them. A parameter with a step of its own has the
 * gradient of that one. */
void pd_replay_tensors_fill(pd_replay_tensors *t, int64_t step, int replica);
/* Notes in verdicts[parameter] how far the weights are from the recorded ones, or in verdicts[n] the loss. */
void pd_replay_tensors_judge(const pd_replay_tensors *t, int64_t step, pd_verdict *verdicts);

#endif
