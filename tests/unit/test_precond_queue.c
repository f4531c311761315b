/* Tests which preconditioner task the queue gives next. */
#include "test.h"
#include "batch.h"
#include "optimizer.h"
#include "optimizer_ops.h"
#include "precond_queue.h"

/* Tasks of any wanted cost: each parameter has one element and one root. */

static int root_delay;
static double cost;
static const pd_hyper none[] = { { .name = NULL } };

static int plan_one(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    pd_task_spec task = { .n_inputs = 1, .n_outputs = 1, .input = { 0 }, .output = { 1 }, .cost = cost };
    (void)declaration, (void)stats, (void)err;

    plan->root_delay = root_delay;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "statistics", .number = -1 }) < 0) return PD_NO_MEMORY;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "root", .number = -1 }) < 0) return PD_NO_MEMORY;
    return pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

static int root(pd_task_view *task)
{
    task->output[0][0] = task->input[0][0];
    return PD_OK;
}

static void keep(const pd_unit *unit)
{
    unit->slot[0][0] = unit->gradient[0];
}
static void show(const pd_unit *unit)
{
    unit->after[0] = unit->slot[1][0];
}

static bool always(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    return plan != NULL && hyper != NULL && count > 0 && slot != NULL;
}

static const pd_optimizer_ops row = {
    .name = "one",
    .hypers = none,
    .plan = plan_one,
    .due = always,
    .task = root,
    .capture_phase = 1,
    .adopt_phase = 1,
    .phases = { { "keep", PD_WHOLE, keep, { 0 }, NULL }, { "show", PD_WHOLE, show, { 0 }, NULL } },
};

/* Makes a task of the wanted cost. If `awaited`, a step waits for its root; otherwise the root is used when it is
 * ready. */
static pd_task *new_task(double wanted_cost, bool awaited)
{
    static const double no_stats[PD_MAX_MODEL_STATS];
    static float gradient[1] = { 1 }, weights[1];
    pd_declaration declaration = { .name = "w", .shape = { 1, { 1 } } };
    pd_optim *optim;
    pd_task *task;

    cost = wanted_cost;
    root_delay = awaited ? 0 : PD_ROOT_READY;
    pd_hypers_init(&declaration.hypers, &row);
    assert_int_equal(pd_optim_new(&optim, &declaration, no_stats, NULL), PD_OK);
    assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ gradient, weights, weights, NULL, 0, NULL, NULL }), PD_OK);
    assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
    assert_non_null(task = pd_optim_capture(optim));
    pd_optim_free(optim);
    return task;
}

enum { HEAVY = 100000000 };

static pd_request *add(pd_precond_queue *queue, pd_task *task, uint32_t job, uint32_t param)
{
    pd_request *unrun;

    assert_int_equal(pd_precond_queue_add(queue, task, job, param, &unrun), PD_OK);
    return unrun;
}

/* Adds a task whose root a step waits for. */
static void add_due(pd_precond_queue *queue, double wanted_cost, uint32_t job, uint32_t param)
{
    assert_null(add(queue, new_task(wanted_cost, true), job, param));
}

static void end(pd_request *home)
{
    assert_non_null(home);
    assert_int_equal(home->kind, PD_REQ_TASK);
    pd_task_free(home->u.task.task);
    pd_request_free(home);
}

/* Takes the next task from the queue. Returns the task's parameter. */
static uint32_t take_param(pd_precond_queue *queue, pd_precond_queue_choice choice)
{
    pd_request *home = pd_precond_queue_take(queue, choice);
    uint32_t param;

    assert_non_null(home);
    param = home->u.task.param;
    end(home);
    return param;
}

static uint32_t take_job(pd_precond_queue *queue, pd_precond_queue_choice choice)
{
    pd_request *home = pd_precond_queue_take(queue, choice);
    uint32_t job;

    assert_non_null(home);
    job = home->job;
    end(home);
    return job;
}

static void empty_and_free(pd_precond_queue *queue)
{
    pd_request *home;

    while ((home = pd_precond_queue_take(queue, PD_PRECOND_QUEUE_ALL)) != NULL) end(home);
    pd_precond_queue_free(queue);
}

static pd_precond_queue *queue_new(void)
{
    pd_precond_queue *queue = pd_precond_queue_new();

    assert_non_null(queue);
    return queue;
}

static uint64_t state;
static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

/* Draws a cost, from 0 to far above the cost of a light task. */
static double draw_cost(void)
{
    double c = draw(10);

    for (uint32_t i = draw(11); i > 0; i--) c *= 10;
    return c;
}

TEST(takes_tasks_that_are_awaited_before_larger_ones_that_are_used_when_ready)
{
    pd_precond_queue *queue = queue_new();

    assert_null(add(queue, new_task(9 * HEAVY, false), 1, 1));
    add_due(queue, HEAVY, 1, 2);
    add_due(queue, 2 * HEAVY, 1, 3);
    assert_int_equal(take_param(queue, PD_PRECOND_QUEUE_ALL), 3);
    assert_int_equal(take_param(queue, PD_PRECOND_QUEUE_ALL), 2);
    assert_int_equal(take_param(queue, PD_PRECOND_QUEUE_ALL), 1);
    pd_precond_queue_free(queue);
}

TEST(takes_the_older_of_equal_tasks_first)
{
    pd_precond_queue *queue = queue_new();

    for (uint32_t i = 0; i < 100; i++) add_due(queue, HEAVY, 1, i);
    for (uint32_t i = 0; i < 100; i++) assert_int_equal(take_param(queue, PD_PRECOND_QUEUE_ALL), i);
    pd_precond_queue_free(queue);
}

/* Checks that the last of some small tasks is taken after a bounded number of tasks, although larger, awaited tasks
 * of the same job are added without end. */
static void assert_aged(pd_precond_queue_choice choice, double small, double large)
{
    enum { OLDER = 20 };
    pd_precond_queue *queue = queue_new();
    int taken = 0;

    for (uint32_t i = 0; i <= OLDER; i++) assert_null(add(queue, new_task(small, false), 1, i));
    do {
        add_due(queue, large, 1, OLDER + 1);
        assert_true(++taken <= PD_PRECOND_QUEUE_AGED * (OLDER + 1));
    } while (take_param(queue, choice) != OLDER);
    empty_and_free(queue);
}

HOLDS(a_task_waits_for_a_bounded_number_of_its_jobs_tasks, assert_aged(PD_PRECOND_QUEUE_ALL, HEAVY, 2 * HEAVY));

HOLDS(a_light_task_waits_for_a_bounded_number_of_its_jobs_heavy_tasks, assert_aged(PD_PRECOND_QUEUE_ALL, 1, HEAVY));

HOLDS(a_light_task_waits_for_a_bounded_number_of_its_jobs_light_tasks, assert_aged(PD_PRECOND_QUEUE_LIGHT, 1, 2));

TEST(a_new_jobs_task_is_next_beside_a_job_that_is_always_behind)
{
    pd_precond_queue *queue = queue_new();

    for (uint32_t i = 0; i < 100; i++) add_due(queue, HEAVY, 1, i);
    for (int i = 0; i < 10; i++) assert_int_equal(take_job(queue, PD_PRECOND_QUEUE_ALL), 1);
    for (uint32_t i = 0; i < 10; i++) {
        add_due(queue, 1, 2, i);
        assert_int_equal(take_job(queue, PD_PRECOND_QUEUE_ALL), 2);
    }
    empty_and_free(queue);
}

TEST(jobs_that_are_always_behind_share_the_pool_evenly_whatever_their_tasks_cost)
{
    static const double costs[] = { HEAVY, 7.0 * HEAVY, 50.0 * HEAVY };
    double service[3] = { 0 };
    pd_precond_queue *queue = queue_new();

    for (uint32_t j = 0; j < 3; j++) add_due(queue, costs[j], j, 0);
    while (service[0] + service[1] + service[2] < 3000.0 * HEAVY) {
        uint32_t j = take_job(queue, PD_PRECOND_QUEUE_ALL);
        service[j] += costs[j];
        add_due(queue, costs[j], j, 0);
    }
    for (int j = 0; j < 3; j++) assert_true(service[j] > 940.0 * HEAVY && service[j] < 1060.0 * HEAVY);
    empty_and_free(queue);
}

TEST(tasks_that_cost_nothing_do_not_keep_another_job_waiting_for_ever)
{
    pd_precond_queue *queue = queue_new();
    int taken = 0;

    add_due(queue, HEAVY, 1, 0);
    add_due(queue, HEAVY, 1, 1);
    assert_int_equal(take_job(queue, PD_PRECOND_QUEUE_ALL), 1);
    do {
        add_due(queue, 0, 2, 0);
        assert_true(++taken <= 2 + (int)(HEAVY / PD_PRECOND_QUEUE_HANDOVER));
    } while (take_job(queue, PD_PRECOND_QUEUE_ALL) != 1);
    empty_and_free(queue);
}

TEST(a_job_that_was_idle_has_no_credit)
{
    pd_precond_queue *queue = queue_new();
    int of_first = 0;

    add_due(queue, HEAVY, 2, 0); /* known, then idle */
    assert_int_equal(take_job(queue, PD_PRECOND_QUEUE_ALL), 2);
    for (uint32_t i = 0; i < 2000; i++) add_due(queue, HEAVY, 1, i);
    for (int i = 0; i < 1000; i++) assert_int_equal(take_job(queue, PD_PRECOND_QUEUE_ALL), 1);
    for (uint32_t i = 0; i < 1000; i++) add_due(queue, HEAVY, 2, i);
    for (int i = 0; i < 100; i++) of_first += take_job(queue, PD_PRECOND_QUEUE_ALL) == 1;
    assert_in_range(of_first, 49, 51);
    empty_and_free(queue);
}

/* Random jobs, of which some are adversaries that always have a task waiting. While a job waits, the total cost of
 * the tasks that the queue gives to another job stays below the bound in precond_queue.h. The total is counted from the
 * time at which the waiting job began to wait or was last served. */
enum { JOBS = 5 };
typedef struct watch {
    int waiting;
    double most, since[JOBS];
} watch; /* most: largest cost of a task of this job; since[b]: cost of the tasks given to job b */

static void watch_add(pd_precond_queue *queue, watch *w, uint32_t j)
{
    double c = draw_cost();

    if (w[j].waiting++ == 0)
        for (int b = 0; b < JOBS; b++) w[j].since[b] = 0;
    if (c + PD_PRECOND_QUEUE_HANDOVER > w[j].most) w[j].most = c + PD_PRECOND_QUEUE_HANDOVER;
    add_due(queue, c, j, draw(1000));
}

static void watch_take(pd_precond_queue *queue, watch *w, pd_precond_queue_choice choice)
{
    pd_request *home = pd_precond_queue_take(queue, choice);
    uint32_t j;

    if (home == NULL) return;
    j = home->job;
    w[j].waiting--;
    for (uint32_t a = 0; a < JOBS && choice == PD_PRECOND_QUEUE_ALL; a++) {
        if (a == j || w[a].waiting == 0) continue;
        w[a].since[j] += pd_task_cost(home->u.task.task) + PD_PRECOND_QUEUE_HANDOVER;
        assert_true(w[a].since[j] <= 1.000001 * (w[a].most + w[j].most));
    }
    for (int b = 0; b < JOBS && choice == PD_PRECOND_QUEUE_ALL; b++) w[j].since[b] = 0;
    end(home);
}

TEST(a_waiting_job_is_served_within_its_bound_beside_endless_tasks_of_others)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        pd_precond_queue *queue = queue_new();
        watch w[JOBS] = { { 0 } };
        uint32_t adversaries = seed % JOBS;
        state = seed;
        for (int turn = 0; turn < 300; turn++) {
            for (uint32_t j = 0; j < JOBS; j++)
                if ((j < adversaries && w[j].waiting == 0) || draw(4) == 0) watch_add(queue, w, j);
            watch_take(queue, w, draw(2) == 0 ? PD_PRECOND_QUEUE_LIGHT : PD_PRECOND_QUEUE_ALL);
        }
        empty_and_free(queue);
    }
}

TEST(the_thread_of_light_tasks_takes_no_others)
{
    pd_precond_queue *queue = queue_new();

    add_due(queue, 2 * PD_TASK_LIGHT, 1, 0);
    assert_null(pd_precond_queue_take(queue, PD_PRECOND_QUEUE_LIGHT));
    add_due(queue, PD_TASK_LIGHT, 1, 1);
    assert_int_equal(take_param(queue, PD_PRECOND_QUEUE_LIGHT), 1);
    assert_int_equal(take_param(queue, PD_PRECOND_QUEUE_ALL), 0);
    pd_precond_queue_free(queue);
}

TEST(other_threads_take_light_tasks_too)
{
    pd_precond_queue *queue = queue_new();

    add_due(queue, 1, 1, 0);
    assert_int_equal(take_param(queue, PD_PRECOND_QUEUE_ALL), 0);
    assert_null(pd_precond_queue_take(queue, PD_PRECOND_QUEUE_ALL));
    pd_precond_queue_free(queue);
}

TEST(the_thread_of_light_tasks_goes_round_the_jobs)
{
    uint32_t last[3];
    pd_precond_queue *queue = queue_new();

    for (uint32_t i = 0; i < 60; i++) add_due(queue, i % 3 == 0 ? 1 : 1000, i % 3, i);
    for (int i = 0; i < 60; i++) {
        uint32_t j = take_job(queue, PD_PRECOND_QUEUE_LIGHT);
        if (i >= 3) assert_int_equal(j, last[i % 3]);
        last[i % 3] = j;
    }
    assert_true(last[0] != last[1] && last[1] != last[2] && last[2] != last[0]);
    pd_precond_queue_free(queue);
}

TEST(a_newer_task_takes_the_place_of_one_that_waits)
{
    pd_precond_queue *queue = queue_new();
    pd_task *older = new_task(HEAVY, false), *newer = new_task(HEAVY, false);
    pd_request *unrun, *home;

    assert_null(add(queue, older, 1, 1));
    assert_null(add(queue, new_task(HEAVY, false), 1, 2));
    unrun = add(queue, newer, 1, 1);
    assert_non_null(unrun);
    assert_ptr_equal(unrun->u.task.task, older);
    end(unrun);
    home = pd_precond_queue_take(queue, PD_PRECOND_QUEUE_ALL);
    assert_ptr_equal(home->u.task.task, newer); /* the newer task inherits the age of the one that it replaced */
    end(home);
    assert_int_equal(take_param(queue, PD_PRECOND_QUEUE_ALL), 2);
    assert_null(pd_precond_queue_take(queue, PD_PRECOND_QUEUE_ALL));
    pd_precond_queue_free(queue);
}

TEST(a_task_that_was_taken_is_not_replaced)
{
    pd_precond_queue *queue = queue_new();

    assert_null(add(queue, new_task(HEAVY, false), 1, 1));
    take_param(queue, PD_PRECOND_QUEUE_ALL);
    assert_null(add(queue, new_task(HEAVY, false), 1, 1));
    empty_and_free(queue);
}

TEST(an_awaited_task_and_one_of_another_root_are_not_replaced)
{
    pd_precond_queue *queue = queue_new();

    add_due(queue, HEAVY, 1, 1);
    add_due(queue, HEAVY, 1, 1);
    assert_null(add(queue, new_task(HEAVY, false), 1, 2));
    assert_null(add(queue, new_task(HEAVY, false), 2, 2));
    for (int i = 0; i < 4; i++) take_job(queue, PD_PRECOND_QUEUE_ALL);
    assert_null(pd_precond_queue_take(queue, PD_PRECOND_QUEUE_ALL));
    pd_precond_queue_free(queue);
}

TEST(forgetting_a_job_gives_its_waiting_tasks_and_leaves_the_others)
{
    pd_precond_queue *queue = queue_new();
    int n = 0;

    for (uint32_t i = 0; i < 90; i++) assert_null(add(queue, new_task(draw_cost(), i % 2 == 0), i % 3, i));
    for (pd_request *home = pd_precond_queue_forget(queue, 1), *next; home != NULL; home = next, n++) {
        next = (pd_request *)(void *)home->mail.next;
        assert_int_equal(home->job, 1);
        end(home);
    }
    assert_int_equal(n, 30);
    assert_null(pd_precond_queue_forget(queue, 1));
    assert_null(add(queue, new_task(HEAVY, false), 1, 1)); /* it replaces none */
    for (n = 0; n < 61; n++) take_job(queue, PD_PRECOND_QUEUE_ALL);
    assert_null(pd_precond_queue_take(queue, PD_PRECOND_QUEUE_ALL));
    pd_precond_queue_free(queue);
}

TEST(no_memory_leaves_the_task_with_the_caller_and_the_queue_as_it_was)
{
    for (int awaited = 0; awaited <= 1; awaited++) {
        bool hit = true;
        for (int64_t n = 0; hit; n++) {
            pd_precond_queue *queue = queue_new();
            pd_task *task = new_task(HEAVY, awaited);
            pd_request *unrun;
            int rc;
            oom_arm(n);
            rc = pd_precond_queue_add(queue, task, 1, 0, &unrun);
            hit = oom_disarm();
            assert_int_equal(rc, hit ? PD_NO_MEMORY : PD_OK);
            if (hit) assert_null(pd_precond_queue_take(queue, PD_PRECOND_QUEUE_ALL));
            if (hit) assert_null(add(queue, task, 1, 0));
            assert_int_equal(take_param(queue, PD_PRECOND_QUEUE_ALL), 0);
            assert_true(n < 20);
            pd_precond_queue_free(queue);
        }
    }
}

enum { TASKS = 2000 };
typedef struct census {
    pd_task *task[TASKS];
    bool home[TASKS];
    int n;
} census;

static void come_home(census *c, pd_request *first)
{
    for (pd_request *home = first, *next; home != NULL; home = next) {
        int i = 0;
        next = (pd_request *)(void *)home->mail.next;
        while (i < c->n && (c->task[i] != home->u.task.task || c->home[i])) i++;
        assert_true(i < c->n); /* fails for a task that was never added or came back before */
        c->home[i] = true;
        end(home);
    }
}

TEST(no_task_is_lost_or_doubled_whatever_happens)
{
    static census c;
    pd_request *home;

    for (uint64_t seed = 0; seed < 5; seed++) {
        pd_precond_queue *queue = queue_new();
        c = (census){ .n = 0 };
        state = seed;
        while (c.n < TASKS) {
            pd_task *task = new_task(draw_cost(), draw(2) == 0);
            c.task[c.n++] = task;
            come_home(&c, add(queue, task, draw(6), draw(20)));
            if (draw(3) == 0) come_home(&c, pd_precond_queue_take(queue, PD_PRECOND_QUEUE_LIGHT));
            if (draw(3) == 0) come_home(&c, pd_precond_queue_take(queue, PD_PRECOND_QUEUE_ALL));
            if (draw(100) == 0) come_home(&c, pd_precond_queue_forget(queue, draw(6)));
        }
        while ((home = pd_precond_queue_take(queue, PD_PRECOND_QUEUE_ALL)) != NULL) come_home(&c, home);
        for (int i = 0; i < c.n; i++) assert_true(c.home[i]);
        pd_precond_queue_free(queue);
    }
}
