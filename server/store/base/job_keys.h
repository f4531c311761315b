/* job_keys.h - a job's configuration: its keys (`aggregate`, `step_timeout`, ...) and their values. Pure. */
#ifndef PD_JOB_KEYS_H
#define PD_JOB_KEYS_H

#include "store_config.h"

/* A key of a job's configuration: its name, default value (`preset`), help text, and which values it accepts. The
 * daemon's configuration file may replace the preset in its section [job]. The table of all keys is in job_keys.c. */
typedef enum pd_job_key_type {
    PD_JOB_CHOICE,
    PD_JOB_SECONDS,
    PD_JOB_NUMBER,
    PD_JOB_BYTES,
    PD_JOB_LIMIT
} pd_job_key_type;
typedef struct pd_job_key {
    const char *name, *preset, *help;
    pd_job_key_type type;
    /* for the type PD_JOB_CHOICE the list of accepted values, "mean|weighted_mean|sum"; for other types NULL */
    const char *choices;
    /* smallest and largest value that the key accepts; for PD_JOB_SECONDS in nanoseconds. A PD_JOB_NUMBER or
     * PD_JOB_BYTES whose `most` is 0 accepts any 64-bit number. For PD_JOB_LIMIT `least` is the smallest limit; 0 means
     * PD_CLIP_LEAST. */
    uint64_t least, most;
    /* words that a PD_JOB_NUMBER or PD_JOB_SECONDS accepts besides numbers, "default|all", of which the first is stored
     * as UINT64_MAX, the second as UINT64_MAX - 1; NULL: none */
    const char *words;
} pd_job_key;
extern const pd_job_key pd_job_keys[]; /* the table of all keys; its last entry has no name */

/* Index of each key in the table pd_job_keys. */
enum pd_job_key_index {
    PD_JOB_KEY_AGGREGATE,
    PD_JOB_KEY_ADASUM_FOLD,
    PD_JOB_KEY_TRIM,
    PD_JOB_KEY_NONFINITE,
    PD_JOB_KEY_NONFINITE_SCOPE,
    PD_JOB_KEY_STEP_TIMEOUT,
    PD_JOB_KEY_JOB_LINGER,
    PD_JOB_KEY_SEED,
    PD_JOB_KEY_START_STEP,
    PD_JOB_KEY_CLIP_GLOBAL_NORM,
    PD_JOB_KEY_SKIP_OUTLIER,
    PD_JOB_KEY_INITIAL_WEIGHTS,
    PD_JOB_KEY_ROUNDS,
    PD_JOB_KEY_QUORUM,
    PD_JOB_KEY_GRACE,
    PD_JOB_KEY_STALENESS,
    PD_JOB_KEY_ON_STALE,
    PD_JOB_KEY_DAMPING,
    PD_JOB_KEY_WEIGHT_CAP,
    PD_JOB_KEY_MIN_WORKERS,
    PD_JOB_KEY_MAX_WORKERS,
    PD_JOB_KEY_ON_LOST_WORKER,
    PD_JOB_KEY_RECONNECT_GRACE,
    PD_JOB_KEY_DURABILITY,
    PD_JOB_KEY_CHECKPOINT_EVERY,
    PD_JOB_KEY_CHECKPOINT_KEEP,
    PD_JOB_KEY_DISK_TIMEOUT,
    PD_JOB_KEY_ON_DISK_ERROR,
    PD_JOB_KEY_EXACT,
    PD_JOB_KEY_SPLIT_BYTES,
    PD_JOB_KEYS
};

typedef enum pd_aggregation {
    PD_MEAN,
    PD_WEIGHTED_MEAN,
    PD_SUM,
    PD_ADASUM,
    PD_VDOT_ADASUM,
    PD_MEDIAN,
    PD_TRIMMED_MEAN,
    PD_RADIAL_MEAN
} pd_aggregation;                                                        /* values of the key `aggregate` */
typedef enum pd_nonfinite { PD_SKIP, PD_REJECT, PD_APPLY } pd_nonfinite; /* values of the key `nonfinite` */
typedef enum pd_nonfinite_scope { PD_SCOPE_PARAMETER, PD_SCOPE_JOB } pd_nonfinite_scope;
/* values of the key `initial_weights` */
typedef enum pd_initial_weights { PD_INIT_LOWEST, PD_INIT_MEAN } pd_initial_weights;
/* values of the key `durability` */
typedef enum pd_durability {
    PD_DURABLE_IF_POSSIBLE,
    PD_DURABLE_NONE,
    PD_DURABLE_CHECKPOINT,
    PD_DURABLE_LOG
} pd_durability;

/* values of the key `on_disk_error` */
typedef enum pd_on_disk_error { PD_DISK_GO_ON, PD_DISK_PAUSE } pd_on_disk_error;

/* The shortest step_timeout that a job may have, and the shortest time between two reports of overdue rounds. */
#define PD_STEP_TIMEOUT_LEAST_NS 10000000ull

/* The values of all keys of a job's configuration, by index of the key. A choice is stored as its index in the list
 * of choices, a duration as nanoseconds, a limit as the bits of a float64, a number as itself. */
typedef struct pd_job_values {
    uint64_t at[PD_JOB_KEYS];
} pd_job_values;

/* Sets all keys of a job's configuration to their presets from the table pd_job_keys. */
void pd_job_values_init(pd_job_values *values);
/* Sets a key of the configuration to a value given as text. PD_NOT_FOUND: no key has that name (the error lists all
 * keys). PD_INVALID_ARGUMENT: the key does not accept the value. */
int pd_job_values_set(pd_job_values *values, const char *name, const char *value, pd_error *err);
/* Sets a key of the configuration to a value from an image (the saved state of a job, store/image), where values have
 * the stored form of pd_job_values. PD_NOT_FOUND: no key has that name. PD_INVALID_ARGUMENT: the key does not accept
 * the value. */
int pd_job_values_set_raw(pd_job_values *values, const char *name, uint64_t raw, pd_error *err);
/* Writes the names of all configuration keys into `text`: "aggregate, adasum_fold, ...". If `size` bytes are too few,
 * the list is cut and ends with "...". Returns `text`. */
char *pd_job_keys_list(char *text, size_t size);
/* Writes the value of a configuration key in the form that pd_job_values_set reads. Returns `text`; 32 bytes
 * suffice. */
char *pd_job_values_text(const pd_job_values *values, enum pd_job_key_index key, char *text, size_t size);

/* Return whether the aggregate `how` merges whole vectors, as both forms of Adasum and the radial mean do, so that it
 * needs all contributions to a parameter (pd_is_merged); is robust against outliers, as median and trimmed mean are
 * (pd_is_robust); needs all contributions at once, as all of these do (pd_is_collected); depends on the weights of
 * pushes (pd_is_weighted). */
static inline bool pd_is_merged(pd_aggregation how)
{
    return how == PD_ADASUM || how == PD_VDOT_ADASUM || how == PD_RADIAL_MEAN;
}
static inline bool pd_is_robust(pd_aggregation how)
{
    return how == PD_MEDIAN || how == PD_TRIMMED_MEAN;
}
static inline bool pd_is_collected(pd_aggregation how)
{
    return pd_is_merged(how) || pd_is_robust(how);
}
static inline bool pd_is_weighted(pd_aggregation how)
{
    return how == PD_WEIGHTED_MEAN || how == PD_RADIAL_MEAN;
}

/* Writes the name of an aggregate, as users write it for the key `aggregate`. Returns `text`. */
char *pd_aggregation_text(pd_aggregation how, char *text, size_t size);

/* Returns the value of a configuration key of type PD_JOB_LIMIT as a number; 0: no limit is set. */
double pd_job_values_limit(const pd_job_values *values, enum pd_job_key_index key);

/* Checks that a configuration key accepts a value, without setting it: used for --check-config and Hello requests.
 * PD_NOT_FOUND: no key has that name. PD_INVALID_ARGUMENT: the key does not accept the value. */
int pd_job_key_check(const char *name, const char *value, pd_error *err);

#endif
