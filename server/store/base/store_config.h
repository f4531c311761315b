/* store_config.h - limits and sizes that the store is made with, and bounds that no configuration can change. */
#ifndef PD_STORE_CONFIG_H
#define PD_STORE_CONFIG_H

#include "request.h"

#define PD_MAX_WORLD 4096           /* most workers of one job */
#define PD_MAX_RECORDS (1u << 28)   /* most chunks of one job times its workers */
#define PD_CHUNK_MIB 4              /* limits.chunk_bytes where nobody sets it */

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

#endif
