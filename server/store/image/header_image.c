/* header_image.c - writes or reads the head of an image: the structs named `saved` of a job, its ranks and step groups,
 * and its overrides. */
#include "header_image.h"

#include "checkpoint_policy.h"
#include "cut.h"
#include "declared_job.h"
#include "global_clip.h"
#include "override.h"
#include "override_image.h"
#include "mutant.h"
#include "text.h"
#include "step_group.h"
#include "step_log.h"

#include <string.h>

enum { IDENTITY_MOST = 255 }; /* most bytes of an identity */

/* ---- one table of fields for each struct that is saved; writing and reading both use it ---- */

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

static const pd_field left_fields[] = { PD_FIELD(pd_rank, saved.left), { 0 } };
static const pd_table left_table = { "left", sizeof(pd_rank), left_fields };

/* ---- the head, in both directions ---- */

/* Returns the step after which parameters are stopped, by a cut (cut.h) or by the job's log (step_log.h);
 * UINT64_MAX: nothing stops them. */
static uint64_t stopped_at(const pd_steps *steps)
{
    uint64_t step = steps->cut != NULL && steps->cut->rests ? steps->cut->step : UINT64_MAX - 1;

    return pd_step_log_is_on(steps) && steps->log->step < step ? steps->log->step : step;
}

/* Returns what a step group must have in the image. While its members are
 * stopped, the steps that they will take next do not count yet. */
static pd_step_group_saved group_at_cut(const pd_steps *steps, const pd_step_group *group)
{
    pd_step_group_saved saved = group->saved;

    if (saved.unknown > stopped_at(steps) + 1) saved.unknown = stopped_at(steps) + 1;
    return saved;
}

static void visit_group(pd_archive *archive, const pd_steps *steps, pd_step_group *group)
{
    pd_step_group_saved saved = group_at_cut(steps, group);

    pd_archive_fields(archive, &group_table, &saved);
    if (pd_archive_is_reading(archive)) group->saved = saved;
}

/* ---- sections that an image may lack, in this order: one that is there brings those before it along ---- */

static bool knows_identities(const pd_job *job, uint32_t ranks)
{
    bool knows = job->owner_identity != NULL;

    for (uint32_t r = 0; r < ranks; r++) knows |= job->ranks[r].identity != NULL;
    return knows;
}

static bool has_replaced(const pd_job *job)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (job->steps.params[i].replaced != 0) return true;
    return false;
}

static bool knows_run(const pd_job *job, uint32_t ranks)
{
    bool knows = job->run != NULL;

    for (uint32_t r = 0; r < ranks; r++) knows |= job->ranks[r].saved.left;
    return knows;
}

/* Visits the run of the job, and which of its first `ranks` ranks have left. Images of version 0.1.0 lack the section:
 * the run is then not known, and ranks count as lost. */
static void visit_run(pd_archive *archive, pd_job *job, uint32_t ranks)
{
    bool has = knows_run(job, ranks) || has_replaced(job);

    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : !has) return;
    pd_archive_enter(archive, "run");
    pd_archive_fields(archive, &run_table, job);
    pd_archive_records(archive, &left_table, job->ranks, ranks);
    pd_archive_leave(archive);
}

/* Visits the identities of the job's owner and of its first `ranks` ranks. Images without them, and those of version
 * 0.1.0, lack the section: the job then has no owner until a worker comes, and any identity may take its ranks. */
static void visit_identities(pd_archive *archive, pd_job *job, uint32_t ranks)
{
    bool has = knows_identities(job, ranks) || knows_run(job, ranks) || has_replaced(job);

    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : !has) return;
    pd_archive_enter(archive, "identities");
    pd_archive_fields(archive, &owner_table, job);
    pd_archive_records(archive, &identity_table, job->ranks, ranks);
    pd_archive_leave(archive);
}

/* Visits the number of the change by hand whose weights the parameters have (job/replacement.h). Images lack the
 * section if no weights were replaced since the last step. */
static void visit_replaced(pd_archive *archive, pd_job *job)
{
    for (uint32_t i = 0; pd_archive_is_reading(archive) && i < job->steps.n_params; i++)
        job->steps.params[i].replaced = 0;
    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : !has_replaced(job)) return;
    pd_archive_enter(archive, "replaced");
    for (uint32_t i = 0; i < job->steps.n_params; i++) pd_archive_value(archive, &job->steps.params[i].replaced);
    pd_archive_leave(archive);
}

/* Visits the state of the job, with the records of its first `ranks` ranks. */
static void visit(pd_archive *archive, pd_job *job, uint32_t ranks)
{
    pd_archive_enter(archive, "job");
    pd_archive_fields(archive, &job_table, &job->saved);
    pd_archive_fields(archive, &steps_table, &job->steps.saved);
    for (uint32_t r = 0; r < ranks; r++) pd_archive_fields(archive, &rank_table, &job->ranks[r].saved);
    for (size_t r = 0; r < job->steps.n_rules; r++) visit_group(archive, &job->steps, &job->steps.groups[r]);
    if (job->steps.clip != NULL) pd_archive_fields(archive, &clip_table, pd_global_clip_saved_of(&job->steps));
    if (job->steps.clip != NULL && pd_job_values_limit(&job->steps.values, PD_JOB_KEY_SKIP_OUTLIER) > 0)
        pd_archive_fields(archive, &outlier_table, pd_global_clip_saved_of(&job->steps));
    pd_overrides_visit(archive, job);
    visit_identities(archive, job, ranks);
    visit_run(archive, job, ranks);
    visit_replaced(archive, job);
    pd_archive_leave(archive);
}

/* Derives from the state that was read which ranks have left and which are lost. No worker is connected. */
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

/* ---- writing ---- */

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

/* ---- reading ---- */

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

/* ---- the end of reading ---- */

/* Checks that the numbers of a step group fit the steps of its members. */
static bool group_fits(const pd_step_group *group)
{
    uint64_t least = UINT64_MAX, most = 0;

    for (const pd_param *member = group->members; member != NULL; member = member->next_member) {
        if (member->saved.step < least) least = member->saved.step;
        if (member->saved.step > most) most = member->saved.step;
    }
    return group->members == NULL || (group->saved.base == least && group->saved.unknown > least &&
                                      group->saved.unknown <= most + 1 && group->saved.missed <= least);
}

static uint64_t largest_step(const pd_job *job)
{
    uint64_t step = 0;

    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (job->steps.params[i].saved.step > step) step = job->steps.params[i].saved.step;
    return step;
}

/* Marks a rank that had a process as lost, because its connection ended with the old server, unless it has left. What
 * it has contributed to rounds that are not closed in the image is lost, too, and comes again. */
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
    return pd_fail(err, PD_DATA_LOSS, "job %.100s: an identity is no printable text", job->steps.name);
}

static int check_texts(const pd_job *job, pd_error *err)
{
    int rc = check_identity(job->owner_identity, job, err);

    if (rc == PD_OK && job->run != NULL && pd_text_check("the run", job->run, err) != PD_OK) rc = PD_DATA_LOSS;
    for (uint32_t r = 0; rc == PD_OK && r < job->steps.members.ranks; r++)
        rc = check_identity(job->ranks[r].identity, job, err);
    return rc;
}

int pd_header_image_settle(pd_job *job, uint64_t now_ns, pd_error *err)
{
    uint64_t most_step = largest_step(job);

    if (check_texts(job, err) != PD_OK) return PD_DATA_LOSS;
    for (size_t r = 0; r < job->steps.n_rules; r++) {
        if (!group_fits(&job->steps.groups[r]))
            return pd_fail(err, PD_DATA_LOSS,
                           "job %.100s: the steps of the parameters of rule %zu do not fit its group", job->steps.name,
                           r);
        pd_step_group_recount(&job->steps.groups[r]);
    }
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) lose(&job->ranks[r], most_step, now_ns);
    find_left(job);
    job->over_ns = now_ns;
    /* The loop thread has none of the job's weights yet. */
    job->unpublished = true;
    job->restored = true;
    /* The presets may have changed since. Workers that come back must agree only with what they name. */
    job->presets = &job->steps.values;
    pd_checkpoint_policy_plan(job);
    job->linger_ns = now_ns + job->steps.values.at[PD_JOB_KEY_JOB_LINGER];
    return PD_OK;
}
