/* Tests one turn of the step thread: its time budgets, and the order in which it handles requests. */
#include "test.h"
#include "turn.h"

enum { ELEMENTS = 64, MOST = 256 };

#define MS 1000000u

/* A turn of the step thread, a clock that advances by `tick` whenever it is read, and the effects (messages to the
 * loop thread) that the turn has handed over. */
typedef struct scene {
    pd_turn turn;
    pd_store *store;
    uint64_t now, tick, last_id;
    uint64_t answered[MOST];                   /* ids of the answered requests, in the order of the answers */
    size_t n_answered, n_closed, closed_after; /* closed_after: number of answers before the first round closed */
    size_t handed;                             /* calls of `effects` */
    uint64_t numbered;                         /* serial number of the last effect */
    uint32_t job;
    pd_mail *to_release; /* published versions that will be given back to the store */
} scene;

static uint64_t look(void *arg)
{
    scene *s = arg;
    return s->now += s->tick;
}

static void keep_answer(scene *s, const pd_effect *effect)
{
    if (effect->kind == PD_EFF_ERROR) fail_msg("%s", effect->u.error.text);
    if (effect->kind == PD_EFF_HELLO) s->job = effect->job;
    if (effect->ticket.id == 0) return;
    assert_true(s->n_answered < MOST);
    s->answered[s->n_answered++] = effect->ticket.id;
}

static void take_closed(scene *s, pd_effect *effect)
{
    for (size_t i = 0; i < effect->u.closed.n; i++) {
        pd_request *released = pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 });
        released->u.released.first = effect->u.closed.at[i].published;
        released->mail.next = s->to_release;
        s->to_release = &released->mail;
        if (effect->u.closed.at[i].outcome != PD_STEPPED) continue;
        if (s->n_closed++ == 0) s->closed_after = s->n_answered;
    }
}

static void absorb(void *arg, pd_mail *first, pd_mail *last)
{
    scene *s = arg;
    pd_mail *next;

    assert_null(last->next);
    s->handed++;
    for (pd_mail *mail = first; mail != NULL; mail = next) {
        pd_effect *effect = (pd_effect *)(void *)mail;
        next = mail->next;
        assert_int_equal(effect->number, ++s->numbered);
        keep_answer(s, effect);
        if (effect->kind == PD_EFF_CLOSED) take_closed(s, effect);
        if (effect->kind == PD_EFF_BUFFER) {
            free(effect->u.buffer->at);
            free(effect->u.buffer);
        }
        pd_effect_free(effect);
    }
}

static void forget(void *arg, uint32_t job)
{
    (void)arg, (void)job;
}

static void no_task(void *arg, pd_effect *effect)
{
    (void)arg, (void)effect;
    fail_msg("there are no roots here");
}

static void set_up(scene *s)
{
    pd_store_config config = { .max_jobs = 4,
                               .max_params = 16,
                               .max_total_bytes = 1 << 28,
                               .ingest_bytes = 1 << 24,
                               .chunk_elements = 1 << 20,
                               .threads = 1,
                               .batch_ns = 5e7 };
    pd_error err;

    s->now = 1000 * MS;
    if (pd_store_new(&s->store, &config, &err) != PD_OK) fail_msg("%s", err.text);
    s->turn.store = s->store;
    s->turn.user = (pd_turn_user){ .arg = s, .now_ns = look, .effects = absorb, .task = no_task, .forget = forget };
}

static void add(scene *s, pd_request *request)
{
    pd_turn_add(&s->turn, &request->mail);
}

static void bring_home(scene *s)
{
    pd_mail *mail = s->to_release;

    s->to_release = NULL;
    pd_turn_add(&s->turn, mail);
    pd_turn_finish(&s->turn);
}

static void tear_down(scene *s)
{
    pd_turn_finish(&s->turn);
    add(s, pd_request_new(PD_REQ_DROP, (pd_ticket){ 0, 0 }));
    pd_turn_finish(&s->turn);
    bring_home(s);
    pd_store_free(s->store);
}

static pd_request *ask(scene *s, pd_request_kind kind)
{
    pd_request *request = pd_request_new(kind, (pd_ticket){ 1, ++s->last_id });

    request->job = s->job;
    return request;
}

static void add_statuses(scene *s, int n)
{
    for (int i = 0; i < n; i++) add(s, ask(s, PD_REQ_INFO));
}

static pd_request *data(scene *s, pd_request_kind kind, uint64_t step)
{
    pd_request *request = ask(s, kind);
    pd_buffer *buffer = calloc(1, sizeof *buffer);

    buffer->conn = 1;
    buffer->charged = buffer->size = ELEMENTS * sizeof(float);
    buffer->at = aligned_alloc(64, ELEMENTS * sizeof(float));
    memset(buffer->at, 0, ELEMENTS * sizeof(float));
    request->u.data.pieces = calloc(1, sizeof(pd_piece));
    request->u.data.pieces[0] = (pd_piece){ .dtype = PD_F32, .count = ELEMENTS, .at = buffer->at };
    request->u.data.n = 1;
    request->u.data.buffer = buffer;
    request->u.data.step = step;
    request->u.data.weight = 1;
    return request;
}

/* Starts a job of one worker, whose parameter has its initial weights. */
static void start_job_named(scene *s, const char *name)
{
    pd_request *hello = ask(s, PD_REQ_HELLO), *declare;

    hello->job = 0;
    hello->u.hello.job_name = strdup(name);
    hello->u.hello.label = strdup("here");
    hello->u.hello.world_size = 1;
    hello->u.hello.nonce = 5;
    hello->u.hello.rules = calloc(1, sizeof(char *));
    hello->u.hello.rules[0] = strdup("* sgd lr=1");
    hello->u.hello.n_rules = 1;
    add(s, hello);
    pd_turn_finish(&s->turn);
    declare = ask(s, PD_REQ_DECLARE);
    declare->u.declare.params = calloc(1, sizeof(pd_param_decl));
    declare->u.declare.params[0] =
        (pd_param_decl){ .name = strdup("w"), .shape = { 1, { ELEMENTS } }, .pull_dtype = PD_F32 };
    declare->u.declare.n = 1;
    add(s, declare);
    add(s, data(s, PD_REQ_INIT, 0));
    pd_turn_finish(&s->turn);
    while (pd_turn_run(&s->turn)) continue;
    s->n_answered = 0;
}

static void start_job(scene *s)
{
    start_job_named(s, "j");
}

/* Adds a request of an identity, on the connection of this number. */
static void add_of(scene *s, uint64_t party, pd_request *request)
{
    request->party = request->ticket.conn = party;
    if (request->kind == PD_REQ_INFO) request->job = 0;
    add(s, request);
}

/* A push that only ends a step. */
static pd_request *last_push(scene *s, uint64_t step)
{
    pd_request *request = ask(s, PD_REQ_PUSH);

    request->u.data.pieces = calloc(1, sizeof(pd_piece));
    request->u.data.step = step;
    request->u.data.weight = 1;
    request->u.data.close_step = true;
    return request;
}

FIXTURE(scene, set_up, tear_down);

TEST(requests_beyond_the_budget_wait_for_the_next_turn, scene *s)
{
    s->tick = MS;
    add_statuses(s, 100);
    assert_true(pd_turn_run(&s->turn));
    assert_true(s->n_answered > 0);
    assert_true(s->n_answered <= 2 * PD_TURN_SLICE_NS / MS);
}

TEST(a_request_is_applied_in_each_turn_however_slow_the_clock, scene *s)
{
    s->tick = 10 * PD_TURN_MOST_NS;
    add_statuses(s, 3);
    assert_true(pd_turn_run(&s->turn));
    assert_true(pd_turn_run(&s->turn));
    assert_false(pd_turn_run(&s->turn));
    assert_int_equal(s->n_answered, 3);
}

TEST(requests_are_applied_in_the_order_of_their_arrival, scene *s)
{
    s->tick = MS;
    add_statuses(s, 60);
    while (pd_turn_run(&s->turn))
        if (s->last_id < 100) add_statuses(s, 10);
    assert_int_equal(s->n_answered, s->last_id);
    for (size_t i = 0; i < s->n_answered; i++) assert_int_equal(s->answered[i], i + 1);
}

TEST(effects_do_not_wait_for_the_last_request, scene *s)
{
    s->turn.work_ns = PD_TURN_MOST_NS; /* the last batch took long, so requests may take as long */
    s->tick = MS;
    add_statuses(s, 48);
    pd_turn_run(&s->turn);
    assert_int_equal(s->n_answered, 48);
    assert_true(s->handed >= 48 * MS / PD_TURN_SLICE_NS - 2);
}

TEST(a_round_closes_while_requests_still_wait, scene *s)
{
    start_job(s);
    s->tick = MS;
    add(s, data(s, PD_REQ_PUSH, 1));
    add_statuses(s, 100);
    while (pd_turn_run(&s->turn)) continue;
    assert_int_equal(s->n_closed, 1);
    assert_true(s->closed_after < 50);
}

TEST(a_long_batch_gives_requests_as_much_time, scene *s)
{
    s->turn.work_ns = 20 * MS;
    s->tick = MS;
    add_statuses(s, 100);
    pd_turn_run(&s->turn);
    assert_in_range(s->n_answered, 18, 22);
}

/* The rank of each job is on connection 1, so requests of an identity have that connection and its number as party. */
static void push_as(scene *s, uint64_t party, uint32_t job, pd_request *request)
{
    request->party = party;
    request->job = job;
    add(s, request);
}

TEST(hundreds_of_ends_of_a_step_delay_the_push_of_another_identity_by_a_slice, scene *s)
{
    uint32_t flooded;

    start_job(s);
    flooded = s->job;
    start_job_named(s, "other");
    s->tick = MS;
    for (int i = 0; i < 500; i++) push_as(s, 7, flooded, last_push(s, 1));
    push_as(s, 8, s->job, data(s, PD_REQ_PUSH, 1));
    for (int turn = 0; turn < 2; turn++) assert_true(pd_turn_run(&s->turn)); /* each job works once */
    assert_int_equal(s->n_closed, 1); /* no step is taken in the flooded job: its rank has no gradient */
    assert_true(pd_flows_wait(&s->turn.flows, false));
}

static size_t run_for(scene *s, uint64_t ns)
{
    uint64_t until = s->now + ns;

    s->n_answered = 0;
    while (s->now < until && pd_turn_run(&s->turn)) continue;
    return s->n_answered;
}

TEST(requests_that_only_read_get_a_sixteenth_of_the_time_beside_others, scene *s)
{
    start_job(s);
    s->now += PD_TURN_QUIET_NS;
    s->tick = MS;
    for (int i = 0; i < 200; i++) add_of(s, 9, ask(s, PD_REQ_INFO));
    for (int i = 0; i < 600; i++) push_as(s, 7, s->job, last_push(s, 1));
    assert_in_range(run_for(s, 320 * MS), 320 / PD_TURN_READ_SHARE - 4, 320 / PD_TURN_READ_SHARE + 6);
}

TEST(requests_that_only_read_get_all_time_when_nobody_else_is_served, scene *s)
{
    uint64_t at;

    start_job(s);
    for (int i = 0; i < 200; i++) add_of(s, 9, ask(s, PD_REQ_INFO));
    s->tick = MS;
    while (pd_turn_run(&s->turn)) continue;
    assert_in_range(s->n_answered, 1, 10);
    at = pd_turn_next_tick(&s->turn);
    assert_in_range(at, s->now, s->now + PD_TURN_QUIET_NS); /* the step thread sleeps until then */
    s->now = at + PD_TURN_QUIET_NS;
    run_for(s, UINT64_MAX / 2);
    assert_false(pd_flows_wait(&s->turn.flows, true));
}

TEST(reads_of_a_long_calm_do_not_count_when_others_come, scene *s)
{
    start_job(s);
    s->now += 2 * PD_TURN_QUIET_NS;
    s->tick = MS;
    for (int i = 0; i < 150; i++) add_of(s, 9, ask(s, PD_REQ_INFO));
    while (pd_turn_run(&s->turn)) continue;
    for (int i = 0; i < 50; i++) add_of(s, 9, ask(s, PD_REQ_INFO));
    for (int i = 0; i < 600; i++) push_as(s, 7, s->job, last_push(s, 1));
    assert_true(run_for(s, 160 * MS) >= 160 / PD_TURN_READ_SHARE - 2);
}

static bool was_answered(const scene *s, uint64_t id)
{
    for (size_t i = 0; i < s->n_answered; i++)
        if (s->answered[i] == id) return true;
    return false;
}

TEST(what_is_due_by_the_clock_is_done_although_requests_wait, scene *s)
{
    pd_request *drain;
    uint64_t id;

    start_job(s);
    drain = ask(s, PD_REQ_DRAIN);
    id = drain->ticket.id;
    drain->u.drain.deadline_ns = 1;
    s->tick = MS;
    add(s, drain);
    add_statuses(s, 100);
    pd_turn_run(&s->turn);
    assert_true(pd_flows_wait(&s->turn.flows, true));
    assert_true(was_answered(s, id));
}

/* Pushes and runs a batch whose n-th allocation fails. Returns whether the round is still open, waiting for memory. */
static bool push_waits_for_memory(scene *s, uint64_t step, int64_t n)
{
    add(s, data(s, PD_REQ_PUSH, step));
    pd_turn_finish(&s->turn);
    oom_arm(n);
    while (pd_turn_run(&s->turn)) continue;
    oom_disarm();
    bring_home(s);
    return s->n_closed < step;
}

TEST(what_a_tick_makes_possible_is_done_without_mail, scene *s)
{
    uint64_t step = 1;

    start_job(s);
    for (int64_t n = 0; !push_waits_for_memory(s, step, n); n++) step++;
    s->now = pd_turn_next_tick(&s->turn);
    assert_true(pd_turn_run(&s->turn));
    while (pd_turn_run(&s->turn)) continue;
    assert_int_equal(s->n_closed, step);
}
