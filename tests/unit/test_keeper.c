/* Tests the keeper thread: what it is handed comes back in order with the result, and nothing is lost at its end. */
#define _GNU_SOURCE /* mkdtemp */
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
#include "keeper.h"
#include "kept_sample.h"
#include "mem_disk.h"

#define ROOT "/state"

/* A disk in memory whose directories can be made to wait: the keeper thread then stands at the beginning of a
 * checkpoint. */
typedef struct fixture {
    mem_disk *memory;
    pd_disk real, disk;
    pd_mailbox *done;
    pd_keeper *keeper;
    gate gate;
} fixture;

static int make_dir_at_gate(void *arg, const char *path)
{
    fixture *f = arg;

    gate_pass(&f->gate);
    return f->real.make_dir(f->real.arg, path);
}

/* All other functions go to the disk in memory. */
#define PASS(function, name, parameters, ...)                                                                          \
    static int function parameters                                                                                     \
    {                                                                                                                  \
        fixture *f = arg;                                                                                              \
        return f->real.name(f->real.arg, __VA_ARGS__);                                                                 \
    }
PASS(pass_create, create, (void *arg, const char *path, uint64_t bytes, int *file), path, bytes, file)
PASS(pass_write, write, (void *arg, int file, const void *at, size_t bytes), file, at, bytes)
PASS(pass_sync_file, sync_file, (void *arg, int file), file)
PASS(pass_open, open, (void *arg, const char *path, int *file), path, file)
PASS(pass_close, close, (void *arg, int file), file)
PASS(pass_sync_dir, sync_dir, (void *arg, const char *path), path)
PASS(pass_rename, rename, (void *arg, const char *from, const char *to), from, to)
PASS(pass_remove, remove, (void *arg, const char *path), path)
PASS(pass_list, list, (void *arg, const char *path, void (*each)(void *what, const char *name), void *what), path, each,
     what)
PASS(pass_space, space, (void *arg, const char *path, uint64_t *bytes), path, bytes)

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    pd_keeper_config config = { .dir = ROOT };

    f->memory = mem_disk_new();
    f->real = mem_disk_table(f->memory);
    assert_int_equal(f->real.make_dir(f->real.arg, ROOT), 0);
    f->disk = (pd_disk){ .arg = f,
                         .make_dir = make_dir_at_gate,
                         .create = pass_create,
                         .write = pass_write,
                         .sync_file = pass_sync_file,
                         .open = pass_open,
                         .close = pass_close,
                         .sync_dir = pass_sync_dir,
                         .rename = pass_rename,
                         .remove = pass_remove,
                         .list = pass_list,
                         .space = pass_space };
    gate_init(&f->gate);
    config.disk = &f->disk;
    config.done = f->done = pd_mailbox_new(NULL, NULL);
    assert_int_equal(pd_keeper_start(&f->keeper, &config, NULL), PD_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    pd_keeper_stop(f->keeper);
    assert_null(pd_mailbox_take(f->done));
    pd_mailbox_free(f->done);
    gate_free(&f->gate);
    mem_disk_free(f->memory);
    free(f);
    return 0;
}

static void submit(fixture *f, uint64_t step, bool ended)
{
    pd_effect *effect = pd_effect_new(PD_EFF_KEEP, (pd_ticket){ 0, 0 }, 9);

    effect->u.kept = sample_kept(step, 2);
    effect->u.kept->number = 9;
    effect->u.kept->ended = ended;
    pd_keeper_submit(f->keeper, effect);
}

/* Takes the next checkpoint that comes back, in the order of their coming, and checks step and result. */
static void expect(pd_mail **mail, uint64_t step, int code)
{
    pd_request *request = (pd_request *)(void *)*mail;

    assert_non_null(request);
    *mail = request->mail.next;
    assert_int_equal(request->kind, PD_REQ_KEPT);
    assert_int_equal(request->job, 9);
    assert_int_equal(request->u.kept->step, step);
    if (request->u.kept->error.code != code) fail_msg("step %d: %s", (int)step, request->u.kept->error.text);
    if (code == PD_OK && !request->u.kept->ended) assert_true(request->u.kept->bytes > 1000);
    pd_kept_free(request->u.kept);
    pd_request_free(request);
}

static pd_mail *await_mail(fixture *f)
{
    struct timespec now;
    bool closed;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return pd_mailbox_wait(f->done, ((uint64_t)now.tv_sec + 60) * 1000000000u, &closed);
}

static void checkpoints_come_back_in_order_when_they_are_written(void **state)
{
    fixture *f = *state;
    pd_mail *mail = NULL;

    for (uint64_t step = 1; step <= 3; step++) submit(f, step, false);
    for (uint64_t step = 1; step <= 3; step++) {
        if (mail == NULL) mail = await_mail(f);
        expect(&mail, step, PD_OK);
    }
}

static void an_error_of_the_disk_comes_back_and_the_next_checkpoint_is_written(void **state)
{
    fixture *f = *state;
    pd_mail *mail;

    mem_disk_fail_at(f->memory, 5, EIO);
    submit(f, 1, false);
    mail = await_mail(f);
    expect(&mail, 1, PD_UNAVAILABLE);
    submit(f, 2, false);
    mail = await_mail(f);
    expect(&mail, 2, PD_OK);
}

/* Stops the keeper in a thread of its own, since that waits for the checkpoint under way. */
static void *stop(void *arg)
{
    fixture *f = arg;

    pd_keeper_stop(f->keeper);
    return NULL;
}

static void at_the_end_all_checkpoints_come_back(void **state)
{
    fixture *f = *state;
    pthread_t stopper;
    pd_mail *mail;

    gate_shut(&f->gate, true);
    submit(f, 1, false);
    gate_await(&f->gate);
    submit(f, 2, false);
    submit(f, 3, true);
    submit(f, 4, false);
    assert_int_equal(pthread_create(&stopper, NULL, stop, f), 0);
    gate_shut(&f->gate, false);
    pthread_join(stopper, NULL);
    f->keeper = NULL;
    mail = pd_mailbox_take(f->done);
    expect(&mail, 1, PD_OK);
    /* the stop may have come after this one was begun */
    expect(&mail, 2, ((pd_request *)(void *)mail)->u.kept->error.code == PD_OK ? PD_OK : PD_CANCELLED);
    expect(&mail, 3, PD_OK);
    expect(&mail, 4, ((pd_request *)(void *)mail)->u.kept->error.code == PD_OK ? PD_OK : PD_CANCELLED);
    assert_null(mail);
    assert_true(mem_disk_has(f->memory, ROOT "/runs%2Fgpt%20%231-0123456789abcdef/ended"));
}

static void without_a_keeper_a_checkpoint_comes_back_as_cancelled(void **state)
{
    pd_effect *effect = pd_effect_new(PD_EFF_KEEP, (pd_ticket){ 0, 0 }, 9);
    pd_mail *mail;
    (void)state;

    effect->u.kept = sample_kept(5, 2);
    effect->u.kept->number = 9;
    mail = &pd_keeper_refuse(effect)->mail;
    expect(&mail, 5, PD_CANCELLED);
}

static void two_keepers_do_not_share_a_directory(void **state)
{
    char dir[] = "/tmp/keeper-XXXXXX", path[64];
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_keeper_config config = { .dir = dir, .done = done };
    pd_keeper *first, *second;
    pd_error err = { 0 };
    (void)state;

    assert_non_null(mkdtemp(dir));
    assert_int_equal(pd_keeper_start(&first, &config, NULL), PD_OK);
    assert_int_equal(pd_keeper_start(&second, &config, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "in use by another process"));
    pd_keeper_stop(first);
    assert_int_equal(pd_keeper_start(&second, &config, NULL), PD_OK);
    pd_keeper_stop(second);
    pd_mailbox_free(done);
    snprintf(path, sizeof path, "%s/lock", dir);
    assert_int_equal(pd_disk_posix.remove(NULL, path), 0);
    assert_int_equal(pd_disk_posix.remove(NULL, dir), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(checkpoints_come_back_in_order_when_they_are_written),
        TEST(an_error_of_the_disk_comes_back_and_the_next_checkpoint_is_written),
        TEST(at_the_end_all_checkpoints_come_back),
        cmocka_unit_test(without_a_keeper_a_checkpoint_comes_back_as_cancelled),
        cmocka_unit_test(two_keepers_do_not_share_a_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
