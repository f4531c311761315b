/* header_image.c - writes and reads the header of an image: ranks, step groups, clip and overrides, with one table of
 * fields each for both directions. */
#include "header_image.h"

#include "checkpoint_policy.h"
#include "consistent_cut.h"
#include "declared_job.h"
#include "fragment_ranks.h"
#include "global_clip.h"
#include "job.h"
#include "members_image.h"
#include "membership.h"
#include "mutant.h"
#include "override.h"
#include "text.h"
#include "settle.h"
#include "shares.h"
#include "step_group.h"
#include "wal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { IDENTITY_MOST = 255 }; /* most bytes of an identity */

static const pd_field job_fields[] = { PD_FIELD(pd_job_saved, creator),
                                       PD_FIELD(pd_job_saved, barrier),
                                       PD_FIELD(pd_job_saved, refused),
                                       PD_FIELD(pd_job_saved, duplicates),
                                       { 0 } };
static const pd_table job_table = { "job", sizeof(pd_job_saved), job_fields };

static const pd_field rank_fields[] = { PD_FIELD(pd_rank_saved, nonce),
                                        PD_FIELD(pd_rank_saved, process),
                                        PD_FIELD(pd_rank_saved, present),
                                        PD_FIELD(pd_rank_saved, sealed),
                                        PD_FIELD(pd_rank_saved, superseded),
                                        PD_FIELD(pd_rank_saved, n_superseded),
                                        PD_FIELD(pd_rank_saved, initialiser),
                                        PD_FIELD(pd_rank_saved, step),
                                        PD_FIELD(pd_rank_saved, contributions),
                                        PD_FIELD(pd_rank_saved, barrier_base),
                                        { 0 } };
static const pd_table rank_table = { "rank", sizeof(pd_rank_saved), rank_fields };

static const pd_field steps_fields[] = {
    PD_FIELD(pd_steps_saved, contributions), PD_FIELD(pd_steps_saved, steps),         PD_FIELD(pd_steps_saved, skipped),
    PD_FIELD(pd_steps_saved, refused_steps), PD_FIELD(pd_steps_saved, skipped_whole), { 0 }
};
static const pd_table steps_table = { "steps", sizeof(pd_steps_saved), steps_fields };

static const pd_field group_fields[] = { PD_FIELD(pd_step_group_saved, base),
                                         PD_FIELD(pd_step_group_saved, unknown),
                                         PD_FIELD(pd_step_group_saved, missed),
                                         PD_FIELD(pd_step_group_saved, brought),
                                         { 0 } };
static const pd_table group_table = { "step group", sizeof(pd_step_group_saved), group_fields };

static const pd_field clip_fields[] = { PD_FIELD(pd_global_clip_saved, last),
                                        PD_FIELD(pd_global_clip_saved, clipped),
                                        { 0 } };
static const pd_table clip_table = { "clip", sizeof(pd_global_clip_saved), clip_fields };

static const pd_field outlier_fields[] = { PD_FIELD(pd_global_clip_saved, outliers),
                                           PD_FIELD(pd_global_clip_saved, norms.step),
                                           PD_FIELD(pd_global_clip_saved, norms.norm),
                                           { 0 } };
static const pd_table outlier_table = { "outliers", sizeof(pd_global_clip_saved), outlier_fields };

static const pd_field owner_fields[] = { PD_FIELD_IN(pd_job, owner_identity, 0, IDENTITY_MOST), { 0 } };
static const pd_table owner_table = { "owner", sizeof(pd_job), owner_fields };

static const pd_field identity_fields[] = { PD_FIELD_IN(pd_rank, identity, 0, IDENTITY_MOST), { 0 } };
static const pd_table identity_table = { "identity", sizeof(pd_rank), identity_fields };

static const pd_field run_fields[] = { PD_FIELD_IN(pd_job, run, 0, PD_RUN_MAX), { 0 } };
static const pd_table run_table = { "run", sizeof(pd_job), run_fields };

static const pd_field set_fields[] = { PD_FIELD(pd_fragment_rank_saved, last),
                                       PD_FIELD(pd_fragment_rank_saved, counted),
                                       { 0 } };
static const pd_table set_table = { "counted push", sizeof(pd_fragment_rank_saved), set_fields };

static const pd_field left_fields[] = { PD_FIELD(pd_rank, saved.left), { 0 } };
static const pd_table left_table = { "left", sizeof(pd_rank), left_fields };

enum { MOST_PATTERN = PD_NAME_MAX, MOST_VALUE = 4096 };

/* An override in an image. The names of fields are those of pd_override, except `rule`, `scheduled` and `value`. */
typedef struct record {
    uint32_t rule;                       /* index of the optimizer rule whose parameters use the override */
    uint64_t mask, withdrawn, scheduled; /* `scheduled`: bits of the hyperparameters that follow a schedule */
    double value[PD_MAX_HYPERS];         /* values of the hyperparameters that do not follow a schedule */
    char *pattern;
    char by[128];
    bool planned, overruled;
} record;

static const pd_field record_fields[] = { PD_FIELD(record, rule),      PD_FIELD(record, mask),
                                          PD_FIELD(record, withdrawn), PD_FIELD(record, scheduled),
                                          PD_FIELD(record, value),     PD_FIELD_IN(record, pattern, 0, MOST_PATTERN),
                                          PD_FIELD(record, by),        PD_FIELD(record, planned),
                                          PD_FIELD(record, overruled), { 0 } };
static const pd_table record_table = { "override", sizeof(record), record_fields };

/* The use of an override by one parameter, in an image. */
typedef struct entry {
    uint32_t number;     /* index of the override in the image */
    uint64_t from, mask; /* first step to which it applies; bit h: it applies to hyperparameter h */
} entry;
static const pd_field entry_fields[] = { PD_FIELD(entry, number), PD_FIELD(entry, from), PD_FIELD(entry, mask), { 0 } };
static const pd_table entry_table = { "entry", sizeof(entry), entry_fields };

/* A schedule of an override, as text. */
typedef struct schedule_text {
    char *text;
} schedule_text;
static const pd_field schedule_fields[] = { PD_FIELD_IN(schedule_text, text, 0, MOST_VALUE), { 0 } };
static const pd_table schedule_table = { "schedule", sizeof(schedule_text), schedule_fields };

/* Finds all overrides of the job, in the order of the parameters that use them, and returns their number. If `all` is
 * not NULL, all[i] becomes override i, and rules[i] the index of the optimizer rule whose parameters use it. */
static size_t number_all(pd_job *job, pd_override **all, uint32_t *rules)
{
    size_t n = 0;

    for (uint32_t i = 0; i < job->steps.n_params; i++)
        for (uint32_t k = 0; k < job->steps.params[i].overrides.n; k++)
            job->steps.params[i].overrides.at[k].override->number = UINT32_MAX;
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        for (uint32_t k = 0; k < job->steps.params[i].overrides.n; k++) {
            pd_override *override = job->steps.params[i].overrides.at[k].override;
            if (override->number != UINT32_MAX) continue;
            override->number = (uint32_t)n;
            if (all != NULL) {
                all[n] = override;
                rules[n] = (uint32_t)(job->steps.params[i].rule - job->steps.rules);
            }
            n++;
        }
    return n;
}

static void write_one(pd_archive *archive, const pd_override *override, uint32_t rule)
{
    uint64_t scheduled = override->mask & ~override->withdrawn & override->hypers.scheduled;
    record r = { .rule = rule,
                 .mask = override->mask,
                 .withdrawn = override->withdrawn,
                 .scheduled = scheduled,
                 .pattern = override->pattern,
                 .planned = override->planned,
                 .overruled = override->overruled };

    memcpy(r.value, override->hypers.value, sizeof r.value);
    memcpy(r.by, override->by, sizeof r.by);
    pd_archive_fields(archive, &record_table, &r);
    for (int h = 0; h < PD_MAX_HYPERS; h++) {
        schedule_text s = { NULL };
        if ((scheduled >> h & 1) == 0) continue;
        s.text = (char *)(uintptr_t)pd_hypers_text(&override->hypers, h, NULL, 0);
        pd_archive_fields(archive, &schedule_table, &s);
    }
}

static void write_all(pd_archive *archive, pd_job *job, size_t n)
{
    pd_override **all = calloc(n + 1, sizeof *all);
    uint32_t *rules = calloc(n + 1, sizeof *rules);

    if (all == NULL || rules == NULL) {
        pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for %zu overrides", n);
    } else {
        number_all(job, all, rules);
        for (size_t i = 0; i < n; i++) write_one(archive, all[i], rules[i]);
    }
    free(all);
    free(rules);
}

static int set_schedule(pd_archive *archive, pd_override *override, int h)
{
    const pd_hyper *hypers;
    schedule_text s = { NULL };
    pd_error err;
    size_t count;
    int rc;

    hypers = pd_optimizer_hypers(override->hypers.row, &count);
    pd_archive_fields(archive, &schedule_table, &s);
    if ((rc = pd_archive_status(archive)) == PD_OK && ((size_t)h >= count || s.text == NULL))
        rc = pd_archive_fail(archive, PD_DATA_LOSS, "no hyperparameter %d", h);
    if (rc == PD_OK && (rc = pd_hypers_set(&override->hypers, hypers[h].name, s.text, &err)) != PD_OK)
        pd_archive_fail(archive, rc, "%s", err.text);
    free(s.text);
    return rc;
}

static int set_values(pd_archive *archive, pd_override *override, const record *r)
{
    for (int h = 0; h < PD_MAX_HYPERS; h++) {
        uint64_t bit = (uint64_t)1 << h;
        if ((r->mask & ~r->withdrawn & bit) == 0) continue;
        if ((r->scheduled & bit) == 0) {
            override->hypers.value[h] = r->value[h];
            override->hypers.scheduled &= ~bit;
        } else if (set_schedule(archive, override, h) != PD_OK) {
            return pd_archive_status(archive);
        }
    }
    return PD_OK;
}

/* Reads an override from an image, and makes it with one reference. Returns NULL after an error, which is stored in the
 * archive. */
static pd_override *read_one(pd_archive *archive, pd_job *job)
{
    record r = { 0 };
    pd_override *override = NULL;

    pd_archive_fields(archive, &record_table, &r);
    if (pd_archive_status(archive) == PD_OK && (r.rule >= job->steps.n_rules || r.pattern == NULL))
        pd_archive_fail(archive, PD_DATA_LOSS, "an override of rule %u of %zu", r.rule, job->steps.n_rules);
    if (pd_archive_status(archive) == PD_OK) {
        override = pd_override_new(&job->steps.rules[r.rule].hypers, r.pattern, r.by, &job->counts.overrides);
        if (override == NULL) pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for an override");
    }
    free(r.pattern);
    if (override == NULL) return NULL;
    override->mask = r.mask;
    override->withdrawn = r.withdrawn;
    override->planned = r.planned;
    override->overruled = r.overruled;
    if (set_values(archive, override, &r) == PD_OK) return override;
    pd_override_drop(override);
    return NULL;
}

int pd_override_image_write(uint8_t **image, size_t *bytes, const pd_override *override, uint32_t rule, pd_error *err)
{
    pd_archive archive;

    pd_archive_begin_write(&archive);
    write_one(&archive, override, rule);
    return pd_archive_end(&archive, image, bytes, err);
}

int pd_override_image_read(pd_override **out, pd_job *job, const uint8_t *image, size_t bytes, pd_error *err)
{
    pd_archive archive;
    int rc;

    pd_archive_begin_read(&archive, image, bytes);
    *out = read_one(&archive, job);
    if ((rc = pd_archive_end(&archive, NULL, NULL, err)) == PD_OK) return PD_OK;
    pd_override_drop(*out);
    *out = NULL;
    return rc;
}

static void write_entries(pd_archive *archive, const pd_param *param)
{
    for (uint32_t k = 0; k < param->overrides.n; k++) {
        const pd_override_entry *from = &param->overrides.at[k];
        entry e = { from->override->number, from->from, from->mask };
        pd_archive_fields(archive, &entry_table, &e);
    }
}

static void read_entries(pd_archive *archive, pd_param *param, size_t n, pd_override *const *all, size_t n_all)
{
    for (size_t k = 0; k < n && pd_archive_status(archive) == PD_OK; k++) {
        entry e = { 0 };
        pd_error err;
        pd_archive_fields(archive, &entry_table, &e);
        if (pd_archive_status(archive) != PD_OK) return;
        if (e.number >= n_all || all[e.number]->hypers.row != param->rule->hypers.row)
            pd_archive_fail(archive, PD_DATA_LOSS, "%.160s: override %u does not fit", param->name, e.number);
        else if (pd_overrides_reserve(param, &err) != PD_OK)
            pd_archive_fail(archive, err.code, "%s", err.text);
        else {
            all[e.number]->refs++;
            param->overrides.n = pd_overrides_insert(param->overrides.at, param->overrides.n,
                                                     (pd_override_entry){ all[e.number], e.from, e.mask });
        }
    }
}

static void visit_entries(pd_archive *archive, pd_job *job, pd_override *const *all, size_t n_all)
{
    for (uint32_t i = 0; i < job->steps.n_params && pd_archive_status(archive) == PD_OK; i++) {
        pd_param *param = &job->steps.params[i];
        size_t n = param->overrides.n;
        pd_archive_count(archive, &n, PD_MAX_PARAM_OVERRIDES, 1);
        if (pd_archive_is_reading(archive))
            read_entries(archive, param, n, all, n_all);
        else
            write_entries(archive, param);
    }
}

static void read_all(pd_archive *archive, pd_job *job, size_t n)
{
    pd_override **all = calloc(n + 1, sizeof *all);
    size_t made = 0;

    if (all == NULL) pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for %zu overrides", n);
    while (all != NULL && made < n && (all[made] = read_one(archive, job)) != NULL) made++;
    if (made == n) visit_entries(archive, job, all, n);
    for (size_t i = 0; i < made; i++) pd_override_drop(all[i]);
    free(all);
}

/* Writes the overrides of all parameters to the archive, or reads them from it, depending on the archive's
 * direction. */
static void visit_overrides(pd_archive *archive, pd_job *job)
{
    size_t n = number_all(job, NULL, NULL);

    pd_archive_enter(archive, "overrides");
    pd_archive_count(archive, &n, PD_MAX_JOB_OVERRIDES, 1);
    if (pd_archive_is_reading(archive)) {
        read_all(archive, job, n);
    } else {
        write_all(archive, job, n);
        visit_entries(archive, job, NULL, 0);
    }
    pd_archive_leave(archive);
}

/* Returns the last step that a member of the group has closed. */
static uint64_t last_step(const pd_step_group *group)
{
    uint64_t step = 0;

    for (const pd_param *member = group->members; member != NULL; member = member->links.next_member)
        if (member->saved.step > step) step = member->saved.step;
    return step;
}

/* Returns the step after which members of the group are stopped, by a consistent cut or by the stream of steps (wal.h).
 * If nothing stops them, returns UINT64_MAX - 1. */
static uint64_t stopped_at(const pd_steps *steps, const pd_step_group *group)
{
    bool cut = steps->cut != NULL && steps->cut->quiesces, records = pd_wal_records_steps(steps);
    uint64_t step = cut ? steps->cut->step : UINT64_MAX - 1;

    /* Fragments are stopped at different steps, and no member is on its way to another one. */
    if (steps->n_fragments > 1 && (cut || records)) return last_step(group);
    return records && steps->wal->inputs.step < step ? steps->wal->inputs.step : step;
}

static void visit_group(pd_archive *archive, const pd_steps *steps, pd_step_group *group)
{
    pd_step_group_saved saved = group->saved;
    uint64_t stopped = stopped_at(steps, group);

    /* Members are stopped, and the image contains no step after that. So in the image no member has stepped in a later
     * round. */
    if (saved.unknown > stopped + 1) saved.unknown = stopped + 1;
    pd_archive_fields(archive, &group_table, &saved);
    if (pd_archive_is_reading(archive)) group->saved = saved;
}

static bool knows_identities(const pd_job *job, uint32_t ranks)
{
    bool knows = job->owner_identity != NULL;

    for (uint32_t r = 0; r < ranks; r++) knows |= job->ranks[r].identity != NULL;
    return knows;
}

static bool has_replaced(const pd_job *job)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (job->steps.params[i].change.number != 0) return true;
    return false;
}

static bool knows_run(const pd_job *job, uint32_t ranks)
{
    bool knows = job->run != NULL;

    for (uint32_t r = 0; r < ranks; r++) knows |= job->ranks[r].saved.left;
    return knows;
}

/* Writes or reads the run of the job, and which of its first `ranks` ranks have left. Images of version 0.1.0 lack this
 * section: then the run is unknown, and ranks count as lost. */
static void visit_run(pd_archive *archive, pd_job *job, uint32_t ranks)
{
    bool has = knows_run(job, ranks) || has_replaced(job) || pd_members_image_has(job);

    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : !has) return;
    pd_archive_enter(archive, "run");
    pd_archive_fields(archive, &run_table, job);
    pd_archive_records(archive, &left_table, job->ranks, ranks);
    pd_archive_leave(archive);
}

/* Writes or reads the identities of the job's owner and of its first `ranks` ranks. Images of jobs without identities,
 * and those of version 0.1.0, lack this section: then the job has no owner until a worker joins, and any identity may
 * take its ranks. */
static void visit_identities(pd_archive *archive, pd_job *job, uint32_t ranks)
{
    bool has = knows_identities(job, ranks) || knows_run(job, ranks) || has_replaced(job) || pd_members_image_has(job);

    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : !has) return;
    pd_archive_enter(archive, "identities");
    pd_archive_fields(archive, &owner_table, job);
    pd_archive_records(archive, &identity_table, job->ranks, ranks);
    pd_archive_leave(archive);
}

/* Writes or reads for each parameter the number of the replacement (job/replacement.h) that its weights come from; 0:
 * its weights were not replaced since its last step. Images may lack this section if no weights were replaced since
 * the last step. */
static void visit_replaced(pd_archive *archive, pd_job *job)
{
    bool has = has_replaced(job) || pd_members_image_has(job);

    for (uint32_t i = 0; pd_archive_is_reading(archive) && i < job->steps.n_params; i++)
        job->steps.params[i].change.number = 0;
    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : !has) return;
    pd_archive_enter(archive, "replaced");
    for (uint32_t i = 0; i < job->steps.n_params; i++) pd_archive_value(archive, &job->steps.params[i].change.number);
    pd_archive_leave(archive);
}

/* Writes or reads the course of the job, and which push of each of its first `ranks` ranks has counted last. Images
 * lack this section if the sets of the job are not open. */
static void visit_sets(pd_archive *archive, pd_job *job, uint32_t ranks)
{
    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : !pd_members_image_has(job)) return;
    pd_archive_enter(archive, "sets");
    pd_archive_value(archive, &job->saved.course);
    for (uint32_t i = 0; i < job->steps.n_fragments; i++)
        for (uint32_t r = 0; r < ranks; r++)
            pd_archive_fields(archive, &set_table, &job->steps.fragments[i].ranks[r].saved);
    pd_archive_leave(archive);
}

/* Writes or reads the leases of shares. Images lack this section if no worker uses shares. */
static void visit_shares(pd_archive *archive, pd_job *job)
{
    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : job->steps.shares == NULL) return;
    if (job->steps.shares == NULL && pd_shares_make(&job->steps.shares, job->steps.members.ranks) != PD_OK) {
        pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for shares");
        return;
    }
    pd_shares_visit(archive, job->steps.shares);
}

/* Writes or reads the state of the job, with its first `ranks` ranks. */
static void visit(pd_archive *archive, pd_job *job, uint32_t ranks)
{
    pd_archive_enter(archive, "job");
    pd_archive_fields(archive, &job_table, &job->saved);
    pd_archive_fields(archive, &steps_table, &job->steps.saved);
    for (uint32_t r = 0; r < ranks; r++) pd_archive_fields(archive, &rank_table, &job->ranks[r].saved);
    for (size_t r = 0; r < job->steps.n_rules; r++) visit_group(archive, &job->steps, &job->steps.together.groups[r]);
    if (job->steps.together.clip != NULL) pd_archive_fields(archive, &clip_table, pd_global_clip_saved_of(&job->steps));
    if (job->steps.together.clip != NULL && pd_job_values_limit(&job->steps.values, PD_JOB_KEY_SKIP_OUTLIER) > 0)
        pd_archive_fields(archive, &outlier_table, pd_global_clip_saved_of(&job->steps));
    if (job->steps.together.settle != NULL) pd_settle_visit(archive, &job->steps);
    visit_overrides(archive, job);
    visit_identities(archive, job, ranks);
    visit_run(archive, job, ranks);
    visit_replaced(archive, job);
    visit_sets(archive, job, ranks);
    pd_members_image_visit(archive, job, ranks);
    visit_shares(archive, job);
    pd_archive_leave(archive);
}

/* Sets the states of the ranks, left or lost, from the image. No worker is connected. */
static void find_left(pd_job *job)
{
    job->left = 0;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        pd_rank *rank = &job->ranks[r];
        if (!rank->saved.present) continue;
        rank->state = rank->saved.left ? PD_RANK_LEFT : PD_RANK_LOST;
        job->left += rank->saved.left;
    }
}

void pd_header_image_visit_state(pd_archive *archive, pd_job *job)
{
    bool reads = pd_archive_is_reading(archive);

    for (uint32_t i = 0; reads && i < job->steps.n_params; i++) pd_overrides_clear(&job->steps.params[i]);
    visit(archive, job, job->steps.members.ranks);
    if (reads) find_left(job);
}

void pd_header_image_visit_rankless(pd_archive *archive, pd_job *job)
{
    visit(archive, job, 0);
}

void pd_header_image_write(pd_archive *archive, pd_job *job)
{
    pd_declared_job declared;
    pd_error err;
    int rc = pd_declared_job_of(&declared, job, &err);

    if (rc != PD_OK) {
        pd_archive_fail(archive, rc, "%s", err.text);
        return;
    }
    pd_declared_job_visit(archive, &declared);
    visit(archive, job, job->steps.members.ranks);
    pd_declared_job_free(&declared);
}

static int make_job(const pd_jobs *jobs, const pd_job_env *env, const pd_declared_job *declared, pd_job **out,
                    pd_error *err)
{
    if (pd_jobs_find(jobs, declared->name) != NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION, "there is a job %.200s already: drop it before its image is read",
                       declared->name);
    return pd_declared_job_make(out, declared, env, jobs->last_number + 1, err);
}

void pd_header_image_read(pd_archive *archive, const pd_jobs *jobs, const pd_job_env *env, pd_job **out)
{
    pd_declared_job declared = { 0 };
    pd_error err;
    int rc;

    pd_declared_job_visit(archive, &declared);
    if (pd_archive_status(archive) == PD_OK) {
        if ((rc = make_job(jobs, env, &declared, out, &err)) != PD_OK) pd_archive_fail(archive, rc, "%s", err.text);
    }
    if (*out != NULL) visit(archive, *out, (*out)->steps.members.ranks);
    pd_declared_job_free(&declared);
}

/* Returns whether the step numbers of a step group fit the steps of its members. */
static bool group_fits(const pd_step_group *group)
{
    uint64_t least = UINT64_MAX, most = 0;

    for (const pd_param *member = group->members; member != NULL; member = member->links.next_member) {
        if (member->saved.step < least) least = member->saved.step;
        if (member->saved.step > most) most = member->saved.step;
    }
    return group->members == NULL || (group->saved.base == least && group->saved.unknown > least &&
                                      group->saved.unknown <= most + 1 && group->saved.missed <= least);
}

/* Sets when and why a rank that had a process is lost: its connection ended with the old server. Sets its step back to
 * `most_step`, because contributions to rounds that are open in the image are lost, and the rank sends them again. */
static void lose(pd_rank *rank, uint64_t most_step, uint64_t now_ns)
{
    if (PD_MUTANT(image_forgets_superseded)) rank->saved.n_superseded = 0;
    if (rank->saved.step > most_step) rank->saved.step = most_step;
    if (!rank->saved.present) return;
    rank->since_ns = now_ns;
    pd_text_print(rank->reason, sizeof rank->reason, "the server has started anew");
}

static int check_identity(const char *text, const pd_job *job, pd_error *err)
{
    if (text == NULL || (text[0] != '\0' && text[pd_text_printable(text, strlen(text))] == '\0')) return PD_OK;
    return pd_fail(err, PD_DATA_LOSS, "job %.100s: an identity is not printable text", job->steps.name);
}

static int check_texts(const pd_job *job, pd_error *err)
{
    int rc = check_identity(job->owner_identity, job, err);

    if (rc == PD_OK && job->run != NULL && pd_text_check("the run", job->run, err) != PD_OK) rc = PD_DATA_LOSS;
    for (uint32_t r = 0; rc == PD_OK && r < job->steps.members.ranks; r++)
        rc = check_identity(job->ranks[r].identity, job, err);
    return rc;
}

/* Checks that no push has counted before its step, or in a step that is not closed. */
static int check_sets(const pd_job *job, pd_error *err)
{
    for (uint32_t i = 0; job->steps.sets.open && i < job->steps.n_fragments; i++)
        for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
            const pd_fragment_rank_saved *saved = &job->steps.fragments[i].ranks[r].saved;
            if (saved->last <= saved->counted && saved->counted <= job->steps.fragments[i].fixed) continue;
            return pd_fail(err, PD_DATA_LOSS,
                           "job %.100s: the push of rank %u for step %" PRIu64 " has counted in step %" PRIu64
                           " of %" PRIu64,
                           job->steps.name, r, saved->last, saved->counted, job->steps.fragments[i].fixed);
        }
    return PD_OK;
}

int pd_header_image_settle(pd_job *job, uint64_t now_ns, pd_error *err)
{
    uint64_t most_step = pd_job_largest_step(job);

    if (check_texts(job, err) != PD_OK) return PD_DATA_LOSS;
    for (size_t r = 0; r < job->steps.n_rules; r++) {
        if (!group_fits(&job->steps.together.groups[r]))
            return pd_fail(err, PD_DATA_LOSS,
                           "job %.100s: the steps of the parameters of rule %zu do not fit its group", job->steps.name,
                           r);
        pd_step_group_recount(&job->steps.together.groups[r]);
    }
    pd_fragments_resume(&job->steps);
    if (check_sets(job, err) != PD_OK) return PD_DATA_LOSS;
    pd_members_settle(job);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) lose(&job->ranks[r], most_step, now_ns);
    find_left(job);
    job->timers.over_ns = now_ns;
    /* The weights are not published to the loop thread yet. */
    job->restart.unpublished = true;
    job->restart.restored = true;
    job->restart.step = pd_steps_least(&job->steps);
    /* The presets may have changed since the job was created. So workers that return must agree only in the options
     * that their Hello names. */
    job->presets = &job->steps.values;
    pd_checkpoint_policy_plan(job);
    job->timers.linger_ns = now_ns + job->steps.values.at[PD_JOB_KEY_JOB_LINGER];
    return PD_OK;
}
