/* Tests exports that their client never ends, and exports that end because the job or the server ends. The job goes
 * on, and no worker waits for ever. */
#include "test.h"
#include "exporting.h"
#include "rig.h"
#include "store_inside.h"

EACH_TEST(exporting_set_up, exporting_tear_down);

TEST(silence_ends_the_export_and_the_job_goes_on, exporting *f)
{
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
    assert_non_null(strstr(f->r.warning, "ended the export of step 1 by admin@host:9: no request for 30 s"));
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_FAILED_PRECONDITION);
}

TEST(a_connection_that_closes_ends_its_export, exporting *f)
{
    exporting_train(f, 1);
    exporting_begin(f, true);
    exporting_step_all(f, 2);
    export_lost(&f->r, EXPORTING_OTHER);
    rig_work(&f->r);
    assert_int_equal(exporting_step_of(f, 0), 1);
    export_lost(&f->r, EXPORTING_OPERATOR);
    rig_work(&f->r);
    assert_int_equal(exporting_step_of(f, 0), 2);
    assert_non_null(strstr(f->r.warning, "its connection was lost"));
    exporting_begin(f, true);
    assert_int_equal(f->r.exported.step, 2);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}

TEST(a_parameter_that_does_not_reach_the_step_ends_the_export, exporting *f)
{
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

TEST(a_worker_that_is_lost_does_not_end_the_export, exporting *f)
{
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

TEST(a_job_that_is_dropped_ends_its_export, exporting *f)
{
    exporting_train(f, 1);
    exporting_begin(f, true);
    exporting_step_all(f, 2);
    assert_int_equal(drop(f), PD_OK);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_NOT_FOUND);
    assert_int_equal(f->r.store->budget.used, 0);
}

TEST(a_begin_that_waits_is_answered_when_the_job_is_dropped, exporting *f)
{
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

TEST(draining_waits_for_rounds_that_rest, exporting *f)
{
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

TEST(an_export_does_not_delay_a_drain_for_ever, exporting *f)
{
    exporting_train(f, 1);
    exporting_begin(f, true);
    exporting_step_all(f, 2);
    drain(f, 5);
    rig_sleep(&f->r, 6);
    assert_int_equal(f->r.error.code, PD_DEADLINE_EXCEEDED);
}

TEST(a_drained_job_can_be_exported, exporting *f)
{
    float then[EXPORTING_MOST];

    exporting_train(f, 3);
    exporting_copy_weights(f, 0, then);
    drain(f, 5);
    exporting_begin(f, true);
    assert_int_equal(f->r.exported.step, 3);
    exporting_assert_weights(f, 0, then);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}
