/* Tests the journal thread: entries come back in order with the result, those that wait are written together, and
 * nothing is lost at its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "effects.h"
#include "gate.h"
#include "journal.h"
#include "log_sample.h"

/* A disk in memory whose sync can be made to wait: the journal thread then stands at the end of a group. */
typedef struct fixture {
    mem_disk *memory;
    pd_disk real, disk;
    pd_mailbox *done;
    pd_journal *journal;
    gate gate;
} fixture;

/* Takes the place of a function of the disk, and of the first argument of all. */
static fixture *only;

static int sync_at_gate(void *arg, int file)
{
    fixture *f = only;

    gate_pass(&f->gate);
    return f->real.sync_data(arg, file);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    pd_journal_config config = { .dir = LOG_ROOT };

    only = f;
    f->memory = mem_disk_new();
    f->disk = f->real = mem_disk_table(f->memory);
    f->disk.sync_data = sync_at_gate;
    assert_int_equal(f->real.make_dir(f->real.arg, LOG_ROOT), 0);
    assert_int_equal(f->real.make_dir(f->real.arg, LOG_JOB_DIR), 0);
    gate_init(&f->gate);
    config.disk = &f->disk;
    config.done = f->done = pd_mailbox_new(NULL, NULL);
    assert_int_equal(pd_journal_start(&f->journal, &config, NULL), PD_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    pd_journal_stop(f->journal);
    assert_null(pd_mailbox_take(f->done));
    pd_mailbox_free(f->done);
    gate_free(&f->gate);
    mem_disk_free(f->memory);
    free(f);
    return 0;
}

static pd_effect *entry_of(uint64_t step)
{
    pd_effect *effect = pd_effect_new(PD_EFF_LOGGED, (pd_ticket){ 0, 0 }, 9);

    effect->u.logged = sample_logged(step, 0, 1);
    return effect;
}

/* Takes the next entry that comes back, and checks its step and result. */
static void expect(fixture *f, pd_mail **mail, uint64_t step, int code)
{
    struct timespec now;
    pd_request *request;
    bool closed;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (*mail == NULL) *mail = pd_mailbox_wait(f->done, ((uint64_t)now.tv_sec + 60) * 1000000000u, &closed);
    assert_non_null(*mail);
    request = (pd_request *)(void *)*mail;
    *mail = request->mail.next;
    assert_int_equal(request->kind, PD_REQ_LOGGED);
    assert_int_equal(request->job, 9);
    assert_int_equal(request->u.logged->step, step);
    if (request->u.logged->error.code != code) fail_msg("step %d: %s", (int)step, request->u.logged->error.text);
    if (code == PD_OK) assert_true(request->u.logged->bytes > 0 && request->u.logged->ns > 0);
    pd_logged_free(request->u.logged);
    pd_request_free(request);
}

static void entries_that_wait_are_written_together_and_come_back_in_order(void **state)
{
    fixture *f = *state;
    pd_mail *mail = NULL;

    gate_shut(&f->gate, true);
    pd_journal_submit(f->journal, entry_of(1));
    gate_await(&f->gate);
    for (uint64_t step = 2; step <= 4; step++) pd_journal_submit(f->journal, entry_of(step));
    gate_shut(&f->gate, false);
    for (uint64_t step = 1; step <= 4; step++) expect(f, &mail, step, PD_OK);
    assert_int_equal(gate_passes(&f->gate), 2);
}

static void an_error_of_the_disk_comes_back_with_all_entries_after_it(void **state)
{
    fixture *f = *state;
    pd_mail *mail = NULL;

    pd_journal_submit(f->journal, entry_of(1));
    expect(f, &mail, 1, PD_OK);
    mem_disk_fail_at(f->memory, 0, EIO);
    pd_journal_submit(f->journal, entry_of(2));
    expect(f, &mail, 2, PD_UNAVAILABLE);
    pd_journal_submit(f->journal, entry_of(3));
    expect(f, &mail, 3, PD_FAILED_PRECONDITION);
}

static void *stop(void *arg)
{
    fixture *f = arg;

    pd_journal_stop(f->journal);
    return NULL;
}

static void at_the_end_all_entries_are_written(void **state)
{
    fixture *f = *state;
    pd_mail *mail = NULL;
    pd_log_about about;
    pthread_t stopper;

    gate_shut(&f->gate, true);
    pd_journal_submit(f->journal, entry_of(1));
    gate_await(&f->gate);
    pd_journal_submit(f->journal, entry_of(2));
    pd_journal_submit(f->journal, entry_of(3));
    assert_int_equal(pthread_create(&stopper, NULL, stop, f), 0);
    gate_shut(&f->gate, false);
    pthread_join(stopper, NULL);
    f->journal = NULL;
    for (uint64_t step = 1; step <= 3; step++) expect(f, &mail, step, PD_OK);
    assert_null(mail);
    assert_int_equal(pd_log_read(&f->real, LOG_JOB_DIR, LOG_CREATOR, 0, NULL, NULL, &about, NULL), PD_OK);
    assert_int_equal(about.entries, 3);
}

static void without_a_journal_an_entry_comes_back_as_cancelled(void **state)
{
    fixture *f = *state;
    pd_mail *mail = &pd_journal_refuse(entry_of(5))->mail;

    expect(f, &mail, 5, PD_CANCELLED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(entries_that_wait_are_written_together_and_come_back_in_order),
        TEST(an_error_of_the_disk_comes_back_with_all_entries_after_it),
        TEST(at_the_end_all_entries_are_written),
        TEST(without_a_journal_an_entry_comes_back_as_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
