/* Tests the WAL thread: records come back in order with the result, those that wait are written together, and
 * nothing is lost at its end. */
#include "test.h"
#include "effects.h"
#include "gated_disk.h"
#include "disk_writer.h"
#include "wal_sample.h"

WITH_THREADS();

/* A writer whose thread can be made to wait when it syncs, at the end of a group. */
typedef struct fixture {
    gated_disk *at;
    pd_disk_writer *writer;
} fixture;

static void set_up(fixture *f)
{
    pd_disk_writer_config config = { PD_WRITES_WAL, .dir = LOG_ROOT };

    f->at = gated_disk_new(GATE_AT_SYNC_DATA);
    assert_int_equal(f->at->real.make_dir(f->at->real.arg, LOG_ROOT), 0);
    assert_int_equal(f->at->real.make_dir(f->at->real.arg, LOG_JOB_DIR), 0);
    config.disk = &f->at->disk;
    config.done = f->at->done;
    assert_int_equal(pd_disk_writer_start(&f->writer, &config, NULL), PD_OK);
}

static void tear_down(fixture *f)
{
    assert_int_equal(pd_disk_writer_stop(f->writer, UINT64_MAX, NULL), PD_OK);
    gated_disk_free(f->at);
}

static pd_effect *record_of(uint64_t step)
{
    pd_effect *effect = pd_effect_new(PD_EFF_WAL, (pd_ticket){ 0, 0 }, 9);

    effect->u.wal = sample_logged(step, 0, 1);
    return effect;
}

/* Takes the next entry that comes back, and checks its step and result. */
static void expect(fixture *f, uint64_t step, int code)
{
    pd_request *request = gated_disk_take(f->at, PD_REQ_WAL);

    assert_int_equal(request->u.wal->step, step);
    if (request->u.wal->error.code != code) fail_msg("step %d: %s", (int)step, request->u.wal->error.text);
    if (code == PD_OK) assert_true(request->u.wal->bytes > 0 && request->u.wal->ns > 0);
    pd_wal_record_free(request->u.wal);
    pd_request_free(request);
}

FIXTURE(fixture, set_up, tear_down);

TEST(records_that_wait_are_written_together_and_come_back_in_order, fixture *f)
{
    gate_shut(&f->at->gate, true);
    pd_disk_writer_submit(f->writer, f->at->done, record_of(1));
    gate_await(&f->at->gate);
    for (uint64_t step = 2; step <= 4; step++) pd_disk_writer_submit(f->writer, f->at->done, record_of(step));
    gate_shut(&f->at->gate, false);
    for (uint64_t step = 1; step <= 4; step++) expect(f, step, PD_OK);
    assert_int_equal(gate_passes(&f->at->gate), 2);
}

TEST(an_error_of_the_disk_comes_back_with_all_records_after_it, fixture *f)
{
    pd_disk_writer_submit(f->writer, f->at->done, record_of(1));
    expect(f, 1, PD_OK);
    mem_disk_fail_at(f->at->memory, 0, EIO);
    pd_disk_writer_submit(f->writer, f->at->done, record_of(2));
    expect(f, 2, PD_UNAVAILABLE);
    pd_disk_writer_submit(f->writer, f->at->done, record_of(3));
    expect(f, 3, PD_FAILED_PRECONDITION);
}

static void stop(void *arg)
{
    fixture *f = arg;

    assert_int_equal(pd_disk_writer_stop(f->writer, UINT64_MAX, NULL), PD_OK);
    f->writer = NULL;
}

TEST(at_the_end_all_records_are_written, fixture *f)
{
    pd_wal_about about;

    gate_shut(&f->at->gate, true);
    pd_disk_writer_submit(f->writer, f->at->done, record_of(1));
    gate_await(&f->at->gate);
    pd_disk_writer_submit(f->writer, f->at->done, record_of(2));
    pd_disk_writer_submit(f->writer, f->at->done, record_of(3));
    gated_disk_stop(f->at, stop, f);
    for (uint64_t step = 1; step <= 3; step++) expect(f, step, PD_OK);
    assert_int_equal(pd_wal_read(&(pd_wal_source){ &f->at->real, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 0 }, NULL,
                                 NULL, &about, NULL),
                     PD_OK);
    assert_int_equal(about.entries, 3);
}

TEST(a_disk_that_does_not_answer_is_left_at_the_deadline, fixture *f)
{
    pd_error err = { 0 };

    gate_shut(&f->at->gate, true);
    pd_disk_writer_submit(f->writer, f->at->done, record_of(1));
    gate_await(&f->at->gate);
    assert_int_equal(pd_disk_writer_stop(f->writer, 1, &err), PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.text, "last records of the WAL not written"));
    gate_shut(&f->at->gate, false); /* the disk answers: the same writer can be ended */
    expect(f, 1, PD_OK);
}

TEST(without_a_writer_a_record_comes_back_as_cancelled, fixture *f)
{
    pd_disk_writer_submit(NULL, f->at->done, record_of(5));
    expect(f, 5, PD_CANCELLED);
}
