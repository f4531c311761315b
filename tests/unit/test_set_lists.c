/* Tests what operators see of the rounds and members of a job: the lists, and whom a job waits for. */
#include "test.h"
#include "fragment.h"
#include "rig.h"
#include "store_inside.h"

enum { WORLD = 3, CONN = 10, N = 100 };

static void start(rig *r, const char *options)
{
    static const int64_t sizes[] = { N, N };
    pd_store_config config = rig_config();

    rig_new(r, &config);
    r->job = rig_start(r, "job", WORLD, CONN, sizes, 2, options, "* sgd lr=1");
    rig_work(r);
}

static void push_one(rig *r, uint32_t rank, uint64_t step, uint32_t param)
{
    float g[N];

    for (int i = 0; i < N; i++) g[i] = (float)(rank + 1);
    assert_int_equal(rig_push(r, r->job, rank, CONN + rank, step, param, g, N), PD_OK);
}

static void push(rig *r, uint32_t rank, uint64_t step)
{
    for (uint32_t param = 0; param < 2; param++) push_one(r, rank, step, param);
    rig_work(r);
}

static void lose(rig *r, uint32_t rank)
{
    pd_request *lost = pd_request_new(PD_REQ_LOST, (pd_ticket){ CONN + rank, 0 });

    lost->job = r->job;
    lost->rank = rank;
    rig_apply(r, lost);
    rig_work(r);
}

static const pd_round_info *round_of(rig *r)
{
    pd_info *info = rig_ask(r, PD_INFO_ROUNDS, "job");

    assert_int_equal(info->n_rounds, 1);
    return info->rounds;
}

static const pd_member_info *member(rig *r, uint32_t rank)
{
    pd_info *info = rig_ask(r, PD_INFO_MEMBERS, "job");

    assert_int_equal(info->n_members, WORLD);
    return &info->members[rank];
}

static const char *waits_for(rig *r)
{
    return rig_ask(r, PD_INFO_JOBS, "")->jobs[0].waits_for;
}

TEST(a_round_that_waits_for_its_quorum_is_open)
{
    const pd_round_info *info;
    rig r;

    start(&r, "rounds=quorum quorum=2");
    assert_string_equal(round_of(&r)->state, "idle");
    push_one(&r, 2, 1, 0);
    push(&r, 1, 1);
    rig_sleep(&r, 3);
    info = round_of(&r);
    assert_string_equal(info->job, "job");
    assert_string_equal(info->state, "open");
    assert_int_equal(info->step, 1);
    assert_int_equal(info->whole, 1);
    assert_int_equal(info->expected, 3);
    assert_int_equal(info->quorum, 2);
    assert_int_equal(info->since_ms, 3000);
    assert_string_equal(info->missing, "0,2");
    rig_free(&r);
}

TEST(a_round_names_lost_ranks_first_and_since_when)
{
    rig r;

    start(&r, "rounds=quorum quorum=3 grace=1s");
    lose(&r, 2);
    push(&r, 1, 1);
    rig_sleep(&r, 4);
    assert_string_equal(round_of(&r)->waits_for, "2 (lost 4 s), 0");
    assert_string_equal(round_of(&r)->missing, "0,2");
    rig_free(&r);
}

TEST(a_round_in_its_grace_says_how_long_that_lasts)
{
    rig r;

    start(&r, "rounds=quorum quorum=2 grace=2s");
    push(&r, 0, 1);
    push(&r, 1, 1);
    rig_sleep(&r, 0.5);
    assert_string_equal(round_of(&r)->state, "grace");
    assert_int_equal(round_of(&r)->left_ms, 1500);
    assert_int_equal(round_of(&r)->hasty, 0);
    assert_int_equal(round_of(&r)->grace_waits, 1);
    rig_free(&r);
}

TEST(a_round_lists_the_last_set_with_its_ages)
{
    rig r;

    start(&r, "rounds=quorum quorum=2 staleness=2");
    push(&r, 0, 1);
    push(&r, 1, 1);
    assert_int_equal(round_of(&r)->fixed, 1);
    assert_string_equal(round_of(&r)->counted, "0,1");
    assert_string_equal(round_of(&r)->ages, "");
    push(&r, 2, 1);
    push(&r, 0, 2);
    assert_int_equal(round_of(&r)->fixed, 2);
    assert_string_equal(round_of(&r)->counted, "0,2");
    assert_string_equal(round_of(&r)->ages, "2:1");
    assert_string_equal(round_of(&r)->state, "idle");
    rig_free(&r);
}

TEST(a_job_in_whose_steps_all_count_lists_its_oldest_round)
{
    const pd_round_info *info;
    rig r;

    start(&r, NULL);
    assert_string_equal(round_of(&r)->state, "idle");
    assert_int_equal(round_of(&r)->step, 1);
    push(&r, 1, 1);
    push_one(&r, 0, 1, 1);
    rig_sleep(&r, 2);
    info = round_of(&r);
    assert_string_equal(info->state, "open");
    assert_int_equal(info->whole, 1);
    assert_int_equal(info->quorum, 3);
    assert_int_equal(info->least, 3);
    assert_string_equal(info->missing, "0,2");
    assert_int_equal(info->since_ms, 2000);
    push_one(&r, 0, 1, 0);
    push(&r, 2, 1);
    assert_string_equal(round_of(&r)->state, "idle");
    assert_int_equal(round_of(&r)->step, 2);
    assert_string_equal(round_of(&r)->counted, "");
    rig_free(&r);
}

TEST(a_member_says_in_how_many_steps_it_counts)
{
    rig r;

    start(&r, "rounds=quorum quorum=2 staleness=1");
    push(&r, 0, 1);
    push(&r, 1, 1);
    push(&r, 2, 1);
    push(&r, 0, 2);
    assert_int_equal(member(&r, 2)->counted, 1);
    assert_int_equal(member(&r, 2)->steps, 2);
    assert_true(member(&r, 2)->mean_age == 1 && member(&r, 2)->share == 0.5);
    assert_int_equal(member(&r, 0)->counted, 2);
    assert_true(member(&r, 0)->mean_age == 0 && member(&r, 0)->share == 1);
    assert_int_equal(member(&r, 0)->next, 3);
    assert_int_equal(member(&r, 1)->missed, 1);
    rig_free(&r);
}

TEST(a_push_that_is_late_counts_once_however_many_frames_it_has)
{
    rig r;

    start(&r, "rounds=quorum quorum=2");
    push(&r, 0, 1);
    push_one(&r, 2, 1, 0);
    push(&r, 1, 1); /* fixes the step: what rank 2 has given is released, and the rest is late */
    assert_int_equal(member(&r, 2)->late, 1);
    push_one(&r, 2, 1, 1);
    assert_int_equal(member(&r, 2)->late, 1);
    rig_free(&r);
}

TEST(a_member_has_the_state_of_its_worker)
{
    rig r;

    start(&r, "rounds=quorum quorum=2");
    assert_string_equal(member(&r, 0)->state, "member");
    push(&r, 0, 1);
    assert_string_equal(member(&r, 0)->state, "expected");
    assert_true(member(&r, 0)->whole && !member(&r, 1)->whole);
    lose(&r, 1);
    rig_sleep(&r, 4);
    assert_string_equal(member(&r, 1)->state, "lost");
    assert_int_equal(member(&r, 1)->since_ms, 4000);
    pd_fragments_remove(&inside_job(r.store, r.job)->steps, 1, true);
    assert_string_equal(member(&r, 1)->state, "removed");
    rig_free(&r);
}

TEST(a_job_says_that_it_has_too_few_members)
{
    rig r;

    start(&r, "rounds=quorum quorum=1 min_workers=2 max_workers=3");
    pd_fragments_remove(&inside_job(r.store, r.job)->steps, 1, true);
    pd_fragments_remove(&inside_job(r.store, r.job)->steps, 2, true);
    push(&r, 0, 1);
    assert_string_equal(waits_for(&r), "members: 1 of 2");
    assert_string_equal(round_of(&r)->waits_for, "members: 1 of 2");
    assert_int_equal(round_of(&r)->members, 1);
    assert_int_equal(round_of(&r)->least, 2);
    assert_int_equal(round_of(&r)->step, 1);
    rig_free(&r);
}

TEST(a_job_waits_for_the_ranks_that_its_step_misses)
{
    rig r;

    start(&r, "rounds=quorum quorum=2");
    assert_string_equal(waits_for(&r), "");
    push(&r, 1, 1);
    assert_string_equal(waits_for(&r), "0,2");
    rig_free(&r);
}

TEST(a_worker_that_was_late_works_on_the_next_step)
{
    rig r;

    start(&r, "rounds=quorum quorum=2");
    for (uint64_t step = 1; step <= 3; step++) {
        push(&r, 0, step);
        push(&r, 1, step);
    }
    push(&r, 2, 1);
    assert_int_equal(member(&r, 2)->late, 1);
    assert_int_equal(member(&r, 2)->next, 4);
    rig_free(&r);
}

TEST(a_late_push_is_no_duplicate)
{
    rig r;

    start(&r, "rounds=quorum quorum=2");
    push(&r, 0, 1);
    push(&r, 1, 1);
    push(&r, 2, 1);
    assert_int_equal(rig_ask(&r, PD_INFO_JOBS, "")->jobs[0].duplicates, 0);
    push(&r, 1, 1);
    assert_true(rig_ask(&r, PD_INFO_JOBS, "")->jobs[0].duplicates > 0);
    rig_free(&r);
}
