/* Tests steps that an optimizer refuses. */
#include "test.h"
#include "batch.h"
#include "convert.h"
#include "stern_steps.h"

/* Takes a step of the first parameter alone. Keeps the new weights unless the step is refused. */
static void step_alone(stern_steps *f)
{
    stern_begin(f, 0);
    do {
        assert_int_equal(pd_batch_run(f->optim, 1, 2), PD_OK);
        stern_take_tasks(f);
        stern_give_back(f, -1);
    } while (!pd_optim_done(f->optim[0]));
    if (pd_optim_refused(f->optim[0]) == NULL) memcpy(f->before[0], f->after[0], sizeof f->before[0]);
}

EACH_TEST(stern_set_up, stern_tear_down);

TEST(a_refused_step_writes_no_weights_and_is_counted, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("lr", "1"));
    stern_fill(f, 1);
    step_alone(f);
    assert_null(pd_optim_refused(f->optim[0]));
    assert_true(stern_seen(f, 0) == 1);
    stern_fill(f, 2);
    f->gradient[0][5] = NAN;
    step_alone(f);
    stern_assert_refused(f, 0, PD_FAILED_PRECONDITION, "a: NaN in block 1");
    assert_int_equal(pd_optim_count(f->optim[0]), 2);
    assert_true(stern_seen(f, 0) == 1); /* the late phases of the refused step have not run */
    stern_finish(f);
}

TEST(tasks_before_the_refused_one_are_adopted_those_behind_it_are_not, stern_steps *f)
{
    pd_root_stats stats;

    stern_make(f, STERN_OPTIONS("lr", "1"));
    stern_fill(f, 1);
    f->gradient[0][5] = INFINITY;
    step_alone(f);
    stern_assert_refused(f, 0, PD_FAILED_PRECONDITION, "a: infinity in block 1");
    assert_true(stern_root_of(f, 0, 0) == stern_sum_of_block(f, 0, 0));
    assert_true(stern_root_of(f, 0, 1) == 1 && stern_root_of(f, 0, 2) == 1);
    assert_true(stern_noted(f, 0, 0) == PD_OK && stern_noted(f, 0, 1) == 100 + PD_UNFIT_INF &&
                stern_noted(f, 0, 2) == 0);
    stats = pd_optim_root_stats(f->optim[0]);
    assert_int_equal(stats.adopted, 1);
    assert_int_equal(stats.failed, 1);
    assert_int_equal(stats.dropped, 1);
    assert_int_equal(stats.due, 3);
    assert_true(pd_optim_root(f->optim[0], 1).failing && !pd_optim_root(f->optim[0], 2).failing);
    stern_finish(f);
}

TEST(the_first_task_in_the_order_of_the_plan_tells_why, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("refuses", "failures"));
    stern_fill(f, 1);
    f->gradient[0][11] = NAN;
    f->gradient[0][6] = -100;
    step_alone(f);
    stern_assert_refused(f, 0, PD_OUT_OF_RANGE, "a: failure in block 1");
    stern_finish(f);
}

TEST(a_failure_that_the_row_lets_pass_is_none, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("refuses", "unfit"));
    stern_fill(f, 1);
    f->gradient[0][6] = -100;
    step_alone(f);
    assert_null(pd_optim_refused(f->optim[0]));
    assert_true(stern_seen(f, 0) == 1 && stern_root_of(f, 0, 1) == 1 && stern_root_of(f, 0, 2) != 1);
    assert_true(stern_noted(f, 0, 1) == PD_OUT_OF_RANGE);
    stern_finish(f);
}

TEST(what_earlier_phases_left_is_stored_in_its_form, stern_steps *f)
{
    float kept[STERN_N];

    stern_make(f, STERN_OPTIONS("storage", "float16"));
    stern_fill(f, 1);
    for (int i = 0; i < STERN_N; i++) f->gradient[0][i] += 1e-4f; /* no float16 */
    f->gradient[0][0] = INFINITY;
    step_alone(f);
    stern_assert_refused(f, 0, PD_FAILED_PRECONDITION, "a: infinity in block 0");
    pd_optim_read_slot(f->optim[0], STERN_AVERAGE, kept);
    for (int i = 1; i < STERN_N; i++)
        assert_true(kept[i] == pd_f32_from_f16(pd_f16_from_f32(f->gradient[0][i])) && kept[i] != f->gradient[0][i]);
    stern_finish(f);
}

TEST(the_next_step_is_as_if_it_had_not_been_refused, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("lr", "1", "refuses", "failures"));
    stern_fill(f, 1);
    f->gradient[0][0] = -100;
    step_alone(f);
    assert_non_null(pd_optim_refused(f->optim[0]));
    stern_fill(f, 2);
    stern_begin(f, 0);
    assert_null(pd_optim_refused(f->optim[0])); /* the refused step was the previous one; this step is not refused */
    do {
        assert_int_equal(pd_batch_run(f->optim, 1, 1), PD_OK);
        stern_take_tasks(f);
        stern_give_back(f, -1);
    } while (!pd_optim_done(f->optim[0]));
    assert_null(pd_optim_refused(f->optim[0]));
    assert_true(stern_seen(f, 0) == 2);
    for (int i = 4; i < STERN_N; i++) {
        float G = f->gradient[0][i], M = (G - 1) / 2 + G; /* the gradient of step 1 was smaller by 1 */
        assert_true(f->after[0][i] == -(stern_sum_of_block(f, 0, i / STERN_BLOCK) * G + M));
    }
    stern_finish(f);
}

TEST(with_a_delay_the_step_that_adopts_is_refused, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("root_delay", "2", "refuses", "failures"));
    for (int s = 1; s <= 5; s++) {
        stern_fill(f, s);
        if (s == 2) f->gradient[0][4] = -100;
        stern_begin(f, 0);
        assert_int_equal(pd_batch_run(f->optim, 1, 2), PD_OK);
        stern_take_tasks(f);
        stern_give_back(f, -1); /* also runs this step's tasks, whose roots are not due yet */
        assert_int_equal(pd_batch_run(f->optim, 1, 2), PD_OK);
        assert_true(pd_optim_done(f->optim[0]));
        if (s == 4)
            stern_assert_refused(f, 0, PD_OUT_OF_RANGE, "a: failure in block 1");
        else
            assert_null(pd_optim_refused(f->optim[0]));
        assert_true(stern_seen(f, 0) == (float)(s == 4 ? 3 : s));
    }
    assert_true(stern_root_of(f, 0, 1) == 1 + 4 * 3 + (4 + 5 + 6 + 7) / 16.0f); /* root of step 3, used in step 5 */
    assert_int_equal(pd_optim_root_stats(f->optim[0]).dropped, 1);
    assert_int_equal(pd_optim_root_stats(f->optim[0]).adopted, 3 + 1 + 3);
    stern_finish(f);
}

TEST(of_roots_of_several_steps_the_oldest_are_adopted, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("root_delay", "3", "refuses", "failures"));
    for (int s = 1; s <= 3; s++) {
        stern_fill(f, s);
        if (s == 2) f->gradient[0][4] = -100;
        step_alone(f);
    }
    pd_optim_set_count(f->optim[0], 9); /* the roots of steps 1, 2 and 3 are all due now */
    stern_fill(f, 10);
    step_alone(f);
    stern_assert_refused(f, 0, PD_OUT_OF_RANGE, "a: failure in block 1");
    assert_int_equal(pd_optim_root(f->optim[0], 0).count, 2); /* block 0 uses its root of step 2, because it comes
                                                               * before the failed block 1 */
    assert_int_equal(pd_optim_root(f->optim[0], 2).count, 1);
    assert_int_equal(pd_optim_root_stats(f->optim[0]).dropped, 1 + 3);
    stern_finish(f);
}

TEST(ready_roots_are_refused_when_they_are_back, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("root_delay", "ready", "refuses", "failures"));
    stern_fill(f, 1);
    f->gradient[0][4] = -100;
    stern_begin(f, 0);
    assert_int_equal(pd_batch_run(f->optim, 1, 1), PD_OK);
    assert_true(pd_optim_done(f->optim[0]) && pd_optim_refused(f->optim[0]) == NULL);
    stern_take_tasks(f);
    stern_give_back(f, -1);
    stern_fill(f, 2);
    stern_begin(f, 0);
    assert_int_equal(pd_batch_run(f->optim, 1, 1), PD_OK);
    assert_true(pd_optim_done(f->optim[0]));
    stern_assert_refused(f, 0, PD_OUT_OF_RANGE, "a: failure in block 1");
    assert_int_equal(pd_optim_root(f->optim[0], 0).count, 1);
    assert_int_equal(pd_optim_root(f->optim[0], 2).count, 0);
    stern_finish(f);
}

/* Runs and delivers the n oldest of the tasks that were handed out. */
static void give_back_first(stern_steps *f, int n)
{
    for (int i = 0; i < n; i++) {
        pd_task_run(f->out[i]);
        pd_optim_deliver(f->optim[0], f->out[i]);
    }
    f->n_out -= n;
    memmove(f->out, f->out + n, (size_t)f->n_out * sizeof f->out[0]);
}

TEST(a_failure_older_than_the_root_in_use_is_no_reason, stern_steps *f)
{
    stern_make(f, STERN_OPTIONS("root_delay", "ready", "refuses", "failures"));
    for (int s = 1; s <= 4; s++) {
        stern_fill(f, s);
        if (s == 1) f->gradient[0][4] = -100;
        stern_begin(f, 0);
        assert_int_equal(pd_batch_run(f->optim, 1, 1), PD_OK);
        assert_true(pd_optim_done(f->optim[0]));
        assert_null(pd_optim_refused(f->optim[0]));
        if (s == 1) continue; /* the tasks of step 1 are handed out in step 2, before those of step 2 */
        stern_take_tasks(f);
        if (s == 2) { /* the tasks of step 2 are delivered before those of step 1 */
            for (int b = 0; b < STERN_BLOCKS; b++) {
                pd_task *older = f->out[b];
                f->out[b] = f->out[STERN_BLOCKS + b];
                f->out[STERN_BLOCKS + b] = older;
            }
        }
        give_back_first(f, STERN_BLOCKS);
    }
    assert_int_equal(pd_optim_root_stats(f->optim[0]).replaced, STERN_BLOCKS);
    assert_int_equal(pd_optim_root(f->optim[0], 1).count, 2);
    stern_give_back(f, -1);
    stern_finish(f);
}

/* Fails each allocation of a step once. The step is not refused if a task gets no memory for copies of its inputs. */
TEST(a_task_without_memory_is_no_refusal, stern_steps *f)
{
    int64_t failed = 0;

    for (int64_t n = 0;; n++) {
        int rc;
        bool short_of_memory;
        stern_make(f, STERN_OPTIONS("refuses", "failures"));
        stern_fill(f, 1);
        stern_begin(f, 0);
        oom_arm(n);
        rc = pd_batch_run(f->optim, 1, 1);
        short_of_memory = oom_disarm();
        if (rc != PD_OK) assert_int_equal(pd_batch_run(f->optim, 1, 1), PD_OK);
        do {
            stern_take_tasks(f);
            stern_give_back(f, -1);
            assert_int_equal(pd_batch_run(f->optim, 1, 1), PD_OK);
        } while (!pd_optim_done(f->optim[0]));
        assert_null(pd_optim_refused(f->optim[0]));
        failed += pd_optim_root_stats(f->optim[0]).failed;
        stern_finish(f);
        if (!short_of_memory) break;
    }
    assert_true(failed >= STERN_BLOCKS);
}
