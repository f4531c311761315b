/* paramd/diloco.h - DiLoCo, Streaming DiLoCo and LocalSGD: workers that train by themselves, and exchange what they
 * have learned after many steps.
 *
 *     const char *rules[] = { "* sgd lr=0.7 momentum=0.9 nesterov=true", NULL };     the outer optimizer
 *     open, declare, init as in client.h; weights[i]: the parameters' weights
 *     pd_diloco_options options = { .sync_every = 100 };
 *     pd_diloco *outer;
 *
 *     pd_diloco_make(&outer, client, weights, &options, &err);
 *     for each batch:
 *         gradients(weights, batch);  adamw(weights);                   an inner step, with any optimizer
 *         rc = pd_diloco_step(outer, weights, 0, &err);                 every 100th call exchanges weights
 *     pd_diloco_finish(outer, weights, &err);
 *     pd_diloco_free(outer);
 *
 * Words. An inner step is a step of the worker's own optimizer, whose state is neither sent nor reset. The global
 * weights are those that the worker last received. A sync sends the difference "global weights minus the worker's
 * weights" as a gradient, and receives the global weights that the job's optimizer, the outer optimizer, makes of all
 * workers' differences. So the job's rules, its durability, its open sets and the recoveries are those of any other
 * job. LocalSGD, which averages weights, is "* sgd lr=1 momentum=0".
 *
 * Fragments. The parameters may be cut into fragments (pd_client_param.fragment), which are synced one after the other:
 * of P fragments, number p is due after (p + 1) sync_every / P inner steps of each cycle of sync_every. The parameters
 * of a fragment are sent together, and one fragment at most is under way. All ranks must have the same fragments, and
 * the same options sync_every and fragment_sync_delay.
 *
 * Overlap. With a delay of n inner steps, a fragment is sent n inner steps before it is due, and its answer is taken
 * when it is due. The program computes meanwhile. A part of what it has learned since can stay in its weights
 * (fragment_update_alpha).
 *
 * Arithmetic. All numbers are float32, and each operation is rounded, so all programs get the same bits:
 *     difference      global - local
 *     new local       with alpha: 0: global; below 0.5: global + alpha (local - global);
 *                     otherwise: local - (local - global) (1 - alpha). This is torch.lerp(global, local, alpha).
 * Of a parameter that is model state (pd_client_param.model_state), the weights themselves are sent.
 *
 * Late answers. In a job with open sets a contribution may come too late, and does not count. Then the worker's weights
 * change by as much as the global ones have: local + (new global - global). So its work stays in its weights, and is
 * part of its next contribution. With drop_late it is treated as if it had counted. After three late answers in a row,
 * the client gives a notice (pd_client_options.notice).
 *
 * Threads. One thread at a time may use a pd_diloco. It uses its client by public calls alone; the program must not
 * push or pull parameters by itself. */
#ifndef PARAMD_DILOCO_H
#define PARAMD_DILOCO_H

#include "paramd/client.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pd_diloco pd_diloco;

/* How a worker syncs. Later versions may add fields to the end of this struct and of pd_diloco_status. */
typedef struct pd_diloco_options {
    /* Number of inner steps between two syncs of a fragment, a multiple of the number of fragments. */
    uint64_t sync_every;
    /* Number of inner steps between the sending of a fragment and the taking of its answer; less than sync_every
     * divided by the number of fragments. 0: the worker waits for the answer. */
    uint64_t fragment_sync_delay;
    /* Part of the worker's own weights in its weights after a sync, from 0 to 1. 0: it goes on from the global ones. */
    double fragment_update_alpha;
    /* A late contribution's data are dropped. false: they are carried over to the next one. */
    bool drop_late;
    /* Gives slow workers fewer inner steps (dynamic local updates): the cycle of a worker has sync_every times its
     * speed divided by that of the fastest worker, rounded down to a multiple of the number of fragments, and at least
     * fragment_sync_delay + 1 inner steps for each fragment. The speed is that of the program alone: time in the calls
     * of this header does not count. It is measured in each cycle, and half of the older value is kept. */
    bool dylu;
    /* The weight of a contribution is n^2 / s, of n tokens and s inner steps since the fragment was last taken. For a
     * job with aggregate = weighted_mean or radial_mean. Late contributions that are carried over add up. false: the
     * weight is 1. */
    bool weigh_tokens;
} pd_diloco_options;

/* Makes a pd_diloco for a client, after pd_client_declare and pd_client_init. weights[i] are parameter i's weights (or
 * this rank's range of them) as pd_client_init left them, as float32 whatever the pull_dtype is; the global weights
 * begin as their copy. They are borrowed for the call only. A process that comes back goes on with the fragment whose
 * turn it is in the job.
 *
 * *out is freed with pd_diloco_free, before the client is closed. `size` is the size of pd_diloco_options in the
 * caller's program.
 *
 * PD_INVALID_ARGUMENT: an option has no valid value (the text says which are), the numbers of the fragments have a gap,
 * weights are missing, or a parameter has an update_dtype. PD_FAILED_PRECONDITION: no parameters are declared. */
PD_API int pd_diloco_make_sized(pd_diloco **out, pd_client *client, float *const *weights,
                                const pd_diloco_options *options, size_t size, pd_error *err);
/* Frees a pd_diloco, without waiting for a fragment that is under way: its contribution counts, and nobody takes the
 * answer. The client stays. Accepts NULL. */
PD_API void pd_diloco_free(pd_diloco *d);

/* What is due: the fragment to send, and the one to take after that; -1: none. */
typedef struct pd_diloco_due {
    int64_t send, take;
} pd_diloco_due;

/* Notes that the program has taken one inner step on `tokens` tokens (only weigh_tokens uses their number), and returns
 * what is due now. Does not wait. */
PD_API pd_diloco_due pd_diloco_inner_step(pd_diloco *d, double tokens);
/* Sends a fragment: copies the difference of the global weights and `weights`, and queues the push. Reads weights[i] of
 * the fragment's parameters alone, which may change afterwards. Does not wait.
 *
 * PD_INVALID_ARGUMENT: there is no such fragment. PD_FAILED_PRECONDITION: a fragment is under way: take it first.
 * Errors of pd_client_push_pull, after which nothing is under way. */
PD_API int pd_diloco_send(pd_diloco *d, int64_t fragment, float *const *weights, pd_error *err);
/* Waits for the answer to a fragment that was sent, at most for pd_client_options.slice. Then the answer is the
 * fragment's global weights, and weights[i] of its parameters are mixed with it. Other weights stay.
 *
 * PD_FAILED_PRECONDITION: the fragment is not under way; or the optimizer refused the step, for the reason in the text:
 * then the answer has been taken all the same, and the program may go on. PD_REWIND, PD_DATA_LOSS: pd_diloco_resume
 * goes on. After any other error, too, the fragment is still under way and the weights are as they were: call this
 * function again, which waits on (PD_DEADLINE_EXCEEDED "waited ...") or sends the same difference again. */
PD_API int pd_diloco_take(pd_diloco *d, int64_t fragment, float *const *weights, pd_error *err);
/* Does pd_diloco_inner_step, then sends and takes what is due, with the errors of these functions. After an error of
 * the sending, this fragment misses its turn. If a fragment is still under way, pd_diloco_finish goes on waiting:
 * another call of this function would count another inner step. */
PD_API int pd_diloco_step(pd_diloco *d, float *const *weights, double tokens, pd_error *err);
/* Takes the fragment that is under way, if there is one, before it is due: before the program ends, or tests or saves
 * its weights. Errors as in pd_diloco_take. */
PD_API int pd_diloco_finish(pd_diloco *d, float *const *weights, pd_error *err);
/* Goes on after PD_REWIND or PD_DATA_LOSS, on the same client: receives the weights of the checkpoint
 * (pd_client_rewind), or begins the job anew from the workers' global weights (pd_client_restart). Both the global
 * weights and `weights` are then what the server has, and the next fragment is the one whose turn it is in the job.
 * What is under way is forgotten. Waits as these two functions do, with their errors; after PD_DEADLINE_EXCEEDED,
 * PD_REWIND and PD_DATA_LOSS call it again. */
PD_API int pd_diloco_resume(pd_diloco *d, float *const *weights, pd_error *err);
/* Returns the global weights of a parameter, as last received: of all elements that this rank has. Valid until the next
 * call of take, step, finish or resume. NULL: there is no such parameter, or this rank has no elements of it. */
PD_API const float *pd_diloco_global(const pd_diloco *d, size_t param);

/* What a worker has done, and how it counts in the job. */
typedef struct pd_diloco_status {
    /* inner_steps: number of inner steps taken, before this process too, as far as the steps of the job tell. step:
     * number of closed rounds that this worker has taken of each fragment: the lowest of them. */
    uint64_t inner_steps, step;
    /* Contributions of this worker whose answers were taken: their number, how many counted, how many were late. A
     * contribution has one fragment. */
    uint64_t pushes, counted, late;
    /* Number of steps by which the last contribution that counted was older than its step. */
    uint64_t age;
    /* Number of inner steps of the present cycle: options.sync_every, or fewer with dylu. */
    uint64_t sync_every;
    /* Number of bytes of contributions sent and of weights received, by this client in all. */
    uint64_t payload_out, payload_in;
    /* members: number of members of the job. counted_ranks: number of ranks that counted in the last round that this
     * worker took; 0: all. */
    int members;
    uint32_t counted_ranks;
    /* Number of inner steps a second that this worker takes, without the time in calls of this header; 0: not known
     * yet. */
    double speed;
} pd_diloco_status;
/* Copies the status into `size` bytes at `status`. Fields that the library does not have become 0. */
PD_API void pd_diloco_status_sized(const pd_diloco *d, pd_diloco_status *status, size_t size);

/* Writes the worker's place into `out`, which has `room` bytes: inner steps, steps of the fragments, tokens. The
 * program keeps it with its weights and the state of its inner optimizer. *bytes is its length; with room 0 nothing is
 * written.
 *
 * PD_FAILED_PRECONDITION: a fragment is under way: pd_diloco_finish first. PD_OUT_OF_RANGE: `room` is too small. */
PD_API int pd_diloco_save(const pd_diloco *d, void *out, size_t room, size_t *bytes);
/* Takes the place that pd_diloco_save wrote, in a pd_diloco that was just made with the same options and fragments. The
 * program may then go on from the weights that it has saved with it.
 *
 * PD_INVALID_ARGUMENT: these bytes are no place, or one with other options. PD_FAILED_PRECONDITION: the job is not at
 * the steps of this place, since it has gone on or back: go on from the weights of pd_client_init, as pd_diloco_make
 * does. After an error nothing has changed. */
PD_API int pd_diloco_load(pd_diloco *d, const void *state, size_t bytes, pd_error *err);

/* Makes a pd_diloco as pd_diloco_make_sized does. */
static inline int pd_diloco_make(pd_diloco **out, pd_client *client, float *const *weights,
                                 const pd_diloco_options *options, pd_error *err)
{
    return pd_diloco_make_sized(out, client, weights, options, sizeof *options, err);
}

/* Returns the status of a pd_diloco. */
static inline pd_diloco_status pd_diloco_status_now(const pd_diloco *d)
{
    pd_diloco_status status;

    pd_diloco_status_sized(d, &status, sizeof status);
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
