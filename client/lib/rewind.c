/* rewind.c - ends a client handle whose server has gone back to an earlier step, and opens it again at that step. */
#include "recoveries.h"

#include "core.h"
#include "feedback.h"
#include "leased.h"
#include "mutant.h"
#include "replace.h"
#include "window.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool pd_core_lacks_weights(const pd_core *core)
{
    for (size_t i = 0; i < core->n_params; i++) {
        const pd_param_record *record = &core->params[i];
        /* What this rank has given to a mean may be given up before there is a mean: then all give theirs again. */
        bool had = record->landed || (record->initialised && !core->averages_init);
        if (had && record->missing) return true;
    }
    return false;
}

static bool is_behind(const pd_core *core, const pd_param_record *record)
{
    return record->initialised && (record->server_step < record->step || pd_replace_is_lost(core, record));
}

bool pd_core_is_behind(const pd_core *core)
{
    for (size_t i = 0; i < core->n_params; i++)
        if (is_behind(core, &core->params[i])) return true;
    return false;
}

bool pd_core_is_ahead(const pd_core *core)
{
    uint64_t most = core->progress.closing, told = 0;
    bool knows = false;

    for (size_t i = 0; i < core->n_params; i++) {
        const pd_param_record *record = &core->params[i];
        if (!pd_has_elements(record) || !record->initialised) continue;
        knows = true;
        if (record->step > most) most = record->step;
        if (record->pushed > most) most = record->pushed;
        if (record->server_step > told) told = record->server_step;
    }
    return knows && told > most + 1 && !PD_MUTANT(ahead_is_progress);
}

const pd_param_record *pd_core_furthest_behind(const pd_core *core)
{
    const pd_param_record *found = &core->params[0];

    for (size_t i = 1; i < core->n_params; i++) {
        const pd_param_record *record = &core->params[i];
        if (is_behind(core, record) &&
            (!is_behind(core, found) || record->step - record->server_step > found->step - found->server_step))
            found = record;
    }
    return found;
}

void pd_core_go_back(pd_core *core, const char *why)
{
    const pd_param_record *record = pd_core_furthest_behind(core);
    pd_error error;

    if (core->end.error.code != PD_OK) return;
    pd_fail(&error, PD_REWIND,
            "the server has gone back to step %" PRIu64 " of job %.160s: it was started anew from a checkpoint; this "
            "worker had taken step %" PRIu64 "%.250s. " PD_REWIND_CALL " goes on from there",
            record->server_step, core->setup.job, record->step, why);
    pd_core_end(core, &error);
    core->end.gone_back = true;
    core->stats.rewinds += core->recovery.went_back;
    core->recovery.went_back = false;
}

/* Returns whether this process has a push without an answer for a step that the server has closed. */
static bool is_decided(const pd_core *core)
{
    bool decided = false;

    for (size_t i = 0; i < core->n_params; i++) {
        uint64_t step = pd_core_begun(core, core->params[i].fragment);
        decided = decided || (core->params[i].server_step >= step && core->params[i].step < step);
    }
    return decided;
}

static bool has_pushed(const pd_core *core)
{
    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].pushed > 0) return true;
    return core->progress.closing > 0;
}

bool pd_core_is_new(const pd_core *core)
{
    return core->setup.shards > 1 && !core->begun;
}

bool pd_core_begins_anew(const pd_core *core)
{
    return !core->declared || pd_core_is_new(core) || pd_core_recreates(core) || core->recovery.rewinding;
}

bool pd_core_gives_up(pd_core *core, const Paramd__DeclareReply *reply)
{
    /* The other shards of a cluster know this worker by its earlier rank. */
    bool moved = core->recovery.moved && (has_pushed(core) || core->setup.shards > 1);
    bool swapped =
        pd_leased_has_lost(core, reply->leases, reply->n_leases) && !pd_core_is_behind(core) && !is_decided(core);
    pd_error error;

    core->recovery.moved = false;
    if ((!moved && !swapped) || core->end.error.code != PD_OK) return false;
    pd_fail(&error, PD_REWIND,
            "the server has given %s of this worker of job %.160s to others while it was away, and it is rank %" PRIu32
            " now: what it has pushed and was not counted is given up. " PD_REWIND_CALL " goes on from the job's step",
            moved ? "the rank" : "shares of the data", core->setup.job, core->setup.rank);
    pd_core_end(core, &error);
    core->end.gone_back = true;
    return true;
}

bool pd_core_loses_rank(pd_core *core, const pd_error *error)
{
    pd_error rewind;

    if (error->code != PD_ABORTED || !core->setup.any_rank || core->setup.shard == 0) return false;
    if (pd_core_begins_anew(core)) return false;
    pd_fail(&rewind, PD_REWIND, "%.400s. " PD_REWIND_CALL " goes on with the rank that shard 0 gives", error->text);
    pd_core_end(core, &rewind);
    core->end.gone_back = true;
    return true;
}

bool pd_core_left_course(pd_core *core, uint64_t course)
{
    if (course == core->recovery.course) return false;
    pd_core_go_back(core, "; it takes other steps from here on, as a worker that had counted has not come back");
    return true;
}

bool pd_core_changes_course(pd_core *core, uint64_t course)
{
    if (course == core->recovery.course) return false;
    if (pd_core_is_behind(core)) return pd_core_left_course(core, course);
    core->recovery.course = course;
    return false;
}

bool pd_core_window_helps(pd_core *core)
{
    uint64_t had = 0, needed = 0;
    char why[160] = "";

    for (size_t i = 0; i < core->n_params; i++) {
        bool reaches = core->params[i].elsewhere || pd_window_reaches(core, &core->params[i], &had, &needed);

        if (pd_replace_is_lost(core, &core->params[i]))
            snprintf(why, sizeof why, "; it has lost weights that were replaced after step %" PRIu64,
                     core->params[i].replaced);
        else if (reaches)
            continue;
        else if (core->window.steps > 0)
            snprintf(why, sizeof why, "; its window has the pushes of %" PRIu64 " steps, and %" PRIu64 " are needed",
                     had, needed);
        pd_core_go_back(core, why);
        return false;
    }
    return true;
}

/* Forgets what belongs to the steps that the server has lost. Keeps the parameters' step numbers until the server
 * reports its own: if the job turns out to be lost, it is restarted from them. */
static void forget_steps(pd_core *core)
{
    for (size_t i = 0; i < core->n_params; i++) {
        pd_param_record *record = &core->params[i];

        pd_core_forget_versions(record);
        if (pd_feedback_forget(record)) core->recovery.forgot_rest = true;
        record->pushed = record->answered = record->refused = record->server_step = record->replaces = 0;
    }
    core->progress.barriers = core->progress.passed;
    core->progress.closing = core->progress.ended = core->progress.common = 0;
    core->progress.n_reported = 0;
    for (uint32_t f = 0; f < core->n_fragments; f++) core->progress.pushing[f] = 0;
    core->recovery.resending = false;
    pd_leased_forget(&core->shares);
    pd_window_clear(core);
}

void pd_core_send_back(pd_core *core)
{
    pd_error error;

    if (core->end.error.code != PD_OK) return;
    pd_fail(&error, PD_REWIND,
            "job %.160s goes back to a step that all shards of its cluster have. " PD_REWIND_CALL " goes on from there",
            core->setup.job);
    pd_core_end(core, &error);
    core->end.gone_back = true;
}

int pd_core_rewind(pd_core *core, pd_ticket_id *ticket, pd_error *err)
{
    pd_op *op;

    if (core->end.error.code != PD_OK && !core->end.gone_back) {
        if (err != NULL) *err = core->end.error;
        return core->end.error.code;
    }
    if (!core->end.gone_back)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "the server has not gone back to an earlier step of job %.160s: " PD_REWIND_CALL
                       " is for a call "
                       "that ended with PD_REWIND",
                       core->setup.job);
    if ((op = pd_op_new(core, PD_DECLARE)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    core->declare_ticket = *ticket = op->id;
    forget_steps(core);
    core->end.error = (pd_error){ .code = PD_OK };
    core->end.gone_back = false;
    core->recovery.rewinding = true;
    core->link.alone_ns = 0;
    core->link.retry_ns = 0;
    return PD_OK;
}
