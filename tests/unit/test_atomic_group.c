/* Tests atomic groups (pd_optim_bind): the steps of all members of a group succeed or fail together. Members wait
 * for each other's preconditioner tasks, which compute roots of matrices beside the steps. */
#include "test.h"
#include "batch.h"
#include "stern_steps.h"

enum { STEPS = 4 };

EACH_TEST(stern_set_up, stern_tear_down);

TEST(all_steps_of_an_atomic_group_are_refused_with_the_first, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("lr", "1"));
    stern_fill(f, 1);
    f->gradient[1][5] = NAN;
    f->gradient[2][0] = INFINITY; /* member "c" refuses its step too, but member "b" comes first, so the error names
                                   * "b" */
    stern_step(f);
    for (int p = 0; p < STERN_PARAMS; p++) {
        stern_assert_refused(f, p, PD_FAILED_PRECONDITION, "b: NaN in block 1");
        assert_int_equal(pd_optim_count(f->optim[p]), 1);
        assert_true(stern_seen(f, p) == 0);
        assert_true(pd_optim_slot(f->optim[p], STERN_AVERAGE).at[1] ==
                    f->gradient[p][1]); /* the refused step has still changed the running average: its refusal comes
                                         * in a later phase of the step */
    }
    stern_finish(f);
}

TEST(roots_are_adopted_up_to_the_refused_block_and_not_after_it, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("lr", "1"));
    stern_fill(f, 1);
    f->gradient[1][5] = NAN;
    f->gradient[2][5] = NAN;
    stern_step(f);
    for (int b = 0; b < STERN_BLOCKS; b++) {
        assert_true(stern_root_of(f, 0, b) == stern_sum_of_block(f, 0, b));
        assert_true(stern_root_of(f, 1, b) == (b == 0 ? stern_sum_of_block(f, 1, b) : 1));
        assert_true(stern_root_of(f, 2, b) == 1);
    }
    assert_int_equal(pd_optim_root_stats(f->optim[0]).adopted, STERN_BLOCKS);
    assert_int_equal(pd_optim_root_stats(f->optim[1]).dropped, 1);
    assert_int_equal(pd_optim_root_stats(f->optim[2]).dropped, STERN_BLOCKS);
    assert_int_equal(pd_optim_root_stats(f->optim[2]).failed, 0);
    assert_true(stern_noted(f, 1, 1) == 100 + PD_UNFIT_NAN && stern_noted(f, 2, 1) == 0);
    stern_finish(f);
}

TEST(an_atomic_group_without_a_refusal_steps, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("lr", "1"));
    for (int s = 1; s <= STEPS; s++) {
        stern_fill(f, s);
        stern_step(f);
        for (int p = 0; p < STERN_PARAMS; p++)
            assert_true(stern_seen(f, p) == (float)s && pd_optim_refused(f->optim[p]) == NULL);
    }
    stern_finish(f);
}

TEST(a_member_without_roots_is_refused_with_the_others, stern_steps *f)
{
    pd_declaration rootless = stern_declare(0, STERN_OPTIONS("roots", "no"));

    stern_make(f, STERN_OPTIONS("lr", "1"));
    pd_optim_free(f->optim[0]);
    assert_int_equal(pd_optim_new(&f->optim[0], &rootless, (double[PD_MAX_MODEL_STATS]){ 0 }, NULL), PD_OK);
    stern_fill(f, 1);
    f->gradient[2][11] = NAN;
    stern_step(f);
    stern_assert_refused(f, 0, PD_FAILED_PRECONDITION, "c: NaN in block 2");
    assert_true(pd_optim_slot(f->optim[0], STERN_AVERAGE).at[1] == f->gradient[0][1]);
    stern_fill(f, 2);
    stern_step(f);
    assert_true(stern_seen(f, 0) == 2);
    stern_finish(f);
}

TEST(a_member_waits_for_the_others_tasks, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("lr", "1"));
    stern_fill(f, 1);
    stern_begin_bound(f);
    stern_run_all(f, 2);
    stern_take_tasks(f);
    stern_give_back(f, 0);
    stern_give_back(f, 2);
    for (int p = 0; p < STERN_PARAMS; p++) assert_true(pd_optim_waits(f->optim[p]));
    stern_run_all(f, 2); /* does nothing: every member still waits for the preconditioner tasks of "b" */
    for (int p = 0; p < STERN_PARAMS; p++) {
        assert_true(pd_optim_waits(f->optim[p]) && !pd_optim_done(f->optim[p]));
        assert_int_equal(pd_optim_root_stats(f->optim[p]).waits, 1);
        assert_int_equal(pd_optim_root_stats(f->optim[p]).adopted, 0);
    }
    stern_give_back(f, 1);
    for (int p = 0; p < STERN_PARAMS; p++) assert_false(pd_optim_waits(f->optim[p]));
    assert_int_equal(pd_batch_run(&f->optim[2], 1, 1),
                     PD_OK); /* once all preconditioner tasks have come back, the members can
                                                                * run in separate calls and in any order */
    assert_int_equal(pd_batch_run(&f->optim[0], 2, 1), PD_OK);
    assert_true(stern_all_done(f));
    stern_finish(f);
}

TEST(a_member_waits_for_others_that_have_not_run, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("root_delay", "1"));
    stern_fill(f, 1);
    stern_step(f);
    stern_fill(f, 2);
    stern_begin_bound(f); /* step 2 must begin to use the roots of step 1, whose preconditioner tasks have come back */
    assert_int_equal(pd_batch_run(&f->optim[0], 2, 1), PD_OK);
    assert_true(pd_optim_waits(f->optim[0]) && pd_optim_waits(f->optim[1]) && !pd_optim_waits(f->optim[2]));
    assert_int_equal(pd_batch_run(&f->optim[2], 1, 1), PD_OK);
    assert_true(pd_optim_done(f->optim[2]) && !pd_optim_waits(f->optim[0]) && !pd_optim_waits(f->optim[1]));
    assert_int_equal(pd_batch_run(f->optim, 2, 1), PD_OK);
    assert_true(stern_all_done(f));
    stern_take_tasks(f);
    stern_give_back(f, -1);
    stern_finish(f);
}

TEST(nobody_waits_where_no_root_is_adopted, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("interval", "2", "root_delay", "1"));
    for (int s = 1; s <= 2; s++) {
        stern_fill(f, s);
        stern_begin_bound(f);
        for (int p = 0; p < STERN_PARAMS; p++) {
            assert_int_equal(pd_batch_run(&f->optim[p], 1, 1), PD_OK);
            assert_true(pd_optim_done(f->optim[p]));
        }
        stern_take_tasks(f);
        stern_give_back(f, -1);
    }
    stern_fill(f, 3);
    stern_begin_bound(f);
    assert_int_equal(pd_batch_run(f->optim, 1, 1), PD_OK);
    assert_true(pd_optim_waits(f->optim[0]));
    stern_run_all(f, 1);
    assert_true(stern_all_done(f));
    stern_finish(f);
}

TEST(ready_members_are_refused_together_for_a_root_that_failed, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("root_delay", "ready", "refuses", "failures"));
    stern_fill(f, 1);
    f->gradient[1][4] = -100;
    stern_begin_bound(f);
    stern_run_all(f, 1);
    assert_true(stern_all_done(f)); /* step 1 finishes before any preconditioner task comes back */
    stern_take_tasks(f);
    stern_give_back(f, 1);
    stern_fill(f, 2);
    stern_begin_bound(f);
    assert_int_equal(pd_batch_run(f->optim, 1, 1),
                     PD_OK); /* the first member runs before any of its preconditioner tasks has come back */
    stern_give_back(f, 0);
    stern_run_all(f, 1);
    assert_true(stern_all_done(f));
    for (int p = 0; p < STERN_PARAMS; p++) stern_assert_refused(f, p, PD_OUT_OF_RANGE, "b: failure in block 1");
    assert_int_equal(pd_optim_root_stats(f->optim[0]).adopted, 0);
    stern_take_tasks(f);
    stern_give_back(f, -1);
    stern_finish(f);
}

TEST(steps_may_be_freed_while_they_wait, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("lr", "1"));
    stern_fill(f, 1);
    stern_begin_bound(f);
    stern_run_all(f, 1);
    stern_take_tasks(f);
    stern_give_back(f, 0);
    stern_finish(f);
    while (f->n_out > 0) pd_task_free(f->out[--f->n_out]);
}

/* The state of all members after STEPS steps, some of which are refused. It must not depend on the order of events. */
typedef struct outcome {
    float weights[STERN_PARAMS][STERN_N], average[STERN_PARAMS][STERN_N], root[STERN_PARAMS][STERN_BLOCKS],
        noted[STERN_PARAMS][STERN_BLOCKS], seen[STERN_PARAMS];
    double stats[STERN_PARAMS][3];
    char why[STEPS][STERN_PARAMS][64];
} outcome;

static void run_in_order(stern_steps *f, int order, int threads)
{
    static const int orders[6][STERN_PARAMS] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                                 { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };

    for (int k = 0; k < STERN_PARAMS; k++)
        assert_int_equal(pd_batch_run(&f->optim[orders[order][k]], 1, threads), PD_OK);
    stern_take_tasks(f);
    for (int k = 0; k < STERN_PARAMS; k++) {
        stern_give_back(f, orders[order][k]);
        if (threads % 2 == 0) assert_int_equal(pd_batch_run(&f->optim[orders[order][k]], 1, threads), PD_OK);
    }
}

static void play(stern_steps *f, outcome *o, int order, int threads)
{
    memset(o, 0, sizeof *o);
    stern_make(f, STERN_OPTIONS("storage", "int8", "root_delay", "1", "refuses", "failures"));
    for (int s = 1; s <= STEPS; s++) {
        stern_fill(f, s);
        if (s == 2) f->gradient[1][4] = -100, f->gradient[2][0] = NAN;
        stern_begin_bound(f);
        while (!stern_all_done(f)) run_in_order(f, order, threads);
        stern_keep_weights(f);
        for (int p = 0; p < STERN_PARAMS; p++)
            if (pd_optim_refused(f->optim[p]) != NULL)
                snprintf(o->why[s - 1][p], 64, "%.63s", pd_optim_refused(f->optim[p])->text);
    }
    for (int p = 0; p < STERN_PARAMS; p++) {
        pd_root_stats stats = pd_optim_root_stats(f->optim[p]);
        memcpy(o->weights[p], f->before[p], sizeof o->weights[p]);
        pd_optim_read_slot(f->optim[p], STERN_AVERAGE, o->average[p]);
        for (int b = 0; b < STERN_BLOCKS; b++)
            o->root[p][b] = stern_root_of(f, p, b), o->noted[p][b] = stern_noted(f, p, b);
        o->seen[p] = stern_seen(f, p);
        o->stats[p][0] = (double)stats.adopted, o->stats[p][1] = (double)stats.failed,
        o->stats[p][2] = (double)stats.dropped;
    }
    stern_finish(f);
}

TEST(bits_do_not_depend_on_the_order_of_members_or_on_threads, stern_steps *f)
{
    outcome first, other;

    play(f, &first, 0, 1);
    assert_string_equal(first.why[2][0], "b: failure in block 1");
    assert_string_equal(first.why[1][0], "");
    for (int order = 0; order < 6; order++)
        for (int threads = 1; threads <= 4; threads++) {
            play(f, &other, order, threads);
            assert_memory_equal(&first, &other, sizeof first);
        }
}
