/* Tests which jobs come back from a state directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "keeper.h"
#include "kept_sample.h"
#include "mem_disk.h"
#include "recover.h"

#define ROOT "/state"

typedef struct fixture {
    mem_disk *memory;
    pd_disk disk;
    int restored, refusal;
    uint64_t step, creator;
    bool foreign;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    f->memory = mem_disk_new();
    f->disk = mem_disk_table(f->memory);
    assert_int_equal(f->disk.make_dir(f->disk.arg, ROOT), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    mem_disk_free(f->memory);
    free(f);
    return 0;
}

static void write_one(fixture *f, uint64_t creator, uint64_t step, uint64_t written_ms, bool ended)
{
    pd_kept *kept = sample_kept(step, 3);
    pd_kept_about about = pd_keeper_about();

    kept->creator = creator;
    kept->ended = ended;
    about.written_ms = written_ms;
    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, kept, &about, NULL), PD_OK);
    pd_kept_free(kept);
}

static int restore(void *arg, const pd_kept *kept, pd_error *err)
{
    fixture *f = arg;

    if (f->refusal != PD_OK) return pd_fail(err, f->refusal, "it does not fit");
    f->restored++;
    f->step = kept->step;
    f->creator = kept->creator;
    f->foreign = kept->foreign;
    return PD_OK;
}

static int recover(fixture *f, pd_error *err)
{
    f->restored = 0;
    return pd_recover(&f->disk, ROOT, restore, f, err);
}

static void the_newest_checkpoint_of_a_job_comes_back(void **state)
{
    fixture *f = *state;

    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 0);
    for (uint64_t step = 1; step <= 3; step++) write_one(f, 7, step, step, false);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 1);
    assert_int_equal(f->step, 3);
    assert_false(f->foreign);
}

static void a_damaged_checkpoint_is_passed_over(void **state)
{
    fixture *f = *state;
    size_t bytes;

    write_one(f, 7, 1, 1, false);
    write_one(f, 7, 2, 2, false);
    mem_disk_file(f->memory, ROOT "/runs%2Fgpt%20%231-0000000000000007/step-00000000000000000002/state.bin",
                  &bytes)[30] ^= 4;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->step, 1);
    mem_disk_file(f->memory, ROOT "/runs%2Fgpt%20%231-0000000000000007/step-00000000000000000001/notes.bin",
                  &bytes)[3] ^= 4;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 0);
}

static void a_job_that_has_ended_does_not_come_back(void **state)
{
    fixture *f = *state;

    write_one(f, 7, 1, 1, false);
    write_one(f, 8, 2, 2, false);
    write_one(f, 8, 2, 2, true);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 1);
    assert_int_equal(f->creator, 7);
}

static void of_jobs_of_the_same_name_the_later_one_comes_back(void **state)
{
    fixture *f = *state;

    write_one(f, 7, 1, 200, false);
    write_one(f, 6, 9, 100, false);
    write_one(f, 8, 5, 150, false);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 1);
    assert_int_equal(f->creator, 7);
}

static void a_checkpoint_that_does_not_fit_ends_the_start(void **state)
{
    fixture *f = *state;
    pd_error err = { 0 };

    write_one(f, 7, 1, 1, false);
    f->refusal = PD_RESOURCE_EXHAUSTED;
    assert_int_equal(recover(f, &err), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "it does not fit; to start without this job, move " ROOT));
}

static void checkpoints_of_other_hardware_are_foreign(void **state)
{
    fixture *f = *state;
    pd_kept *kept = sample_kept(1, 1);

    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, kept, &(pd_kept_about){ .blas = "Katmai" }, NULL), PD_OK);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_true(f->foreign);
    pd_kept_free(kept);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_newest_checkpoint_of_a_job_comes_back),     TEST(a_damaged_checkpoint_is_passed_over),
        TEST(a_job_that_has_ended_does_not_come_back),       TEST(of_jobs_of_the_same_name_the_later_one_comes_back),
        TEST(a_checkpoint_that_does_not_fit_ends_the_start), TEST(checkpoints_of_other_hardware_are_foreign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
