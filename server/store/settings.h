/* settings.h - a job's configuration: the keys of pd_job_keys with values. Pure. */
#ifndef PD_SETTINGS_H
#define PD_SETTINGS_H

#include "store.h"

/* In the order of pd_job_keys. */
enum pd_key { PD_KEY_AGGREGATE, PD_KEY_NONFINITE, PD_KEY_STEP_TIMEOUT, PD_KEY_JOB_LINGER, PD_KEY_ON_LOST_WORKER, PD_KEY_SEED, PD_KEYS };

typedef enum pd_aggregation { PD_MEAN, PD_WEIGHTED_MEAN, PD_SUM } pd_aggregation;       /* choices of aggregate */
typedef enum pd_nonfinite { PD_SKIP, PD_REJECT, PD_APPLY } pd_nonfinite;                 /* choices of nonfinite */

/* A choice as its index, seconds as nanoseconds, a number as it is. */
typedef struct pd_settings { uint64_t value[PD_KEYS]; } pd_settings;

/* What pd_job_keys presets. */
void pd_settings_init(pd_settings *settings);
/* PD_NOT_FOUND: no such key (the text lists those there are). PD_INVALID_ARGUMENT: not a value of it. */
int  pd_settings_set(pd_settings *settings, const char *name, const char *value, pd_error *err);
/* A value as text that pd_settings_set takes. Returns `text`; 32 bytes are enough. */
char *pd_settings_text(const pd_settings *settings, enum pd_key key, char *text, size_t size);

#endif
