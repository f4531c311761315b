/* Tests that a restored job goes on with another number of workers, and that the next steps have the bits of a job that
 * has always had that number. */
#include "test.h"
#include "course.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { STRIDE = 61, SEEDS = 2 }; /* few cases, since sanitizers are slow */
#else
enum { STRIDE = 3, SEEDS = 12 };
#endif

/* OLD, OLD + 1 ...: connections and nonces of the ranks before the resize. NEW, NEW + 1 ...: after it. */
enum { OLD = 20, NEW = 40, OPERATOR = 90, PARAMS = 3, SAVED = 4, MOST = 480 };

static const char *const names[PARAMS] = { "layer.weight", "layer.bias", "head.bias" };
static const pd_shape shapes[PARAMS] = { { 2, { 24, 20 } }, { 1, { 150 } }, { 1, { 96 } } };
static const int64_t sizes[PARAMS] = { 480, 150, 96 };
static const char rules[] = "layer* shampoo lr=0.1 max_preconditioner_dim=8 root_delay=1;* adam";
static const char plain[] = "checkpoint_every=4 clip_global_norm=2.5";
static const char *options = plain;

/* The ranges of worlds of 1, 2 and 3 ranks: no element has two ranks, and in a world of 3 one rank has none. */
#define WHOLE                                                                                                          \
    { -1, 0 },                                                                                                         \
    {                                                                                                                  \
        -1, 0                                                                                                          \
    }
static const rig_range ranges[4][3][PARAMS] = {
    { { { 0, 0 } } },
    { { WHOLE, { 0, 96 } } },
    { { WHOLE, { 0, 40 } }, { WHOLE, { 40, 96 } } },
    { { WHOLE, { 0, 64 } }, { WHOLE, { 64, 96 } }, { WHOLE, { 10, 10 } } },
};

static int hello(rig *r, uint32_t rank, uint32_t world, uint64_t conn)
{
    return rig_hello(r, "job", rank, world, conn + rank, conn + rank, options, rules);
}

/* Every rank has all elements of head.bias, as each unit must have where a step may be taken without some ranks. */
static const rig_range whole_ranges[PARAMS] = { WHOLE, { 0, 96 } };
static bool has_whole; /* the ranks declare whole_ranges */

static const rig_range *ranges_of(uint32_t world, uint32_t rank)
{
    return has_whole ? whole_ranges : ranges[world][rank];
}

static int declare(rig *r, uint32_t rank, uint32_t world, uint64_t conn)
{
    int rc;

    r->ranges = ranges_of(world, rank);
    rc = rig_declare(r, r->job, rank, conn + rank, names, shapes, NULL, PARAMS, PD_F32);
    r->ranges = NULL;
    return rc;
}

static void join(rig *r, uint32_t world, uint64_t conn)
{
    for (uint32_t rank = 0; rank < world; rank++)
        if (hello(r, rank, world, conn) != PD_OK || declare(r, rank, world, conn) != PD_OK)
            fail_msg("rank %u: %s", rank, r->error.text);
}

static uint64_t same_until = SAVED; /* the last step whose gradient is the same on each rank */

/* Fills the gradient of a step. Up to step same_until it is the same on each rank, and so small a number that its mean
 * over any number of ranks is exact. After it, it depends on the rank. */
static void gradient(float *out, uint32_t rank, uint32_t param, uint64_t step)
{
    uint64_t seed = step * 100 + param;

    if (step > same_until)
        rig_noise(step * 100 + rank * 10 + param, out, sizes[param]);
    else
        for (int64_t i = 0; i < sizes[param]; i++) out[i] = (float)((int)(rig_random(&seed) % 9) - 4) / 4;
}

static void send(rig *r, pd_request_kind kind, uint32_t rank, uint32_t world, uint64_t conn, uint32_t param,
                 uint64_t step, const float *values)
{
    const rig_range *range = &ranges_of(world, rank)[param];
    int64_t start = range->start < 0 ? 0 : range->start, end = range->start < 0 ? sizes[param] : range->end, stop;

    for (int64_t first = start; first < end; first = stop) {
        rig_frame *frame = rig_frame_new(r, kind, r->job, rank, conn + rank, step);
        stop = (first / r->chunk + 1) * r->chunk < end ? (first / r->chunk + 1) * r->chunk : end;
        rig_piece(frame, param, PD_F32, first, stop - first, values + first);
        if (rig_send(r, frame) != PD_OK) fail_msg("%s", r->error.text);
    }
}

static void push(rig *r, uint32_t rank, uint32_t world, uint64_t conn, uint64_t step)
{
    float values[MOST];

    for (uint32_t param = 0; param < PARAMS; param++) {
        gradient(values, rank, param, step);
        send(r, PD_REQ_PUSH, rank, world, conn, param, step, values);
    }
}

static void train(rig *r, uint32_t world, uint64_t conn, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++) {
        if (step == 3) assert_int_equal(rig_set(r, "job", "*", "lr=0.03", 6), PD_OK);
        for (uint32_t rank = 0; rank < world; rank++) push(r, rank, world, conn, step);
        rig_work(r);
        for (uint32_t i = 0; i < PARAMS; i++)
            assert_int_equal(inside_job(r->store, r->job)->steps.params[i].saved.step, step);
    }
}

static void start(rig *r, uint32_t world, uint64_t conn)
{
    pd_store_config config = durable_config();
    float values[MOST];

    rig_new(r, &config);
    join(r, world, conn);
    for (uint32_t param = 0; param < PARAMS; param++) {
        rig_noise(param + 1, values, sizes[param]);
        for (uint32_t rank = 0; rank < (param == 2 ? world : 1); rank++)
            send(r, PD_REQ_INIT, rank, world, conn, param, 0, values);
    }
    rig_work(r);
}

/* Starts a job of `world` workers and trains it to the checkpoint of step SAVED. */
static void save(rig *r, uint32_t world)
{
    static const char *const notes[] = { "of rank 0", "of rank 1", "of rank 2" };

    start(r, world, OLD);
    train(r, world, OLD, 1, SAVED - 1);
    for (uint32_t rank = 0; rank < world; rank++)
        assert_int_equal(rig_note(r, rank, OLD + rank, SAVED, notes[rank]), PD_OK);
    train(r, world, OLD, SAVED, SAVED);
    assert_int_equal(r->durable, SAVED);
}

static void restore(rig *next, const rig *from)
{
    pd_store_config config = durable_config();

    rig_new(next, &config);
    if (rig_restore(next, from) != PD_OK) fail_msg("%s", next->error.text);
}

static void save_and_restore(rig *next, uint32_t world)
{
    rig old;

    save(&old, world);
    restore(next, &old);
    rig_free(&old);
}

static void compare(rig *a, rig *b)
{
    for (uint32_t i = 0; i < PARAMS; i++) {
        const pd_param *x = &inside_job(a->store, a->job)->steps.params[i],
                       *y = &inside_job(b->store, b->job)->steps.params[i];
        assert_int_equal(x->saved.step, y->saved.step);
        assert_int_equal(x->overrides.n, y->overrides.n);
        assert_memory_equal(x->current->at[PD_F32], y->current->at[PD_F32], (size_t)sizes[i] * sizeof(float));
        course_compare_slots(x->optim, y->optim);
    }
}

/* A job of `from` workers is saved and restored, and goes on with `to` workers. It has the bits, and counts the memory,
 * of a job that has had `to` workers from the beginning. */
static void change(uint32_t from, uint32_t to)
{
    rig next, whole;

    start(&whole, to, NEW);
    train(&whole, to, NEW, 1, SAVED);
    save_and_restore(&next, from);
    join(&next, to, NEW);
    assert_false(next.created);
    for (uint32_t i = 0; i < PARAMS; i++) assert_int_equal(next.steps[i], SAVED);
    assert_int_equal(next.durable, SAVED);
    assert_int_equal(next.store->jobs.n, 1);
    compare(&next, &whole);
    train(&next, to, NEW, SAVED + 1, 2 * SAVED);
    train(&whole, to, NEW, SAVED + 1, 2 * SAVED);
    compare(&next, &whole);
    rig_free(&whole);
    restore(&whole, &next); /* the next checkpoint is one of the new world */
    join(&whole, to, NEW);
    compare(&next, &whole);
    rig_free(&whole);
    rig_free(&next);
}

HOLDS(two_workers_become_three, change(2, 3));

HOLDS(three_workers_become_one, change(3, 1));

HOLDS(one_worker_becomes_two, change(1, 2));

/* Kills the server. The job comes back from the disk and its logs, and goes on with the disk in *r. */
static void crash(rig *r)
{
    rig next;

    restore(&next, r);
    if (rig_read_decisions(&next, r) != PD_OK || rig_replay(&next, r) != PD_OK) fail_msg("%s", next.error.text);
    next.durable = r->durable;
    next.disk = r->disk;
    r->disk = NULL;
    memcpy(next.records, r->records, sizeof next.records);
    next.n_records = r->n_records;
    memcpy(next.decisions, r->decisions, sizeof next.decisions);
    next.n_decisions = r->n_decisions;
    r->n_records = r->n_decisions = 0;
    rig_free(r);
    *r = next;
}

enum { CRASHED_STEPS = 18, LIFE = 10 };

/* A job whose steps do not depend on the number of workers is killed at any step, and goes on with any number of them,
 * again and again. It must get from the disk what was durable, and end with the bits of a job of one worker that was
 * not killed. */
static void crash_and_change(uint64_t seed)
{
    uint64_t step = 1, last, conn = 100;
    rig r, whole;

    start(&whole, 1, NEW);
    train(&whole, 1, NEW, 1, CRASHED_STEPS);
    start(&r, 1 + (uint32_t)(rig_random(&seed) % 3), conn);
    for (uint32_t world = inside_job(r.store, r.job)->steps.members.ranks;; world = 1 + rig_random(&seed) % 3) {
        if (conn > 100) join(&r, world, conn);
        for (uint32_t i = 0; i < PARAMS; i++)
            assert_int_equal(inside_job(r.store, r.job)->steps.params[i].saved.step, step - 1);
        last = step + rig_random(&seed) % 6;
        train(&r, world, conn, step, last < CRASHED_STEPS ? last : CRASHED_STEPS);
        if (last >= CRASHED_STEPS) break;
        crash(&r);
        step = r.durable + 1;
        conn += LIFE;
    }
    compare(&r, &whole);
    rig_free(&r);
    rig_free(&whole);
}

static void change_with(const char *how)
{
    options = how;
    same_until = CRASHED_STEPS;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) crash_and_change(seed);
    options = plain;
    same_until = SAVED;
}

HOLDS(jobs_with_checkpoints_go_on_in_any_world_after_any_crash, change_with(plain));

HOLDS(jobs_with_logs_go_on_in_any_world_after_any_crash,
      change_with("durability=log checkpoint_every=4 clip_global_norm=2.5"));

TEST(rounds_of_another_world_are_in_no_control_log)
{
    rig r;

    options = "checkpoint_every=4 rounds=quorum quorum=2 grace=1s";
    has_whole = true;
    start(&r, 3, OLD);
    train(&r, 3, OLD, 1, 4);
    for (uint32_t rank = 0; rank < 2; rank++) push(&r, rank, 3, OLD, 5);
    rig_sleep(&r, 2);
    rig_work(&r);
    assert_int_equal(inside_job(r.store, r.job)->steps.params[0].saved.step, 5);
    crash(&r);
    join(&r, 2, NEW);
    train(&r, 2, NEW, 5, 6);
    assert_true(r.disk->step >= 5);
    crash(&r); /* decisions of a round of three ranks would not be read */
    options = plain;
    has_whole = false;
    rig_free(&r);
}

TEST(memory_is_counted_as_for_the_new_world)
{
    rig next, whole;

    start(&whole, 3, NEW);
    train(&whole, 3, NEW, 1, SAVED);
    save_and_restore(&next, 1);
    join(&next, 3, NEW);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(rig_note(&whole, rank, NEW + rank, SAVED, "note"), PD_OK);
    for (uint32_t rank = 0; rank < 3; rank++) assert_int_equal(rig_note(&next, rank, NEW + rank, SAVED, "note"), PD_OK);
    assert_int_equal(next.store->budget.used, whole.store->budget.used);
    rig_free(&whole);
    rig_free(&next);
}

/* Rank 2 has no element of head.bias, but that is known only when it declares. */
TEST(a_round_waits_until_the_ranges_of_all_ranks_are_known)
{
    const pd_param *ranged;
    rig next;

    save_and_restore(&next, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(hello(&next, rank, 3, NEW), PD_OK);
        assert_int_equal(declare(&next, rank, 3, NEW), PD_OK);
        push(&next, rank, 3, NEW, SAVED + 1);
    }
    rig_work(&next);
    ranged = &inside_job(next.store, next.job)->steps.params[2];
    assert_int_equal(ranged->saved.step, SAVED);
    assert_int_equal(hello(&next, 2, 3, NEW), PD_OK);
    assert_int_equal(declare(&next, 2, 3, NEW), PD_OK);
    rig_work(&next);
    assert_int_equal(ranged->round.ranges.n_known, 3);
    push(&next, 2, 3, NEW, SAVED + 1);
    rig_work(&next);
    assert_int_equal(ranged->saved.step, SAVED + 1);
    rig_free(&next);
}

/* Two of three new workers push a step before the third one declares its ranges. The step has the bits of one that all
 * workers push after that. */
static void push_before_the_last_declares(const char *how)
{
    rig next, whole;

    options = how;
    save_and_restore(&whole, 2);
    join(&whole, 3, NEW);
    train(&whole, 3, NEW, SAVED + 1, SAVED + 2);
    save_and_restore(&next, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(hello(&next, rank, 3, NEW), PD_OK);
        assert_int_equal(declare(&next, rank, 3, NEW), PD_OK);
        push(&next, rank, 3, NEW, SAVED + 1);
    }
    assert_int_equal(hello(&next, 2, 3, NEW), PD_OK);
    assert_int_equal(declare(&next, 2, 3, NEW), PD_OK);
    push(&next, 2, 3, NEW, SAVED + 1);
    rig_work(&next);
    train(&next, 3, NEW, SAVED + 2, SAVED + 2);
    compare(&next, &whole);
    rig_free(&whole);
    rig_free(&next);
    options = plain;
}

TEST(contributions_may_come_before_all_ranges_are_known)
{
    push_before_the_last_declares("checkpoint_every=4");
    push_before_the_last_declares("checkpoint_every=4 aggregate=median");
    push_before_the_last_declares("checkpoint_every=4 aggregate=adasum_vdot");
}

TEST(ranges_that_leave_elements_out_are_refused)
{
    rig next;

    save_and_restore(&next, 3);
    assert_int_equal(hello(&next, 0, 2, NEW), PD_OK);
    assert_int_equal(declare(&next, 0, 2, NEW), PD_OK);
    assert_int_equal(hello(&next, 1, 2, NEW), PD_OK);
    next.ranges = ranges[3][1];
    assert_int_equal(rig_declare(&next, next.job, 1, NEW + 1, names, shapes, NULL, PARAMS, PD_F32),
                     PD_FAILED_PRECONDITION);
    assert_non_null(strstr(next.error.text, "no rank has elements 40 to 64 of 96"));
    next.ranges = NULL;
    assert_int_equal(declare(&next, 1, 2, NEW), PD_OK);
    rig_free(&next);
}

TEST(notes_of_ranks_that_still_exist_are_recalled)
{
    rig next;

    save_and_restore(&next, 3);
    join(&next, 2, NEW);
    assert_string_equal(next.warning,
                        "job job: dropped the worker states of ranks above 1, which the job no longer has");
    assert_int_equal(rig_recall(&next, 1, NEW + 1), PD_OK);
    assert_int_equal(next.note_step, SAVED);
    assert_string_equal(next.note, "of rank 1");
    rig_free(&next);
    save_and_restore(&next, 2);
    join(&next, 3, NEW);
    assert_int_equal(rig_recall(&next, 0, NEW), PD_OK);
    assert_string_equal(next.note, "of rank 0");
    assert_int_equal(rig_recall(&next, 2, NEW + 2), PD_OK);
    assert_int_equal(next.note_step, 0);
    rig_free(&next);
}

static int barrier(rig *r, uint32_t rank, uint64_t conn, uint64_t sequence)
{
    pd_request *request = pd_request_new(PD_REQ_BARRIER, rig_ticket(r, conn + rank));

    request->job = r->job;
    request->rank = rank;
    request->u.barrier.sequence = sequence;
    return rig_apply(r, request);
}

TEST(barriers_count_from_the_new_processes)
{
    rig old, next;
    uint64_t answered;

    start(&old, 2, OLD);
    for (uint64_t sequence = 1; sequence <= 5; sequence++)
        for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(barrier(&old, rank, OLD, sequence), PD_OK);
    train(&old, 2, OLD, 1, SAVED);
    restore(&next, &old);
    rig_free(&old);
    join(&next, 3, NEW);
    answered = next.answered;
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(barrier(&next, rank, NEW, 1), PD_OK);
    assert_int_equal(next.answered, answered);
    assert_int_equal(barrier(&next, 2, NEW, 1), PD_OK);
    assert_int_equal(next.answered, answered + 3);
    rig_free(&next);
}

TEST(a_resized_job_can_go_back_to_a_checkpoint_of_its_old_world)
{
    pd_store_config config = durable_config();
    rig r, whole;

    start(&r, 2, OLD);
    r.keeps_older = true;
    train(&r, 2, OLD, 1, 2 * SAVED);
    rig_crash(&r, &config);
    join(&r, 3, NEW);
    assert_int_equal(rig_go_back(&r, "job", 0, OPERATOR, SAVED, 0), PD_OK);
    join(&r, 3, NEW + 10);
    train(&r, 3, NEW + 10, SAVED + 1, 2 * SAVED);
    start(&whole, 3, NEW);
    train(&whole, 3, NEW, 1, 2 * SAVED);
    compare(&r, &whole);
    rig_free(&whole);
    rig_free(&r);
}

TEST(who_waits_for_a_checkpoint_goes_on_waiting)
{
    rig next;

    save_and_restore(&next, 2);
    assert_int_equal(rig_checkpoint(&next, "job", OPERATOR, SAVED + 1, 60), PD_OK);
    join(&next, 3, NEW);
    train(&next, 3, NEW, SAVED + 1, SAVED + 1);
    assert_int_equal(next.durable, SAVED + 1);
    assert_int_equal(next.checkpoint_step, SAVED + 1);
    rig_free(&next);
}

TEST(an_operator_whose_values_wait_for_the_disk_is_answered_by_the_next_checkpoint)
{
    rig next;

    save_and_restore(&next, 2);
    next.lazy_wal = true;
    (void)rig_apply(&next, rig_set_request(&next, "job", "*", "lr=0.05", 0));
    assert_int_equal(next.n_logging, 1);
    assert_null(next.set);
    join(&next, 3, NEW);
    train(&next, 3, NEW, SAVED + 1, SAVED + 1);
    assert_true(next.durable > SAVED);
    assert_non_null(next.set);
    rig_write_record(&next); /* the entry of the job that was: nobody waits for it */
    rig_free(&next);
}

static void expect(rig *r, int code, const char *text)
{
    assert_int_equal(r->error.code, code);
    if (strstr(r->error.text, text) == NULL) fail_msg("expected \"%s\", got \"%s\"", text, r->error.text);
}

TEST(a_worker_of_the_old_world_keeps_its_size)
{
    rig next;

    save_and_restore(&next, 2);
    hello(&next, 1, 3, OLD); /* a nonce of the old world */
    expect(&next, PD_FAILED_PRECONDITION, "world_size = 2, this worker comes with 3");
    next.rejoins = true;
    hello(&next, 0, 3, NEW);
    expect(&next, PD_FAILED_PRECONDITION, "world_size = 2, this worker comes with 3");
    assert_int_equal(hello(&next, 1, 2, OLD), PD_OK);
    next.rejoins = false;
    hello(&next, 0, 3, NEW);
    expect(&next, PD_FAILED_PRECONDITION, "world_size = 2, this worker comes with 3");
    rig_free(&next);
}

TEST(a_worker_of_the_old_world_comes_too_late)
{
    rig next;

    save_and_restore(&next, 2);
    assert_int_equal(hello(&next, 2, 3, NEW), PD_OK);
    next.rejoins = true;
    hello(&next, 0, 2, OLD);
    expect(&next, PD_FAILED_PRECONDITION, "world_size = 3, this worker comes with 2");
    hello(&next, 0, 3, OLD);
    expect(&next, PD_ABORTED, "taken over by another process");
    next.rejoins = false;
    join(&next, 3, NEW);
    rig_free(&next);
}

TEST(the_size_changes_once_and_only_of_a_restored_job)
{
    rig next;

    save_and_restore(&next, 2);
    join(&next, 3, NEW);
    hello(&next, 0, 2, NEW + 20);
    expect(&next, PD_FAILED_PRECONDITION, "world_size = 3, this worker comes with 2");
    rig_free(&next);
    start(&next, 2, OLD);
    hello(&next, 0, 3, NEW);
    expect(&next, PD_FAILED_PRECONDITION, "world_size = 2, this worker comes with 3");
    rig_free(&next);
}

TEST(other_options_are_refused_and_nothing_changes)
{
    uint64_t used;
    rig next;

    save_and_restore(&next, 2);
    used = next.store->budget.used;
    rig_hello(&next, "job", 0, 3, NEW, NEW, "checkpoint_every=5", rules);
    expect(&next, PD_FAILED_PRECONDITION, "checkpoint_every = 4, this worker comes with 5");
    expect(&next, PD_FAILED_PRECONDITION, "lingers for another");
    rig_hello(&next, "job", 0, 3, NEW, NEW, options, "* adam");
    expect(&next, PD_FAILED_PRECONDITION, "optimizer rules");
    assert_int_equal(next.store->budget.used, used);
    join(&next, 2, OLD);
    rig_free(&next);
}

TEST(a_world_that_exceeds_a_limit_is_refused_and_nothing_changes)
{
    uint64_t used, two;
    rig next;

    save_and_restore(&next, 1);
    used = next.store->budget.used;
    next.store->budget.limit = used;
    hello(&next, 0, 3, NEW);
    expect(&next, PD_RESOURCE_EXHAUSTED, "job job has 1 workers and cannot continue with 3: ");
    expect(&next, PD_RESOURCE_EXHAUSTED, "limits.max_total_bytes");
    assert_int_equal(next.store->budget.used, used);
    assert_int_equal(next.store->jobs.n, 1);
    next.store->budget.limit = UINT64_MAX;
    join(&next, 2, NEW);
    two = next.store->budget.used;
    assert_true(two > used);
    rig_free(&next);
    save_and_restore(&next, 1);
    next.store->budget.limit = two; /* the job fits, although the old one and the new one do not fit together */
    join(&next, 2, NEW);
    assert_int_equal(next.store->budget.used, two);
    rig_free(&next);
}

TEST(too_few_workers_for_the_aggregate_are_refused)
{
    pd_store_config config = durable_config();
    static const int64_t elements[] = { 100 };
    const char *trimmed = "checkpoint_every=1 aggregate=trimmed_mean trim=1";
    float values[100] = { 0 };
    rig old, next;

    rig_new(&old, &config);
    rig_start(&old, "job", 3, OLD, elements, 1, trimmed, NULL);
    for (uint32_t rank = 0; rank < 3; rank++) rig_push(&old, old.job, rank, OLD + rank, 1, 0, values, 100);
    rig_work(&old);
    restore(&next, &old);
    rig_free(&old);
    rig_hello(&next, "job", 0, 2, NEW, NEW, trimmed, "* sgd lr=1");
    expect(&next, PD_INVALID_ARGUMENT, "less than half of the workers");
    assert_int_equal(rig_hello(&next, "job", 0, 4, NEW, NEW, trimmed, "* sgd lr=1"), PD_OK);
    rig_free(&next);
}

TEST(memory_that_fails_changes_nothing)
{
    rig next;
    uint64_t used;

    save_and_restore(&next, 2);
    used = next.store->budget.used;
    for (int64_t fail = 8;; fail += STRIDE) { /* the Hello itself has made some allocations before */
        pd_request *request = pd_request_new(PD_REQ_HELLO, rig_ticket(&next, NEW));
        static char *rule_texts[] = { "layer* shampoo lr=0.1 max_preconditioner_dim=8 root_delay=1", "* adam" };
        request->u.hello.job_name = strdup("job");
        request->u.hello.world_size = 3;
        request->u.hello.nonce = NEW;
        request->u.hello.rules = calloc(2, sizeof(char *));
        for (size_t i = 0; i < 2; i++) request->u.hello.rules[request->u.hello.n_rules++] = strdup(rule_texts[i]);
        oom_arm(fail - 8);
        pd_store_apply(next.store, request, next.now);
        if (!oom_disarm()) break;
        rig_absorb(&next);
        if (inside_find(next.store, "job")->steps.members.ranks == 3) continue; /* only a log line was lost */
        assert_int_equal(next.error.code, PD_NO_MEMORY);
        assert_int_equal(next.store->budget.used, used);
    }
    rig_absorb(&next);
    join(&next, 3, NEW);
    train(&next, 3, NEW, SAVED + 1, SAVED + 2);
    rig_free(&next);
}
