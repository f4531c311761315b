#define _GNU_SOURCE         /* SYS_gettid */
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
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "optim.h"
#include "plan.h"
#include "rootpool.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* A row whose one task notes what it sees of its thread, and waits while the gate is shut. */
static atomic_int  gate_shut, running;
static atomic_int  order[16], n_order, niceness, team;
static const pd_hyper none[] = { { .name = NULL } };
static const double   no_fact[PD_MAX_FACTS];

static int plan_one(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err)
{
    int64_t n = declaration->shape.dim[0];
    (void)fact, (void)err;

    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "statistics", .number = -1 }) < 0) return PD_NO_MEMORY;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "root", .number = -1 }) < 0) return PD_NO_MEMORY;
    return pd_plan_task(plan, &(pd_task_spec){ .n_inputs = 1, .n_outputs = 1, .input = { 0 }, .output = { 1 }, .cost = (double)n }) < 0
        ? PD_NO_MEMORY : PD_OK;
}

static void note_thread(void)
{
    errno = 0;
    atomic_store(&niceness, getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid)));
#ifdef _OPENMP
    atomic_store(&team, omp_get_max_threads());
#else
    atomic_store(&team, 1);
#endif
}

static int root(pd_task_view *task)
{
    note_thread();
    atomic_fetch_add(&running, 1);
    while (atomic_load(&gate_shut)) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    atomic_store(&order[atomic_fetch_add(&n_order, 1)], (int)task->spec->cost);
    task->output[0][0] = 2;
    return PD_OK;
}

static void keep_gradient(const pd_unit *unit) { unit->slot[0][0] = unit->gradient[0]; }
static void show_root(const pd_unit *unit)     { for (int i = 0; i < unit->plan->shape.dim[0]; i++) unit->after[i] = unit->slot[1][0]; }
static bool always(const pd_plan *plan, const double *hyper, int64_t count) { return plan != NULL && hyper != NULL && count > 0; }

static const pd_row row = {
    .name = "noting", .hypers = none, .plan = plan_one, .due = always, .task = root, .task_phase = 1,
    .phases = { { "keep", PD_WHOLE, keep_gradient, { 0 }, NULL }, { "show", PD_WHOLE, show_root, { 0 }, NULL } },
};

enum { MOST = 16 };
static float gradient[MOST] = { 1 }, weights[MOST];

/* A parameter of n elements with a step under way whose task costs n. */
static pd_optim *begin_step(int n)
{
    pd_declaration declaration = { .name = "w", .shape = { 1, { n } } };
    pd_optim *optim;

    pd_hypers_init(&declaration.hypers, &row);
    assert_int_equal(pd_optim_new(&optim, &declaration, no_fact, NULL), PD_OK);
    assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ gradient, weights, weights, NULL, 0 }), PD_OK);
    assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
    return optim;
}

static void submit(pd_rootpool *pool, pd_optim *optim, uint32_t param)
{
    pd_task *task = pd_optim_capture(optim);
    assert_non_null(task);
    assert_int_equal(pd_rootpool_submit(pool, task, 7, param), PD_OK);
}

static pd_rootpool *start(int threads, pd_mailbox *done)
{
    pd_rootpool *pool;

    atomic_store(&n_order, 0);
    atomic_store(&running, 0);
    assert_int_equal(pd_rootpool_start(&pool, threads, done, NULL), PD_OK);
    return pool;
}

static void wait_until_runs(int n)
{
    for (int i = 0; atomic_load(&running) < n; i++) {
        assert_true(i < 10000);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

/* Brings home `n` results; optims are by param. Returns how many had been run. */
static int collect(pd_mailbox *done, pd_optim **optims, int n)
{
    int64_t failed = 0;
    bool closed;

    for (int got = 0; got < n;) {
        pd_mail *mail = pd_mailbox_wait(done, UINT64_MAX, &closed), *next;
        for (; mail != NULL; mail = next, got++) {
            pd_request *request = (pd_request *)(void *)mail;
            next = mail->next;
            assert_int_equal(request->kind, PD_REQ_TASK);
            assert_int_equal(request->job, 7);
            pd_optim_deliver(optims[request->u.task.param], request->u.task.task);
            pd_request_free(request);
        }
    }
    for (int i = 0; i < n; i++) {
        assert_int_equal(pd_batch_run(&optims[i], 1, 1), PD_OK);
        assert_true(pd_optim_done(optims[i]));
        failed += pd_optim_root_stats(optims[i]).failed;
        pd_optim_free(optims[i]);
    }
    return n - (int)failed;
}

static void brings_every_task_home_with_its_result(void **state)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_rootpool *pool = start(3, done);
    pd_optim *optims[MOST];
    (void)state;

    for (int i = 0; i < MOST; i++) submit(pool, optims[i] = begin_step(1), (uint32_t)i);
    assert_int_equal(collect(done, optims, MOST), MOST);
    assert_true(weights[0] == 2);               /* the root was adopted */
    pd_rootpool_stop(pool);
    pd_mailbox_free(done);
}

static void runs_the_largest_first(void **state)
{
    static const int cost[] = { 9, 3, 7, 1, 8 };            /* the first occupies the thread, the others wait */
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_rootpool *pool;
    pd_optim *optims[5];
    (void)state;

    atomic_store(&gate_shut, 1);
    pool = start(1, done);
    submit(pool, optims[0] = begin_step(cost[0]), 0);
    wait_until_runs(1);
    for (int i = 1; i < 5; i++) submit(pool, optims[i] = begin_step(cost[i]), (uint32_t)i);
    atomic_store(&gate_shut, 0);
    assert_int_equal(collect(done, optims, 5), 5);
    assert_int_equal(atomic_load(&order[0]), 9);
    assert_int_equal(atomic_load(&order[1]), 8);
    assert_int_equal(atomic_load(&order[2]), 7);
    assert_int_equal(atomic_load(&order[3]), 3);
    assert_int_equal(atomic_load(&order[4]), 1);
    pd_rootpool_stop(pool);
    pd_mailbox_free(done);
}

static void its_threads_are_nicer_and_have_no_team(void **state)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_rootpool *pool = start(1, done);
    pd_optim *optim = begin_step(1);
    int mine = getpriority(PRIO_PROCESS, 0);
    (void)state;

    submit(pool, optim, 0);
    collect(done, &optim, 1);
    assert_int_equal(atomic_load(&niceness), 5);
    assert_int_equal(atomic_load(&team), 1);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), mine);
    pd_rootpool_stop(pool);
    pd_mailbox_free(done);
}

static void *open_gate(void *arg)
{
    (void)arg;
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    atomic_store(&gate_shut, 0);
    return NULL;
}

static void stopping_finishes_what_runs_and_gives_back_what_waits_as_failed(void **state)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_rootpool *pool;
    pd_optim *optims[4];
    pthread_t opener;
    (void)state;

    atomic_store(&gate_shut, 1);
    pool = start(1, done);
    submit(pool, optims[0] = begin_step(1), 0);
    wait_until_runs(1);
    for (int i = 1; i < 4; i++) submit(pool, optims[i] = begin_step(1), (uint32_t)i);
    pthread_create(&opener, NULL, open_gate, NULL);
    pd_rootpool_stop(pool);
    pthread_join(opener, NULL);
    assert_int_equal(collect(done, optims, 4), 1);
    pd_mailbox_free(done);
}

static void stopping_nothing_is_fine(void **state)
{
    (void)state;
    pd_rootpool_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brings_every_task_home_with_its_result),
        cmocka_unit_test(runs_the_largest_first),
        cmocka_unit_test(its_threads_are_nicer_and_have_no_team),
        cmocka_unit_test(stopping_finishes_what_runs_and_gives_back_what_waits_as_failed),
        cmocka_unit_test(stopping_nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
