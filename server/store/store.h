/* store.h - the training state: jobs, parameters, rounds, weights. What happens when a request comes in?
 *
 * Step thread. A pure state machine: requests come in with the time, effects come out; no clock, sockets, files,
 * threads or random numbers, so a test or a simulation drives it like the daemon does. */
#ifndef PD_STORE_H
#define PD_STORE_H

#include "request.h"

typedef struct pd_store pd_store;

#define PD_MAX_WORLD 4096           /* most workers of one job */
#define PD_MAX_RECORDS (1u << 28)   /* most chunks of one job times its workers */
#define PD_CHUNK_MIB 4              /* limits.chunk_bytes where nobody sets it */

/* Keys of a job's configuration, with presets that the daemon's section [job] may replace. One table, in job_keys.c. */
typedef enum pd_job_key_type { PD_JOB_CHOICE, PD_JOB_SECONDS, PD_JOB_NUMBER, PD_JOB_LIMIT } pd_job_key_type;
typedef struct pd_job_key {
    const char *name, *preset, *help;
    pd_job_key_type type;
    const char *choices;            /* PD_JOB_CHOICE: "mean|weighted_mean|sum"; else NULL */
    uint64_t    least, most;        /* PD_JOB_NUMBER, and PD_JOB_SECONDS in nanoseconds: the range; most 0: any number that 64 bits hold */
} pd_job_key;
extern const pd_job_key pd_job_keys[];      /* ends with a NULL name */

typedef struct pd_store_config {
    uint32_t max_jobs;
    uint32_t max_params;                /* of one job */
    uint64_t max_total_bytes;           /* of all jobs, as need.h counts */
    uint64_t ingest_bytes;              /* what all ranks together may have in flight. A rank's share: the reserve that Declare answers, and
                                         * an equal part of what the reserves of all ranks leave over */
    uint64_t chunk_elements;            /* elements of a parameter's chunk: chunk_bytes / 4 */
    uint64_t frame_bytes;               /* largest payload of a frame, which may hold several chunks: what the loop thread lets in. 0: one chunk's bytes */
    int      threads;                   /* OpenMP team of the step thread */
    int      pool_threads;              /* how many run its root tasks: their memory counts */
    double   batch_ns;                  /* estimated work of one batch: 50 ms */
    uint64_t hash_key[2];               /* random: names come from peers, and their hash must not be theirs to foresee */
    const struct pd_row *const *rows;   /* optimizers that jobs may use, ends with NULL; NULL: the table, pd_rows */
    const pd_option *job_presets; size_t n_job_presets;     /* borrowed for the store's life; keys of pd_job_keys */
} pd_store_config;

/* Checks a value of a job's key: used by --check-config and by Hello. PD_NOT_FOUND, PD_INVALID_ARGUMENT. */
int pd_job_key_check(const char *name, const char *value, pd_error *err);

int  pd_store_new(pd_store **out, const pd_store_config *config, pd_error *err);
/* Before: drop all jobs (PD_REQ_DROP without a name) and take the effects, so that payload buffers go home; bring root tasks (PD_REQ_TASK) and
 * published snapshots (PD_REQ_RELEASED) back. Accepts NULL. */
void pd_store_free(pd_store *store);

/* Takes `request`. Cheap: validates and files; arithmetic waits for pd_store_work. now_ns: a monotonic clock. */
void pd_store_apply(pd_store *store, pd_request *request, uint64_t now_ns);
/* One batch of bounded work (reductions and optimizer steps), of the next job in turn. True: there is more to do now. */
bool pd_store_work(pd_store *store, uint64_t now_ns);
bool pd_store_has_work(const pd_store *store);
/* Deadlines that have passed (rounds, lingering jobs, drain). */
void pd_store_tick(pd_store *store, uint64_t now_ns);
/* When pd_store_tick wants to be called next; UINT64_MAX: no deadline. */
uint64_t pd_store_next_tick(const pd_store *store);

/* Gives the effects so far, oldest first, linked by mail.next; NULL: none. */
pd_effect *pd_store_effects(pd_store *store);

/* Bytes now held, for the memory figure and limits. */
typedef struct pd_store_bytes { uint64_t weights, accumulators, state, snapshots, held; } pd_store_bytes;
pd_store_bytes pd_store_count_bytes(const pd_store *store);

#endif
