/* store.h - holds the whole training state (jobs, parameters, rounds, weights) and handles requests. Step thread.
 *
 * A pure state machine: requests come in together with the time, and effects come out. It uses no clock, sockets,
 * files, threads or random numbers, so tests and simulations can drive it exactly as the daemon does. */
#ifndef PD_STORE_H
#define PD_STORE_H

#include "job_keys.h"
#include "store_config.h"

typedef struct pd_store pd_store;

int pd_store_new(pd_store **out, const pd_store_config *config, pd_error *err);
/* Frees the store. Accepts NULL. Before, the caller must end all jobs (PD_REQ_DROP without a name) and take the
 * effects, so that payload buffers go back to their connections. It must also return all preconditioner tasks and
 * published versions (PD_REQ_RELEASED). */
void pd_store_free(pd_store *store);

/* Checks a request and stores what it brings, for about `budget_ns` (ns of one core, by estimates). Its arithmetic is
 * left to pd_store_work. Returns true if the request is done; then the store owns it. false: call again with the same
 * request, before later requests of the same connection. Other requests and work may come in between. `now_ns` is the
 * time of a monotonic clock. */
bool pd_store_apply_some(pd_store *store, pd_request *request, double budget_ns, uint64_t now_ns);
/* Applies a request as a whole, however long that takes. Takes ownership of the request. */
void pd_store_apply(pd_store *store, pd_request *request, uint64_t now_ns);
/* Does one bounded batch of work (sums and optimizer steps) for the job whose turn it is. Returns true if there is
 * more to do now. */
bool pd_store_work(pd_store *store, uint64_t now_ns);
bool pd_store_has_work(const pd_store *store);
/* Does the work of deadlines that have passed: those of rounds, lingering jobs, imports, exports and drains. */
void pd_store_tick(pd_store *store, uint64_t now_ns);
/* Returns the time at which pd_store_tick must be called next; UINT64_MAX: there is no deadline. */
uint64_t pd_store_next_tick(const pd_store *store);

/* Writes an image: the state of a job that a restart must bring back (image/image.h). Stores in *image an allocated
 * buffer of *n bytes, which the caller frees. PD_NOT_FOUND: there is no such job. PD_UNAVAILABLE: a step or a
 * preconditioner task is under way, try again after the next batch or task. PD_NO_MEMORY. */
int pd_store_save_job(pd_store *store, const char *name, uint8_t **image, size_t *n, pd_error *err);
/* Makes a job from an image, every byte of which is checked. Its workers count as lost until they come
 * back; then they send their unanswered requests again. After an error nothing has changed. */
int pd_store_load_job(pd_store *store, const uint8_t *image, size_t n, uint64_t now_ns, pd_error *err);

/* Makes a job from a checkpoint that was read from the disk, every byte of which is checked again. The checkpoint is
 * borrowed for the call. The errors are those of pd_store_load_job, and PD_FAILED_PRECONDITION: other BLAS kernels or
 * instructions have made the checkpoint, and the job says exact = yes. After an error nothing has changed. */
int pd_store_restore(pd_store *store, const pd_checkpoint_image *kept, uint64_t now_ns, pd_error *err);

/* Replays a WAL record of a job that was just restored. The caller passes the records of the stream of steps in order,
 * then those of the stream of decisions (image/wal_replay.h). The record is borrowed for the call. After an error in a
 * record of a step: *unchanged true: the job is still at the step before; false: the job is gone, and must be restored
 * again. After an error in a record of decisions, none of the decisions applies. */
int pd_store_replay(pd_store *store, const pd_wal_record *record, uint64_t now_ns, bool *unchanged, pd_error *err);

struct pd_reshard;
struct pd_reshard_source;
/* Begins to make the checkpoints of a job on another number of shards (image/reshard.h), in a store that no daemon
 * uses. The store must live until pd_reshard_free. */
int pd_store_reshard(struct pd_reshard **out, pd_store *store, const struct pd_reshard_source *sources, uint32_t n,
                     uint32_t shards, pd_error *err);

/* Returns the number of jobs that would lose steps, or other changes of their state, if the server stopped now. */
size_t pd_store_count_losing(const pd_store *store);

/* Takes and returns the effects that were made so far, oldest first, linked by mail.next; NULL: none. */
pd_effect *pd_store_effects(pd_store *store);

/* Bytes of memory that the store uses. weights: published weights as float32; accumulators: sums of contributions;
 * state: optimizer state; published_list: all other buffers of the pools, in use or idle; held: frames that are not
 * summed yet. */
typedef struct pd_store_bytes {
    uint64_t weights, accumulators, state, published_list, held;
} pd_store_bytes;
pd_store_bytes pd_store_count_bytes(const pd_store *store);

#endif
