#include "plant.h"
#include "import.h"
#include "training.h"

#include "printable.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* ---- names ---- */

static uint64_t rotated(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void sip_rounds(uint64_t v[4], int n)
{
    while (n-- > 0) {
        v[0] += v[1]; v[1] = rotated(v[1], 13) ^ v[0]; v[0] = rotated(v[0], 32);
        v[2] += v[3]; v[3] = rotated(v[3], 16) ^ v[2];
        v[0] += v[3]; v[3] = rotated(v[3], 21) ^ v[0];
        v[2] += v[1]; v[1] = rotated(v[1], 17) ^ v[2]; v[2] = rotated(v[2], 32);
    }
}

/* SipHash-1-3 (Aumasson, Bernstein 2012): who does not know the key cannot choose names that collide. */
unsigned pd_store_hash(const pd_store *store, const char *name, size_t n)
{
    uint64_t k0 = store->config.hash_key[0], k1 = store->config.hash_key[1], word;
    uint64_t v[4] = { k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u };
    size_t left = n;

    for (;; name += 8, left -= 8) {
        word = left >= 8 ? 0 : (uint64_t)n << 56;
        memcpy(&word, name, left >= 8 ? 8 : left);
        v[3] ^= word;
        sip_rounds(v, 1);
        v[0] ^= word;
        if (left < 8) break;
    }
    v[2] ^= 0xff;
    sip_rounds(v, 3);
    return (unsigned)(v[0] ^ v[1] ^ v[2] ^ v[3]);
}

pd_job *pd_store_find(const pd_store *store, const char *name)
{
    pd_job *job = NULL;
    size_t n = name != NULL ? strlen(name) : 0;

    if (n == 0) return NULL;
    HASH_FIND_BYHASHVALUE(hh, store->names, name, n, pd_store_hash(store, name, n), job);
    return job;
}

static pd_job *by_number(const pd_store *store, uint32_t number)
{
    pd_job *job;

    HASH_FIND(hh_number, store->numbers, &number, sizeof number, job);
    return job;
}

pd_job *pd_store_job(const pd_store *store, uint32_t number)
{
    pd_job *job = by_number(store, number);

    return job != NULL && !job->gone ? job : NULL;
}

/* ---- life ---- */

static int check_config(const pd_store_config *config, pd_error *err)
{
    if (config->chunk_elements == 0 || config->chunk_elements % 16 != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "chunks have a multiple of 16 elements, more than none, not %llu",
                       (unsigned long long)config->chunk_elements);
    if (config->threads < 1)
        return pd_fail(err, PD_INVALID_ARGUMENT, "the step thread's team has at least 1 thread, not %d", config->threads);
    if (!(config->batch_ns > 0)) return pd_fail(err, PD_INVALID_ARGUMENT, "a batch lasts more than %g ns", config->batch_ns);
    return PD_OK;
}

int pd_store_new(pd_store **out, const pd_store_config *config, pd_error *err)
{
    pd_store *store;
    pd_job_values presets;
    int rc = check_config(config, err);

    pd_job_values_init(&presets);
    for (size_t i = 0; i < config->n_job_presets && rc == PD_OK; i++)
        rc = pd_job_values_set(&presets, config->job_presets[i].name, config->job_presets[i].value, err);
    if (rc != PD_OK) return rc;
    if ((store = calloc(1, sizeof *store)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for the training state");
    store->config = *config;
    if (config->rows == NULL) store->config.rows = pd_rows;
    store->presets = presets;
    *out = store;
    return PD_OK;
}

static void free_gone(pd_store *store, pd_job *job)
{
    if (job->tasks_out > 0) return;
    HASH_DELETE(hh_number, store->numbers, job);
    pd_job_free(job);
}

static int by_turn(const pd_job *a, const pd_job *b) { return a->turn < b->turn ? -1 : a->turn > b->turn; }

/* Who has waited longest since its last turn comes first: a job that has just become due is not behind the one that is always due. */
void pd_store_touch(pd_store *store, pd_job *job, uint64_t now_ns)
{
    if (job->queued || !pd_job_has_work(job, now_ns)) return;
    DL_INSERT_INORDER2(store->due, job, by_turn, prev_due, next_due);
    job->queued = true;
}

void pd_store_look_again(pd_store *store, uint64_t now_ns)
{
    pd_job *job, *next;

    if (PD_PLANTED(stale_look)) return;
    HASH_ITER(hh, store->names, job, next) {
        job->look = job->look_loose = true;
        pd_store_touch(store, job, now_ns);
    }
}

void pd_store_drop(pd_store *store, pd_job *job, const pd_error *err)
{
    if (job->queued) DL_DELETE2(store->due, job, prev_due, next_due);
    job->queued = false;
    HASH_DEL(store->names, job);
    store->n_jobs--;
    job->gone = true;
    pd_say(&store->outbox, PD_SAY_INFO, "job %s: %.300s", job->name, err->text);
    pd_job_release(job, err);
    free_gone(store, job);
}

static void drop_all(pd_store *store, const pd_error *err)
{
    pd_job *job, *next;

    HASH_ITER(hh, store->names, job, next) pd_store_drop(store, job, err);
}

void pd_store_free(pd_store *store)
{
    pd_error err;
    pd_effect *effect, *next;

    if (store == NULL) return;
    pd_fail(&err, PD_UNAVAILABLE, "the server stops");
    drop_all(store, &err);
    assert(store->numbers == NULL);             /* all root tasks are back */
    for (pd_request *request = store->drain, *after; request != NULL; request = after) {
        after = (pd_request *)(void *)request->mail.next;
        pd_request_free(request);
    }
    for (effect = pd_effects_take(&store->outbox); effect != NULL; effect = next) {
        next = (pd_effect *)(void *)effect->mail.next;
        if (effect->kind == PD_EFF_CLOSED)
            for (size_t i = 0; i < effect->u.closed.n; i++) pd_snapshot_unref(effect->u.closed.at[i].snapshot);
        pd_effect_free(effect);
    }
    pd_sums_free(&store->sums);
    pd_collect_batch_free(&store->gathering);
    free(store);
}

pd_effect *pd_store_effects(pd_store *store) { return pd_effects_take(&store->outbox); }

/* ---- requests ---- */

static pd_buffer *buffer_of(const pd_request *request)
{
    if (request->kind == PD_REQ_IMPORT) return request->u.import.buffer;
    return request->kind == PD_REQ_PUSH || request->kind == PD_REQ_INIT ? request->u.data.buffer : NULL;
}

void pd_store_refuse(pd_store *store, pd_request *request, const pd_error *err)
{
    if (request->answer != NULL) pd_answer_error(&store->outbox, request, err);
    pd_store_done(store, request);
}

void pd_store_done(pd_store *store, pd_request *request)
{
    pd_buffer *buffer = buffer_of(request);
    pd_effect *effect;

    if (buffer == NULL) {
        pd_request_free(request);
        return;
    }
    effect = pd_request_become(request, PD_EFF_BUFFER, (pd_ticket){ buffer->conn, 0 }, 0);
    effect->u.buffer = buffer;
    pd_effects_add(&store->outbox, effect);
}

static int check_name(const char *name, pd_error *err)
{
    if (name == NULL || name[0] == '\0' || strlen(name) > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a job's name has 1 to %d bytes", PD_NAME_MAX);
    return pd_text_check("the job's name", name, err);
}

/* Options and rules come back in the errors of other workers. A rule may have tabs between its words. */
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
    return pd_fail(err, PD_INVALID_ARGUMENT, "rule %zu has a control character at byte %zu, U+%04X: \"%.200s\"", i, at, (unsigned)point, rule);
}

static int check_texts(const pd_request *request, pd_error *err)
{
    int rc = check_name(request->u.hello.job_name, err);

    for (size_t i = 0; rc == PD_OK && i < request->u.hello.n_options; i++) rc = check_option(&request->u.hello.options[i], i, err);
    for (size_t i = 0; rc == PD_OK && i < request->u.hello.n_rules; i++) rc = check_rule(request->u.hello.rules[i], i, err);
    return rc;
}

static int check_hello(const pd_request *request, pd_error *err)
{
    int rc = check_texts(request, err);

    if (rc != PD_OK) return rc;
    if (request->u.hello.world_size == 0 || request->u.hello.world_size > PD_MAX_WORLD)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a job has 1 to %d workers, not %u", PD_MAX_WORLD, request->u.hello.world_size);
    if (request->rank >= request->u.hello.world_size)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a job of %u workers has ranks 0 to %u, not %u", request->u.hello.world_size,
                       request->u.hello.world_size - 1, request->rank);
    return PD_OK;
}

static int add_job(pd_store *store, pd_job *job, pd_error *err)
{
    size_t n = strlen(job->name);

    HASH_ADD(hh_number, store->numbers, number, sizeof job->number, job);
    if (job->hh_number.tbl == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for job %.100s", job->name);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, store->names, job->name, n, pd_store_hash(store, job->name, n), job);
    if (job->hh.tbl == NULL) {
        HASH_DELETE(hh_number, store->numbers, job);
        return pd_fail(err, PD_NO_MEMORY, "out of memory for job %.100s", job->name);
    }
    store->last_number = job->number;
    store->n_jobs++;
    return PD_OK;
}

static int create_job(pd_store *store, const pd_request *request, pd_job **out, pd_error *err)
{
    pd_job *job;
    int rc;

    if (store->draining) return pd_fail(err, PD_UNAVAILABLE, "the server is draining and takes no new jobs");
    if (store->n_jobs >= store->config.max_jobs)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s would be one more than the %u jobs allowed (limits.max_jobs)",
                       request->u.hello.job_name, store->config.max_jobs);
    if ((rc = pd_job_new(&job, store, request, err)) != PD_OK) return rc;
    if ((rc = add_job(store, job, err)) != PD_OK) {
        pd_job_free(job);
        return rc;
    }
    pd_say(&store->outbox, PD_SAY_INFO, "job %s: created for %u workers", job->name, job->world);
    *out = job;
    return PD_OK;
}

static void hello(pd_store *store, pd_request *request)
{
    pd_error err;
    pd_job *job = pd_store_find(store, request->u.hello.job_name);
    bool created = job == NULL;
    int rc = check_hello(request, &err);

    if (rc == PD_OK && request->u.hello.rejoins && (created || (request->u.hello.creator != 0 && request->u.hello.creator != job->creator)))
        rc = pd_fail(&err, PD_NOT_FOUND, "the job %.200s that this worker was in is not on this server any more, and who rejoins a job does not create it", request->u.hello.job_name);
    if (rc == PD_OK) rc = created ? create_job(store, request, &job, &err) : pd_job_agrees(job, request, &err);
    if (rc == PD_OK) rc = pd_job_admits(job, request, &err);
    if (rc != PD_OK) pd_store_refuse(store, request, &err);
    else pd_job_join(job, request, created);
}

static void drop(pd_store *store, pd_request *request)
{
    const char *name = request->u.info.job_name;
    pd_job *job = pd_store_find(store, name);
    pd_error err;

    pd_fail(&err, PD_ABORTED, "an operator has dropped the job");
    if (name == NULL || name[0] == '\0') {     /* our own stepper, at its end */
        pd_fail(&err, PD_UNAVAILABLE, "the server stops");
        drop_all(store, &err);
    } else if (job != NULL) {
        pd_store_drop(store, job, &err);
    } else {
        pd_fail(&err, PD_NOT_FOUND, "there is no job %.200s", name);
        pd_store_refuse(store, request, &err);
        return;
    }
    pd_answer_ok(&store->outbox, request);
    pd_request_free(request);
}

/* Snapshots find their way home by themselves: their parameter may be gone. */
static void released(pd_request *request)
{
    pd_snapshot *next;

    for (pd_snapshot *snapshot = request->u.released.first; snapshot != NULL; snapshot = next) {
        next = snapshot->next_released;
        pd_snapshot_unref(snapshot);
    }
    pd_request_free(request);
}

static void task(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = by_number(store, request->job);

    assert(job != NULL);                        /* a job stays until its tasks are back */
    pd_job_task(job, request, now_ns);
    if (job->gone) free_gone(store, job);
}

/* ---- apply, work, tick ---- */

/* An operator who imports has no job and no share: its piece waits until the whole budget has room. */
static void operator_stalled(pd_store *store, pd_request *request, uint64_t now_ns)
{
    if (store->held > 0) store->short_of_budget = true;
    pd_store_look_again(store, now_ns);
    pd_request_free(request);
}

/* Requests of a worker, to its job. */
static void to_job(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = pd_store_job(store, request->job);
    pd_error err;

    if (request->kind == PD_REQ_STALLED && request->job == 0) {
        operator_stalled(store, request, now_ns);
        return;
    }
    if (job == NULL) {
        pd_fail(&err, PD_ABORTED, "this job has ended: say Hello again");
        pd_store_refuse(store, request, &err);
        return;
    }
    switch (request->kind) {
    case PD_REQ_DECLARE: pd_job_declare(job, request, now_ns); break;
    case PD_REQ_INIT:    pd_job_init(job, request, now_ns); break;
    case PD_REQ_PUSH:    pd_job_push(job, request, now_ns); break;
    case PD_REQ_BARRIER: pd_job_barrier(job, request); break;
    case PD_REQ_LEAVE:   pd_job_leave(job, request, now_ns); break;
    case PD_REQ_STALLED: pd_job_stalled(job, request, now_ns); break;
    default:
        assert(request->kind == PD_REQ_LOST);
        pd_job_lost(job, request, now_ns);
        pd_request_free(request);
    }
}

void pd_store_apply(pd_store *store, pd_request *request, uint64_t now_ns)
{
    switch (request->kind) {
    case PD_REQ_HELLO:    hello(store, request); break;
    case PD_REQ_INFO:     pd_store_info(store, request); break;
    case PD_REQ_DROP:     drop(store, request); break;
    case PD_REQ_SET:      pd_store_set(store, request); break;
    case PD_REQ_DRAIN:    pd_store_drain(store, request, now_ns); break;
    case PD_REQ_IMPORT:   pd_store_import(store, request, now_ns); break;
    case PD_REQ_RELEASED: released(request); break;
    case PD_REQ_TASK:     task(store, request, now_ns); break;
    default:              to_job(store, request, now_ns); break;
    }
    pd_store_answer_drain(store, now_ns);
}

bool pd_store_work(pd_store *store, uint64_t now_ns)
{
    pd_job *job = store->due;

    if (job == NULL) return false;
    DL_DELETE2(store->due, job, prev_due, next_due);
    job->queued = false;
    job->turn = ++store->turns;
    pd_job_work(job, now_ns);
    pd_store_touch(store, job, now_ns);
    pd_store_answer_drain(store, now_ns);
    return store->due != NULL;
}

bool pd_store_has_work(const pd_store *store) { return store->due != NULL; }

void pd_store_tick(pd_store *store, uint64_t now_ns)
{
    pd_job *job, *next;

    HASH_ITER(hh, store->names, job, next) pd_job_tick(job, now_ns);
    pd_store_answer_drain(store, now_ns);
}

uint64_t pd_store_next_tick(const pd_store *store)
{
    const pd_job *job, *next;
    uint64_t at = UINT64_MAX;

    HASH_ITER(hh, store->names, job, next)
        if (pd_job_next_tick(job) < at) at = pd_job_next_tick(job);
    for (const pd_request *request = store->drain; request != NULL; request = (const pd_request *)(const void *)request->mail.next)
        if (request->u.drain.deadline_ns < at) at = request->u.drain.deadline_ns;
    return at;
}

/* ---- bytes ---- */

pd_store_bytes pd_store_count_bytes(const pd_store *store)
{
    pd_store_bytes bytes = { .held = store->held };
    const pd_job *job, *next;

    HASH_ITER(hh_number, store->numbers, job, next) {
        for (uint32_t i = 0; i < job->n_params; i++) {
            const pd_param *param = &job->params[i];
            if (param->current != NULL) bytes.weights += (uint64_t)param->elements * sizeof(float);
            if (param->accumulator != NULL) bytes.accumulators += (uint64_t)param->elements * sizeof(float);
            bytes.state += (uint64_t)pd_optim_state_bytes(param->optim);
        }
    }
    bytes.snapshots = store->pools.used + store->pools.idle - bytes.weights - bytes.accumulators;
    return bytes;
}
