/* Tests the threads that run preconditioner tasks. */
#define _GNU_SOURCE /* SYS_gettid */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <dirent.h>

#include "test.h"
#include "batch.h"
#include "effects.h"
#include "linalg.h"
#include "optimizer.h"
#include "optimizer_ops.h"
#include "precond_pool.h"
#include "precond_queue.h"

#ifdef _OPENMP
#include <omp.h>
#endif

WITH_THREADS();

/* An optimizer row with `roots` preconditioner tasks per step. Each task records properties of the thread that runs it,
 * and waits while the gate is shut. */
enum { MOST_ORDER = 4096 };
static atomic_int gate_shut, running;
static atomic_int order[MOST_ORDER], statistics[MOST_ORDER], n_order, niceness, team, threads_in_gemm;
static atomic_int runner; /* the thread that has begun to run a task last */
static int roots = 1, root_delay, gemm_size;
static double unit_cost = 1e7; /* cost of a task per element of its parameter: too much for a light task */
static const pd_hyper none[] = { { .name = NULL } };
static const double no_stats[PD_MAX_MODEL_STATS];

static int plan_one(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    int64_t n = declaration->shape.dim[0];
    (void)stats, (void)err;

    plan->root_delay = root_delay;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "statistics", .number = -1 }) < 0) return PD_NO_MEMORY;
    for (int i = 0; i < roots; i++) {
        pd_task_spec task = {
            .n_inputs = 1, .n_outputs = 1, .input = { 0 }, .output = { 1 + i }, .cost = (double)n * unit_cost
        };
        if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "root", .number = i }) < 0 || pd_plan_task(plan, &task) < 0)
            return PD_NO_MEMORY;
    }
    return PD_OK;
}

static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;

    assert_non_null(tasks);
    while (readdir(tasks) != NULL) n++;
    closedir(tasks);
    return n - 2; /* "." and ".." */
}

/* Multiplies matrices large enough for BLAS to use several threads, if it may. Records how many threads were added. */
static void multiply(int n)
{
    float *A = calloc((size_t)n * (size_t)n, sizeof *A), *C = calloc((size_t)n * (size_t)n, sizeof *C);
    int before = count_threads();

    assert_true(A != NULL && C != NULL);
    pd_gemm(pd_mat_dense(C, n, n), 0, 1, pd_mat_dense(A, n, n), PD_AS_IS, pd_mat_dense(A, n, n), PD_TRANSPOSED);
    atomic_store(&threads_in_gemm, count_threads() - before);
    free(A);
    free(C);
}

static void note_thread(void)
{
    int self = (int)syscall(SYS_gettid);

    atomic_store(&runner, self);
    errno = 0;
    atomic_store(&niceness, getpriority(PRIO_PROCESS, (id_t)self));
#ifdef _OPENMP
    atomic_store(&team, omp_get_max_threads());
#else
    atomic_store(&team, 1);
#endif
}

static int root(pd_task_view *task)
{
    int i;

    note_thread();
    atomic_fetch_add(&running, 1);
    while (atomic_load(&gate_shut) && task->spec->cost > PD_TASK_LIGHT)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    i = atomic_fetch_add(&n_order, 1) % MOST_ORDER;
    atomic_store(&order[i], (int)(task->spec->cost / unit_cost));
    atomic_store(&statistics[i], (int)task->input[0][0]);
    if (gemm_size > 0) multiply(gemm_size);
    task->output[0][0] = 2 * task->input[0][0];
    return PD_OK;
}

static void keep_gradient(const pd_unit *unit)
{
    unit->slot[0][0] = unit->gradient[0];
}
static void show_root(const pd_unit *unit)
{
    for (int i = 0; i < unit->plan->shape.dim[0]; i++) unit->after[i] = unit->slot[1][0];
}
static bool always(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    return plan != NULL && hyper != NULL && count > 0 && slot != NULL;
}

static const pd_optimizer_ops row = {
    .name = "noting",
    .hypers = none,
    .plan = plan_one,
    .due = always,
    .task = root,
    .capture_phase = 1,
    .adopt_phase = 1,
    .phases = { { "keep", PD_WHOLE, keep_gradient, { 0 }, NULL }, { "show", PD_WHOLE, show_root, { 0 }, NULL } },
};

enum { MOST = 16 };
static float gradient[MOST] = { 1 }, weights[MOST];

/* Makes an optimizer of a parameter with n elements and begins a step. The cost of the step's preconditioner task is
 * proportional to n. */
static pd_optim *begin_step(int n)
{
    pd_declaration declaration = { .name = "w", .shape = { 1, { n } } };
    pd_optim *optim;

    pd_hypers_init(&declaration.hypers, &row);
    assert_int_equal(pd_optim_new(&optim, &declaration, no_stats, NULL), PD_OK);
    assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ gradient, weights, weights, NULL, 0, NULL, NULL }), PD_OK);
    assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
    return optim;
}

static void submit(pd_precond_pool *pool, pd_optim *optim, uint32_t param)
{
    pd_task *task = pd_optim_capture(optim);
    assert_non_null(task);
    assert_int_equal(pd_precond_pool_submit(pool, task, 7, param), PD_OK);
}

static pd_precond_pool *start(int threads, pd_mailbox *done)
{
    pd_precond_pool *pool;

    atomic_store(&n_order, 0);
    atomic_store(&running, 0);
    assert_int_equal(pd_precond_pool_start(&pool, threads, done, NULL), PD_OK);
    return pool;
}

static void wait_until_runs(int n)
{
    for (int i = 0; atomic_load(&running) < n; i++) {
        assert_true(i < 10000);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

/* Delivers n finished tasks to their optimizers. `optims` is indexed by parameter. Returns how many of the tasks
 * were run. */
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

TEST(brings_every_task_home_with_its_result)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_precond_pool *pool = start(3, done);
    pd_optim *optims[MOST];

    for (int i = 0; i < MOST; i++) submit(pool, optims[i] = begin_step(1), (uint32_t)i);
    assert_int_equal(collect(done, optims, MOST), MOST);
    assert_true(weights[0] == 2); /* the weights show that the step used the root */
    pd_precond_pool_stop(pool);
    pd_mailbox_free(done);
}

TEST(runs_light_tasks_on_all_its_threads)
{
    double heavy = unit_cost;

    unit_cost = 1;
    brings_every_task_home_with_its_result(NULL);
    unit_cost = heavy;
}

TEST(runs_the_largest_first)
{
    static const int cost[] = { 9, 3, 7, 1, 8 }; /* costs of the tasks: the first occupies the only thread, the
                                                  * others wait */
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_precond_pool *pool;
    pd_optim *optims[5];

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
    pd_precond_pool_stop(pool);
    pd_mailbox_free(done);
}

TEST(its_threads_are_nicer_and_have_no_team)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_precond_pool *pool = start(1, done);
    pd_optim *optim = begin_step(1);
    int mine = getpriority(PRIO_PROCESS, 0);

    submit(pool, optim, 0);
    collect(done, &optim, 1);
    assert_int_equal(atomic_load(&niceness), mine + 10 < 19 ? mine + 10 : 19);
    assert_int_equal(atomic_load(&team), 1);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), mine);
    pd_precond_pool_stop(pool);
    pd_mailbox_free(done);
}

static void next_step(pd_optim *optim)
{
    assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ gradient, weights, weights, NULL, 0, NULL, NULL }), PD_OK);
    assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
}

/* Delivers the tasks that come back to their optimizers, until at least n have come. */
static void deliver_all(pd_mailbox *done, pd_optim **optims, int n)
{
    bool closed;

    for (int got = 0; got < n;) {
        pd_mail *mail = pd_mailbox_wait(done, UINT64_MAX, &closed), *next;
        for (; mail != NULL; mail = next, got++) {
            pd_request *request = (pd_request *)(void *)mail;
            next = mail->next;
            pd_optim_deliver(optims[request->u.task.param], request->u.task.task);
            pd_request_free(request);
        }
    }
}

/* Starts a pool of one thread, which a task of parameter 0 keeps busy until the gate opens. Tasks that are submitted
 * afterwards wait. */
static pd_precond_pool *start_busy(pd_mailbox *done, pd_optim **first)
{
    pd_precond_pool *pool;

    atomic_store(&gate_shut, 1);
    pool = start(1, done);
    submit(pool, *first = begin_step(1), 0);
    wait_until_runs(1);
    return pool;
}

/* Runs a light task of parameter i, which comes back while the gate is still shut. */
static void run_light(pd_precond_pool *pool, pd_mailbox *done, pd_optim **optims, uint32_t i)
{
    double heavy = unit_cost;

    unit_cost = 1;
    submit(pool, optims[i] = begin_step(1), i);
    deliver_all(done, optims, 1);
    unit_cost = heavy;
}

TEST(a_light_task_is_run_while_a_heavy_one_keeps_the_only_thread)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_optim *optims[2];
    pd_precond_pool *pool = start_busy(done, &optims[0]);

    run_light(pool, done, optims, 1);
    assert_int_equal(pd_batch_run(&optims[1], 1, 1), PD_OK);
    assert_int_equal(pd_optim_root_stats(optims[1]).adopted, 1);
    atomic_store(&gate_shut, 0);
    deliver_all(done, optims, 1);
    pd_precond_pool_stop(pool);
    pd_optim_free(optims[0]);
    pd_optim_free(optims[1]);
    pd_mailbox_free(done);
}

/* Opens the gate when the pool has begun to stop: then its thread for light tasks, which is idle, has ended. */
static void *open_gate(void *arg)
{
    const int *light = arg;

    for (int i = 0; syscall(SYS_tgkill, getpid(), *light, 0) == 0 && i < 10000; i++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    atomic_store(&gate_shut, 0);
    return NULL;
}

TEST(stopping_finishes_what_runs_and_gives_back_what_waits_as_failed)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_optim *optims[5];
    pd_precond_pool *pool = start_busy(done, &optims[0]);
    pthread_t opener;
    int light;

    run_light(pool, done, optims, 4);
    light = atomic_load(&runner);
    for (int i = 1; i < 4; i++) submit(pool, optims[i] = begin_step(1), (uint32_t)i);
    assert_int_equal(pthread_create(&opener, NULL, open_gate, &light), 0);
    pd_precond_pool_stop(pool);
    pthread_join(opener, NULL);
    assert_int_equal(collect(done, optims, 4), 1);
    pd_optim_free(optims[4]);
    pd_mailbox_free(done);
}

/* Two larger tasks of job 7 wait when job 8 submits its task. The task of job 8 is run first. */
TEST(a_small_jobs_task_is_next_beside_a_job_that_is_behind)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_optim *optims[4];
    pd_precond_pool *pool = start_busy(done, &optims[0]);

    submit(pool, optims[1] = begin_step(9), 1);
    submit(pool, optims[2] = begin_step(8), 2);
    optims[3] = begin_step(2);
    assert_int_equal(pd_precond_pool_submit(pool, pd_optim_capture(optims[3]), 8, 3), PD_OK);
    atomic_store(&gate_shut, 0);
    deliver_all(done, optims, 4);
    assert_int_equal(atomic_load(&order[1]), 2);
    pd_precond_pool_stop(pool);
    for (int i = 0; i < 4; i++) pd_optim_free(optims[i]);
    pd_mailbox_free(done);
}

/* Returns whether task number i in the order of running was chosen by age: it is then the oldest of its job,
 * whatever it costs. */
static bool is_aged(int i)
{
    return (i + 1) % PD_PRECOND_QUEUE_AGED == 0;
}

TEST(orders_thousands_of_tasks_by_cost_then_by_age)
{
    enum { N = 3000 };
    static pd_optim *optims[N + 1];
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_precond_pool *pool = start_busy(done, &optims[0]);

    for (int i = 1; i <= N; i++) {
        gradient[0] = (float)i;
        submit(pool, optims[i] = begin_step(1 + i * 7919 % 16), (uint32_t)i);
    }
    gradient[0] = 1;
    atomic_store(&gate_shut, 0);
    assert_int_equal(collect(done, optims, N + 1), N + 1);
    for (int i = 2, last = 1; i <= N; i++) {
        int before = atomic_load(&order[last]), now = atomic_load(&order[i]);
        if (is_aged(i)) continue;
        assert_true(now < before || (now == before && atomic_load(&statistics[i]) > atomic_load(&statistics[last])));
        last = i;
    }
    pd_precond_pool_stop(pool);
    pd_mailbox_free(done);
}

TEST(a_newer_task_replaces_one_that_waits_where_roots_are_adopted_when_ready)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_optim *optims[2];
    pd_precond_pool *pool;
    pd_root_stats stats;

    root_delay = PD_ROOT_READY;
    pool = start_busy(done, &optims[0]);
    submit(pool, optims[1] = begin_step(3), 1);
    for (int s = 0; s < 5; s++) {
        gradient[0] = (float)(s + 2);
        next_step(optims[1]);
        submit(pool, optims[1], 1);
        deliver_all(done, optims, 1); /* the older task comes back unrun at once */
    }
    assert_int_equal(atomic_load(&n_order), 0);
    atomic_store(&gate_shut, 0);
    deliver_all(done, optims, 2);
    next_step(optims[1]);
    stats = pd_optim_root_stats(optims[1]);
    assert_int_equal(stats.replaced, 5);
    assert_int_equal(stats.adopted, 1);
    assert_int_equal(stats.failed + stats.waits, 0);
    assert_true(weights[0] == 2 * 6); /* the root of the newest statistics */
    submit(pool, optims[1], 1);       /* no older task waits: this one is run */
    deliver_all(done, optims, 1);
    next_step(optims[1]);
    assert_int_equal(pd_optim_root_stats(optims[1]).adopted, 2);
    gradient[0] = 1;
    root_delay = 0;
    pd_precond_pool_stop(pool);
    pd_optim_free(optims[0]);
    pd_optim_free(optims[1]);
    pd_mailbox_free(done);
}

TEST(a_replaceable_task_of_a_forgotten_job_is_forgotten_too)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_optim *optims[2];
    pd_precond_pool *pool;

    root_delay = PD_ROOT_READY;
    pool = start_busy(done, &optims[0]);
    submit(pool, optims[1] = begin_step(3), 1);
    pd_precond_pool_forget(pool, 7);
    deliver_all(done, optims, 1);
    next_step(optims[1]);
    submit(pool, optims[1], 1);
    assert_null(pd_mailbox_take(done)); /* it replaced none */
    atomic_store(&gate_shut, 0);
    deliver_all(done, optims, 2);
    root_delay = 0;
    pd_precond_pool_stop(pool);
    pd_optim_free(optims[0]);
    pd_optim_free(optims[1]);
    pd_mailbox_free(done);
}

TEST(roots_of_a_parameter_do_not_replace_each_other)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_optim *optims[3];
    pd_precond_pool *pool;

    root_delay = PD_ROOT_READY;
    pool = start_busy(done, &optims[0]);
    roots = 4;
    for (uint32_t p = 1; p < 3; p++) {
        optims[p] = begin_step(2);
        for (int i = 0; i < 4; i++) submit(pool, optims[p], p);
    }
    atomic_store(&gate_shut, 0);
    deliver_all(done, optims, 9);
    assert_int_equal(atomic_load(&n_order), 9);
    roots = 1;
    root_delay = 0;
    pd_precond_pool_stop(pool);
    for (int p = 0; p < 3; p++) pd_optim_free(optims[p]);
    pd_mailbox_free(done);
}

/* A root is computed in every step and used one step later. When step 2 hands out its task, the task of step 1 may
 * still wait in the queue. The task of step 1 must be run, because step 2 waits for its root. */
TEST(a_task_that_is_awaited_is_never_replaced)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_optim *optims[2];
    pd_precond_pool *pool = start_busy(done, &optims[0]);

    root_delay = 1;
    submit(pool, optims[1] = begin_step(3), 1);
    next_step(optims[1]);
    assert_true(pd_optim_waits(optims[1]));
    submit(pool, optims[1], 1);
    atomic_store(&gate_shut, 0);
    deliver_all(done, optims, 3);
    assert_int_equal(pd_batch_run(&optims[1], 1, 1), PD_OK);
    assert_int_equal(pd_optim_root_stats(optims[1]).adopted, 1);
    assert_int_equal(pd_optim_root_stats(optims[1]).failed, 0);
    root_delay = 0;
    pd_precond_pool_stop(pool);
    pd_optim_free(optims[0]);
    pd_optim_free(optims[1]);
    pd_mailbox_free(done);
}

TEST(what_waits_of_a_forgotten_job_comes_home_unrun_at_once)
{
    enum { N = 100 };
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_optim *optims[N];
    pd_precond_pool *pool = start_busy(done, &optims[0]);

    for (int i = 1; i < N; i++) {
        optims[i] = begin_step(1 + i % 16);
        assert_int_equal(pd_precond_pool_submit(pool, pd_optim_capture(optims[i]), i % 2 == 0 ? 7 : 8, (uint32_t)i),
                         PD_OK);
    }
    pd_precond_pool_forget(pool, 8);
    deliver_all(done, optims, N / 2); /* the tasks of job 8 come back while the gate is still shut */
    assert_int_equal(atomic_load(&n_order), 0);
    pd_precond_pool_forget(pool, 9); /* nobody */
    atomic_store(&gate_shut, 0);
    deliver_all(done, optims, N / 2);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pd_batch_run(&optims[i], 1, 1), PD_OK);
        assert_int_equal(pd_optim_root_stats(optims[i]).adopted, i % 2 == 0);
        pd_optim_free(optims[i]);
    }
    for (int i = 2, last = 1; i < N / 2; i++) {
        if (is_aged(i)) continue;
        assert_true(atomic_load(&order[i]) <= atomic_load(&order[last]));
        last = i;
    }
    pd_precond_pool_stop(pool);
    pd_mailbox_free(done);
}

TEST(a_task_has_one_blas_thread)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_precond_pool *pool = start(2, done);
    pd_optim *optim = begin_step(1);

    gemm_size = 512;
    atomic_store(&threads_in_gemm, 1); /* the task overwrites this with the number of threads that BLAS added */
    submit(pool, optim, 0);
    collect(done, &optim, 1);
    gemm_size = 0;
    assert_true(atomic_load(&threads_in_gemm) <= 0); /* below 0 if an old thread disappears during the count */
    pd_precond_pool_stop(pool);
    pd_mailbox_free(done);
}

TEST(a_root_that_the_pool_has_no_memory_for_counts_as_failed)
{
    for (root_delay = PD_ROOT_READY; root_delay <= 0; root_delay++) {
        pd_optim *optim = begin_step(1);
        pd_effect *effect = pd_effect_new(PD_EFF_TASK, (pd_ticket){ 0, 0 }, 7);
        pd_request *refused;
        effect->u.task.task = pd_optim_capture(optim);
        effect->u.task.param = 3;
        refused = pd_precond_queue_refuse(effect);
        assert_int_equal(refused->kind, PD_REQ_TASK);
        assert_int_equal(refused->job, 7);
        assert_int_equal(refused->u.task.param, 3);
        pd_optim_deliver(optim, refused->u.task.task);
        pd_request_free(refused);
        if (pd_optim_done(optim)) /* roots are used when they are ready, so the step has not waited for this one */
            assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ gradient, weights, weights, NULL, 0, NULL, NULL }),
                             PD_OK);
        assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
        assert_true(pd_optim_done(optim));
        assert_int_equal(pd_optim_root_stats(optim).failed, 1);
        assert_int_equal(pd_optim_root_stats(optim).replaced, 0);
        pd_optim_free(optim);
    }
    root_delay = 0;
}

TEST(no_memory_to_submit_leaves_the_task_with_the_caller)
{
    for (int delay = PD_ROOT_READY; delay <= 0; delay++) {
        bool hit = true;
        for (int64_t n = 0; hit; n++) {
            pd_mailbox *done = pd_mailbox_new(NULL, NULL);
            pd_precond_pool *pool = start(1, done);
            pd_optim *optim;
            pd_task *task;
            int rc;
            root_delay = delay;
            optim = begin_step(1);
            task = pd_optim_capture(optim);
            oom_arm(n);
            rc = pd_precond_pool_submit(pool, task, 7, 0);
            hit = oom_disarm();
            assert_int_equal(rc, hit ? PD_NO_MEMORY : PD_OK);
            if (hit) assert_int_equal(pd_precond_pool_submit(pool, task, 7, 0), PD_OK);
            deliver_all(done, &optim, 1);
            assert_true(n < 20);
            pd_precond_pool_stop(pool);
            pd_optim_free(optim);
            pd_mailbox_free(done);
        }
    }
    root_delay = 0;
}

TEST(stopping_nothing_is_fine)
{
    pd_precond_pool_stop(NULL);
    pd_precond_pool_forget(NULL, 1);
}
