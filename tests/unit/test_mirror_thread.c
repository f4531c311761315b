/* Tests the mirror thread: it copies what is durable when it is woken, and nobody waits for a mirror that fails or does
 * not answer. */
#include "test.h"
#include "checkpoint_sample.h"
#include "gated_disk.h"
#include "mirror.h"
#include "mirror_thread.h"
#include "request.h"
#include "state_dir.h"
#include "thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

WITH_THREADS();

#define SECOND_NS ((uint64_t)1000000000)

/* The real file system. Files that are created in the mirror wait at a gate, or fail. */
typedef struct gated_files {
    pd_disk_pass base; /* must be the first member */
    const char *mirror;
    gate gate;
    atomic_int number;   /* error of create; 0: none */
    atomic_int returned; /* how often a file was created in the mirror, or could not be */
} gated_files;

typedef struct fixture {
    char dir[64], state_dir[80], mirror[80];
    gated_files files;
    pd_mailbox *done;
    pd_mirror_thread *thread;
    _Atomic uint64_t *tenure; /* NULL: there is no engine */
} fixture;

static int create(void *arg, const char *path, uint64_t bytes, int *file)
{
    gated_files *f = arg;
    bool mirrors = strncmp(path, f->mirror, strlen(f->mirror)) == 0;
    int number;

    if (mirrors) gate_pass(&f->gate);
    number = mirrors ? atomic_load(&f->number) : 0;
    if (number == 0) number = f->base.below->create(f->base.below->arg, path, bytes, file);
    if (mirrors) atomic_fetch_add(&f->returned, 1);
    return number;
}

static void init_files(gated_files *files, const char *mirror)
{
    pd_disk_pass_init(&files->base, &pd_disk_posix);
    files->base.functions.create = create;
    files->mirror = mirror;
    gate_init(&files->gate);
}

static int start(fixture *f, const pd_disk *disk, pd_mirror_thread **out)
{
    const pd_mirror_thread_config config = { f->state_dir, f->mirror, disk, f->done, f->tenure };

    return pd_mirror_thread_start(out, &config, NULL);
}

static void set_up(fixture *f)
{
    strcpy(f->dir, "/tmp/paramd-mirror.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->state_dir, sizeof f->state_dir, "%s/state", f->dir);
    snprintf(f->mirror, sizeof f->mirror, "%s/mirror", f->dir);
    assert_int_equal(pd_disk_posix.make_dir(NULL, f->state_dir), 0);
    assert_int_equal(pd_disk_posix.make_dir(NULL, f->mirror), 0);
    init_files(&f->files, f->mirror);
    f->done = pd_mailbox_new(NULL, NULL);
    assert_int_equal(start(f, &f->files.base.functions, &f->thread), PD_OK);
}

static void tear_down(fixture *f)
{
    char command[128];

    assert_true(pd_mirror_thread_stop(f->thread, UINT64_MAX));
    pd_mailbox_free(f->done);
    gate_free(&f->files.gate);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
}

/* Makes a checkpoint durable, and tells the thread. */
static void checkpoint(fixture *f, uint64_t step)
{
    pd_checkpoint_image *image = sample_checkpoint(step, 2);

    assert_int_equal(pd_checkpoint_write(&pd_disk_posix, f->state_dir, image, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(image);
    pd_mirror_thread_wake(f->thread);
}

/* Waits until the thread tells that the mirror has a step. */
static void expect(fixture *f, uint64_t step)
{
    bool closed;
    pd_request *request = (pd_request *)(void *)pd_mailbox_wait(f->done, pd_clock_ns() + 60 * SECOND_NS, &closed);

    assert_non_null(request);
    assert_int_equal(request->kind, PD_REQ_MIRRORED);
    assert_string_equal(request->u.mirrored.job_name, SAMPLE_JOB);
    assert_int_equal(request->u.mirrored.creator, SAMPLE_CREATOR);
    assert_int_equal(request->u.mirrored.step, step);
    assert_null(request->mail.next);
    pd_request_free(request);
}

static void await_up(fixture *f, bool up)
{
    for (int i = 0; pd_mirror_thread_is_up(f->thread) != up; i++) {
        assert_true(i < 6000);
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
}

FIXTURE(fixture, set_up, tear_down);

TEST(what_is_durable_is_copied_when_the_thread_is_woken, fixture *f)
{
    for (uint64_t step = 3; step <= 5; step++) {
        checkpoint(f, step);
        expect(f, step);
    }
    assert_true(pd_mirror_thread_is_up(f->thread));
}

TEST(the_end_copies_what_is_left, fixture *f)
{
    checkpoint(f, 3);
    expect(f, 3);
    checkpoint(f, 4);
    assert_true(pd_mirror_thread_stop(f->thread, UINT64_MAX));
    f->thread = NULL;
    expect(f, 4);
}

TEST(a_mirror_that_fails_is_down_until_it_is_well, fixture *f)
{
    atomic_store(&f->files.number, ENOSPC);
    checkpoint(f, 3);
    await_up(f, false);
    atomic_store(&f->files.number, 0);
    pd_mirror_thread_wake(f->thread);
    expect(f, 3);
    await_up(f, true);
}

TEST(the_end_does_not_wait_for_a_mirror_that_is_down, fixture *f)
{
    uint64_t begun;

    atomic_store(&f->files.number, EIO);
    checkpoint(f, 3);
    await_up(f, false);
    begun = pd_clock_ns();
    assert_true(pd_mirror_thread_stop(f->thread, UINT64_MAX));
    f->thread = NULL;
    assert_true(pd_clock_ns() - begun < 4 * SECOND_NS); /* it tries again after 5 s */
}

TEST(the_end_leaves_a_mirror_alone_that_does_not_answer, fixture *f)
{
    static gated_files files; /* the thread that is left may use it after the test */
    static char mirror[sizeof f->mirror];
    uint64_t begun;

    assert_true(pd_mirror_thread_stop(f->thread, UINT64_MAX));
    memcpy(mirror, f->mirror, sizeof mirror);
    init_files(&files, mirror);
    assert_int_equal(start(f, &files.base.functions, &f->thread), PD_OK);
    gate_shut(&files.gate, true);
    checkpoint(f, 3);
    gate_await(&files.gate);
    begun = pd_clock_ns();
    assert_false(pd_mirror_thread_stop(f->thread, UINT64_MAX));
    f->thread = NULL;
    assert_true(pd_clock_ns() - begun < 9 * SECOND_NS);
    pd_mailbox_close(f->done);
    gate_shut(&files.gate, false); /* the thread gets its answer, and ends by itself */
    for (int i = 0; atomic_load(&files.returned) == 0; i++) {
        assert_true(i < 6000);
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
}

TEST(a_mirror_that_another_daemon_has_is_down, fixture *f)
{
    fixture other = *f;

    assert_true(pd_mirror_thread_stop(f->thread, UINT64_MAX));
    assert_int_equal(start(f, NULL, &f->thread), PD_OK); /* on the real file system, where it locks the directory */
    checkpoint(f, 3);
    expect(f, 3);
    assert_int_equal(start(f, NULL, &other.thread), PD_OK);
    await_up(&other, false);
    assert_true(pd_mirror_thread_stop(other.thread, UINT64_MAX));
    assert_true(pd_mirror_thread_is_up(f->thread));
}

TEST(an_owner_that_was_replaced_is_down_until_it_gets_a_higher_tenure, fixture *f)
{
    _Atomic uint64_t tenure = 7;
    char path[128];
    uint64_t fence;

    assert_true(pd_mirror_thread_stop(f->thread, UINT64_MAX));
    f->tenure = &tenure;
    assert_int_equal(start(f, &f->files.base.functions, &f->thread), PD_OK);
    checkpoint(f, 3);
    expect(f, 3);
    snprintf(path, sizeof path, "%s/fence", f->mirror);
    assert_int_equal(pd_keep_number_read(&pd_disk_posix, path, &fence, NULL), PD_OK);
    assert_int_equal(fence, 6); /* all owners before this one are kept out */
    assert_int_equal(pd_mirror_fence(&pd_disk_posix, f->mirror, 7, NULL), PD_OK);
    checkpoint(f, 4);
    await_up(f, false);
    atomic_store(&tenure, 9);
    pd_mirror_thread_wake(f->thread);
    expect(f, 4);
    await_up(f, true);
    assert_true(pd_mirror_thread_stop(f->thread, UINT64_MAX));
    f->thread = NULL;
}
