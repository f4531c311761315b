/* Tests that the sets of ranks which count in steps survive crashes of the server: workers that come back get the
 * answers and weights that they had, whatever the order in which their pushes come now. */
#include "test.h"
#include "fragment.h"
#include "rig.h"
#include "store_inside.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SEEDS = 6 }; /* few cases, since sanitizers are slow */
#else
enum { SEEDS = 60 };
#endif
enum { RANKS = 4, PARAMS = 2, N = 60, LAST = 40, MOST = LAST + 8, NONCE = 100, PATIENCE = 60000 };

/* What has become of the push of a rank for a step. */
typedef struct answer {
    bool told, late;
    uint32_t age;
    uint64_t step;       /* step whose closing has answered the push */
    uint64_t counted_in; /* step in which the push has counted, as reported; 0: none */
} answer;

/* What workers have seen of a step. */
typedef struct seen_step {
    bool told;
    uint32_t counts[RANKS]; /* 1 + age of the rank's contribution; 0: it does not count */
    float weights[PARAMS][N];
} seen_step;

/* A worker with a resend window for all its steps. It has one push under way at a time. */
typedef struct trainer {
    bool connected, waits, unfiled;
    uint64_t conn, seen;
    uint64_t away;  /* number of turns for which the worker does not come back */
    pd_filed filed; /* if !unfiled: what was said of the push under way, and the step it waits for */
    uint64_t until;
    uint64_t pushed[MOST]; /* steps of all pushes so far, ascending */
    size_t n_pushed, next; /* number of them; index of the push that is under way, or the next one to send */
} trainer;

/* A job and its workers, over several lives of the server. */
typedef struct world {
    rig r;
    const char *options;
    uint64_t seed, conns, step[PARAMS]; /* step: last one of which the loop thread knows */
    uint32_t counts[RANKS];             /* set of the last step that was reported */
    bool kept[RANKS];
    trainer workers[RANKS];
    answer answers[RANKS][MOST];
    seen_step steps[MOST];
    uint32_t crashes;
    bool fails; /* the disk fails at times */
} world;

static uint64_t draw(world *w, uint64_t n)
{
    return rig_random(&w->seed) % n;
}

/* ---- what the loop thread does with effects ---- */

static void take_answer(world *w, uint32_t rank, bool late, uint64_t step)
{
    trainer *worker = &w->workers[rank];
    uint64_t pushed = worker->pushed[worker->next];
    answer *before = &w->answers[rank][pushed];
    answer now = { true, late, late ? 0 : (uint32_t)(step - pushed), step, before->counted_in };

    if (late == (before->counted_in > 0))
        fail_msg("the push of rank %d for step %d %s counted, but it is told otherwise", (int)rank, (int)pushed,
                 late ? "has" : "has not");
    if (!late && worker->filed == PD_FILED_FOR) assert_int_equal(now.age, w->counts[rank] - 1);
    if (before->told && before->late != late)
        fail_msg("rank %d is told that its push for step %d %s, after it was told otherwise", (int)rank, (int)pushed,
                 late ? "was late" : "has counted");
    if (before->told && !late && (before->age != now.age || before->step != step))
        fail_msg(
            "the push of rank %d for step %d has counted in step %d with age %d, and before in step %d with age %d",
            (int)rank, (int)pushed, (int)step, (int)now.age, (int)before->step, (int)before->age);
    if (!before->told) *before = now;
    if (step > worker->seen) worker->seen = step;
    worker->waits = false;
    worker->next++;
}

static bool all_closed(const world *w, uint64_t step)
{
    for (int i = 0; i < PARAMS; i++)
        if (w->step[i] < step || w->step[i] == UINT64_MAX) return false;
    return true;
}

static void look_at(world *w, uint32_t rank)
{
    trainer *worker = &w->workers[rank];

    if (!worker->waits || worker->unfiled || !all_closed(w, worker->until)) return;
    take_answer(w, rank, worker->filed == PD_FILED_LATE || (worker->filed == PD_FILED_FOR && w->counts[rank] == 0),
                worker->until);
}

static void note_counted(world *w, uint32_t rank, uint64_t step)
{
    answer *of = w->counts[rank] > 0 ? &w->answers[rank][step + 1 - w->counts[rank]] : NULL;

    if (of == NULL) return;
    if (of->counted_in > 0 && of->counted_in != step)
        fail_msg("a push of rank %d counts in step %d and in step %d", (int)rank, (int)of->counted_in, (int)step);
    of->counted_in = step;
}

static void note_step(world *w, uint64_t step)
{
    seen_step *before = &w->steps[step];

    if (before->told && memcmp(before->counts, w->counts, sizeof w->counts) != 0)
        fail_msg("other ranks count in step %d than before a crash", (int)step);
    memcpy(before->counts, w->counts, sizeof w->counts);
    before->told = true;
    for (uint32_t r = 0; r < RANKS; r++) note_counted(w, r, step);
    for (uint32_t r = 0; r < RANKS; r++) {
        trainer *worker = &w->workers[r];
        if (worker->waits && !worker->unfiled && worker->filed == PD_FILED_FOR && worker->until == step && w->kept[r])
            worker->until++;
        look_at(w, r);
    }
}

static void note_weights(world *w, const pd_closed *closed)
{
    float *before = w->steps[closed->step].weights[closed->param];
    const float *now = closed->published->at[PD_F32];

    if (w->steps[closed->step].told && memcmp(before, now, N * sizeof *now) != 0)
        fail_msg("step %d has other weights than before a crash", (int)closed->step);
    memcpy(before, now, N * sizeof *now);
}

static void on_closed(world *w, const pd_closed *closed)
{
    bool again = w->crashes > 0 && w->step[closed->param] == UINT64_MAX; /* the restored weights */

    w->step[closed->param] = closed->step;
    if (closed->outcome == 0 || closed->step >= MOST) return;
    if (closed->published != NULL) note_weights(w, closed);
    if (again) return;
    for (uint32_t r = 0; r < RANKS; r++) {
        w->counts[r] = pd_counted_has(closed->counted, r) ? 1 + pd_counted_age(closed->counted, r) : 0;
        w->kept[r] = pd_counted_keeps(closed->counted, r);
    }
    if (all_closed(w, closed->step)) note_step(w, closed->step);
}

static void on_filed(world *w, const pd_effect *effect)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        trainer *worker = &w->workers[r];
        if (!worker->connected || worker->conn != effect->ticket.conn || !worker->waits) continue;
        worker->unfiled = false;
        worker->filed = effect->u.filed.how;
        worker->until = effect->u.filed.step;
        look_at(w, r);
    }
}

static void watch(void *watcher, const pd_effect *effect)
{
    world *w = watcher;

    for (size_t i = 0; effect->kind == PD_EFF_CLOSED && i < effect->u.closed.n; i++)
        on_closed(w, &effect->u.closed.at[i]);
    if (effect->kind == PD_EFF_FILED) on_filed(w, effect);
}

/* ---- what workers do ---- */

static void join(world *w, uint32_t rank)
{
    static const char *const names[PARAMS] = { "p0", "p1" };
    const pd_shape shapes[PARAMS] = { { 1, { N } }, { 1, { N } } };
    trainer *worker = &w->workers[rank];

    worker->conn = 10 + w->conns++ % 400;
    w->r.seen = worker->seen;
    if (rig_hello(&w->r, "job", rank, RANKS, NONCE + rank, worker->conn, w->options, "* adam lr=0.01") != PD_OK)
        fail_msg("%s", w->r.error.text);
    if (rig_declare(&w->r, w->r.job, rank, worker->conn, names, shapes, NULL, PARAMS, PD_F32) != PD_OK)
        fail_msg("%s", w->r.error.text);
    worker->connected = true;
    worker->waits = false;
    worker->next = 0;
}

static void initialise(world *w)
{
    float values[N];

    for (uint32_t i = 0; i < PARAMS; i++) {
        rig_noise(7 + i, values, N);
        assert_int_equal(rig_init(&w->r, w->r.job, w->workers[0].conn, i, values, N), PD_OK);
    }
    rig_work(&w->r);
}

static void send(world *w, uint32_t rank, uint64_t step)
{
    trainer *worker = &w->workers[rank];
    rig_frame *frame = rig_frame_new(&w->r, PD_REQ_PUSH, w->r.job, rank, worker->conn, step);
    float values[PARAMS][N];

    for (uint32_t i = 0; i < PARAMS; i++) {
        rig_noise(step * 100 + rank * 10 + i, values[i], N);
        rig_piece(frame, i, PD_F32, 0, N, values[i]);
    }
    worker->waits = worker->unfiled = true;
    if (rig_send(&w->r, frame) != PD_OK) fail_msg("rank %d, step %d: %s", (int)rank, (int)step, w->r.error.text);
}

/* Lets a worker send its next push: one again, if the server has gone back to a step before that of its answer. */
static void push(world *w, uint32_t rank)
{
    trainer *worker = &w->workers[rank];
    uint64_t here = w->step[0] < w->step[1] ? w->step[0] : w->step[1];

    while (worker->next < worker->n_pushed) {
        const answer *known = &w->answers[rank][worker->pushed[worker->next]];
        if (!known->told || known->step > here) break;
        worker->next++;
    }
    if (worker->next == worker->n_pushed) {
        if (worker->seen >= LAST) return;
        worker->pushed[worker->n_pushed++] = worker->seen + 1;
    }
    if (worker->pushed[worker->next] <= here + 1) send(w, rank, worker->pushed[worker->next]);
}

static void lose(world *w, uint32_t rank)
{
    pd_request *request = pd_request_new(PD_REQ_LOST, (pd_ticket){ w->workers[rank].conn, 0 });

    assert_non_null(request);
    request->job = w->r.job;
    request->rank = rank;
    rig_apply(&w->r, request);
    w->workers[rank].connected = w->workers[rank].waits = false;
}

static void crash(world *w)
{
    pd_store_config config = rig_config();

    config.keeps = true;
    for (int i = 0; i < PARAMS; i++) w->step[i] = UINT64_MAX;
    for (uint32_t r = 0; r < RANKS; r++) {
        w->workers[r].connected = w->workers[r].waits = false;
        w->workers[r].away = draw(w, 2) * draw(w, 40);
    }
    rig_crash(&w->r, &config);
    w->crashes++;
}

static void start(world *w, const char *options, uint64_t seed)
{
    pd_store_config config = rig_config();

    memset(w, 0, sizeof *w);
    w->options = options;
    w->seed = seed;
    config.keeps = true;
    rig_new(&w->r, &config);
    w->r.watch = watch;
    w->r.watcher = w;
    for (uint32_t r = 0; r < RANKS; r++) join(w, r);
    initialise(w);
}

/* ---- random histories ---- */

static void act(world *w)
{
    uint32_t rank = (uint32_t)draw(w, RANKS);
    uint64_t chance = draw(w, 100);

    if (w->workers[rank].away > 0)
        w->workers[rank].away--;
    else if (!w->workers[rank].connected)
        join(w, rank);
    else if (chance < 4)
        lose(w, rank);
    else if (!w->workers[rank].waits)
        push(w, rank);
    if (draw(w, 3) > 0) rig_work(&w->r);
    if (draw(w, 4) == 0) rig_sleep(&w->r, 0.05);
    while (w->r.n_logging > 0 && draw(w, 3) == 0) rig_write_record(&w->r);
    if (w->r.checkpointing != NULL && draw(w, 6) == 0) rig_write_checkpoint(&w->r);
    if (w->fails && draw(w, 20) == 0) w->r.wal_error = draw(w, 2) == 0 ? "the disk is full" : NULL;
    if (w->fails && draw(w, 20) == 0) w->r.disk_error = draw(w, 2) == 0 ? "the disk is full" : NULL;
    if (w->fails && w->r.disk_error == NULL && draw(w, 8) == 0) rig_sleep(&w->r, 1);
    if (w->r.disk != NULL && draw(w, 40) == 0) crash(w);
}

static void check(const char *options, uint64_t seed, bool fails, uint32_t *crashes)
{
    world *w = malloc(sizeof *w);
    int turns = 0;

    start(w, options, seed);
    w->r.lazy_wal = w->r.lazy_disk = true;
    w->fails = fails;
    while (!all_closed(w, LAST) && turns++ < PATIENCE) act(w);
    if (!all_closed(w, LAST)) fail_msg("%s: seed %d stays at step %d", options, (int)seed, (int)w->step[0]);
    assert_int_equal(inside_job(w->r.store, w->r.job)->saved.course, 0);
    *crashes += w->crashes;
    rig_free(&w->r);
    free(w);
}

/* Checks histories of many seeds. `least_crashes`: 60 seeds have more crashes than that. */
static void check_seeds(const char *options, bool fails, uint32_t least_crashes)
{
    uint32_t crashes = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) check(options, seed, fails, &crashes);
    assert_true(crashes * 60 > least_crashes * SEEDS);
}

TEST(a_quorum_counts_the_same_ranks_after_crashes)
{
    check_seeds("rounds=quorum quorum=2 checkpoint_every=8 reconnect_grace=1h", false, 100);
    check_seeds("rounds=quorum quorum=3 grace=200ms checkpoint_every=8 reconnect_grace=1h", false, 100);
}

TEST(contributions_have_the_same_ages_after_crashes)
{
    check_seeds("rounds=quorum quorum=2 staleness=2 damping=root checkpoint_every=8 reconnect_grace=1h", false, 100);
    check_seeds("rounds=quorum quorum=3 staleness=1 on_stale=wait checkpoint_every=8 reconnect_grace=1h", false, 100);
}

TEST(asynchronous_rounds_go_the_same_way_after_crashes)
{
    check_seeds("rounds=async checkpoint_every=8 reconnect_grace=1h", false, 100);
}

TEST(records_of_steps_have_the_sets_of_ranks)
{
    check_seeds("rounds=quorum quorum=2 staleness=1 checkpoint_every=8 durability=log reconnect_grace=1h", false, 40);
    check_seeds("rounds=async checkpoint_every=8 durability=log reconnect_grace=1h", false, 40);
}

TEST(a_job_that_pauses_counts_the_same_ranks_although_the_disk_fails_at_times)
{
    check_seeds("rounds=quorum quorum=2 checkpoint_every=8 on_disk_error=pause reconnect_grace=1h", true, 100);
    check_seeds("rounds=quorum quorum=3 staleness=1 durability=log on_disk_error=pause reconnect_grace=1h", true, 40);
}

/* ---- single cases ---- */

enum { ALL = (1 << RANKS) - 1 };

static const char *const quorum = "rounds=quorum quorum=2 checkpoint_every=8";

static uint64_t taken(const world *w)
{
    return inside_job(w->r.store, w->r.job)->steps.params[0].saved.step;
}

/* Returns the last step of which workers know. */
static uint64_t told(const world *w)
{
    return rig_versions(&w->r, w->r.job, 0)->step;
}

static uint64_t course(const world *w)
{
    return inside_job(w->r.store, w->r.job)->saved.course;
}

/* Lets the ranks whose bit is set in `who` push the step, and the store work. */
static void step_of(world *w, uint32_t who, uint64_t step)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (who >> r & 1) {
            w->workers[r].next = w->workers[r].n_pushed;
            w->workers[r].pushed[w->workers[r].n_pushed++] = step;
            send(w, r, step);
        }
    rig_work(&w->r);
}

/* Sends the rank's contribution to the first parameter alone. Returns the answer's code. */
static int push_first_param(world *w, uint32_t rank, uint64_t step)
{
    rig_frame *frame = rig_frame_new(&w->r, PD_REQ_PUSH, w->r.job, rank, w->workers[rank].conn, step);
    float values[N] = { 0 };

    rig_piece(frame, 0, PD_F32, 0, N, values);
    return rig_send(&w->r, frame);
}

static void join_those(world *w, uint32_t who)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (who >> r & 1) join(w, r);
}

/* Lets nothing be compared any more with what was before a crash. */
static void forget(world *w)
{
    memset(w->steps, 0, sizeof w->steps);
    memset(w->answers, 0, sizeof w->answers);
    for (uint32_t r = 0; r < RANKS; r++) w->workers[r].n_pushed = w->workers[r].seen = 0;
}

static world *begin(const char *options)
{
    world *w = malloc(sizeof *w);

    start(w, options, 1);
    assert_true(w->r.disk != NULL && w->r.disk->step == 0); /* a restart finds the job */
    return w;
}

static void end(world *w)
{
    rig_free(&w->r);
    free(w);
}

TEST(no_answer_precedes_the_record_of_its_set)
{
    world *w = begin(quorum);

    w->r.lazy_wal = true;
    step_of(w, 3, 1);
    assert_int_equal(taken(w), 1);
    assert_int_equal(told(w), 0);
    rig_write_record(&w->r);
    assert_int_equal(told(w), 1);
    end(w);
}

TEST(a_whole_set_is_answered_without_a_record)
{
    world *w = begin(quorum);

    w->r.lazy_wal = true;
    step_of(w, ALL, 1);
    assert_int_equal(told(w), 1);
    assert_int_equal(w->r.n_logging, 0);
    end(w);
}

TEST(a_whole_set_is_not_answered_before_an_earlier_step)
{
    world *w = begin(quorum);

    w->r.lazy_wal = true;
    step_of(w, 3, 1);
    for (uint32_t r = 0; r < RANKS; r++) w->workers[r].waits = false;
    step_of(w, ALL, 2);
    assert_int_equal(taken(w), 2);
    assert_int_equal(told(w), 0);
    rig_write_record(&w->r);
    assert_int_equal(told(w), 2);
    end(w);
}

TEST(a_job_with_a_log_answers_when_the_step_is_on_the_disk)
{
    world *w = begin("rounds=quorum quorum=2 checkpoint_every=8 durability=log");

    w->r.lazy_wal = true;
    step_of(w, ALL, 1);
    assert_int_equal(taken(w), 1);
    assert_int_equal(told(w), 0);
    rig_write_record(&w->r);
    assert_int_equal(told(w), 1);
    assert_int_equal(w->r.durable, 1);
    end(w);
}

TEST(a_slow_disk_holds_up_a_job_after_few_steps)
{
    world *w = begin("rounds=async checkpoint_every=1000");

    w->r.lazy_wal = true;
    for (uint64_t step = 1; step <= 8; step++) step_of(w, (uint32_t)1 << step % RANKS, step <= 5 ? step : 5);
    assert_int_equal(taken(w), 4);
    while (w->r.n_logging > 0) {
        rig_write_record(&w->r);
        rig_work(&w->r);
    }
    assert_true(taken(w) > 4);
    assert_int_equal(told(w), taken(w));
    end(w);
}

TEST(a_worker_that_joins_hears_of_no_step_that_is_withheld)
{
    world *w = begin(quorum);

    w->r.lazy_wal = true;
    step_of(w, 3, 1);
    join(w, 2);
    assert_int_equal(w->r.welcome_step, 0);
    assert_int_equal(w->r.steps[0], 0);
    rig_write_record(&w->r);
    join(w, 2);
    assert_int_equal(w->r.welcome_step, 1);
    end(w);
}

TEST(a_job_that_ends_drops_what_is_withheld)
{
    world *w = begin(quorum);

    w->r.lazy_wal = true;
    step_of(w, 3, 1);
    end(w); /* rig_free looks for memory that did not come home */
}

TEST(after_an_error_of_the_disk_a_job_that_goes_on_answers)
{
    world *w = begin(quorum);

    w->r.wal_error = "the disk is full";
    step_of(w, 3, 1);
    assert_int_equal(told(w), 1);
    assert_non_null(strstr(w->r.warning, "decisions not written: the disk is full"));
    end(w);
}

TEST(after_an_error_of_the_disk_a_job_that_pauses_answers_when_a_checkpoint_is_durable)
{
    world *w = begin("rounds=quorum quorum=2 checkpoint_every=8 on_disk_error=pause");

    w->r.wal_error = w->r.disk_error = "the disk is full";
    step_of(w, 3, 1);
    assert_int_equal(taken(w), 1);
    assert_int_equal(told(w), 0);
    w->r.wal_error = w->r.disk_error = NULL;
    rig_sleep(&w->r, 3);
    rig_work(&w->r);
    assert_int_equal(w->r.disk->step, 1);
    assert_int_equal(told(w), 1);
    step_of(w, 3, 2);
    assert_int_equal(told(w), 2);
    end(w);
}

TEST(until_all_are_back_only_whole_sets_are_fixed)
{
    world *w = begin(quorum);

    step_of(w, ALL, 1);
    crash(w);
    w->workers[0].seen = w->workers[1].seen = 0; /* their answers were lost */
    join_those(w, 3);
    step_of(w, 3, 1);
    assert_int_equal(taken(w), 0);
    join_those(w, 12);
    step_of(w, 12, 1);
    assert_int_equal(told(w), 1); /* and all ranks count again: note_step */
    end(w);
}

TEST(a_quorum_is_enough_again_when_reconnect_grace_is_over)
{
    world *w = begin(quorum);

    crash(w);
    join_those(w, 3);
    step_of(w, 3, 1);
    assert_int_equal(taken(w), 0);
    rig_sleep(&w->r, 6);
    rig_work(&w->r);
    assert_int_equal(told(w), 1);
    assert_int_equal(course(w), 0);
    end(w);
}

TEST(the_step_after_a_repeated_set_has_its_whole_grace)
{
    world *w = begin("rounds=quorum quorum=2 grace=1s staleness=2 checkpoint_every=8 on_disk_error=pause");

    step_of(w, 3, 1);
    rig_sleep(&w->r, 2);
    rig_work(&w->r);
    assert_int_equal(told(w), 1);
    crash(w);
    join_those(w, ALL);
    step_of(w, 12, 1); /* they are a quorum, but not the one that is repeated */
    rig_sleep(&w->r, 2);
    step_of(w, 3, 1);
    assert_int_equal(taken(w), 1); /* ranks 0 and 1 have had no time for step 2 */
    rig_sleep(&w->r, 2);
    rig_work(&w->r);
    assert_int_equal(taken(w), 2);
    end(w);
}

/* Takes three steps with all ranks and one without rank 1; after a crash, rank 2 does not come back to repeat them. */
static world *leave_course(bool lazy_disk)
{
    world *w = begin(quorum);

    for (uint64_t step = 1; step <= 3; step++) step_of(w, ALL, step);
    step_of(w, 5, 4);
    crash(w);
    join_those(w, 11);
    assert_int_equal(w->r.welcome_course, 0);
    w->r.lazy_disk = lazy_disk;
    rig_sleep(&w->r, 6);
    rig_work(&w->r);
    return w;
}

TEST(a_rank_that_does_not_come_back_changes_the_course)
{
    world *w = leave_course(false);

    assert_int_equal(course(w), 1);
    assert_int_equal(w->r.fenced.code, PD_UNAVAILABLE);
    assert_non_null(strstr(w->r.warning, "takes another course"));
    join_those(w, 3); /* they know course 0 */
    assert_int_equal(w->r.welcome_course, 1);
    assert_int_equal(w->r.welcome_step, 0);
    end(w);
}

TEST(workers_see_no_step_of_a_course_before_a_checkpoint_has_it)
{
    world *w = leave_course(true);

    forget(w);
    w->r.course = 1;
    join_those(w, 3);
    step_of(w, 3, 1);
    assert_int_equal(taken(w), 1);
    assert_int_equal(told(w), 0);
    rig_write_checkpoint(&w->r);
    assert_int_equal(told(w), 1);
    end(w);
}

TEST(a_course_survives_a_restart_and_records_of_the_one_before_do_not)
{
    world *w = leave_course(false);

    forget(w);
    w->r.course = 1;
    join_those(w, 3);
    for (uint64_t step = 1; step <= 4; step++) step_of(w, 3, step);
    assert_int_equal(told(w), 4);
    crash(w);
    w->r.course = 1;
    join_those(w, 3);
    assert_int_equal(w->r.welcome_course, 1);
    for (uint64_t step = w->r.welcome_step + 1; step <= 4; step++) step_of(w, 3, step);
    assert_int_equal(told(w), 4); /* with the same ranks and weights: note_step */
    assert_int_equal(course(w), 1);
    end(w);
}

TEST(records_of_the_course_before_do_not_decide_although_no_record_follows_them)
{
    world *w = leave_course(true);

    w->r.lazy_wal = true;
    rig_write_checkpoint(&w->r); /* the record that replaces the others is under way */
    forget(w);
    w->r.course = 1;
    join_those(w, ALL);
    for (uint64_t step = 1; step <= 4; step++) step_of(w, ALL, step);
    assert_int_equal(told(w), 4);
    crash(w);
    w->r.course = 1;
    join_those(w, ALL);
    for (uint64_t step = w->r.welcome_step + 1; step <= 4; step++) step_of(w, ALL, step);
    assert_int_equal(told(w), 4); /* all ranks count again in step 4: note_step */
    end(w);
}

TEST(a_rank_that_has_nothing_to_send_again_for_a_whole_set_changes_the_course)
{
    world *w = begin(quorum);

    w->r.wal_error = w->r.disk_error = "the disk is full"; /* the job goes on, and no record has the set of step 1 */
    step_of(w, 3, 1);
    assert_int_equal(told(w), 1);
    crash(w);
    forget(w);
    for (uint32_t r = 0; r < RANKS; r++) w->workers[r].seen = 1;
    w->r.window = 8;
    join_those(w, ALL);
    step_of(w, 3, 1);
    rig_sleep(&w->r, 4);
    rig_work(&w->r);
    assert_int_equal(course(w), 0);
    rig_sleep(&w->r, 2); /* reconnect_grace is 5 s */
    rig_work(&w->r);
    assert_int_equal(course(w), 1);
    end(w);
}

TEST(a_rank_that_sends_only_part_of_its_push_again_changes_the_course)
{
    world *w = begin(quorum);

    step_of(w, ALL, 1);
    assert_int_equal(told(w), 1);
    crash(w);
    forget(w);
    for (uint32_t r = 0; r < RANKS; r++) w->workers[r].seen = 1;
    w->r.window = 8;
    join_those(w, ALL);
    for (uint32_t r = 1; r < RANKS; r++) send(w, r, 1);
    rig_sleep(&w->r, 3);
    push_first_param(w, 0, 1); /* the push of the other one had ended with an error: its window has none */
    rig_sleep(&w->r, 4);
    rig_work(&w->r);
    assert_int_equal(course(w), 0); /* 4 s after the last chunk */
    rig_sleep(&w->r, 2);
    rig_work(&w->r);
    assert_int_equal(course(w), 1);
    end(w);
}

TEST(a_rank_has_reconnect_grace_after_its_own_hello_to_send_its_push_again)
{
    world *w = begin(quorum);

    step_of(w, ALL, 1);
    assert_int_equal(told(w), 1);
    crash(w);
    for (uint32_t r = 0; r < RANKS; r++) w->workers[r].next = 0;
    w->r.window = 8;
    join_those(w, 14);
    for (uint32_t r = 1; r < RANKS; r++) push(w, r);
    rig_sleep(&w->r, 4);
    join_those(w, 1);
    rig_sleep(&w->r, 2); /* 6 s after the restart, and 2 s after the Hello of rank 0 */
    rig_work(&w->r);
    assert_int_equal(course(w), 0);
    push(w, 0);
    rig_work(&w->r);
    assert_int_equal(told(w), 1); /* all ranks count again: note_step */
    end(w);
}

/* The set of step 2 had the push of rank 3 for step 1. A later push of the rank must not take its place. */
TEST(a_push_that_a_repeated_set_needs_keeps_its_place)
{
    world *w = begin("rounds=quorum quorum=2 staleness=1 checkpoint_every=8 reconnect_grace=1h");
    const pd_fragment_rank *rank;

    step_of(w, 3, 1);
    step_of(w, 8, 1);
    step_of(w, 1, 2);
    assert_int_equal(told(w), 2);
    crash(w);
    w->r.window = 8;
    join_those(w, ALL);
    for (uint32_t r = 0; r < RANKS; r++) w->workers[r].next = 0;
    push(w, 0);
    push(w, 1);
    rig_work(&w->r);
    assert_int_equal(told(w), 1);
    push(w, 3);
    assert_int_equal(w->r.error.code, PD_OK);
    rank = &inside_job(w->r.store, w->r.job)->steps.fragments[0].ranks[3];
    assert_int_equal(rank->step, 1);
    assert_int_equal(push_first_param(w, 3, 2), PD_FAILED_PRECONDITION);
    assert_int_equal(rank->step, 1);
    push(w, 0);
    rig_work(&w->r);
    assert_int_equal(told(w), 2);
    assert_int_equal(course(w), 0);
    end(w);
}

/* The set of step 1 had rank 3, which has been removed since: no member is missing, and yet it is rank 3 that the step
 * waits for. */
TEST(an_overdue_step_names_the_ranks_that_counted_before_a_restart)
{
    world *w = begin("rounds=quorum quorum=2 checkpoint_every=8 reconnect_grace=1h step_timeout=10s");

    step_of(w, 9, 1);
    assert_int_equal(told(w), 1);
    crash(w);
    w->r.window = 8;
    join_those(w, ALL);
    lose(w, 3);
    push(w, 0);
    pd_fragments_remove(&inside_job(w->r.store, w->r.job)->steps, 3, false);
    rig_work(&w->r);
    rig_sleep(&w->r, 11);
    assert_true(w->r.timed_out > 0);
    if (strstr(w->r.timeout.text, "for rank 3 (") == NULL) fail_msg("%s", w->r.timeout.text);
    assert_non_null(strstr(w->r.timeout.text, "to count the same ranks as before the server was restarted"));
    end(w);
}

TEST(a_worker_that_comes_back_too_late_is_on_another_course)
{
    world *w = begin(quorum);

    step_of(w, ALL, 1);
    crash(w);
    w->workers[0].seen = w->workers[1].seen = 0;
    forget(w);
    w->workers[2].seen = 1;
    join_those(w, 3);
    rig_sleep(&w->r, 6);
    step_of(w, 3, 1);
    assert_int_equal(told(w), 1);
    assert_int_equal(course(w), 0);
    join(w, 2);
    assert_int_equal(w->r.welcome_course, 1);
    end(w);
}
