/* Tests the checkpoint writer: what it is handed comes back in order with the result, and nothing is lost at its
 * end. */
#define _GNU_SOURCE /* mkdtemp */
#include "test.h"
#include "effects.h"
#include "gated_disk.h"
#include "disk_writer.h"
#include "checkpoint_sample.h"

WITH_THREADS();

#define ROOT "/state"

/* A writer whose thread can be made to wait when it makes a directory, at the beginning of a checkpoint. */
typedef struct fixture {
    gated_disk *at;
    pd_disk_writer *writer;
} fixture;

static void set_up(fixture *f)
{
    pd_disk_writer_config config = { PD_WRITES_CHECKPOINTS, .dir = ROOT };

    f->at = gated_disk_new(GATE_AT_MAKE_DIR);
    assert_int_equal(f->at->real.make_dir(f->at->real.arg, ROOT), 0);
    config.disk = &f->at->disk;
    config.done = f->at->done;
    assert_int_equal(pd_disk_writer_start(&f->writer, &config, NULL), PD_OK);
}

static void tear_down(fixture *f)
{
    assert_int_equal(pd_disk_writer_stop(f->writer, UINT64_MAX, NULL), PD_OK);
    gated_disk_free(f->at);
}

static pd_effect *checkpoint_of(uint64_t step, bool ended)
{
    pd_effect *effect = pd_effect_new(PD_EFF_WRITE_CHECKPOINT, (pd_ticket){ 0, 0 }, 9);

    effect->u.checkpoint_image = sample_checkpoint(step, 2);
    effect->u.checkpoint_image->number = 9;
    effect->u.checkpoint_image->ended = ended;
    return effect;
}

static void submit(fixture *f, uint64_t step, bool ended)
{
    pd_disk_writer_submit(f->writer, f->at->done, checkpoint_of(step, ended));
}

/* Takes the next checkpoint that comes back, and checks its step. Returns its result. */
static int take(fixture *f, uint64_t step)
{
    pd_request *request = gated_disk_take(f->at, PD_REQ_CHECKPOINT_WRITTEN);
    const pd_checkpoint_image *kept = request->u.checkpoint_image;
    int code = kept->error.code;

    assert_int_equal(kept->step, step);
    if (code != PD_OK) print_message("step %d: %s\n", (int)step, kept->error.text);
    if (code == PD_OK && !kept->ended) assert_true(kept->bytes > 1000);
    pd_checkpoint_image_free(request->u.checkpoint_image);
    pd_request_free(request);
    return code;
}

FIXTURE(fixture, set_up, tear_down);

TEST(checkpoints_come_back_in_order_when_they_are_written, fixture *f)
{
    for (uint64_t step = 1; step <= 3; step++) submit(f, step, false);
    for (uint64_t step = 1; step <= 3; step++) assert_int_equal(take(f, step), PD_OK);
}

TEST(an_error_of_the_disk_comes_back_and_the_next_checkpoint_is_written, fixture *f)
{
    mem_disk_fail_at(f->at->memory, 5, EIO);
    submit(f, 1, false);
    assert_int_equal(take(f, 1), PD_UNAVAILABLE);
    submit(f, 2, false);
    assert_int_equal(take(f, 2), PD_OK);
}

static void stop(void *arg)
{
    fixture *f = arg;

    assert_int_equal(pd_disk_writer_stop(f->writer, UINT64_MAX, NULL), PD_OK);
    f->writer = NULL;
}

TEST(at_the_end_all_checkpoints_come_back, fixture *f)
{
    int code;

    gate_shut(&f->at->gate, true);
    submit(f, 1, false);
    gate_await(&f->at->gate);
    submit(f, 2, false);
    submit(f, 3, true);
    submit(f, 4, false);
    gated_disk_stop(f->at, stop, f);
    assert_int_equal(take(f, 1), PD_OK);
    /* the stop may have come after this one was begun */
    code = take(f, 2);
    assert_true(code == PD_OK || code == PD_CANCELLED);
    assert_int_equal(take(f, 3), PD_OK);
    code = take(f, 4);
    assert_true(code == PD_OK || code == PD_CANCELLED);
    assert_true(mem_disk_has(f->at->memory, ROOT "/runs%2Fgpt%20%231-0123456789abcdef/ended"));
}

TEST(a_disk_that_does_not_answer_is_left_at_the_deadline_and_named, fixture *f)
{
    pd_error err = { 0 };

    gate_shut(&f->at->gate, true);
    submit(f, 7, false);
    gate_await(&f->at->gate);
    assert_int_equal(pd_disk_writer_stop(f->writer, 1, &err), PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.text, "disk not responding: last checkpoint of job " SAMPLE_JOB));
    gate_shut(&f->at->gate, false); /* the disk answers: the same writer can be ended */
    assert_int_equal(take(f, 7), PD_OK);
}

TEST(without_a_writer_a_checkpoint_comes_back_as_cancelled, fixture *f)
{
    pd_disk_writer_submit(NULL, f->at->done, checkpoint_of(5, false));
    assert_int_equal(take(f, 5), PD_CANCELLED);
}

TEST(two_writers_do_not_share_a_directory)
{
    char dir[] = "/tmp/writer-XXXXXX", path[64];
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_disk_writer_config config = { PD_WRITES_CHECKPOINTS, .dir = dir, .done = done };
    pd_disk_writer *first, *second;
    pd_error err = { 0 };

    assert_non_null(mkdtemp(dir));
    assert_int_equal(pd_disk_writer_start(&first, &config, NULL), PD_OK);
    assert_int_equal(pd_disk_writer_start(&second, &config, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "in use by another process"));
    assert_int_equal(pd_disk_writer_stop(first, UINT64_MAX, NULL), PD_OK);
    assert_int_equal(pd_disk_writer_start(&second, &config, NULL), PD_OK);
    assert_int_equal(pd_disk_writer_stop(second, UINT64_MAX, NULL), PD_OK);
    pd_mailbox_free(done);
    snprintf(path, sizeof path, "%s/lock", dir);
    assert_int_equal(pd_disk_posix.remove(NULL, path), 0);
    assert_int_equal(pd_disk_posix.remove(NULL, dir), 0);
}
