/* paramd/client.h - the client library: a worker's side of a training job.
 *
 *     const char *rules[] = { "* sgd lr=0.1 momentum=0.9", NULL };
 *     pd_client_options options = { .urls = "tcp://127.0.0.1:7070", .job = "mnist", .world_size = 4, .rules = rules };
 *     pd_client *client;
 *
 *     pd_client_open(&client, &options, &err);
 *     pd_client_declare(client, params, n, &err);        names and shapes
 *     pd_client_init(client, weights, &err);             rank 0's weights; every rank has them afterwards
 *     for each step:
 *         pd_client_push_pull(client, items, n, NULL, &ticket, &err);   gradients go out
 *         pd_client_wait(client, ticket, 0, &err);                      new weights are in items[i].weights
 *     pd_client_leave(client, &err);
 *     pd_client_close(client);
 *
 * Threads. A handle (pd_client) has one I/O thread. It sends heartbeats during a long backward pass. It connects again
 * when the connection breaks, after pauses of an eighth of the time that it has been without a server, 50 ms to 2 s. It
 * does so within about a second after a network that was cut carries packets again. It sends again whatever the server
 * has not answered, byte for byte; the server counts each contribution once. Several threads may use one handle: their
 * calls are carried out one after the other, and a call that waits lets the others in. But let only one thread at a
 * time make each of the calls that waits for something else than a ticket (open, join, declare, init, replace, restart,
 * rewind, worker_state, sync, barrier, leave), and none while another closes the handle. Different handles are
 * independent: they share nothing but lookups of the same host name that are under way. A lookup has a thread of its
 * own, which a handle abandons if name servers do not answer; so the library stays in memory after dlclose(). A handle
 * does not survive fork().
 *
 * Tickets. Pushes, pulls and pd_client_close_step return at once and give a ticket: the number of the request, for
 * which pd_client_wait waits.
 *
 * Ownership. Buffers belong to the caller, and the library borrows them. Until the ticket is done, do not change a
 * gradient, and do not read weights.
 *
 * Waiting. These calls wait: open, join, declare, init, replace, restart, rewind, worker_state, sync, barrier, leave,
 * wait. Each waits at most for the handle's deadline (pd_client_options.deadline, slice), whatever has stopped: name
 * servers, the network, the server. Then it returns PD_DEADLINE_EXCEEDED with a text that begins with "waited"
 * (pd_client_open returns PD_UNAVAILABLE and gives no handle). The request stays under way: make the same call with the
 * same buffers again to continue waiting. pd_client_close and all other calls do not wait for the network. Once calls
 * have waited for 2 s without a connection, one gives a notice (pd_client_options.notice). A program that must do
 * something while it waits, such as to handle signals, makes short calls again and again (pd_client_options.slice), or
 * has its event loop watch a descriptor (pd_client_fd).
 *
 * Clusters. Several servers, the shards of a cluster, may share a job (pd_client_options.urls). Each has some of the
 * parameters; large ones are cut, and their portions lie on several shards. A program does the same calls with the same
 * buffers, and receives the same bits:
 * - All workers give the same list of servers, in the same order.
 * - A ticket is done when all shards have answered. The first error ends it, and begins with the shard: "shard 2
 *   (tls://b:7070): ...". A call that times out names a shard that has not answered.
 * - The step and version of a cut parameter are the lowest of its portions.
 * - pd_client_durable is the newest step to which all shards can go back, and pd_client_sync waits for all of them.
 * - Shard 0 has the barrier and the members of the job. It has the worker states, too, unless it has model state alone
 *   and others have more: then the first of those has them. Give the worker state of a step with its last push to that
 *   shard or earlier, for instance with a push of all parameters: a step that the shard has taken without it can come
 *   into a checkpoint without it.
 * - In a job with open sets each shard decides alone which ranks count, for whole fragments: declare at least as many
 *   as there are shards. Shard 0 has fragment 0, leases the shares, and chooses ranks. A shard that loses steps goes
 *   back alone: push the fragment with the lowest step next, of several the first, as pd_diloco does. pd_client_sync
 *   without a step asks each shard for a checkpoint of its own steps.
 * - The buffer of a cut parameter (pd_client_buffer) is private memory, which is copied.
 *
 * Lost jobs. The server may lose the job, for instance because it was killed and started again. Then every ticket and
 * every later call ends with PD_DATA_LOSS. pd_client_restart continues from the weights that the workers hold.
 *
 * Checkpoints. A server that has a directory for them (server.state_dir) makes checkpoints of its jobs. After a restart
 * it continues from the last one. A client with a window (pd_client_options.window) sends the pushes since then again,
 * and the program does not notice. Otherwise every ticket and every later call ends with PD_REWIND. pd_client_rewind
 * then receives the weights of the checkpoint, and the program takes the steps after it again.
 *
 * Open sets. In a job with rounds = quorum or async, or whose workers may leave and join (min_workers, max_workers,
 * on_lost_worker), not every rank counts in every step:
 * - All parameters of a fragment (pd_client_param.fragment) have one step, which pd_client_step returns for each of
 *   them. A push is for the step after it, whatever happened in between: after a late answer, steps are left out.
 * - A push has parameters of one fragment.
 * - All parameters must be pushed in each step, with a NULL gradient where there is none, or the step be closed
 *   (pd_client_close_step) with the number pd_client_step + 1 from before its first push.
 * - A ticket of pd_client_push_pull brings the weights of one step, also if its frames were answered in different ones:
 *   those of older steps are pulled again, at most four times.
 * - After a restart, a worker whose gradient had counted may stay away for ever. Then the steps since are taken anew
 *   without it, and the others get PD_REWIND.
 *
 * Errors that end the handle. After these, every later call but pd_client_close returns the same error:
 *   PD_ABORTED              another process has taken the rank over, or the job was dropped, or this rank was removed
 *                           from it
 *   PD_FAILED_PRECONDITION, PD_INVALID_ARGUMENT  after a reconnect: the server came back with another job, or it makes
 *                           other weights of the pushes that the window has sent again
 *   PD_INTERNAL             the server breaks the protocol
 *
 * Versions. PARAMD_VERSION is the version of this header, pd_version() that of the library. The library must be at
 * least as new as the header. Later versions may add fields to the end of pd_client_options, pd_client_param,
 * pd_push_options, pd_client_stats and pd_welcome. So a program tells the library how large its structs are: the inline
 * functions at the end of this file do that for C and C++. Bindings of other languages call the functions that end in
 * _sized. All other structs stay as they are in every libparamd.so.0. */
#ifndef PARAMD_CLIENT_H
#define PARAMD_CLIENT_H

#include "paramd/client_options.h"
#include "paramd/tensor.h"
#include "paramd/version.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pd_client pd_client;
typedef uint64_t pd_ticket_id;

/* Returns the version of the library as text, for instance "0.1.0". */
PD_API const char *pd_version(void);

/* Waits until the server has welcomed this worker, after pd_client_open with the option join_later. The errors are
 * those of pd_client_open, and PD_DEADLINE_EXCEEDED with a text that begins with "waited": call it again to continue
 * waiting. Returns PD_OK at once if the worker was welcomed before. */
PD_API int pd_client_join(pd_client *client, pd_error *err);

/* Ends the connection and frees the handle, without waiting for the server or for name servers. Does not leave the job:
 * the server waits for this rank to come back. Tickets (requests) that are not done are forgotten, and their buffers
 * belong to the caller again. Accepts NULL. */
PD_API void pd_client_close(pd_client *client);
/* Leaves the job for good, and waits until the server has confirmed it: if the job has checkpoints, when the disk has
 * that, so that a restarted server does not wait for this rank. Afterwards only pd_client_close may be called. */
PD_API int pd_client_leave(pd_client *client, pd_error *err);

/* The server's answer to a client that has connected: facts about the job and the server. */
typedef struct pd_welcome {
    /* Seed of the job, from which its random numbers follow. */
    uint64_t seed;
    /* This process created the job by connecting; false: the job was there. */
    bool created;
    int rank, world_size;
    /* chunk_elements: number of elements of a full chunk, in which large tensors travel. max_payload: most bytes of
     * tensors in one frame. */
    uint64_t chunk_elements, max_payload;
    /* Program and version of the server; name of the set of BLAS kernels that the server uses, and "+own1" where it
     * multiplies small matrices by its own. */
    char server[64], blas_core[32];
    /* Number of rounds that were closed when this process joined the job: the lowest number among the parameters. */
    uint64_t step;
    /* If no worker was connected when this process joined: seconds after which the server would have ended the job. 0:
     * a worker was connected, or the job is new. */
    double linger;
    /* Number of workers that the job can have at once. 0: the server is older, and it is world_size. */
    int slots;
    /* epoch: number of times that the members of the job have changed. generation: pd_client_options.generation of the
     * launch that the job belongs to; 0: not known. */
    uint64_t epoch, generation;
} pd_welcome;
/* Tells how many members the job has, this rank's place among them (from 0, by rank; -1: it is none), and how often the
 * members have changed, as the last answer to a push or pull reported. Each pointer may be NULL. In a job whose ranks
 * are all members for ever: world_size, the rank, 0. */
PD_API void pd_client_members(const pd_client *client, int *members, int *index, uint64_t *epoch);
/* Returns the number of the job's servers, its shards; 1: one server has it all. If `shard` is below it, writes the
 * address of that shard's server to `url`, cut to `room` bytes with the final zero, and sets *tenure to the number of
 * this owner of the shard, which grows with each new owner; 0: the servers do not know who owns what (cluster.engine).
 * Both change when a shard moves to another server. `url` and `tenure` may be NULL. */
PD_API size_t pd_client_shards(const pd_client *client, size_t shard, char *url, size_t room, uint64_t *tenure);
/* Returns whether this worker leads its job: it sends weights that were changed by hand (pd_client_replace), and gets
 * the server's warnings about the job. That is rank 0; in a job where members come and go, the lowest member that is
 * connected, as the last answer reported. */
PD_API bool pd_client_leads(const pd_client *client);
/* Returns the greatest speed that the workers which are connected now have told (pd_push_options.speed), as the last
 * answer reported. 0: not known, or this worker has told none. */
PD_API double pd_client_fastest(const pd_client *client);
/* Takes the next share of the data (pd_client_options.shares): the number of one local batch, from which the program
 * computes which samples the batch has. The server leases shares, and marks them as used when the push that was made of
 * them counts; so each share is used once, although ranks join, leave, and are late. After a late push the same shares
 * are taken again; if the worker carries its data over (pd_push_options.carried) and has got further shares, it takes
 * these. In a job whose ranks all count in every step: share (step - 1) * world_size + rank, times the number
 * of shares that the options ask for, and the shares after it. If parameters are in several fragments
 * (pd_client_param.fragment), all this is of the pushes and steps of fragment 0 alone. Does not wait.
 *   PD_FAILED_PRECONDITION  the options ask for no shares
 *   PD_UNAVAILABLE          all leased shares are taken: the answer to the next push brings others */
PD_API int pd_client_share(pd_client *client, uint64_t *share, pd_error *err);
/* Returns the least share that no rank has used yet, as the last answer reported: all samples of a data set with n
 * shares have been used once it is n or more. */
PD_API uint64_t pd_client_least_unused(const pd_client *client);
/* Returns the welcome: the server's answer when this client last joined the job. It belongs to the handle, and
 * pd_client_restart and pd_client_rewind change it. */
PD_API const pd_welcome *pd_client_welcome(const pd_client *client);

/* The declaration of one parameter. Name and axes are copied. */
typedef struct pd_client_param {
    /* Name of the parameter: UTF-8, 1 to 256 bytes, unique in the job. */
    const char *name;
    /* Shape of the whole tensor, even if this rank has only a range of its elements. */
    pd_shape shape;
    /* Element type of this rank's gradients. 0: PD_F32.
     *
     * PD_INT8, PD_INT4: gradients are float32, and the library quantizes them for the wire when they are pushed, in
     * blocks of 64 elements: 8.5 or 4.5 bits an element. What that rounds away it adds to the next gradient
     * (pd_client_options.feedback). After pd_client_rewind, and in a new process, that begins at 0. Gradients may be
     * changed as soon as the push has returned. Not for model_state. Where the server collects contributions, every
     * rank must give the same type (the server counts memory by it). */
    pd_dtype push_dtype;
    /* Element type of the weights that this rank receives. 0: PD_F32. */
    pd_dtype pull_dtype;
    /* Element type of updates; 0: no updates. An update is the change of the weights in the last step. The server sends
     * updates in place of weights if the buffer has the weights of the step before, and if the optimizer computes
     * updates (Shampoo with a communication_dtype and without communicate_params).
     *
     * The client adds the change to the weights in the caller's buffer, which then equal the server's weights bit for
     * bit. So every pull must get the same buffer, with the content that the last pull left in it. pull_dtype must be
     * float32. */
    pd_dtype update_dtype;
    /* This rank has only elements [start, end) of the flattened tensor, as FSDP shards have. false: this rank has all
     * elements, and start and end are 0. */
    bool ranged;
    /* The elements [start, end) of a ranged parameter that this rank has. start == end: this rank has none, and no
     * round of the parameter waits for it. */
    int64_t start, end;
    /* Logical names of the dimensions, "layers,embed,mlp": one per dimension, separated by commas. A name is empty or
     * at most 64 letters, digits and _, and does not begin with a digit. NULL or "": no names. All ranks must give the
     * same names.
     *
     * Adafactor chooses by the names which dimensions it factors. kron learns from them which leading dimensions only
     * count layers that are stacked in one tensor. */
    const char *axes;
    /* The parameter is not trained (for instance batch-norm statistics). The ranks push values instead of gradients,
     * and the parameter becomes the mean of the values, weighted by pd_push_options.weight if aggregate =
     * weighted_mean or radial_mean.
     *
     * - No optimizer rule applies.
     * - A rank without values pushes NULL.
     * - Values are float32, so a counter such as num_batches_tracked is exact up to 2^24.
     * - All ranks must set the same flag. */
    bool model_state;
    /* Number of the fragment that the parameter belongs to. Fragments are parts of a model that take their steps one by
     * one, each with a step number of its own, as DiLoCo's do. They are numbered 0, 1, 2 ... without gaps, at most 256,
     * and all ranks must give the same numbers. 0 for all parameters: the job has one fragment.
     *
     * Where not all ranks need to count in a step (rounds, on_lost_worker), one set of ranks counts in a step of a
     * fragment, for all its parameters. In other jobs each parameter has a step of its own anyway.
     *
     * A job with several fragments cannot tie all its parameters: clip_global_norm, skip_outlier, and nonfinite_scope =
     * job are refused. */
    uint32_t fragment;
} pd_client_param;

/* Returns how many rounds of the parameter are closed, as the server's last answer reported. A process that comes back
 * continues with the next step. */
PD_API uint64_t pd_client_step(const pd_client *client, size_t param);
/* Returns the optimizer's note on the parameter's declaration, one sentence (for instance: an option has no effect on
 * this parameter); "" if there is none. The text is valid until pd_client_close. If very many parameters have notes,
 * the server does not send all of them: `paramctl params JOB --verbose` shows all. */
PD_API const char *pd_client_note(const pd_client *client, size_t param);
/* Returns whether the server has no weights yet and waits for this rank's initial weights. pd_client_init sends
 * them. */
PD_API bool pd_client_must_init(const pd_client *client);

/* Sends this rank's initial weights if the server waits for them, then receives the server's present weights into the
 * same buffers. This call waits.
 *
 * weights[i] is parameter i: the whole tensor, or this rank's range of it. The buffer has elements of type pull_dtype,
 * before and after the call. Rank 0 sends the initial weights. Of a ranged parameter every rank sends its elements;
 * where ranges overlap, the server takes those of the lowest rank. In a job with initial_weights = mean every rank
 * sends all weights that it has, and the server takes their mean. */
PD_API int pd_client_init(pd_client *client, void *const *weights, pd_error *err);

/* Starts the job anew after PD_DATA_LOSS ("the server no longer has job ..."), on the same handle, with the same
 * parameters, options and rules. Every rank calls it, and continues with the step that pd_client_step then returns:
 *
 *     rc = pd_client_wait(client, ticket, 0, &err);
 *     if (rc == PD_DATA_LOSS) {
 *         rc = pd_client_restart(client, weights, &err);
 *         step = pd_client_step(client, 0);            steps taken, the same number on every rank
 *     }
 *
 * `weights` are this rank's present weights. The same ranks send them as in pd_client_init. Then every rank receives
 * the job's weights into the same buffers. So all ranks have the same weights, even if only some of them had received
 * the result of the last step.
 *
 * The new job's start_step is the lowest step among rank 0's parameters, whatever the options say. Counters of
 * optimizers, schedules and random numbers continue from there. A rank that was further ahead goes back and takes its
 * last step again.
 *
 * The state of the optimizers is lost: momentum, second moments, statistics and roots begin anew (`paramctl
 * import-state` puts saved state into the new job). The operators' `set` commands are lost too.
 *
 * A ticket that was under way may have brought new weights of some tensors or chunks and not of others. For the tensors
 * that it did bring, rank 0 then sends weights that are newer than start_step. The ranges of a ranged parameter may
 * differ by one step in the same way. A program that cannot accept that keeps a copy of the weights of its last whole
 * step, and passes the copy to this call.
 *
 * If a rank's process was lost together with the server, its new process opens, declares and initialises as usual, once
 * rank 0 has restarted the job. If rank 0's process was lost, its new process opens with the option start_step and its
 * own weights; the other ranks wait for it in this call. A rank that had left does not come back.
 *
 * This call waits. PD_DEADLINE_EXCEEDED: for instance, rank 0 has not restarted the job yet. PD_FAILED_PRECONDITION:
 * the job is not lost, or the server has another job of this name with other options. PD_DATA_LOSS: the job was lost
 * again; call it again. */
PD_API int pd_client_restart(pd_client *client, void *const *weights, pd_error *err);

/* Returns memory for this rank's gradient of a declared parameter: the whole tensor, or this rank's range of it, in
 * push_dtype. It begins at a multiple of 64 bytes, is zero at first, belongs to the handle, and is valid until
 * pd_client_close.
 *
 * Use it as pd_item.gradient. Over shared memory, the server then reads the gradient where it was computed: nothing is
 * copied. Over other connections it is memory like any other.
 *
 * After a push has failed (its ticket has an error), the server may still read and count that gradient. Do not change
 * it, but call this function again before the next gradient: until an answer says that the server has read the first
 * buffer, it returns another one, in private memory that is copied. The same values may be pushed from the first one
 * again.
 *
 * Ask for the buffers of all parameters before the first push: then they lie side by side in shared memory, and a frame
 * of several tensors is not copied. Where pushes under way have taken the room there, a buffer is private memory, which
 * is copied.
 *
 * NULL: the parameters are not declared yet, `param` is not one of them, or the system gives no shared memory. */
PD_API void *pd_client_buffer(pd_client *client, size_t param);

/* A request for one parameter, as part of a push or pull, and its results. */
typedef struct pd_item {
    /* Index of the parameter in the array that was passed to pd_client_declare. */
    size_t param;
    /* The gradient to push, in push_dtype: the whole tensor, or this rank's range. NULL: this rank has no gradient of
     * the parameter in this step. */
    const void *gradient;
    /* Buffer for the pulled weights, in pull_dtype: the whole tensor, or this rank's range. NULL only if the range is
     * empty. */
    void *weights;
    /* Result of this item, once the ticket is done:
     *   0  the item was only pulled, or its range is empty
     *   1  the optimizer took the step
     *   2  the step was skipped, because the averaged gradient was not finite or all weights of the gradients were 0
     *   3  no rank had a gradient
     *   4  the optimizer refused the step (see pd_client_wait)
     *   5  late: the step was taken without this rank's gradient, which will not count. `step` is that step or a later
     *      one, and the weights are its weights: go on from there
     *   < 0, an enum pd_code: the server refused this item */
    int outcome;
    /* Results of this item, once the ticket is done. step: number of closed rounds of the parameter. version: number of
     * the step that made the pulled weights. */
    uint64_t step, version;
} pd_item;

/* More results of an item that was pushed (pd_push_options.counts). */
typedef struct pd_item_count {
    /* age: the step in which the gradient counted, minus the step that it was for; 0 if it did not count. counted:
     * number of ranks whose gradients counted in pd_item.step; 0: all ranks. */
    uint32_t age, counted;
} pd_item_count;

/* A number that a rank gives to a round beside the gradients, for instance a loss or a token count. */
typedef struct pd_scalar {
    /* Name of the scalar: UTF-8, 1 to 64 bytes, no control characters. */
    const char *name;
    /* The value that this rank gives to the scalar; must be finite. */
    double value;
    /* Result: the mean of this scalar over the ranks that gave it to the round, weighted by pd_push_options.weight. The
     * sum is computed in double, in the order of ranks. The value of a single rank comes out unchanged. NaN if all
     * weights are 0, or if the item was refused. */
    double mean;
    /* Result: the sum of the weights of the ranks that gave this scalar; 0 if the item was refused. */
    double weight;
} pd_scalar;

/* Options of a push: the gradients' weight, hyperparameters and scalars.
 *
 * The scalars of a push belong to one parameter of the call: the one whose name sorts first (byte by byte), whole
 * parameters before ranged ones. So all ranks must give the scalars of a step with a call that contains that parameter.
 *
 * A scalar's mean is computed when that parameter's round closes, even if the step is skipped or refused. No round
 * waits for scalars: ranks may give different names or none. All ranks together have at most 16 names. If a new process
 * takes a rank over after the old one has given scalars to the round, the new process's scalars do not count.
 *
 * Errors of the call: PD_INVALID_ARGUMENT if a name is not valid or is given twice, if a value is not finite, or if
 * this rank has no elements of that parameter.
 *
 * Errors of the ticket: if the ranks give more than 16 names, the server refuses the item. */
typedef struct pd_push_options {
    /* Number of examples of the gradient, for aggregate = weighted_mean and radial_mean. 0 counts as 1, unless
     * zero_weight is set. */
    double weight;
    /* The gradient's weight is 0, as for a rank without examples. */
    bool zero_weight;
    /* The gradient that is pushed is the sum over its examples, not their mean. */
    bool presummed;
    /* Hyperparameters for this step as "lr=0.05" texts, the same on every rank. NULL ends the list. The pointer may be
     * NULL: no changes. The texts are copied. */
    const char *const *hypers;
    /* At most 16 scalars. The array and the names in it are borrowed until the ticket is done. */
    pd_scalar *scalars;
    size_t n_scalars;
    /* The gradients are sparse. Such a push is refused with PD_INVALID_ARGUMENT; the error text says what to do
     * instead. */
    bool sparse;
    /* The worker state of the step that is pushed: at most 1 MiB that only this worker understands, for instance its
     * place in the data and the state of its random numbers after this step. A checkpoint of the step contains the
     * worker states of all ranks: see pd_client_worker_state. Copied. NULL: none. One push of a step is enough; the
     * last one counts. `note` is the older name. */
    union {
        const void *worker_state;
        const void *note;
    };
    union {
        size_t worker_state_bytes;
        size_t note_bytes;
    };
    /* If the program has changed this rank's weights by hand since it last received them: the number of the change, the
     * same on all ranks (see pd_client_replace). 0: it has not changed them. */
    uint64_t replaces;
    /* Time in ms for which this worker can do without the answer, since it still computes. In a job with grace = auto
     * the server waits for other ranks no longer than that. 0: this worker waits for the answer. */
    uint32_t patience_ms;
    /* Number of shares of the data that this worker wants when the push counts; 0: as pd_client_options.shares says. */
    uint32_t wants;
    /* The gradient also has the data of this worker's last push, which was late (see `lost`). */
    bool carried;
    /* Results: one entry for each item. The array is borrowed until the ticket is done. NULL: not wanted. */
    pd_item_count *counts;
    /* Number of steps that this worker takes by itself in a second (paramd/diloco.h); 0: not known. The other workers
     * of the job learn the greatest one: pd_client_fastest. */
    double speed;
    /* This push repeats the last one of these parameters, which has ended with an error: the same gradients, for the
     * same step. If that one has counted meanwhile, for instance while the worker was disconnected, this one does not
     * count again, and its answer is that of the step. false: if the step was closed meanwhile, the push is for the
     * next one. */
    bool again;
    /* Result: becomes true if the push was late, and the shares of the data that it was made of are leased to others
     * now, since this worker was away for too long. Its data must not be carried over into the next push: they would
     * count twice. Borrowed until the ticket is done. NULL: not wanted. */
    bool *lost;
    /* Of pd_client_push_pull: which weights come back (pd_client_pull_form). */
    pd_weights_form form;
} pd_push_options;

/* Ends this rank's step number `step`. Parameters that this rank has not pushed since it ended the step before count as
 * having no gradient from this rank (in PyTorch: those whose .grad is None). The rounds of the other ranks wait until
 * this rank has pushed or left out every parameter. So a rank must call it unless it pushes all parameters in each
 * step, with a NULL gradient where it has none.
 *
 * Call it after the step's pushes. It queues the request and returns at once. The ticket is done when the rounds of all
 * parameters are closed. Until then, a parameter that was left out cannot be pushed (PD_INVALID_ARGUMENT). Other ranks
 * may have had gradients of the parameters that this rank left out: pull these parameters with min_step = step.
 *
 * Fragments (pd_client_param.fragment) that have taken the step already are left alone, so fragments which are at the
 * same step can be ended together. Where they are at different steps, push all parameters of each fragment in its
 * steps, with a NULL gradient where there is none, instead of this call.
 *
 * Errors of the call:
 *   PD_INVALID_ARGUMENT     step is 0, or another step is being closed
 *   PD_FAILED_PRECONDITION  a push of this step has ended with an error. First push that parameter again, with a NULL
 *                           gradient if it has none. Or the step is not the next one of some fragment, which is
 *                           further behind.
 *
 * Errors of the ticket:
 *   PD_FAILED_PRECONDITION  a push of this step was refused, or `step` is not the next step of some parameter. Nothing
 *                           has changed.
 *   PD_DEADLINE_EXCEEDED    not done yet: close the same step again to continue waiting
 *
 * If a push of this step fails while the step is being closed, the ticket has that push's error. Push again, then close
 * the step again. */
PD_API int pd_client_close_step(pd_client *client, uint64_t step, pd_ticket_id *ticket, pd_error *err);
/* Replaces weights of the running job by weights that the program has changed by hand since the last step, for instance
 * clamped or masked. The optimizers' state and the step number stay as they are.
 *
 * Every rank changes its own weights, all in the same way. The leader (pd_client_leads) then makes this call. After it
 * every rank, the leader too, gives the number of the change with all its pushes of the next step
 * (pd_push_options.replaces):
 *
 *     clamp(weights, 0.01f);
 *     number = hash_of(weights);                       not 0
 *     if (pd_client_leads(client)) pd_client_replace(client, items, n, number, &err);
 *     pd_client_push_pull(client, items, n, &(pd_push_options){ .replaces = number }, &ticket, &err);
 *
 * items[i].weights is the parameter's whole tensor in pull_dtype; other fields of the items are not read. `replaces` is
 * the number of the change. It is not 0, all ranks must compute the same number, and other weights must have another
 * number: a hash of all changed weights, for instance. All weights of a call come into force at once, and later pulls
 * receive them. Of several calls before the next push, the last one counts.
 *
 * Parameters of several fragments (pd_client_param.fragment) may be in one call, also if the fragments are at different
 * steps: the weights replace those of the last step of each. The next pushes of these fragments bring the number, those
 * of other fragments bring 0. No push of these fragments may be under way.
 *
 * The ranks' pushes of a step must all bring the same number. Otherwise the ticket of the rank whose push comes second
 * ends with PD_FAILED_PRECONDITION. A process that takes a rank over receives changed weights and their number by
 * itself: it gives 0.
 *
 * Where members come and go, a rank may learn late that it leads the job now. If it pushes with the number of a change
 * that nobody has sent, its ticket ends with PD_FAILED_PRECONDITION: it makes this call, and pushes again. If the
 * leader goes before it has sent a change, and others have pushed with it already, the next answers bring weights
 * without it.
 *
 * If the server goes back to a step before the change, the leader's window cannot help: its calls end with PD_REWIND,
 * and the program takes the steps again and makes the change again. The other ranks continue by their windows.
 *
 * This call waits. PD_FAILED_PRECONDITION: this rank does not lead the job; a parameter is ranged, which cannot be
 * replaced; another rank has pushed with other weights already; the server has begun the next step before all weights
 * had come, for instance with the push of an earlier process of this rank. PD_INVALID_ARGUMENT: a push is under way;
 * `replaces` is 0; a parameter is unknown or given twice; parameters of one fragment are at different steps. */
PD_API int pd_client_replace(pd_client *client, const pd_item *items, size_t n, uint64_t replaces, pd_error *err);
/* Hashes n tensors: hashes[i] becomes the hash of the bytes[i] bytes at tensors[i]. A program that compares it with an
 * earlier hash finds out whether the tensor was changed. Equal bytes give equal hashes on every machine.
 *
 * If `every` is less than 64, or a tensor has at most 4096 bytes, all of its bytes are hashed. Otherwise the tensor is
 * cut into sections of `every` bytes, or into quarters if these are shorter, and 64 bytes of each section are hashed.
 * `first` is their offset in the section; one that is too large wraps around. Add 64 to it to hash other bytes. Compare
 * only hashes that were made with the same `every` and `first`. */
PD_API void pd_client_fingerprint(const void *const *tensors, const size_t *bytes, size_t n, size_t every, size_t first,
                                  uint64_t *hashes);
/* Receives the weights of parameters once at least `min_step` of their rounds are closed. With min_step 0 it receives
 * the present weights, once there are any. The call queues the request and returns at once, with a ticket for
 * pd_client_wait. Items and buffers are borrowed until the ticket is done.
 *
 * All weights of a tensor are of one version: if a round closes between the frames of a large one, the tensor is pulled
 * again. PD_ABORTED from pd_client_wait: that happened five times in a row, and the buffers have parts of several
 * versions. */
PD_API int pd_client_pull(pd_client *client, pd_item *items, size_t n, uint64_t min_step, pd_ticket_id *ticket,
                          pd_error *err);
/* Receives weights as pd_client_pull does, of a form: with PD_FORM_EVAL those to evaluate with and to save. For
 * optimizers that evaluate an average of the weights (schedule_free, gpa) the server computes them when somebody asks,
 * and whoever asks gets the same bits for a step. Keep the weights that are trained: gradients must be computed at
 * those. PD_INVALID_ARGUMENT: an unknown form. */
PD_API int pd_client_pull_form(pd_client *client, pd_item *items, size_t n, uint64_t min_step, pd_weights_form form,
                               pd_ticket_id *ticket, pd_error *err);

/* Waits for a ticket at most `seconds` (0: the handle's deadline). When the ticket is done or has failed, it is
 * forgotten, and the buffers belong to the caller again.
 *
 * PD_DEADLINE_EXCEEDED, with a text that begins with "waited": the request is still under way; wait again.
 * PD_NOT_FOUND: no such ticket, or it was waited for already.
 *
 * PD_FAILED_PRECONDITION, and some items have the outcome 4: the optimizer refused the step of these parameters, for
 * instance because it could not compute a root.
 * - The text has the reason for one of them, and every rank gets this error.
 * - The optimizer counts the step and the rounds are closed, but weights and version stay as they were.
 * - All other items are done. Push the next step as usual.
 * - With nonfinite_scope = job, a refusal concerns all parameters of the same optimizer rule.
 *
 * Any other error is the first one that the server gave. The ticket ends when every item is done or refused
 * (items[i].outcome), at the latest one second after the error. Items without an answer then get the same error. It is
 * safe to push them again, with pd_push_options.again. For instance, after PD_DEADLINE_EXCEEDED "rank 2 ... has not
 * contributed" the server keeps this rank's gradient: push the same again to continue waiting. In a job in which not
 * every rank counts in each step, the program may also go on: if the job is at a later step by then, the next push
 * takes the place of the one before, unless that has counted. */
PD_API int pd_client_wait(pd_client *client, pd_ticket_id ticket, double seconds, pd_error *err);
/* Returns whether a ticket is done or has failed, so that pd_client_wait will not block. */
PD_API bool pd_client_ready(const pd_client *client, pd_ticket_id ticket);
/* Returns a descriptor for event loops (poll, libuv, asyncio), which becomes readable whenever a ticket is done or has
 * failed. It is an eventfd, not blocking, closed by pd_client_close; every call returns the same one. -1: the system
 * gives none.
 *
 * The library only writes it. The program reads the 8 bytes, which makes it unreadable again, and then asks
 * pd_client_ready for each ticket that it waits for: in this order, no ticket is missed. It is readable from the first
 * call on, since tickets may be done already. If several modules of a program use the descriptor, one of them reads it
 * and tells the others. A thread in pd_client_wait does not need it. The first call of this function makes the
 * descriptor. */
PD_API int pd_client_fd(pd_client *client);

/* Waits until every rank of the job has called this function as often as this rank, for the handle's deadline at most:
 * PD_DEADLINE_EXCEEDED with a text that begins with "waited". `paramctl members` lists the ranks that are lost. Call it
 * again to continue waiting. PD_FAILED_PRECONDITION: a rank that has not come has left for good; the text names it. */
PD_API int pd_client_barrier(pd_client *client, pd_error *err);

/* Goes on after PD_REWIND ("the server has gone back to step ..."), on the same handle: receives the weights of the
 * checkpoint into the same buffers as pd_client_init. Then pd_client_step returns the checkpoint's step, and the
 * program takes the next step again:
 *
 *     if (pd_client_wait(client, ticket, 0, &err) == PD_REWIND) {
 *         rc = pd_client_rewind(client, weights, &err);
 *         pd_client_worker_state(client, state, sizeof state, &bytes, &step, &err);
 *     }
 *
 * Optimizer state is that of the checkpoint. Ranks with a window do not notice, ranks without one call this function,
 * and a rank whose process was lost opens, declares and initialises as usual.
 *
 * This call waits. PD_FAILED_PRECONDITION: the server has not gone back. PD_REWIND: it has gone back once more; call it
 * again. PD_DATA_LOSS: it has no checkpoint of the job; pd_client_restart continues. */
PD_API int pd_client_rewind(pd_client *client, void *const *weights, pd_error *err);
/* Gets this rank's worker state (pd_push_options.worker_state) that belongs to the present state of the job: after a
 * restart of the server that of its checkpoint, else the last one that this rank has given.
 *
 * *bytes is its length. At most `room` bytes are written to `out`, which may be NULL if room is 0. *step is the step to
 * which it belongs; 0: there is none, and *bytes is 0. In a job whose parameters were at different steps at the
 * checkpoint it is the last worker state that is not newer than any of them.
 *
 * A new process may get a worker state that is newer than the weights it has received before: a round can close in
 * between, with a push of the process that had the rank. So pull with min_step = *step, then continue. This call
 * waits. */
PD_API int pd_client_worker_state(pd_client *client, void *out, size_t room, size_t *bytes, uint64_t *step,
                                  pd_error *err);
/* The older name of pd_client_worker_state. */
PD_API int pd_client_recall(pd_client *client, void *out, size_t room, size_t *bytes, uint64_t *step, pd_error *err);
/* Returns the durable step, as the last answer reported: steps up to it survive a restart of the server. 0: none; with
 * several servers also after a restart of one of them, until it has answered. */
PD_API uint64_t pd_client_durable(const pd_client *client);
/* Waits until `step` is durable: until a checkpoint of this step or a later one is on the server's disk, which the
 * server makes at once, or the record of the step in the WAL. With several servers it waits until all can go back to
 * one step that is `step` or a later one, whichever of them then restart: if some have taken a later step already, and
 * have no checkpoint of this one, it waits for the later step on all of them. So call it when this worker has pushed
 * all parameters of its last step. While the lease of a server has ended, as when etcd is away, the server promises
 * nothing, and the call waits until it has one again. 0: the step at which the job is now. PD_FAILED_PRECONDITION: the
 * job has no checkpoints (durability = none). PD_UNAVAILABLE: its disk has failed. This call waits. A call for another
 * step than an earlier call, which timed out, gives the earlier one up. */
PD_API int pd_client_sync(pd_client *client, uint64_t step, pd_error *err);

/* The two streams of random numbers that a rank draws from. From the shared stream all ranks draw the same numbers
 * (initial weights, a common shuffle). From its own stream each rank draws other numbers (dropout). Number i of a draw
 * depends only on the job's seed, the stream (and the rank), `key` and i: neither on earlier draws nor on the machine.
 *
 * The definition, for other clients. E(k, c) is Threefry-2x32 with 20 rounds (Salmon et al. 2011). It takes two words
 * of key and two of counter, each pair the lower and upper half of a 64-bit number, and gives two words. With the job's
 * seed s (HelloReply.seed):
 *     w = E(E(s, 0), 2^64 - 1)                  all streams of workers
 *     t = E(w, 0) of all ranks, E(w, 1 + rank) of one
 *     x = word i % 2 of E(E(t, key), i / 2)     number i
 *     k = upper 24 bits of x
 *     uniform: k 2^-24
 *     normal:  sqrt(2) erfinv((2 k + 1) 2^-24 - 1), to a few units in the last place of float32 */
typedef enum pd_stream { PD_STREAM_SHARED, PD_STREAM_OWN } pd_stream;
/* Fill out[0 .. n) with random numbers of the draw `key` (for instance the step): number `first` of the draw, the next
 * one, and so on. pd_client_uniform gives numbers uniform in [0, 1), pd_client_normal normally distributed ones. They
 * do not wait, and several threads may call them at once. */
PD_API void pd_client_uniform(const pd_client *client, pd_stream stream, uint64_t key, uint64_t first, float *out,
                              size_t n);
PD_API void pd_client_normal(const pd_client *client, pd_stream stream, uint64_t key, uint64_t first, float *out,
                             size_t n);

/* What a client counts from pd_client_open on: bytes, connections, frames. */
typedef struct pd_client_stats {
    /* Number of bytes sent and received; how many of these were gradients sent and weights received. */
    uint64_t bytes_out, bytes_in, payload_out, payload_in;
    /* Number of connections made; number of frames that were sent again after a reconnect. */
    uint64_t connects, resent;
    /* Number of bytes of gradients and weights that went through shared memory; not counted in bytes_out, bytes_in. */
    uint64_t shared_out, shared_in;
    /* How often the server went back to a checkpoint; number of frames that the window has sent again, after that or
     * since a connection ended while their step was open. */
    uint64_t rewinds, replayed;
} pd_client_stats;

/* Describes the memory layout of the structs of the public headers. Writes the first n of its numbers to `out` (NULL if
 * n is 0), and returns how many there are in all. A binding calls it twice, and compares the numbers with its own
 * structs.
 *
 * The numbers of one struct are its size, how many fields it has, and the offset of each field, in the order of the
 * header. The structs come in this order: pd_error, pd_shape, pd_client_options, pd_welcome, pd_client_param, pd_item,
 * pd_scalar, pd_push_options, pd_client_stats, pd_item_count, pd_diloco_options, pd_diloco_due, pd_diloco_status. Later
 * versions add structs to the end of this list, and fields to the end of the structs that may grow (see Versions). They
 * change nothing else. */
PD_API size_t pd_client_abi(size_t *out, size_t n);

/* Opens a client as pd_client_open does. `size` is the size of pd_client_options in the caller's program.
 * PD_INVALID_ARGUMENT: `size` is smaller than in version 0.1, or larger than the library's struct (the program was
 * built with a newer header). */
PD_API int pd_client_open_sized(pd_client **out, const pd_client_options *options, size_t size, pd_error *err);
/* Declares or pushes as the function without _sized does. `size` is the size of the struct pd_client_param or
 * pd_push_options in the caller's program. In `params` it is also the distance from one parameter to the next. */
PD_API int pd_client_declare_sized(pd_client *client, const pd_client_param *params, size_t n, size_t size,
                                   pd_error *err);
PD_API int pd_client_push_sized(pd_client *client, pd_item *items, size_t n, const pd_push_options *options,
                                size_t size, pd_ticket_id *ticket, pd_error *err);
PD_API int pd_client_push_pull_sized(pd_client *client, pd_item *items, size_t n, const pd_push_options *options,
                                     size_t size, pd_ticket_id *ticket, pd_error *err);
/* Copies the client's counters into `size` bytes at `stats`. Counters that the library does not have become 0. */
PD_API void pd_client_count_sized(const pd_client *client, pd_client_stats *stats, size_t size);

/* Starts the I/O thread and waits until the server has welcomed this worker. Gives *out, which pd_client_close frees.
 * After an error there is no handle.
 *
 * PD_UNAVAILABLE: no server has welcomed this worker within the deadline; the text says why the last attempt failed, or
 * what it waits for. PD_INVALID_ARGUMENT: an address, option, rule or environment variable has no valid value.
 * PD_FAILED_PRECONDITION: the job exists with another configuration; the text names the key and both values, and says
 * so if the job is left over from an earlier run. PD_ALREADY_EXISTS: another process has the rank. PD_ABORTED: the rank
 * was taken over from this process. PD_PERMISSION_DENIED: the roles of the server do not admit this worker.
 * PD_RESOURCE_EXHAUSTED: a limit of the server is reached. */
static inline int pd_client_open(pd_client **out, const pd_client_options *options, pd_error *err)
{
    return pd_client_open_sized(out, options, sizeof *options, err);
}

/* Declares all parameters of the model, once, and waits until all ranks' declarations fit together. Every rank declares
 * the same names and shapes, in any order. Later calls name a parameter by its index in `params`. After an error
 * nothing is declared: correct the parameters and call it again.
 *
 * A parameter is ranged on every rank or on none:
 * - Of a ranged parameter, a rank pushes and pulls only its end - start elements.
 * - The ranges of several ranks may be equal, as replicas of HSDP have them, or overlap: an element's gradient is the
 *   mean over the ranks that have it.
 * - An element that only one rank has keeps that rank's gradient bit for bit.
 * - Together the ranges must cover the tensor.
 * - The optimizer works on the whole tensor, and steps when all ranges have arrived.
 *
 * PD_INVALID_ARGUMENT: a name, shape, range or hyperparameter is not valid (the text names it), or adasum cannot pair
 * this number of ranks.
 *
 * PD_FAILED_PRECONDITION: the declaration differs from that of another rank, or from an earlier one of this rank; or
 * some elements belong to no rank; or adasum cannot pair the ranks that have the same elements.
 *
 * PD_RESOURCE_EXHAUSTED: the declaration exceeds a limit of the server (the text names it, in bytes). */
static inline int pd_client_declare(pd_client *client, const pd_client_param *params, size_t n, pd_error *err)
{
    return pd_client_declare_sized(client, params, n, sizeof *params, err);
}

/* Push gradients; pd_client_push_pull also receives the weights after the step. They queue the request and return at
 * once, with a ticket for pd_client_wait; many tickets may be under way.
 * - The array `items` and the tensors in it are borrowed until the ticket is done.
 * - Each item belongs to its parameter's next step.
 * - Small tensors of one call travel together, large ones in chunks.
 * - `options` may be NULL.
 *
 * PD_RESOURCE_EXHAUSTED: too many tickets are under way. PD_INVALID_ARGUMENT: the parameter is unknown, or has a push
 * under way already. */
static inline int pd_client_push(pd_client *client, pd_item *items, size_t n, const pd_push_options *options,
                                 pd_ticket_id *ticket, pd_error *err)
{
    return pd_client_push_sized(client, items, n, options, sizeof *options, ticket, err);
}
static inline int pd_client_push_pull(pd_client *client, pd_item *items, size_t n, const pd_push_options *options,
                                      pd_ticket_id *ticket, pd_error *err)
{
    return pd_client_push_pull_sized(client, items, n, options, sizeof *options, ticket, err);
}

/* Returns the client's counters of bytes, connections and frames. */
static inline pd_client_stats pd_client_count(const pd_client *client)
{
    pd_client_stats stats;

    pd_client_count_sized(client, &stats, sizeof stats);
    return stats;
}

#ifdef __cplusplus
}
#endif
#endif
