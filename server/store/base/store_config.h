/* store_config.h - the limits and sizes that the store is created with, and bounds that no configuration can change. */
#ifndef PD_STORE_CONFIG_H
#define PD_STORE_CONFIG_H

#include "request.h"

#define PD_MAX_WORLD 4096         /* most workers of one job */
#define PD_MAX_RECORDS (1u << 28) /* largest product of the number of a job's chunks and of its workers */
#define PD_CHUNK_MIB 4            /* default of limits.chunk_bytes, in MiB */

typedef struct pd_store_config {
    uint32_t max_jobs;
    uint32_t max_params;      /* most parameters of one job */
    uint64_t max_total_bytes; /* most bytes of all jobs together, counted as footprint.h does */
    /* most bytes of received frames that are not summed yet, over all ranks. A rank's share is its reserve (see
     * ingest.h) and an equal part of the bytes that are not reserved for anybody */
    uint64_t ingest_bytes;
    uint64_t chunk_elements; /* elements of a full chunk of a parameter: chunk_bytes / 4 */
    uint64_t frame_bytes;    /* largest payload of a frame that the loop thread accepts; a frame may have several
                              * chunks. 0: the bytes of one chunk */
    int threads;             /* number of threads in the step thread's OpenMP team */
    int pool_threads;        /* number of threads of the root pool; a job's footprint (footprint.h) includes their
                              * scratch memory */
    double batch_ns;         /* estimated duration of one batch of work, in ns (50 ms) */
    uint64_t hash_key[2];    /* random key for hashes of names: peers choose the names, and must not be able to predict
                              * the hashes */
    const struct pd_row *const *rows; /* optimizers that jobs may use; the list ends with NULL. NULL: those of the
                                       * table pd_rows */
    const pd_option *job_presets;
    size_t n_job_presets; /* presets that replace those of pd_job_keys; borrowed as long as the store lives */
} pd_store_config;

#endif
