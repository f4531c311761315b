/* info.c - answers operators' requests for lists: status, jobs, parameters, workers, roots, overrides, state; one
 * page at a time. */
#include "info.h"

#include "aggregate_fit.h"
#include "jobs.h"
#include "listing.h"
#include "global_clip.h"
#include "printable.h"
#include "override.h"
#include "root_report.h"
#include "round_scalars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *state_text(const pd_job *job)
{
    if (pd_job_is_over(job)) return "over";
    return job->linger_ns > 0 ? "lingering" : job->steps.n_params > 0 && pd_job_sealed(job) ? "running" : "gathering";
}

static void fill_totals(pd_job_info *info, pd_job *job)
{
    const pd_job_totals *totals = pd_job_count_totals(job);

    info->elements = totals->elements;
    info->weight_bytes = totals->elements * sizeof(float);
    info->state_bytes = totals->state_bytes;
    info->step_least = totals->step_least;
    info->step_most = totals->step_most;
    info->roots_due = totals->roots_due;
    info->roots_adopted = totals->roots_adopted;
    info->roots_failed = totals->roots_failed;
    info->roots_unused = totals->roots_unused;
    info->root_waits = totals->root_waits;
    info->roots_failing = totals->roots_failing;
    info->root_age = totals->root_age;
    snprintf(info->optimizer, sizeof info->optimizer, "%s", totals->optimizers);
}

/* Writes the numbers of the ranks that have not declared the job's parameters, such as "1,3". */
static void list_undeclared(const pd_job *job, char *text, size_t size)
{
    size_t used = 0;

    for (uint32_t rank = 0; rank < job->steps.members.ranks && used + 16 < size; rank++)
        if (!job->ranks[rank].saved.sealed)
            used += (size_t)snprintf(text + used, size - used, "%s%u", used > 0 ? "," : "", rank);
}

/* Stores in an entry of the list of jobs which ranks the job waits for, and how long it has waited. */
static void fill_waits(pd_job_info *info, const pd_job *job, uint64_t now_ns)
{
    const pd_param *oldest = job->steps.waiting;

    if (!pd_job_sealed(job)) {
        list_undeclared(job, info->waits_for, sizeof info->waits_for);
    } else if (oldest != NULL) {
        pd_round_missing(&oldest->round, info->waits_for, sizeof info->waits_for);
        if (now_ns > oldest->round.started_ns) info->waits_ms = (now_ns - oldest->round.started_ns) / 1000000;
    } else if (job->steps.n_begun < job->steps.n_params) {
        snprintf(info->waits_for, sizeof info->waits_for, "initial weights");
    } else if (job->keeping.paused) {
        snprintf(info->waits_for, sizeof info->waits_for, "a checkpoint");
    }
}

/* Stores in an entry of the list of jobs what is wrong with the disk. */
static void describe_trouble(pd_job_info *info, const pd_keeping *keeping, uint64_t now_ns)
{
    const pd_disk_watch *entries = &keeping->log.watch, *checkpoint = &keeping->watch;
    const pd_disk_watch *late = checkpoint->late ? checkpoint : entries->late ? entries : NULL;
    uint64_t seconds = late != NULL && now_ns > late->since_ns ? (now_ns - late->since_ns) / 1000000000 : 0;

    if (late == NULL)
        snprintf(info->checkpoint_error, sizeof info->checkpoint_error, "%s", keeping->error);
    else if (late == checkpoint)
        snprintf(info->checkpoint_error, sizeof info->checkpoint_error,
                 "the disk has had the checkpoint of step %llu for %llu s and does not answer",
                 (unsigned long long)keeping->cut_step, (unsigned long long)seconds);
    else
        snprintf(info->checkpoint_error, sizeof info->checkpoint_error,
                 "the disk has had entries of the log for %llu s and does not answer", (unsigned long long)seconds);
}

static void fill_keeping(pd_job_info *info, const pd_keeping *keeping, uint64_t now_ns)
{
    snprintf(info->durability, sizeof info->durability, "%s",
             keeping->log.wanted ? "log"
             : keeping->durable  ? "checkpoint"
                                 : "none");
    describe_trouble(info, keeping, now_ns);
    info->durable_step = keeping->durable_step;
    info->checkpoint_bytes = keeping->bytes;
    if (keeping->kept && now_ns > keeping->durable_ns)
        info->checkpoint_age_ms = (now_ns - keeping->durable_ns) / 1000000;
}

static double seconds_of(const pd_job_times *times, pd_step_phase phase)
{
    return (double)times->phase[phase].sum_ns / 1e9;
}

static void fill_times(pd_job_info *info, const pd_job_times *times)
{
    info->timed_steps = pd_histogram_count(&times->phase[PD_PHASE_WAIT]);
    info->waiting_seconds = seconds_of(times, PD_PHASE_WAIT);
    info->summing_seconds = seconds_of(times, PD_PHASE_SUM);
    info->stepping_seconds = seconds_of(times, PD_PHASE_STEP);
    info->publishing_seconds = seconds_of(times, PD_PHASE_PUBLISH);
}

void pd_info_fill_job(pd_job_info *info, pd_job *job, uint64_t now_ns)
{
    snprintf(info->name, sizeof info->name, "%s", job->steps.name);
    snprintf(info->state, sizeof info->state, "%s", state_text(job));
    info->world_size = job->steps.members.ranks;
    info->connected = job->connected;
    info->held_bytes = job->steps.held;
    info->params = job->steps.n_params;
    info->committed_bytes = job->steps.account.used;
    fill_totals(info, job);
    info->contributions = job->steps.saved.contributions;
    info->steps = job->steps.saved.steps;
    info->skipped = job->steps.saved.skipped;
    info->refused_steps = job->steps.saved.refused_steps;
    info->refused = job->saved.refused;
    info->duplicates = job->saved.duplicates;
    info->replayed = job->replayed;
    info->gradient_norm = pd_global_clip_last(&job->steps);
    info->clipped_steps = pd_global_clip_clipped(&job->steps);
    info->outlier_steps = pd_global_clip_outliers(&job->steps);
    info->number = job->steps.number;
    info->steps_per_second = pd_speed_at(&job->speed, now_ns);
    info->loss = job->steps.loss;
    info->loss_step = job->steps.loss_step;
    fill_waits(info, job, now_ns);
    fill_keeping(info, &job->keeping, now_ns);
    fill_times(info, &job->steps.times.total);
}

static uint32_t count_params(const pd_job *job)
{
    return (uint32_t)job->steps.n_params;
}

static void fill_param(void *entry, const pd_job *job, uint32_t i)
{
    pd_param_info *info = entry;
    const pd_param *param = &job->steps.params[i];

    snprintf(info->name, sizeof info->name, "%s", param->name);
    snprintf(info->optimizer, sizeof info->optimizer, "%s", pd_row_name(param->rule->hypers.row));
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
    pd_round_missing(&param->round, info->missing, sizeof info->missing);
    pd_roots_of_param(info, param);
    pd_scalars_of_param(info, param);
    pd_aggregation_text(param->how, info->aggregate, sizeof info->aggregate);
    info->collect_bytes = pd_collect_bytes(param);
}

static uint32_t count_workers(const pd_job *job)
{
    return (uint32_t)job->steps.members.ranks;
}

void pd_info_fill_worker(pd_worker_info *info, const pd_job *job, uint32_t r)
{
    static const char *const states[] = {
        [PD_RANK_ABSENT] = "absent", [PD_RANK_CONNECTED] = "connected", [PD_RANK_LOST] = "lost", [PD_RANK_LEFT] = "left"
    };
    const pd_rank *rank = &job->ranks[r];
    const pd_job_times *times = &job->steps.times.total;

    info->rank = r;
    snprintf(info->label, sizeof info->label, "%s", rank->label);
    snprintf(info->state, sizeof info->state, "%s", states[rank->state]);
    snprintf(info->identity, sizeof info->identity, "%s", rank->identity != NULL ? rank->identity : "");
    info->nonce = rank->saved.nonce;
    info->step = rank->saved.step;
    info->contributions = rank->saved.contributions;
    info->held_bytes = job->steps.quotas[r].held;
    info->timed_steps = pd_histogram_count(&times->phase[PD_PHASE_WAIT]);
    info->times_last = times->rank[r].last;
    info->late_seconds = (double)times->rank[r].late_ns / 1e9;
}

static void fill_worker(void *entry, const pd_job *job, uint32_t r)
{
    pd_info_fill_worker(entry, job, r);
}

/* ---- lists in which each parameter has a number of entries: roots, overrides, state ---- */

static uint64_t count_roots(const pd_param *param)
{
    return pd_optim_plan(param->optim)->n_tasks;
}

static void fill_roots(pd_info *info, const pd_param *param, uint64_t first)
{
    for (uint64_t n = count_roots(param); first < n && info->n < PD_INFO_PAGE; first++)
        pd_roots_fill(&info->roots[info->n++], param, first);
}

static void fill_setting(pd_override_info *info, const pd_param *param, const pd_override_entry *entry, int h)
{
    const pd_override *override = entry->override;
    size_t count;

    snprintf(info->param, sizeof info->param, "%s", param->name);
    snprintf(info->pattern, sizeof info->pattern, "%s", override->pattern);
    snprintf(info->name, sizeof info->name, "%s", pd_row_hypers(override->hypers.row, &count)[h].name);
    snprintf(info->by, sizeof info->by, "%s", override->by);
    if ((override->withdrawn >> h & 1) == 0) pd_overrides_text(&override->hypers, h, info->value, sizeof info->value);
    info->from = entry->from;
    info->in_force = entry->from <= param->saved.step + 1;
}

static uint64_t count_settings(const pd_param *param)
{
    uint64_t n = 0;

    for (uint32_t k = 0; k < param->n_overrides; k++) n += (uint64_t)__builtin_popcountll(param->overrides[k].mask);
    return n;
}

static void fill_settings(pd_info *info, const pd_param *param, uint64_t first)
{
    uint64_t at = 0;

    for (uint32_t k = 0; k < param->n_overrides; k++)
        for (int h = 0; h < PD_MAX_HYPERS; h++)
            if ((param->overrides[k].mask >> h & 1) != 0 && at++ >= first && info->n < PD_INFO_PAGE)
                fill_setting(&info->settings[info->n++], param, &param->overrides[k], h);
}

static void fill_state(pd_state_info *to, const pd_param *param, size_t slot)
{
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
    const pd_plan *plan = pd_optim_plan(param->optim);
    uint64_t n = 0;

    for (size_t k = 0; k < plan->n_slots; k++) n += !plan->slots[k].temporary;
    return n;
}

static void fill_states(pd_info *info, const pd_param *param, uint64_t first)
{
    const pd_plan *plan = pd_optim_plan(param->optim);
    uint64_t at = 0;

    for (size_t k = 0; k < plan->n_slots && info->n < PD_INFO_PAGE; k++)
        if (!plan->slots[k].temporary && at++ >= first) fill_state(&info->state[info->n++], param, k);
}

/* ---- the table of lists: each field has the same name in the table, in the entry's struct and in paramd.proto ---- */

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
static const pd_info_field job_fields[] = { JOB(name),
                                            JOB(state),
                                            JOB(world_size),
                                            JOB(connected),
                                            JOB(params),
                                            JOB(elements),
                                            JOB(weight_bytes),
                                            JOB(state_bytes),
                                            JOB(held_bytes),
                                            JOB(committed_bytes),
                                            JOB(step_least),
                                            JOB(step_most),
                                            JOB(contributions),
                                            JOB(steps),
                                            JOB(skipped),
                                            JOB(refused_steps),
                                            JOB(refused),
                                            JOB(duplicates),
                                            JOB(roots_due),
                                            JOB(roots_adopted),
                                            JOB(roots_failed),
                                            JOB(roots_unused),
                                            JOB(root_waits),
                                            JOB(gradient_norm),
                                            JOB(clipped_steps),
                                            JOB(outlier_steps),
                                            JOB(optimizer),
                                            JOB(steps_per_second),
                                            JOB(loss),
                                            JOB(loss_step),
                                            JOB(waits_for),
                                            JOB(waits_ms),
                                            JOB(roots_failing),
                                            JOB(bytes_in),
                                            JOB(bytes_out),
                                            JOB(durability),
                                            JOB(durable_step),
                                            JOB(checkpoint_age_ms),
                                            JOB(checkpoint_bytes),
                                            JOB(checkpoint_error),
                                            JOB(timed_steps),
                                            JOB(waiting_seconds),
                                            JOB(summing_seconds),
                                            JOB(stepping_seconds),
                                            JOB(publishing_seconds),
                                            JOB(root_age),
                                            JOB(replayed),
                                            { 0 } };

#define PARAM(field) FIELD(pd_param_info, field)
static const pd_info_field param_fields[] = { PARAM(name),
                                              PARAM(optimizer),
                                              PARAM(shape),
                                              PARAM(step),
                                              PARAM(version),
                                              PARAM(count),
                                              PARAM(skipped),
                                              PARAM(refused_steps),
                                              PARAM(contributions),
                                              PARAM(state_bytes),
                                              PARAM(initialised),
                                              PARAM(missing),
                                              PARAM(roots),
                                              PARAM(roots_failing),
                                              PARAM(roots_failed),
                                              PARAM(root_waits),
                                              PARAM(root_error),
                                              PARAM(note),
                                              PARAM(axes),
                                              PARAM(aggregate),
                                              PARAM(collect_bytes),
                                              ARRAY(pd_param_info, scalars, n_scalars),
                                              { 0 } };

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

/* One kind of list. If the member `count` is set, each job has that number of entries, which `fill` fills by number.
 * If `of_params` is set, each parameter has some entries. If neither is set, the entries are the jobs. */
typedef struct list {
    pd_info_list is;
    uint32_t (*count)(const pd_job *job);
    void (*fill)(void *entry, const pd_job *job, uint32_t i);
    pd_list_kind of_params;
} list;

/* All kinds of lists, in the order of ListKind in paramd.proto. The Status request uses number 0. */
static const list lists[] = {
    { .is = { "jobs", "jobs", sizeof(pd_job_info), job_fields } },
    { .is = { "jobs", "jobs", sizeof(pd_job_info), job_fields } },
    { { "params", "parameters", sizeof(pd_param_info), param_fields }, .count = count_params, .fill = fill_param },
    { { "workers", "workers", sizeof(pd_worker_info), worker_fields }, .count = count_workers, .fill = fill_worker },
    { { "roots", "roots", sizeof(pd_root_info), root_fields }, .of_params = { count_roots, fill_roots, true } },
    { { "settings", "settings", sizeof(pd_override_info), setting_fields },
      .of_params = { count_settings, fill_settings, false } },
    { { "state", "state", sizeof(pd_state_info), state_fields }, .of_params = { count_state, fill_states, true } },
};

const pd_info_list *pd_info_list_of(uint32_t what)
{
    return what < sizeof lists / sizeof *lists ? &lists[what].is : NULL;
}

static bool is_of_jobs(const list *wanted)
{
    return wanted->count == NULL && wanted->of_params.count == NULL;
}

static int new_entries(pd_info *info, size_t n)
{
    return (info->entries = calloc(n + 1, info->list->entry_bytes)) != NULL ? PD_OK : PD_NO_MEMORY;
}

/* Returns how many of the list's entries fit into one page that begins with entry number `start`. */
static size_t page_of(const pd_info *info)
{
    uint64_t left = info->start < info->total ? info->total - info->start : 0;

    return (size_t)(left < PD_INFO_PAGE ? left : PD_INFO_PAGE);
}

/* Returns how many jobs the list of a view has: those that its identity may see. */
static uint64_t count_jobs(const pd_jobs *jobs, const pd_roles_view *view)
{
    const pd_job *job, *next;
    uint64_t n = 0;

    HASH_ITER(hh, jobs->names, job, next) n += pd_roles_view_has(view, job->steps.name);
    return n;
}

static int list_viewed_jobs(pd_info *info, const pd_jobs *jobs, const pd_roles_view *view, uint64_t now_ns)
{
    pd_job *job, *next;
    uint64_t i = 0;

    info->total = view != NULL ? count_jobs(jobs, view) : jobs->n;
    if (new_entries(info, page_of(info)) != PD_OK) return PD_NO_MEMORY;
    HASH_ITER(hh, jobs->names, job, next)
    if (pd_roles_view_has(view, job->steps.name) && i++ >= info->start && info->n < PD_INFO_PAGE)
        pd_info_fill_job(&info->jobs[info->n++], job, now_ns);
    return PD_OK;
}

static const char *asker(const pd_request *request)
{
    return request->u.info.identity != NULL ? request->u.info.identity : "anyone";
}

static int list_jobs(pd_info *info, const pd_jobs *jobs, const pd_roles *roles, const pd_request *request,
                     uint64_t now_ns)
{
    pd_roles_view *view;
    int rc = pd_roles_view_new(&view, roles, asker(request));

    if (rc == PD_OK) rc = list_viewed_jobs(info, jobs, view, now_ns);
    pd_roles_view_free(view);
    return rc;
}

static int list_by_number(pd_info *info, const list *wanted, const pd_job *job)
{
    info->total = wanted->count(job);
    if (new_entries(info, page_of(info)) != PD_OK) return PD_NO_MEMORY;
    for (size_t n = page_of(info); info->n < n; info->n++)
        wanted->fill((char *)info->entries + info->n * wanted->is.entry_bytes, job, (uint32_t)(info->start + info->n));
    return PD_OK;
}

static int list_of_params(pd_info *info, const list *wanted, pd_job *job, const char *pattern)
{
    int rc = new_entries(info, PD_INFO_PAGE);

    return rc == PD_OK ? pd_listing_page(info, job, &wanted->of_params, pattern) : rc;
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

static int fill(pd_info *info, const pd_jobs *jobs, const pd_roles *roles, const pd_request *request, uint64_t now_ns,
                pd_error *err)
{
    const list *wanted = &lists[request->u.info.what];
    const char *name = request->u.info.job_name != NULL ? request->u.info.job_name : "";
    pd_job *job = is_of_jobs(wanted) ? NULL : pd_jobs_find(jobs, name);
    int rc;

    if (job == NULL && !is_of_jobs(wanted)) return pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", name);
    *info = (pd_info){ .list = &wanted->is, .start = request->u.info.start };
    if (job == NULL)
        rc = list_jobs(info, jobs, roles, request, now_ns);
    else if (wanted->count != NULL)
        rc = list_by_number(info, wanted, job);
    else
        rc = list_of_params(info, wanted, job, request->u.info.pattern);
    if (rc == PD_OK && request->u.info.what == PD_INFO_WORKERS) hide_identities(info, roles, request);
    return rc == PD_OK ? PD_OK : pd_fail(err, rc, "out of memory for the list");
}

void pd_info_answer(const pd_jobs *jobs, const pd_roles *roles, pd_effects *outbox, bool draining, pd_request *request,
                    uint64_t now_ns)
{
    pd_info *info = calloc(1, sizeof *info);
    pd_effect *effect;
    pd_error err;
    int rc = info == NULL ? pd_fail(&err, PD_NO_MEMORY, "out of memory for the list")
                          : fill(info, jobs, roles, request, now_ns, &err);

    if (rc != PD_OK) {
        pd_info_free(info);
        pd_request_refuse(outbox, request, &err);
        return;
    }
    info->draining = draining;
    effect = pd_answer(request, PD_EFF_INFO);
    effect->u.info = info;
    pd_effects_add(outbox, effect);
    pd_request_free(request);
}
