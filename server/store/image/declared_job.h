/* declared_job.h - the declarations of a job in its image: its name, configuration, rules, parameters and ranges. A
 * restarted server makes the job from them. Step thread. */
#ifndef PD_DECLARED_JOB_H
#define PD_DECLARED_JOB_H

#include "archive.h"
#include "jobs.h"
#include "placement.h"

/* The value of one configuration key of the job. */
typedef struct pd_declared_value {
    char *name; /* name of the key */
    uint64_t value;
} pd_declared_value;
/* One optimizer rule of the job, as its text. */
typedef struct pd_declared_rule {
    char *text;
} pd_declared_rule;

enum { PD_PUSHED = 8 };

/* The declaration of one parameter. */
typedef struct pd_declared_param_record {
    char *name, *axes; /* `axes` is NULL if the declaration has none */
    uint32_t rank;     /* number of dimensions of the parameter */
    int64_t dim[PD_MAX_RANK];
    bool ranged, model_state;
    bool f16, bf16; /* whether workers pull the parameter's weights also as float16; as bfloat16 */
    /* pd_dtype in which workers pull updates of the weights (0: they do not), plus PD_PUSHED times the pd_dtype in
     * which all ranks push (0: any). Images of earlier versions have the first alone. */
    uint32_t update_dtype;
    uint32_t fragment; /* number of the fragment that the parameter belongs to */
} pd_declared_param_record;

/* The range of a ranged parameter that one rank has declared. In a job on several shards it is a range of a portion of
 * this shard, and `param` the number of that portion among those of this shard. */
typedef struct pd_declared_range {
    uint32_t param, rank; /* index of the parameter; the rank */
    int64_t start, end;   /* first element of the range, and the one after its last */
    uint64_t initialiser; /* nonce of the process that last sent initial weights for this range */
} pd_declared_range;

/* The content of the workers' Hello and Declare requests of a job. The caller zeroes it before use, and frees it with
 * pd_declared_job_free. */
typedef struct pd_declared_job {
    char *name;
    uint32_t world; /* number of workers that the job began with; its slots follow from it and from its values */
    pd_declared_value *values;
    size_t n_values; /* number of configuration values */
    pd_declared_rule *rules;
    size_t n_rules; /* number of optimizer rules, without the built-in rule for model state */
    pd_declared_param_record *params;
    size_t n_params;
    pd_declared_range *ranges;
    size_t n_ranges; /* number of ranges that ranks have declared */
    /* Of a job on several shards: number of this one, and how many there are (otherwise 0 and 1, or 0 in images),
     * number of the cluster, and the map, by which `params`, the whole declaration, are spread over the shards. */
    uint32_t shard, shards;
    uint64_t cluster, map;
    pd_portion *portions;
    size_t n_portions;
    /* For pd_declared_job_make, not in images. spreads: the job makes its map itself. hollow: the states of its
     * optimizers have no memory (portion_state.h). */
    bool spreads, hollow;
} pd_declared_job;

/* Fills *out with the declarations of a job. PD_NO_MEMORY: *out is empty. */
int pd_declared_job_of(pd_declared_job *out, const pd_job *job, pd_error *err);
/* Writes the declarations to an archive, or reads them from it, depending on the archive's direction. */
void pd_declared_job_visit(pd_archive *archive, pd_declared_job *declared);
/* Makes a job, with the number `number`, from its declarations, and plans its parameters. The state of the optimizers
 * is undefined: the caller must read all of it from an image, or free the job. The job is not put into a table of jobs.
 * The errors are those of Hello and Declare requests. */
int pd_declared_job_make(pd_job **out, const pd_declared_job *declared, const pd_job_env *env, uint32_t number,
                         pd_error *err);
void pd_declared_job_free(pd_declared_job *declared);

#endif
