/* paramd/client.h - the client library: a worker's side of a training job.
 *
 *     pd_client *client;
 *     pd_client_open(&client, &(pd_client_options){ .urls = "tcp://127.0.0.1:7070", .job = "mnist", .rank = 0, .world_size = 4,
 *                    .rules = (const char *[]){ "* sgd lr=0.1 momentum=0.9", NULL } }, &err);
 *     pd_client_declare(client, params, n, &err);                  names, shapes
 *     pd_client_init(client, weights, &err);                       the lowest rank's values; every rank then holds them (or its range of them)
 *     for each step:
 *         pd_client_push_pull(client, items, n, NULL, &ticket, &err);  gradients out; new weights land in items[i].weights
 *         pd_client_wait(client, ticket, 0, &err);
 *     pd_client_leave(client, &err);
 *     pd_client_close(client);
 *
 * A handle has one I/O thread of its own: heartbeats go on during a long backward pass, connections that break are made again
 * with back-off (50 ms doubling to 2 s; also when the server is not up yet), and what was not answered is sent again, the identical
 * bytes; the server counts it once. What a server refuses because it is shutting down is kept for the one that comes next.
 * No globals. A handle may be used from one thread at a time; different handles are independent. It does not survive fork().
 *
 * Buffers are the caller's: a gradient must not change, and weights must not be read, until the ticket is done.
 *
 * Calls that wait (open, declare, init, barrier, leave, wait) do so at most for the handle's deadline and then return PD_DEADLINE_EXCEEDED with a
 * text that begins "waited" (open: PD_UNAVAILABLE, and there is no handle). What they asked for stays under way: the same call again goes on
 * waiting, with the same buffers.
 *
 * The server may lose the job: it was killed and started again, say. Then every ticket and every later call ends with PD_DATA_LOSS, and
 * pd_client_restart goes on from the weights that the workers hold.
 *
 * Other errors end the handle for good, and every later call returns them: PD_ABORTED (another process has taken the rank over, or the job was
 * dropped), PD_FAILED_PRECONDITION and PD_INVALID_ARGUMENT after a reconnect (the server came back with another job), PD_INTERNAL (the peer breaks the
 * protocol). pd_client_close is all that is left then. */
#ifndef PARAMD_CLIENT_H
#define PARAMD_CLIENT_H

#include "paramd/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pd_client pd_client;
typedef uint64_t pd_ticket_id;

/* Zero means "take it from the environment, else the default". All text is copied. */
typedef struct pd_client_options {
    const char *urls;               /* "tcp://host:port" or "unix:///path", several separated by commas are tried in turn; PARAMD_URL; tcp://127.0.0.1:7070 */
    const char *job;                /* PARAMD_JOB, else torchrun's TORCHELASTIC_RUN_ID unless that is "none", else "default". "": operator's connection, no job */
    int         rank;               /* with world_size 0 both come from RANK and WORLD_SIZE, else 0 of 1 */
    int         world_size;
    const char *const *options;     /* the job's configuration "name=value" ("nonfinite=reject"), NULL at the end; or NULL */
    const char *const *rules;       /* "glob optimizer name=value ..." in order, the first that matches a name wins; NULL at the end; or NULL: "* sgd".
                                     * A value may be a schedule: "* sgd lr=linear_warmup(peak=0.1,warmup_steps=500)" (README.md) */
    const char *label;              /* shown to operators; default "host:pid" */
    double      deadline;           /* seconds for each call that waits; default 120 */
    bool        checksum;           /* XXH3 over every frame */
    bool        impatient;          /* do not wait for a server that is not up, nor connect again: the handle ends when every URL was tried once */
    uint64_t    nonce;              /* identity of this process; default: random */
} pd_client_options;

/* Starts the I/O thread and waits until the server has welcomed this worker. Names of hosts are looked up by that thread.
 * PD_UNAVAILABLE: no server within the deadline (says why the last attempt failed). PD_FAILED_PRECONDITION: the job exists with another
 * configuration (names the key). PD_INVALID_ARGUMENT: an address, option, rule or environment variable. PD_RESOURCE_EXHAUSTED: a limit of the server. */
PD_API int pd_client_open(pd_client **out, const pd_client_options *options, pd_error *err);
/* Ends the connection without leaving the job (the server will wait for this rank to come back); frees. Tickets not done are forgotten, and
 * their buffers are the caller's again. Accepts NULL. */
PD_API void pd_client_close(pd_client *client);
/* Leaves the job for good: waits until the server knows. Then only pd_client_close is left. */
PD_API int pd_client_leave(pd_client *client, pd_error *err);

/* What the server said in its welcome. */
typedef struct pd_welcome {
    uint64_t seed;                  /* of the job */
    bool     created;
    int      rank, world_size;
    uint64_t chunk_elements, max_payload;
    char     server[64], blas_core[32];
} pd_welcome;
PD_API const pd_welcome *pd_client_welcome(const pd_client *client);

typedef struct pd_client_param {
    const char *name;               /* UTF-8, at most 256 bytes */
    pd_shape    shape;
    pd_dtype    push_dtype;         /* element type of the gradients handed in; 0: PD_F32 */
    pd_dtype    pull_dtype;         /* element type of the weights handed out; 0: PD_F32 */
    pd_dtype    update_dtype;       /* not 0: what travels is, wherever that suffices, what a step added to the weights, in this element type (shampoo's
                                     * communication_dtype, with communicate_params off); pull_dtype is float32. Weights come out as the server has them, bit for
                                     * bit, in the buffers of every pull: the same buffer each time, with what the last pull left in it */
    bool        ranged;             /* this rank has elements [start, end) of the flattened tensor alone, as FSDP shards have; false: all of it */
    int64_t     start, end;         /* with `ranged`; start == end: nothing, and nobody waits for this rank's part of it */
    const char *axes;               /* logical names of the dimensions, "layers,embed,mlp": as many as there are, each empty or at most 64 letters, digits and _
                                     * without a digit in front; NULL or "": not given. adafactor reads off how to factor, kron which leading dimensions
                                     * count independent layers. The same on every rank. Copied */
    bool        model_state;        /* not trained (batch-norm statistics): what ranks push as `gradient` are values, and their mean, weighted by the pushes' weights under
                                     * aggregate = weighted_mean, is what it becomes; no rule is asked. A rank without values for it pushes none (NULL).
                                     * Values are float32: a counter such as num_batches_tracked is exact up to 2^24. The same on every rank */
} pd_client_param;

/* Declares all parameters of the model, once. Every rank declares the same names and shapes, in any order. Parameter i of later calls is
 * params[i]. After an error it may be called again with what was mended.
 *
 * A parameter is `ranged` on every rank or on none. The gradients and weights of a ranged one are then its end - start elements, in every call: a rank
 * pushes, initialises and pulls these. The shape stays that of the whole tensor, which the optimizer works on. Ranges of several ranks may be
 * the same, as HSDP's replicas have them, or overlap: an element's gradient is the mean of those that have it, and of what one rank alone has, that rank's,
 * bit for bit. Together they leave nothing out. The step is taken when all ranges have come.
 * PD_INVALID_ARGUMENT: a name, shape, range or hyperparameter (names it), or a number of ranks that adasum cannot pair. PD_FAILED_PRECONDITION: differs from what other
 * ranks declared, or this rank before; or elements that no rank has, or that adasum cannot pair the ranks of.
 * PD_RESOURCE_EXHAUSTED: over a limit of the server (says which, in bytes). */
PD_API int pd_client_declare(pd_client *client, const pd_client_param *params, size_t n, pd_error *err);
/* Rounds closed so far of a parameter, as last heard of: where a process that comes back goes on. */
PD_API uint64_t pd_client_step(const pd_client *client, size_t param);
/* What the parameter's optimizer wants known of how it was declared (an option that has no effect on it): one sentence, "" where there is nothing. Lives until
 * pd_client_close. Of very many parameters with notes the answer has room for some; `paramctl params JOB --verbose` shows them all. */
PD_API const char *pd_client_note(const pd_client *client, size_t param);
/* The server has no weights yet and asks this rank for them. */
PD_API bool pd_client_must_init(const pd_client *client);

/* weights[i]: whole tensor of parameter i, in float32 (init) resp. pull_dtype (filled); of a ranged one, its range. The ranks that must send them:
 * rank 0, and of a ranged parameter all that have elements of it, where the lowest rank's values stand. In a job with initial_weights = mean all ranks send what
 * they have of every parameter, and the mean stands. Then every rank receives the server's present weights into the same buffers. Waits. With pull_dtype other than float32 the
 * initial values are read as that type too. */
PD_API int pd_client_init(pd_client *client, void *const *weights, pd_error *err);

/* Starts the job anew after PD_DATA_LOSS ("the server no longer has job ..."), on the same handle, with the same
 * parameters, options and rules. Every rank calls it, and goes on with the step that pd_client_step then tells:
 *
 *     rc = pd_client_wait(client, ticket, 0, &err);
 *     if (rc == PD_DATA_LOSS) {
 *         rc = pd_client_restart(client, weights, &err);
 *         step = pd_client_step(client, 0);            steps taken, the same number on every rank
 *     }
 *
 * weights: as for pd_client_init. The ranks that give initial weights give those of now: rank 0 does, and of a ranged
 * parameter each rank its range (with initial_weights = mean every rank gives all it has). Then every rank receives the
 * job's weights into the same buffers. So all ranks have the same weights, also where some had heard of the last step
 * and others had not.
 *
 * The new job's start_step is the lowest step that rank 0 had heard of among its parameters, whatever start_step the
 * options say. Counters of optimizers, schedules and random numbers go on from there. A rank that was further goes back
 * and takes its last step again.
 *
 * The state of optimizers is lost: momentum, second moments, statistics and roots begin anew (`paramctl import` brings
 * recorded state into the new job). Operators' `set` commands are lost too.
 *
 * A ticket that was under way may have brought new weights of some tensors or chunks and not of others: of these rank 0
 * gives newer weights than start_step says. The ranges of a ranged parameter may be a step apart in the same way. A
 * program that cannot have that keeps a copy of the weights of its last whole step and gives the copy.
 *
 * A rank whose process was lost with the server opens, declares and initialises as ever, once rank 0 has restarted.
 * Where rank 0's process is gone, its new one opens with the option start_step and its own weights; the others wait for
 * it here. A rank that had left does not come back.
 *
 * Waits at most the handle's deadline; the same call again goes on waiting. PD_DEADLINE_EXCEEDED: rank 0 has not
 * restarted the job yet, say. PD_FAILED_PRECONDITION: the job is not lost; or the server has another one of this name,
 * with other options. PD_DATA_LOSS: the job was lost again, call it again. */
PD_API int pd_client_restart(pd_client *client, void *const *weights, pd_error *err);

typedef struct pd_item {
    size_t      param;
    const void *gradient;           /* push: whole tensor (or range) in push_dtype; NULL: no gradient of this parameter in this step */
    void       *weights;            /* pull: whole tensor (or range) in pull_dtype; NULL only where the range is empty */
    int         outcome;            /* out, when done: 0 pulled only, or a range without elements, 1 stepped, 2 skipped because not finite, 3 no rank had a gradient,
                                     * 4 the optimizer refused the step (pd_client_wait); negative: this item was refused, an enum pd_code */
    uint64_t    step, version;      /* out: rounds closed; the step that produced the weights */
} pd_item;

typedef struct pd_push_options {
    double weight;                  /* number of examples behind the gradient, for aggregate = weighted_mean; 0: 1 unless zero_weight */
    bool   zero_weight;
    bool   presummed;               /* the gradient is a sum over its examples */
    const char *const *hypers;      /* "lr=0.05": values that hold for this step, the same on every rank; NULL at the end; or NULL. Copied */
    struct pd_scalar  *scalars;     /* numbers for the round beside its gradients (loss, token count), at most 16; borrowed until the ticket is done, names too */
    size_t             n_scalars;
    bool               sparse;      /* the gradients are sparse: refused, in words that say what to do instead (PD_INVALID_ARGUMENT) */
} pd_push_options;

/* They ride with one item of the call, to the round of its parameter: the one whose name sorts first (byte by byte), whole parameters before ranged ones. So
 * every rank gives them with a call of a step that names that one. The round waits for no scalar: a rank need give none, or others than the rest; all ranks
 * together have at most 16 names. A round that was skipped or refused returns them as well. A process that takes a rank over in the midst of a round gives
 * nothing more to it if the one before had given some: the mean is over what stands.
 * PD_INVALID_ARGUMENT from the call: a name, a name twice, a value that is not finite; this rank has no elements of that parameter (its rounds do not wait for
 * the rank). From the ticket, and the item is refused: more names than 16. */
typedef struct pd_scalar {
    const char *name;               /* UTF-8, 1 to 64 bytes, no control characters */
    double      value;              /* this rank's; finite */
    double      mean;               /* out, when done: over the ranks that gave it to this round, weighted by the pushes' weights (summed in rank order, in double; what
                                     * one rank alone gives comes out as it went in); NaN where all of these are 0, and where the item was refused */
    double      weight;             /* out: sum of those weights; 0 where the item was refused */
} pd_scalar;

/* Queue and return at once; many may be under way. `items` (the array too) and the tensors are borrowed until the ticket is done. Small
 * tensors of one call travel together, large ones in chunks. Each item belongs to its parameter's next step.
 * PD_RESOURCE_EXHAUSTED: too many tickets under way. PD_INVALID_ARGUMENT: unknown parameter, or one that already has a push under way. */
PD_API int pd_client_push(pd_client *client, pd_item *items, size_t n, const pd_push_options *options, pd_ticket_id *ticket, pd_error *err);
PD_API int pd_client_push_pull(pd_client *client, pd_item *items, size_t n, const pd_push_options *options, pd_ticket_id *ticket, pd_error *err);
/* Ends this rank's step `step`, the one that its pushes since the last one ended belong to: parameters that it has pushed nothing of count as without a
 * gradient from it (in PyTorch: those whose .grad is None are simply not pushed). Needed when some are left out, since their rounds wait for every rank;
 * no step needs it where all are pushed, or named with a NULL gradient. Queue and return at once, after the step's pushes; the ticket is
 * done when the round of every parameter is closed. What was left out may have moved then, since other ranks may have had gradients: pull it with
 * min_step = step. Until the ticket is done no parameter that was left out can be pushed (PD_INVALID_ARGUMENT).
 * PD_INVALID_ARGUMENT: step 0; another step is being closed. PD_FAILED_PRECONDITION: a push of this step has ended with an error: push that parameter
 * again first (also without a gradient, where it shall have none). From the ticket: PD_FAILED_PRECONDITION: a push of this step was refused, or some
 * parameter is behind (step is not its rounds closed + 1): nothing has changed. The error of a push of this step, which ends this ticket, too: push
 * again, then close again. PD_DEADLINE_EXCEEDED: it stands, closing the same step again goes on waiting. */
PD_API int pd_client_close_step(pd_client *client, uint64_t step, pd_ticket_id *ticket, pd_error *err);
/* Weights once at least `min_step` rounds are closed; 0: as they are, once there are any. Of a tensor in several chunks that is pulled while this
 * rank's own next push of it is under way, chunks may be of different versions. */
PD_API int pd_client_pull(pd_client *client, pd_item *items, size_t n, uint64_t min_step, pd_ticket_id *ticket, pd_error *err);

/* Waits for a ticket at most `seconds` (0: the handle's deadline) and forgets it when it is done or failed: then the buffers are the caller's again.
 * PD_DEADLINE_EXCEEDED from here (text begins "waited"): still under way, wait again. The server's own errors end the ticket with the first
 * of them, once every item is either done or refused (items[i].outcome tells), and at most a second later: items that are not answered by then end with
 * that error, too, and pushing them again is harmless. For instance PD_DEADLINE_EXCEEDED "rank 2 ... has not contributed": the contribution stands,
 * pushing the same again goes on waiting.
 * PD_FAILED_PRECONDITION where some items have the outcome 4: the optimizer refused their steps (a root could not be made, say), and the text is its reason for
 * one of them. Every rank is told. Those rounds are closed, weights and version stay as they were (and were pulled where that was asked for), the step counts for
 * the optimizer; the other items are done, and the next step is pushed as ever. With nonfinite_scope = job a refusal concerns all parameters of its
 * rule. PD_NOT_FOUND: no such ticket (or waited for already). */
PD_API int pd_client_wait(pd_client *client, pd_ticket_id ticket, double seconds, pd_error *err);
/* Done or failed: pd_client_wait will not block. */
PD_API bool pd_client_ready(const pd_client *client, pd_ticket_id ticket);

/* Waits until every rank of the job has called it as often. */
PD_API int pd_client_barrier(pd_client *client, pd_error *err);

/* ---- random numbers, from the job's seed alone ---- */

/* Two streams: of one all ranks draw the same numbers (initial weights, a common shuffle), of the other each rank its own (dropout). Number i of a draw depends
 * on the job's seed, the stream (and rank), `key` and i alone: not on what was drawn before, and neither on the machine.
 *
 * How they are made, so that another client can make the same. E(k, c) is Threefry-2x32 with 20 rounds (Salmon et al. 2011): two words of key and two of
 * counter, the lower half of a 64-bit number first, to two words. With the seed s of the job (HelloReply.seed):
 *     w = E(E(s, 0), 2^64 - 1)                  all streams of workers
 *     t = E(w, 0) of all ranks, E(w, 1 + rank) of one
 *     x = word i % 2 of E(E(t, key), i / 2)     number i
 *     k = upper 24 bits of x;  uniform: k 2^-24;  normal: sqrt(2) erfinv((2 k + 1) 2^-24 - 1), to a few units in the last place of float32 */
typedef enum pd_stream { PD_STREAM_SHARED, PD_STREAM_OWN } pd_stream;
/* out[0 .. n): numbers `first` … of the draw `key` (a step, say), uniform in [0, 1), resp. of the standard normal distribution. Does not wait, and
 * several threads may call at once. */
PD_API void pd_client_uniform(const pd_client *client, pd_stream stream, uint64_t key, uint64_t first, float *out, size_t n);
PD_API void pd_client_normal(const pd_client *client, pd_stream stream, uint64_t key, uint64_t first, float *out, size_t n);

/* Bytes sent and received since open, and times the connection was made. */
typedef struct pd_client_stats { uint64_t bytes_out, bytes_in, payload_out, payload_in, connects, resent; } pd_client_stats;
PD_API pd_client_stats pd_client_count(const pd_client *client);

#ifdef __cplusplus
}
#endif
#endif
