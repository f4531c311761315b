/* Tests the thread that computes handshakes, with tasks that the test holds back: no handshake is computed here. */
#define _GNU_SOURCE /* pthread_setattr_default_np */
#include <pthread.h>
#include <sys/resource.h>

#include "test.h"
#include "uvloop.h"
#include "daemon_process.h"

WITH_THREADS();

enum { TASKS = 6 };

typedef struct task {
    pd_background work; /* must be the first member: the address of a task's work is cast to the task */
    struct fixture *of;
    int number;
    bool ran; /* the loop thread reads it in `done` */
} task;

typedef struct fixture {
    pd_uvloop loop;
    pd_handshake_thread *thread;
    uv_sem_t begun, go; /* a task posts `begun`, and then waits for `go` */
    task tasks[TASKS];
    int n_posted, n_done, order[TASKS];
    bool posts_more; /* `done` posts the next task */
} fixture;

static void run(pd_background *work)
{
    task *t = (task *)(void *)work;

    uv_sem_post(&t->of->begun);
    uv_sem_wait(&t->of->go);
    t->ran = true;
}

static void post(fixture *f);

static void done(pd_background *work)
{
    task *t = (task *)(void *)work;
    fixture *f = t->of;

    assert_true(t->ran);
    f->order[f->n_done++] = t->number;
    if (f->posts_more && f->n_posted < TASKS) post(f);
}

static void post(fixture *f)
{
    task *t = &f->tasks[f->n_posted];

    *t = (task){ .work = { .run = run, .done = done }, .of = f, .number = f->n_posted++ };
    pd_handshake_thread_post(f->thread, &t->work);
}

static void set_up(fixture *f)
{
    assert_int_equal(uv_loop_init(&f->loop.uv), 0);
    uv_sem_init(&f->begun, 0);
    uv_sem_init(&f->go, 0);
}

static void tear_down(fixture *f)
{
    pd_handshake_thread_free(f->thread);
    uv_run(&f->loop.uv, UV_RUN_DEFAULT); /* libuv closes the handles */
    assert_int_equal(uv_loop_close(&f->loop.uv), 0);
    uv_sem_destroy(&f->begun);
    uv_sem_destroy(&f->go);
}

static void start(fixture *f)
{
    f->thread = pd_handshake_thread_new(&f->loop);
    assert_non_null(f->thread);
}

static bool all_done(void *arg)
{
    fixture *f = arg;

    uv_run(&f->loop.uv, UV_RUN_NOWAIT);
    return f->n_done == f->n_posted;
}

static void expect_order(const fixture *f, int n)
{
    assert_int_equal(f->n_done, n);
    for (int i = 0; i < n; i++) assert_int_equal(f->order[i], i);
}

FIXTURE(fixture, set_up, tear_down);

TEST(tasks_end_in_the_order_in_which_they_came, fixture *f)
{
    start(f);
    f->posts_more = true;
    for (int i = 0; i < PD_MOST_COMPUTED; i++) post(f);
    for (int i = 0; i < TASKS; i++) uv_sem_post(&f->go);
    assert_true(await(all_done, f, patient(10)));
    expect_order(f, TASKS);
}

TEST(a_task_runs_while_the_loop_goes_on, fixture *f)
{
    start(f);
    post(f);
    uv_sem_wait(&f->begun);
    assert_false(all_done(f)); /* it returns, although the task has not ended */
    uv_sem_post(&f->go);
    assert_true(await(all_done, f, patient(10)));
}

static void let_go(void *arg)
{
    fixture *f = arg;

    uv_sem_wait(&f->begun);
    for (int i = 0; i < f->n_posted; i++) uv_sem_post(&f->go);
}

TEST(a_thread_that_is_freed_ends_the_tasks_that_it_has, fixture *f)
{
    uv_thread_t helper;
    int n;

    start(f);
    for (int i = 0; i < PD_MOST_COMPUTED; i++) post(f);
    n = f->n_posted;
    assert_int_equal(uv_thread_create(&helper, let_go, f), 0);
    pd_handshake_thread_free(f->thread); /* one task runs, the other waits behind it */
    f->thread = NULL;
    expect_order(f, n);
    uv_thread_join(&helper);
}

TEST(a_thread_without_tasks_ends_at_once, fixture *f)
{
    start(f);
    pd_handshake_thread_free(f->thread);
    f->thread = NULL;
    assert_int_equal(f->n_done, 0);
    pd_handshake_thread_free(NULL);
}

/* Makes new threads ask for stacks that are larger than the address space, so that none can start. Stores the
 * attributes that held before. */
static void forbid_threads(pthread_attr_t *before)
{
    pthread_attr_t huge;

    assert_int_equal(pthread_getattr_default_np(before), 0);
    assert_int_equal(pthread_getattr_default_np(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 47), 0);
    if (pthread_setattr_default_np(&huge) != 0) skip();
    pthread_attr_destroy(&huge);
}

TEST(a_thread_that_cannot_start_leaves_nothing, fixture *f)
{
    pthread_attr_t before;

    forbid_threads(&before);
    f->thread = pd_handshake_thread_new(&f->loop);
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&before);
    assert_null(f->thread);
}

TEST(without_memory_no_thread_starts, fixture *f)
{
    oom_arm(0);
    f->thread = pd_handshake_thread_new(&f->loop);
    assert_true(oom_disarm());
    assert_null(f->thread);
}
