/* declared_job.h - what the workers have declared about a job: its names, configuration, parameters and ranges. This
 * record is written to an image (saved state: image.h), and a restarted server makes the job from it. Step thread. */
#ifndef PD_DECLARED_JOB_H
#define PD_DECLARED_JOB_H

#include "archive.h"
#include "jobs.h"

typedef struct pd_declared_value {
    char *name;
    uint64_t value;
} pd_declared_value;
typedef struct pd_declared_rule {
    char *text;
} pd_declared_rule;

typedef struct pd_declared_param_record {
    char *name, *axes;
    uint32_t rank; /* number of dimensions of the parameter */
    int64_t dim[PD_MAX_RANK];
    bool ranged, model_state;
    bool f16, bf16; /* whether workers pull the parameter's weights also as float16; as bfloat16 */
    uint32_t update_dtype;
} pd_declared_param_record;

typedef struct pd_declared_range {
    uint32_t param, rank;
    int64_t start, end;
    uint64_t initialiser;
} pd_declared_range;

/* Everything that the workers' Hello and Declare requests have told the server about a job. The caller zeroes it
 * before use. */
typedef struct pd_declared_job {
    char *name;
    uint32_t world;
    pd_declared_value *values;
    size_t n_values; /* number of values of configuration keys, each of which is saved with the key's name */
    pd_declared_rule *rules;
    /* number of optimizer rules of the job, not counting the built-in rule for model state */
    size_t n_rules;
    pd_declared_param_record *params;
    size_t n_params;
    pd_declared_range *ranges;
    /* number of ranges that ranks have declared of ranged parameters */
    size_t n_ranges;
} pd_declared_job;

/* Fills *out with what workers have declared about a job. PD_NO_MEMORY. */
int pd_declared_job_of(pd_declared_job *out, const pd_job *job, pd_error *err);
/* Writes what workers have declared to an archive, or reads it from the archive, depending on the archive's
 * direction. */
void pd_declared_job_visit(pd_archive *archive, pd_declared_job *declared);
/* Makes a job from what its workers had declared. Its parameters are planned. The state of their optimizers is
 * undefined: the caller reads all of it from an image, or frees the job. The job is not put into a table of jobs. The
 * errors are those of Hello and Declare requests. */
int pd_declared_job_make(pd_job **out, const pd_declared_job *declared, const pd_job_env *env, uint32_t number,
                         pd_error *err);
void pd_declared_job_free(pd_declared_job *declared);

#endif
