/* Tests that an export reads the weights and the optimizer state of one step, and that the job goes on however the
 * export ends. */
#include "test.h"
#include "exporting.h"
#include "optimizer.h"
#include "rig.h"
#include "store_inside.h"

FIXTURE(exporting_set_up, exporting_tear_down);

TEST(weights_of_one_step_are_read_while_training_goes_on, exporting *f)
{
    float then[EXPORTING_PARAMS][EXPORTING_MOST], now[EXPORTING_MOST];
    uint64_t used;

    exporting_train(f, 2);
    used = f->r.store->budget.used;
    exporting_begin(f, false);
    assert_int_equal(f->r.exported.step, 2);
    for (uint32_t i = 0; i < EXPORTING_PARAMS; i++) exporting_copy_weights(f, i, then[i]);
    exporting_step_all(f, 3);
    exporting_step_all(f, 4);
    assert_int_equal(exporting_step_of(f, 0), 4);
    exporting_copy_weights(f, 0, now);
    assert_memory_not_equal(now, then[0], sizeof now);
    for (uint32_t i = 0; i < EXPORTING_PARAMS; i++) exporting_assert_weights(f, i, then[i]);
    assert_true(f->r.store->budget.used > used);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    assert_int_equal(f->r.exported.step, 2);
    assert_int_equal(f->r.store->budget.used, used);
}

TEST(the_parameter_that_is_ahead_decides_the_step, exporting *f)
{
    float first[EXPORTING_MOST], second[EXPORTING_MOST];
    uint64_t before;

    exporting_train(f, 2);
    exporting_step_one(f, 0, 3);
    exporting_copy_weights(f, 0, first);
    before = f->r.answered;
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, false, 30), PD_OK);
    assert_false(exporting_is_answered(f, before));
    exporting_step_one(f, 0, 4);
    exporting_step_one(f, 1, 3);
    assert_int_equal(f->r.exported.step, 3);
    exporting_copy_weights(f, 1, second);
    exporting_assert_weights(f, 0, first);
    exporting_assert_weights(f, 1, second);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}

/* Begins an export of exactly this step. Returns the code of its answer. */
static int begin_at(exporting *f, uint64_t step, double wait_seconds)
{
    pd_request *request = export_request(&f->r, "j", EXPORTING_OPERATOR, PD_EXPORT_BEGIN);

    request->u.export.wait_ns = (uint64_t)(wait_seconds * 1e9);
    request->u.export.step = step;
    return rig_apply(&f->r, request);
}

TEST(an_export_of_a_later_step_waits_for_it, exporting *f)
{
    float then[EXPORTING_MOST];
    uint64_t before;

    exporting_train(f, 2);
    assert_int_equal(begin_at(f, 1, 30), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(f->r.error.text, "works on step 2 already"));
    before = f->r.answered;
    assert_int_equal(begin_at(f, 4, 30), PD_OK);
    exporting_step_all(f, 3);
    assert_false(exporting_is_answered(f, before));
    exporting_step_all(f, 4);
    assert_true(exporting_is_answered(f, before));
    assert_int_equal(f->r.exported.step, 4);
    exporting_copy_weights(f, 0, then);
    exporting_step_all(f, 5);
    exporting_assert_weights(f, 0, then);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    assert_int_equal(begin_at(f, 9, 1), PD_OK);
    rig_sleep(&f->r, 2);
    assert_int_equal(f->r.error.code, PD_DEADLINE_EXCEEDED);
}

TEST(with_state_the_job_rests_until_the_end, exporting *f)
{
    float *momentum;

    exporting_train(f, 2);
    exporting_begin(f, true);
    exporting_step_all(f, 3);
    assert_int_equal(exporting_step_of(f, 0), 2);
    assert_int_equal(export_state(&f->r, "j", EXPORTING_OPERATOR, "p0", "momentum_buffer", -1, -1, 0, 100), PD_OK);
    momentum = calloc(100, sizeof *momentum);
    memcpy(momentum, f->r.exported.at, 100 * sizeof *momentum);
    assert_false(f->r.exported.wide);
    assert_int_equal(export_count(&f->r, "j", EXPORTING_OPERATOR, "p1"), PD_OK);
    assert_int_equal(f->r.exported.count, 2);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    rig_work(&f->r);
    assert_int_equal(exporting_step_of(f, 0), 3);
    assert_int_equal(exporting_step_of(f, 1), 3);
    free(momentum);
}

TEST(a_parameter_that_reaches_the_step_early_rests_there, exporting *f)
{
    float at_three[EXPORTING_MOST];

    exporting_train(f, 2);
    exporting_step_one(f, 0, 3);
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, true, 30), PD_OK);
    exporting_step_one(f, 0, 4);
    assert_int_equal(exporting_step_of(f, 0), 3);
    exporting_step_one(f, 1, 3);
    assert_int_equal(f->r.exported.step, 3);
    exporting_copy_weights(f, 0, at_three);
    exporting_assert_weights(f, 0, at_three);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    rig_work(&f->r);
    assert_int_equal(exporting_step_of(f, 0), 4);
}

TEST(the_export_waits_for_a_step_that_waits_for_its_root)
{
    exporting *f = exporting_start(NULL, "* shampoo lr=0.1 max_preconditioner_dim=128 precondition_frequency=1 "
                                         "start_preconditioning_step=1 grafting_config=SGD root_delay=0");
    uint64_t before;

    f->r.lazy_tasks = true;
    exporting_step_all(f, 1);
    assert_int_equal(exporting_step_of(f, 0), 0);
    before = f->r.answered;
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, true, 30), PD_OK);
    assert_false(exporting_is_answered(f, before));
    while (f->r.n_tasks > 0) rig_finish_task(&f->r, 0);
    rig_work(&f->r);
    assert_true(exporting_is_answered(f, before));
    assert_int_equal(f->r.exported.step, 1);
    assert_int_equal(f->r.exported.roots, 0);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    rig_free(&f->r);
    free(f);
}

TEST(the_export_waits_for_a_pending_root_task)
{
    exporting *f = exporting_start(NULL, "* shampoo lr=0.1 max_preconditioner_dim=128 precondition_frequency=2 "
                                         "start_preconditioning_step=2 grafting_config=SGD root_delay=2");
    uint64_t before;

    f->r.lazy_tasks = true;
    exporting_train(f, 2);
    assert_int_equal(exporting_step_of(f, 0), 2);
    before = f->r.answered;
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, true, 30), PD_OK);
    assert_false(exporting_is_answered(f, before));
    while (f->r.n_tasks > 0) rig_finish_task(&f->r, 0);
    assert_true(exporting_is_answered(f, before));
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    rig_free(&f->r);
    free(f);
}

TEST(roots_that_are_used_later_are_counted)
{
    exporting *f = exporting_start(NULL, "* shampoo lr=0.1 max_preconditioner_dim=128 precondition_frequency=2 "
                                         "start_preconditioning_step=2 grafting_config=SGD root_delay=2");

    exporting_train(f, 2);
    exporting_begin(f, true);
    assert_int_equal(f->r.exported.roots, 2);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    rig_free(&f->r);
    free(f);
}

TEST(a_job_that_steps_as_a_whole_rests_as_a_whole)
{
    exporting *f = exporting_start("clip_global_norm=0.5", "* sgd lr=0.1 momentum=0.9");

    exporting_train(f, 1);
    exporting_step_one(f, 0, 2);
    exporting_begin(f, true);
    assert_int_equal(f->r.exported.step, 1);
    exporting_step_one(f, 1, 2);
    assert_int_equal(exporting_step_of(f, 1), 1);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    rig_work(&f->r);
    assert_int_equal(exporting_step_of(f, 0), 2);
    assert_int_equal(exporting_step_of(f, 1), 2);
    rig_free(&f->r);
    free(f);
}

TEST(pieces_come_in_any_order, exporting *f)
{
    float then[EXPORTING_MOST];

    exporting_train(f, 1);
    exporting_copy_weights(f, 0, then);
    exporting_begin(f, false);
    for (int64_t first = 95; first >= 0; first -= 5) {
        assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", first, 5), PD_OK);
        assert_memory_equal(f->r.exported.at, then + first, 5 * sizeof *then);
    }
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 100, 0), PD_OK);
    assert_int_equal(f->r.exported.bytes, 0);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}

TEST(requests_for_missing_names_or_elements_are_refused_and_the_export_goes_on, exporting *f)
{
    exporting_train(f, 1);
    exporting_begin(f, true);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p2", 0, 1), PD_NOT_FOUND);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 101), PD_INVALID_ARGUMENT);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 101, 0), PD_INVALID_ARGUMENT);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", INT64_MAX, 1), PD_INVALID_ARGUMENT);
    assert_int_equal(export_state(&f->r, "j", EXPORTING_OPERATOR, "p0", "exp_avg", -1, -1, 0, 1), PD_NOT_FOUND);
    assert_int_equal(export_state(&f->r, "j", EXPORTING_OPERATOR, "p0", "momentum_buffer", 0, -1, 0, 1), PD_NOT_FOUND);
    assert_int_equal(export_state(&f->r, "j", EXPORTING_OPERATOR, "p0", "momentum_buffer", -1, -1, 99, 2),
                     PD_INVALID_ARGUMENT);
    assert_int_equal(export_count(&f->r, "j", EXPORTING_OPERATOR, "p9"), PD_NOT_FOUND);
    assert_int_equal(export_state(&f->r, "j", EXPORTING_OPERATOR, "p0", "momentum_buffer", -1, -1, 99, 1), PD_OK);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}

TEST(weights_alone_have_no_state, exporting *f)
{
    exporting_train(f, 1);
    exporting_begin(f, false);
    assert_int_equal(export_state(&f->r, "j", EXPORTING_OPERATOR, "p0", "momentum_buffer", -1, -1, 0, 1),
                     PD_FAILED_PRECONDITION);
    assert_int_equal(export_count(&f->r, "j", EXPORTING_OPERATOR, "p0"), PD_FAILED_PRECONDITION);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}

TEST(nothing_is_read_before_the_begin_is_answered, exporting *f)
{
    exporting_train(f, 1);
    exporting_step_one(f, 0, 2);
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, false, 30), PD_OK);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_FAILED_PRECONDITION);
    exporting_step_one(f, 1, 2);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_OK);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}

TEST(a_job_without_weights_is_not_exported, exporting *f)
{
    static const pd_shape shape = { 1, { 4 } };
    static const char *const name[] = { "w" };

    assert_int_equal(export_begin(&f->r, "none", EXPORTING_OPERATOR, false, 30), PD_NOT_FOUND);
    assert_int_equal(rig_hello(&f->r, "young", 0, 1, 50, 50, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(export_begin(&f->r, "young", EXPORTING_OPERATOR, false, 30), PD_FAILED_PRECONDITION);
    assert_int_equal(rig_declare(&f->r, f->r.job, 0, 50, name, &shape, NULL, 1, PD_F32), PD_OK);
    assert_int_equal(export_begin(&f->r, "young", EXPORTING_OPERATOR, false, 30), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(f->r.error.text, "0 of its 1 parameters have weights"));
}

static int import_something(exporting *f, pd_import_act act)
{
    pd_request *request = pd_request_new(PD_REQ_IMPORT, rig_ticket(&f->r, EXPORTING_OTHER));

    request->u.import.act = act;
    request->u.import.job_name = strdup("j");
    request->u.import.param = strdup("p0");
    request->u.import.slot = strdup("");
    request->u.import.partial = true;
    return rig_apply(&f->r, request);
}

TEST(an_import_waits_until_the_export_has_ended, exporting *f)
{
    uint64_t answered;

    exporting_train(f, 1);
    exporting_begin(f, true);
    assert_int_equal(import_something(f, PD_IMPORT_BEGIN), PD_OK);
    answered = f->r.answered;
    assert_int_equal(import_something(f, PD_IMPORT_COMMIT), PD_OK);
    rig_work(&f->r);
    assert_int_equal(f->r.answered, answered);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    rig_sleep(&f->r, 0.1);
    rig_work(&f->r);
    assert_int_equal(f->r.answered, answered + 2);
    assert_int_equal(f->r.error.code, PD_OK);
}

TEST(without_memory_nothing_has_changed, exporting *f)
{
    bool survived = false;
    pd_request *request;
    uint64_t used;

    exporting_train(f, 1);
    used = f->r.store->budget.used;
    for (int64_t at = 0; at < 50 && !survived; at++) {
        int rc;
        request = export_request(&f->r, "j", EXPORTING_OPERATOR, PD_EXPORT_BEGIN);
        oom_arm(at);
        rc = rig_apply(&f->r, request);
        survived = !oom_disarm();
        if (rc == PD_OK) rc = export_end(&f->r, "j", EXPORTING_OPERATOR);
        assert_true(rc == PD_OK || rc == PD_NO_MEMORY);
        assert_int_equal(f->r.store->budget.used, used);
    }
    assert_true(survived);
    exporting_begin(f, false);
    request = export_request(&f->r, "j", EXPORTING_OPERATOR, PD_EXPORT_PIECE);
    free(request->u.export.param);
    request->u.export.param = strdup("p0");
    request->u.export.count = 100;
    oom_arm(0);
    assert_int_equal(rig_apply(&f->r, request), PD_NO_MEMORY);
    assert_true(oom_disarm());
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 100), PD_OK);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}
