/* declaration.c - checks what a rank declares about its parameters: by itself, against the job's parameter of that
 * name, against the ranges of the other ranks, and against the memory that its ranges take. */
#include "declaration.h"

#include "aggregate_fit.h"
#include "footprint.h"
#include "fragment.h"
#include "global_clip.h"
#include "initial_weights.h"
#include "param_set.h"
#include "text.h"
#include "round_ranges.h"
#include "whole.h"

#include <stdio.h>
#include <string.h>

static int check_name(const char *name, size_t i, pd_error *err)
{
    size_t n = strlen(name);
    pd_error why;

    if (n == 0 || n > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %zu: a name has 1 to %d bytes, not %zu", i, PD_NAME_MAX, n);
    if (pd_text_check("its name", name, &why) == PD_OK) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %zu: %.300s", i, why.text);
}

/* Returns the optimizer rule that applies to the declared parameter; NULL: none does. The rule is looked for once, and
 * an estimate of the time that this takes, in ns of one core, is added to *cost_ns. */
static pd_rule *find_rule(const pd_job *job, pd_param_decl *decl, double *cost_ns)
{
    pd_rule *rules = job->steps.rules, *rule;

    if (decl->rule > 0) return &rules[decl->rule - 1];
    rule = decl->model_state ? pd_rules_of_state(rules, job->steps.n_rules)
                             : pd_rules_match(rules, job->steps.n_rules, decl->name, cost_ns);
    if (rule != NULL) decl->rule = (uint16_t)(1 + (rule - rules));
    return rule;
}

/* Checks that the optimizer of the parameter's rule can give updates in the element
 * type that the rank asks for. If the rank asks for no updates there is no error. */
static int check_update(const pd_rule *rule, const pd_param_decl *decl, pd_error *err)
{
    const pd_optimizer_ops *row = rule->hypers.row;
    pd_dtype gives;

    if (decl->update_dtype == 0) return PD_OK;
    gives = row->update_dtype == NULL ? (pd_dtype)0 : row->update_dtype(rule->hypers.value);
    if (decl->update_dtype == gives) return PD_OK;
    if (gives == 0)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "parameter %.160s: %s gives no updates: pull weights (shampoo gives them while communicate_params is off)",
            decl->name, row->name);
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "parameter %.160s: updates of %s are %s here (communication_dtype), this rank asks for %s",
                   decl->name, row->name, pd_dtype_name(gives), pd_dtype_name(decl->update_dtype));
}

static int check_axes(const pd_param_decl *decl, pd_error *err)
{
    pd_error why;

    if (decl->axes == NULL || pd_axes_check(decl->axes, decl->shape.rank, &why) == PD_OK) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: axes: %.300s", decl->name, why.text);
}

static int check_fragment(const pd_param_decl *decl, pd_error *err)
{
    if (decl->fragment < PD_MAX_FRAGMENTS) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "parameter %.160s: fragment %u: a job has at most %d fragments, numbered from 0", decl->name,
                   decl->fragment, PD_MAX_FRAGMENTS);
}

/* Checks that the range which a rank declares of a parameter lies within its elements. PD_INVALID_ARGUMENT. */
static int check_range(const pd_param_decl *decl, int64_t elements, pd_error *err)
{
    if (!decl->ranged || (0 <= decl->start && decl->start <= decl->end && decl->end <= elements)) return PD_OK;
    return pd_fail(
        err, PD_INVALID_ARGUMENT,
        "parameter %.256s: range of elements %lld to %lld: expected 0 <= start <= end <= %lld, the elements it has",
        decl->name, (long long)decl->start, (long long)decl->end, (long long)elements);
}

static int check_pull_type(const pd_param_decl *decl, pd_error *err)
{
    if (pd_dtype_size(decl->pull_dtype) > 0) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s: %d is not a supported pull dtype", decl->name,
                   (int)decl->pull_dtype);
}

/* Checks the element type in which ranks push: model state is not quantized, since it has no error feedback. */
static int check_push_type(const pd_rule *rule, const pd_param_decl *decl, pd_error *err)
{
    if (decl->push_dtype != 0 && pd_dtype_bytes(decl->push_dtype, 1) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s: %d is not a supported push dtype", decl->name,
                       (int)decl->push_dtype);
    if (!rule->hypers.row->takes_values || !pd_dtype_is_quantized(decl->push_dtype)) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "parameter %.256s: model state is pushed as float32, float16 or bfloat16, not as %s", decl->name,
                   pd_dtype_name(decl->push_dtype));
}

int pd_declaration_check(const pd_job *job, pd_param_decl *decl, size_t i, int64_t *elements, double *cost_ns,
                         pd_error *err)
{
    char shape[192];

    if (check_name(decl->name, i, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (pd_shape_elements(&decl->shape, elements) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s: shape %s has a size that exceeds 64 bits",
                       decl->name, pd_shape_text(&decl->shape, shape, sizeof shape));
    if (*elements == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s: shape %s has no elements; leave it out", decl->name,
                       pd_shape_text(&decl->shape, shape, sizeof shape));
    if (check_axes(decl, err) != PD_OK || check_range(decl, *elements, err) != PD_OK ||
        check_fragment(decl, err) != PD_OK)
        return PD_INVALID_ARGUMENT;
    if (check_pull_type(decl, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (find_rule(job, decl, cost_ns) == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %.256s: none of the job's %zu rules matches: add a catch-all \"* sgd\"", decl->name,
                       job->steps.n_rules - 1);
    if (check_push_type(&job->steps.rules[decl->rule - 1], decl, err) != PD_OK) return PD_INVALID_ARGUMENT;
    return check_update(&job->steps.rules[decl->rule - 1], decl, err);
}

/* Returns the name of an option that lets all parameters of the job wait for each other; NULL: none does. */
static const char *tie_of(const pd_job *job)
{
    const pd_job_values *values = &job->steps.values;

    if (pd_job_values_limit(values, PD_JOB_KEY_CLIP_GLOBAL_NORM) > 0) return "clip_global_norm";
    if (pd_job_values_limit(values, PD_JOB_KEY_SKIP_OUTLIER) > 0) return "skip_outlier";
    if (values->at[PD_JOB_KEY_NONFINITE_SCOPE] == PD_SCOPE_JOB) return "nonfinite_scope = job";
    return pd_global_clip_wanted(&job->steps) ? "an optimizer rule that limits the norm of all gradients" : NULL;
}

bool pd_declaration_ties(const pd_job *job)
{
    return tie_of(job) != NULL;
}

int pd_declaration_check_ages(const pd_job *job, uint32_t rank, uint32_t n, pd_error *err)
{
    const pd_set_rule *sets = &job->steps.sets;
    bool alone = (sets->quorum == 1 || sets->most == 1) && !sets->waits, grouped = job->ranks[rank].saved.grouped;

    if (n <= 1 || !sets->open || sets->staleness == 0 || (alone && !grouped)) return PD_OK;
    if (alone)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "job %.100s: %u fragments with a staleness, and rank %u belongs to a group: ranks of a group "
                       "could wait for each other in different fragments, for ever. Set staleness = 0, or declare one "
                       "fragment, or no groups",
                       job->steps.name, n, rank);
    return pd_fail(
        err, PD_INVALID_ARGUMENT,
        "job %.100s: %u fragments with a staleness: workers could wait for each other in different fragments, "
        "for ever. Set staleness = 0, or quorum = 1 without on_stale = wait, or declare one fragment",
        job->steps.name, n);
}

int pd_declaration_count_fragments(const pd_job *job, const pd_request *request, uint32_t *n, pd_error *err)
{
    bool used[PD_MAX_FRAGMENTS] = { false };
    const char *tie = tie_of(job);

    *n = 1;
    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        used[decl->fragment] = true;
        if (decl->fragment >= *n) *n = decl->fragment + 1;
    }
    for (uint32_t f = 0; f < *n; f++)
        if (!used[f])
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "job %.100s: fragment %u has no parameter, but fragment %u has: fragments are numbered 0, "
                           "1, 2 ... without gaps",
                           job->steps.name, f, *n - 1);
    if (*n == 1) return PD_OK;
    if (tie == NULL) return pd_declaration_check_ages(job, request->rank, *n, err);
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "job %.100s: %u fragments, but %.60s ties the steps of all parameters: leave it out, or declare one "
                   "fragment",
                   job->steps.name, *n, tie);
}

static const char *axes_text(const char *axes)
{
    return axes != NULL ? axes : "none";
}
static const char *trained_text(bool model_state)
{
    return model_state ? "as model state" : "as trained";
}

/* Checks that shape, axes, model_state, fragment and the element type of pushes equal those that the first rank
 * declared, `first`. */
static int match_facts(const pd_job *job, const pd_param_decl *first, const pd_param_decl *decl, pd_error *err)
{
    char ours[192], theirs[192];

    if (!pd_shape_equal(&first->shape, &decl->shape))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.160s: job %.60s has it with shape %s, this rank declares %s", decl->name,
                       job->steps.name, pd_shape_text(&first->shape, ours, sizeof ours),
                       pd_shape_text(&decl->shape, theirs, sizeof theirs));
    if (strcmp(axes_text(first->axes), axes_text(decl->axes)) != 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.120s: job %.60s has it with axes %.100s, this rank declares %.100s", decl->name,
                       job->steps.name, axes_text(first->axes), axes_text(decl->axes));
    if (first->model_state != decl->model_state)
        return pd_fail(err, PD_FAILED_PRECONDITION, "parameter %.160s: job %.60s has it %s, this rank declares it %s",
                       decl->name, job->steps.name, trained_text(first->model_state), trained_text(decl->model_state));
    if (first->fragment != decl->fragment)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.160s: job %.60s has it in fragment %u, this rank declares it in fragment %u",
                       decl->name, job->steps.name, first->fragment, decl->fragment);
    if (first->push_dtype != 0 && first->push_dtype != decl->push_dtype)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "parameter %.160s: in job %.60s every rank pushes it as %s, this rank declares %s: the job counts "
            "memory for contributions of that type",
            decl->name, job->steps.name, pd_dtype_name(first->push_dtype),
            decl->push_dtype == 0 ? "no push dtype" : pd_dtype_name(decl->push_dtype));
    return PD_OK;
}

static int refuse_ranged(const pd_job *job, const pd_param_decl *decl, pd_error *err)
{
    int64_t elements;

    pd_shape_elements(&decl->shape, &elements);
    return pd_fail(
        err, PD_FAILED_PRECONDITION,
        "parameter %.160s: job %.60s has it %s, this rank declares it %s: a parameter is ranged on every rank "
        "or on none (a rank that has all of it gives the range 0 to %lld)",
        decl->name, job->steps.name, decl->ranged ? "whole" : "in ranges", decl->ranged ? "in ranges" : "whole",
        (long long)elements);
}

/* Checks that a rank declares the same range of a parameter as it did before, and that either all ranks or none
 * declare a range of it. PD_FAILED_PRECONDITION. */
static int match_range(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank,
                       pd_error *err)
{
    const pd_rank_range *range;

    if (decl->ranged != param->ranged) return refuse_ranged(job, decl, err);
    if (!decl->ranged || !job->ranks[rank].saved.sealed || !pd_is_member(job, rank)) return PD_OK;
    range = &param->round.ranges.at[rank];
    if (range->start == decl->start && range->end == decl->end) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "parameter %.160s: rank %u of job %.60s has declared elements %lld to %lld before, now it declares "
                   "%lld to %lld: the range of a rank stays the same",
                   decl->name, rank, job->steps.name, (long long)range->start, (long long)range->end,
                   (long long)decl->start, (long long)decl->end);
}

int pd_declaration_match(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank,
                         uint64_t *seen, pd_error *err)
{
    pd_param_decl first;

    if (param == NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.256s: job %.100s was declared without it; every rank declares the same", decl->name,
                       job->steps.name);
    first = (pd_param_decl){ .shape = param->shape,
                             .axes = param->axes,
                             .model_state = param->model_state,
                             .fragment = param->fragment->number,
                             .push_dtype = param->push_dtype };
    if (match_facts(job, &first, decl, err) != PD_OK) return PD_FAILED_PRECONDITION;
    if (check_pull_type(decl, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if ((seen[param->index / 64] >> param->index % 64 & 1) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s is declared twice", decl->name);
    seen[param->index / 64] |= (uint64_t)1 << param->index % 64;
    if (check_push_type(param->rule, decl, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (check_range(decl, param->elements, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (check_update(param->rule, decl, err) != PD_OK) return PD_FAILED_PRECONDITION;
    return match_range(job, param, decl, rank, err);
}

/* Checks the place of a parameter in a Declare: it is that of the job's whole declaration. */
static int match_place(const pd_job *job, const pd_param_decl *decl, size_t i, pd_error *err)
{
    const pd_whole *whole = job->whole;
    bool known = false;

    if (i < whole->n && strcmp(whole->params[i].name, decl->name) == 0) return PD_OK;
    for (size_t k = 0; k < whole->n && !known; k++) known = strcmp(whole->params[k].name, decl->name) == 0;
    if (!known)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.256s: job %.100s was declared without it; every rank declares the same", decl->name,
                       job->steps.name);
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "parameter %.160s: in the declaration of job %.60s %.160s has this place: on several servers every "
                   "rank declares the same parameters in the same order",
                   decl->name, job->steps.name, i < whole->n ? whole->params[i].name : "no parameter");
}

/* Checks the ranges that the rank's range of a parameter makes of this shard's portions of it. */
static int match_ranges(const pd_job *job, const pd_param_decl *decl, size_t i, uint32_t rank, pd_error *err)
{
    const pd_whole *whole = job->whole;
    int rc = PD_OK;

    if (decl->ranged != whole->params[i].ranged) return refuse_ranged(job, decl, err);
    for (size_t k = whole->first[i]; rc == PD_OK && k < whole->first[i + 1]; k++) {
        pd_param_decl own = *decl;
        if (whole->own[k] == UINT32_MAX) continue;
        if (pd_whole_is_cut(whole, i))
            pd_decl_cut_range(&own, whole->map.portions[k].first, whole->map.portions[k].count);
        rc = match_range(job, &job->steps.params[whole->own[k]], &own, rank, err);
    }
    return rc;
}

int pd_declaration_match_whole(const pd_job *job, const pd_request *request, size_t i, pd_error *err)
{
    const pd_param_decl *decl = &request->u.declare.params[i], *first = &job->whole->params[i];
    const pd_rule *rule;
    int64_t elements;

    if (match_place(job, decl, i, err) != PD_OK) return PD_FAILED_PRECONDITION;
    rule = &job->steps.rules[first->rule - 1];
    if (match_facts(job, first, decl, err) != PD_OK) return PD_FAILED_PRECONDITION;
    if (check_pull_type(decl, err) != PD_OK || check_push_type(rule, decl, err) != PD_OK) return PD_INVALID_ARGUMENT;
    pd_shape_elements(&decl->shape, &elements);
    if (check_range(decl, elements, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (check_update(rule, decl, err) != PD_OK) return PD_FAILED_PRECONDITION;
    return match_ranges(job, decl, i, request->rank, err);
}

enum { FEW = 8 }; /* most notes that are logged; the others are counted, since many may be the same */

void pd_declaration_say(pd_job *job, const pd_param *param, uint32_t *n)
{
    const char *note = pd_optim_plan(param->optim)->note;

    if (note[0] == '\0' || (*n)++ >= FEW) return;
    pd_job_say(job, PD_SAY_WARNING, "parameter %.80s: %s", param->name, note);
}

void pd_declarations_said(pd_job *job, uint32_t n)
{
    if (n > FEW)
        pd_job_say(job, PD_SAY_WARNING, "the optimizers warn about %u more parameters (`paramctl params %s --verbose`)",
                   n - FEW, job->steps.name);
}

enum { FRAME_ALIGN = 64, RESERVE_ALIGN = 4096 };

/* Writes the ranks and their ranges, like "0: 0-5, 1: 5-9", as far as `text` has room. */
static void ranges_text(const pd_round *round, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
        const pd_rank_range *range = &round->ranges.at[rank];
        if (used + 64 > size) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%u: %lld-%lld", rank > 0 ? ", " : "", rank,
                                 (long long)range->start, (long long)range->end);
    }
}

static int check_cover(const pd_job *job, pd_error *err)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        pd_rank_range gap;
        char ranges[240];
        if (!param->ranged || !pd_round_gap(&param->round, false, &gap)) continue;
        ranges_text(&param->round, ranges, sizeof ranges);
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.120s: no rank has elements %lld to %lld of %lld; the ranks' ranges are %s: declare "
                       "ranges that cover it, or drop the job if an earlier rank's range is wrong",
                       param->name, (long long)gap.start, (long long)gap.end, (long long)param->elements, ranges);
    }
    return PD_OK;
}

/* Checks that the ranges of all ranks together contain every element of every parameter, and that they suit the way
 * in which the job aggregates (pd_aggregate_fits_ranges). */
static int check_all(const pd_job *job, pd_error *err)
{
    int rc = check_cover(job, err);

    for (uint32_t i = 0; rc == PD_OK && i < job->steps.n_params; i++)
        if (job->steps.params[i].ranged) rc = pd_aggregate_fits_ranges(&job->steps.values, &job->steps.params[i], err);
    return rc;
}

/* Returns whether a rank that was no member declares other ranges than before. */
static bool has_other_ranges(const pd_job *job, const pd_request *request)
{
    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        const pd_rank_range *range;
        if (!decl->ranged) continue;
        range = &pd_declared_param(job, request, i)->round.ranges.at[request->rank];
        if (!range->known || range->start != decl->start || range->end != decl->end) return true;
    }
    return false;
}

/* Removes the ranges of a rank that joins anew with others. PD_UNAVAILABLE: a step still needs the old ones. */
static int renew_ranges(pd_job *job, const pd_request *request, pd_error *err)
{
    if (pd_fragments_need(&job->steps, request->rank))
        return pd_fail(err, PD_UNAVAILABLE,
                       "rank %u of job %.100s had other ranges before, which a step still needs: declare again",
                       request->rank, job->steps.name);
    job->ranks[request->rank].saved.sealed = false;
    pd_ranges_give_back(job, request->rank);
    pd_ranges_count(job);
    return PD_OK;
}

static bool is_last(const pd_job *job, uint32_t rank)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (r != rank && !job->ranks[r].saved.sealed) return false;
    return true;
}

void pd_range_take(pd_param *param, uint32_t rank, int64_t start, int64_t end)
{
    pd_round_set_range(&param->round, rank, start, end);
    if (!param->round.together) param->unlanded -= param->round.n_chunks - pd_round_count_chunks(&param->round, rank);
}

int pd_ranges_take(pd_job *job, const pd_request *request, pd_error *err)
{
    uint32_t rank = request->rank;
    int rc;

    if (job->ranks[rank].saved.sealed && (pd_is_member(job, rank) || !has_other_ranges(job, request))) return PD_OK;
    if (job->ranks[rank].saved.sealed && (rc = renew_ranges(job, request, err)) != PD_OK) return rc;
    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        pd_param *param = pd_declared_param(job, request, i);
        if (!decl->ranged) continue;
        pd_range_take(param, rank, decl->start, decl->end);
    }
    /* If the sets of ranks are open, each unit has all elements: membership.c. */
    if (job->steps.sets.open || !is_last(job, rank) || (rc = check_all(job, err)) == PD_OK) return PD_OK;
    pd_ranges_give_back(job, rank);
    return rc;
}

void pd_ranges_give_back(pd_job *job, uint32_t rank)
{
    if (job->ranks[rank].saved.sealed) return;
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        pd_param *param = &job->steps.params[i];
        if (!param->ranged || !param->round.ranges.at[rank].known) continue;
        if (!param->round.together)
            param->unlanded += param->round.n_chunks - pd_round_count_chunks(&param->round, rank);
        if (param->round.together) pd_init_forget(param, rank);
        pd_round_unset_range(&param->round, rank);
    }
}

static uint64_t aligned(int64_t elements)
{
    return ((uint64_t)elements * sizeof(float) + FRAME_ALIGN - 1) / FRAME_ALIGN * FRAME_ALIGN;
}

/* Returns the bytes that a range's elements take in frames, as float32. A frame has one piece for each chunk that the
 * range touches, and each piece is padded to a multiple of 64 bytes. The size of a chunk is such a multiple, so only
 * the first and the last piece may need padding. */
static uint64_t pieces_bytes(pd_rank_range range, int64_t chunk)
{
    int64_t to_grid = chunk - range.start % chunk, n = range.end - range.start, first = to_grid < n ? to_grid : n;

    return aligned(first) + aligned(n - first);
}

static uint64_t most_of_frame(const pd_store_config *config)
{
    uint64_t chunk = config->chunk_elements * sizeof(float);

    return config->frame_bytes > chunk ? config->frame_bytes : chunk;
}

/* Returns how many bytes of the ingest budget to reserve for a rank that sends `all` bytes in a step: those of its
 * largest frame. A rank that sends no elements has a reserve, too. */
static uint64_t reserve_of(const pd_store_config *config, uint64_t all)
{
    uint64_t most = most_of_frame(config), bytes = all < most ? all : most;

    if (bytes == 0) bytes = 1;
    return (bytes + RESERVE_ALIGN - 1) / RESERVE_ALIGN * RESERVE_ALIGN;
}

uint64_t pd_ranges_reserve_declared(const pd_job *job, const pd_request *request, bool own)
{
    const pd_store_config *config = job->steps.config;
    uint64_t most = most_of_frame(config), all = 0;

    for (size_t i = 0; i < request->u.declare.n && all < most; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        pd_rank_range range = { .start = decl->start, .end = decl->end };
        if (decl->ranged && !own) continue;
        if (!decl->ranged) {
            range.start = 0;
            pd_shape_elements(&decl->shape, &range.end);
        }
        all += pieces_bytes(range, (int64_t)config->chunk_elements);
    }
    return reserve_of(config, all);
}

uint64_t pd_ranges_collected_bytes(const pd_job *job)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (job->steps.params[i].ranged) bytes = pd_footprint_plus(bytes, pd_collect_bytes(&job->steps.params[i]));
    return bytes;
}

int pd_ranges_check_memory(const pd_job *job, pd_error *err)
{
    return pd_job_check_total(job, pd_ranges_collected_bytes(job) - job->records.collected, err);
}

void pd_ranges_count(pd_job *job)
{
    uint64_t bytes = pd_ranges_collected_bytes(job);

    pd_account_take(&job->steps.account, bytes - job->records.collected);
    job->records.collected = bytes;
}
