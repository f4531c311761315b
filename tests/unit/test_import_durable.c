/* Tests that imported or reset optimizer state is on the disk when its operator is answered. */
#include "test.h"
#include "course.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

enum { OPERATOR = 300 };

static const course plain = { .options = "checkpoint_every=4 checkpoint_keep=9", .rules = "* adamw lr=0.01" };

static pd_job *the_job(const rig *r)
{
    return inside_find(r->store, "job");
}

static int64_t count_of(const rig *r)
{
    return pd_optim_count(the_job(r)->steps.params[0].optim);
}

static void set_up(rig *r)
{
    pd_store_config config = durable_config();

    rig_new(r, &config);
    course_join(r, &plain);
    course_initialise(r, &plain);
    for (uint64_t step = 1; step <= 6; step++) course_step_to(r, &plain, step, COURSE_WORLD * COURSE_PARAMS);
}
FIXTURE(rig, set_up, rig_free);

/* Resets the state of all parameters. Returns whether that was answered. */
static bool reset(rig *r)
{
    pd_request *request = pd_request_new(PD_REQ_IMPORT, rig_ticket(r, OPERATOR));
    uint64_t before = r->answered;

    request->u.import.act = PD_IMPORT_RESET;
    request->u.import.job_name = strdup("job");
    request->u.import.param = strdup("*");
    request->u.import.slot = strdup("");
    rig_apply(r, request);
    rig_work(r);
    return r->answered > before;
}

TEST(state_is_on_the_disk_when_its_operator_is_answered, rig *r)
{
    pd_store_config config = durable_config();
    uint64_t before;

    r->lazy_disk = true;
    assert_int_equal(count_of(r), 6);
    assert_false(reset(r));
    assert_int_equal(count_of(r), 0);
    before = r->answered;
    rig_write_checkpoint(r);
    rig_work(r);
    assert_int_equal(r->answered, before + 1);
    assert_int_equal(r->error.code, PD_OK);
    rig_crash(r, &config);
    assert_int_equal(pd_steps_least(&the_job(r)->steps), 6);
    assert_int_equal(count_of(r), 0);
}

TEST(a_checkpoint_that_was_begun_before_is_not_enough, rig *r)
{
    r->lazy_disk = true;
    course_step_to(r, &plain, 7, COURSE_WORLD * COURSE_PARAMS);
    course_step_to(r, &plain, 8, COURSE_WORLD * COURSE_PARAMS);
    assert_false(reset(r));
    rig_write_checkpoint(r);
    rig_work(r);
    assert_int_equal(the_job(r)->checkpointing.newest.step, 8);
    assert_true(the_job(r)->checkpointing.newest.changes < the_job(r)->checkpointing.changes);
    rig_write_checkpoint(r);
    rig_work(r);
    assert_int_equal(r->error.code, PD_OK);
    assert_int_equal(the_job(r)->checkpointing.newest.changes, the_job(r)->checkpointing.changes);
}

TEST(an_operator_hears_that_the_disk_does_not_have_the_state, rig *r)
{
    r->disk_error = "No space left on device";
    assert_true(reset(r));
    assert_int_equal(r->error.code, PD_UNAVAILABLE);
    assert_non_null(strstr(r->error.text, "the state is in the job, but not on the disk: if the server is restarted"));
    assert_non_null(strstr(r->error.text, "No space left on device"));
    assert_int_equal(count_of(r), 0);
    r->disk_error = NULL;
    assert_true(reset(r));
    assert_int_equal(r->error.code, PD_OK);
}

TEST(an_operator_is_not_kept_waiting_by_a_disk_that_does_not_answer, rig *r)
{
    r->lazy_disk = true;
    assert_false(reset(r));
    rig_sleep(r, 61);
    rig_work(r);
    assert_int_equal(r->error.code, PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(r->error.text, "not on the disk"));
    rig_write_checkpoint(r);
}

TEST(without_checkpoints_the_answer_comes_at_once)
{
    pd_store_config config = rig_config();
    rig r;

    rig_new(&r, &config);
    course_join(&r, &(course){ .options = "", .rules = plain.rules });
    course_initialise(&r, &plain);
    course_step_to(&r, &plain, 1, COURSE_WORLD * COURSE_PARAMS);
    assert_true(reset(&r));
    assert_int_equal(r.error.code, PD_OK);
    rig_free(&r);
}
