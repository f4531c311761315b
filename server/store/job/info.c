/* info.c - answers operators' requests for lists (jobs, parameters, workers, roots, overrides, optimizer state,
 * rounds, members), one page at a time. */
#include "info.h"

#include "aggregate_fit.h"
#include "fragment_ranks.h"
#include "jobs.h"
#include "job_figures.h"
#include "listing.h"
#include "set_figures.h"
#include "text.h"
#include "override.h"
#include "root_report.h"
#include "round_scalars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t count_params(const pd_job *job)
{
    return (uint32_t)job->steps.n_params;
}

static void fill_param(void *entry, const pd_job *job, uint32_t i, uint64_t now_ns)
{
    pd_param_info *info = entry;
    const pd_param *param = &job->steps.params[i];

    snprintf(info->name, sizeof info->name, "%s", param->name);
    snprintf(info->optimizer, sizeof info->optimizer, "%s", pd_optimizer_name(param->rule->hypers.row));
    info->shape = param->shape;
    info->step = param->saved.step;
    info->version = param->current != NULL ? param->current->version : 0;
    info->count = (uint64_t)pd_optim_count(param->optim);
    info->skipped = param->saved.skipped;
    info->refused_steps = param->saved.refused;
    info->contributions = param->saved.contributions;
    info->state_bytes = (uint64_t)pd_optim_state_bytes(param->optim);
    info->initialised = param->current != NULL;
    pd_text_print(info->note, sizeof info->note, pd_optim_plan(param->optim)->note);
    snprintf(info->axes, sizeof info->axes, "%s", param->axes != NULL ? param->axes : "");
    (void)now_ns;
    pd_round_missing(&param->round, info->missing, sizeof info->missing);
    pd_roots_of_param(info, param);
    pd_scalars_of_param(info, param);
    pd_aggregation_text(param->how, info->aggregate, sizeof info->aggregate);
    info->collect_bytes = pd_collect_bytes(param);
    info->fragment = param->fragment->declared;
    info->cut = param->cut;
}

/* Estimated nanoseconds to fill the entry of one parameter; more for each chunk and rank, one of which may be missing
 * from its round; more for each root. */
#define PARAM_NS 2000.0
#define MISSING_NS 3.0
#define ROOT_NS 4.0

static double cost_of_param(const pd_job *job, uint32_t i)
{
    const pd_param *param = &job->steps.params[i];

    return PARAM_NS + ROOT_NS * (double)pd_optim_plan(param->optim)->n_tasks +
           MISSING_NS * (double)param->round.n_chunks * job->steps.members.ranks;
}

static uint32_t count_workers(const pd_job *job)
{
    return (uint32_t)job->steps.members.ranks;
}

static void fill_worker(void *entry, const pd_job *job, uint32_t r, uint64_t now_ns)
{
    (void)now_ns;
    pd_listed_worker_fill(entry, job, r);
}

static double cost_of_worker(const pd_job *job, uint32_t r)
{
    (void)job;
    (void)r;
    return 1000.0;
}

static uint32_t count_rounds(const pd_job *job)
{
    return job->steps.n_fragments;
}

static uint64_t count_roots(const pd_param *param)
{
    return pd_optim_plan(param->optim)->n_tasks;
}

static void fill_root(pd_info *info, const pd_param *param, uint64_t root)
{
    pd_roots_fill(&info->roots[info->n++], param, root);
}

static void fill_setting(pd_info *page, const pd_param *param, uint64_t item)
{
    pd_override_info *info = &page->settings[page->n++];
    const pd_override_entry *entry = &param->overrides.at[item / PD_MAX_HYPERS];
    const pd_override *override = entry->override;
    int h = (int)(item % PD_MAX_HYPERS);
    size_t count;

    snprintf(info->param, sizeof info->param, "%s", param->name);
    snprintf(info->pattern, sizeof info->pattern, "%s", override->pattern);
    snprintf(info->name, sizeof info->name, "%s", pd_optimizer_hypers(override->hypers.row, &count)[h].name);
    snprintf(info->by, sizeof info->by, "%s", override->by);
    if ((override->withdrawn >> h & 1) == 0) pd_overrides_text(&override->hypers, h, info->value, sizeof info->value);
    info->from = entry->from;
    info->in_force = entry->from <= param->saved.step + 1;
}

static uint64_t count_settings(const pd_param *param)
{
    uint64_t n = 0;

    for (uint32_t k = 0; k < param->overrides.n; k++) n += (uint64_t)__builtin_popcountll(param->overrides.at[k].mask);
    return n;
}

/* Returns how many hyperparameters a parameter's overrides could have. Each is an item of the list; those that an
 * override sets are its entries (is_setting). */
static uint64_t count_setting_items(const pd_param *param)
{
    return (uint64_t)param->overrides.n * PD_MAX_HYPERS;
}

static bool is_setting(const pd_param *param, uint64_t item)
{
    return (param->overrides.at[item / PD_MAX_HYPERS].mask >> item % PD_MAX_HYPERS & 1) != 0;
}

static void fill_state(pd_info *page, const pd_param *param, uint64_t slot)
{
    pd_state_info *to = &page->state[page->n++];
    const pd_plan *plan = pd_optim_plan(param->optim);
    const pd_slot_spec *spec = &plan->slots[slot];

    snprintf(to->param, sizeof to->param, "%s", param->name);
    to->slot = spec->name;
    to->storage = pd_storage_name(spec->storage);
    to->number = spec->number;
    to->block = spec->of_block ? spec->block : -1;
    to->shape = spec->shape;
    to->bytes = (uint64_t)pd_slot_bytes(spec);
    to->kept = (int)slot == plan->errors_slot;
    to->follows_known = spec->follows_known;
    memcpy(to->follows, spec->follows, sizeof to->follows);
    to->n_follows = spec->follows_known ? (size_t)spec->shape.rank : 0;
}

static uint64_t count_state(const pd_param *param)
{
    return pd_optim_plan(param->optim)->n_lasting;
}

static uint64_t count_slots(const pd_param *param)
{
    return pd_optim_plan(param->optim)->n_slots;
}

static bool is_state(const pd_param *param, uint64_t slot)
{
    return !pd_optim_plan(param->optim)->slots[slot].temporary;
}

#define KIND(member)                                                                                                   \
    _Generic((member), bool: PD_INFO_FLAG, char *: PD_INFO_TEXT, const char *: PD_INFO_WORD, \
                              pd_shape: PD_INFO_SHAPE, int8_t *: PD_INFO_FOLLOWS, \
                              pd_scalar_mean *: PD_INFO_SCALARS, default: PD_INFO_NUMBER)
#define ARRAY(entry, field, count)                                                                                     \
    {                                                                                                                  \
#field, KIND(((entry *)0)->field), offsetof(entry, field), sizeof((entry *)0)->field, offsetof(entry, count)   \
    }
#define FIELD(entry, field) ARRAY(entry, field, field)

#define JOB(field) FIELD(pd_job_info, field)
#define JOB_FIELDS                                                                                                     \
    JOB(name), JOB(state), JOB(world_size), JOB(connected), JOB(params), JOB(elements), JOB(weight_bytes),             \
        JOB(state_bytes), JOB(held_bytes), JOB(committed_bytes), JOB(step_least), JOB(step_most), JOB(contributions),  \
        JOB(steps), JOB(skipped), JOB(refused_steps), JOB(refused), JOB(duplicates), JOB(roots_due),                   \
        JOB(roots_adopted), JOB(roots_failed), JOB(roots_unused), JOB(root_waits), JOB(gradient_norm),                 \
        JOB(clipped_steps), JOB(outlier_steps), JOB(optimizer), JOB(steps_per_second), JOB(loss), JOB(loss_step),      \
        JOB(waits_for), JOB(waits_ms), JOB(roots_failing), JOB(bytes_in), JOB(bytes_out), JOB(durability),             \
        JOB(durable_step), JOB(checkpoint_age_ms), JOB(checkpoint_bytes), JOB(checkpoint_error), JOB(timed_steps),     \
        JOB(waiting_seconds), JOB(summing_seconds), JOB(stepping_seconds), JOB(publishing_seconds), JOB(root_age),     \
        JOB(replayed), JOB(shard), JOB(shards), JOB(cluster), JOB(map), JOB(went_back), JOB(life), JOB(open_sets),     \
        JOB(mirrored_step)
static const pd_info_field job_fields[] = { JOB_FIELDS, { 0 } };
_Static_assert(sizeof job_fields / sizeof *job_fields - 1 <= PD_MOST_FIELDS, "a job's entry has more fields");

#define PARAM(field) FIELD(pd_param_info, field)
#define PARAM_FIELDS                                                                                                   \
    PARAM(name), PARAM(optimizer), PARAM(shape), PARAM(step), PARAM(version), PARAM(count), PARAM(skipped),            \
        PARAM(refused_steps), PARAM(contributions), PARAM(state_bytes), PARAM(initialised), PARAM(missing),            \
        PARAM(roots), PARAM(roots_failing), PARAM(roots_failed), PARAM(root_waits), PARAM(root_error), PARAM(note),    \
        PARAM(axes), PARAM(aggregate), PARAM(collect_bytes), PARAM(fragment), PARAM(cut)
static const pd_info_field param_fields[] = { PARAM_FIELDS, ARRAY(pd_param_info, scalars, n_scalars), { 0 } };

#define WORKER(field) FIELD(pd_worker_info, field)
static const pd_info_field worker_fields[] = { WORKER(rank),        WORKER(label),        WORKER(state),
                                               WORKER(nonce),       WORKER(step),         WORKER(contributions),
                                               WORKER(held_bytes),  WORKER(identity),     WORKER(times_last),
                                               WORKER(timed_steps), WORKER(late_seconds), { 0 } };

#define ROOT(field) FIELD(pd_root_info, field)
static const pd_info_field root_fields[] = { ROOT(param),   ROOT(root),       ROOT(shape),   ROOT(condition),
                                             ROOT(error),   ROOT(kept_error), ROOT(age),     ROOT(ms),
                                             ROOT(adopted), ROOT(failed),     ROOT(failing), { 0 } };

#define SETTING(field) FIELD(pd_override_info, field)
static const pd_info_field setting_fields[] = { SETTING(param), SETTING(pattern), SETTING(name),     SETTING(value),
                                                SETTING(by),    SETTING(from),    SETTING(in_force), { 0 } };

#define STATE(field) FIELD(pd_state_info, field)
static const pd_info_field state_fields[] = {
    STATE(param), STATE(slot),  STATE(storage), STATE(number),        STATE(block),
    STATE(shape), STATE(bytes), STATE(kept),    STATE(follows_known), ARRAY(pd_state_info, follows, n_follows),
    { 0 }
};

#define ROUND(field) FIELD(pd_round_info, field)
static const pd_info_field round_fields[] = { ROUND(job),       ROUND(fragment), ROUND(step),        ROUND(state),
                                              ROUND(expected),  ROUND(whole),    ROUND(quorum),      ROUND(missing),
                                              ROUND(waits_for), ROUND(since_ms), ROUND(left_ms),     ROUND(hasty),
                                              ROUND(fixed),     ROUND(counted),  ROUND(ages),        ROUND(members),
                                              ROUND(least),     ROUND(epoch),    ROUND(grace_waits), { 0 } };

#define MEMBER(field) FIELD(pd_member_info, field)
static const pd_info_field member_fields[] = { MEMBER(rank),    MEMBER(label),       MEMBER(state),  MEMBER(since_ms),
                                               MEMBER(group),   MEMBER(epoch),       MEMBER(next),   MEMBER(whole),
                                               MEMBER(counted), MEMBER(steps),       MEMBER(late),   MEMBER(mean_age),
                                               MEMBER(share),   MEMBER(patience_ms), MEMBER(missed), { 0 } };

/* One kind of list. If `count` is set, the list has that number of entries of one job, and `fill` fills entry i. If
 * `of_params` is set, each parameter of one job has some entries. If neither is set, the entries are jobs. */
typedef struct list {
    pd_info_list is;
    uint32_t (*count)(const pd_job *job);
    void (*fill)(void *entry, const pd_job *job, uint32_t i, uint64_t now_ns);
    double (*cost_ns)(const pd_job *job, uint32_t i); /* Returns an estimate of how long it takes to fill entry i. */
    pd_list_kind of_params;
} list;

/* All kinds of lists, in the order of ListKind in paramd.proto. The Status request uses number 0. */
static const list lists[] = {
    { .is = { "jobs", "jobs", sizeof(pd_job_info), job_fields } },
    { .is = { "jobs", "jobs", sizeof(pd_job_info), job_fields } },
    { { "params", "parameters", sizeof(pd_param_info), param_fields },
      .count = count_params,
      .fill = fill_param,
      .cost_ns = cost_of_param },
    { { "workers", "workers", sizeof(pd_worker_info), worker_fields },
      .count = count_workers,
      .fill = fill_worker,
      .cost_ns = cost_of_worker },
    { { "roots", "roots", sizeof(pd_root_info), root_fields },
      .of_params = { count_roots, NULL, count_roots, fill_root, true } },
    { { "settings", "settings", sizeof(pd_override_info), setting_fields },
      .of_params = { count_setting_items, is_setting, count_settings, fill_setting, false } },
    { { "state", "state", sizeof(pd_state_info), state_fields },
      .of_params = { count_slots, is_state, count_state, fill_state, true } },
    { { "rounds", "rounds", sizeof(pd_round_info), round_fields },
      .count = count_rounds,
      .fill = pd_listed_round_fill,
      .cost_ns = pd_listed_round_ns },
    { { "members", "members", sizeof(pd_member_info), member_fields },
      .count = count_workers,
      .fill = pd_listed_member_fill,
      .cost_ns = pd_listed_member_ns },
};

const pd_info_list *pd_info_list_of(uint32_t what)
{
    return what < sizeof lists / sizeof *lists ? &lists[what].is : NULL;
}

static bool is_of_jobs(const list *wanted)
{
    return wanted->count == NULL && wanted->of_params.count == NULL;
}

static bool is_of_params(const list *wanted)
{
    return wanted->of_params.count != NULL;
}

/* The answer to a request while it is made; pd_request.part points to it. */
typedef struct answer {
    const list *wanted;
    pd_info *info;
    uint32_t job; /* number of the job whose entries are listed; 0: the entries are the jobs */
    pd_listing_walk walk;
    pd_listed_jobs listed;
} answer;

static void free_answer(void *part)
{
    answer *a = part;

    if (a == NULL) return;
    pd_listing_end(&a->walk, NULL);
    pd_listed_jobs_end(&a->listed);
    pd_info_free(a->info);
    free(a);
}

static const char *asker(const pd_request *request)
{
    return request->u.info.identity != NULL ? request->u.info.identity : "anyone";
}

static answer *new_answer(const pd_request *request)
{
    const list *wanted = &lists[request->u.info.what];
    answer *a = calloc(1, sizeof *a);

    if (a == NULL) return NULL;
    a->wanted = wanted;
    if ((a->info = calloc(1, sizeof *a->info)) != NULL) {
        *a->info = (pd_info){ .list = &wanted->is, .start = request->u.info.start };
        a->info->entries = calloc(PD_INFO_PAGE, wanted->is.entry_bytes);
    }
    if (a->info != NULL && a->info->entries != NULL) return a;
    free_answer(a);
    return NULL;
}

/* Begins to answer a request for a list of `job`; NULL: a list of jobs. PD_NO_MEMORY, PD_INVALID_ARGUMENT: the request
 * has no answer yet. */
static int begin(pd_request *request, const pd_jobs *jobs, pd_roles *roles, pd_job *job, double *budget_ns,
                 pd_error *err)
{
    answer *a = new_answer(request);
    int rc = a != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory for the list");

    if (rc == PD_OK && job != NULL) a->job = job->steps.number;
    if (rc == PD_OK && job == NULL && pd_listed_jobs_begin(&a->listed, jobs, roles, asker(request), budget_ns) != PD_OK)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory for the list");
    if (rc == PD_OK && is_of_params(a->wanted))
        rc = pd_listing_begin(&a->walk, job, &a->wanted->of_params, request->u.info.pattern, err);
    if (rc != PD_OK) {
        free_answer(a);
        return rc;
    }
    request->part = a;
    request->free_part = free_answer;
    return PD_OK;
}

/* Returns whether the answer was begun for the job as it is now. Returns false if the job was replaced by another one
 * of the same name, or has discarded its parameters. */
static bool fits(const answer *a, const pd_job *job)
{
    if (job == NULL) return true;
    return a->job == job->steps.number && (!is_of_params(a->wanted) || pd_listing_fits(&a->walk, job));
}

/* Fills entries of a list that has `count`, until the time is used. Returns whether the page is complete. */
static bool fill_by_number(answer *a, const pd_job *job, uint64_t now_ns, double *budget_ns)
{
    pd_info *info = a->info;

    for (info->total = a->wanted->count(job); info->start + info->n < info->total && info->n < PD_INFO_PAGE;
         info->n++) {
        uint32_t i = (uint32_t)(info->start + info->n);
        if (!(*budget_ns > 0)) return false;
        a->wanted->fill((char *)info->entries + info->n * a->wanted->is.entry_bytes, job, i, now_ns);
        *budget_ns -= a->wanted->cost_ns(job, i);
    }
    return true;
}

/* Removes the identities and nonces of workers from their list, unless the operator is an admin of the job. Whoever
 * knows the nonce of a process could ask for its rank. */
static void hide_identities(pd_info *info, const pd_roles *roles, const pd_request *request)
{
    if (pd_roles_of(roles, asker(request), request->u.info.job_name, NULL) == PD_ROLE_ADMIN) return;
    for (size_t i = 0; i < info->n; i++) {
        info->workers[i].identity[0] = '\0';
        info->workers[i].nonce = 0;
    }
}

static bool fill_some(answer *a, const pd_jobs *jobs, const pd_job *job, uint64_t now_ns, double *budget_ns)
{
    if (job == NULL) return pd_listed_jobs_some(&a->listed, a->info, jobs, now_ns, budget_ns);
    if (is_of_params(a->wanted)) return pd_listing_some(&a->walk, a->info, job, budget_ns);
    return fill_by_number(a, job, now_ns, budget_ns);
}

static void hand_over(pd_effects *outbox, bool draining, pd_request *request, pd_job *job)
{
    answer *a = request->part;
    pd_effect *effect = pd_answer(request, PD_EFF_INFO);

    a->info->draining = draining;
    effect->u.info = a->info;
    a->info = NULL;
    pd_listing_end(&a->walk, job);
    pd_effects_add(outbox, effect);
    pd_request_free(request);
}

bool pd_info_answer_some(const pd_jobs *jobs, pd_roles *roles, pd_effects *outbox, bool draining, pd_request *request,
                         double *budget_ns, uint64_t now_ns)
{
    const list *wanted = &lists[request->u.info.what];
    const char *name = request->u.info.job_name != NULL ? request->u.info.job_name : "";
    pd_job *job = is_of_jobs(wanted) ? NULL : pd_jobs_find(jobs, name);
    pd_error err;
    int rc = PD_OK;

    if (job == NULL && !is_of_jobs(wanted)) rc = pd_fail(&err, PD_NOT_FOUND, "there is no job %.200s", name);
    if (rc == PD_OK && request->part != NULL && !fits(request->part, job)) {
        free_answer(request->part);
        request->part = NULL;
    }
    if (rc == PD_OK && request->part == NULL) rc = begin(request, jobs, roles, job, budget_ns, &err);
    if (rc != PD_OK) {
        pd_request_refuse(outbox, request, &err);
        return true;
    }
    if (!fill_some(request->part, jobs, job, now_ns, budget_ns)) return false;
    if (request->u.info.what == PD_INFO_WORKERS) hide_identities(((answer *)request->part)->info, roles, request);
    hand_over(outbox, draining, request, job);
    return true;
}
