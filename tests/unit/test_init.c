/* Tests that the initial weights of a parameter come from one process at each rank, even when another process takes the
 * rank over while they arrive. */
#include "test.h"
#include "rig.h"

enum { CHUNK = 64, SIZE = 3 * CHUNK };
static const char *const names[] = { "p0" };
static const pd_shape shapes[] = { { 1, { SIZE } } };

/* shards[r] is the range of elements that rank r has. */
static const rig_range shards[2] = { { 0, 100 }, { 80, SIZE } };

static void join(rig *r, uint32_t rank, uint32_t world, uint64_t process, bool ranged)
{
    assert_int_equal(rig_hello(r, "job", rank, world, process, process, NULL, "* sgd lr=1"), PD_OK);
    r->ranges = ranged ? &shards[rank] : NULL;
    assert_int_equal(rig_declare(r, r->job, rank, process, names, shapes, NULL, 1, PD_F32), PD_OK);
}

/* Fills `values` with numbers that show which process sent them. */
static void fill(float *values, uint64_t process)
{
    for (int i = 0; i < SIZE; i++) values[i] = (float)(1000 * process + (uint64_t)i);
}

static int send(rig *r, uint32_t rank, uint64_t process, int64_t first, int64_t end)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, process, 0);
    float values[SIZE];
    int rc;

    fill(values, process);
    rig_piece(frame, 0, PD_F32, first, end - first, values + first);
    rc = rig_send(r, frame);
    rig_work(r);
    return rc != PD_OK ? rc : r->error.code;
}

static bool is_published(const rig *r)
{
    return r->versions[r->job % RIG_JOBS] != NULL && r->versions[r->job % RIG_JOBS][0].published != NULL;
}

static void assert_given_by(rig *r, uint64_t process, int64_t first, int64_t end)
{
    float values[SIZE];

    fill(values, process);
    assert_true(is_published(r));
    assert_memory_equal(rig_weights(r, r->job, 0) + first, values + first, (size_t)(end - first) * sizeof(float));
}

FIXTURE(rig, rig_make, rig_free);

TEST(half_a_parameter_of_a_process_that_has_gone_does_not_count, rig *r)
{
    join(r, 0, 1, 5, false);
    send(r, 0, 5, 0, 64);
    send(r, 0, 5, 64, 128);
    join(r, 0, 1, 6, false);
    assert_false(r->initialised[0]);
    assert_int_equal(send(r, 0, 6, 128, SIZE), PD_OK);
    assert_false(is_published(r));
    assert_int_equal(send(r, 0, 6, 64, 128), PD_OK);
    assert_false(is_published(r));
    assert_int_equal(send(r, 0, 6, 0, 64), PD_OK);
    assert_given_by(r, 6, 0, SIZE);
}

TEST(a_process_that_comes_back_goes_on, rig *r)
{
    join(r, 0, 1, 5, false);
    send(r, 0, 5, 0, 64);
    /* a second connection of the same process */
    assert_int_equal(rig_hello(r, "job", 0, 1, 5, 7, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, 7, names, shapes, NULL, 1, PD_F32), PD_OK);
    send(r, 0, 7, 64, 128);
    assert_false(is_published(r));
    send(r, 0, 7, 128, SIZE);
    assert_given_by(r, 5, 0, 64);
    assert_given_by(r, 7, 64, SIZE); /* the first part came over connection 5, the rest over connection 7; both
                                      * belong to one process */
}

TEST(the_third_of_three_processes_gives_all_of_a_parameter, rig *r)
{
    join(r, 0, 1, 5, false);
    send(r, 0, 5, 0, 64);
    join(r, 0, 1, 6, false);
    send(r, 0, 6, 64, 128);
    join(r, 0, 1, 7, false);
    send(r, 0, 7, 128, SIZE);
    assert_false(is_published(r));
    send(r, 0, 7, 0, 64);
    send(r, 0, 7, 64, 128);
    assert_given_by(r, 7, 0, SIZE);
}

TEST(part_of_a_range_does_not_count_and_the_lowest_rank_stands_all_the_same, rig *r)
{
    join(r, 0, 2, 5, true);
    join(r, 1, 2, 8, true);
    send(r, 0, 5, 64, 100);
    send(r, 1, 8, 80, 128);
    send(r, 1, 8, 128, SIZE);
    join(r, 0, 2, 6, true);
    assert_false(r->initialised[0]);
    send(r, 0, 6, 0, 64);
    assert_false(is_published(r));
    send(r, 0, 6, 64, 100);
    assert_given_by(r, 6, 0, 100);
    assert_given_by(r, 8, 100, SIZE);
}

TEST(a_higher_rank_taken_over_gives_its_part_anew, rig *r)
{
    join(r, 0, 2, 5, true);
    join(r, 1, 2, 8, true);
    send(r, 1, 8, 80, 128);
    send(r, 0, 5, 0, 64);
    send(r, 0, 5, 64, 100);
    join(r, 1, 2, 9, true);
    send(r, 1, 9, 128, SIZE);
    assert_false(is_published(r));
    send(r, 1, 9, 80, 128);
    assert_given_by(r, 5, 0, 100);
    assert_given_by(r, 9, 100, SIZE);
}

TEST(a_range_that_was_sent_whole_stays, rig *r)
{
    join(r, 0, 2, 5, true);
    join(r, 1, 2, 8, true);
    send(r, 1, 8, 80, 128);
    send(r, 1, 8, 128, SIZE);
    join(r, 1, 2, 9, true);
    assert_true(r->initialised[0]);
    assert_false(r->must_init);
    send(r, 0, 5, 0, 64);
    send(r, 0, 5, 64, 100);
    assert_given_by(r, 8, 100, SIZE);
}
