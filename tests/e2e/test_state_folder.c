/* Tests a real daemon's checkpoints on a real disk: it is killed and goes on, and paramctl lists, verifies and restores
 * them without it. */
#define _GNU_SOURCE /* mkdtemp, asprintf */
#include "test.h"
#include "daemon_process.h"
#include "checkpoint_sample.h"
#include "wal_sample.h"
#include "team.h"

static const char *const counting[] = { "* sgd lr=1", NULL };
static const char *const settings[] = { "checkpoint_every=1000", "checkpoint_keep=3", NULL };
static const uint64_t checkpoints[] = { 10, 15, 20, 21 }; /* the first is removed when the last is written */
static const int64_t sizes[] = { 250, 10 };
static char root[] = "/tmp/state-folder-XXXXXX";

static test_daemon *start(void)
{
    char dir[64];
    const char *const flags[] = { dir, NULL };

    snprintf(dir, sizeof dir, "--state-dir=%s", root);
    return daemon_start(flags);
}

/* Takes steps up to a number, and has a checkpoint made there. */
static void train_to(worker *w, const char *url, uint64_t step)
{
    while (pd_client_step(w->client, 0) < step)
        if (!worker_count(w)) fail_msg("%s", w->failure);
    assert_int_equal(paramctl("--server %s checkpoint counted", url), 0);
}

/* Returns whether the checkpoint of step 10 is gone: it is removed after the last one was reported. */
static bool oldest_is_gone(void *arg)
{
    (void)arg;
    return paramctl_shell("ls -d %s/counted-*/*-*10 > /dev/null 2>&1", root) != 0;
}

/* Trains, and kills the daemon while the worker is in its job. */
static int make_checkpoints(void **state)
{
    model *m = model_new(sizes, 2);
    test_daemon *daemon;
    team t = { .job = "counted", .world = 1, .rules = counting, .options = settings, .model = m, .zero = true };
    worker w = { 0 };
    (void)state;

    assert_non_null(mkdtemp(root));
    daemon = start();
    t.url = daemon->url;
    if (!worker_open(&w, &t, 0) || !worker_declare(&w)) fail_msg("%s", w.failure);
    for (int i = 0; i < 4; i++) train_to(&w, daemon->url, checkpoints[i]);
    assert_true(await(oldest_is_gone, NULL, patient(10)));
    daemon_kill(daemon);
    worker_free(&w);
    model_free(m);
    return 0;
}

static int remove_all(void **state)
{
    char command[64];
    (void)state;

    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

/* Starts a daemon, and expects that it brings the job back at a step. */
static void expect_back_at(int step)
{
    test_daemon *daemon = start();
    char text[64];

    snprintf(text, sizeof text, "is back at step %d", step);
    assert_true(daemon_says(daemon, text, patient(5)));
    daemon_kill(daemon);
}

HOLDS(a_daemon_that_was_killed_goes_on_from_its_last_checkpoint, expect_back_at(21));

TEST(checkpoints_lists_what_is_there)
{
    json_t *list;

    assert_int_equal(paramctl("checkpoints %s", root), 0);
    assert_says("counted");
    assert_says("valid");
    assert_lines_fit(100);
    assert_int_equal(paramctl("--output json checkpoints %s", root), 0);
    list = parsed();
    assert_int_equal(json_array_size(json_object_get(list, "checkpoints")), 3);
    assert_int_equal(
        json_integer_value(json_object_get(json_array_get(json_object_get(list, "checkpoints"), 0), "step")), 21);
    json_decref(list);
    assert_int_equal(paramctl("checkpoints %s/nothing", root), 1);
    assert_int_equal(paramctl("checkpoints /proc/self/mem"), 1);
    assert_int_equal(paramctl("verify /proc/self/mem"), 1);
}

TEST(restore_refuses_while_a_daemon_runs)
{
    test_daemon *daemon = start();

    assert_int_equal(paramctl("restore %s --job counted --step 15", root), 1);
    assert_says("in use by another process");
    daemon_kill(daemon);
    assert_int_equal(paramctl("restore %s --job counted --step 14", root), 1);
    assert_says("has no checkpoint of step 14");
    assert_int_equal(paramctl("restore %s --job counted", root), 2);
}

TEST(the_next_start_loads_the_checkpoint_that_was_restored)
{
    assert_int_equal(paramctl("restore %s --job counted --step 20", root), 0);
    assert_says("the next start brings counted back at step 20; 1 newer checkpoints are set aside");
    expect_back_at(20);
    assert_int_equal(paramctl("checkpoints %s", root), 0);
    assert_says("set aside");
}

TEST(verify_says_which_file_is_damaged)
{
    assert_int_equal(paramctl("verify %s", root), 0);
    assert_says("0 damaged");
    assert_int_equal(
        paramctl_shell(
            "printf X | dd of=$(echo %s/counted-*/step-*20)/state.bin bs=1 seek=40 conv=notrunc 2> /dev/null", root),
        0);
    assert_int_equal(paramctl("verify %s", root), 1);
    assert_says("state.bin: its head is damaged");
    assert_says("1 damaged");
    assert_int_equal(paramctl_shell("$paramctl verify $(echo %s/counted-*/step-*15)/", root), 0);
    expect_back_at(15);
}

/* Writes a checkpoint of step 4 into a directory, and a log of the steps 5 to 7. */
static void write_log(const char *dir)
{
    pd_checkpoint_image *kept = sample_checkpoint(4, 1);
    pd_wal_writer *logs;
    pd_error err;

    if (pd_checkpoint_write(&pd_disk_posix, dir, kept, &sample_about, &err) != PD_OK) fail_msg("%s", err.text);
    pd_checkpoint_image_free(kept);
    assert_int_equal(pd_wal_writer_new(&logs, &pd_disk_posix, dir, LOG_SEGMENT_BYTES, NULL), PD_OK);
    for (uint64_t step = 5; step <= 7; step++) {
        pd_wal_record *e = sample_logged(step, 4, 1);
        pd_wal_write(logs, &e, 1);
        if (e->error.code != PD_OK) fail_msg("%s", e->error.text);
        pd_wal_record_free(e);
    }
    pd_wal_writer_free(logs);
}

TEST(a_log_is_listed_verified_and_set_aside)
{
    char dir[] = "/tmp/state-folder-log-XXXXXX";
    json_t *list, *log;

    assert_non_null(mkdtemp(dir));
    write_log(dir);
    assert_int_equal(paramctl("checkpoints %s", dir), 0);
    assert_says("to step 7");
    assert_int_equal(paramctl("--output json checkpoints %s", dir), 0);
    list = parsed();
    log = json_object_get(json_array_get(json_object_get(list, "checkpoints"), 0), "log");
    assert_int_equal(json_integer_value(json_object_get(log, "entries")), 3);
    assert_int_equal(json_integer_value(json_object_get(log, "last_step")), 7);
    json_decref(list);
    assert_int_equal(paramctl("verify %s", dir), 0);
    assert_says("3 steps, to step 7");
    assert_says("1 checkpoints and 1 logs, 0 damaged");
    assert_int_equal(paramctl_shell("printf X | dd of=$(echo %s/*/log/segment-*1) bs=1 seek=4200 conv=notrunc "
                                    "2> /dev/null",
                                    dir),
                     0);
    assert_int_equal(paramctl("verify %s", dir), 1);
    assert_says("the record of step 5");
    assert_says("1 damaged");
    assert_int_equal(paramctl("restore %s --job '" LOG_JOB "' --step 4", dir), 0);
    assert_says("0 newer checkpoints and the log are set aside");
    assert_int_equal(paramctl("verify %s", dir), 0);
    assert_int_equal(paramctl_shell("test -d %s/*/log-aside && rm -r %s", dir, dir), 0);
}

TEST(others_may_not_write_into_the_directory)
{
    char text[2000], dir[64];
    const char *const flags[] = { dir, NULL };

    snprintf(dir, sizeof dir, "--state-dir=%s", root);
    assert_int_equal(paramctl_shell("chmod 0770 %s", root), 0);
    assert_int_equal(daemon_refuses(flags, text, sizeof text), 1);
    assert_non_null(strstr(text, "other users may write in it"));
    assert_int_equal(paramctl_shell("chmod 0700 %s", root), 0);
}

GROUP(make_checkpoints, remove_all);
