/* sim_cluster.c - judges a run on several servers: all that shards publish has the bits of an undisturbed twin on one
 * server, nothing durable is lost, and no shard goes back that need not. */
#include "sim_cluster.h"

#include "server_state.h"
#include "sim_owner.h"
#include "sim_judge.h"
#include "sim_readouts.h"
#include "sim_twin.h"
#include "store_inside.h"

/* ---- the twin ---- */

void sim_cluster_gradient(const sim_job *job, uint32_t rank, uint64_t step, uint32_t p, float *const *weights,
                          float *out)
{
    int64_t start, end;
    float mixed = 0;

    sim_gradient(job, rank, step, p, false, out);
    for (uint32_t i = 0; job->mixes && i < job->n_params; i++) {
        sim_range(job, &job->params[i], rank, &start, &end);
        if (end > start && !job->params[i].model_state) mixed += weights[i][(end - start) / 2] * (float)(1 + i % 3);
    }
    sim_range(job, &job->params[p], rank, &start, &end);
    for (int64_t i = 0; i < end - start; i++) out[i] += mixed / 64;
}

static void keep(rig *r, const sim_job *job, sim_cluster_job *to, uint64_t step)
{
    for (uint32_t p = 0; p < job->n_params; p++) {
        size_t bytes = (size_t)job->params[p].n * sizeof(float);
        const rig_entry *twin = rig_versions(r, r->job, p);

        if (twin->step != step) sim_fail("harness", "the twin has not taken step %llu", (unsigned long long)step);
        to->weights[step][p] = sim_must(malloc(bytes + 1));
        memcpy(to->weights[step][p], rig_weights(r, r->job, p), bytes);
        to->outcome[step][p] = (int)twin->outcome;
        if (!sim_averages(job)) continue;
        to->readouts[step][p] = sim_must(malloc(bytes + 1));
        sim_readouts_of_twin(r, job, p, to->readouts[step][p]);
    }
}

static void begin_twin(rig *r, const sim_job *job, float *values)
{
    for (uint32_t p = 0; p < job->n_params; p++)
        for (uint32_t rank = 0; rank < job->world; rank++) {
            if (rank > 0 && !job->params[p].ranged && !job->mean_init) continue;
            sim_initial(job, rank, 0, p, values);
            sim_twin_send(r, PD_REQ_INIT, job, rank, 0, 1, NULL, p, values, 0);
        }
}

static void step_twin(rig *r, const sim_job *job, const sim_cluster_job *of, uint64_t step, float *values)
{
    for (uint32_t rank = 0; rank < job->world; rank++) {
        float *own[SIM_PARAMS]; /* the weights that the rank has */
        for (uint32_t p = 0; p < job->n_params; p++) {
            int64_t start, end;
            sim_range(job, &job->params[p], rank, &start, &end);
            own[p] = of->weights[step - 1][p] + start;
        }
        for (uint32_t p = 0; p < job->n_params; p++) {
            if (!sim_has_gradient(job, rank, step, p)) {
                sim_twin_skip(r, job, rank, step, p);
                continue;
            }
            sim_cluster_gradient(job, rank, step, p, own, values);
            sim_twin_send(r, PD_REQ_PUSH, job, rank, step, sim_weight(job, rank, step), NULL, p, values, 0);
        }
    }
    rig_work(r);
}

static void run_twin(const sim *s, const sim_job *job, sim_cluster_job *of)
{
    static rig r;
    int64_t most = 0;
    float *values;

    for (uint32_t p = 0; p < job->n_params; p++)
        if (job->params[p].n > most) most = job->params[p].n;
    values = sim_must(calloc((size_t)most + 1, sizeof *values));
    sim_twin_begin(&r, job, s->plan->chunk);
    begin_twin(&r, job, values);
    keep(&r, job, of, 0);
    for (uint64_t step = 1; step <= job->steps; step++) {
        step_twin(&r, job, of, step, values);
        keep(&r, job, of, step);
    }
    rig_free(&r);
    free(values);
}

/* ---- what shards publish ---- */

/* Returns the job of the plan with this name; NULL: there is none. */
static const sim_job *job_of(const sim *s, const char *name)
{
    for (uint32_t j = 0; j < s->plan->n_jobs; j++)
        if (strcmp(s->plan->jobs[j].name, name) == 0) return &s->plan->jobs[j];
    return NULL;
}

static void check_closed(const sim *s, uint32_t shard, const sim_job *job, const pd_param *param,
                         const pd_closed *closed)
{
    const sim_cluster_job *of = &s->cluster->jobs[job->number];
    const pd_published *published = closed->published;
    float *const *twin;

    if (closed->step > job->steps || (published != NULL && published->version > job->steps))
        sim_fail("exactly once", "shard %u: %s takes step %llu of %llu", shard, param->name,
                 (unsigned long long)closed->step, (unsigned long long)job->steps);
    if (of->loose) return;
    if (closed->outcome != 0 && (int)closed->outcome != of->outcome[closed->step][param->declared])
        sim_fail("exactly once", "shard %u: step %llu of %s has outcome %d, the undisturbed twin %d", shard,
                 (unsigned long long)closed->step, param->name, (int)closed->outcome,
                 of->outcome[closed->step][param->declared]);
    if (published == NULL) return;
    twin = closed->read_out ? of->readouts[published->version] : of->weights[published->version];
    if (memcmp(published->at[PD_F32], twin[param->declared] + param->origin, (size_t)param->elements * sizeof(float)) !=
        0)
        sim_fail(closed->read_out ? "evaluation" : "exactly once",
                 "shard %u: the weights of %s after step %llu have other bits than those of the twin", shard,
                 param->name, (unsigned long long)published->version);
}

static void note_durable(const sim *s, uint32_t shard, sim_cluster_job *of, const char *name, uint64_t step)
{
    uint64_t back = s->cluster->went_back[shard];

    if (step < of->durable[shard] && of->back[shard] == back)
        sim_fail("durability", "shard %u: %s is durable at step %llu, and was at %llu", shard, name,
                 (unsigned long long)step, (unsigned long long)of->durable[shard]);
    of->durable[shard] = step;
    of->back[shard] = back;
    of->uneven = of->uneven || (!of->begun[shard] && step > 0);
    of->begun[shard] = true;
}

/* Notes the number by which a shard knows a job. Another one than before is that of a job of the same name that has
 * begun since. */
static void know(sim_cluster_job *of, uint32_t shard, uint32_t number)
{
    if (of->number[shard] == number) return;
    if (of->number[shard] != 0) of->durable[shard] = 0;
    of->number[shard] = number;
    of->ended[shard] = false;
}

bool sim_cluster_is_replaced(const sim_server *server)
{
    return server->shard >= 0 && server->s->cluster->holder[server->shard] != server;
}

/* Notes whether the mirror of a shard counts. Once it did not, it may lack the common step until it has later ones. */
static void note_lag(sim_cluster_job *of, uint32_t shard, uint64_t mirrored)
{
    if (mirrored == PD_MIRROR_LAGS)
        of->lags[shard] = true;
    else if (mirrored > of->common)
        of->lags[shard] = false;
}

/* Notes what an effect says of a job of the server that has the state of its shard. */
static void note_effect(sim *s, uint32_t shard, const pd_job *job, const sim_job *own, const pd_effect *effect)
{
    /* A job that is gone has no name any more. */
    for (uint32_t j = 0; effect->kind == PD_EFF_JOB_GONE && j < s->plan->n_jobs; j++)
        if (s->cluster->jobs[j].number[shard] == effect->job) s->cluster->jobs[j].ended[shard] = true;
    if (own == NULL) return;
    know(&s->cluster->jobs[own->number], shard, effect->job);
    s->cluster->jobs[own->number].life[shard] = job->life;
    if (job->checkpointing.common > s->cluster->jobs[own->number].common)
        s->cluster->jobs[own->number].common = job->checkpointing.common;
    if (effect->kind != PD_EFF_DURABLE) return;
    note_durable(s, shard, &s->cluster->jobs[own->number], own->name, effect->u.durable.step);
    note_lag(&s->cluster->jobs[own->number], shard, effect->u.durable.mirrored);
}

void sim_cluster_effect(const sim_server *server, const pd_effect *effect)
{
    sim *s = server->s;
    const pd_job *job = inside_job(server->store, effect->job);
    const sim_job *own = job != NULL ? job_of(s, job->steps.name) : NULL;
    uint32_t shard = (uint32_t)server->shard;

    if (server->shard < 0) return;
    if (!sim_cluster_is_replaced(server)) note_effect(s, shard, job, own, effect);
    for (size_t i = 0; own != NULL && effect->kind == PD_EFF_CLOSED && i < effect->u.closed.n; i++) {
        const pd_param *param = &job->steps.params[effect->u.closed.at[i].param];
        sim_note(s, param->name, shard, effect->u.closed.at[i].read_out ? "is read out after step" : "closes step",
                 effect->u.closed.at[i].step, effect->u.closed.at[i].outcome);
        check_closed(s, shard, own, param, &effect->u.closed.at[i]);
    }
}

/* A request to go back that comes late. */
typedef struct late_request {
    char job[16];
    uint32_t shard;
    uint64_t step, life;
} late_request;

/* Asks a shard once more to go back, as a worker whose request has been under way for long. */
static void ask_late(sim *s, void *who, uint64_t what)
{
    late_request *late = who;
    sim_side before = sim_enter(SIM_SERVER);
    sim_server *server = s->cluster->holder[late->shard];
    pd_request *request = sim_must(pd_request_new(PD_REQ_GO_BACK, (pd_ticket){ 0, 0 }));

    (void)what;
    request->u.go_back.job_name = sim_must(strdup(late->job));
    request->u.go_back.step = late->step;
    request->u.go_back.life = late->life;
    request->u.go_back.wait_ns = SIM_S;
    if (sim_server_stopped(server))
        pd_request_free(request);
    else
        sim_step_post(server, request);
    sim_enter(SIM_HARNESS);
    free(late);
    sim_enter(before);
}

void sim_cluster_goes_back(const sim_server *server)
{
    if (server->shard >= 0 && !sim_cluster_is_replaced(server)) server->s->cluster->went_back[server->shard]++;
}

void sim_cluster_went_back(const sim_server *server, const pd_go_back_order *order)
{
    sim *s = server->s;
    uint32_t shard = (uint32_t)server->shard;
    sim_side before = sim_enter(SIM_HARNESS);
    sim_cluster_job *of = &s->cluster->jobs[job_of(s, order->job)->number];
    late_request *late = sim_must(calloc(1, sizeof *late));

    /* Orders of workers remove later checkpoints, so this one was asked for by ask_late. */
    if (!order->removes) sim_fail("one life", "shard %u goes back in another life than it was asked for", shard);
    /* The mirror has later steps only as they were before. */
    if (of->mirrored[shard] > order->step) of->mirrored[shard] = order->step;
    *late = (late_request){ .shard = shard, .step = order->step, .life = of->life[shard] };
    snprintf(late->job, sizeof late->job, "%s", order->job);
    sim_after(s, sim_draw(s, 300 * SIM_MS), ask_late, late, 0);
    sim_enter(before);
}

bool sim_cluster_is_past(const sim *s, const sim_job *job, uint64_t step)
{
    for (uint32_t i = 0; i < s->plan->shards; i++) {
        const pd_job *own = inside_find(sim_server_store(s->cluster->holder[i]), job->name);
        if (own == NULL) return false;
        for (uint32_t p = 0; p < own->steps.n_params; p++)
            if (own->steps.params[p].saved.step < step) return false;
    }
    return true;
}

/* Returns whether an earlier owner of a shard still has the job. Processes that have begun it there, when the new owner
 * had no state of it, do not find it again: it has another number. */
static bool is_doubled(const sim *s, uint32_t shard, const sim_job *job)
{
    bool doubled = false;

    for (uint32_t i = 0; i < s->n_servers; i++)
        doubled = doubled || (s->servers[i]->shard == (int)shard && sim_cluster_is_replaced(s->servers[i]) &&
                              inside_find(sim_server_store(s->servers[i]), job->name) != NULL);
    return doubled;
}

void sim_cluster_check_number(const sim *s, const sim_job *job)
{
    uint64_t number = 0;

    for (uint32_t i = 0; i < s->plan->shards && s->plan->shards > 1; i++) {
        const pd_job *own = inside_find(sim_server_store(s->cluster->holder[i]), job->name);
        if (own == NULL || is_doubled(s, i, job)) continue;
        if (number != 0 && own->saved.cluster != number)
            sim_fail("one cluster", "%s is of another cluster on shard %u than on others", job->name, i);
        number = own->saved.cluster;
    }
}

/* Kills the processes of a job. */
static void end_job(sim *s, void *who, uint64_t what)
{
    const sim_job *job = who;

    (void)what;
    for (uint32_t rank = 0; rank < job->world; rank++) {
        sim_trainee *t = sim_trainee_at(s, job->number, rank);
        if (t != NULL) sim_trainee_kill(t);
    }
}

void sim_cluster_abandon(sim *s, const sim_job *job, const char *why)
{
    if (s->cluster->jobs[job->number].abandoned) return;
    sim_note(s, job->name, 0, why, 0, 0);
    s->cluster->jobs[job->number].abandoned = true;
    sim_after(s, 0, end_job, (void *)job, 0);
}

void sim_cluster_restored(const sim_server *server)
{
    sim *s = server->s;
    uint32_t shard = (uint32_t)server->shard;

    for (uint32_t j = 0; j < s->plan->n_jobs; j++) {
        sim_cluster_job *of = &s->cluster->jobs[j];
        const pd_job *job = inside_find(server->store, s->plan->jobs[j].name);
        uint64_t step = UINT64_MAX;

        for (uint32_t i = 0; job != NULL && i < job->steps.n_params; i++)
            if (job->steps.params[i].saved.step < step) step = job->steps.params[i].saved.step;
        if (of->durable[shard] > 0 && !of->ended[shard] && of->back[shard] == s->cluster->went_back[shard] &&
            (job == NULL || step < of->durable[shard]))
            sim_fail("durability", "shard %u: %s is %s, and its step %llu was durable", shard, s->plan->jobs[j].name,
                     job == NULL ? "lost" : "at an earlier step", (unsigned long long)of->durable[shard]);
        /* A job that has lost a shard for good, and is hit once more before that is mended, is given up. */
        if (of->lasting && !of->calm && !of->finished) sim_cluster_abandon(s, &s->plan->jobs[j], "is given up");
        of->calm = of->calm && (job != NULL || of->number[shard] == 0 || of->ended[shard]);
        of->durable[shard] = 0;
        of->ended[shard] = false;
        of->number[shard] = 0;
    }
}

/* ---- mirrors ---- */

void sim_cluster_mirrored(const sim_server *server, const char *job, uint64_t step)
{
    const sim_job *own = job_of(server->s, job);

    if (own != NULL && !sim_cluster_is_replaced(server))
        server->s->cluster->jobs[own->number].mirrored[server->shard] = step;
}

bool sim_cluster_has_common(const sim *s, const sim_cluster_job *of)
{
    bool begun = true, lags = false;

    for (uint32_t i = 0; i < s->plan->shards; i++) begun = begun && of->begun[i];
    for (uint32_t i = 0; i < s->plan->shards; i++) lags = lags || of->lags[i];
    return !lags && (of->common > 0 || (begun && !of->uneven));
}

void sim_cluster_fetched(const sim_server *server)
{
    for (uint32_t j = 0; j < server->s->plan->n_jobs; j++) {
        sim_cluster_job *of = &server->s->cluster->jobs[j];
        if (of->durable[server->shard] > of->mirrored[server->shard])
            of->durable[server->shard] = of->mirrored[server->shard];
        of->calm = false; /* windows may not have the steps that were durable */
        /* Ranks that have left do not come back to take the last steps again. */
        if (of->finished && of->mirrored[server->shard] < server->s->plan->jobs[j].steps)
            sim_cluster_abandon(server->s, &server->s->plan->jobs[j], "has lost its last steps");
    }
}

uint64_t sim_cluster_acked(const sim *s, const sim_job *job, uint64_t step)
{
    for (uint32_t i = 0; s->plan->mirrors && i < s->plan->shards; i++)
        if (s->cluster->jobs[job->number].mirrored[i] < step) step = s->cluster->jobs[job->number].mirrored[i];
    return step;
}

/* ---- the run ---- */

/* Returns whether each rank can send all its steps again, and no process dies. */
static bool is_lasting(const sim_plan *plan, const sim_job *job)
{
    if (plan->two_owners) return false;
    for (uint32_t rank = 0; rank < job->world; rank++)
        if (job->window[rank] < job->steps) return false;
    for (uint32_t f = 0; f < plan->n_faults; f++)
        if (plan->faults[f].kind == SIM_CRASH && plan->faults[f].job == job->number) return false;
    return true;
}

void sim_cluster_new(sim *s)
{
    s->cluster = sim_must(calloc(1, sizeof *s->cluster));
    for (uint32_t i = 0; i < s->plan->shards; i++) s->cluster->holder[i] = s->servers[i];
    for (uint32_t j = 0; j < s->plan->n_jobs; j++) {
        if (s->plan->jobs[j].world == 0) continue;
        run_twin(s, &s->plan->jobs[j], &s->cluster->jobs[j]);
        s->cluster->jobs[j].lasting = s->cluster->jobs[j].calm = is_lasting(s->plan, &s->plan->jobs[j]);
    }
}

void sim_cluster_begin(sim *s)
{
    sim_owners_begin(s);
    for (uint32_t j = 0; j < s->plan->n_jobs; j++)
        for (uint32_t rank = 0; rank < s->plan->jobs[j].world; rank++)
            sim_trainee_start(s, &s->plan->jobs[j], rank, s->plan->jobs[j].start_ns + sim_draw(s, 50 * SIM_MS));
}

void sim_cluster_hurt(sim *s, const sim_fault *fault)
{
    sim_trainee *t = sim_trainee_at(s, fault->job, fault->rank);
    sim_link *link = t != NULL ? sim_process_link(sim_trainee_process(t), fault->shard) : NULL;

    if (fault->kind == SIM_BREAK && link != NULL) sim_link_break_after(link, fault->amount);
    if (fault->kind == SIM_HOLE && link != NULL) sim_link_swallow(link);
    if (fault->kind != SIM_CRASH || t == NULL) return;
    sim_trainee_kill(t);
    sim_trainee_start(s, &s->plan->jobs[fault->job], fault->rank, fault->amount);
}

bool sim_cluster_is_over(const sim *s)
{
    return sim_trainees_are_over(s) && s->cluster->coming == 0 && sim_owners_are_settled(s);
}

void sim_cluster_check(sim *s)
{
    sim_trainees_check(s);
    sim_owners_check(s);
}

void sim_cluster_check_end(const sim *s)
{
    bool calm = true;

    for (uint32_t j = 0; j < s->plan->n_jobs; j++) {
        const sim_cluster_job *of = &s->cluster->jobs[j];
        if (s->plan->jobs[j].world > 0 && !of->finished && !of->abandoned)
            sim_fail("liveness", "%s has not taken all its steps", s->plan->jobs[j].name);
        calm = calm && (of->calm || s->plan->jobs[j].world == 0);
    }
    for (uint32_t i = 0; calm && i < s->plan->shards; i++)
        if (s->cluster->went_back[i] > 0)
            sim_fail("private recovery", "shard %u has gone back, though all ranks could send their steps again", i);
}

void sim_cluster_describe(const sim *s)
{
    sim_trainees_describe(s);
    sim_owners_describe(s);
}

void sim_cluster_free(sim *s)
{
    sim_trainees_free(s);
    sim_threads_free();
    for (uint32_t j = 0; j < s->plan->n_jobs; j++)
        for (int step = 0; step <= SIM_MOST_STEPS; step++)
            for (uint32_t p = 0; p < s->plan->jobs[j].n_params; p++) {
                free(s->cluster->jobs[j].weights[step][p]);
                free(s->cluster->jobs[j].readouts[step][p]);
            }
    free(s->cluster);
    s->cluster = NULL;
}
