/* Tests that exports of a job wait for each other, and that who may only read a job never stops its steps, its
 * checkpoints, its imports or what its owner wants. */
#include "test.h"
#include "exporting.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

enum { OWN_BYTES = 2 << 20, OLDER_BYTES = 170 * 4, RECORDS = 1000 };

/* Applies a begin for the identity with the number `party`. Returns the code of its answer, PD_OK if it waits. */
static int begin_as(rig *r, const char *job, uint64_t conn, uint64_t party, bool replaces)
{
    pd_request *request = export_request(r, job, conn, PD_EXPORT_BEGIN);

    request->party = party;
    request->u.export.replaces = replaces;
    request->u.export.wait_ns = 20 * 1000000000ull;
    return rig_apply(r, request);
}

FIXTURE(exporting_set_up, exporting_tear_down);

TEST(a_second_export_begins_when_the_first_has_ended, exporting *f)
{
    uint64_t before;

    exporting_train(f, 1);
    exporting_begin(f, false);
    before = f->r.answered;
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OTHER, false, 30), PD_OK);
    assert_int_equal(f->r.answered, before);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OTHER, "p0", 0, 1), PD_FAILED_PRECONDITION);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_OK);
    before = f->r.answered;
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    assert_int_equal(f->r.answered, before + 2); /* the end, and the other's begin */
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OTHER, "p0", 0, 1), PD_OK);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OTHER), PD_OK);
}

TEST(an_export_that_waits_is_refused_at_its_deadline, exporting *f)
{
    exporting_train(f, 1);
    exporting_begin(f, true);
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OTHER, false, 5), PD_OK);
    rig_sleep(&f->r, 4.9);
    assert_int_equal(f->r.error.code, PD_OK);
    rig_sleep(&f->r, 0.2);
    assert_int_equal(f->r.error.code, PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(f->r.error.text, "job j: it is being exported by admin@host:9"));
    assert_non_null(strstr(f->r.error.text, "--end-other"));
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_OK);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    assert_null(inside_find(f->r.store, "j")->checkpointing.exports.waiting.first);
}

TEST(an_export_that_waits_goes_with_its_connection, exporting *f)
{
    uint64_t before;

    exporting_train(f, 1);
    exporting_begin(f, true);
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OTHER, true, 30), PD_OK);
    export_lost(&f->r, EXPORTING_OTHER);
    before = f->r.answered;
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    assert_int_equal(f->r.answered, before + 1);
    exporting_step_all(f, 2);
    assert_int_equal(exporting_step_of(f, 0), 2);
}

TEST(a_bounded_number_of_exports_waits, exporting *f)
{
    exporting_train(f, 1);
    exporting_begin(f, false);
    for (uint64_t i = 0; i < 16; i++) assert_int_equal(begin_as(&f->r, "j", 1000 + i, 1 + i / 4, false), PD_OK);
    assert_int_equal(begin_as(&f->r, "j", 1016, 5, false), PD_RESOURCE_EXHAUSTED);
    export_lost(&f->r, 1000);
    assert_int_equal(begin_as(&f->r, "j", 1017, 2, false), PD_RESOURCE_EXHAUSTED); /* it has four that wait */
    assert_non_null(strstr(f->r.error.text, "at most 16 exports wait for that, 4 of one identity"));
    assert_int_equal(begin_as(&f->r, "j", 1016, 5, false), PD_OK);
}

/* Identity 1 exports and has three more exports that wait before that of identity 2, which comes next all the same. */
TEST(identities_export_by_turns, exporting *f)
{
    exporting_train(f, 1);
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(begin_as(&f->r, "j", 1000 + i, 1, false), PD_OK);
    assert_int_equal(begin_as(&f->r, "j", 2000, 2, false), PD_OK);
    assert_int_equal(export_end(&f->r, "j", 1000), PD_OK);
    assert_int_equal(export_end(&f->r, "j", 2000), PD_OK);
    for (uint64_t i = 1; i < 4; i++) assert_int_equal(export_end(&f->r, "j", 1000 + i), PD_OK);
}

TEST(an_export_that_replaces_another_ends_it, exporting *f)
{
    uint64_t before;

    exporting_train(f, 1);
    exporting_begin(f, true);
    before = f->r.answered;
    assert_int_equal(begin_as(&f->r, "j", EXPORTING_OTHER, 0, true), PD_OK);
    assert_true(exporting_is_answered(f, before));
    assert_non_null(strstr(f->r.warning, "ended the export of step 1 by admin@host:9: admin@host:9 has ended it"));
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_FAILED_PRECONDITION);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OTHER), PD_OK);
}

/* The job has 170 elements, so an export with state has 60 s. */
TEST(an_export_ends_after_a_time_however_often_it_is_asked, exporting *f)
{
    exporting_train(f, 1);
    exporting_begin(f, true);
    exporting_step_all(f, 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_OK);
        rig_sleep(&f->r, 19);
    }
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_OK);
    assert_int_equal(exporting_step_of(f, 0), 1);
    rig_sleep(&f->r, 4);
    rig_work(&f->r);
    assert_non_null(strstr(f->r.warning, "admin@host:9: too slow: expected at least 8 MiB a second"));
    assert_int_equal(exporting_step_of(f, 0), 2);
}

TEST(the_time_without_a_request_counts_from_the_answer, exporting *f)
{
    exporting_train(f, 1);
    exporting_step_one(f, 0, 2);
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, true, 50), PD_OK);
    rig_sleep(&f->r, 40);
    exporting_step_one(f, 1, 2);
    rig_sleep(&f->r, 29);
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_OK);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
}

TEST(an_export_of_weights_that_do_not_fit_is_refused, exporting *f)
{
    pd_budget *budget = &f->r.store->budget;
    uint64_t limit = budget->limit;

    exporting_train(f, 1);
    budget->limit = budget->used + OWN_BYTES + OLDER_BYTES;
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, false, 30), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(f->r.error.text, "with the older weights that it keeps while the job trains"));
    assert_non_null(strstr(f->r.error.text, "limits.max_total_bytes"));
    exporting_step_all(f, 2);
    assert_int_equal(exporting_step_of(f, 0), 2);
    budget->limit = budget->used + OWN_BYTES + OLDER_BYTES + RECORDS;
    exporting_begin(f, false);
    exporting_step_all(f, 3);
    assert_int_equal(exporting_step_of(f, 0), 3);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    budget->limit = limit;
}

static void lose(exporting *f, uint32_t rank)
{
    pd_request *notice = pd_request_new(PD_REQ_LOST, (pd_ticket){ EXPORTING_CONN + rank, 0 });

    notice->job = f->job;
    notice->rank = rank;
    rig_apply(&f->r, notice);
}

/* Without workers nothing makes older weights, so they need no memory until a worker comes. */
TEST(without_workers_weights_are_exported_until_one_comes, exporting *f)
{
    pd_budget *budget = &f->r.store->budget;
    uint64_t limit = budget->limit;
    float then[EXPORTING_MOST];

    exporting_train(f, 1);
    exporting_copy_weights(f, 0, then);
    for (uint32_t rank = 0; rank < EXPORTING_WORLD; rank++) lose(f, rank);
    budget->limit = budget->used + OWN_BYTES + RECORDS / 2;
    exporting_begin(f, false);
    exporting_assert_weights(f, 0, then);
    assert_int_equal(rig_hello(&f->r, "j", 0, EXPORTING_WORLD, EXPORTING_CONN, 70, NULL, "* sgd lr=0.1 momentum=0.9"),
                     PD_OK);
    assert_non_null(strstr(f->r.warning, "admin@host:9: a worker has come, and there is no memory for older weights"));
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_FAILED_PRECONDITION);
    budget->limit = limit;
}

TEST(an_export_of_weights_ends_when_a_job_needs_its_memory, exporting *f)
{
    static const pd_shape shape = { 1, { 100000 } };
    static const char *const name[] = { "w" };
    pd_budget *budget = &f->r.store->budget;
    uint64_t limit = budget->limit;

    exporting_train(f, 1);
    budget->limit = budget->used + OWN_BYTES + OLDER_BYTES + RECORDS;
    exporting_begin(f, false);
    assert_int_equal(rig_hello(&f->r, "other", 0, 1, 50, 50, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(&f->r, f->r.job, 0, 50, name, &shape, NULL, 1, PD_F32), PD_OK);
    assert_non_null(strstr(f->r.warning, "admin@host:9: its memory is needed for a job"));
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, "p0", 0, 1), PD_FAILED_PRECONDITION);
    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, false, 30), PD_RESOURCE_EXHAUSTED);
    budget->limit = limit;
}

TEST(an_export_with_state_keeps_its_memory, exporting *f)
{
    static const pd_shape shape = { 1, { 100000 } };
    static const char *const name[] = { "w" };
    pd_budget *budget = &f->r.store->budget;
    uint64_t limit = budget->limit;

    exporting_train(f, 1);
    budget->limit = budget->used + OWN_BYTES + RECORDS;
    exporting_begin(f, true);
    assert_int_equal(rig_hello(&f->r, "other", 0, 1, 50, 50, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(&f->r, f->r.job, 0, 50, name, &shape, NULL, 1, PD_F32), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(export_end(&f->r, "j", EXPORTING_OPERATOR), PD_OK);
    budget->limit = limit;
}

TEST(a_checkpoint_is_made_while_weights_are_exported)
{
    pd_store_config config = durable_config();
    rig r;

    durable_job_start(&r, &config, "checkpoint_every=0");
    durable_job_step(&r, 1);
    assert_int_equal(export_begin(&r, "job", EXPORTING_OPERATOR, false, 30), PD_OK);
    assert_int_equal(rig_checkpoint(&r, "job", EXPORTING_OTHER, 1, 30), PD_OK);
    rig_work(&r);
    assert_int_equal(r.checkpoint_step, 1);
    durable_job_step(&r, 2);
    assert_int_equal(export_weights(&r, "job", EXPORTING_OPERATOR, "p0", 0, 1), PD_OK);
    assert_int_equal(r.exported.step, 1);
    assert_int_equal(export_end(&r, "job", EXPORTING_OPERATOR), PD_OK);
    rig_free(&r);
}

/* Parameter 0 has closed step 2, and parameter 1 has not: an export of step 2 waits for that. A checkpoint that is due
 * takes its place, and the export goes on when the checkpoint is made. */
TEST(an_export_of_weights_that_waits_for_a_step_gives_way_to_a_checkpoint)
{
    pd_store_config config = durable_config();
    uint64_t answered;
    rig r;

    durable_job_start(&r, &config, "checkpoint_every=0");
    durable_job_step(&r, 1);
    durable_job_step_one(&r, 0, 2);
    answered = r.answered;
    assert_int_equal(export_begin(&r, "job", EXPORTING_OPERATOR, false, 300), PD_OK);
    assert_int_equal(rig_checkpoint(&r, "job", EXPORTING_OTHER, 1, 60), PD_OK);
    assert_int_equal(r.answered, answered);
    assert_non_null(inside_find(r.store, "job")->checkpointing.making);
    rig_sleep(&r, 11); /* the checkpoint is made of the steps that the parameters have */
    rig_work(&r);
    assert_int_equal(r.checkpoint_step, 1);
    durable_job_step_one(&r, 1, 2);
    assert_int_equal(export_weights(&r, "job", EXPORTING_OPERATOR, "p0", 0, 1), PD_OK);
    assert_int_equal(r.exported.step, 2);
    assert_int_equal(export_end(&r, "job", EXPORTING_OPERATOR), PD_OK);
    rig_free(&r);
}

TEST(an_import_is_written_while_weights_are_exported)
{
    pd_store_config config = durable_config();
    rig r;

    durable_job_start(&r, &config, "checkpoint_every=0");
    durable_job_step(&r, 1);
    assert_int_equal(export_begin(&r, "job", EXPORTING_OPERATOR, false, 30), PD_OK);
    durable_job_import_count(&r);
    assert_null(inside_find(r.store, "job")->import);
    assert_int_equal(export_weights(&r, "job", EXPORTING_OPERATOR, "p0", 0, 1), PD_OK);
    assert_int_equal(export_end(&r, "job", EXPORTING_OPERATOR), PD_OK);
    rig_free(&r);
}

/* A restored job takes another number of workers over while it is exported: the export ends. */
TEST(an_export_of_weights_ends_when_the_number_of_workers_changes)
{
    pd_store_config config = durable_config();
    rig r, next;

    durable_job_start(&r, &config, "checkpoint_every=0");
    durable_job_step(&r, 1);
    assert_int_equal(rig_checkpoint(&r, "job", EXPORTING_OTHER, 1, 30), PD_OK);
    rig_work(&r);
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, &r), PD_OK);
    assert_int_equal(export_begin(&next, "job", EXPORTING_OPERATOR, false, 30), PD_OK);
    assert_int_equal(export_begin(&next, "job", EXPORTING_OTHER, false, 30), PD_OK);
    assert_int_equal(rig_hello(&next, "job", 0, 1, 500, 500, NULL, "* adam"), PD_OK);
    assert_non_null(strstr(next.warning, "admin@host:9: the job continues with another number of workers"));
    assert_int_equal(export_weights(&next, "job", EXPORTING_OPERATOR, "p0", 0, 1), PD_FAILED_PRECONDITION);
    assert_int_equal(export_weights(&next, "job", EXPORTING_OTHER, "p0", 0, 1), PD_OK); /* its turn has come */
    assert_int_equal(export_end(&next, "job", EXPORTING_OTHER), PD_OK);
    rig_free(&next);
    rig_free(&r);
}
