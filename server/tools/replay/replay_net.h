/* replay_net.h - computes the gradients of a recorded training run, if its trace has only losses and no gradients.
 *
 * The network has dense layers with ReLU between them. Its parameters are `layers.K.weight` with shape (out, in) and
 * `layers.K.bias` with shape (out), in the order of K. The loss is the mean cross entropy over a batch. The training
 * data is in a file beside the trace, digits_batches_seedS.safetensors, where S is the trace's metadata `batch_seed`.
 * It has the tensors `x` (examples, inputs), `y` (examples) and `batch_index` (steps, examples of a batch).
 *
 * Such a run is compared by its losses, not by its weights: each step computes new gradients from the weights, so
 * rounding errors of weights grow from step to step. */
#ifndef PD_REPLAY_NET_H
#define PD_REPLAY_NET_H

#include "trace.h"

typedef struct pd_replay_net pd_replay_net;

/* Returns true if the checked trace has a loss for each step, but no gradients. */
bool pd_replay_net_wanted(const pd_trace *trace);
/* Finds the network of a trace and reads its training data. Borrows `trace`. The caller closes *out. PD_UNIMPLEMENTED:
 * the parameters are not those of such a network, or the file with the data is missing. PD_INVALID_ARGUMENT: the data
 * does not fit the network. PD_NO_MEMORY: out of memory. */
int pd_replay_net_open(pd_replay_net **out, const pd_trace *trace, pd_error *err);
void pd_replay_net_close(pd_replay_net *net); /* accepts NULL */

/* Returns the network's loss over the batch of a step with these weights; steps count from 1. Sets `gradient` to
 * its derivatives by the weights. `weights` and `gradient` are in the order of the trace's parameters. */
double pd_replay_net_differentiate(pd_replay_net *net, int64_t step, float *const *weights, float *const *gradient);
/* Returns the relative error of a loss against the recorded loss of this step. NaN if one of the two is NaN. */
double pd_replay_net_error(const pd_replay_net *net, int64_t step, double loss);

#endif
