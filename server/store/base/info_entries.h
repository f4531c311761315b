/* info_entries.h - the entries of the lists that operators ask for, and one page of such a list. The step thread fills
 * a page, and the loop thread copies it to an answer field by field. */
#ifndef PD_INFO_ENTRIES_H
#define PD_INFO_ENTRIES_H

#include "paramd/tensor.h"

#define PD_NAME_MAX 256   /* longest name of a job or parameter in bytes, without the final '\0' */
#define PD_MAX_SCALARS 16 /* most scalars that one push brings and one round averages */
#define PD_SCALAR_NAME_MAX 64

/* The mean of one scalar in a closed round. */
typedef struct pd_scalar_mean {
    char name[PD_SCALAR_NAME_MAX + 1];
    /* mean over the ranks that sent the scalar; sum of these ranks' weights. If that is 0: NaN and 0 */
    double mean, weight;
} pd_scalar_mean;

typedef enum pd_info_what {
    PD_INFO_STATUS,
    PD_INFO_JOBS,
    PD_INFO_PARAMS,
    PD_INFO_WORKERS,
    PD_INFO_ROOTS,
    PD_INFO_SETTINGS,
    PD_INFO_STATE
} pd_info_what;

#define PD_INFO_PAGE 256 /* most entries of a list in one answer: a model may have a hundred thousand matrix roots */

typedef struct pd_job_info {
    char name[PD_NAME_MAX + 1];
    uint32_t number; /* number of the job in this daemon; operators do not see it */
    char optimizer[64];
    char state[16]; /* "gathering" (not all ranks have declared), "running" or "lingering" (no worker is connected) */
    uint32_t world_size, connected;
    uint64_t params, elements, weight_bytes, state_bytes, held_bytes, committed_bytes;
    uint64_t step_least, step_most; /* lowest and highest step over the job's parameters */
    /* number of contributions, one for each chunk of a parameter, rank and step */
    uint64_t contributions;
    /* number of rounds in which the optimizer took a step; that were skipped; that the optimizer refused */
    uint64_t steps, skipped, refused_steps;
    uint64_t refused, duplicates; /* data frames that were refused; chunks that were sent a second time */
    /* numbers of preconditioner tasks that were due, put into use, failed, never used (pd_root_stats) */
    uint64_t roots_due, roots_adopted, roots_failed, roots_unused;
    uint64_t root_waits;     /* how often a step of some parameter had to wait for a matrix root */
    double gradient_norm;    /* norm of all gradients of the last step, if the job clips gradients by their norm */
    uint64_t clipped_steps;  /* number of steps in which the global norm exceeded a limit */
    uint64_t outlier_steps;  /* number of steps that were skipped because the global norm was an outlier */
    double steps_per_second; /* training steps per second over the last seconds (speed.h) */
    double loss;             /* mean of the scalar "loss" in the last round that had one; NaN: all its weights were 0 */
    uint64_t loss_step;      /* step of the round that `loss` is from; 0: no worker sends a loss */
    /* ranks that have not declared, or that the oldest open round waits for ("1,3"); or "initial weights" */
    char waits_for[128];
    uint64_t waits_ms;            /* time since the first contribution to the oldest open round */
    uint64_t roots_failing;       /* number of roots whose last task failed: the optimizer could not use its result, or
                              * memory was short */
    uint64_t bytes_in, bytes_out; /* bytes received and sent on the job's connections; filled in by the loop thread */
    char durability[16];          /* "none", "checkpoint" or "log" */
    uint64_t durable_step;        /* steps up to this one survive a restart; 0: none does */
    /* time since the newest checkpoint became durable; its bytes on the disk; both 0: there is none */
    uint64_t checkpoint_age_ms, checkpoint_bytes;
    char checkpoint_error[256]; /* why the last attempt to make or write a checkpoint failed; "": it did not */
    /* Number of steps that were measured since the daemon started, and how long they took in total, by phase
     * (stats.h). */
    uint64_t timed_steps;
    double waiting_seconds, summing_seconds, stepping_seconds, publishing_seconds;
    uint64_t root_age; /* number of steps since the statistics of the oldest matrix root in use were taken */
    /* number of contributions since the daemon started to steps that their workers had seen closed before */
    uint64_t replayed;
} pd_job_info;

typedef struct pd_param_info {
    char name[PD_NAME_MAX + 1];
    char optimizer[64];
    pd_shape shape;
    uint64_t step, version, count, skipped, refused_steps, contributions, state_bytes;
    bool initialised;
    char missing[128]; /* ranks that the parameter's open round waits for, such as "1,3"; "": no round is open */
    uint64_t roots, roots_failing; /* number of the parameter's matrix roots; number of those whose last task failed */
    uint64_t roots_failed,
        root_waits;           /* number of preconditioner tasks that have failed; how often a step waited for a root */
    double root_error;        /* largest error among the parameter's roots; 0: no error is known */
    char note[240];           /* the optimizer's remark about the parameter (pd_plan.note) */
    char axes[PD_AXES_BYTES]; /* names of the parameter's dimensions, as workers declared them */
    char aggregate[32];       /* how contributions are aggregated, in the words of the job key `aggregate` */
    /* most bytes of contributions while the aggregate waits for all; 0: it is a sum and does not */
    uint64_t collect_bytes;
    size_t n_scalars;
    pd_scalar_mean scalars[PD_MAX_SCALARS]; /* means of the scalars in the last closed round */
} pd_param_info;

/* A root: the matrix root of the statistics of one block and dimension of a parameter, or another tensor that a root
 * task computes. */
typedef struct pd_root_info {
    char param[PD_NAME_MAX + 1];
    /* Name of the tensor of optimizer state that stores the root, such as "preconditioners.3". If it stacks the roots
     * of all blocks, the block is put in front: "block_3.Q.0". */
    char root[64];
    pd_shape shape; /* shape of the matrix root */
    /* condition number and error of the root computed last, even if not used; 0: unknown */
    double condition, error;
    /* error of the computed root, which some optimizers keep for operators to see; negative: this one keeps none */
    double kept_error;
    /* number of steps since the statistics were taken from which the root in use was computed */
    uint64_t age;
    double ms;                /* duration in ms of the root's last task */
    uint64_t adopted, failed; /* number of the root's tasks whose results were put into use; number of those that
                               * failed */
    bool failing;             /* the root's last task failed, so an older root stays in use */
} pd_root_info;

/* A tensor of a parameter's optimizer state. */
typedef struct pd_state_info {
    char param[PD_NAME_MAX + 1];
    const char *slot, *storage; /* static texts: name and storage type of the tensor's slot (pd_plan.slots) */
    /* number of the optimizer slot among those of the same name; number of the parameter's block; -1: none */
    int number, block;
    pd_shape shape;
    uint64_t bytes;
    bool kept; /* the tensor has errors of roots, for operators (pd_plan.errors_slot); training does not need it */
    /* Whether `follows` is known. follows[i] is the parameter's dimension that the tensor's dimension i is part of;
     * -1: none. */
    bool follows_known;
    int8_t follows[PD_MAX_RANK];
    size_t n_follows; /* number of entries in `follows`: the dimensions of the tensor; 0: `follows` is not known */
} pd_state_info;

typedef struct pd_worker_info {
    uint32_t rank;
    char label[128];
    char state[16]; /* state of the rank: absent (no worker has come yet), connected, lost or left */
    /* who the worker is, as its connection proves it; "": not known, or the operator is not an admin of the job */
    char identity[256];
    /* nonce of the rank's process; the last step that the rank has contributed to */
    uint64_t nonce, step, contributions, held_bytes;
    /* number of steps in which the rank was the last one to contribute; number of steps that were measured; by how much
     * it was later than the rank before it, in total */
    uint64_t times_last, timed_steps;
    double late_seconds;
} pd_worker_info;

/* An override: a hyperparameter of one parameter that an operator has set. */
typedef struct pd_override_info {
    /* name of the parameter; glob on names of parameters that the operator's command gave */
    char param[PD_NAME_MAX + 1], pattern[PD_NAME_MAX + 1];
    /* name and value of the hyperparameter; value "": from step `from` on, an earlier override does not apply any
     * more */
    char name[64], value[160];
    char by[128];
    uint64_t from; /* first step to which the override applies */
    bool in_force; /* true: the parameter's next step uses the operator's value; false: a later step is the first */
} pd_override_info;

/* How a field of a list entry is stored in C: the type of the struct member. */
typedef enum pd_info_field_kind {
    PD_INFO_NUMBER,  /* an integer or a double, of the type that paramd.proto gives the field */
    PD_INFO_FLAG,    /* bool */
    PD_INFO_TEXT,    /* a text, stored in an array of char */
    PD_INFO_WORD,    /* a static text, stored as a pointer (const char *) */
    PD_INFO_SHAPE,   /* shape of a tensor (pd_shape); an entry has at most one such field */
    PD_INFO_FOLLOWS, /* indices of dimensions (int8_t[PD_MAX_RANK]); an entry has at most one such field */
    PD_INFO_SCALARS, /* means of scalars (pd_scalar_mean[PD_MAX_SCALARS]); an entry has at most one such field */
} pd_info_field_kind;

typedef struct pd_info_field {
    const char *name; /* name of the field in the message of paramd.proto */
    pd_info_field_kind kind;
    size_t at, bytes; /* offset and size in bytes of the field in the C struct of a list entry */
    size_t count_at;  /* FOLLOWS, SCALARS: offset in that struct of the number of values, a size_t */
} pd_info_field;

#define PD_MOST_FIELDS 48 /* most fields that an entry of any list has */

/* The description of a list that operators can ask for: where its entries go in the answer, and which fields they
 * have. */
typedef struct pd_info_list {
    const char *name;  /* name of the field of the message ListReply that has the entries */
    const char *about; /* what error texts call the entries, such as "parameters" */
    size_t entry_bytes;
    const pd_info_field *fields; /* table of the entry's fields; it ends with an empty field */
} pd_info_list;

/* One page of a list that an operator asked for. */
typedef struct pd_info {
    const pd_info_list *list;
    union {
        void *entries;
        pd_job_info *jobs; /* entries of the lists STATUS and JOBS */
        pd_param_info *params;
        pd_worker_info *workers;
        pd_root_info *roots;
        pd_override_info *settings;
        pd_state_info *state;
    };
    union {
        size_t n, n_jobs, n_params, n_workers, n_roots, n_settings, n_state;
    };
    uint64_t start, total; /* number of this page's first entry; number of entries that the whole list has */
    bool draining;
} pd_info;
void pd_info_free(pd_info *info);

#endif
