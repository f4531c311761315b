/* Tests exports that their client never ends, and exports that end because the job or the server ends. The job goes
 * on, and no worker waits for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exporting.h"
#include "store_inside.h"

static void silence_ends_the_export_and_the_job_goes_on(void **state)
{
    exporting *f = *state;

    exporting_train(f, 1);
    exporting_begin(f, true);
    exporting_step_all(f, 2);
    rig_sleep(&f->r, 29);
    assert_int_equal(exporting_step_of(f, 0), 1);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_OK);
    rig_sleep(&f->r, 29);
    assert_int_equal(exporting_step_of(f, 0), 1);
    rig_sleep(&f->r, 2);
    rig_work(&f->r);
    assert_int_equal(exporting_step_of(f, 0), 2);
    assert_non_null(strstr(f->r.warning, "the export of step 1 by admin@host:9 ends: nothing was asked for in 30 s"));
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_FAILED_PRECONDITION);
}

static void a_connection_that_closes_ends_its_export(void **state)
{
    exporting *f = *state;

    exporting_train(f, 1);
    exporting_begin(f, true);
    exporting_step_all(f, 2);
    export_lost(&f->r, EXPORTING_OTHER);
    rig_work(&f->r);
    assert_int_equal(exporting_step_of(f, 0), 1);
    export_lost(&f->r, EXPORTING_OPERATOR);
    rig_work(&f->r);
    assert_int_equal(exporting_step_of(f, 0), 2);
    assert_non_null(strstr(f->r.warning, "its connection is gone"));
    exporting_begin(f, true);
    assert_int_equal(f->r.exported.step, 2);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}

static void a_parameter_that_does_not_reach_the_step_ends_the_export(void **state)
{
    exporting *f = *state;

    exporting_train(f, 1);
    exporting_step_one(f, 0, 2);
    exporting_push(f, 0, 1, 2);
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, true, 10), PD_OK);
    exporting_step_one(f, 0, 3);
    rig_sleep(&f->r, 9);
    assert_int_equal(exporting_step_of(f, 0), 2);
    rig_sleep(&f->r, 2);
    rig_work(&f->r);
    assert_int_equal(f->r.error.code, PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(f->r.error.text, "p1 has not reached step 2"));
    assert_non_null(strstr(f->r.error.text, "rank 1"));
    assert_int_equal(exporting_step_of(f, 0), 3);
}

static void a_worker_that_is_lost_does_not_end_the_export(void **state)
{
    exporting *f = *state;
    pd_request *notice = pd_request_new(PD_REQ_LOST, (pd_ticket){ EXPORTING_CONN + 1, 0 });
    float then[EXPORTING_MOST];

    exporting_train(f, 1);
    exporting_copy_weights(f, 1, then);
    exporting_begin(f, true);
    notice->job = f->job;
    notice->rank = 1;
    rig_apply(&f->r, notice);
    rig_work(&f->r);
    exporting_assert_weights(f, 1, then);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}

static int drop(exporting *f)
{
    pd_request *request = pd_request_new(PD_REQ_DROP, rig_ticket(&f->r, EXPORTING_OTHER));

    request->u.info.job_name = strdup("j");
    return rig_apply(&f->r, request);
}

static void a_job_that_is_dropped_ends_its_export(void **state)
{
    exporting *f = *state;

    exporting_train(f, 1);
    exporting_begin(f, true);
    exporting_step_all(f, 2);
    assert_int_equal(drop(f), PD_OK);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_NOT_FOUND);
    assert_int_equal(f->r.store->budget.used, 0);
}

static void a_begin_that_waits_is_answered_when_the_job_is_dropped(void **state)
{
    exporting *f = *state;
    uint64_t before;

    exporting_train(f, 1);
    exporting_step_one(f, 0, 2);
    before = f->r.answered;
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, true, 30), PD_OK);
    drop(f);
    assert_int_equal(f->r.answered, before + 2);
    assert_int_equal(f->r.store->budget.used, 0);
}

static void drain(exporting *f, double seconds)
{
    pd_request *request = pd_request_new(PD_REQ_DRAIN, rig_ticket(&f->r, EXPORTING_OTHER));

    request->u.drain.deadline_ns = (uint64_t)(seconds * 1e9);
    rig_apply(&f->r, request);
    rig_work(&f->r);
}

static void draining_waits_for_rounds_that_rest(void **state)
{
    exporting *f = *state;
    uint64_t before;

    exporting_train(f, 1);
    exporting_begin(f, true);
    exporting_step_all(f, 2);
    before = f->r.answered;
    drain(f, 20);
    assert_int_equal(f->r.answered, before);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    rig_work(&f->r);
    assert_int_equal(exporting_step_of(f, 1), 2);
    assert_int_equal(f->r.answered, before + 2);
    assert_int_equal(f->r.error.code, PD_OK);
}

static void an_export_does_not_delay_a_drain_for_ever(void **state)
{
    exporting *f = *state;

    exporting_train(f, 1);
    exporting_begin(f, true);
    exporting_step_all(f, 2);
    drain(f, 5);
    rig_sleep(&f->r, 6);
    assert_int_equal(f->r.error.code, PD_DEADLINE_EXCEEDED);
}

static void a_drained_job_can_be_exported(void **state)
{
    exporting *f = *state;
    float then[EXPORTING_MOST];

    exporting_train(f, 3);
    exporting_copy_weights(f, 0, then);
    drain(f, 5);
    exporting_begin(f, true);
    assert_int_equal(f->r.exported.step, 3);
    exporting_assert_weights(f, 0, then);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, exporting_set_up, exporting_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(silence_ends_the_export_and_the_job_goes_on),
        CASE(a_connection_that_closes_ends_its_export),
        CASE(a_parameter_that_does_not_reach_the_step_ends_the_export),
        CASE(a_worker_that_is_lost_does_not_end_the_export),
        CASE(a_job_that_is_dropped_ends_its_export),
        CASE(a_begin_that_waits_is_answered_when_the_job_is_dropped),
        CASE(draining_waits_for_rounds_that_rest),
        CASE(an_export_does_not_delay_a_drain_for_ever),
        CASE(a_drained_job_can_be_exported),
    };

    return cmocka_run_group_tests_name("export_end", tests, NULL, NULL);
}
