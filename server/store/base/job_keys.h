/* job_keys.h - a job's configuration: its keys and their values. Pure. */
#ifndef PD_JOB_KEYS_H
#define PD_JOB_KEYS_H

#include "store_config.h"

/* A key of a job's configuration. The daemon's section [job] may replace its preset. The table of all keys is in
 * job_keys.c. */
typedef enum pd_job_key_type { PD_JOB_CHOICE, PD_JOB_SECONDS, PD_JOB_NUMBER, PD_JOB_LIMIT } pd_job_key_type;
typedef struct pd_job_key {
    const char *name, *preset, *help;
    pd_job_key_type type;
    const char *choices;  /* PD_JOB_CHOICE: list such as "mean|weighted_mean|sum"; other types: NULL */
    uint64_t least, most; /* smallest and largest value, for PD_JOB_SECONDS in nanoseconds. PD_JOB_NUMBER with most
                           * 0: any 64-bit number */
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
    PD_JOB_KEY_ON_LOST_WORKER,
    PD_JOB_KEY_SEED,
    PD_JOB_KEY_START_STEP,
    PD_JOB_KEY_CLIP_GLOBAL_NORM,
    PD_JOB_KEY_INITIAL_WEIGHTS,
    PD_JOB_KEY_ROUNDS,
    PD_JOB_KEYS
};

typedef enum pd_aggregation {
    PD_MEAN,
    PD_WEIGHTED_MEAN,
    PD_SUM,
    PD_ADASUM,
    PD_VDOT_ADASUM,
    PD_MEDIAN,
    PD_TRIMMED_MEAN
} pd_aggregation;                                                        /* choices of aggregate */
typedef enum pd_nonfinite { PD_SKIP, PD_REJECT, PD_APPLY } pd_nonfinite; /* choices of nonfinite */
typedef enum pd_nonfinite_scope { PD_SCOPE_PARAMETER, PD_SCOPE_JOB } pd_nonfinite_scope;
typedef enum pd_initial_weights { PD_INIT_LOWEST, PD_INIT_MEAN } pd_initial_weights; /* choices of initial_weights */

/* The shortest step_timeout. Reports of overdue rounds are also at least this far apart. */
#define PD_STEP_TIMEOUT_LEAST_NS 10000000ull

/* The values of all keys. A choice is stored as its index, seconds as nanoseconds, a limit as the bits of a float64,
 * a number as itself. */
typedef struct pd_job_values {
    uint64_t at[PD_JOB_KEYS];
} pd_job_values;

/* Sets all keys to their presets from pd_job_keys. */
void pd_job_values_init(pd_job_values *values);
/* Sets a key from text. PD_NOT_FOUND: there is no such key (the error lists all keys). PD_INVALID_ARGUMENT: the
 * value is wrong. */
int pd_job_values_set(pd_job_values *values, const char *name, const char *value, pd_error *err);
/* Sets a key to a value that is read from an image (store/image), where values have the stored form of
 * pd_job_values. PD_NOT_FOUND: there is no such key. PD_INVALID_ARGUMENT: the value is wrong. */
int pd_job_values_set_raw(pd_job_values *values, const char *name, uint64_t raw, pd_error *err);
/* Writes the names of all keys into `text`: "aggregate, adasum_fold, ...". If `size` is too small the list is cut
 * and ends with "...". Returns `text`. */
char *pd_job_keys_list(char *text, size_t size);
/* Writes the value of a key as text that pd_job_values_set can read. Returns `text`; 32 bytes suffice. */
char *pd_job_values_text(const pd_job_values *values, enum pd_job_key_index key, char *text, size_t size);

/* Classify a way to aggregate contributions: is it a form of Adasum? Is it robust against outliers? Is it collected,
 * that is, does it need all contributions at once (Adasum and the robust ones)? */
static inline bool pd_is_adasum(pd_aggregation how)
{
    return how == PD_ADASUM || how == PD_VDOT_ADASUM;
}
static inline bool pd_is_robust(pd_aggregation how)
{
    return how == PD_MEDIAN || how == PD_TRIMMED_MEAN;
}
static inline bool pd_is_collected(pd_aggregation how)
{
    return pd_is_adasum(how) || pd_is_robust(how);
}

/* Writes the name of a way to aggregate, as the key `aggregate` has it. Returns `text`. */
char *pd_aggregation_text(pd_aggregation how, char *text, size_t size);

/* Returns the value of a key of type PD_JOB_LIMIT as a number; 0: there is no limit. */
double pd_job_values_limit(const pd_job_values *values, enum pd_job_key_index key);

/* Checks a value of a key without setting it: for --check-config and Hello. PD_NOT_FOUND, PD_INVALID_ARGUMENT. */
int pd_job_key_check(const char *name, const char *value, pd_error *err);

#endif
