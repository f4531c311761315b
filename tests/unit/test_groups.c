/* Tests groups of ranks: they count together, join together, and are removed together. */
#include "test.h"
#include "durable_job.h"
#include "fragment.h"
#include "rig.h"
#include "store_inside.h"

enum { N = 100, CONN = 10, NEW = 30 };
static const char *const names[] = { "p" };
static const pd_shape shapes[] = { { 1, { N } } };
static const char *options; /* of the job that begin() has begun */

static int hello(rig *r, uint32_t rank, uint32_t world, uint64_t nonce)
{
    return rig_hello(r, "job", rank, world, nonce, nonce, options, "* sgd lr=1");
}

static int declare(rig *r, uint32_t rank, uint64_t nonce)
{
    return rig_declare(r, r->job, rank, nonce, names, shapes, NULL, 1, PD_F32);
}

/* Lets a process join. Its nonce is also the number of its connection. */
static void join(rig *r, uint32_t rank, uint32_t world, uint64_t nonce)
{
    if (hello(r, rank, world, nonce) != PD_OK || declare(r, r->rank, nonce) != PD_OK)
        fail_msg("rank %u: %s", rank, r->error.text);
}

static void init(rig *r)
{
    static const float zeros[N];

    assert_int_equal(rig_init(r, r->job, CONN, 0, zeros, N), PD_OK);
    rig_work(r);
}

static pd_job *job_of(const rig *r)
{
    return inside_job(r->store, r->job);
}

static void fill(float g[N], double value)
{
    for (int i = 0; i < N; i++) g[i] = (float)value;
}

/* Pushes the gradient 2^rank, so that the mean tells which ranks counted. */
static int push(rig *r, uint32_t rank, uint64_t conn, uint64_t step)
{
    float g[N];
    int rc;

    fill(g, (double)(1 << rank));
    rc = rig_push(r, r->job, rank, conn, step, 0, g, N);
    rig_work(r);
    return rc;
}

static uint64_t step_of(rig *r)
{
    return rig_versions(r, r->job, 0)->step;
}

static double weight(rig *r)
{
    return (double)rig_weights(r, r->job, 0)[N - 1];
}

static void lose(rig *r, uint32_t rank, uint64_t conn)
{
    (void)rig_ask_as(r, PD_REQ_LOST, rank, conn, 0);
}

static void expect(const rig *r, int code, const char *part)
{
    if (r->error.code != code || strstr(r->error.text, part) == NULL)
        fail_msg("%d \"%s\" is not %d \"%s\"", r->error.code, r->error.text, code, part);
}

static void end(rig *r)
{
    rig_free(r);
}

/* Makes a store in which a job is to begin whose workers ask for any rank (Hello.any_rank). No worker has come yet. */
static void begin_empty(rig *r, const char *with)
{
    pd_store_config config = durable_config();

    options = with;
    rig_new(r, &config);
    r->any_rank = true;
}

static void join_group(rig *r, uint32_t rank, uint64_t nonce, uint32_t group)
{
    r->group = 1 + group;
    join(r, rank, 4, nonce);
    r->group = 0;
}

/* Begins a job of two groups of two ranks. */
static void begin_groups(rig *r, const char *with)
{
    pd_store_config config = durable_config();

    options = with;
    rig_new(r, &config);
    for (uint32_t rank = 0; rank < 4; rank++) join_group(r, rank, CONN + rank, rank / 2);
    init(r);
}

TEST(ranks_of_a_group_never_count_alone)
{
    rig r;

    begin_groups(&r, "rounds=quorum quorum=1");
    push(&r, 0, CONN, 1);
    push(&r, 2, CONN + 2, 1);
    assert_int_equal(step_of(&r), 0);
    push(&r, 1, CONN + 1, 1);
    assert_int_equal(step_of(&r), 1);
    assert_true(weight(&r) == -1.5);
    end(&r);
}

TEST(no_step_is_taken_until_all_members_have_named_their_group)
{
    pd_store_config config = durable_config();
    rig r;

    options = "rounds=quorum quorum=1";
    rig_new(&r, &config);
    for (uint32_t rank = 0; rank < 3; rank++) join_group(&r, rank, CONN + rank, rank / 2);
    init(&r);
    push(&r, 2, CONN + 2, 1);
    assert_int_equal(step_of(&r), 0);
    join_group(&r, 3, CONN + 3, 1);
    rig_work(&r);
    assert_int_equal(step_of(&r), 0);
    push(&r, 3, CONN + 3, 1);
    assert_int_equal(step_of(&r), 1);
    end(&r);
}

TEST(a_group_is_removed_and_joins_as_a_whole)
{
    rig r;

    begin_groups(&r, "on_lost_worker=shrink reconnect_grace=5s");
    push(&r, 0, CONN, 1);
    push(&r, 2, CONN + 2, 1);
    push(&r, 3, CONN + 3, 1);
    lose(&r, 1, CONN + 1);
    rig_sleep(&r, 6);
    rig_work(&r);
    assert_int_equal(r.members, 0xc);
    assert_int_equal(step_of(&r), 1);
    assert_true(weight(&r) == -6); /* the mean of ranks 2 and 3 */
    assert_int_equal(r.fenced_conn, CONN);
    assert_int_equal(r.fenced.code, PD_UNAVAILABLE);
    join_group(&r, 0, CONN, 0);
    assert_int_equal(r.members, 0xc);
    push(&r, 0, CONN, 2);
    push(&r, 2, CONN + 2, 2);
    push(&r, 3, CONN + 3, 2);
    assert_int_equal(step_of(&r), 2);
    join_group(&r, 1, NEW + 1, 0);
    assert_int_equal(r.members, 0xf);
    assert_int_equal(r.epoch, 2);
    end(&r);
}

TEST(a_rank_comes_again_when_another_of_its_group_leaves)
{
    rig r;

    begin_groups(&r, "on_lost_worker=shrink rounds=quorum quorum=2");
    push(&r, 0, CONN, 1);
    (void)rig_ask_as(&r, PD_REQ_LEAVE, 1, CONN + 1, 0);
    rig_work(&r);
    assert_int_equal(r.members, 0xc);
    assert_int_equal(r.fenced_conn, CONN);
    assert_int_equal(r.fenced.code, PD_UNAVAILABLE);
    end(&r);
}

TEST(a_group_needs_as_many_ranks_as_it_had_processes_though_one_was_replaced_at_another_rank)
{
    rig r;

    begin_empty(&r, "max_workers=4 min_workers=1 reconnect_grace=5s");
    join_group(&r, 0, CONN, 0);
    init(&r);
    join_group(&r, 0, CONN + 1, 0);
    assert_int_equal(r.members, 3);
    lose(&r, 1, CONN + 1);
    join_group(&r, 0, NEW, 0);
    assert_int_equal(r.members, 7);
    rig_sleep(&r, 6);
    assert_int_equal(r.members, 0);
    join_group(&r, 0, CONN, 0);
    assert_int_equal(r.members, 0);
    join_group(&r, 0, NEW, 0);
    assert_int_equal(r.members, 5);
    end(&r);
}

TEST(a_rank_whose_group_is_gone_waits_at_a_barrier_only_for_those_that_are_there)
{
    uint64_t answered;
    rig r;

    begin_groups(&r, "on_lost_worker=shrink rounds=quorum quorum=2");
    (void)rig_ask_as(&r, PD_REQ_LEAVE, 1, CONN + 1, 0);
    (void)rig_ask_as(&r, PD_REQ_LEAVE, 3, CONN + 3, 0);
    rig_work(&r);
    join_group(&r, 0, CONN, 0);
    join_group(&r, 2, CONN + 2, 1);
    assert_int_equal(r.members, 0);
    answered = r.answered;
    (void)rig_ask_as(&r, PD_REQ_BARRIER, 2, CONN + 2, 1);
    assert_int_equal(r.answered, answered);
    (void)rig_ask_as(&r, PD_REQ_LEAVE, 0, CONN, 0);
    assert_int_equal(r.answered, answered + 2);
    end(&r);
}

TEST(a_rank_of_a_later_launch_does_not_count_before_the_others_have_named_their_groups)
{
    rig r;

    begin_groups(&r, "on_lost_worker=shrink rounds=quorum quorum=1");
    r.generation = 2;
    join_group(&r, 0, NEW, 0);
    push(&r, 0, NEW, 1);
    assert_int_equal(step_of(&r), 0);
    for (uint32_t rank = 1; rank < 4; rank++) join_group(&r, rank, NEW + rank, rank / 2);
    push(&r, 1, NEW + 1, 1);
    assert_int_equal(step_of(&r), 1);
    end(&r);
}

TEST(a_range_that_a_rank_has_alone_is_refused_where_steps_may_lack_ranks)
{
    pd_store_config config = durable_config();
    rig r;

    options = "rounds=quorum quorum=1";
    rig_new(&r, &config);
    assert_int_equal(hello(&r, 0, 2, CONN), PD_OK);
    assert_int_equal(rig_declare_range(&r, 0, CONN, "p", shapes, (rig_range){ 0, 50 }), PD_FAILED_PRECONDITION);
    expect(&r, PD_FAILED_PRECONDITION,
           "rank 0 lacks elements 50 to 100 of 100. In job job a step may be taken without some ranks: give the ranks "
           "that share a parameter the same group");
    end(&r);
}

static void join_with_range(rig *r, uint32_t rank, uint64_t nonce, uint32_t group, rig_range range)
{
    r->group = 1 + group;
    assert_int_equal(hello(r, rank, 4, nonce), PD_OK);
    r->group = 0;
    if (rig_declare_range(r, r->rank, nonce, "p", shapes, range) != PD_OK) fail_msg("%s", r->error.text);
}

static const rig_range lower = { 0, 50 }, upper = { 50, N };

static void send_range(rig *r, pd_request_kind kind, uint32_t rank, uint64_t conn, uint64_t step, rig_range range,
                       double value)
{
    float g[N];

    fill(g, value);
    for (int64_t first = range.start, stop; first < range.end; first = stop) {
        rig_frame *frame = rig_frame_new(r, kind, r->job, rank, conn, step);
        stop = (first / r->chunk + 1) * r->chunk < range.end ? (first / r->chunk + 1) * r->chunk : range.end;
        rig_piece(frame, 0, PD_F32, first, stop - first, g);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
    rig_work(r);
}

TEST(the_ranges_of_one_group_are_enough_to_begin)
{
    rig r;

    begin_empty(&r, "min_workers=1 max_workers=4");
    join_with_range(&r, 0, CONN, 0, lower);
    assert_int_equal(r.members, 0);
    send_range(&r, PD_REQ_INIT, 0, CONN, 0, lower, 0);
    join_with_range(&r, 0, CONN + 1, 0, upper);
    assert_int_equal(r.members, 3);
    assert_null(job_of(&r)->steps.params[0].current);
    send_range(&r, PD_REQ_INIT, 1, CONN + 1, 0, upper, 0);
    assert_non_null(job_of(&r)->steps.params[0].current);
    send_range(&r, PD_REQ_PUSH, 0, CONN, 1, lower, 3);
    assert_int_equal(step_of(&r), 0);
    send_range(&r, PD_REQ_PUSH, 1, CONN + 1, 1, upper, 3);
    assert_int_equal(step_of(&r), 1);
    assert_true(weight(&r) == -3);
    end(&r);
}

TEST(a_slot_may_get_other_ranges_when_it_is_given_again)
{
    rig r;

    begin_empty(&r, "min_workers=1 max_workers=4 reconnect_grace=1s");
    join_with_range(&r, 0, CONN, 0, lower);
    join_with_range(&r, 0, CONN + 1, 0, upper);
    send_range(&r, PD_REQ_INIT, 0, CONN, 0, lower, 0);
    send_range(&r, PD_REQ_INIT, 1, CONN + 1, 0, upper, 0);
    join_with_range(&r, 0, CONN + 2, 1, lower);
    join_with_range(&r, 0, CONN + 3, 1, upper);
    lose(&r, 2, CONN + 2);
    lose(&r, 3, CONN + 3);
    rig_sleep(&r, 2);
    assert_int_equal(r.members, 3);
    join_with_range(&r, 0, NEW, 1, upper);
    assert_int_equal(r.rank, 2);
    join_with_range(&r, 0, NEW + 1, 1, lower);
    assert_int_equal(r.members, 0xf);
    send_range(&r, PD_REQ_PUSH, 0, CONN, 1, lower, 1);
    send_range(&r, PD_REQ_PUSH, 1, CONN + 1, 1, upper, 1);
    send_range(&r, PD_REQ_PUSH, 2, NEW, 1, upper, 5);
    assert_int_equal(step_of(&r), 0);
    send_range(&r, PD_REQ_PUSH, 3, NEW + 1, 1, lower, 5);
    assert_int_equal(step_of(&r), 1);
    assert_true(weight(&r) == -3);
    end(&r);
}

/* Saves the job and loads it into another store, whose image of the job must be the same. */
static void check_image(rig *r)
{
    pd_store_config config = durable_config();
    uint8_t *image, *again;
    size_t n, m;
    pd_error err;
    rig next;

    rig_new(&next, &config);
    rig_work(r);
    assert_int_equal(pd_store_save_job(r->store, "job", &image, &n, &err), PD_OK);
    if (pd_store_load_job(next.store, image, n, next.now, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(pd_store_save_job(next.store, "job", &again, &m, &err), PD_OK);
    assert_int_equal(m, n);
    assert_memory_equal(image, again, n);
    assert_memory_equal(&inside_find(next.store, "job")->steps.members, &job_of(r)->steps.members, sizeof(pd_rank_set));
    free(image);
    free(again);
    rig_free(&next);
}

TEST(an_image_has_the_groups_of_the_job)
{
    rig r;

    begin_groups(&r, "on_lost_worker=shrink reconnect_grace=5s");
    lose(&r, 1, CONN + 1);
    rig_sleep(&r, 6);
    check_image(&r);
    end(&r);
}
