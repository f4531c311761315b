/* replay_run.h - holds the data of a recorded run while it is played, and plays it: in this process (replay_local.c),
 * through a daemon (replay_server.c), or as averages of gradients (replay_average.c). */
#ifndef PD_REPLAY_RUN_H
#define PD_REPLAY_RUN_H

#include "recipe.h"
#include "replay_net.h"
#include "trace.h"
#include "verdict.h"

struct pd_replay_state; /* replay_state.h */

/* Most blocks that a range is cut into: one in the middle, and for each later dimension one before the middle and one
 * after it. */
#define PD_MAX_RECOVERED (2 * PD_MAX_RANK - 1)

/* The blocks of a flat range of a tensor's elements, in the order of their elements. */
typedef struct pd_recovered {
    int n;
    struct {
        pd_shape shape; /* the first dimension is the one at which the block was cut; earlier dimensions are dropped */
        int64_t offset; /* index of the block's first element in the flat tensor; its other elements follow without
                         * gaps */
    } at[PD_MAX_RECOVERED];
} pd_recovered;

/* Cuts elements [start, end) of a row-major tensor of `shape` into blocks that are tensors again.
 *
 * FSDP flattens a parameter and gives each rank a range of its elements, which need not begin or end with a row. Meta's
 * Shampoo cuts such a range into the largest blocks that are tensors again, and treats each block as a parameter of its
 * own. The cuts are those of Meta's program since its correction of August 2024.
 *
 * For a range from a to b at dimension d, let m be the number of elements that share one index of dimension d. All
 * elements between a and b, rounded inwards to multiples of m, are one block. The elements before and after that block
 * are cut at dimension d + 1 in the same way. At the last dimension a range is one vector, and so is a scalar. An empty
 * range has no blocks. PD_INVALID_ARGUMENT: the range does not lie in the tensor, or the shape is invalid; *out is
 * empty then. */
int pd_recover_blocks(pd_recovered *out, const pd_shape *shape, int64_t start, int64_t end, pd_error *err);

/* A declared part, which a replay declares as one parameter: a whole parameter of the trace, or a block of a rank's
 * shard. */
typedef struct pd_replay_part {
    /* The name under which the part is declared: NAME, or "NAME@OFFSET" for a block. If the recorded configuration has
     * groups, the group's number comes first, "2/NAME", so that a rule can match the group. */
    char *name;
    const char *recorded; /* name of the parameter in the trace */
    size_t param;         /* index of the parameter in the trace */
    int64_t offset;       /* index of the part's first element in the parameter; its other elements follow */
    pd_shape shape;
    size_t group; /* index of its hyperparameters in pd_recipe.groups */
    char *axes;   /* names of the part's dimensions; "": they have none, as the dimensions of a block */
} pd_replay_part;

/* All declared parts of a trace. */
typedef struct pd_replay_parts {
    pd_replay_part *at;
    size_t n;
} pd_replay_parts;

/* Returns true if the trace was recorded with FSDP. Its metadata `shards` then has for each rank its range [start, end)
 * of each flattened parameter, and a replay declares blocks of these ranges instead of parameters. */
bool pd_replay_is_sharded(const pd_trace *trace);
/* Finds the parts of a checked trace that a replay declares. The caller frees *out, also after an error.
 * PD_INVALID_ARGUMENT: the shards of a parameter do not follow each other or do not cover the parameter.
 * PD_NO_MEMORY. */
int pd_replay_parts_find(pd_replay_parts *out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
void pd_replay_parts_free(pd_replay_parts *parts);

/* Weights and gradients of a recorded run while it is played. */
typedef struct pd_replay_tensors {
    const pd_trace *trace;
    const pd_trace_param *params;
    size_t n; /* number of parameters in the trace */
    float **weights, **gradient;
    bool *present;      /* for each parameter: whether it has a gradient in the present step */
    pd_replay_net *net; /* network that computes the gradients; NULL: gradients were recorded */
    bool zeros;         /* a missing gradient counts as one of zeros (pd_recipe.zeros) */
    double loss;        /* with `net`: the network's loss with the weights before the present step */
    double *recorded;   /* buffer for one recorded tensor; has room for the largest parameter */
} pd_replay_tensors;

/* Makes the weights and gradients of a checked trace, beginning with its initial weights. Borrows `trace`. The caller
 * frees *out, also after an error. Returns the errors of pd_replay_net_open. */
int pd_replay_tensors_new(pd_replay_tensors *out, const pd_trace *trace, pd_error *err);
void pd_replay_tensors_free(pd_replay_tensors *t);
/* Sets the gradients to those of a replica in a step: reads them from the trace, or computes them. A trace of Trax's
 * averaging has only one gradient for each parameter, which is read in any step. */
void pd_replay_tensors_fill(pd_replay_tensors *t, int64_t step, int replica);
/* Compares the weights after a step with the recorded ones, and adds the errors to verdicts[parameter]. If a network
 * computes the gradients, compares its loss instead, and adds the error to verdicts[n], the one after the last
 * parameter. */
void pd_replay_tensors_judge(const pd_replay_tensors *t, int64_t step, pd_verdict *verdicts);

/* Compares how a step ended with how the recorded step ended. `rc` and `ours` are the code and the error of the step.
 * If the recorded step has no error, returns `rc` and copies `ours` to *err. PD_OK: the step ended as recorded, with
 * success or with the same cause of failure. PD_FAILED_PRECONDITION: the recorded step has an error, but this step
 * succeeded or failed for another reason. */
int pd_replay_judge_step(const pd_trace *trace, int64_t step, int rc, const pd_error *ours, pd_error *err);
/* Returns true if all recorded steps failed. */
bool pd_replay_always_fails(const pd_trace *trace);
/* Returns true if paramd may refuse the parameters with error `rc`, because all recorded steps failed, or left only NaN
 * in the weights. */
bool pd_replay_is_refusal(const pd_trace *trace, int rc);
/* Sets all weights to NaN if the recorded weights are NaN after every step. Called after paramd has refused the
 * parameters, so that the comparison of weights succeeds. */
void pd_replay_refused(const pd_trace *trace, float *const *weights);
/* Sets *rate to the learning rate that the trace or its configuration has for a step. Returns false if they have
 * none. */
bool pd_replay_rate(const pd_trace *trace, const pd_recipe *recipe, int64_t step, double *rate);

/* Plays a checked trace step by step in this process, from its initial weights, with the recorded random numbers.
 *
 * Adds to verdicts[parameter] how far the weights are from the recorded ones, and to *updates how far the changes of
 * weights are from the recorded updates. If gradients were not recorded but can be computed (replay_net.h), the losses
 * are compared instead, in the verdict after that of the last parameter. If `state` is not NULL, recorded optimizer
 * state is compared, too.
 *
 * A step must fail if and only if the recorded step failed, and with the same cause. If all recorded steps failed, the
 * optimizer may also refuse the parameters.
 *
 * PD_UNIMPLEMENTED: the trace cannot be played in this way; the error says why. PD_FAILED_PRECONDITION: a step failed
 * that was recorded to succeed, or the reverse. Other codes: the optimizer's error. */
int pd_replay_local(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_verdict *updates,
                    struct pd_replay_state *state, pd_error *err);
/* Sets *tolerance to the largest error that updates, the changes of weights in a step, may have: 10 * noise_update +
 * 1e-6, where noise_update is the recorded noise of updates in the metadata; without it, the weights' tolerance.
 * PD_INVALID_ARGUMENT: noise_update is no number, or negative. */
int pd_replay_updates_tolerance(const pd_trace *trace, double *tolerance, pd_error *err);
/* Returns true if the trace has bases of first gradients that rounding decides, because a factor has not full rank: a
 * replay loads them (metadata `first_gradient`, tensors `state/TTTT/NAME/Q/I`). */
bool pd_replay_has_bases(const pd_trace *trace);
/* Returns true if the trace has the random numbers that distributed_kron drew in the recorded run. */
bool pd_replay_has_draws(const pd_trace *trace);

/* Plays a checked trace through the daemon at `url`; NULL: the client's default address.
 *
 * Makes a job `replay/<case>/<nonce>` with a worker for each replica of the trace. The workers push all gradients and
 * pull the weights after each step. Each worker's weights are compared with the recorded ones as in pd_replay_local. In
 * the end the daemon is asked how many contributions it counted, and the job is dropped. `timeout`: seconds to find the
 * daemon.
 *
 * PD_DATA_LOSS: the daemon did not count as many contributions as were sent. Other errors: see pd_replay_local. */
int pd_replay_server(const pd_trace *trace, const pd_recipe *recipe, const char *url, double timeout,
                     pd_verdict *verdicts, pd_error *err);

/* For a trace that records gradients and their averages, but no weights: averages the gradients of the replicas that
 * have the same shard of the weights, and adds to `verdicts` how far each average is from the recorded one. Returns
 * an error of pd_replay_check_replicas, or PD_NO_MEMORY. */
int pd_replay_average(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_error *err);
/* Checks that the number of replicas in a trace of averages fits the number of shards and the way of averaging.
 * PD_INVALID_ARGUMENT: it does not. */
int pd_replay_check_replicas(const pd_trace *trace, const pd_recipe *recipe, pd_error *err);

#endif
