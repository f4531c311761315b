/* rig.c - drives the store as the daemon does, without threads and sockets. */
#include "rig.h"

#include "blascore.h"
#include "block_codec.h"
#include "convert.h"
#include "optimizer.h"
#include "test.h"

enum { MAX_PIECES = 4096 };

struct rig_frame {
    rig *r;
    pd_request *request;
    size_t bytes; /* number of payload bytes in the frame so far */
    uint8_t *payload;
};

pd_store_config rig_config(void)
{
    return (pd_store_config){ .max_jobs = 32,
                              .max_params = 4096,
                              .max_total_bytes = (uint64_t)4 << 30,
                              .ingest_bytes = (uint64_t)256 << 20,
                              .chunk_elements = 64,
                              .threads = 1,
                              .batch_ns = 50e6,
                              .hash_key = { 1, 2 } };
}

void rig_new(rig *r, const pd_store_config *config)
{
    pd_error err;

    memset(r, 0, sizeof *r);
    r->now = 1000000000;
    r->run = "launch";
    r->chunk = (int64_t)config->chunk_elements;
    assert_int_equal(pd_store_new(&r->store, config, &err), PD_OK);
}

static void *must(void *at)
{
    assert_non_null(at);
    return at;
}

pd_ticket rig_ticket(rig *r, uint64_t conn)
{
    return (pd_ticket){ conn, ++r->last_id };
}

static void release(rig *r, pd_published *published)
{
    pd_request *request;

    if (published == NULL) return;
    request = must(pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 }));
    published->next_released = NULL;
    request->u.released.first = published;
    pd_store_apply(r->store, request, r->now);
}

/* Moves the scalars of a closed round to the parameter's record, where they stay until the next round closes. */
static void take_scalars(rig_entry *entry, pd_closed *closed)
{
    assert_true(closed->scalars == NULL || (closed->outcome != 0 && closed->scalars->n > 0));
    if (closed->outcome == 0) return;
    pd_scalar_means_unref(entry->scalars);
    entry->scalars = closed->scalars;
    closed->scalars = NULL;
}

static void on_closed(rig *r, const pd_effect *effect)
{
    rig_entry **versions = &r->versions[effect->job % RIG_JOBS];

    if (*versions == NULL) *versions = must(calloc(4096, sizeof **versions));
    if (r->batches < 1024) r->batch_jobs[r->batches] = effect->job;
    r->batches++;
    for (size_t i = 0; i < effect->u.closed.n; i++) {
        pd_closed *closed = &effect->u.closed.at[i];
        rig_entry *entry = &(*versions)[closed->param];
        assert_true(entry->closed == 0 || closed->step == entry->step + (closed->outcome != 0));
        entry->step = closed->step;
        entry->outcome = closed->outcome;
        entry->closed++;
        snprintf(entry->why, sizeof entry->why, "%s", closed->why != NULL ? closed->why->text : "");
        assert_true(closed->why == NULL || closed->outcome == PD_REFUSED);
        take_scalars(entry, closed);
        if (closed->published == NULL) continue;
        assert_int_equal(closed->published->param, closed->param);
        assert_int_equal(closed->published->job, effect->job);
        release(r, entry->published);
        entry->published = closed->published;
    }
}

static void forget_board(rig *r, uint32_t job)
{
    rig_entry *versions = r->versions[job % RIG_JOBS];

    for (int i = 0; versions != NULL && i < 4096; i++) {
        release(r, versions[i].published);
        pd_scalar_means_unref(versions[i].scalars);
    }
    free(versions);
    r->versions[job % RIG_JOBS] = NULL;
}

static void on_buffer(rig *r, pd_buffer *buffer)
{
    assert_true(buffer->refs == 0);
    r->buffers_out--;
    /* It returns to a connection that is charged for it: the loop thread counts so. */
    assert_true(r->bytes_out[buffer->conn % RIG_CONNS] >= buffer->charged);
    r->bytes_out[buffer->conn % RIG_CONNS] -= buffer->charged;
    free(buffer->at);
    free(buffer);
}

static void bring_back(rig *r, struct pd_task *task, uint32_t job, uint32_t param)
{
    pd_request *request = must(pd_request_new(PD_REQ_TASK, (pd_ticket){ 0, 0 }));

    request->job = job;
    request->u.task.task = task;
    request->u.task.param = param;
    pd_store_apply(r->store, request, r->now);
}

/* Runs a preconditioner task as the preconditioner pool does. */
static void run_task(struct pd_task *task)
{
    pd_blas_one_thread();
    pd_task_run(task);
}

static void on_task(rig *r, const pd_effect *effect)
{
    if (!r->lazy_tasks) {
        run_task(effect->u.task.task);
        bring_back(r, effect->u.task.task, effect->job, effect->u.task.param);
        return;
    }
    assert_true(r->n_tasks < 256);
    r->tasks[r->n_tasks] = effect->u.task.task;
    r->task_params[r->n_tasks] = effect->u.task.param;
    r->task_jobs[r->n_tasks++] = effect->job;
}

/* Returns a task that lazy_tasks has kept to the store: it is run, unless a newer one replaces it. */
static void return_task(rig *r, size_t i, bool runs)
{
    struct pd_task *task = r->tasks[i];
    uint32_t job = r->task_jobs[i], param = r->task_params[i];

    r->n_tasks--;
    memmove(&r->tasks[i], &r->tasks[i + 1], (r->n_tasks - i) * sizeof r->tasks[0]);
    memmove(&r->task_params[i], &r->task_params[i + 1], (r->n_tasks - i) * sizeof r->task_params[0]);
    memmove(&r->task_jobs[i], &r->task_jobs[i + 1], (r->n_tasks - i) * sizeof r->task_jobs[0]);
    if (runs) run_task(task);
    bring_back(r, task, job, param);
    rig_absorb(r);
}

void rig_finish_task(rig *r, size_t i)
{
    return_task(r, i, true);
}

void rig_replace_task(rig *r, size_t i)
{
    assert_true(pd_task_replaceable(r->tasks[i]));
    return_task(r, i, false);
}

static void on_declared(rig *r, const pd_effect *effect)
{
    r->bytes_out[effect->ticket.conn % RIG_CONNS] += effect->u.declared.held;
    r->must_init = effect->u.declared.must_init;
    r->reserve = effect->u.declared.reserve;
    r->leases = effect->u.declared.leases;
    free(r->places);
    r->n_places = effect->u.declared.n_places;
    r->places = r->n_places > 0 ? must(malloc(r->n_places * sizeof *r->places)) : NULL;
    if (r->n_places > 0) memcpy(r->places, effect->u.declared.places, r->n_places * sizeof *r->places);
    r->map = effect->u.declared.map;
    r->settles = effect->u.declared.settles;
    for (size_t i = 0; i < effect->u.declared.n && i < 4096; i++) {
        r->handles[i] = effect->u.declared.params[i].param;
        r->initialised[i] = effect->u.declared.params[i].initialised;
        r->replaced[i] = effect->u.declared.params[i].replaced;
        r->steps[i] = effect->u.declared.params[i].step;
        if (i < 16)
            snprintf(r->notes[i], sizeof r->notes[i], "%s",
                     effect->u.declared.params[i].note != NULL ? effect->u.declared.params[i].note : "");
    }
}

static void on_log(rig *r, const pd_effect *effect)
{
    r->logs++;
    snprintf(r->log, sizeof r->log, "%s", effect->u.log.text);
    if (effect->u.log.level > 4) return;
    r->warnings++;
    snprintf(r->warning, sizeof r->warning, "%s", effect->u.log.text);
    r->errors += effect->u.log.level == 3;
    if (effect->u.log.level == 3) snprintf(r->fault, sizeof r->fault, "%s", effect->u.log.text);
}

static void on_answer(rig *r, const pd_effect *effect)
{
    assert_true(effect->ticket.id != 0);
    r->answer = effect->kind;
    r->answered++;
    r->error.code = PD_OK;
    if (effect->kind == PD_EFF_ERROR) r->error = effect->u.error;
}

static void on_recalled(rig *r, const pd_effect *effect)
{
    on_answer(r, effect);
    r->note_step = effect->u.worker_state.step;
    assert_true(effect->u.worker_state.bytes < sizeof r->note);
    memset(r->note, 0, sizeof r->note);
    if (effect->u.worker_state.bytes > 0) memcpy(r->note, effect->u.worker_state.at, effect->u.worker_state.bytes);
}

static void on_settled(rig *r, const pd_effect *effect)
{
    on_answer(r, effect);
    if (effect->u.settled.at == NULL) return; /* it answers a verdict */
    assert_true(effect->u.settled.bytes <= sizeof r->tally);
    r->tally_bytes = effect->u.settled.bytes;
    r->tally_step = effect->u.settled.step;
    r->tally_phase = effect->u.settled.phase;
    memcpy(r->tally, effect->u.settled.at, effect->u.settled.bytes);
    r->tallies++;
}

static void on_hello(rig *r, const pd_effect *effect)
{
    on_answer(r, effect);
    r->job = effect->job;
    r->seed = effect->u.hello.seed;
    r->creator = effect->u.hello.creator;
    r->in_cluster = effect->u.hello.cluster;
    r->life = effect->u.hello.life;
    r->created = effect->u.hello.created;
    r->welcome_step = effect->u.hello.step;
    r->welcome_course = effect->u.hello.course;
    r->rank = effect->u.hello.rank;
    r->slots = effect->u.hello.slots;
    r->epoch = effect->u.hello.epoch;
    r->formed = effect->u.hello.generation;
}

static void on_info(rig *r, pd_effect *effect)
{
    on_answer(r, effect);
    pd_info_free(r->info);
    r->info = effect->u.info;
    effect->u.info = NULL;
}

static void on_set(rig *r, pd_effect *effect)
{
    on_answer(r, effect);
    pd_set_result_free(r->set);
    r->set = effect->u.set;
    effect->u.set = NULL;
}

static void on_export(rig *r, pd_effect *effect)
{
    on_answer(r, effect);
    free(r->exported.at);
    r->exported = effect->u.exported;
    effect->u.exported.at = NULL;
}

static void on_checkpoint_answer(rig *r, const pd_effect *effect)
{
    on_answer(r, effect);
    r->checkpoint_step = effect->u.checkpoint.step;
    r->checkpoint_bytes = effect->u.checkpoint.bytes;
}

static void on_members(rig *r, const pd_effect *effect)
{
    r->epoch = effect->u.members.epoch;
    if (effect->u.members.set == NULL) return;
    r->members = effect->u.members.set->set[0];
    r->leader = effect->u.members.leader;
    r->reports++;
}

static void on_timed_out(rig *r, const pd_effect *effect)
{
    r->timed_out++;
    r->timed_out_step = effect->u.timed_out.step;
    r->timeout = effect->u.timed_out.error;
}

static void on_fenced(rig *r, const pd_effect *effect)
{
    r->fenced_conn = effect->ticket.conn;
    r->fenced = effect->u.error;
}

static void on_gone(rig *r, const pd_effect *effect)
{
    r->gone++;
    r->gone_job = effect->job;
    r->goodbye = effect->u.error;
    forget_board(r, effect->job);
}

static void on_stats(rig *r, const pd_effect *effect)
{
    r->stats++;
    r->stats_ranks = effect->u.stats->n_ranks;
}

/* Takes an effect that answers a request. Returns false if it answers none. */
static bool take_answer(rig *r, pd_effect *effect)
{
    switch (effect->kind) {
    case PD_EFF_HELLO: on_hello(r, effect); return true;
    case PD_EFF_DECLARED:
        on_answer(r, effect);
        on_declared(r, effect);
        return true;
    case PD_EFF_OK:
    case PD_EFF_SHARE:
    case PD_EFF_ERROR: on_answer(r, effect); return true;
    case PD_EFF_INFO: on_info(r, effect); return true;
    case PD_EFF_SET: on_set(r, effect); return true;
    case PD_EFF_EXPORT: on_export(r, effect); return true;
    case PD_EFF_WORKER_STATE: on_recalled(r, effect); return true;
    case PD_EFF_CHECKPOINT: on_checkpoint_answer(r, effect); return true;
    case PD_EFF_SETTLED: on_settled(r, effect); return true;
    default: return false;
    }
}

/* Takes an effect that answers no request. */
static void take_report(rig *r, pd_effect *effect)
{
    switch (effect->kind) {
    case PD_EFF_CLOSED: on_closed(r, effect); break;
    case PD_EFF_FILED: r->filed = effect->u.filed.how; break;
    case PD_EFF_MEMBERS: on_members(r, effect); break;
    case PD_EFF_LEASES: r->leases = effect->u.leases; break;
    case PD_EFF_TIMED_OUT: on_timed_out(r, effect); break;
    case PD_EFF_BUFFER: on_buffer(r, effect->u.buffer); break;
    case PD_EFF_FENCED: on_fenced(r, effect); break;
    case PD_EFF_JOB_GONE: on_gone(r, effect); break;
    case PD_EFF_TASK: on_task(r, effect); break;
    case PD_EFF_WRITE_CHECKPOINT: rig_on_checkpoint(r, effect->u.checkpoint_image); break;
    case PD_EFF_WAL: rig_on_record(r, effect->u.wal); break;
    case PD_EFF_GO_BACK: rig_on_order(r, effect->u.go_back_order); break;
    case PD_EFF_DURABLE:
        r->durable = effect->u.durable.step;
        r->mirrored = effect->u.durable.mirrored;
        break;
    case PD_EFF_STATS: on_stats(r, effect); break;
    case PD_EFF_LOG: on_log(r, effect); break;
    default: break;
    }
}

void rig_absorb(rig *r)
{
    pd_effect *effect, *next;

    while ((effect = pd_store_effects(r->store)) != NULL)
        for (; effect != NULL; effect = next) {
            next = (pd_effect *)(void *)effect->mail.next;
            if (r->watch != NULL) r->watch(r->watcher, effect);
            if (!take_answer(r, effect)) take_report(r, effect);
            pd_effect_free(effect);
        }
}

int rig_apply(rig *r, pd_request *request)
{
    r->error.code = PD_OK;
    pd_store_apply(r->store, request, r->now);
    rig_absorb(r);
    return r->error.code;
}

int rig_apply_declare(rig *r, pd_request *request)
{
    uint64_t last = r->answered;
    bool more = true;

    rig_apply(r, request);
    while (r->answered == last && more) {
        more = pd_store_work(r->store, r->now);
        rig_absorb(r);
    }
    return r->error.code;
}

void rig_work(rig *r)
{
    bool more;

    do {
        more = pd_store_work(r->store, r->now);
        rig_absorb(r);
    } while (more || pd_store_has_work(r->store));
    assert_false(pd_store_work(r->store, r->now));
    rig_absorb(r);
}

void rig_sleep(rig *r, double seconds)
{
    r->now += (uint64_t)(seconds * 1e9);
    pd_store_tick(r->store, r->now);
    rig_absorb(r);
}

static pd_option *read_options(const char *options, size_t *n)
{
    char *copy = must(strdup(options != NULL ? options : "")), *rest = NULL;
    pd_option *at = must(calloc(PD_MAX_OPTIONS + 1, sizeof *at));

    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        at[(*n)++] = (pd_option){ must(strdup(word)), must(strdup(equals + 1)) };
    }
    free(copy);
    return at;
}

static void add_rules(pd_request *request, const char *rules)
{
    char *copy = must(strdup(rules != NULL ? rules : "")), *rest = NULL;

    request->u.hello.rules = must(calloc(64, sizeof(char *)));
    for (char *rule = strtok_r(copy, ";", &rest); rule != NULL; rule = strtok_r(NULL, ";", &rest))
        request->u.hello.rules[request->u.hello.n_rules++] = must(strdup(rule));
    free(copy);
}

int rig_hello(rig *r, const char *job, uint32_t rank, uint32_t world, uint64_t nonce, uint64_t conn,
              const char *options, const char *rules)
{
    pd_request *request = must(pd_request_new(PD_REQ_HELLO, rig_ticket(r, conn)));
    char label[32];

    snprintf(label, sizeof label, "host:%llu", (unsigned long long)nonce);
    request->rank = rank;
    request->u.hello.job_name = must(strdup(job));
    request->u.hello.label = must(strdup(label));
    request->u.hello.world_size = world;
    request->u.hello.nonce = nonce;
    request->u.hello.identity = r->identity != NULL ? must(strdup(r->identity)) : NULL;
    request->u.hello.run = r->run != NULL ? must(strdup(r->run)) : NULL;
    request->u.hello.intent = r->intent;
    request->u.hello.joins = r->joins;
    request->u.hello.any_rank = r->any_rank;
    request->u.hello.grouped = r->group > 0;
    request->u.hello.group = r->group > 0 ? r->group - 1 : 0;
    request->u.hello.generation = r->generation;
    request->u.hello.rejoins = r->rejoins;
    request->u.hello.creator = r->means;
    request->u.hello.window = r->window;
    request->u.hello.barriers = r->barriers;
    request->u.hello.steps = r->seen;
    request->u.hello.course = r->course;
    request->u.hello.shard = r->shard;
    request->u.hello.shards = r->shards;
    request->u.hello.cluster = r->cluster;
    request->u.hello.options = read_options(options, &request->u.hello.n_options);
    add_rules(request, rules);
    return rig_apply(r, request);
}

int rig_settle(rig *r, uint32_t rank, uint64_t conn, uint64_t step, uint32_t phase, const pd_tally_view *tallies,
               size_t n)
{
    pd_request *request = must(pd_request_new(PD_REQ_SETTLE, rig_ticket(r, conn)));

    request->job = r->job;
    request->rank = rank;
    request->u.settle.step = step;
    request->u.settle.phase = phase;
    if (n > 0) assert_int_equal(pd_tallies_copy(&request->u.settle, tallies, n), PD_OK);
    return rig_apply(r, request);
}

int rig_ask_as(rig *r, pd_request_kind kind, uint32_t rank, uint64_t conn, uint64_t sequence)
{
    pd_request *request = must(pd_request_new(kind, rig_ticket(r, conn)));

    request->job = r->job;
    request->rank = rank;
    if (kind == PD_REQ_BARRIER) request->u.barrier.sequence = sequence;
    if (kind == PD_REQ_LOST) {
        request->ticket.id = 0;
        snprintf(request->u.lost.reason, sizeof request->u.lost.reason, "the connection has ended");
    }
    return rig_apply(r, request);
}

int rig_kick(rig *r, const char *job, uint32_t rank)
{
    pd_request *request = must(pd_request_new(PD_REQ_KICK, rig_ticket(r, 1)));

    request->u.kick.job_name = must(strdup(job));
    request->u.kick.by = must(strdup("operator:7"));
    request->u.kick.rank = rank;
    return rig_apply(r, request);
}

int rig_declare(rig *r, uint32_t job, uint32_t rank, uint64_t conn, const char *const *names, const pd_shape *shapes,
                const uint32_t *order, size_t n, pd_dtype pull)
{
    pd_request *request = must(pd_request_new(PD_REQ_DECLARE, rig_ticket(r, conn)));

    request->job = job;
    request->rank = rank;
    request->u.declare.n = n;
    request->u.declare.wants = r->wants;
    request->u.declare.params = must(calloc(n + 1, sizeof(pd_param_decl)));
    for (size_t i = 0; i < n; i++) {
        size_t p = order != NULL ? order[i] : i;
        pd_param_decl *decl = &request->u.declare.params[i];
        *decl = (pd_param_decl){ .name = must(strdup(names[p])),
                                 .shape = shapes[p],
                                 .pull_dtype = pull,
                                 .push_dtype = r->push_dtype,
                                 .model_state = r->states != NULL && r->states[p] };
        if (r->fragments != NULL) decl->fragment = r->fragments[p];
        if (r->axes != NULL && r->axes[p] != NULL) decl->axes = must(strdup(r->axes[p]));
        if (r->ranges == NULL || r->ranges[p].start < 0) continue;
        decl->ranged = true;
        decl->start = r->ranges[p].start;
        decl->end = r->ranges[p].end;
    }
    return rig_apply_declare(r, request);
}

int rig_declare_range(rig *r, uint32_t rank, uint64_t conn, const char *name, const pd_shape *shape, rig_range range)
{
    int rc;

    r->ranges = &range;
    rc = rig_declare(r, r->job, rank, conn, &name, shape, NULL, 1, PD_F32);
    r->ranges = NULL;
    return rc;
}

rig_frame *rig_frame_new(rig *r, pd_request_kind kind, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step)
{
    rig_frame *frame = must(calloc(1, sizeof *frame));

    frame->r = r;
    frame->request = must(pd_request_new(kind, rig_ticket(r, conn)));
    frame->request->job = job;
    frame->request->rank = rank;
    frame->request->u.data.step = step;
    frame->request->u.data.weight = 1;
    if (kind == PD_REQ_PUSH) frame->request->u.data.wants = r->wants;
    frame->request->u.data.pieces = must(calloc(MAX_PIECES, sizeof(pd_piece)));
    frame->request->u.data.hypers = must(calloc(PD_MAX_OPTIONS, sizeof(pd_option)));
    frame->request->u.data.scalars = must(calloc(PD_MAX_SCALARS, sizeof(pd_scalar_value)));
    return frame;
}

void rig_piece(rig_frame *frame, uint32_t param, pd_dtype dtype, int64_t first, int64_t count, const float *values)
{
    size_t bytes = ((size_t)pd_dtype_bytes(dtype, (uint64_t)count) + 63) / 64 * 64;
    pd_request *request = frame->request;

    assert_true(request->u.data.n < MAX_PIECES);
    frame->payload = must(realloc(frame->payload, frame->bytes + bytes));
    memset(frame->payload + frame->bytes, 0, bytes);
    if (pd_dtype_is_quantized(dtype))
        pd_blocks_encode(frame->payload + frame->bytes, dtype, values, count);
    else
        pd_convert(frame->payload + frame->bytes, dtype, values, PD_F32, count);
    /* address of the piece: an offset for now, as the payload may still move */
    request->u.data.pieces[request->u.data.n++] =
        (pd_piece){ param, dtype, false, first, count, (const void *)(uintptr_t)frame->bytes };
    frame->bytes += bytes;
}

void rig_absent(rig_frame *frame, uint32_t param)
{
    frame->request->u.data.pieces[frame->request->u.data.n++] = (pd_piece){ .param = param, .absent = true };
}

void rig_last(rig_frame *frame)
{
    frame->request->u.data.close_step = true;
}

void rig_carried(rig_frame *frame)
{
    frame->request->u.data.carried = true;
}

void rig_replaces(rig_frame *frame, uint64_t number, uint32_t whole)
{
    frame->request->u.data.replaces = number;
    frame->request->u.data.whole = whole;
}

void rig_patience(rig_frame *frame, uint64_t ms)
{
    frame->request->u.data.patience_ns = ms * 1000000;
}

void rig_weight(rig_frame *frame, double weight, bool presummed)
{
    frame->request->u.data.weight = weight;
    frame->request->u.data.presummed = presummed;
}

void rig_share(rig_frame *frame, uint64_t share)
{
    frame->request->u.data.share = 1 + share;
    frame->request->u.data.wants = 1;
}

void rig_hyper(rig_frame *frame, const char *name, const char *value)
{
    frame->request->u.data.hypers[frame->request->u.data.n_hypers++] =
        (pd_option){ must(strdup(name)), must(strdup(value)) };
}

void rig_scalar(rig_frame *frame, const char *name, double value)
{
    pd_scalar_value *scalar = &frame->request->u.data.scalars[frame->request->u.data.n_scalars++];

    snprintf(scalar->name, sizeof scalar->name, "%s", name);
    scalar->value = value;
}

void *rig_payload(rig *r, uint64_t conn, size_t bytes, pd_buffer **out)
{
    pd_buffer *buffer = must(calloc(1, sizeof *buffer));

    buffer->conn = conn;
    buffer->size = buffer->charged = bytes;
    buffer->at = must(aligned_alloc(64, (bytes + 63) / 64 * 64));
    r->buffers_out++;
    r->bytes_out[conn % RIG_CONNS] += bytes;
    *out = buffer;
    return buffer->at;
}

static void land(rig_frame *frame)
{
    pd_request *request = frame->request;
    pd_buffer *buffer;

    memcpy(rig_payload(frame->r, request->ticket.conn, frame->bytes, &buffer), frame->payload, frame->bytes);
    request->u.data.buffer = buffer;
    for (size_t i = 0; i < request->u.data.n; i++)
        if (!request->u.data.pieces[i].absent)
            request->u.data.pieces[i].at = buffer->at + (uintptr_t)request->u.data.pieces[i].at;
}

pd_request *rig_request(rig_frame *frame)
{
    pd_request *request = frame->request;

    if (frame->bytes > 0) land(frame);
    free(frame->payload);
    free(frame);
    return request;
}

int rig_send(rig *r, rig_frame *frame)
{
    return rig_apply(r, rig_request(frame));
}

static int send_chunks(rig *r, pd_request_kind kind, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step,
                       uint32_t param, const float *values, int64_t n)
{
    int64_t chunk = r->chunk;
    int rc = PD_OK;

    for (int64_t first = 0; first < n && rc == PD_OK; first += chunk) {
        rig_frame *frame = rig_frame_new(r, kind, job, rank, conn, step);
        rig_piece(frame, param, PD_F32, first, n - first < chunk ? n - first : chunk, values + first);
        rc = rig_send(r, frame);
    }
    return rc;
}

int rig_init(rig *r, uint32_t job, uint64_t conn, uint32_t param, const float *values, int64_t n)
{
    int rc = send_chunks(r, PD_REQ_INIT, job, 0, conn, 0, param, values, n);

    rig_work(r);
    return rc != PD_OK ? rc : r->error.code;
}

int rig_push(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step, uint32_t param, const float *values,
             int64_t n)
{
    return send_chunks(r, PD_REQ_PUSH, job, rank, conn, step, param, values, n);
}

uint64_t rig_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t x = *state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void rig_noise(uint64_t seed, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = rig_random(&seed);
        float mantissa = (float)(x >> 40) / (float)(1 << 24) - 0.5f;
        out[i] = mantissa * (float)(1 << (x & 15));
    }
}

uint32_t rig_start(rig *r, const char *job, uint32_t world, uint64_t conn, const int64_t *sizes, size_t n,
                   const char *options, const char *rules)
{
    char text[64][24];
    const char *names[64];
    pd_shape shapes[64];
    uint32_t number;

    assert_true(n <= 64);
    for (size_t p = 0; p < n; p++) {
        snprintf(text[p], sizeof text[p], "p%zu", p);
        names[p] = text[p];
        shapes[p] = (pd_shape){ 1, { sizes[p] } };
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        assert_int_equal(
            rig_hello(r, job, rank, world, conn + rank, conn + rank, options, rules != NULL ? rules : "* sgd lr=1"),
            PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, conn + rank, names, shapes, NULL, n, PD_F32), PD_OK);
    }
    number = r->job;
    for (size_t p = 0; p < n; p++) {
        float *values = must(malloc((size_t)sizes[p] * sizeof *values));
        rig_noise(7 + p, values, sizes[p]);
        assert_int_equal(rig_init(r, number, conn, (uint32_t)p, values, sizes[p]), PD_OK);
        free(values);
    }
    return number;
}

pd_info *rig_ask(rig *r, pd_info_what what, const char *job)
{
    pd_request *request = must(pd_request_new(PD_REQ_INFO, rig_ticket(r, 1)));

    request->u.info.what = what;
    request->u.info.job_name = job != NULL ? must(strdup(job)) : NULL;
    assert_int_equal(rig_apply(r, request), PD_OK);
    assert_int_equal(r->answer, PD_EFF_INFO);
    return r->info;
}

pd_request *rig_set_request(rig *r, const char *job, const char *pattern, const char *options, uint64_t from_step)
{
    pd_request *request = must(pd_request_new(PD_REQ_SET, rig_ticket(r, 1)));

    request->u.set.job_name = must(strdup(job));
    request->u.set.pattern = must(strdup(pattern));
    request->u.set.by = must(strdup("host:7"));
    request->u.set.options = read_options(options, &request->u.set.n);
    request->u.set.from_step = from_step;
    return request;
}

int rig_set(rig *r, const char *job, const char *pattern, const char *options, uint64_t from_step)
{
    return rig_apply(r, rig_set_request(r, job, pattern, options, from_step));
}

const rig_entry *rig_versions(const rig *r, uint32_t job, uint32_t param)
{
    assert_non_null(r->versions[job % RIG_JOBS]);
    return &r->versions[job % RIG_JOBS][param];
}

const float *rig_weights(rig *r, uint32_t job, uint32_t param)
{
    assert_non_null(rig_versions(r, job, param)->published);
    return rig_versions(r, job, param)->published->at[PD_F32];
}

void rig_free(rig *r)
{
    rig_apply(r, must(pd_request_new(PD_REQ_DROP, rig_ticket(r, 1))));
    while (r->n_tasks > 0) rig_finish_task(r, 0);
    if (r->checkpointing != NULL) rig_write_checkpoint(r);
    while (r->n_logging > 0) rig_write_record(r);
    pd_checkpoint_image_free(r->disk);
    rig_free_older(r);
    rig_drop_records(r, UINT64_MAX);
    for (size_t i = 0; i < r->n_decisions; i++) pd_wal_record_free(r->decisions[i]);
    for (uint32_t job = 0; job < RIG_JOBS; job++) forget_board(r, job);
    assert_int_equal(r->buffers_out, 0);
    assert_int_equal(pd_store_count_bytes(r->store).held, 0);
    assert_int_equal(pd_store_count_bytes(r->store).published_list, 0);
    pd_info_free(r->info);
    free(r->places);
    free(r->exported.at);
    pd_set_result_free(r->set);
    pd_store_free(r->store);
    memset(r, 0, sizeof *r);
}

int rig_set_up_with(void **state, const pd_store_config *config)
{
    rig *r = must(calloc(1, sizeof *r));

    rig_new(r, config);
    *state = r;
    return 0;
}

void rig_make(rig *r)
{
    pd_store_config config = rig_config();

    rig_new(r, &config);
}

int rig_set_up(void **state)
{
    pd_store_config config = rig_config();

    return rig_set_up_with(state, &config);
}

int rig_tear_down(void **state)
{
    rig_free(*state);
    free(*state);
    return 0;
}
