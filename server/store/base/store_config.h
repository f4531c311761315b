/* store_config.h - the limits and sizes that the store is created with, and bounds that no configuration can change. */
#ifndef PD_STORE_CONFIG_H
#define PD_STORE_CONFIG_H

#include "request.h"
#include "stats.h"

#define PD_MAX_WORLD 4096 /* most workers of one job */
/* largest number of chunks of one job times its number of ranks: the store has a pd_contribution for each */
#define PD_MAX_RECORDS (1u << 28)
#define PD_CHUNK_MIB 4 /* default of limits.chunk_bytes, in MiB */

typedef struct pd_store_config {
    uint32_t max_jobs;
    uint32_t max_params;      /* most parameters of one job */
    uint64_t max_total_bytes; /* most bytes that all jobs together may use, counted as footprint.h does */
    /* Most bytes of received frames that are not summed yet, over all ranks. Of these, each rank may use its reserve
     * (the bytes of its largest frame: budget.h) and an equal share of the bytes that no rank has reserved. */
    uint64_t ingest_bytes;
    /* number of elements of a full chunk: chunk_bytes / 4 */
    uint64_t chunk_elements;
    /* largest payload in bytes of a frame that the loop thread accepts. A frame may have several chunks. 0: a frame
     * has at most the bytes of one chunk. */
    uint64_t frame_bytes;
    int threads; /* number of threads in the step thread's OpenMP team */
    /* number of threads of the preconditioner pool; a job's footprint includes their scratch memory */
    int pool_threads;
    /* Time in ns between two copies of the figures of a job that changes (job_figures.h); 0: there are no copies. */
    uint64_t stats_ns;
    /* Returns the time in nanoseconds, by a clock that never goes back, to measure what steps cost. No result depends
     * on it. NULL: there is no clock, and everything but waiting seems to take no time. */
    uint64_t (*clock_ns)(void *arg);
    void *clock_arg;      /* passed to clock_ns; borrowed */
    pd_trace_user *trace; /* takes the events for the trace file; NULL: there is no trace file */
    void *trace_arg;      /* passed to trace; borrowed */
    bool keeps;           /* there is a checkpoint writer with a directory, so jobs may have checkpoints */
    bool mirrors;         /* the directory has a mirror, whose steps PD_REQ_MIRRORED tells */
    /* the server listens on a Unix socket: jobs that are restored from a checkpoint have their weights in shared
     * memory, since their workers may come through this socket */
    bool shares;
    /* Called while a job is restored, with memory that will soon be written for the first time: another thread may
     * populate its pages before. With 0 bytes: the memory of the last call must not be accessed any more. NULL: nobody
     * populates pages. */
    void (*warm)(void *arg, void *at, size_t bytes);
    void *warm_arg;      /* passed to warm; borrowed */
    uint64_t disk_speed; /* bytes that this directory's disk writes per second; 0: not known */
    double batch_ns;     /* how long one batch should take, in ns (10 ms) */
    /* Secret random key of the hash function for names. Peers choose the names, so they must not be able to predict
     * the hashes. */
    uint64_t hash_key[2];
    uint64_t start; /* random number that is new at each start of the server; it tells jobs of the same name apart */
    /* The optimizers that jobs may use; the list ends with NULL. `rows` NULL: those of the table pd_optimizer_table. */
    const struct pd_optimizer_ops *const *rows;
    const pd_option *job_presets;
    /* number of job_presets: values of job keys that replace the presets of pd_job_keys; borrowed */
    size_t n_job_presets;
} pd_store_config;

#define PD_SPARE_MOST (UINT64_C(128) << 20) /* most bytes beyond its reserve that a rank may have in flight */
/* Returns how many bytes beyond its reserve a rank may have in flight: an equal share of the ingest budget's
 * `unreserved` bytes. The loop thread and the step thread both use it. */
static inline uint64_t pd_spare_part(uint64_t unreserved, uint64_t ranks)
{
    uint64_t part = ranks > 0 ? unreserved / ranks : 0;

    return part < PD_SPARE_MOST ? part : PD_SPARE_MOST;
}

#endif
