/* Tests that a shard which is started again repeats the steps that all shards have decided: from its WAL alone, or from
 * contributions and verdicts that workers send again. */
#include "test.h"
#include "clipped.h"
#include "counting_row.h"
#include "settle.h"
#include "shard_rigs.h"
#include "store_inside.h"

enum { STEPS = 7, SHARDS = 2, CONN = 10 };

static const char rules[] = "p[02345] counting lr=0.1;* limited lr=0.1 dampening=0.4",
                  logged[] = "durability=log checkpoint_every=100 clip_global_norm=3 skip_outlier=50",
                  plain[] = "checkpoint_every=3 clip_global_norm=3 skip_outlier=50";

static void start(shard_rigs *s, const char *options)
{
    pd_store_config config = clipped_configuration();

    config.keeps = true;
    config.chunk_elements = 4096;
    shard_rigs_declare(s, SHARDS, 1, &config, options, rules);
}

/* Step 2 is refused for the element that is too large, step 4 lacks some gradients, step 5 is skipped. */
static void step(shard_rigs *s, uint64_t step)
{
    for (uint32_t p = 0; p < SHARD_PARAMS; p++) {
        float value = step == 2 ? 2 * COUNTING_LIMIT : NAN;
        bool odd = (step == 2 && p == 3) || (step == 5 && p == 4);
        shard_rigs_push_one(s, 0, step, p, 1, odd ? 0 : -1, value);
    }
    shard_rigs_settle(s);
    shard_rigs_assert_same(s, step);
}

static void compare(const pd_job *a, const pd_job *b)
{
    assert_memory_equal(&a->steps.saved, &b->steps.saved, sizeof a->steps.saved);
    for (uint32_t i = 0; i < a->steps.n_params; i++) {
        const pd_param *x = &a->steps.params[i], *y = &b->steps.params[i];
        pd_root_stats ours = pd_optim_root_stats(x->optim), theirs = pd_optim_root_stats(y->optim);
        assert_memory_equal(&x->saved, &y->saved, sizeof x->saved);
        assert_memory_equal(x->current->at[PD_F32], y->current->at[PD_F32], (size_t)x->elements * sizeof(float));
        assert_int_equal(ours.dropped, theirs.dropped);
        assert_int_equal(ours.adopted, theirs.adopted);
    }
}

TEST(a_log_repeats_what_other_shards_have_decided)
{
    shard_rigs s;

    start(&s, logged);
    for (uint64_t n = 1; n <= STEPS; n++) step(&s, n);
    for (uint32_t i = 0; i < SHARDS; i++) {
        pd_store_config config = clipped_configuration();
        rig next;
        config.keeps = true;
        config.chunk_elements = 4096;
        rig_new(&next, &config);
        assert_int_equal(s.shard[i]->n_records, STEPS);
        if (rig_restore(&next, s.shard[i]) != PD_OK || rig_replay(&next, s.shard[i]) != PD_OK)
            fail_msg("%s", next.error.text);
        compare(inside_job(s.shard[i]->store, s.shard[i]->job), inside_find(next.store, "job"));
        assert_int_equal(pd_steps_least(&inside_find(next.store, "job")->steps), STEPS);
        rig_free(&next);
    }
    shard_rigs_free(&s);
}

TEST(a_restored_shard_still_has_the_tallies_of_the_last_steps)
{
    shard_rigs s;

    start(&s, logged);
    for (uint64_t n = 1; n <= STEPS; n++) step(&s, n);
    for (uint32_t i = 0; i < SHARDS; i++) {
        pd_store_config config = clipped_configuration();
        const shard_verdict *last = &s.log[s.verdicts - 1];
        rig *r = s.shard[i];
        config.keeps = true;
        config.chunk_elements = 4096;
        rig_crash(r, &config);
        shard_rigs_join(&s, i, logged, rules);
        assert_int_equal(rig_settle(r, 0, CONN, last->step, last->phase, NULL, 0), PD_OK);
        assert_int_equal(r->tallies, 1);
        assert_int_equal(r->tally_step, STEPS);
        assert_int_equal(r->tally_bytes, last->tally[i].n);
        assert_memory_equal(r->tally, last->bytes[i], r->tally_bytes);
        /* Its verdict, which this shard has taken before, is known. */
        assert_int_equal(rig_settle(r, 0, CONN, last->step, last->phase, last->tally, SHARDS), PD_OK);
    }
    shard_rigs_free(&s);
}

/* Lets a shard that is at step c take the steps up to STEPS again: workers send contributions, then verdicts. */
static void take_again(shard_rigs *s, uint32_t i, uint64_t c)
{
    for (uint64_t n = c + 1; n <= STEPS; n++) {
        shard_rigs_push_again(s, i, 0, n, (float)n, n == 4 ? 13 : 0);
        /* It has the contributions, but nobody has said yet what all shards decide. */
        rig_work(s->shard[i]);
        assert_int_equal(inside_job(s->shard[i]->store, s->shard[i]->job)->steps.params[0].saved.step, n - 1);
        for (uint64_t v = 0; v < s->verdicts; v++)
            if (s->log[v].step == n) {
                assert_int_equal(rig_settle(s->shard[i], 0, CONN, n, s->log[v].phase, s->log[v].tally, SHARDS), PD_OK);
                rig_work(s->shard[i]);
            }
    }
}

static void take_all(shard_rigs *s)
{
    for (uint64_t n = 1; n <= STEPS; n++) {
        shard_rigs_push(s, 0, n, (float)n, n == 4 ? 13 : 0);
        shard_rigs_settle(s);
        shard_rigs_assert_same(s, n);
    }
}

TEST(a_shard_that_went_back_takes_the_verdicts_again)
{
    shard_rigs s;

    start(&s, plain);
    take_all(&s);
    for (uint32_t i = 0; i < SHARDS; i++) {
        pd_store_config config = clipped_configuration();
        uint64_t c = s.shard[i]->disk->step;
        config.keeps = true;
        config.chunk_elements = 4096;
        assert_true(c > 0 && c < STEPS);
        rig_crash(s.shard[i], &config);
        shard_rigs_join(&s, i, plain, rules);
        take_again(&s, i, c);
        shard_rigs_assert_same(&s, STEPS);
    }
    shard_rigs_free(&s);
}

/* Another shard has a checkpoint of step 3 alone, and records up to step 5: so this one keeps those before its
 * checkpoint of step 6. */
TEST(a_shard_goes_back_to_a_step_of_its_log_before_its_newest_checkpoint)
{
    static const char options[] =
        "durability=log checkpoint_every=3 checkpoint_keep=9 clip_global_norm=3 skip_outlier=50";
    shard_rigs s;

    start(&s, options);
    for (uint32_t i = 0; i < SHARDS; i++) s.shard[i]->keeps_older = true;
    take_all(&s);
    for (uint32_t i = 0; i < SHARDS; i++) {
        rig *r = s.shard[i];
        assert_int_equal(r->disk->step, 6);
        assert_int_equal(r->records[0]->step, 4);
        assert_int_equal(rig_go_back(r, NULL, 0, CONN, 2, 0), PD_NOT_FOUND);
        rig_go_back(r, NULL, 0, CONN, 5, 0);
        assert_int_equal(r->disk->step, 3);
        assert_int_equal(pd_steps_least(&inside_find(r->store, "job")->steps), 5);
        shard_rigs_join(&s, i, options, rules);
        take_again(&s, i, 5);
        shard_rigs_assert_same(&s, STEPS);
    }
    shard_rigs_free(&s);
}

/* Workers know that all shards can go back to step 6. */
TEST(records_before_the_step_to_which_all_can_go_back_are_given_up)
{
    static const char options[] = "durability=log checkpoint_every=3 checkpoint_keep=9 clip_global_norm=3";
    shard_rigs s;

    start(&s, options);
    for (uint32_t i = 0; i < SHARDS; i++) s.shard[i]->keeps_older = true;
    for (uint64_t n = 1; n <= STEPS; n++) {
        pd_checkpoint_policy *checkpointing = &inside_job(s.shard[0]->store, s.shard[0]->job)->checkpointing;
        checkpointing->floored = n == STEPS;
        checkpointing->floor = 6;
        shard_rigs_push(&s, 0, n, (float)n, 0);
        shard_rigs_settle(&s);
    }
    assert_int_equal(s.shard[0]->records[0]->step, STEPS);
    assert_int_equal(s.shard[1]->records[0]->step, 4);
    shard_rigs_free(&s);
}

TEST(without_a_verdict_the_workers_hear_what_the_step_waits_for)
{
    shard_rigs s;
    rig *r;

    start(&s, "step_timeout=5 clip_global_norm=3");
    r = s.shard[1];
    shard_rigs_push(&s, 0, 1, 1, 0);
    rig_work(r);
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].waits_for, "the verdict of 2 shards");
    rig_sleep(r, 6);
    rig_work(r);
    assert_int_equal(r->timed_out, 1);
    assert_non_null(strstr(r->timeout.text, "waited for 6 s for the verdict of all 2 shards"));
    shard_rigs_settle(&s);
    shard_rigs_assert_same(&s, 1);
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].waits_for, "");
    shard_rigs_free(&s);
}
