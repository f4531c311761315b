/* info.c - what operators ask for: status, jobs, parameters, workers, roots, settings; a page of each. */
#include "listing.h"
#include "global_clip.h"
#include "printable.h"
#include "round_scalars.h"
#include "training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *state_text(const pd_job *job)
{
    return job->linger_ns > 0 ? "lingering" : job->n_params > 0 && pd_job_sealed(job) ? "running" : "gathering";
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
    info->roots_replaced = totals->roots_replaced;
    info->root_waits = totals->root_waits;
}

static void fill_job(pd_job_info *info, pd_job *job)
{
    snprintf(info->name, sizeof info->name, "%s", job->name);
    snprintf(info->state, sizeof info->state, "%s", state_text(job));
    info->world_size = job->world;
    info->connected = job->connected;
    info->held_bytes = job->held;
    info->params = job->n_params;
    info->committed_bytes = job->committed;
    fill_totals(info, job);
    info->contributions = job->contributions;
    info->steps = job->steps;
    info->skipped = job->skipped;
    info->refused_steps = job->refused_steps;
    info->refused = job->refused;
    info->duplicates = job->duplicates;
    info->gradient_norm = pd_global_clip_last(job);
    info->clipped_steps = pd_global_clip_clipped(job);
}

static void fill_param(pd_param_info *info, const pd_job *job, const pd_param *param)
{
    snprintf(info->name, sizeof info->name, "%s", param->name);
    snprintf(info->optimizer, sizeof info->optimizer, "%s", pd_row_name(param->rule->hypers.row));
    info->shape = param->shape;
    info->step = param->step;
    info->version = param->current != NULL ? param->current->version : 0;
    info->count = (uint64_t)pd_optim_count(param->optim);
    info->skipped = param->skipped;
    info->refused_steps = param->refused;
    info->contributions = param->contributions;
    info->state_bytes = (uint64_t)pd_optim_state_bytes(param->optim);
    info->initialised = param->current != NULL;
    pd_text_print(info->note, sizeof info->note, pd_optim_plan(param->optim)->note);
    snprintf(info->axes, sizeof info->axes, "%s", param->axes != NULL ? param->axes : "");
    pd_round_missing(&param->round, info->missing, sizeof info->missing);
    pd_roots_of_param(info, param);
    pd_scalars_of_param(info, param);
    pd_aggregation_text(param->how, info->aggregate, sizeof info->aggregate);
    info->gather_bytes = pd_collect_bytes(job, param);
}

static void fill_worker(pd_worker_info *info, const pd_job *job, uint32_t r)
{
    static const char *const states[] = { [PD_RANK_ABSENT] = "absent", [PD_RANK_CONNECTED] = "connected", [PD_RANK_LOST] = "lost",
                                          [PD_RANK_LEFT] = "left" };
    const pd_rank *rank = &job->ranks[r];

    info->rank = r;
    snprintf(info->label, sizeof info->label, "%s", rank->label);
    snprintf(info->state, sizeof info->state, "%s", states[rank->state]);
    info->nonce = rank->nonce;
    info->step = rank->step;
    info->contributions = rank->contributions;
    info->held_bytes = rank->held;
}

/* ---- lists: `total` is known, and the entries from `start` on have room in one page ---- */

static size_t page_of(const pd_info *info)
{
    uint64_t left = info->start < info->total ? info->total - info->start : 0;

    return (size_t)(left < PD_INFO_PAGE ? left : PD_INFO_PAGE);
}

static int list_jobs(pd_info *info, const pd_store *store)
{
    pd_job *job, *next;
    uint64_t i = 0;

    info->total = store->n_jobs;
    if ((info->jobs = calloc(page_of(info) + 1, sizeof *info->jobs)) == NULL) return PD_NO_MEMORY;
    HASH_ITER(hh, store->names, job, next)
        if (i++ >= info->start && info->n_jobs < PD_INFO_PAGE) fill_job(&info->jobs[info->n_jobs++], job);
    return PD_OK;
}

static int list_params(pd_info *info, const pd_job *job)
{
    info->total = job->n_params;
    if ((info->params = calloc(page_of(info) + 1, sizeof *info->params)) == NULL) return PD_NO_MEMORY;
    info->n_params = page_of(info);
    for (size_t i = 0; i < info->n_params; i++) fill_param(&info->params[i], job, &job->params[info->start + i]);
    return PD_OK;
}

static int list_workers(pd_info *info, const pd_job *job)
{
    info->total = job->world;
    if ((info->workers = calloc(page_of(info) + 1, sizeof *info->workers)) == NULL) return PD_NO_MEMORY;
    info->n_workers = page_of(info);
    for (size_t i = 0; i < info->n_workers; i++) fill_worker(&info->workers[i], job, (uint32_t)(info->start + i));
    return PD_OK;
}

static uint64_t count_roots(const pd_param *param) { return pd_optim_plan(param->optim)->n_tasks; }

static void fill_roots(pd_info *info, const pd_param *param, uint64_t first)
{
    for (uint64_t n = count_roots(param); first < n && info->n_roots < PD_INFO_PAGE; first++)
        pd_roots_fill(&info->roots[info->n_roots++], param, first);
}

static int list_roots(pd_info *info, pd_job *job, const char *pattern)
{
    static const pd_list_kind kind = { count_roots, fill_roots, .lasting = true };

    if ((info->roots = calloc(PD_INFO_PAGE, sizeof *info->roots)) == NULL) return PD_NO_MEMORY;
    return pd_listing_page(info, job, &kind, pattern);
}

static void fill_setting(pd_override_info *info, const pd_param *param, const pd_override_entry *hold, int h)
{
    const pd_override *setting = hold->setting;
    size_t count;

    snprintf(info->param, sizeof info->param, "%s", param->name);
    snprintf(info->pattern, sizeof info->pattern, "%s", setting->pattern);
    snprintf(info->name, sizeof info->name, "%s", pd_row_hypers(setting->hypers.row, &count)[h].name);
    snprintf(info->by, sizeof info->by, "%s", setting->by);
    if ((setting->withdrawn >> h & 1) == 0) pd_overrides_text(&setting->hypers, h, info->value, sizeof info->value);
    info->from = hold->from;
    info->in_force = hold->from <= param->step + 1;
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
            if ((param->overrides[k].mask >> h & 1) != 0 && at++ >= first && info->n_settings < PD_INFO_PAGE)
                fill_setting(&info->settings[info->n_settings++], param, &param->overrides[k], h);
}

static int list_settings(pd_info *info, pd_job *job, const char *pattern)
{
    static const pd_list_kind kind = { count_settings, fill_settings, .lasting = false };

    if ((info->settings = calloc(PD_INFO_PAGE, sizeof *info->settings)) == NULL) return PD_NO_MEMORY;
    return pd_listing_page(info, job, &kind, pattern);
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

    for (size_t k = 0; k < plan->n_slots && info->n_state < PD_INFO_PAGE; k++)
        if (!plan->slots[k].temporary && at++ >= first) fill_state(&info->state[info->n_state++], param, k);
}

static int list_state(pd_info *info, pd_job *job, const char *pattern)
{
    static const pd_list_kind kind = { count_state, fill_states, .lasting = true };

    if ((info->state = calloc(PD_INFO_PAGE, sizeof *info->state)) == NULL) return PD_NO_MEMORY;
    return pd_listing_page(info, job, &kind, pattern);
}

static int list_of_job(pd_info *info, pd_job *job, const char *pattern)
{
    switch (info->what) {
    case PD_INFO_PARAMS:  return list_params(info, job);
    case PD_INFO_WORKERS: return list_workers(info, job);
    case PD_INFO_SETTINGS: return list_settings(info, job, pattern);
    case PD_INFO_STATE:   return list_state(info, job, pattern);
    default:              return list_roots(info, job, pattern);
    }
}

static int fill(pd_info *info, pd_store *store, const pd_request *request, pd_error *err)
{
    pd_job *job = NULL;
    int rc;

    info->what = (pd_info_what)request->u.info.what;
    info->start = request->u.info.start;
    info->draining = store->draining;
    if (info->what == PD_INFO_STATUS || info->what == PD_INFO_JOBS) {
        rc = list_jobs(info, store);
    } else {
        if ((job = pd_store_find(store, request->u.info.job_name)) == NULL)
            return pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", request->u.info.job_name != NULL ? request->u.info.job_name : "");
        rc = list_of_job(info, job, request->u.info.pattern);
    }
    return rc == PD_OK ? PD_OK : pd_fail(err, rc, "out of memory for the list");
}

void pd_store_info(pd_store *store, pd_request *request)
{
    pd_info *info = calloc(1, sizeof *info);
    pd_effect *effect;
    pd_error err;
    int rc = info == NULL ? pd_fail(&err, PD_NO_MEMORY, "out of memory for the list") : fill(info, store, request, &err);

    if (rc != PD_OK) {
        pd_info_free(info);
        pd_store_refuse(store, request, &err);
        return;
    }
    effect = pd_answer(request, PD_EFF_INFO);
    effect->u.info = info;
    pd_effects_add(&store->outbox, effect);
    pd_request_free(request);
}
