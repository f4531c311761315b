/* Tests that a state directory made from a mirror has the mirror's newest intact state, verified, or is as before:
 * power cuts, calls that fail, damage, and states that are newer. */
#include "test.h"
#include "checkpoint_sample.h"
#include "mirror.h"
#include "wal_sample.h"

#include <errno.h>

#define ROOT "/spare"
#define JOB "/runs%2Fgpt%20%231-0123456789abcdef"

enum { MOST_CALLS = 1000 };

/* A mirror, which lies in the directory of `course`, and a state directory on another disk. */
typedef struct fixture {
    log_course course;
    mem_disk *memory;
    pd_disk disk;
    pd_mirror_fetched told; /* the job that was told last */
    unsigned n_told;
} fixture;

static void checkpoint(log_course *c, uint64_t step)
{
    pd_checkpoint_image *image = sample_checkpoint(step, 2);

    assert_int_equal(pd_checkpoint_write(&c->disk, LOG_ROOT, image, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(image);
    if (step > c->base) course_checkpoint(c, step);
}

static void set_up(fixture *f)
{
    course_new(&f->course);
    course_steps(&f->course, 3);
    checkpoint(&f->course, 2);
    course_steps(&f->course, 3);
    checkpoint(&f->course, 5);
    course_steps(&f->course, 4); /* checkpoints of the steps 2 and 5, and records up to step 10 */
    f->memory = mem_disk_new();
    f->disk = mem_disk_table(f->memory);
    assert_int_equal(f->disk.make_dir(f->disk.arg, ROOT), 0);
    assert_int_equal(f->disk.sync_dir(f->disk.arg, "/"), 0);
}

static void tear_down(fixture *f)
{
    mem_disk_free(f->memory);
    course_free(&f->course);
}

static void take(void *arg, const pd_mirror_fetched *job)
{
    fixture *f = arg;

    assert_string_equal(job->job, LOG_JOB);
    f->told = *job;
    f->n_told++;
}

static int fetch(fixture *f, pd_error *err)
{
    const pd_mirror_reader user = { f, take };

    return pd_mirror_fetch_from(&f->course.disk, LOG_ROOT, &f->disk, ROOT, &user, err);
}

static void ignore_damage(void *arg, const char *dir, const pd_error *why)
{
    (void)arg, (void)dir, (void)why;
}

/* Returns the step of the newest intact checkpoint in the state directory, and sets *last to the last record after it;
 * 0: there is none. */
static uint64_t look(fixture *f, uint64_t *last)
{
    pd_checkpoint_image *image, *expected;
    pd_wal_source from = { &f->disk, ROOT JOB, LOG_CREATOR, PD_WAL_STEPS, 0 };
    pd_manifest manifest;
    pd_wal_about about;

    *last = 0;
    if (pd_checkpoint_newest(&f->disk, ROOT JOB, &image, &manifest, ignore_damage, NULL, NULL) != PD_OK) return 0;
    from.base = image->step;
    expected = sample_checkpoint(image->step, 1);
    assert_checkpoints_same(image, expected);
    pd_checkpoint_image_free(expected);
    pd_checkpoint_image_free(image);
    assert_int_equal(pd_wal_read(&from, NULL, NULL, &about, NULL), PD_OK);
    assert_int_equal(about.damage.code, PD_OK);
    *last = about.last;
    return from.base;
}

static void assert_state(fixture *f, uint64_t step, uint64_t last)
{
    uint64_t there, step_there = look(f, &there);

    assert_int_equal(step_there, step);
    assert_int_equal(there, last);
}

/* Gives the state directory an older state of the job. */
static void make_older(fixture *f)
{
    pd_checkpoint_image *image = sample_checkpoint(1, 2);

    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, image, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(image);
}

static size_t names(fixture *f)
{
    pd_job_dirs jobs;
    size_t n;

    assert_int_equal(pd_job_dirs_read(&jobs, &f->disk, ROOT, NULL), PD_OK);
    n = jobs.n;
    pd_job_dirs_free(&jobs);
    return n;
}

FIXTURE(fixture, set_up, tear_down);

TEST(a_fetched_job_has_the_checkpoints_and_records_of_the_mirror, fixture *f)
{
    assert_int_equal(fetch(f, NULL), PD_OK);
    assert_state(f, 5, 10);
    assert_true(mem_disk_has(f->memory, ROOT JOB "/step-00000000000000000002"));
    assert_int_equal(f->told.step, 5);
    assert_int_equal(f->told.last, 10);
    assert_true(f->told.bytes > 0 && f->told.n_damaged == 0 && !f->told.had);
}

TEST(a_second_fetch_copies_nothing, fixture *f)
{
    assert_int_equal(fetch(f, NULL), PD_OK);
    assert_int_equal(fetch(f, NULL), PD_OK);
    assert_true(f->n_told == 2 && f->told.had && f->told.bytes == 0);
    assert_state(f, 5, 10);
}

TEST(an_older_state_is_replaced, fixture *f)
{
    make_older(f);
    assert_int_equal(fetch(f, NULL), PD_OK);
    assert_state(f, 5, 10);
    assert_false(mem_disk_has(f->memory, ROOT JOB ".replaced"));
    assert_false(mem_disk_has(f->memory, ROOT JOB ".fetch"));
}

TEST(a_newer_state_is_refused_and_stays, fixture *f)
{
    pd_checkpoint_image *image = sample_checkpoint(11, 2);
    pd_error err;

    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, image, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(image);
    assert_int_equal(fetch(f, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "newer state (step 11)"));
    assert_state(f, 11, 11);
}

TEST(a_later_job_of_the_same_name_is_refused_and_stays, fixture *f)
{
    pd_checkpoint_image *image = sample_checkpoint(1, 2);
    pd_checkpoint_about later = sample_about;
    pd_error err;

    later.written_ms++;
    image->creator++;
    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, image, &later, NULL), PD_OK);
    pd_checkpoint_image_free(image);
    assert_int_equal(fetch(f, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(names(f), 1);
}

TEST(a_damaged_checkpoint_of_the_mirror_gives_way_to_the_one_before, fixture *f)
{
    size_t bytes;

    mem_disk_file(f->course.memory, LOG_JOB_DIR "/step-00000000000000000005/weights.safetensors", &bytes)[9] ^= 1;
    assert_int_equal(fetch(f, NULL), PD_OK);
    assert_int_equal(f->told.step, 2);
    assert_int_equal(f->told.n_damaged, 1);
    assert_false(mem_disk_has(f->memory, ROOT JOB "/step-00000000000000000005"));
}

TEST(a_mirror_without_an_intact_checkpoint_changes_nothing, fixture *f)
{
    pd_error err;
    size_t bytes;

    make_older(f);
    mem_disk_file(f->course.memory, LOG_JOB_DIR "/step-00000000000000000005/weights.safetensors", &bytes)[9] ^= 1;
    mem_disk_file(f->course.memory, LOG_JOB_DIR "/step-00000000000000000002/state.bin", &bytes)[9] ^= 1;
    assert_int_equal(fetch(f, &err), PD_DATA_LOSS);
    assert_non_null(strstr(err.text, "no checkpoint of job"));
    assert_state(f, 1, 1);
    assert_false(mem_disk_has(f->memory, ROOT JOB ".fetch"));
}

TEST(a_mirror_without_jobs_is_refused, fixture *f)
{
    pd_checkpoint_image *end = sample_checkpoint(5, 2);
    pd_error err;

    end->ended = true;
    assert_int_equal(pd_checkpoint_put(&f->course.disk, LOG_ROOT, end, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(end);
    assert_int_equal(fetch(f, &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "no job that has not ended"));
    assert_int_equal(names(f), 0);
}

/* Cuts the power of the state directory before call n of a fetch that replaces an older state. Returns true if there
 * were fewer calls. */
static bool cut_power(int64_t n, mem_disk_crash_kind kind)
{
    fixture f = { 0 };
    uint64_t step, last;
    size_t all;
    bool done;

    set_up(&f);
    make_older(&f);
    mem_disk_forget_calls(f.memory);
    mem_disk_power_off_at(f.memory, n);
    done = fetch(&f, NULL) == PD_OK;
    mem_disk_calls(f.memory, &all);
    mem_disk_crash(f.memory, kind, (uint64_t)n);
    step = look(&f, &last);
    assert_true(step == 5 ? last == 10 : !done && (step == 1 || step == 0));
    assert_int_equal(fetch(&f, NULL), PD_OK);
    assert_state(&f, 5, 10);
    tear_down(&f);
    return (int64_t)all <= n;
}

TEST(a_power_cut_leaves_the_older_state_or_the_whole_new_one, fixture *f)
{
    int64_t n = 0;

    (void)f;
    while (!cut_power(n, MEM_DISK_LOSE)) {
        cut_power(n, MEM_DISK_KEEP);
        cut_power(n, MEM_DISK_TEAR);
        assert_true(++n < MOST_CALLS);
    }
    assert_true(n > 50);
}

/* Makes call n of the disk of the mirror, or of that of the state directory, fail. */
static bool fail_call(int64_t n, bool of_mirror)
{
    fixture f = { 0 };
    mem_disk *memory;
    uint64_t step, last;
    size_t all;
    int rc;

    set_up(&f);
    make_older(&f);
    memory = of_mirror ? f.course.memory : f.memory;
    mem_disk_forget_calls(memory);
    mem_disk_fail_at(memory, n, EIO);
    rc = fetch(&f, NULL);
    mem_disk_calls(memory, &all);
    mem_disk_fail_at(memory, -1, 0);
    step = look(&f, &last);
    assert_true(step == 5 || step == 2 || (rc != PD_OK && step <= 1));
    if (rc != PD_OK) assert_int_equal(fetch(&f, NULL), PD_OK);
    assert_true(look(&f, &last) >= 2);
    tear_down(&f);
    return (int64_t)all <= n;
}

TEST(a_call_that_fails_leaves_the_older_state_or_a_whole_one, fixture *f)
{
    (void)f;
    for (int of_mirror = 0; of_mirror < 2; of_mirror++) {
        int64_t n = 0;
        while (!fail_call(n, of_mirror)) assert_true(++n < MOST_CALLS);
        assert_true(n > 20);
    }
}
