/* Tests the figures about a job's matrix roots in replies to operators and in the log, and the memory that a
 * declaration counts for roots. Roots are computed by preconditioner tasks, beside the steps. */
#include "test.h"
#include "coupled_row.h"
#include "optimizer.h"
#include "optimizer_ops.h"
#include "rig.h"
#include "stacked_row.h"

/* An optimizer that exists only to test memory. For a vector of n elements it keeps statistics and a root, each an n
 * by n matrix. With `temporary`, it also needs a temporary vector of n elements. */
enum { SQUARE_DELAY, SQUARE_TEMPORARY };
static const pd_hyper square_hypers[] = {
    { "delay", PD_INT, 0, -1, 100, NULL, "root delay", false, false },
    { "temporary", PD_FLAG, 0, 0, 1, NULL, "a temporary slot", false, false },
    { .name = NULL },
};

static int square_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    int64_t n = declaration->shape.dim[0];
    pd_slot_spec statistics = { .name = "statistics", .shape = { 2, { n, n } } },
                 root = { .name = "root", .shape = { 2, { n, n } } };
    pd_slot_spec temporary = { .name = "direction", .number = -1, .shape = declaration->shape, .temporary = true };
    pd_task_spec task = { .n_inputs = 1, .n_outputs = 1, .input = { 0 }, .output = { 1 }, .cost = 1 };

    (void)stats, (void)err;
    plan->root_delay = (int)declaration->hypers.value[SQUARE_DELAY];
    if (pd_plan_slot(plan, &statistics) < 0 || pd_plan_slot(plan, &root) < 0 || pd_plan_task(plan, &task) < 0)
        return PD_NO_MEMORY;
    return declaration->hypers.value[SQUARE_TEMPORARY] == 0 || pd_plan_slot(plan, &temporary) >= 0 ? PD_OK
                                                                                                   : PD_NO_MEMORY;
}

static void stand_still(const pd_unit *unit)
{
    memcpy(unit->after, unit->before, (size_t)unit->plan->elements * sizeof(float));
}
static bool never(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    return plan == NULL && hyper == NULL && count == 0 && slot == NULL;
}
static int no_root(pd_task_view *task)
{
    return task->count > 0 ? PD_OK : PD_INTERNAL;
}

static const pd_optimizer_ops square_row = {
    .name = "square",
    .hypers = square_hypers,
    .plan = square_plan,
    .due = never,
    .task = no_root,
    .phases = { { "stand_still", PD_WHOLE, stand_still, { 0 }, NULL } },
};

static const pd_optimizer_ops *rows[] = { &coupled_row, &square_row, &stacked_row, NULL, NULL };

static void set_up(rig *r)
{
    pd_store_config config = rig_config();

    rows[3] = pd_optim_find("kron");
    config.rows = rows;
    config.max_total_bytes = 1 << 24;
    rig_new(r, &config);
}

/* Takes one step of one parameter with one worker. Every element of the gradient is `value`. */
static void step(rig *r, uint32_t job, uint32_t param, uint64_t number, int64_t n, float value)
{
    float *gradient = malloc((size_t)n * sizeof *gradient);

    for (int64_t i = 0; i < n; i++) gradient[i] = value;
    assert_int_equal(rig_push(r, job, 0, 10, number, param, gradient, n), PD_OK);
    rig_work(r);
    free(gradient);
}

static bool says(const char *text, const char *what)
{
    return strstr(text, what) != NULL;
}

static void drop(rig *r)
{
    pd_request *request = pd_request_new(PD_REQ_DROP, rig_ticket(r, 1));

    request->u.info.job_name = strdup("job");
    assert_int_equal(rig_apply(r, request), PD_OK);
}

FIXTURE(rig, set_up, rig_free);

TEST(a_root_that_fails_is_logged_at_powers_of_two, rig *r)
{
    static const int64_t n = 4;
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, "nonfinite=apply", "* coupled block_size=4 interval=1");

    step(r, job, 0, 1, n, 1);
    assert_int_equal(r->warnings, 0);
    for (uint64_t s = 2; s <= 20; s++)
        step(r, job, 0, s, n, NAN); /* the root fails 19 times, of which failures 1, 2, 4, 8 and 16 are logged */
    assert_int_equal(r->warnings, 5);
    assert_true(says(r->warning, "job job: root root.0 of p0, size (4,), failed by step 17 (16 times so far), error "
                                 "nan: the last good root stays in use"));
    assert_int_equal(r->versions[job][0].step, 20); /* training goes on */
}

TEST(a_root_that_is_good_again_is_logged_once, rig *r)
{
    static const int64_t n = 4;
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, NULL,
                             "* coupled block_size=4 interval=1 root_delay=1 spoil=error spoil_at=2");
    uint64_t logs;

    for (uint64_t s = 1; s <= 3; s++) step(r, job, 0, s, n, 1);
    assert_int_equal(r->warnings, 1);
    assert_true(says(r->warning, "by step 3 (1 times so far)"));
    logs = r->logs;
    for (uint64_t s = 4; s <= 9; s++) step(r, job, 0, s, n, 1);
    assert_int_equal(r->warnings, 1);
    assert_int_equal(r->logs, logs + 1);
    assert_true(says(r->log, "root root.0 of p0, size (4,), recovered at step 4"));
}

TEST(many_roots_that_fail_together_take_few_lines, rig *r)
{
    static const int64_t n = 40;
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, "nonfinite=apply", "* coupled block_size=4 interval=1");

    step(r, job, 0, 1, n, NAN);
    assert_int_equal(r->warnings, 4);
    assert_true(says(r->warning, "7 more roots of p0"));
}

TEST(the_log_warns_that_ready_roots_are_not_reproducible, rig *r)
{
    static const int64_t n = 4;

    rig_start(r, "job", 1, 10, &n, 1, NULL, "* coupled root_delay=5");
    assert_int_equal(r->warnings, 0);
    rig_start(r, "other", 1, 20, &n, 1, NULL, "* coupled root_delay=-1");
    assert_int_equal(r->warnings, 1);
    assert_true(says(r->warning, "job other: roots of 1 parameters") && says(r->warning, "not reproducible"));
}

static pd_info *ask_roots(rig *r, const char *pattern, uint64_t start)
{
    pd_request *request = pd_request_new(PD_REQ_INFO, rig_ticket(r, 1));

    request->u.info.what = PD_INFO_ROOTS;
    request->u.info.job_name = strdup("job");
    request->u.info.pattern = pattern != NULL ? strdup(pattern) : NULL;
    request->u.info.start = start;
    assert_int_equal(rig_apply(r, request), PD_OK);
    return r->info;
}

TEST(roots_are_listed_page_by_page, rig *r)
{
    static const int64_t sizes[3] = { 300, 7, 500 }; /* each element is a block, so there are as many roots as
                                                      * elements */
    uint64_t seen = 0;

    rig_start(r, "job", 1, 10, sizes, 3, NULL, "* coupled block_size=1");
    do {
        pd_info *info = ask_roots(r, NULL, seen);
        assert_int_equal(info->total, 807);
        assert_int_equal(info->n_roots, 807 - seen < PD_INFO_PAGE ? 807 - seen : PD_INFO_PAGE);
        for (size_t i = 0; i < info->n_roots; i++, seen++) {
            uint64_t number = seen < 300 ? seen : seen < 307 ? seen - 300 : seen - 307;
            char name[32];
            snprintf(name, sizeof name, "root.%d", (int)number);
            assert_string_equal(info->roots[i].root, name);
            assert_string_equal(info->roots[i].param, seen < 300 ? "p0" : seen < 307 ? "p1" : "p2");
        }
    } while (r->info->start + r->info->n_roots < r->info->total);
    assert_int_equal(seen, 807);
    assert_int_equal(ask_roots(r, NULL, 807)->n_roots, 0);
    assert_int_equal(ask_roots(r, NULL, UINT64_MAX)->n_roots, 0);
}

TEST(roots_are_listed_by_pattern, rig *r)
{
    static const int64_t sizes[3] = { 6, 7, 8 };

    rig_start(r, "job", 1, 10, sizes, 3, NULL, "p2 square;* coupled block_size=1");
    assert_int_equal(ask_roots(r, "p[02]", 0)->total, 7);
    assert_string_equal(r->info->roots[6].param, "p2");
    assert_string_equal(r->info->roots[6].root, "root.0");
    assert_int_equal(r->info->roots[6].shape.rank, 2);
    assert_int_equal(ask_roots(r, "p1", 3)->n_roots, 4);
    assert_int_equal(ask_roots(r, "none", 0)->total, 0);
    assert_int_equal(ask_roots(r, "", 0)->total, 14);
}

/* In p0, a block's root is a box inside a tensor that all blocks share. In p1, it is one item of a stack of
 * matrices. */
TEST(a_share_of_a_block_is_listed_by_the_block, rig *r)
{
    static const int64_t sizes[2] = { 6, 6 };
    const pd_info *info;

    rig_start(r, "job", 1, 10, sizes, 2, NULL,
              "p0 stacked block_size=4;p1 kron block_size=4 min_ndim_triangular=1 merge_small_dims=no pad_blocks=no");
    info = ask_roots(r, NULL, 0);
    assert_int_equal(info->total, 4);
    assert_string_equal(info->roots[1].root, "block_1.trace");
    assert_true(pd_shape_equal(&info->roots[1].shape, &(pd_shape){ 1, { 2 } }));
    assert_string_equal(info->roots[3].root, "block_1.Q.0");
    assert_true(pd_shape_equal(&info->roots[3].shape, &(pd_shape){ 2, { 4, 4 } }));
}

TEST(a_root_shows_its_age_and_its_failures, rig *r)
{
    static const int64_t n = 4;
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, NULL,
                             "* coupled block_size=4 interval=3 root_delay=1 spoil=error spoil_at=6");
    const pd_root_info *root;

    for (uint64_t s = 1; s <= 3; s++) step(r, job, 0, s, n, 1);
    root = &ask_roots(r, NULL, 0)->roots[0];
    assert_int_equal(root->adopted, 0);
    assert_int_equal(root->age, 3);
    step(r, job, 0, 4, n, 1); /* step 4 begins to use the root that was computed from step 3 */
    root = &ask_roots(r, NULL, 0)->roots[0];
    assert_int_equal(root->adopted, 1);
    assert_int_equal(root->age, 1);
    assert_true(root->error == 3 && root->kept_error < 0);
    for (uint64_t s = 5; s <= 8; s++)
        step(r, job, 0, s, n, 1); /* the root that was computed from step 6 fails, so step 7 does not use it */
    root = &ask_roots(r, NULL, 0)->roots[0];
    assert_int_equal(root->adopted, 1);
    assert_int_equal(root->failed, 1);
    assert_true(root->failing);
    assert_int_equal(root->age, 5);
    assert_int_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[0].roots_failing, 1);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].roots_failing, 1);
    for (uint64_t s = 9; s <= 10; s++) step(r, job, 0, s, n, 1);
    root = &ask_roots(r, NULL, 0)->roots[0];
    assert_false(root->failing);
    assert_int_equal(root->age, 1);
}

TEST(parameters_and_jobs_sum_their_roots_up, rig *r)
{
    static const int64_t sizes[2] = { 8, 4 };
    uint32_t job;
    pd_param_info *param;
    pd_job_info *sum;

    r->lazy_tasks = true;
    job = rig_start(r, "job", 1, 10, sizes, 2, NULL,
                    "p1 coupled block_size=4 interval=9;* coupled block_size=4 interval=2 spoil=nan spoil_at=4");
    for (uint64_t s = 1; s <= 4; s++) {
        for (uint32_t p = 0; p < 2; p++) step(r, job, p, s, sizes[p], 1);
        while (r->n_tasks > 0) rig_finish_task(r, 0);
        rig_work(r);
    }
    param = rig_ask(r, PD_INFO_PARAMS, "job")->params;
    assert_int_equal(param[0].roots, 2);
    assert_int_equal(param[0].roots_failed, 2);
    assert_int_equal(param[0].roots_failing, 2);
    assert_int_equal(param[0].root_waits, 2);
    assert_int_equal(param[1].roots, 1);
    assert_int_equal(param[1].root_waits, 0);
    assert_true(param[0].root_error == 4 && param[1].root_error == 0);
    sum = rig_ask(r, PD_INFO_JOBS, NULL)->jobs;
    assert_int_equal(sum->roots_due, 4);
    assert_int_equal(sum->roots_adopted, 2);
    assert_int_equal(sum->roots_failed, 2);
    assert_int_equal(sum->root_waits, 2);
}

TEST(roots_are_shown_while_a_parameter_waits, rig *r)
{
    static const int64_t n = 8;
    uint32_t job;

    r->lazy_tasks = true;
    job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* coupled block_size=4 interval=1");
    step(r, job, 0, 1, n, 1);
    assert_int_equal(r->n_tasks, 2);
    assert_int_equal(ask_roots(r, NULL, 0)->n_roots, 2);
    assert_int_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[0].root_waits, 1);
}

/* With root_delay=-1 (ready), a step never waits for a root. A root that comes back when a newer root is already in
 * use is dropped. */
TEST(ready_roots_never_make_a_step_wait, rig *r)
{
    static const int64_t n = 4;
    uint32_t job;
    pd_job_info *sum;

    r->lazy_tasks = true;
    job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* coupled block_size=4 interval=1 root_delay=-1");
    for (uint64_t s = 1; s <= 4; s++) step(r, job, 0, s, n, 1);
    assert_int_equal(r->versions[job][0].step, 4);
    rig_finish_task(r, 3); /* the root of step 4 comes back first */
    step(r, job, 0, 5, n, 1);
    assert_int_equal(ask_roots(r, NULL, 0)->roots[0].age, 1);
    rig_finish_task(r, 0); /* the root of step 1 comes back late and is not used */
    step(r, job, 0, 6, n, 1);
    assert_int_equal(ask_roots(r, NULL, 0)->roots[0].age, 2);
    sum = rig_ask(r, PD_INFO_JOBS, NULL)->jobs;
    assert_int_equal(sum->roots_adopted, 1);
    assert_int_equal(sum->roots_unused, 2); /* that of step 1, and that of step 5, when four were pending */
    assert_int_equal(sum->root_waits + sum->roots_failed, 0);
}

TEST(no_more_than_four_ready_roots_are_pending, rig *r)
{
    static const int64_t n = 4;
    uint32_t job;

    r->lazy_tasks = true;
    job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* coupled block_size=4 interval=1 root_delay=-1");
    for (uint64_t s = 1; s <= 7; s++) step(r, job, 0, s, n, 1);
    assert_int_equal(r->n_tasks, 4);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs->roots_due, 7);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs->roots_unused, 3);
    rig_finish_task(r, 0);
    step(r, job, 0, 8, n, 1); /* takes that root */
    assert_int_equal(r->n_tasks, 3);
    step(r, job, 0, 9, n, 1);
    assert_int_equal(r->n_tasks, 4); /* there was room for the root of step 9 */
}

TEST(a_job_may_be_dropped_while_its_tasks_are_pending, rig *r)
{
    static const int64_t n = 8;
    uint32_t job;

    r->lazy_tasks = true;
    job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* coupled block_size=1 interval=1 root_delay=1");
    step(r, job, 0, 1, n, 1);
    drop(r);
    assert_true(pd_store_count_bytes(r->store).state > 0); /* the optimizer state of the dropped job stays until all
                                                            * its preconditioner tasks are back */
    while (r->n_tasks > 0) rig_finish_task(r, 0);
    assert_int_equal(pd_store_count_bytes(r->store).state, 0);
}

static int declare(rig *r, const char *rules, int64_t n)
{
    static const char *const names[2] = { "small", "large" };
    pd_shape shapes[2] = { { 1, { 4 } }, { 1, { n } } };

    assert_int_equal(rig_hello(r, "job", 0, 1, 1, 10, NULL, rules), PD_OK);
    return rig_declare(r, r->job, 0, 10, names, shapes, NULL, 2, PD_F32);
}

/* Returns the largest number of elements with which a job of one vector still fits into the memory limit. */
static int64_t largest(rig *r, const char *rules)
{
    int64_t low = 1, high = 1 << 20;

    while (high - low > 1) {
        int64_t n = low + (high - low) / 2;
        if (declare(r, rules, n) == PD_OK)
            low = n;
        else
            high = n;
        drop(r);
    }
    return low;
}

TEST(copies_of_root_tasks_count_into_the_limit, rig *r)
{
    /* The limit of 16 MiB is 4,194,304 floats. A vector of n elements needs 2 n^2 floats for its state and 2 n^2 for
     * a preconditioner task. With a delay, two tasks may be pending, which need 4 n^2. */
    assert_in_range(largest(r, "* square"), 1020, 1024);
    assert_in_range(largest(r, "* square delay=1"), 832, 837);
    assert_in_range(largest(r, "* square delay=-1"), 832, 837);
}

TEST(temporaries_of_a_step_count_into_the_limit, rig *r)
{
    int64_t without, with;

    /* floats for a vector of n elements: 3 n for weights and sum, 2 n for state, 2 n for tasks, n for the temporary
     * slot, n for scratch memory */
    without = largest(r, "* coupled block_size=100000 interval=9");
    with = largest(r, "* coupled block_size=20000 interval=9");
    assert_in_range(without, 4194304 / 13,
                    4194304 / 12); /* the 9 n floats listed above, 0.4 n for chunks, and 3.2 n that small allocations
                                    * waste */
    assert_true(with > without);   /* smaller blocks need less scratch memory, so a larger vector fits */
}

TEST(a_parameter_beyond_the_limit_is_refused_with_its_bytes_and_nothing_is_allocated, rig *r)
{
    assert_int_equal(declare(r, "* square", 60000), PD_RESOURCE_EXHAUSTED);
    assert_true(says(r->error.text, "parameter large needs 57600")); /* 4 matrices of 60,000^2 floats of 4 bytes, and
                                                                      * a little more */
    assert_true(says(r->error.text, "optimizer state 288000"));      /* 2 of the matrices and the bytes of the
                                                                      * parameter's plan */
    assert_true(says(r->error.text, "roots under way 28800000000"));
    assert_true(says(r->error.text, "of 16777216 allowed for all jobs"));
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].params, 0);
    assert_int_equal(pd_store_count_bytes(r->store).state, 0);
}

TEST(byte_counts_that_overflow_are_refused_as_well)
{
    pd_store_config config = rig_config();
    rig r;

    config.rows = rows;
    config.max_total_bytes = (uint64_t)1 << 60;
    rig_new(&r, &config);
    assert_int_equal(declare(&r, "* square delay=3", (int64_t)3 << 30), PD_RESOURCE_EXHAUSTED);
    assert_true(says(r.error.text, "parameter large needs"));
    rig_free(&r);
}

TEST(memory_of_other_jobs_is_not_available, rig *r)
{
    static const int64_t n = 600;

    rig_start(r, "first", 1, 20, &n, 1, NULL, "* square");
    assert_int_equal(declare(r, "* square", 960), PD_RESOURCE_EXHAUSTED);
    assert_true(says(r->error.text, "are taken by other jobs"));
    assert_int_equal(declare(r, "* square", 720), PD_OK);
}
