/* job.c - creates a job from a Hello, checks whether another Hello describes the same job, and frees the job. Also
 * measures its speed in steps per second. */
#include "job.h"

#include "aggregate_fit.h"
#include "effects.h"
#include "glob.h"
#include "mutant.h"
#include "text.h"
#include "random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_values(pd_job_values *out, const pd_job_values *presets, const pd_request *hello, pd_error *err)
{
    pd_error why;

    *out = *presets;
    for (size_t i = 0; i < hello->u.hello.n_options; i++) {
        const pd_option *option = &hello->u.hello.options[i];
        if (pd_job_values_set(out, option->name, option->value, &why) != PD_OK)
            return pd_fail(err, PD_INVALID_ARGUMENT, "job %.100s: option %.380s", hello->u.hello.job_name, why.text);
    }
    return PD_OK;
}

static void borrow(pd_job *job, const pd_job_env *env)
{
    job->presets = env->presets;
    job->steps.config = env->config;
    job->steps.outbox = env->outbox;
    job->steps.memory.pools = env->pools;
    job->steps.account.budget = env->budget;
    job->steps.ingest = env->ingest;
    job->steps.batch.sums = env->sums;
    job->steps.batch.collect = env->collecting;
}

static void free_ranks(pd_job *job)
{
    for (uint32_t r = 0; job->steps.quotas != NULL && r < job->steps.members.ranks; r++)
        pd_effect_free(job->steps.quotas[r].answer);
    free(job->ranks);
    free(job->steps.quotas);
    pd_step_times_free(&job->steps.times);
}

int pd_job_make_ranks(pd_job *job, uint32_t workers, bool any_rank)
{
    uint32_t slots = job->steps.sets.most;

    free_ranks(job);
    pd_rank_set_none(&job->steps.members, slots);
    for (uint32_t r = 0; r < (job->steps.sets.open ? (any_rank ? 0 : workers) : slots); r++)
        pd_rank_set_add(&job->steps.members, r);
    job->saved.workers = workers;
    job->membership.giver = job->steps.sets.open && any_rank ? PD_MAX_WORLD : 0;
    job->membership.asked = job->membership.gave = PD_MAX_WORLD;
    job->membership.leader = PD_MAX_WORLD;
    job->steps.times = (pd_step_times){ 0 };
    job->ranks = calloc(slots, sizeof *job->ranks);
    job->steps.quotas = calloc(slots, sizeof *job->steps.quotas);
    if (job->ranks == NULL || job->steps.quotas == NULL) return PD_NO_MEMORY;
    return pd_step_times_make(&job->steps.times, slots);
}

/* Finds the number of workers that a job begins with: the world size of the Hello, or max_workers if the Hello gives
 * none. PD_INVALID_ARGUMENT. */
static int find_workers(const pd_job_values *values, const pd_request *hello, uint32_t *workers, pd_error *err)
{
    *workers = hello->u.hello.world_size;
    if (*workers > 0) return PD_OK;
    if (values->at[PD_JOB_KEY_MAX_WORKERS] == UINT64_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "job %.100s: a worker that takes any rank gives world_size, or the job key max_workers",
                       hello->u.hello.job_name);
    *workers = (uint32_t)values->at[PD_JOB_KEY_MAX_WORKERS];
    return PD_OK;
}

/* Returns random bits that no other job gets. The nonce of the Hello alone would not do: if the server restarts without
 * a job that it had, the same process may create the job again, while other processes still know the earlier job, which
 * had their initial weights. */
static pd_random drawn_for(const pd_job_env *env, uint32_t number, const pd_request *hello)
{
    uint64_t start = env->config->start;
    pd_random mixed = { { (uint32_t)start, (uint32_t)(start >> 32) } };

    return pd_random_fold(pd_random_fold(mixed, hello->u.hello.nonce), number);
}

/* Draws the job's numbers. Shard 0 of a cluster draws the cluster number; the other shards get it with the Hello. */
static void draw_numbers(pd_job *job, const pd_job_env *env, const pd_request *hello)
{
    enum { CLUSTER = 1, LIFE };
    pd_random mixed = drawn_for(env, job->steps.number, hello);

    job->saved.creator = pd_random_number(mixed);
    job->life = pd_random_number(pd_random_fold(mixed, LIFE));
    job->steps.shard = hello->u.hello.shard;
    job->steps.shards = hello->u.hello.shards > 0 ? hello->u.hello.shards : 1;
    if (job->steps.shards == 1) return;
    job->saved.cluster = hello->u.hello.cluster;
    if (job->saved.cluster == 0) job->saved.cluster = pd_random_number(pd_random_fold(mixed, CLUSTER));
}

int pd_job_new(pd_job **out, const pd_job_env *env, uint32_t number, const pd_request *hello, pd_error *err)
{
    static const pd_ticket nobody;
    pd_job *job = calloc(1, sizeof *job);
    uint32_t world;
    int rc;

    if (job == NULL) goto no_memory;
    borrow(job, env);
    job->steps.number = number;
    job->steps.queue.limit = UINT64_MAX;
    draw_numbers(job, env, hello);
    job->saved.generation = hello->u.hello.generation;
    job->shares = hello->u.hello.shares;
    job->drain_step = UINT64_MAX;
    job->figures.touched = true;
    if (hello->u.hello.run != NULL && (job->run = strdup(hello->u.hello.run)) == NULL) goto no_memory;
    if ((rc = read_values(&job->steps.values, env->presets, hello, err)) != PD_OK) goto fail;
    if ((rc = find_workers(&job->steps.values, hello, &world, err)) != PD_OK) goto fail;
    if ((rc = pd_set_rule_make(&job->steps.sets, &job->steps.values, world, err)) != PD_OK) goto fail;
    if ((rc = pd_aggregate_fits(&job->steps.values, &job->steps.sets, err)) != PD_OK) goto fail;
    if ((rc = pd_rules_of_job(&job->steps.rules, &job->steps.n_rules, hello->u.hello.rules, hello->u.hello.n_rules,
                              env->config->rows, err)) != PD_OK)
        goto fail;
    if (pd_job_make_ranks(job, world, hello->u.hello.any_rank) != PD_OK ||
        (job->steps.name = strdup(hello->u.hello.job_name)) == NULL ||
        (job->steps.unread = pd_unread_new(&job->steps.account, number)) == NULL ||
        (job->gone_notice = pd_effect_new(PD_EFF_JOB_GONE, nobody, number)) == NULL ||
        (job->steps.shortage.notice = pd_effect_new(PD_EFF_TIMED_OUT, nobody, number)) == NULL)
        goto no_memory;
    *out = job;
    return PD_OK;

no_memory:
    rc = pd_fail(err, PD_NO_MEMORY, "out of memory for job %.100s", hello->u.hello.job_name);
fail:
    pd_job_free(job);
    return rc;
}

void pd_job_free(pd_job *job)
{
    if (job == NULL) return;
    for (uint32_t r = 0; job->ranks != NULL && r < job->steps.members.ranks; r++) {
        for (uint32_t i = 0; i < job->ranks[r].n_worker_states; i++) free(job->ranks[r].worker_states[i].at);
        free(job->ranks[r].identity);
    }
    pd_unread_end(job->steps.unread, job->owner);
    pd_owner_let_go(job->owner);
    free(job->owner_identity);
    free(job->run);
    for (uint32_t i = 0; i < job->checkpointing.spares.n; i++) free(job->checkpointing.spares.at[i]);
    free(job->checkpointing.spares.at);
    if (job->checkpointing.farewell != NULL) pd_checkpoint_image_free(job->checkpointing.farewell->u.checkpoint_image);
    pd_effect_free(job->checkpointing.farewell);
    free(job->figures.listing);
    free_ranks(job);
    pd_rules_free(job->steps.rules, job->steps.n_rules);
    free(job->steps.name);
    pd_effect_free(job->gone_notice);
    pd_effect_free(job->steps.shortage.notice);
    free(job);
}

uint64_t pd_job_largest_step(const pd_job *job)
{
    uint64_t step = job->steps.progress.furthest;

    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (job->steps.params[i].saved.step > step) step = job->steps.params[i].saved.step;
    return step;
}

bool pd_job_sealed(const pd_job *job)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (pd_is_member(job, r) && !job->ranks[r].saved.sealed) return false;
    return job->steps.members.n > 0;
}

static bool says_start_step(const pd_request *hello)
{
    for (size_t i = 0; i < hello->u.hello.n_options; i++)
        if (strcmp(hello->u.hello.options[i].name, pd_job_keys[PD_JOB_KEY_START_STEP].name) == 0) return true;
    return false;
}

/* Returns whether the worker's start_step may differ from the job's: if the worker rejoins or joins; or if the job has
 * weights and the worker names no start_step, because only rank 0 may know the step of saved weights from which the job
 * starts. */
static bool takes_start_step(const pd_job *job, const pd_request *hello)
{
    bool has_begun = job->steps.n_params > 0 && job->steps.params[0].current != NULL;

    return hello->u.hello.rejoins || hello->u.hello.joins || (has_begun && !says_start_step(hello));
}

static int values_agree(const pd_job *job, const pd_job_values *theirs, const pd_request *hello, pd_error *err)
{
    bool any_start = takes_start_step(job, hello), any_seed = hello->u.hello.joins;
    char ours_text[32], theirs_text[32];

    for (int k = 0; k < PD_JOB_KEYS; k++) {
        if (job->steps.values.at[k] == theirs->at[k] || (k == PD_JOB_KEY_START_STEP && any_start) ||
            (k == PD_JOB_KEY_SEED && any_seed))
            continue;
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.100s has %s = %s, this worker comes with %s: give every rank the same options",
                       job->steps.name, pd_job_keys[k].name,
                       pd_job_values_text(&job->steps.values, (enum pd_job_key_index)k, ours_text, sizeof ours_text),
                       pd_job_values_text(theirs, (enum pd_job_key_index)k, theirs_text, sizeof theirs_text));
    }
    return PD_OK;
}

/* Returns whether a Hello has the job's optimizer rules with exactly the same text. */
static bool has_same_rules(const pd_job *job, const pd_request *hello)
{
    size_t n = hello->u.hello.n_rules;
    bool same = n + 1 == job->steps.n_rules;

    for (size_t i = 0; same && i < n; i++) same = strcmp(job->steps.rules[i].text, hello->u.hello.rules[i]) == 0;
    return same;
}

static int compare_rules(const pd_job *job, const pd_rule *theirs, size_t n, pd_error *err)
{
    if (n != job->steps.n_rules)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.100s has %zu optimizer rules, this worker comes with %zu: give every rank the same",
                       job->steps.name, job->steps.n_rules - 1, n - 1);
    for (size_t i = 0; i < n; i++)
        if (strcmp(job->steps.rules[i].text, theirs[i].text) != 0)
            return pd_fail(err, PD_FAILED_PRECONDITION,
                           "job %.60s: optimizer rule %zu is \"%.160s\", this worker comes with \"%.160s\"",
                           job->steps.name, i, job->steps.rules[i].text, theirs[i].text);
    return PD_OK;
}

static int rules_agree(const pd_job *job, const pd_request *hello, pd_error *err)
{
    pd_rule *rules;
    size_t n;
    int rc;

    if (has_same_rules(job, hello)) return PD_OK;
    if ((rc = pd_hello_check_globs(hello, err)) != PD_OK) return rc;
    if ((rc = pd_rules_of_job(&rules, &n, hello->u.hello.rules, hello->u.hello.n_rules, job->steps.config->rows,
                              err)) != PD_OK)
        return rc;
    rc = compare_rules(job, rules, n, err);
    pd_rules_free(rules, n);
    return rc;
}

int pd_job_agrees_but_world(const pd_job *job, const pd_request *hello, pd_error *err)
{
    pd_job_values theirs;
    int rc;

    if ((rc = read_values(&theirs, job->presets, hello, err)) != PD_OK) return rc;
    if ((rc = values_agree(job, &theirs, hello, err)) != PD_OK) return rc;
    return rules_agree(job, hello, err);
}

bool pd_job_has_one_world(const pd_job *job)
{
    return job->steps.sets.most == job->saved.workers && job->steps.sets.least == job->steps.sets.most;
}

/* Checks the world size and the rank of a Hello. A job whose number of workers may change has slots for max_workers,
 * and takes workers of any world size; in others all come with the same one. */
static int world_agrees(const pd_job *job, const pd_request *hello, pd_error *err)
{
    uint32_t world = hello->u.hello.world_size, slots = job->steps.members.ranks;

    if (pd_job_has_one_world(job) && world != job->saved.workers && !(hello->u.hello.any_rank && world == 0))
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s has world_size = %u, this worker comes with %u",
                       job->steps.name, job->saved.workers, world);
    if (hello->rank < slots) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "job %.100s has room for the ranks 0 to %u (max_workers = %u), this worker comes as rank %u: let it "
                   "take any free rank (any_rank), or form the job again with a higher generation and max_workers",
                   job->steps.name, slots - 1, slots, hello->rank);
}

int pd_job_shard_agrees(const pd_job *job, const pd_request *hello, pd_error *err)
{
    uint32_t shards = hello->u.hello.shards > 0 ? hello->u.hello.shards : 1;
    const char *name = job->steps.name;

    if (shards != job->steps.shards || hello->u.hello.shard != job->steps.shard)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "job %.100s has this server as shard %u of %u, this worker asks it as shard %u of %u: give every "
            "worker the same list of servers, in the same order (PARAMD_URL); or, if the list has changed "
            "since, end the job here (paramctl drop %.100s) or choose another name (job=, PARAMD_JOB)",
            name, job->steps.shard, job->steps.shards, hello->u.hello.shard, shards, name);
    if (hello->u.hello.cluster == 0 || hello->u.hello.cluster == job->saved.cluster || PD_MUTANT(map_of_older_run))
        return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "job %.100s on this server, shard %u of %u, is left from cluster %016" PRIx64
                   ", and this worker belongs to cluster %016" PRIx64
                   ": end the old job here (paramctl --url of this server drop %.100s), or choose another name (job=, "
                   "PARAMD_JOB)",
                   name, job->steps.shard, job->steps.shards, job->saved.cluster, hello->u.hello.cluster, name);
}

int pd_job_agrees(const pd_job *job, const pd_request *hello, pd_error *err)
{
    if (world_agrees(job, hello, err) != PD_OK) return PD_FAILED_PRECONDITION;
    return pd_job_agrees_but_world(job, hello, err);
}

void pd_job_share(pd_job *job, pd_request *request)
{
    const pd_segment *segment = pd_shared_weights_segment(job->steps.memory.shared);
    pd_effect *effect = pd_answer(request, PD_EFF_SHARE);

    effect->u.share.fd = segment != NULL ? pd_segment_share(segment) : -1;
    if (effect->u.share.fd >= 0) {
        effect->u.share.at = segment->at;
        effect->u.share.bytes = segment->bytes;
    }
    pd_effects_add(job->steps.outbox, effect);
    pd_request_free(request);
}

enum { NS_PER_MS = 1000000 };

uint32_t pd_linger_ms(const pd_job *job, uint64_t now_ns)
{
    uint64_t ms;

    if (job->timers.linger_ns <= now_ns) return 0;
    ms = (job->timers.linger_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

void pd_linger_explain(pd_job *job, uint64_t now_ns, pd_error *err)
{
    const pd_error refusal = *err;
    uint32_t ms = pd_linger_ms(job, now_ns);
    const int name = (int)strlen(job->steps.name);

    if (ms == 0) return;
    /* The text has room for the job's whole name in the command, and for the server's address, which the client
     * adds. */
    pd_fail(err, refusal.code,
            "%.*s. Job %.40s is at step %" PRIu64
            " and lingers for another %u s: `paramctl drop %.256s`, or choose another name",
            name < 160 ? 240 - name : 80, refusal.text, job->steps.name, pd_steps_least(&job->steps), (ms + 999) / 1000,
            job->steps.name);
}

static int check_name(const char *name, pd_error *err)
{
    if (name == NULL || name[0] == '\0' || strlen(name) > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a job's name has 1 to %d bytes", PD_NAME_MAX);
    return pd_text_check("the job's name", name, err);
}

/* Checks that an option's name and value are printable text, because errors of other workers may show them. */
static int check_option(const pd_option *option, size_t i, pd_error *err)
{
    char what[48];

    snprintf(what, sizeof what, "the name of option %zu", i);
    if (pd_text_check(what, option->name, err) != PD_OK) return PD_INVALID_ARGUMENT;
    snprintf(what, sizeof what, "the value of option %zu", i);
    return pd_text_check(what, option->value, err);
}

static int check_rule(const char *rule, size_t i, pd_error *err)
{
    size_t n = strlen(rule), at = pd_text_printable(rule, n);
    uint32_t point = 0;

    while (rule[at] == '\t') at += 1 + pd_text_printable(rule + at + 1, n - at - 1);
    if (at == n) return PD_OK;
    if (pd_utf8_next(rule + at, n - at, &point) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "rule %zu is not UTF-8 at byte %zu: \"%.200s\"", i, at, rule);
    return pd_fail(err, PD_INVALID_ARGUMENT, "rule %zu has a control character at byte %zu, U+%04X: \"%.200s\"", i, at,
                   (unsigned)point, rule);
}

static int check_texts(const pd_request *request, pd_error *err)
{
    const char *run = request->u.hello.run;
    int rc = check_name(request->u.hello.job_name, err);

    if (rc == PD_OK && run != NULL && strlen(run) > PD_RUN_MAX)
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "the run of job %.100s has %zu bytes, at most %d are allowed",
                     request->u.hello.job_name, strlen(run), PD_RUN_MAX);
    if (rc == PD_OK && run != NULL) rc = pd_text_check("the run", run, err);

    for (size_t i = 0; rc == PD_OK && i < request->u.hello.n_options; i++)
        rc = check_option(&request->u.hello.options[i], i, err);
    for (size_t i = 0; rc == PD_OK && i < request->u.hello.n_rules; i++)
        rc = check_rule(request->u.hello.rules[i], i, err);
    return rc;
}

int pd_hello_check(const pd_request *request, pd_error *err)
{
    int rc = check_texts(request, err);

    if (rc != PD_OK) return rc;
    if ((request->u.hello.world_size == 0 && !request->u.hello.any_rank) || request->u.hello.world_size > PD_MAX_WORLD)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a job has 1 to %d workers, not %u", PD_MAX_WORLD,
                       request->u.hello.world_size);
    if (!request->u.hello.any_rank && request->rank >= request->u.hello.world_size)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a job of %u workers has ranks 0 to %u, not %u",
                       request->u.hello.world_size, request->u.hello.world_size - 1, request->rank);
    return PD_OK;
}

int pd_hello_check_globs(const pd_request *request, pd_error *err)
{
    static const char blanks[] = " \t";

    for (size_t i = 0; i < request->u.hello.n_rules; i++) {
        const char *glob = request->u.hello.rules[i] + strspn(request->u.hello.rules[i], blanks);
        size_t n = strcspn(glob, blanks);
        if (n > PD_GLOB_MAX)
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "rule %zu: its glob \"%.80s...\" has %zu bytes; expected at most %d: use * for a part of it",
                           i, glob, n, PD_GLOB_MAX);
    }
    return PD_OK;
}

#define WINDOW_NS 10000000000ull /* length of the window over which the speed is measured: 10 seconds */

static const pd_speed_mark *mark_at(const pd_speed *speed, uint32_t i)
{
    return &speed->marks[(speed->first + i) % PD_SPEED_MARKS];
}

/* Adds a mark to the ring buffer. If the buffer is full, drops the oldest mark. */
static void add_mark(pd_speed *speed, pd_speed_mark mark)
{
    if (speed->n == PD_SPEED_MARKS)
        speed->first = (speed->first + 1) % PD_SPEED_MARKS;
    else
        speed->n++;
    speed->marks[(speed->first + speed->n - 1) % PD_SPEED_MARKS] = mark;
}

void pd_speed_note(pd_speed *speed, uint64_t step, uint64_t now_ns)
{
    if (speed->n > 0 && step <= speed->last.step) return;
    speed->last = (pd_speed_mark){ step, now_ns };
    if (speed->n == 0 || now_ns - mark_at(speed, speed->n - 1)->ns >= WINDOW_NS / (PD_SPEED_MARKS - 1))
        add_mark(speed, speed->last);
}

double pd_speed_at(const pd_speed *speed, uint64_t now_ns)
{
    const pd_speed_mark *oldest = mark_at(speed, 0);
    double steps, elapsed, idle;

    if (speed->n == 0 || speed->last.step == oldest->step) return 0;
    steps = (double)(speed->last.step - oldest->step);
    elapsed = (double)(speed->last.ns - oldest->ns);
    idle = now_ns > speed->last.ns ? (double)(now_ns - speed->last.ns) : 0;
    /* The step under way has taken longer than the average, so it lowers the speed. */
    if (idle > elapsed / steps) elapsed += idle - elapsed / steps;
    return elapsed > 0 ? steps * 1e9 / elapsed : 0;
}

pd_effect *pd_job_new_closed(const pd_job *job, size_t n)
{
    pd_effect *effect = pd_job_effect(job, PD_EFF_CLOSED);

    if (effect == NULL || (effect->u.closed.at = calloc(n + 1, sizeof *effect->u.closed.at)) != NULL) return effect;
    pd_effect_free(effect);
    return NULL;
}

void pd_job_send_closed(pd_job *job, pd_effect *effect)
{
    if (effect->u.closed.n > 0)
        pd_withheld_send(&job->steps.withheld, job->steps.outbox, effect);
    else
        pd_effect_free(effect);
}
