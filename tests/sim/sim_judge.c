/* sim_judge.c - keeps the published weights, and compares the weights that workers and operators get with them. */
#include "sim_judge.h"

#include "sim_history.h"
#include "sim_quantized.h"
#include "sim_readouts.h"
#include "sim_sets.h"
#include "sim_shares.h"
#include "worker.h"
#include "fragment.h"
#include "rig.h"
#include "store_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLOCKS_MS = 25 }; /* most time by which the clock of the step thread is ahead */

/* Returns the rank that the contributions of a rank depend on. */
static uint32_t source_of(const sim_job *job, uint32_t rank)
{
    return job->later[0] > 0 ? 0 : rank;
}

bool sim_has_gradient(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param)
{
    return sim_mix(job->number + 1, source_of(job, rank), step, param) % 16 >= job->absent_of_16;
}

bool sim_rank_closes(const sim_job *job, uint32_t rank, uint64_t step)
{
    return job->fragments <= 1 && sim_mix(job->number + 9, rank, step, 5) % 3 == 0;
}

bool sim_gradient_is_infinite(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param)
{
    return sim_mix(job->number + 101, source_of(job, rank), step, param) % 64 < job->infinite_of_64 &&
           sim_has_gradient(job, rank, step, param);
}

void sim_range(const sim_job *job, const sim_param *param, uint32_t rank, int64_t *start, int64_t *end)
{
    int64_t each = param->n / job->world;

    *start = param->ranged ? rank * each : 0;
    *end = param->ranged && rank + 1 < job->world ? *start + each : param->n;
}

float sim_gradient_at(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param, int64_t i)
{
    if (job->open.masks) return (float)(1u << rank);
    if (job->push_dtype != 0)
        return (float)(sim_mix(job->number + 45, rank << 16 | param, step, (uint64_t)i) % 33) / 4 - 4;
    return (float)(int)(sim_mix(job->number, source_of(job, rank) << 16 | param, step, (uint64_t)i) % 9) - 4;
}

void sim_gradient(const sim_job *job, uint32_t rank, uint64_t step, uint32_t param, bool finite, float *out)
{
    int64_t start, end;

    sim_range(job, &job->params[param], rank, &start, &end);
    for (int64_t i = start; i < end; i++) out[i - start] = sim_gradient_at(job, rank, step, param, i);
    if (!finite && sim_gradient_is_infinite(job, rank, step, param)) out[(end - start) / 2] = INFINITY;
}

double sim_weight(const sim_job *job, uint32_t rank, uint64_t step)
{
    return job->weighted ? (double)(1 + sim_mix(job->number, rank, step, 77) % 4) : 1;
}

/* Initial weights are small integers. In an unranged parameter all elements also have the same fraction, a multiple
 * of 1/64 that marks the sending process. So weights that mix two processes are found. With initial_weights=mean the
 * rank is added instead, so all processes of a rank send the same values. */
void sim_initial(const sim_job *job, uint32_t rank, uint64_t process, uint32_t param, float *out)
{
    const sim_param *p = &job->params[param];
    int64_t start, end;
    float mark = job->mean_init ? (float)rank : p->ranged ? 0 : (float)(process % 8) / 64;

    sim_range(job, p, rank, &start, &end);
    for (int64_t i = start; i < end; i++)
        out[i - start] = (float)(sim_mix(job->number, param, 0, (uint64_t)i) % 9) + mark;
}

uint64_t sim_replaces(const sim_job *job, uint64_t step)
{
    return job->replaces && sim_mix(job->number + 33, step, 3, 3) % 3 == 0 ? sim_mix(job->number, step, 34, 34) | 1 : 0;
}

bool sim_is_replaced(const sim_job *job, uint64_t step, uint32_t param)
{
    uint32_t first = 0;

    if (sim_replaces(job, step) == 0 || job->params[param].ranged) return false;
    while (job->params[first].ranged) first++;
    return param == first || sim_mix(job->number + 35, param, step, 35) % 2 == 0;
}

void sim_replacement(const sim_job *job, uint64_t step, uint32_t param, float *out)
{
    for (int64_t i = 0; i < job->params[param].n; i++)
        out[i] = (float)(sim_mix(job->number, param, step + 99, (uint64_t)i) % 17) - 8;
}

static sim_history *history_of(sim *s, uint32_t number)
{
    sim_history *h = s->histories;

    while (h != NULL && h->number != number) h = h->next;
    return h;
}

/* Returns whether this is the history of a job of the plan, whatever the number of its workers. */
static bool is_of(const sim_history *h, const sim_job *job)
{
    return h->job != NULL && h->job->number == job->number;
}

static sim_history *begin_history(sim *s, const pd_job *job)
{
    sim_history *h = sim_must(calloc(1, sizeof *h));

    h->number = job->steps.number;
    h->creator = job->saved.creator;
    h->chunk = s->plan->chunk;
    for (uint32_t j = 0; j < s->plan->n_jobs; j++)
        if (strcmp(s->plan->jobs[j].name, job->steps.name) == 0) h->job = &s->plan->jobs[j];
    h->next = s->histories;
    s->histories = h;
    return h;
}

static uint32_t param_number(const sim_job *job, const char *name)
{
    for (uint32_t p = 0; p < job->n_params; p++)
        if (strcmp(job->params[p].name, name) == 0) return p;
    sim_fail("harness", "%s has no parameter %s", job->name, name);
}

static void check_mark(const sim_job *job, const sim_param *param, const float *weights)
{
    if (param->ranged || job->mean_init) return;
    for (int64_t i = 1; i < param->n; i++)
        if (weights[i] - floorf(weights[i]) != weights[0] - floorf(weights[0]))
            sim_fail("consistency",
                     "the initial weights of %s %s come from two processes: element 0 is %g, element %lld is %g",
                     job->name, param->name, (double)weights[0], (long long)i, (double)weights[i]);
}

/* Keeps the weights of a version that are about to be replaced. */
static void lose(sim_published *pub, uint64_t version, size_t bytes)
{
    lost_weights *lost = sim_must(malloc(sizeof *lost + bytes));

    *lost = (lost_weights){ .next = pub->lost, .version = version };
    memcpy(lost->at, pub->weights[version], bytes);
    pub->lost = lost;
}

/* Checks weights that a server publishes for the second time, because it has gone back. */
static void check_repeated(sim_history *h, uint32_t p, const pd_published *published)
{
    const sim_param *param = &h->job->params[p];
    float *before = h->params[p].weights[published->version];
    size_t bytes = (size_t)param->n * sizeof(float);

    if (memcmp(before, published->at[PD_F32], bytes) == 0) return;
    if (!h->params[p].open[published->version])
        sim_fail("durability", "%s %s: version %llu has other weights than before the server went back", h->job->name,
                 param->name, (unsigned long long)published->version);
    lose(&h->params[p], published->version, bytes);
    memcpy(before, published->at[PD_F32], bytes);
}

static void keep(sim_history *h, uint32_t p, const pd_published *published)
{
    sim_published *pub = &h->params[p];
    const sim_param *param = &h->job->params[p];

    if (published->version > sim_last_step(h->job))
        sim_fail("exactly once", "%s %s has version %llu after %llu steps", h->job->name, param->name,
                 (unsigned long long)published->version, (unsigned long long)sim_last_step(h->job));
    if (pub->begun && published->version <= pub->version)
        sim_fail("consistency", "%s %s goes from version %llu to %llu", h->job->name, param->name,
                 (unsigned long long)pub->version, (unsigned long long)published->version);
    pub->version = published->version;
    pub->is_replaced = false;
    if (pub->weights[published->version] != NULL) {
        check_repeated(h, p, published);
        return;
    }
    pub->weights[published->version] = sim_must(malloc((size_t)param->n * sizeof(float)));
    memcpy(pub->weights[published->version], published->at[PD_F32], (size_t)param->n * sizeof(float));
}

/* Drops the weights that a step had on an earlier course, since it has made none now. Workers may still have them. */
static void drop_version(sim_history *h, uint32_t p, uint64_t step)
{
    sim_published *pub = &h->params[p];

    if (pub->weights[step] == NULL || !pub->open[step]) return;
    lose(pub, step, (size_t)h->job->params[p].n * sizeof(float));
    free(pub->weights[step]);
    pub->weights[step] = NULL;
}

/* Returns the present weights of a parameter. */
static const float *present(const sim_published *pub)
{
    return pub->is_replaced ? pub->replaced[pub->version] : pub->weights[pub->version];
}

/* Keeps weights that replace those of the parameter's last step: they are those that the workers have made. */
static void keep_replaced(sim *s, sim_history *h, uint32_t p, const pd_closed *closed)
{
    sim_published *pub = &h->params[p];
    size_t bytes = (size_t)h->job->params[p].n * sizeof(float);
    float *made = sim_must(malloc(bytes));

    sim_note(s, h->job->name, p, "has other weights after step", closed->step, closed->outcome);
    sim_replacement(h->job, closed->step, p, made);
    if (closed->step != pub->step || !sim_is_replaced(h->job, closed->step, p) ||
        memcmp(made, closed->published->at[PD_F32], bytes) != 0)
        sim_fail("consistency", "%s %s: weights were replaced after step %llu, which are not those that workers made",
                 h->job->name, h->job->params[p].name, (unsigned long long)closed->step);
    free(pub->replaced[closed->step]);
    pub->replaced[closed->step] = made;
    pub->version = closed->step;
    pub->is_replaced = true;
}

/* Lets steps of a fragment from `step` on have other weights than before. */
static void open_weights(sim_history *h, uint32_t fragment, uint64_t step)
{
    for (uint32_t p = 0; p < h->job->n_params; p++)
        for (uint64_t later = step; later <= h->params[p].most && sim_fragment_of(h->job, p) == fragment; later++)
            h->params[p].open[later] = true;
}

/* Lets a fragment take other steps from `step` on than it has taken before. */
static void forget_course(sim_history *h, uint32_t fragment, uint64_t step)
{
    h->loose = true;
    sim_sets_forget(h, fragment, step);
    open_weights(h, fragment, step);
}

/* Returns whether a process has seen the step of which the server knows, or must still wait: for reconnect_grace after
 * its restart. A process that comes back later goes back with the job. */
static bool is_seen(const sim *s, const sim_history *h, const pd_job *job, uint32_t fragment, uint64_t step)
{
    uint64_t course = h->fragments[fragment].course, until = job->restart.since_ns + job->steps.sets.reconnect_grace_ns;
    bool seen = false;

    if (!job->restart.restored || s->now_ns + CLOCKS_MS * SIM_MS < until)
        return sim_worker_knows(s, h->job->number, h->creator, course, fragment, step, 0);
    for (uint32_t rank = 0; rank < job->steps.members.ranks && !seen; rank++)
        if (job->ranks[rank].repeats.back)
            seen =
                sim_worker_knows(s, h->job->number, h->creator, course, fragment, step, job->ranks[rank].saved.nonce);
    return seen;
}

/* Lets a step count other ranks than before if all counted in it then, and no process has seen it: each that had seen
 * it has ended, or has gone back. The disk has no record of such a set (server/store/step/wal.h). */
static void forget_unseen(sim *s, sim_history *h, const pd_job *job, uint32_t p, const pd_closed *closed)
{
    uint32_t fragment = sim_fragment_of(h->job, p);

    if (closed->step > sim_last_step(h->job) || !sim_sets_was_whole(h, p, closed) ||
        is_seen(s, h, job, fragment, closed->step))
        return;
    sim_note(s, h->job->name, fragment, "takes a step that nobody remembers otherwise", closed->step, 0);
    h->loose = true;
    sim_sets_forget_one(h, p, closed->step);
    open_weights(h, fragment, closed->step);
}

/* Returns whether the rank has had reconnect_grace to send its push again: since its Hello, or since the restart if it
 * had not said Hello when the step thread began its turn. */
static bool has_had_time(const sim *s, const pd_job *job, const pd_rank *rank)
{
    bool back = rank->repeats.back && rank->repeats.back_ns + CLOCKS_MS * SIM_MS < s->now_ns;
    uint64_t since = back ? rank->repeats.back_ns : job->restart.since_ns;

    return s->now_ns + CLOCKS_MS * SIM_MS >= since + job->steps.sets.reconnect_grace_ns;
}

/* Checks that a job which says that a rank cannot repeat its push any more has a reason: the rank has not got this very
 * push to send again, or has not sent it in time. */
static void check_excuse(sim *s, pd_store *store, const pd_log_entry *entry)
{
    char name[64];
    const pd_job *job;
    const sim_history *h;
    const pd_rank *rank;
    uint64_t of;

    if (!entry->has_rank || strstr(entry->text, "does not come back to it (reconnect_grace)") == NULL) return;
    snprintf(name, sizeof name, "%.*s", (int)entry->job_bytes, entry->text + PD_LOG_JOB_AT);
    if ((job = inside_find(store, name)) == NULL || (h = history_of(s, job->steps.number)) == NULL) return;
    /* The entry does not say which fragment it is about. */
    if (h->job == NULL || entry->step > sim_last_step(h->job) || h->job->fragments > 1) return;
    rank = &job->ranks[entry->rank];
    if (rank->state == PD_RANK_LEFT || rank->repeats.replaced || has_had_time(s, job, rank)) return;
    of = sim_sets_push(h, 0, entry->step, entry->rank);
    if (of > 0 && !h->fragments[0].sets[entry->step].open &&
        sim_worker_repeats(s, h->job->number, h->creator, entry->rank, of))
        sim_fail("course", "%s takes another course from step %llu on because of rank %u, which sends its push again",
                 name, (unsigned long long)entry->step, entry->rank);
}

static void drop_secrets(sim_history *h)
{
    while (h->secrets != NULL) {
        sim_secret *next = h->secrets->next;
        pd_counted_unref(h->secrets->closed.counted);
        free(h->secrets);
        h->secrets = next;
    }
}

static sim_secret *keep_secret(sim_history *h, uint32_t p, const pd_closed *closed)
{
    size_t bytes = (size_t)h->job->params[p].n * sizeof(float);
    sim_secret *secret = sim_must(calloc(1, sizeof *secret + bytes));

    secret->param = p;
    secret->closed = *closed;
    secret->closed.counted = closed->counted != NULL ? sim_must(pd_counted_copy(closed->counted)) : NULL;
    if (closed->published != NULL) {
        secret->version = closed->published->version;
        memcpy(secret->at, closed->published->at[PD_F32], bytes);
    }
    if (closed->step > h->secret_most) h->secret_most = closed->step;
    return secret;
}

static void keep_withheld(sim_history *h, const pd_job *job)
{
    const pd_effect *first = job->steps.withheld.effects.first;
    sim_secret **last = &h->secrets;

    while (*last != NULL) last = &(*last)->next;
    if (pd_fragments_fixed(&job->steps) > h->secret_most) h->secret_most = pd_fragments_fixed(&job->steps);
    /* Workers were told of steps although the disk had failed (on_disk_error = go_on). */
    for (uint32_t f = 0; f < SIM_FRAGMENTS; f++)
        if (!job->steps.withheld.on || job->steps.withheld.passing > 0) forget_course(h, f, h->durable + 1);
    for (const pd_mail *mail = first != NULL ? &first->mail : NULL; mail != NULL; mail = mail->next) {
        const pd_effect *effect = (const pd_effect *)(const void *)mail;
        for (size_t i = 0; effect->kind == PD_EFF_CLOSED && i < effect->u.closed.n; i++) {
            const pd_closed *closed = &effect->u.closed.at[i];
            if (closed->outcome == 0) continue;
            *last = keep_secret(h, param_number(h->job, job->steps.params[closed->param].name), closed);
            last = &(*last)->next;
        }
    }
}

/* Returns whether the server still has to report a parameter that it has restored. */
static bool is_awaited(const sim_history *h)
{
    bool awaited = false;

    for (uint32_t p = 0; p < h->job->n_params; p++) awaited = awaited || h->params[p].again;
    return awaited;
}

void sim_judge_keep_withheld(sim *s, pd_store *store)
{
    for (sim_history *h = s->histories; h != NULL; h = h->next) {
        const pd_job *job = h->job != NULL && h->job->open.on ? inside_job(store, h->number) : NULL;
        if (job == NULL || job->steps.fragments == NULL) continue;
        /* A server that is killed before it has reported what it had loaded leaves the disk as it was. */
        if (!is_awaited(h)) drop_secrets(h);
        keep_withheld(h, job);
    }
}

/* Takes over what a killed server has closed up to this step and told nobody of. */
static void adopt(sim_history *h, uint32_t p, uint64_t step)
{
    sim_published *pub = &h->params[p];
    size_t bytes = (size_t)h->job->params[p].n * sizeof(float);

    for (const sim_secret *secret = h->secrets; secret != NULL; secret = secret->next) {
        if (secret->param != p || secret->closed.step != pub->step + 1 || secret->closed.step > step) continue;
        pub->step = secret->closed.step;
        pub->outcome[pub->step] = secret->closed.outcome;
        if (pub->step > pub->most) pub->most = pub->step;
        sim_sets_adopt(h, p, &secret->closed);
        if (secret->closed.published == NULL) drop_version(h, p, pub->step);
        if (secret->closed.published == NULL) continue;
        pub->version = secret->version;
        if (pub->weights[pub->version] == NULL) pub->weights[pub->version] = sim_must(malloc(bytes));
        memcpy(pub->weights[pub->version], secret->at, bytes);
    }
}

/* Follows a job that takes another course, since a rank whose pushes counted is gone: from the step on which the report
 * tells of, or from the next one if that was taken before. */
static void follow_course(sim *s, sim_history *h, const pd_job *job, const pd_closed *closed)
{
    uint32_t p = param_number(h->job, job->steps.params[closed->param].name), fragment = sim_fragment_of(h->job, p);
    const sim_published *pub = &h->params[p];
    uint64_t from = closed->step + (pub->again || closed->step <= pub->step);

    if (h->fragments[fragment].course == job->saved.course) return;
    h->fragments[fragment].course = job->saved.course;
    sim_note(s, h->job->name, job->saved.course, "takes another course from step", from, fragment);
    forget_course(h, fragment, from);
}

/* Takes a parameter back to the step of a checkpoint, which a restarted server has reported. */
static void go_back(sim_history *h, uint32_t p, const pd_closed *closed)
{
    sim_published *pub = &h->params[p];
    const char *name = h->job->params[p].name;

    if (h->job->open.on) adopt(h, p, closed->step);
    if (closed->step > pub->step || closed->step < h->durable)
        sim_fail("durability", "%s %s comes back at step %llu, it was at step %llu, and step %llu was durable",
                 h->job->name, name, (unsigned long long)closed->step, (unsigned long long)pub->step,
                 (unsigned long long)h->durable);
    if (closed->published == NULL || closed->published->version > closed->step ||
        (pub->weights[closed->published->version] == NULL && pub->replaced[closed->published->version] == NULL))
        sim_fail("durability", "%s %s comes back at step %llu with weights that it never had", h->job->name, name,
                 (unsigned long long)closed->step);
    pub->step = closed->step;
    pub->version = closed->published->version;
    pub->is_replaced =
        pub->replaced[pub->version] != NULL && memcmp(pub->replaced[pub->version], closed->published->at[PD_F32],
                                                      (size_t)h->job->params[p].n * sizeof(float)) == 0;
}

/* Checks the first report of a restarted server: it must equal the last report before the restart, or the report of the
 * step to which a killed server goes back. */
static void check_again(const sim_history *h, uint32_t p, const pd_closed *closed)
{
    const sim_published *pub = &h->params[p];
    pd_outcome last = pub->step > 0 ? pub->outcome[pub->step] : (pd_outcome)0;

    if (closed->step != pub->step || closed->outcome != last || closed->published == NULL ||
        closed->published->version != pub->version)
        sim_fail("image", "%s %s comes back at step %llu with outcome %d, it was at step %llu with outcome %d",
                 h->job->name, h->job->params[p].name, (unsigned long long)closed->step, (int)closed->outcome,
                 (unsigned long long)pub->step, (int)last);
    if (memcmp(closed->published->at[PD_F32], present(pub), (size_t)h->job->params[p].n * sizeof(float)) != 0)
        sim_fail("image", "%s %s comes back with other weights", h->job->name, h->job->params[p].name);
}

static void on_closed(sim *s, sim_history *h, const pd_job *job, uint32_t p, const pd_closed *closed)
{
    sim_published *pub = &h->params[p];
    const sim_param *param = &h->job->params[p];

    if (pub->again) {
        pub->again = false;
        if (h->goes_back) go_back(h, p, closed);
        check_again(h, p, closed);
        return;
    }
    if (closed->outcome == 0 && pub->begun && h->job->replaces) {
        keep_replaced(s, h, p, closed);
        return;
    }
    sim_note(s, h->job->name, p, closed->outcome == 0 ? "has initial weights" : "closes step", closed->step,
             closed->outcome);
    if (h->job->open.on && closed->outcome != 0) {
        forget_unseen(s, h, job, p, closed);
        sim_sets_closed(h, p, closed);
    }
    if (closed->published != NULL) keep(h, p, closed->published);
    if (closed->outcome == 0) {
        if (pub->begun)
            sim_fail("consistency", "%s %s has initial weights for the second time", h->job->name, param->name);
        check_mark(h->job, param, pub->weights[0]);
        pub->begun = true;
        return;
    }
    if (closed->step != pub->step + 1 || closed->step > sim_last_step(h->job))
        sim_fail("exactly once", "%s %s closes step %llu after step %llu of %llu", h->job->name, param->name,
                 (unsigned long long)closed->step, (unsigned long long)pub->step,
                 (unsigned long long)sim_last_step(h->job));
    if (closed->step <= pub->most && !pub->open[closed->step] && closed->outcome != pub->outcome[closed->step])
        sim_fail("durability", "%s %s: step %llu has outcome %d, and had %d before the server went back", h->job->name,
                 param->name, (unsigned long long)closed->step, (int)closed->outcome, (int)pub->outcome[closed->step]);
    if (closed->published == NULL) drop_version(h, p, closed->step);
    pub->step = closed->step;
    pub->open[closed->step] = false;
    pub->outcome[closed->step] = closed->outcome;
    if (closed->step > pub->most) pub->most = closed->step;
}

enum { FORGOTTEN = 1u << 30 };

void sim_judge_forget_numbers(sim *s)
{
    for (sim_history *h = s->histories; h != NULL; h = h->next) h->number |= FORGOTTEN;
}

static void renumber(sim_history *h, uint32_t now)
{
    h->number = now;
    for (uint32_t p = 0; h->job != NULL && p < h->job->n_params; p++) h->params[p].again = true;
}

void sim_judge_renumber(sim *s, uint32_t before, uint32_t now)
{
    sim_history *h = history_of(s, before | FORGOTTEN);

    if (h != NULL) renumber(h, now);
}

/* Finds the history of a restored job that has taken over another number of workers, and with it another number of its
 * own. The server reports each of its parameters once more: as it was before. A server that starts anew may do so
 * before it has told of the other number. */
static sim_history *take_over(sim *s, const pd_job *job)
{
    sim_history *h = s->histories;

    while (h != NULL &&
           (h->job == NULL || h->job->later[0] == 0 || (s->plan->crashes && (h->number & FORGOTTEN) != 0) ||
            h->creator != job->saved.creator || strcmp(h->job->name, job->steps.name) != 0))
        h = h->next;
    if (h == NULL) return NULL;
    h->goes_back = h->goes_back && is_awaited(h);
    for (uint32_t p = 0; p < h->job->n_params; p++)
        if (job->steps.params[p].saved.step > h->changed) h->changed = job->steps.params[p].saved.step;
    renumber(h, job->steps.number);
    sim_note(s, h->job->name, job->steps.members.ranks, "has another number of workers", h->changed, 0);
    sim_judge_loosen(s, job->steps.number); /* records of the steps before the change do not count any more */
    return h;
}

uint64_t sim_judge_changed(const sim *s, const sim_job *job)
{
    uint64_t changed = 0;

    for (const sim_history *h = s->histories; h != NULL; h = h->next)
        if (is_of(h, job) && h->changed > changed) changed = h->changed;
    return changed;
}

/* Finds the history of a job that a killed server had. */
static sim_history *history_before(sim *s, const pd_job *job)
{
    sim_history *h = s->histories;

    while (h != NULL && (h->job == NULL || (h->number & FORGOTTEN) == 0 || h->creator != job->saved.creator ||
                         strcmp(h->job->name, job->steps.name) != 0))
        h = h->next;
    return h;
}

void sim_judge_loosen(sim *s, uint32_t number)
{
    sim_history *h = history_of(s, number);

    if (h == NULL || h->job == NULL || !h->job->ready) return;
    sim_note(s, h->job->name, 0, "may take another course", 0, 0);
    h->loose = true;
    for (uint32_t p = 0; p < h->job->n_params; p++)
        for (uint64_t step = 1; step <= h->params[p].most; step++) h->params[p].open[step] = true;
}

bool sim_judge_is_loose(const sim *s, const sim_job *job)
{
    for (const sim_history *h = s->histories; h != NULL; h = h->next)
        if (is_of(h, job) && h->loose) return true;
    return false;
}

void sim_judge_restored(sim *s, pd_store *store)
{
    const pd_job *job, *next;
    sim_history *h;

    HASH_ITER(hh, store->jobs.names, job, next)
    {
        if ((h = history_before(s, job)) == NULL)
            sim_fail("durability", "%s comes back, but the killed server had no such job", job->steps.name);
        if (h->end_kept) sim_fail("durability", "%s comes back, though its end was on the disk", job->steps.name);
        h->goes_back = true;
        h->ended = false;
        renumber(h, job->steps.number);
    }
    for (h = s->histories; h != NULL; h = h->next)
        if (h->job != NULL && (h->number & FORGOTTEN) != 0 && h->durable > 0 && !h->ended)
            sim_fail("durability", "%s does not come back, though its step %llu was durable", h->job->name,
                     (unsigned long long)h->durable);
}

static void note_durable(sim *s, const pd_effect *effect)
{
    sim_history *h = history_of(s, effect->job);

    if (h == NULL) return;
    if (effect->u.durable.step < h->durable)
        sim_fail("durability", "%s: the durable step goes from %llu back to %llu", h->job->name,
                 (unsigned long long)h->durable, (unsigned long long)effect->u.durable.step);
    h->durable = effect->u.durable.step;
}

static void note_end(sim *s, const pd_effect *effect)
{
    sim_history *h = history_of(s, effect->job);

    if (h != NULL) h->ended = true;
}

void sim_judge_end_kept(sim *s, uint32_t number)
{
    sim_history *h = history_of(s, number);

    if (h != NULL) h->end_kept = true;
}

bool sim_judge_is_later(const sim *s, uint64_t creator, uint64_t other)
{
    const sim_history *h = s->histories; /* newest first */

    while (h != NULL && h->creator != creator && h->creator != other) h = h->next;
    return creator != other && h != NULL && h->creator == creator;
}

void sim_judge_effect(sim *s, pd_store *store, const pd_effect *effect)
{
    const pd_job *job;
    sim_history *h;

    if (effect->kind == PD_EFF_DURABLE) note_durable(s, effect);
    if (effect->kind == PD_EFF_JOB_GONE) note_end(s, effect);
    if (effect->kind == PD_EFF_LOG) check_excuse(s, store, &effect->u.log);
    if (effect->kind != PD_EFF_CLOSED || (job = inside_job(store, effect->job)) == NULL) return;
    if (effect->u.closed.n > 0 && effect->u.closed.at[0].read_out) return; /* no round has closed */
    if ((h = history_of(s, effect->job)) == NULL && (h = take_over(s, job)) == NULL) h = begin_history(s, job);
    if (strncmp(job->steps.name, "unlike", 6) == 0 && effect->u.closed.n > 0 && effect->u.closed.at[0].outcome != 0)
        sim_fail("exactly once", "%s steps, though its worker weighs the chunks of a parameter unlike",
                 job->steps.name);
    if (h->job != NULL && h->job->open.on) sim_sets_note_members(h, job);
    for (size_t i = 0; h->job != NULL && h->job->open.on && i < effect->u.closed.n; i++)
        follow_course(s, h, job, &effect->u.closed.at[i]);
    for (size_t i = 0; h->job != NULL && i < effect->u.closed.n; i++)
        on_closed(s, h, job, param_number(h->job, job->steps.params[effect->u.closed.at[i].param].name),
                  &effect->u.closed.at[i]);
}

static const float *weights_after(const sim_history *h, uint32_t param, uint64_t step, bool replaced);

static bool is_one_of(const sim_history *h, uint32_t param, uint64_t version, int64_t i, const float *weight)
{
    const float *after = h->params[param].replaced[version], *before = weights_after(h, param, version, false);

    if (after != NULL && memcmp(&after[i], weight, sizeof *weight) == 0) return true;
    if (before != NULL && memcmp(&before[i], weight, sizeof *weight) == 0) return true;
    for (const lost_weights *lost = h->params[param].lost; lost != NULL; lost = lost->next)
        if (lost->version == version && memcmp(&lost->at[i], weight, sizeof *weight) == 0) return true;
    return false;
}

/* Returns whether a worker may have got these weights, whose chunks came in several answers: between these the weights
 * of the version were replaced, or the server went back and took another course. */
static bool is_mixed(const sim_history *h, uint32_t param, uint64_t version, const float *weights, int64_t first,
                     int64_t n)
{
    if (version >= VERSIONS || (h->params[param].replaced[version] == NULL && !h->loose)) return false;
    for (int64_t i = 0; i < n; i++)
        if (!is_one_of(h, param, version, first + i, &weights[i])) return false;
    return true;
}

/* Returns whether elements [first, first + n) of a parameter are those of one of its versions. */
static bool is_some_version(const sim_history *h, uint32_t param, const float *weights, int64_t first, int64_t n)
{
    for (int v = 0; v < VERSIONS; v++) {
        const float *was = h->params[param].weights[v];
        if (was != NULL && memcmp(was + first, weights, (size_t)n * sizeof *weights) == 0) return true;
    }
    for (const lost_weights *lost = h->params[param].lost; lost != NULL; lost = lost->next)
        if (memcmp(lost->at + first, weights, (size_t)n * sizeof *weights) == 0) return true;
    return false;
}

/* Returns whether a worker may have got these weights in a job whose steps go on without it: its chunks came in several
 * answers, and each is of some version. */
static bool is_overtaken(const sim *s, const sim_history *h, uint32_t param, const float *weights, int64_t first,
                         int64_t n)
{
    int64_t chunk = (int64_t)s->plan->chunk;

    for (int64_t at = 0, end; at < n; at = end) {
        end = (first + at) / chunk * chunk + chunk - first;
        if (end > n) end = n;
        if (!is_some_version(h, param, weights + at, first + at, end - at)) return false;
    }
    return h->job->open.on;
}

void sim_judge_weights(sim *s, const sim_job *job, uint32_t param, uint64_t version, const float *weights,
                       int64_t first, int64_t n)
{
    bool known = false;

    for (const sim_history *h = s->histories; h != NULL; h = h->next) {
        const float *was = is_of(h, job) && version < VERSIONS ? h->params[param].weights[version] : NULL;
        if (is_of(h, job) && is_mixed(h, param, version, weights, first, n)) return;
        if (is_of(h, job) && job->open.on && is_overtaken(s, h, param, weights, first, n)) return;
        if (was == NULL) continue;
        known = true;
        if (memcmp(was + first, weights, (size_t)n * sizeof *weights) == 0) return;
        for (const lost_weights *lost = h->params[param].lost; lost != NULL; lost = lost->next)
            if (lost->version == version && memcmp(lost->at + first, weights, (size_t)n * sizeof *weights) == 0) return;
    }
    if (!known)
        sim_fail("consistency", "%s %s: a worker got version %llu, which was never published", job->name,
                 job->params[param].name, (unsigned long long)version);
    sim_fail("consistency", "%s %s: a worker got weights that are not those of version %llu", job->name,
             job->params[param].name, (unsigned long long)version);
}

/* Returns the weights that a parameter has after a step: its latest version up to this step, before or after these
 * weights were `replaced`. NULL: the step is not closed. */
static const float *weights_after(const sim_history *h, uint32_t param, uint64_t step, bool replaced)
{
    const sim_published *pub = &h->params[param];
    uint64_t version = step < VERSIONS ? step : VERSIONS - 1;

    if (pub->step < step) return NULL;
    for (;; version--) {
        if (pub->replaced[version] != NULL && (replaced || version < step)) return pub->replaced[version];
        if (pub->weights[version] != NULL || version == 0) return pub->weights[version];
    }
}

static bool had_weights(const sim_history *h, uint32_t param, uint64_t step, const float *weights, int64_t first,
                        int64_t n)
{
    for (int replaced = 0; replaced < 2; replaced++) {
        const float *was = weights_after(h, param, step, replaced > 0);
        if (was != NULL && memcmp(was + first, weights, (size_t)n * sizeof *weights) == 0) return true;
    }
    return false;
}

void sim_judge_exported(sim *s, const sim_job *job, uint32_t param, uint64_t step, const float *weights, int64_t first,
                        int64_t n)
{
    for (const sim_history *h = s->histories; h != NULL; h = h->next) {
        if (!is_of(h, job)) continue;
        if (had_weights(h, param, step, weights, first, n)) return;
        /* Each fragment is exported at the step that it has: `step` is the highest of them. */
        for (uint64_t of = 0; job->fragments > 1 && of < step; of++)
            if (had_weights(h, param, of, weights, first, n)) return;
    }
    sim_fail("consistency", "%s %s: an export of step %llu has weights that are not those of this step", job->name,
             job->params[param].name, (unsigned long long)step);
}

static uint64_t hash_of(const float *weights, int64_t n)
{
    uint64_t hash = 1;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &weights[i], sizeof bits);
        hash = sim_mix(hash, bits, 6, 6) | 1;
    }
    return hash;
}

void sim_judge_digest(const sim *s, sim_digest *out)
{
    memset(out, 0, sizeof *out);
    for (const sim_history *h = s->histories; h != NULL; h = h->next) {
        if (h->job == NULL) continue;
        out->begun[h->job->number]++;
        for (uint32_t p = 0; p < h->job->n_params; p++)
            for (int v = 0; v < VERSIONS; v++)
                if (h->params[p].weights[v] != NULL)
                    out->version[h->job->number][p][v] = hash_of(h->params[p].weights[v], h->job->params[p].n);
    }
    out->usable = sim_failed_allocations() == 0;
}

static bool begin_alike(const sim_digest *a, const sim_digest *b, const sim_job *job)
{
    bool alike = a->begun[job->number] == 1 && b->begun[job->number] == 1;

    for (uint32_t p = 0; p < job->n_params; p++)
        alike = alike && a->version[job->number][p][0] == b->version[job->number][p][0];
    return alike;
}

uint64_t sim_judge_compare(const sim_plan *plan, const sim_digest *a, const sim_digest *b)
{
    uint64_t compared = 0;

    if (!a->usable || !b->usable) return 0; /* a root that fails for lack of memory changes the weights */
    for (uint32_t j = 0; j < plan->n_jobs; j++) {
        /* The steps of a job with root_delay = ready, or with open sets, depend on timing, which shared memory changes.
         */
        if (plan->jobs[j].ready || plan->jobs[j].open.on || !begin_alike(a, b, &plan->jobs[j])) continue;
        for (uint32_t p = 0; p < plan->jobs[j].n_params; p++)
            for (int v = 1; v < VERSIONS; v++) {
                uint64_t with = a->version[j][p][v], without = b->version[j][p][v];
                if (with == 0 || without == 0) continue;
                compared++;
                if (with != without)
                    sim_fail("sharing", "%s %s: version %d has other bits if memory is shared", plan->jobs[j].name,
                             plan->jobs[j].params[p].name, v);
            }
    }
    return compared;
}

static void free_weights(sim_published *pub)
{
    for (int v = 0; v < VERSIONS; v++) {
        free(pub->weights[v]);
        free(pub->replaced[v]);
    }
    while (pub->lost != NULL) {
        lost_weights *next = pub->lost->next;
        free(pub->lost);
        pub->lost = next;
    }
}

void sim_judge_free(sim *s)
{
    while (s->histories != NULL) {
        sim_history *h = s->histories;
        s->histories = h->next;
        for (uint32_t p = 0; p < SIM_PARAMS; p++) free_weights(&h->params[p]);
        drop_secrets(h);
        sim_readouts_free(h);
        sim_shares_free(h);
        sim_quantized_free(h);
        free(h);
    }
}
