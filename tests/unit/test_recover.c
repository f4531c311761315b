/* Tests which jobs come back when a daemon starts: from checkpoints on a disk in memory into a store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mem_disk.h"
#include "recover.h"
#include "rig.h"

static const pd_kept_about here = { .paramd = "1.0", .blas = "Haswell", .cpu = "avx2", .written_ms = 1000 };
static const pd_kept_about elsewhere = { .paramd = "1.0", .blas = "Prescott", .cpu = "generic", .written_ms = 1000 };

typedef struct fixture {
    mem_disk *memory;
    pd_disk disk;
    rig r; /* the store of the daemon that starts */
    pd_recovery found;
} fixture;

static pd_store_config keeping_config(void)
{
    pd_store_config config = rig_config();

    config.keeps = true;
    return config;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    pd_store_config config = keeping_config();

    f->memory = mem_disk_new();
    f->disk = mem_disk_table(f->memory);
    assert_int_equal(f->disk.make_dir(f->disk.arg, "/state"), 0);
    rig_new(&f->r, &config);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    rig_free(&f->r);
    mem_disk_free(f->memory);
    free(f);
    return 0;
}

/* Trains a job with one parameter for `steps` steps, and writes a checkpoint of it to the disk, as a daemon does. */
static void write_job(fixture *f, const char *job, uint64_t creator, const char *options, uint64_t steps,
                      const pd_kept_about *about)
{
    static const char *const names[] = { "w" };
    static const pd_shape shape = { 1, { 5 } };
    static const float values[] = { 1, 2, 3, 4, 5 };
    pd_store_config config = keeping_config();
    pd_error err;
    rig r;

    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, job, 0, 1, creator, 1, options, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 0, 1, names, &shape, NULL, 1, PD_F32), PD_OK);
    for (uint64_t step = 0; step <= steps; step++) {
        rig_frame *frame = rig_frame_new(&r, step == 0 ? PD_REQ_INIT : PD_REQ_PUSH, r.job, 0, 1, step);
        rig_piece(frame, 0, PD_F32, 0, 5, values);
        assert_int_equal(rig_send(&r, frame), PD_OK);
        rig_work(&r);
    }
    assert_int_equal(rig_checkpoint(&r, NULL, 1, 0, 10), PD_OK);
    rig_work(&r);
    assert_non_null(r.disk);
    if (pd_checkpoint_write(&f->disk, "/state", r.disk, about, &err) != PD_OK) fail_msg("%s", err.text);
    rig_free(&r);
}

static void recover(fixture *f)
{
    pd_error err;

    if (pd_recover(&f->found, f->r.store, &f->disk, "/state", &here, &err) != PD_OK) fail_msg("%s", err.text);
    rig_absorb(&f->r);
}

static void assert_found(const fixture *f, size_t restored, size_t left)
{
    assert_int_equal(f->found.restored, restored);
    assert_int_equal(f->found.left, left);
}

/* Returns the entry of the only job in the list of jobs. */
static const pd_job_info *only_job(fixture *f)
{
    pd_request *request = pd_request_new(PD_REQ_INFO, rig_ticket(&f->r, 9));

    request->u.info.what = PD_INFO_JOBS;
    request->u.info.job_name = strdup("");
    request->u.info.pattern = strdup("");
    assert_int_equal(rig_apply(&f->r, request), PD_OK);
    assert_int_equal(f->r.info->n, 1);
    return &f->r.info->jobs[0];
}

static void a_job_comes_back_with_its_step_and_tells_that_it_is_durable(void **state)
{
    fixture *f = *state;

    write_job(f, "j", 7, NULL, 3, &here);
    recover(f);
    assert_found(f, 1, 0);
    assert_int_equal(f->r.durable, 3);
    assert_string_equal(only_job(f)->name, "j");
    assert_int_equal(only_job(f)->step_least, 3);
    assert_int_equal(only_job(f)->durable_step, 3);
    assert_true(only_job(f)->checkpoint_bytes > 5 * sizeof(float));
}

static void an_empty_directory_brings_no_job(void **state)
{
    fixture *f = *state;

    recover(f);
    assert_found(f, 0, 0);
}

static void several_jobs_come_back(void **state)
{
    fixture *f = *state;

    write_job(f, "j", 7, NULL, 3, &here);
    write_job(f, "k/l", 8, NULL, 2, &here);
    recover(f);
    assert_found(f, 2, 0);
}

static void a_job_that_has_ended_stays_away(void **state)
{
    fixture *f = *state;
    pd_kept ended = { .job = (char *)"j", .creator = 7, .ended = true };
    pd_error err;

    write_job(f, "j", 7, NULL, 3, &here);
    assert_int_equal(pd_checkpoint_write(&f->disk, "/state", &ended, &here, &err), PD_OK);
    recover(f);
    assert_found(f, 0, 0);
}

static void a_damaged_checkpoint_gives_way_to_the_one_before(void **state)
{
    fixture *f = *state;
    uint8_t *bytes;
    size_t n;

    write_job(f, "j", 7, NULL, 3, &here);
    write_job(f, "j", 7, NULL, 5, &here);
    bytes = mem_disk_file(f->memory, "/state/j-0000000000000007/step-00000000000000000005/state.bin", &n);
    assert_non_null(bytes);
    bytes[n / 2] ^= 1;
    recover(f);
    assert_found(f, 1, 0);
    assert_int_equal(only_job(f)->step_least, 3);
}

static void a_job_whose_only_checkpoint_is_damaged_is_left(void **state)
{
    fixture *f = *state;
    uint8_t *bytes;
    size_t n;

    write_job(f, "j", 7, NULL, 3, &here);
    write_job(f, "k", 8, NULL, 2, &here);
    bytes = mem_disk_file(f->memory, "/state/j-0000000000000007/step-00000000000000000003/manifest.json", &n);
    assert_non_null(bytes);
    bytes[n / 2] ^= 1;
    recover(f);
    assert_found(f, 1, 1);
    assert_string_equal(only_job(f)->name, "k");
}

static void of_two_jobs_with_one_name_the_one_that_was_written_last_comes_back(void **state)
{
    fixture *f = *state;
    pd_kept_about later = here;

    later.written_ms = 2000;
    write_job(f, "j", 9, NULL, 2, &later);
    write_job(f, "j", 7, NULL, 5, &here);
    recover(f);
    assert_found(f, 1, 1);
    assert_int_equal(only_job(f)->step_least, 2);
    assert_true(mem_disk_has(f->memory, "/state/j-0000000000000007/step-00000000000000000005/manifest.json"));
}

static void other_instructions_are_refused_to_a_job_that_must_be_exact(void **state)
{
    fixture *f = *state;

    write_job(f, "strict", 7, "exact=yes", 3, &elsewhere);
    write_job(f, "lax", 8, NULL, 2, &elsewhere);
    recover(f);
    assert_found(f, 1, 1);
    assert_string_equal(only_job(f)->name, "lax");
    assert_true(mem_disk_has(f->memory, "/state/strict-0000000000000007/step-00000000000000000003/manifest.json"));
}

static void a_job_that_must_be_exact_comes_back_on_the_same_instructions(void **state)
{
    fixture *f = *state;

    write_job(f, "strict", 7, "exact=yes", 3, &here);
    recover(f);
    assert_found(f, 1, 0);
}

static void a_disk_that_cannot_be_listed_is_an_error(void **state)
{
    fixture *f = *state;
    pd_error err;

    write_job(f, "j", 7, NULL, 3, &here);
    mem_disk_fail_at(f->memory, 0, 5);
    assert_int_equal(pd_recover(&f->found, f->r.store, &f->disk, "/state", &here, &err), PD_UNAVAILABLE);
    assert_found(f, 0, 0);
}

int main(void)
{
#define ON_A_DISK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ON_A_DISK(a_job_comes_back_with_its_step_and_tells_that_it_is_durable),
        ON_A_DISK(an_empty_directory_brings_no_job),
        ON_A_DISK(several_jobs_come_back),
        ON_A_DISK(a_job_that_has_ended_stays_away),
        ON_A_DISK(a_damaged_checkpoint_gives_way_to_the_one_before),
        ON_A_DISK(a_job_whose_only_checkpoint_is_damaged_is_left),
        ON_A_DISK(of_two_jobs_with_one_name_the_one_that_was_written_last_comes_back),
        ON_A_DISK(other_instructions_are_refused_to_a_job_that_must_be_exact),
        ON_A_DISK(a_job_that_must_be_exact_comes_back_on_the_same_instructions),
        ON_A_DISK(a_disk_that_cannot_be_listed_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
