/* replay_net.h - gradients of a recorded network, where its trace has the losses and not the gradients.
 *
 * The network: dense layers with ReLU between them, parameters `layers.K.weight` (out, in) and `layers.K.bias` (out) in
 * the order of their K, and the mean cross entropy of softmax over a batch. The data lies in a file beside the trace,
 * digits_batches_seedS.safetensors with S the trace's metadata `batch_seed`: `x` (examples, inputs), `y` (examples),
 * `batch_index` (steps, examples of a batch). Such a run is judged by its losses: gradients feed on weights, and so
 * does what rounding did to them. */
#ifndef PD_REPLAY_NET_H
#define PD_REPLAY_NET_H

#include "trace.h"

typedef struct pd_replay_net pd_replay_net;

/* Returns true if the checked trace has a loss for each step and no gradient. */
bool pd_replay_net_wanted(const pd_trace *trace);
/* Opens the network. Borrows the trace. The caller closes *out. PD_UNIMPLEMENTED: the parameters are not such a
 * network's, or the data is missing. PD_INVALID_ARGUMENT: data that does not fit. PD_NO_MEMORY. */
int  pd_replay_net_open(pd_replay_net **out, const pd_trace *trace, pd_error *err);
void pd_replay_net_close(pd_replay_net *net);           /* accepts NULL */

/* Returns the loss over the batch of a step, counted from 1, at `weights`; fills `gradient` with its derivatives. Both
 * in the order of the trace's parameters. */
double pd_replay_net_differentiate(pd_replay_net *net, int64_t step, float *const *weights, float *const *gradient);
/* Returns the relative distance from the recorded loss. NaN if either is NaN. */
double pd_replay_net_error(const pd_replay_net *net, int64_t step, double loss);

#endif
