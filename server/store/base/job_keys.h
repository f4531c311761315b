/* job_keys.h - a job's configuration: the keys of pd_job_keys with values. Pure. */
#ifndef PD_JOB_KEYS_H
#define PD_JOB_KEYS_H

#include "store_config.h"

/* Keys of a job's configuration, with presets that the daemon's section [job] may replace. One table, in job_keys.c. */
typedef enum pd_job_key_type { PD_JOB_CHOICE, PD_JOB_SECONDS, PD_JOB_NUMBER, PD_JOB_LIMIT } pd_job_key_type;
typedef struct pd_job_key {
    const char *name, *preset, *help;
    pd_job_key_type type;
    const char *choices;            /* PD_JOB_CHOICE: "mean|weighted_mean|sum"; else NULL */
    uint64_t    least, most;        /* PD_JOB_NUMBER, and PD_JOB_SECONDS in nanoseconds: the range; most 0: any number that 64 bits hold */
} pd_job_key;
extern const pd_job_key pd_job_keys[];      /* ends with a NULL name */

/* In the order of pd_job_keys. */
enum pd_job_key_index { PD_JOB_KEY_AGGREGATE, PD_JOB_KEY_ADASUM_FOLD, PD_JOB_KEY_TRIM, PD_JOB_KEY_NONFINITE,
                        PD_JOB_KEY_NONFINITE_SCOPE,
                        PD_JOB_KEY_STEP_TIMEOUT, PD_JOB_KEY_JOB_LINGER, PD_JOB_KEY_ON_LOST_WORKER, PD_JOB_KEY_SEED,
                            PD_JOB_KEY_START_STEP,
                        PD_JOB_KEY_CLIP_GLOBAL_NORM, PD_JOB_KEY_INITIAL_WEIGHTS, PD_JOB_KEY_ROUNDS, PD_JOB_KEYS };

typedef enum pd_aggregation { PD_MEAN, PD_WEIGHTED_MEAN, PD_SUM, PD_ADASUM, PD_VDOT_ADASUM, PD_MEDIAN, PD_TRIMMED_MEAN } pd_aggregation;   /* choices of aggregate */
typedef enum pd_nonfinite { PD_SKIP, PD_REJECT, PD_APPLY } pd_nonfinite;                 /* choices of nonfinite */
typedef enum pd_nonfinite_scope { PD_SCOPE_PARAMETER, PD_SCOPE_JOB } pd_nonfinite_scope;
typedef enum pd_initial_weights { PD_INIT_LOWEST, PD_INIT_MEAN } pd_initial_weights;     /* choices of initial_weights */

/* The shortest step_timeout. Overdue rounds are reported at most so often. */
#define PD_STEP_TIMEOUT_LEAST_NS 10000000ull

/* A choice as its index, seconds as nanoseconds, a number as it is, a limit as a float64's bits. */
typedef struct pd_job_values { uint64_t at[PD_JOB_KEYS]; } pd_job_values;

/* What pd_job_keys presets. */
void pd_job_values_init(pd_job_values *values);
/* PD_NOT_FOUND: no such key (the text lists those there are). PD_INVALID_ARGUMENT: not a value of it. */
int  pd_job_values_set(pd_job_values *values, const char *name, const char *value, pd_error *err);
/* Sets a key to a value as `at` holds it, read from an image. PD_NOT_FOUND, PD_INVALID_ARGUMENT. */
int  pd_job_values_set_raw(pd_job_values *values, const char *name, uint64_t raw, pd_error *err);
/* The names of all keys, "aggregate, adasum_fold, ...", cut with "..." where `size` is short. Returns `text`. */
char *pd_job_keys_list(char *text, size_t size);
/* A value as text that pd_job_values_set takes. Returns `text`; 32 bytes are enough. */
char *pd_job_values_text(const pd_job_values *values, enum pd_job_key_index key, char *text, size_t size);

/* Returns whether an aggregate is Adasum, takes no notice of outliers, or for either reason needs all contributions at
 * once. */
static inline bool pd_is_adasum(pd_aggregation how) { return how == PD_ADASUM || how == PD_VDOT_ADASUM; }
static inline bool pd_is_robust(pd_aggregation how) { return how == PD_MEDIAN || how == PD_TRIMMED_MEAN; }
static inline bool pd_is_collected(pd_aggregation how) { return pd_is_adasum(how) || pd_is_robust(how); }

/* The choice of `aggregate`. Returns `text`. */
char *pd_aggregation_text(pd_aggregation how, char *text, size_t size);

/* A PD_JOB_LIMIT; 0: none. */
double pd_job_values_limit(const pd_job_values *values, enum pd_job_key_index key);

/* Checks a value of a job's key: used by --check-config and by Hello. PD_NOT_FOUND, PD_INVALID_ARGUMENT. */
int pd_job_key_check(const char *name, const char *value, pd_error *err);

#endif
