/* store.h - the training state: jobs, parameters, rounds, weights. What happens when a request comes in?
 *
 * Step thread. A pure state machine: requests come in with the time, effects come out; no clock, sockets, files,
 * threads or random numbers, so a test or a simulation drives it like the daemon does. */
#ifndef PD_STORE_H
#define PD_STORE_H

#include "job_keys.h"
#include "store_config.h"

typedef struct pd_store pd_store;

int  pd_store_new(pd_store **out, const pd_store_config *config, pd_error *err);
/* Before: drop all jobs (PD_REQ_DROP without a name) and take the effects, so that payload buffers go home; bring root
 * tasks (PD_REQ_TASK) and published snapshots (PD_REQ_RELEASED) back. Accepts NULL. */
void pd_store_free(pd_store *store);

/* Takes `request`. Cheap: validates and files; arithmetic waits for pd_store_work. now_ns: a monotonic clock. */
void pd_store_apply(pd_store *store, pd_request *request, uint64_t now_ns);
/* One batch of bounded work (reductions and optimizer steps), of the next job in turn. True: there is more to do
 * now. */
bool pd_store_work(pd_store *store, uint64_t now_ns);
bool pd_store_has_work(const pd_store *store);
/* Deadlines that have passed (rounds, lingering jobs, drain). */
void pd_store_tick(pd_store *store, uint64_t now_ns);
/* When pd_store_tick wants to be called next; UINT64_MAX: no deadline. */
uint64_t pd_store_next_tick(const pd_store *store);

/* Writes everything that a restart must bring back of a job: image/image.h. Gives *image (free() it) of *n bytes.
 * PD_NOT_FOUND; PD_UNAVAILABLE: a step or a root task is under way, try again after the next batch or task;
 * PD_NO_MEMORY. */
int  pd_store_save_job(pd_store *store, const char *name, uint8_t **image, size_t *n, pd_error *err);
/* Makes a job from an image, of which every byte is checked. Its workers are lost until they come back and send again
 * what was not answered. After an error nothing has changed. */
int  pd_store_load_job(pd_store *store, const uint8_t *image, size_t n, uint64_t now_ns, pd_error *err);

/* Gives the effects so far, oldest first, linked by mail.next; NULL: none. */
pd_effect *pd_store_effects(pd_store *store);

/* Bytes now held, for the memory figure and limits. */
typedef struct pd_store_bytes { uint64_t weights, accumulators, state, snapshots, held; } pd_store_bytes;
pd_store_bytes pd_store_count_bytes(const pd_store *store);

#endif
