/* global_clip.c - clips the gradients of all parameters by their common norm, in two passes: the first sums the
 * squares, the second scales the gradients if the norm is too large. */
#include "global_clip.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "clip.h"
#include "mutant.h"
#include "settle.h"

enum { PIECES = 1024 }; /* most sections of gradients that are clipped in parallel: 256 MiB together */
#define SUM_NS 0.3      /* ns of one core to square an element and add it to the sum */
#define SCALE_NS 0.6    /* ns of one core to scale an element */
#define PIECE_NS 30.0   /* ns to prepare a section */

/* Clips the gradients of one scope after the other, each in two passes. */
struct pd_global_clip {
    pd_global_clip_saved saved;
    /* gradients are being clipped; the present pass is the second one, which scales gradients */
    bool runs, scaling;
    /* the present scope, which says which gradients are clipped together: 0: those of the whole job; 1 + r: those of
     * the parameters of optimizer rule r */
    size_t scope;
    /* index of the parameter, and of its element, at which the present pass continues */
    uint32_t param;
    int64_t first;
    pd_exact_sum sum; /* of the squares of the scope's gradients that the first pass has visited so far */
    double squares;   /* this sum, rounded, when the first pass has visited all */
    float scale;      /* factor of the second pass */
    /* `saved.last` is the norm of this step already; some norm of this step has exceeded its limit */
    bool known, exceeded;
    bool seen; /* some parameter of the scope has a gradient in this step */
    /* the norm of the scope waits for a verdict (settle.h); gradients of this step were scaled */
    bool waits, changed;
    pd_clip_piece pieces[PIECES];
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Copies the norms of earlier steps with which the norm of step `step` is compared. Returns their number. */
static size_t copy_norms(const pd_outlier_norms *norms, uint64_t step, double *out)
{
    size_t n = 0;

    for (int i = 0; i < PD_OUTLIER_STEPS; i++)
        if (norms->step[i] > 0 && norms->step[i] < step && step - norms->step[i] < PD_OUTLIER_STEPS)
            out[n++] = norms->norm[i];
    return n;
}

bool pd_outlier_is(const pd_outlier_norms *norms, uint64_t step, double norm, double factor, double *median, size_t *n)
{
    double sorted[PD_OUTLIER_STEPS];

    *median = 0;
    *n = copy_norms(norms, step, sorted);
    if (*n < PD_OUTLIER_LEAST) return false;
    qsort(sorted, *n, sizeof sorted[0], compare);
    *median = sorted[*n / 2];
    return *median > 0 && norm > factor * *median;
}

void pd_outlier_note(pd_outlier_norms *norms, uint64_t step, double norm)
{
    size_t i = step % PD_OUTLIER_STEPS;

    if (!isfinite(norm)) return;
    norms->step[i] = step;
    norms->norm[i] = norm;
}

static double limit_of(const pd_job_values *values, const pd_rule *rules, size_t scope)
{
    const pd_hypers *hypers = scope > 0 ? &rules[scope - 1].hypers : NULL;

    if (scope == 0) return pd_job_values_limit(values, PD_JOB_KEY_CLIP_GLOBAL_NORM);
    return hypers->row->clip_norm != NULL ? hypers->row->clip_norm(hypers->value) : 0;
}

/* Returns whether the norm of a scope's gradients must be computed. */
static bool is_wanted(const pd_job_values *values, const pd_rule *rules, size_t scope)
{
    return limit_of(values, rules, scope) > 0 ||
           (scope == 0 && pd_job_values_limit(values, PD_JOB_KEY_SKIP_OUTLIER) > 0);
}

/* Returns the first scope whose norm must be computed, from number `scope` on. 1 + n_rules: there is none. */
static size_t find_scope(const pd_job_values *values, const pd_rule *rules, size_t n_rules, size_t scope)
{
    while (scope <= n_rules && !is_wanted(values, rules, scope)) scope++;
    return scope;
}

static size_t next_scope(const pd_steps *steps, size_t scope)
{
    return find_scope(&steps->values, steps->rules, steps->n_rules, scope);
}

static bool has_part(const pd_steps *steps, size_t scope, const pd_param *param)
{
    if (param->end.outcome != PD_STEPPED || param->rule->hypers.row->takes_values) return false;
    return scope == 0 || param->rule == &steps->rules[scope - 1];
}

bool pd_global_clip_wanted(const pd_steps *steps)
{
    return next_scope(steps, 0) <= steps->n_rules;
}

int pd_global_clip_make(pd_steps *steps)
{
    if (pd_global_clip_wanted(steps) && (steps->together.clip = calloc(1, sizeof *steps->together.clip)) == NULL)
        return PD_NO_MEMORY;
    return PD_OK;
}

size_t pd_global_clip_scopes(const pd_job_values *values, const pd_rule *rules, size_t n_rules)
{
    size_t n = 0;

    for (size_t scope = 0; scope <= n_rules; scope++) n += is_wanted(values, rules, scope);
    return n;
}

uint64_t pd_global_clip_bytes(const pd_job_values *values, const pd_rule *rules, size_t n_rules)
{
    return find_scope(values, rules, n_rules, 0) <= n_rules ? sizeof(pd_global_clip) : 0;
}

bool pd_global_clip_runs(const pd_steps *steps)
{
    const pd_global_clip *clip = steps->together.clip;

    return clip != NULL && clip->runs && (!clip->waits || clip->changed);
}

bool pd_global_clip_has_work(const pd_steps *steps)
{
    return steps->together.clip != NULL && steps->together.clip->runs && !steps->together.clip->waits;
}

static void rewind_pass(pd_global_clip *clip)
{
    clip->param = 0;
    clip->first = 0;
}

static void enter_scope(const pd_steps *steps, size_t scope)
{
    pd_global_clip *clip = steps->together.clip;

    clip->scope = next_scope(steps, scope);
    clip->scaling = false;
    clip->seen = false;
    clip->sum = (pd_exact_sum){ 0 };
    rewind_pass(clip);
}

void pd_global_clip_begin(pd_steps *steps)
{
    assert(!steps->together.clip->runs);
    steps->together.clip->runs = true;
    steps->together.clip->known = steps->together.clip->exceeded = steps->together.clip->changed = false;
    enter_scope(steps, 0);
}

/* Finds the next section that the present pass must work on: at most PD_CLIP_RANGE elements of one gradient. Returns
 * false if the pass has no more sections. */
static bool next_piece(const pd_steps *steps, pd_clip_piece *piece)
{
    pd_global_clip *clip = steps->together.clip;
    const pd_param *param;

    while (clip->param < steps->n_params && (clip->first == steps->params[clip->param].elements ||
                                             !has_part(steps, clip->scope, &steps->params[clip->param]))) {
        clip->param++;
        clip->first = 0;
    }
    if (clip->param == steps->n_params) return false;
    param = &steps->params[clip->param];
    *piece = (pd_clip_piece){ .from = param->buffers.accumulator + clip->first,
                              .to = param->buffers.accumulator + clip->first,
                              .n = param->elements - clip->first };
    if (piece->n > PD_CLIP_RANGE) piece->n = PD_CLIP_RANGE;
    clip->first += piece->n;
    clip->seen = true;
    if (PD_MUTANT(tally_without_last_chunk) && steps->shards > 1 && !clip->scaling && clip->first == param->elements)
        piece->n = (piece->n + 1) / 2;
    return true;
}

/* Fills clip->pieces with sections that the present pass must work on: as many as the time budget allows, but at least
 * one if there is one. Returns their number. Adds the estimated time to *cost_ns. */
static size_t take_pieces(const pd_steps *steps, double budget_ns, double *cost_ns)
{
    pd_global_clip *clip = steps->together.clip;
    size_t n = 0;

    while (n < PIECES && (n == 0 || *cost_ns < budget_ns) && next_piece(steps, &clip->pieces[n]))
        *cost_ns += PIECE_NS + (clip->scaling ? SCALE_NS : SUM_NS) * (double)clip->pieces[n++].n;
    return n;
}

/* Makes all parameters skip the step, because its norm is an outlier, and logs that. */
static void skip_outlier(pd_steps *steps, uint64_t step, double norm, double median, size_t n)
{
    uint64_t outliers = ++steps->together.clip->saved.outliers;

    steps->together.skipped = true;
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (steps->params[i].end.outcome == PD_STEPPED) steps->params[i].end.outcome = PD_SKIPPED;
    steps->saved.skipped_whole++;
    if (steps->together.settle != NULL) pd_settle_skipped(steps);
    if (!pd_is_power_of_two(outliers)) return;
    pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &step },
           "step %llu of all parameters is skipped: the norm of its gradients, %.4g, is more than %g times "
           "(skip_outlier) the median of the last %zu norms, %.4g (%llu such steps so far)",
           (unsigned long long)step, norm, pd_job_values_limit(&steps->values, PD_JOB_KEY_SKIP_OUTLIER), n, median,
           (unsigned long long)outliers);
}

/* At the end of the job's scope, compares the norm of all gradients with earlier steps, and stores it. If it is an
 * outlier, makes all parameters skip the step and returns true. */
static bool judge(pd_steps *steps)
{
    pd_global_clip *clip = steps->together.clip;
    double factor = pd_job_values_limit(&steps->values, PD_JOB_KEY_SKIP_OUTLIER), norm = sqrt(clip->squares), median;
    uint64_t step = steps->params[0].saved.step + 1; /* all parameters are at the same step */
    size_t n;
    bool is;

    if (!(factor > 0) || clip->scope > 0 || !clip->seen) return false;
    is = pd_outlier_is(&clip->saved.norms, step, norm, factor, &median, &n);
    pd_outlier_note(&clip->saved.norms, step, norm);
    if (is) skip_outlier(steps, step, norm, median, n);
    return is;
}

void pd_global_clip_skip(pd_steps *steps)
{
    steps->together.clip->waits = steps->together.clip->scaling = false;
    steps->together.clip->scope = steps->n_rules + 1;
}

static void begin_scaling(pd_steps *steps)
{
    pd_global_clip *clip = steps->together.clip;

    for (uint32_t i = 0; i < steps->n_params; i++)
        if (has_part(steps, clip->scope, &steps->params[i])) steps->params[i].round.largest *= clip->scale;
    if (steps->together.settle != NULL) pd_settle_scaled(steps, clip->scope, clip->scale);
    clip->changed = true;
    rewind_pass(clip);
}

/* Computes the norm of the scope's gradients from their sum of squares. If the norm is an outlier, makes all parameters
 * skip the step. If the norm exceeds the limit, begins the second pass; otherwise enters the next scope. */
static void judge_scope(pd_steps *steps)
{
    pd_global_clip *clip = steps->together.clip;
    double limit = limit_of(&steps->values, steps->rules, clip->scope);

    clip->squares = pd_exact_sum_round(&clip->sum);
    if (clip->seen && !clip->known) clip->saved.last = sqrt(clip->squares);
    clip->known = clip->known || clip->seen;
    if (judge(steps)) {
        pd_global_clip_skip(steps);
        return;
    }
    if (!(limit > 0)) {
        enter_scope(steps, clip->scope + 1);
        return;
    }
    clip->exceeded = clip->exceeded || pd_clip_exceeds(limit, clip->squares);
    clip->scale = pd_clip_scale(limit, clip->squares);
    clip->scaling = clip->scale != 1;
    if (clip->scaling)
        begin_scaling(steps);
    else
        enter_scope(steps, clip->scope + 1);
}

/* Ends the first pass over a scope. */
static void end_sum(pd_steps *steps)
{
    pd_global_clip *clip = steps->together.clip;

    if (steps->together.settle == NULL) {
        judge_scope(steps);
        return;
    }
    clip->waits = true;
    pd_settle_tally(steps, clip->seen, &clip->sum);
}

void pd_global_clip_settled(pd_steps *steps, bool seen, const pd_exact_sum *sum)
{
    steps->together.clip->waits = false;
    steps->together.clip->seen = seen;
    steps->together.clip->sum = *sum;
    judge_scope(steps);
}

void pd_global_clip_again(pd_steps *steps)
{
    steps->together.clip->waits = false;
    enter_scope(steps, steps->together.clip->scope);
}

static void end_pass(pd_steps *steps)
{
    if (steps->together.clip->scaling)
        enter_scope(steps, steps->together.clip->scope + 1);
    else
        end_sum(steps);
}

static void end(pd_global_clip *clip)
{
    clip->runs = false;
    clip->saved.clipped += clip->exceeded;
}

bool pd_global_clip_run(pd_steps *steps, double budget_ns, double *cost_ns)
{
    pd_global_clip *clip = steps->together.clip;
    int threads = steps->config->threads;

    *cost_ns = 0;
    do {
        size_t n = clip->scope <= steps->n_rules ? take_pieces(steps, budget_ns, cost_ns) : 0;
        if (clip->scaling)
            pd_clip_apply(clip->pieces, n, clip->scale, threads);
        else
            pd_clip_sum(clip->pieces, n, &clip->sum, threads);
        if (n == 0 && clip->scope > steps->n_rules)
            end(clip);
        else if (n == 0)
            end_pass(steps);
    } while (pd_global_clip_has_work(steps) && *cost_ns < budget_ns);
    return !clip->runs;
}

pd_global_clip_saved *pd_global_clip_saved_of(const pd_steps *steps)
{
    return steps->together.clip != NULL ? &steps->together.clip->saved : NULL;
}
