/* Tests when copies of the figures of jobs are published, and what ranks are in them. */
#include "test.h"
#include "rig.h"
#include "stats.h"

enum { JOBS = 40, WORLD = 4096 };

static void set_up(rig *r)
{
    pd_store_config config = rig_config();

    config.stats_ns = PD_STATS_NS;
    config.max_jobs = JOBS + 1;
    rig_new(r, &config);
}

static void make_jobs(rig *r)
{
    char name[16];

    for (uint64_t i = 0; i < JOBS; i++) {
        snprintf(name, sizeof name, "j%llu", (unsigned long long)i);
        assert_int_equal(rig_hello(r, name, 0, WORLD, 1 + i, 1 + i, NULL, "* sgd lr=1"), PD_OK);
    }
}

/* Lets a worker join a job. */
static void touch(rig *r, uint64_t job, uint32_t rank)
{
    uint64_t number = 100 + job * 8 + rank; /* of the process and of its connection */
    char name[16];

    snprintf(name, sizeof name, "j%llu", (unsigned long long)job);
    assert_int_equal(rig_hello(r, name, rank, WORLD, number, number, NULL, "* sgd lr=1"), PD_OK);
}

/* Ticks until nothing is due any more. Returns the number of ticks. */
static int publish_all(rig *r)
{
    int calls = 0;

    for (; pd_store_next_tick(r->store) <= r->now; calls++) rig_sleep(r, 0);
    return calls;
}

FIXTURE(rig, set_up, rig_free);

TEST(a_call_publishes_a_few_large_jobs_and_the_next_ones_the_others, rig *r)
{
    uint64_t before;

    make_jobs(r);
    before = r->stats;
    rig_sleep(r, 2);
    assert_in_range(r->stats - before, 1, JOBS / 2 + 1);
    assert_true(publish_all(r) > 0);
    assert_in_range(r->stats, JOBS, JOBS + 1); /* the first one was published when it was created */
}

TEST(a_job_that_changes_while_others_are_published_waits_for_the_next_time, rig *r)
{
    uint64_t before;
    uint32_t rank = 1;

    make_jobs(r);
    rig_sleep(r, 2);
    publish_all(r);
    for (uint64_t i = 0; i < JOBS; i++) touch(r, i, 1);
    before = r->stats;
    rig_sleep(r, 2);
    while (pd_store_next_tick(r->store) <= r->now) touch(r, 0, ++rank);
    assert_int_equal(r->stats - before, JOBS);
    rig_sleep(r, 1.1);
    assert_int_equal(r->stats - before, JOBS + 1);
}

TEST(ranks_that_never_came_are_not_copied, rig *r)
{
    assert_int_equal(rig_hello(r, "j", 4000, WORLD, 1, 1, NULL, "* sgd lr=1"), PD_OK);
    rig_sleep(r, 1.1);
    assert_int_equal(r->stats_ranks, 1);
    for (uint32_t i = 0; i < 300; i++)
        assert_int_equal(rig_hello(r, "j", i, WORLD, 2 + i, 2 + i, NULL, "* sgd lr=1"), PD_OK);
    rig_sleep(r, 1.1);
    assert_int_equal(r->stats_ranks, PD_STATS_RANKS);
}
