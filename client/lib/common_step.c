/* common_step.c - brings all shards of a cluster to one step, after one of them has lost steps that this worker cannot
 * send again.
 *
 * All shards must show weights of one step, or gradients would be computed from weights of several. The common step is
 * the newest one to which each shard can go back, and which none has yet to reach. Several workers may look for it at
 * once, and a shard may be lost once more meanwhile. So each GoBack names the life of the shard that the worker has
 * seen: a shard that was loaded again since then refuses it, and the worker looks again.
 *
 *     look    connects anew to all shards; their answers to Declare tell where they are, and to which steps they can go
 *     ask     sends GoBack, unless all shards are at one step
 *
 * Another worker may wait meanwhile until a step is durable on all shards (pd_shards_sync). So GoBack names the durable
 * step that the worker has seen, too, and the shard where it is the lowest is asked first: once it has gone back, no
 * later step can become durable on all shards.
 *
 * Where shards move, a worker may have looked at an earlier owner of one, which lacks steps that are durable on all
 * shards now. So GoBack names the tenures of all owners: a shard that knows of a newer one refuses it, and the worker
 * asks that shard where the others are.
 *
 * A shard that is at the common step already goes back to it, too: it may have taken verdicts or gradients of the next
 * step, which is taken anew. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common_step.h"
#include "mutant.h"
#include "recoveries.h"
#include "settle_box.h"
#include "shards.h"

enum { MOST_MISSING = 5 }; /* so often a shard may lack a checkpoint that it has listed, until the worker gives up */
#define MOVE_SECONDS 10.0  /* in a cluster with an engine, it gives up only after this time: see looks_again */
#define SETTLE_SECONDS 2.0 /* a step that all shards can still close is closed after this time */

bool pd_shard_state_goes_to(const pd_shard_state *state, uint64_t step)
{
    for (size_t i = 0; i < state->n_kept; i++)
        if (state->kept[i] == step) return true;
    return state->replays && step >= state->first && step <= state->step && (state->last == 0 || step <= state->last);
}

bool pd_shard_state_reaches(const pd_shard_state *state, uint64_t step)
{
    return (state->step == step && state->top == step) || pd_shard_state_goes_to(state, step);
}

/* Returns whether `step` is a step to which all shards can go. */
static bool is_common(const pd_shard_state *states, size_t n, uint64_t step)
{
    for (size_t i = 0; i < n; i++)
        if (step > states[i].step || !pd_shard_state_reaches(&states[i], step)) return false;
    return true;
}

/* Makes `candidate` the step that was found, if it is common, and newer than the one before. */
static void try_step(const pd_shard_state *states, size_t n, uint64_t candidate, bool *found, uint64_t *step)
{
    if ((*found && candidate <= *step) || !is_common(states, n, candidate)) return;
    *step = candidate;
    *found = true;
}

bool pd_common_step(const pd_shard_state *states, size_t n, uint64_t *step)
{
    bool found = false;

    /* The newest common step is that of a checkpoint, the one at which a shard is, or the end of a WAL. */
    for (size_t i = 0; i < n; i++) {
        try_step(states, n, states[i].step, &found, step);
        if (states[i].replays) try_step(states, n, states[i].last, &found, step);
        for (size_t k = 0; k < states[i].n_kept; k++) try_step(states, n, states[i].kept[k], &found, step);
    }
    return found;
}

bool pd_shard_goes_first(const pd_shard_state *states, size_t n, size_t number)
{
    for (size_t i = 0; i < n; i++)
        if (states[i].durable < states[number].durable) return false;
    return true;
}

bool pd_shards_are_even(const pd_shard_state *states, size_t n, uint64_t slack)
{
    uint64_t least = UINT64_MAX, most = 0;
    bool even = true;

    for (size_t i = 0; i < n; i++) {
        if (states[i].free) continue;
        if (states[i].step < least) least = states[i].step;
        if (states[i].top > most) most = states[i].top;
    }
    for (size_t i = 0; i < n && least <= most; i++)
        even = even && (!states[i].free || (states[i].step >= least && states[i].step <= most + 1));
    return even && (least >= most || most - least <= slack);
}

uint64_t pd_shards_slack(const pd_shard_state *states, size_t n, bool settles)
{
    uint64_t most = 0;
    bool lost = false;

    for (size_t i = 0; i < n; i++)
        if (!states[i].free && states[i].step > most) most = states[i].step;
    for (size_t i = 0; i < n; i++) lost = lost || (states[i].fresh && states[i].step < most);
    return settles || lost ? 0 : 1;
}

/* ---- look ---- */

/* Returns whether an earlier call that timed out has begun to look: cores have forgotten where their shards are. */
static bool is_looking(const pd_shards *shards)
{
    bool looks = false;

    for (size_t i = 0; i < shards->n; i++)
        looks = looks || shards->at[i]->restart != 0 || shards->over[PD_CALL_RECOVER][i];
    return looks;
}

/* Ends the handles of all shards, and forgets their tallies: the next steps may be taken otherwise. */
static void end_all(pd_shards *shards)
{
    for (size_t i = 0; i < shards->n; i++) {
        pd_io_enter(&shards->at[i]->io);
        pd_core_send_back(shards->at[i]->core);
        pd_io_leave(&shards->at[i]->io);
    }
    pd_settle_box_forget(shards->box);
}

void pd_shards_go_back_together(const pd_shards *shards)
{
    bool gone_back = false;

    for (size_t i = 0; !gone_back && i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        gone_back =
            shard->core->end.gone_back || (PD_MUTANT(private_rewind_resends_to_all) && shard->core->recovery.resending);
        pd_io_leave(&shard->io);
    }
    for (size_t i = 0; gone_back && i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        pd_core_send_back(shard->core);
        pd_io_leave(&shard->io);
    }
}

/* Which shards are opened again, and with which rank. */
typedef struct pd_reopened {
    bool lead, others;
    uint32_t rank; /* the others: that which shard 0 has chosen */
} pd_reopened;

/* Opens the handle of a shard again. Its core forgets what belongs to the steps that the program will take anew. */
static int reopen_one(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    const pd_reopened *reopened = arg;
    int rc;

    if (!(number == 0 ? reopened->lead : reopened->others)) return PD_OK;
    if (!reopened->lead) shard->core->setup.rank = reopened->rank;
    pd_core_send_back(shard->core);
    pd_handle_forget_calls(shard);
    rc = pd_core_rewind(shard->core, &shard->restart, err);
    shard->rewinding = rc == PD_OK;
    return rc;
}

/* Returns whether the shard takes the parameter's steps together with those of others. Model state is averaged as soon
 * as all ranks have given it. */
static bool is_coupled(const pd_param_record *record)
{
    return !record->elsewhere && !record->model_state;
}

static pd_shard_state read_state(pd_client *shard)
{
    pd_shard_state state = { .step = UINT64_MAX };
    const pd_core *core = shard->core;

    pd_io_enter(&shard->io);
    state.life = core->life;
    state.tenure = core->tenure;
    state.durable = core->durable;
    state.n_kept = core->n_kept;
    for (size_t i = 0; i < core->n_kept; i++) state.kept[i] = core->kept[i];
    state.free = core->settles;
    for (size_t i = 0; i < core->n_params; i++) state.free = state.free && !is_coupled(&core->params[i]);
    state.replays = core->replays;
    state.first = core->first;
    state.last = core->last;
    state.fresh = core->fresh;
    for (size_t i = 0; i < core->n_params; i++) {
        const pd_param_record *record = &core->params[i];
        if (record->elsewhere || (!state.free && core->settles && !is_coupled(record))) continue;
        if (record->server_step < state.step) state.step = record->server_step;
        if (core->settles && record->server_step > state.top) state.top = record->server_step;
    }
    if (!core->settles) state.top = state.step;
    pd_io_leave(&shard->io);
    return state;
}

/* Reads where the shards are, as their last answers to Declare told. NULL: out of memory. */
static pd_shard_state *read_states(const pd_shards *shards)
{
    pd_shard_state *states = calloc(shards->n, sizeof *states);

    for (size_t i = 0; states != NULL && i < shards->n; i++) states[i] = read_state(shards->at[i]);
    return states;
}

static int reopen(pd_client *client, pd_reopened *reopened, double end, pd_error *err)
{
    return pd_shards_carry_out(client, PD_CALL_RECOVER, offsetof(pd_client, restart), reopen_one, reopened, end, err);
}

/* Returns whether an earlier call that timed out has begun to open the shards after the first one. */
static bool opens_others(const pd_shards *shards)
{
    bool opens = false;

    for (size_t i = 1; i < shards->n; i++) opens = opens || shards->at[i]->restart != 0;
    return opens;
}

int pd_shards_reopen(pd_client *client, double end, pd_error *err)
{
    pd_shards *shards = client->shards;
    pd_reopened reopened = { .lead = true, .others = !shards->any_rank };
    pd_client *lead = shards->at[0];
    int rc = PD_OK;

    if (!is_looking(shards)) end_all(shards);
    if (reopened.others || !opens_others(shards)) rc = reopen(client, &reopened, end, err);
    if (rc != PD_OK || reopened.others) return rc;
    /* Shard 0 may have given the rank of this worker to another one, and have chosen another rank for it. */
    pd_io_enter(&lead->io);
    reopened = (pd_reopened){ .others = true, .rank = lead->core->setup.rank };
    pd_io_leave(&lead->io);
    return reopen(client, &reopened, end, err);
}

/* Connects anew to all shards, and waits until they have told where they are. */
static int look(pd_client *client, double end, pd_shard_state **states, pd_error *err)
{
    int rc = pd_shards_reopen(client, end, err);

    if (rc != PD_OK) return rc;
    *states = read_states(client->shards);
    return *states != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");
}

/* ---- ask ---- */

/* What is asked of the shards. */
typedef struct pd_asked {
    const pd_shard_state *states;
    size_t n;
    uint64_t step;
    bool first; /* those that go first are asked; false: the others */
    uint64_t tenures[PD_MAX_SHARDS];
    size_t n_tenures; /* 0: there is no engine */
} pd_asked;

/* Lists the tenures of the owners that the worker has looked at. */
static void list_tenures(pd_asked *asked)
{
    for (size_t i = 0; i < asked->n; i++) {
        asked->tenures[i] = asked->states[i].tenure;
        if (asked->tenures[i] > 0) asked->n_tenures = asked->n;
    }
}

static int ask_one(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    const pd_asked *asked = arg;
    const pd_shard_state *state = &asked->states[number];

    if (pd_shard_goes_first(asked->states, asked->n, number) != asked->first) return PD_OK;
    if (!pd_shard_state_goes_to(state, asked->step)) return PD_OK; /* its WAL has just brought it to this step */
    return pd_core_ask_back(shard->core,
                            &(pd_back_to){ asked->step, state->life, state->durable, asked->tenures, asked->n_tenures },
                            &shard->go_back, err);
}

static int ask_some(pd_client *client, pd_asked *asked, double end, pd_error *err)
{
    for (size_t i = 0; i < client->shards->n; i++) client->shards->over[PD_CALL_GO_BACK][i] = false;
    return pd_shards_carry_out(client, PD_CALL_GO_BACK, offsetof(pd_client, go_back), ask_one, asked, end, err);
}

/* Of several workers that look at once, one that is slower is refused by the first shard, and does not send those back
 * that have gone back already. */
static int ask(pd_client *client, const pd_shard_state *states, uint64_t step, double end, pd_error *err)
{
    pd_asked asked = { .states = states, .n = client->shards->n, .step = step, .first = true };
    int rc;

    list_tenures(&asked);
    rc = ask_some(client, &asked, end, err);
    asked.first = false;
    return rc == PD_OK ? ask_some(client, &asked, end, err) : rc;
}

/* Returns whether the owner of a shard may have changed. */
static bool may_have_moved(const pd_shards *shards)
{
    bool may = false;

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        may = may || shard->core->following.tenure > 0;
        pd_io_leave(&shard->io);
    }
    return may;
}

/* Returns whether the worker looks again, since it has found no step to which all shards can go. Where shards move, it
 * may still be connected to an earlier owner of one, from whose steps others have gone back. */
static bool looks_again(pd_shards *shards)
{
    double now = pd_clock_seconds();

    if (shards->missing == 0) shards->missing_since = now;
    return ++shards->missing < MOST_MISSING || (now < shards->missing_since + MOVE_SECONDS && may_have_moved(shards));
}

/* Returns whether the worker looks again after an error: another worker was faster, a connection has ended, or a
 * checkpoint was removed meanwhile. As a look takes time, it may see the steps of one shard before that, and those of
 * another after it, so that none is common. */
static bool is_passing(pd_shards *shards, int code)
{
    if (code == PD_NOT_FOUND || code == PD_DATA_LOSS) return looks_again(shards);
    return code == PD_ABORTED || code == PD_UNAVAILABLE || code == PD_REWIND || code == PD_CANCELLED;
}

/* ---- which steps must stay within reach ---- */

/* The steps that a shard has told: those of its checkpoints, and those that were durable. */
typedef struct pd_told_steps {
    uint64_t at[2 * PD_KEPT_STEPS];
    size_t n;
    bool replays; /* it can go back to any step from `unbroken` up to `durable` */
    uint64_t unbroken, durable;
} pd_told_steps;

/* Which steps count: those that are durable in the state directories, or those that the mirrors have, too. */
typedef enum pd_told_where { DURABLE, MIRRORED } pd_told_where;

/* Returns the last step that may count: without its state directory a shard can go back only as far as its mirror
 * has the job. */
static uint64_t last_counting(const pd_core_progress *progress, pd_told_where where)
{
    bool all = where == DURABLE || progress->mirrored == 0 || PD_MUTANT(common_ignores_mirror);

    return all ? UINT64_MAX : progress->mirrored - 1;
}

static void add_told(pd_told_steps *told, uint64_t step, uint64_t last)
{
    if (step <= last) told->at[told->n++] = step;
}

/* Notes the durable step, if it is new, and lists the steps that the shard has told and that count. */
static void list_told(pd_told_steps *told, pd_core *core, pd_told_where where)
{
    pd_core_progress *progress = &core->progress;
    size_t newest = (progress->n_reported + PD_KEPT_STEPS - 1) % PD_KEPT_STEPS;
    uint64_t last = last_counting(progress, where);

    if (progress->durable > 0 && (progress->n_reported == 0 || progress->reported[newest] != progress->durable))
        progress->reported[progress->n_reported++ % PD_KEPT_STEPS] = progress->durable;
    told->replays = core->replays;
    told->unbroken = progress->unbroken;
    told->durable = progress->durable < last ? progress->durable : last;
    told->n = 0;
    for (size_t i = 0; i < core->n_kept; i++) add_told(told, core->kept[i], last);
    for (size_t i = 0; i < progress->n_reported && i < PD_KEPT_STEPS; i++) add_told(told, progress->reported[i], last);
}

static bool has_told(const pd_told_steps *told, uint64_t step)
{
    for (size_t i = 0; i < told->n; i++)
        if (told->at[i] == step) return true;
    return false;
}

/* Keeps those steps that the other shard has told, too. */
static void intersect(pd_told_steps *told, const pd_told_steps *other)
{
    size_t n = 0;

    told->replays = told->replays && other->replays;
    if (other->durable < told->durable) told->durable = other->durable;
    if (other->unbroken > told->unbroken) told->unbroken = other->unbroken;
    for (size_t i = 0; i < told->n; i++)
        if (has_told(other, told->at[i]) || PD_MUTANT(common_too_high)) told->at[n++] = told->at[i];
    told->n = n;
}

/* Returns the newest step to which all shards can go back, as far as this worker knows. With MIRRORED all can do so
 * also from their mirrors. */
static uint64_t find_durable(const pd_shards *shards, pd_told_where where)
{
    pd_told_steps told = { .n = 0 }, own;
    uint64_t common = 0;

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        list_told(i == 0 ? &told : &own, shard->core, where);
        pd_io_leave(&shard->io);
        if (i > 0) intersect(&told, &own);
    }
    for (size_t i = 0; i < told.n; i++)
        if (told.at[i] > common) common = told.at[i];
    return told.replays && told.durable >= told.unbroken && told.durable > common ? told.durable : common;
}

static uint64_t find_least_durable(const pd_shards *shards)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        if (shard->core->progress.durable < least) least = shard->core->progress.durable;
        pd_io_leave(&shard->io);
    }
    return least;
}

uint64_t pd_shards_durable(const pd_shards *shards)
{
    return shards->open_sets ? find_least_durable(shards) : find_durable(shards, DURABLE);
}

void pd_shards_share_durable(const pd_shards *shards)
{
    uint64_t common;

    if (shards->open_sets) return; /* each shard goes back alone */
    common = find_durable(shards, MIRRORED);
    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        shard->core->progress.common = common;
        pd_io_leave(&shard->io);
    }
}

/* ---- both ---- */

void pd_shards_pause(double seconds)
{
    struct timespec time = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };

    while (nanosleep(&time, &time) != 0) continue;
}

/* Writes the shards that are furthest behind and furthest ahead, and what they can go back to. */
static int describe(const pd_shards *shards, const pd_shard_state *states, pd_error *err)
{
    size_t low = 0, high = 0;
    pd_error error;

    for (size_t i = 1; i < shards->n; i++) {
        if (states[i].step < states[low].step) low = i;
        if (states[i].step > states[high].step) high = i;
    }
    pd_fail(&error, PD_DATA_LOSS,
            "it is at step %" PRIu64 " and shard %zu at step %" PRIu64 ", and no step is left to which all %zu shards "
            "can go back (%zu and %zu checkpoints; checkpoint_keep says how many there are). Begin the job anew, or "
            "from an export",
            states[low].step, high, states[high].step, shards->n, states[low].n_kept, states[high].n_kept);
    pd_shards_name(shards, low, &error);
    if (err != NULL) *err = error;
    return error.code;
}

int pd_shards_out_of_time(const pd_client *client, pd_error *err)
{
    return pd_fail(err, PD_DEADLINE_EXCEEDED,
                   "waited %g s: the shards have not come to one step: other workers may look for one, too. Repeat the "
                   "call to continue",
                   client->slice);
}

/* Asks the shards to go to one step, unless they are at one. *same becomes whether they are. */
static int bring_together(pd_client *client, const pd_shard_state *states, double end, bool *same, pd_error *err)
{
    pd_error why = { .code = PD_OK };
    uint64_t step = 0;
    int rc = PD_OK;

    *same = pd_shards_are_even(states, client->shards->n, 0);
    if (*same) return PD_OK;
    if (pd_common_step(states, client->shards->n, &step))
        rc = ask(client, states, step, end, &why);
    else
        rc = describe(client->shards, states, &why);
    if (is_passing(client->shards, rc)) return PD_OK;
    if (rc != PD_OK && err != NULL) *err = why;
    return rc;
}

/* Takes one look, and asks where that is necessary. *same becomes whether all shards are at one step. */
static int try(pd_client *client, double end, bool *same, pd_error *err)
{
    pd_shard_state *states = NULL;
    int rc = look(client, end, &states, err);

    *same = false;
    if (rc == PD_REWIND) return PD_OK; /* a shard has gone back once more */
    if (rc != PD_OK) return rc;
    rc = bring_together(client, states, end, same, err);
    free(states);
    return rc;
}

int pd_shards_find_common(pd_client *client, double end, pd_error *err)
{
    bool same;

    for (unsigned tries = 0;; tries++) {
        int rc = try(client, end, &same, err);
        if (rc != PD_DEADLINE_EXCEEDED && (rc != PD_OK || same)) client->shards->missing = 0;
        if (rc != PD_OK || same) return rc;
        if (pd_clock_seconds() >= end) return pd_shards_out_of_time(client, err);
        pd_shards_pause(tries < 5 ? 0.01 : 0.1);
    }
}

/* The steps that this worker has taken of some parameters; least > most: of none. */
typedef struct pd_taken {
    uint64_t least, most;
} pd_taken;

static void take_in(pd_taken *taken, const pd_taken *more)
{
    if (more->least < taken->least) taken->least = more->least;
    if (more->most > taken->most) taken->most = more->most;
}

/* Finds the steps of the parameters of which this rank has elements on a shard: of those with gradients, or of model
 * state. */
static pd_taken find_taken(const pd_core *core, bool model_state)
{
    pd_taken taken = { UINT64_MAX, 0 };

    for (size_t i = 0; i < core->n_params; i++) {
        const pd_param_record *record = &core->params[i];
        if (pd_has_elements(record) && record->model_state == model_state)
            take_in(&taken, &(pd_taken){ record->step, record->step });
    }
    return taken;
}

/* Returns whether the parameters of which this rank has elements are at one step on all shards. A shard that has model
 * state alone may be ahead, but not behind, as it is where it has lost the job and begun it anew. */
static bool are_of_one_step(const pd_shards *shards)
{
    pd_taken all = { UINT64_MAX, 0 }, states = all;

    for (size_t s = 0; s < shards->n; s++) {
        pd_client *shard = pd_handle_enter(shards->at[s]);
        pd_taken own = find_taken(shard->core, false), state = find_taken(shard->core, true);

        pd_io_leave(&shard->io);
        take_in(&all, &own);
        if (own.least > own.most) take_in(&states, &state);
    }
    return all.least > all.most || (all.least == all.most && states.least >= all.least);
}

int pd_shards_even_out(pd_client *client, double end, bool *even, pd_error *err)
{
    pd_shards *shards = client->shards;
    double now = pd_clock_seconds();
    int rc;

    *even = !shards->seeks && (!pd_shards_settle(shards) || are_of_one_step(shards));
    if (*even || shards->uneven == 0) shards->uneven = *even ? 0 : now;
    if (*even) return PD_OK;
    if (now - shards->uneven < SETTLE_SECONDS && !shards->seeks) {
        if (now >= end) return pd_shards_out_of_time(client, err);
        pd_shards_pause(0.02);
        return PD_OK;
    }
    rc = pd_shards_find_common(client, end, err);
    shards->seeks = rc == PD_DEADLINE_EXCEEDED;
    if (!shards->seeks) shards->uneven = 0;
    return rc;
}

static bool are_apart(const pd_shards *shards, const pd_shard_state *states)
{
    return !pd_shards_are_even(states, shards->n, pd_shards_slack(states, shards->n, pd_shards_settle(shards)));
}

/* Gives shards that are at different steps time to close the same one: waits for it until `end`. Returns whether the
 * time is over. */
static bool await_settling(pd_shards *shards, double end)
{
    double now = pd_clock_seconds(), over;

    if (shards->uneven == 0) shards->uneven = now;
    over = shards->uneven + SETTLE_SECONDS;
    if (now < fmin(over, end)) pd_shards_pause(fmin(over, end) - now);
    if (pd_clock_seconds() < over) return false;
    shards->uneven = 0;
    return true;
}

int pd_shards_agree(pd_client *client, double end, pd_error *err)
{
    pd_shard_state *states;
    bool apart, same;
    int rc;

    if (!is_looking(client->shards)) {
        if ((states = read_states(client->shards)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
        apart = are_apart(client->shards, states);
        free(states);
        if (!apart) client->shards->uneven = 0;
        if (!apart) return PD_OK;
        if (!await_settling(client->shards, end)) return pd_shards_out_of_time(client, err);
    }
    if ((rc = look(client, end, &states, err)) != PD_OK) return rc;
    /* What this look has found is used: short calls of the program may never finish a second one. */
    same = !are_apart(client->shards, states);
    if (!same) rc = bring_together(client, states, end, &same, err);
    free(states);
    if (rc == PD_OK && !same) return pd_shards_find_common(client, end, err);
    if (rc != PD_DEADLINE_EXCEEDED) client->shards->missing = 0;
    return rc;
}
