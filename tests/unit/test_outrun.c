/* Tests what a job is told of the speed of the disk, and the measurement of that speed. */
#define _GNU_SOURCE /* mkdtemp */
#include "test.h"
#include "overlapped.h"
#include "durable_job.h"
#include "mem_disk.h"
#include "rig.h"
#include "store_inside.h"

enum { EVERY = 4, STEP_MS = 100 };

/* Trains a job whose steps take STEP_MS on a disk of this speed, for three checkpoints. Returns its warnings. */
static uint64_t train(uint64_t disk_speed, rig *r)
{
    pd_store_config config = durable_config();
    uint64_t warnings;

    config.disk_speed = disk_speed;
    durable_job_start(r, &config, "checkpoint_every=4");
    warnings = r->warnings;
    for (int step = 1; step <= 3 * EVERY; step++) {
        r->now += (uint64_t)STEP_MS * 1000000;
        durable_job_step(r, (uint64_t)step);
    }
    return r->warnings - warnings;
}

TEST(a_job_that_outruns_the_disk_is_told_once)
{
    rig r;

    assert_int_equal(train(100, &r), 1);
    assert_non_null(strstr(r.warning, "the job outruns the disk: a checkpoint of "));
    assert_non_null(strstr(r.warning, "but checkpoint_every is 4"));
    rig_free(&r);
}

TEST(a_job_that_the_disk_follows_is_not_warned)
{
    rig r;

    assert_int_equal(train(1000000000, &r), 0);
    rig_free(&r);
    assert_int_equal(train(0, &r), 0); /* the speed is not known */
    rig_free(&r);
}

TEST(declare_logs_how_long_a_checkpoint_takes)
{
    static const char *const names[] = { "w" };
    static const pd_shape shape = { 1, { 262144 } };
    pd_store_config config = durable_config();
    rig r;

    config.disk_speed = 1048576;
    config.max_total_bytes = 1 << 30;
    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, "j", 0, 2, 7, 1, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 0, 1, names, &shape, NULL, 1, PD_F32), PD_OK);
    assert_non_null(strstr(r.log, "a checkpoint has 1.0 MiB, which the disk writes in 1.00 s (1 MiB/s)"));
    rig_free(&r);
}

TEST(the_speed_of_the_real_disk_is_measured)
{
    char dir[] = "/tmp/paramd-speed-XXXXXX";
    uint64_t speed;

    assert_non_null(mkdtemp(dir));
    assert_int_equal(pd_disk_speed(&pd_disk_posix, dir, &speed, NULL), PD_OK);
    assert_true(speed > 100000);
    assert_int_equal(rmdir(dir), 0); /* nothing is left in it */
}

TEST(a_disk_that_fails_has_no_speed)
{
    mem_disk *memory = mem_disk_new();
    pd_disk disk = mem_disk_table(memory);
    uint64_t speed = 1;
    pd_error err;

    assert_int_equal(disk.make_dir(disk.arg, "/state"), 0);
    mem_disk_fail_at(memory, 2, ENOSPC);
    assert_int_equal(pd_disk_speed(&disk, "/state", &speed, &err), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(speed, 0);
    assert_non_null(strstr(err.text, "/state/speed"));
    assert_false(mem_disk_has(memory, "/state/speed"));
    mem_disk_free(memory);
}
