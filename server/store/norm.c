#include "global_clip.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "clip.h"
#include "step_group.h"
#include "training.h"

enum { PIECES = 1024 };                 /* of one pass: 256 MiB of gradients */
#define SUM_NS   0.3                    /* of one core, for each element */
#define SCALE_NS 0.6
#define PIECE_NS 30.0

struct pd_global_clip {
    bool     runs, scaling;             /* scaling: the norm of this scope is known */
    size_t   scope;                     /* 0: the job; 1 + r: rule r */
    uint32_t param;                     /* where the next piece begins */
    int64_t  first;
    double   squares;
    float    scale;
    bool     known, exceeded;           /* of this step: `last` is its norm; a limit was exceeded */
    bool     seen;                      /* this scope has a gradient */
    double   last;
    uint64_t clipped;
    pd_clip_piece pieces[PIECES];
};

/* ---- who is scaled together ---- */

static double limit_of(const pd_job_values *values, const pd_rule *rules, size_t scope)
{
    const pd_hypers *hypers = scope > 0 ? &rules[scope - 1].hypers : NULL;

    if (scope == 0) return pd_job_values_limit(values, PD_JOB_KEY_CLIP_GLOBAL_NORM);
    return hypers->row->clip_norm != NULL ? hypers->row->clip_norm(hypers->value) : 0;
}

/* Of the scopes from `scope` on the first that has a limit; 1 + n_rules: none has. */
static size_t find_scope(const pd_job_values *values, const pd_rule *rules, size_t n_rules, size_t scope)
{
    while (scope <= n_rules && !(limit_of(values, rules, scope) > 0)) scope++;
    return scope;
}

static size_t next_scope(const pd_job *job, size_t scope) { return find_scope(&job->values, job->rules, job->n_rules, scope); }

static bool has_part(const pd_job *job, size_t scope, const pd_param *param)
{
    if (param->outcome != PD_STEPPED || param->rule->hypers.row->takes_values) return false;
    return scope == 0 || param->rule == &job->rules[scope - 1];
}

/* ---- life ---- */

bool pd_global_clip_wanted(const pd_job *job) { return next_scope(job, 0) <= job->n_rules; }

int pd_global_clip_make(pd_job *job)
{
    if (pd_global_clip_wanted(job) && (job->clip = calloc(1, sizeof *job->clip)) == NULL) return PD_NO_MEMORY;
    return PD_OK;
}

uint64_t pd_global_clip_bytes(const pd_job_values *values, const pd_rule *rules, size_t n_rules)
{
    return find_scope(values, rules, n_rules, 0) <= n_rules ? sizeof(pd_global_clip) : 0;
}

bool pd_global_clip_runs(const pd_job *job) { return job->clip != NULL && job->clip->runs; }

double   pd_global_clip_last(const pd_job *job)    { return job->clip != NULL ? job->clip->last : 0; }
uint64_t pd_global_clip_clipped(const pd_job *job) { return job->clip != NULL ? job->clip->clipped : 0; }

/* ---- passes ---- */

static void rewind_pass(pd_global_clip *norm)
{
    norm->param = 0;
    norm->first = 0;
}

static void enter_scope(const pd_job *job, size_t scope)
{
    pd_global_clip *norm = job->clip;

    norm->scope = next_scope(job, scope);
    norm->scaling = false;
    norm->seen = false;
    norm->squares = 0;
    rewind_pass(norm);
}

void pd_global_clip_begin(pd_job *job)
{
    assert(!job->clip->runs);
    job->clip->runs = true;
    job->clip->known = job->clip->exceeded = false;
    enter_scope(job, 0);
}

/* The next piece of the pass. False: there is none. */
static bool next_piece(const pd_job *job, pd_clip_piece *piece)
{
    pd_global_clip *norm = job->clip;
    const pd_param *param;

    while (norm->param < job->n_params && (norm->first == job->params[norm->param].elements || !has_part(job, norm->scope, &job->params[norm->param]))) {
        norm->param++;
        norm->first = 0;
    }
    if (norm->param == job->n_params) return false;
    param = &job->params[norm->param];
    *piece = (pd_clip_piece){ .from = param->accumulator + norm->first, .to = param->accumulator + norm->first, .n = param->elements - norm->first };
    if (piece->n > PD_CLIP_RANGE) piece->n = PD_CLIP_RANGE;
    norm->first += piece->n;
    norm->seen = true;
    return true;
}

/* Pieces of the pass that the budget holds, at least one where there is one. */
static size_t gather(const pd_job *job, double budget_ns, double *cost_ns)
{
    pd_global_clip *norm = job->clip;
    size_t n = 0;

    while (n < PIECES && (n == 0 || *cost_ns < budget_ns) && next_piece(job, &norm->pieces[n]))
        *cost_ns += PIECE_NS + (norm->scaling ? SCALE_NS : SUM_NS) * (double)norm->pieces[n++].n;
    return n;
}

/* The squares of the scope are summed up. */
static void end_sum(const pd_job *job)
{
    pd_global_clip *norm = job->clip;
    double limit = limit_of(&job->values, job->rules, norm->scope);

    if (norm->seen && !norm->known) norm->last = sqrt(norm->squares);
    norm->known = norm->known || norm->seen;
    norm->exceeded = norm->exceeded || pd_clip_exceeds(limit, norm->squares);
    norm->scale = pd_clip_scale(limit, norm->squares);
    norm->scaling = norm->scale != 1;
    if (norm->scaling) rewind_pass(norm);
    else enter_scope(job, norm->scope + 1);
}

static void end_pass(const pd_job *job)
{
    if (job->clip->scaling) enter_scope(job, job->clip->scope + 1);
    else end_sum(job);
}

static void end(pd_job *job)
{
    job->clip->runs = false;
    job->clip->clipped += job->clip->exceeded;
    pd_params_go_on(job);
}

double pd_global_clip_run(pd_job *job, double budget_ns)
{
    pd_global_clip *norm = job->clip;
    int threads = job->store->config.threads;
    double cost_ns = 0;

    do {
        size_t n = norm->scope <= job->n_rules ? gather(job, budget_ns, &cost_ns) : 0;
        if (norm->scaling) pd_clip_apply(norm->pieces, n, norm->scale, threads);
        else norm->squares = pd_clip_sum(norm->pieces, n, norm->squares, threads);
        if (n == 0 && norm->scope > job->n_rules) end(job);
        else if (n == 0) end_pass(job);
    } while (norm->runs && cost_ns < budget_ns);
    return cost_ns;
}
