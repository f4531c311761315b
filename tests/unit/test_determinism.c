/* Tests that timing changes no bit: the number of threads, late preconditioner tasks in any order, and contributions in
 * any order. A random scheduler runs a job of three workers and several parameters. In each act, a worker pushes a
 * parameter, the store works, or one pending preconditioner task comes back. The weights and all state must equal those
 * of a run in which everything happens in order. */
#include "test.h"
#include "coupled_row.h"
#include "rig.h"
#include "store_inside.h"

enum { WORLD = 3, CONN = 10, MOST = 2048, MOST_PARAMS = 4, STEPS = 14 };

typedef struct model {
    const char *rules;
    size_t n;
    pd_shape shapes[MOST_PARAMS];
    bool coupled;               /* uses the optimizer "coupled", which belongs to this test and is not in the
                                 * daemon's table */
    int first, interval, delay; /* the same values as in `rules`: the first step that computes roots, steps between
                                 * roots, root_delay */
} model;

typedef struct manner {
    int threads;
    bool late;        /* preconditioner tasks are kept back, and return in a random order */
    uint64_t shuffle; /* seed of the random scheduler; 0: everything happens in order */
} manner;

/* The weights, state and statistics at the end of a run. */
typedef struct outcome {
    float *bytes;
    size_t n; /* number of floats in `bytes`: weights and state of all parameters */
    pd_job_info sum;
} outcome;

static int64_t elements_of(const model *m, size_t p)
{
    int64_t n = 0;
    assert_int_equal(pd_shape_elements(&m->shapes[p], &n), PD_OK);
    return n;
}

static uint32_t start(rig *r, const model *m)
{
    static const char *const names[MOST_PARAMS] = { "p0", "p1", "p2", "p3" };
    uint32_t job;

    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_int_equal(rig_hello(r, "job", rank, WORLD, CONN + rank, CONN + rank, NULL, m->rules), PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, CONN + rank, names, m->shapes, NULL, m->n, PD_F32), PD_OK);
    }
    job = r->job;
    for (size_t p = 0; p < m->n; p++) {
        float values[MOST];
        rig_noise(7 + p, values, elements_of(m, p));
        assert_int_equal(rig_init(r, job, CONN, (uint32_t)p, values, elements_of(m, p)), PD_OK);
    }
    return job;
}

static void push(rig *r, const model *m, uint32_t job, uint32_t rank, size_t p, uint64_t step)
{
    float gradient[MOST];

    rig_noise(1000 * step + 10 * p + rank, gradient, elements_of(m, p));
    assert_int_equal(rig_push(r, job, rank, CONN + rank, step, (uint32_t)p, gradient, elements_of(m, p)), PD_OK);
}

/* For each rank and parameter: the last step that the rank has pushed. */
typedef struct progress {
    uint64_t pushed[WORLD][MOST_PARAMS];
} progress;

/* Pushes the worker's next gradient of a parameter if the round of its previous gradient is closed. Returns whether
 * it pushed. */
static bool try_push(rig *r, const model *m, uint32_t job, progress *at, uint32_t rank, size_t p)
{
    uint64_t step = at->pushed[rank][p];

    if (step == STEPS || r->versions[job][p].step < step) return false;
    push(r, m, job, rank, p, ++at->pushed[rank][p]);
    return true;
}

static bool finished(const rig *r, const model *m, uint32_t job)
{
    for (size_t p = 0; p < m->n; p++)
        if (r->versions[job][p].step < STEPS) return false;
    return true;
}

/* Runs the job with a random scheduler. Preconditioner tasks are slow: one comes back at about every 64th act, and
 * steps are much faster. */
static void run_shuffled(rig *r, const model *m, uint32_t job, uint64_t seed)
{
    progress at = { 0 };

    for (int acts = 0; !finished(r, m, job); acts++) {
        uint64_t dice = rig_random(&seed);
        assert_true(acts < 1000000);
        if (dice % 64 == 0 && r->n_tasks > 0)
            rig_finish_task(r, (dice >> 8) % r->n_tasks);
        else if (dice % 8 < 4)
            try_push(r, m, job, &at, (dice >> 8) % WORLD, (dice >> 16) % m->n);
        else
            rig_work(r);
    }
}

static void run_in_turn(rig *r, const model *m, uint32_t job)
{
    progress at = { 0 };

    while (!finished(r, m, job))
        for (size_t p = 0; p < m->n; p++) {
            for (uint32_t rank = 0; rank < WORLD; rank++) assert_true(try_push(r, m, job, &at, rank, p));
            rig_work(r);
            while (r->n_tasks > 0) rig_finish_task(r, 0);
            rig_work(r);
        }
}

static void append(outcome *out, const float *values, int64_t n)
{
    out->bytes = realloc(out->bytes, (out->n + (size_t)n) * sizeof *out->bytes);
    assert_non_null(out->bytes);
    memcpy(out->bytes + out->n, values, (size_t)n * sizeof *values);
    out->n += (size_t)n;
}

static void append_state(outcome *out, const pd_optim *optim)
{
    const pd_plan *plan = pd_optim_plan(optim);
    float values[MOST];

    for (size_t i = 0; i < plan->n_slots; i++) {
        int64_t n = 0;
        if (plan->slots[i].temporary) continue;
        assert_int_equal(pd_shape_elements(&plan->slots[i].shape, &n), PD_OK);
        assert_true(n <= MOST);
        pd_optim_read_slot(optim, i, values);
        append(out, values, n);
    }
}

static outcome run(const model *m, const manner *how)
{
    static const pd_optimizer_ops *const coupled[] = { &coupled_row, NULL };
    pd_store_config config = rig_config();
    outcome out = { 0 };
    uint32_t job;
    rig r;

    config.threads = how->threads;
    config.rows = m->coupled ? coupled : NULL;
    config.chunk_elements = 256;
    rig_new(&r, &config);
    r.lazy_tasks = how->late;
    job = start(&r, m);
    if (how->shuffle > 0)
        run_shuffled(&r, m, job, how->shuffle);
    else
        run_in_turn(&r, m, job);
    for (size_t p = 0; p < m->n; p++) {
        append(&out, rig_weights(&r, job, (uint32_t)p), elements_of(m, p));
        append_state(&out, inside_job(r.store, job)->steps.params[p].optim);
    }
    out.sum = rig_ask(&r, PD_INFO_JOBS, NULL)->jobs[0];
    rig_free(&r);
    return out;
}

/* Returns how many of the `due` preconditioner tasks are not used by the last step. A task that begins in step c is
 * used in step c + delay, which may come after the last step. */
static uint64_t not_due_yet(const model *m, uint64_t due)
{
    uint64_t generations = 0, open = 0;

    for (int c = m->first; c <= STEPS; c += m->interval, generations++) open += c + m->delay > STEPS;
    return due / generations * open;
}

static void is_the_same_however_it_is_run(const model *m)
{
    static const manner manners[] = { { 2, false, 0 }, { 4, true, 0 },  { 1, true, 11 },
                                      { 2, true, 12 }, { 4, true, 13 }, { 4, false, 14 } };
    outcome first = run(m, &(manner){ 1, false, 0 });

    assert_int_equal(first.sum.steps, STEPS * m->n);
    assert_true(first.sum.roots_due > 0);
    for (size_t i = 0; i < sizeof manners / sizeof manners[0]; i++) {
        outcome again = run(m, &manners[i]);
        assert_int_equal(again.n, first.n);
        assert_memory_equal(again.bytes, first.bytes, first.n * sizeof *first.bytes);
        assert_int_equal(again.sum.roots_due, first.sum.roots_due);
        assert_int_equal(again.sum.roots_adopted + again.sum.roots_failed,
                         again.sum.roots_due - not_due_yet(m, again.sum.roots_due));
        assert_int_equal(again.sum.roots_failed, first.sum.roots_failed);
        assert_int_equal(again.sum.roots_unused, 0);
        if (manners[i].late && manners[i].shuffle > 0) assert_true(again.sum.root_waits > 0);
        free(again.bytes);
    }
    free(first.bytes);
}

/* Checks a model with the optimizer "coupled" and blocks of several sizes. The roots of p1 fail once. */
static void coupled_is(int delay)
{
    char rules[300];
    model m = { .rules = rules,
                .n = 4,
                .shapes = { { 2, { 13, 17 } }, { 1, { 40 } }, { 3, { 4, 5, 6 } }, { 0, { 0 } } },
                .coupled = true,
                .first = 3,
                .interval = 3,
                .delay = delay };

    snprintf(rules, sizeof rules,
             "p1 coupled block_size=7 interval=3 root_delay=%d spoil=error spoil_at=6;p2 coupled block_size=4 "
             "interval=3 root_delay=%d;* coupled block_size=8 interval=3 root_delay=%d",
             delay, delay, delay);
    is_the_same_however_it_is_run(&m);
}

HOLDS(roots_used_in_their_step_are_deterministic, coupled_is(0));
HOLDS(roots_used_a_step_later_are_deterministic, coupled_is(1));
HOLDS(roots_used_an_interval_later_are_deterministic, coupled_is(3));

static void shampoo_is(const char *more, int delay)
{
    char rules[400];
    model m = { .rules = rules,
                .n = 4,
                .shapes = { { 2, { 30, 20 } }, { 2, { 16, 16 } }, { 3, { 4, 3, 10 } }, { 1, { 33 } } },
                .first = 1,
                .interval = 3,
                .delay = delay };

    snprintf(rules, sizeof rules,
             "p1 scalable_shampoo block_size=8 learning_rate=0.01 preconditioning_compute_steps=3 "
             "start_preconditioning_step=3 root_delay=%d %s;* scalable_shampoo block_size=16 learning_rate=0.01 "
             "preconditioning_compute_steps=3 start_preconditioning_step=2 root_delay=%d %s",
             delay, more, delay, more);
    is_the_same_however_it_is_run(&m);
}

TEST(scalable_shampoo_is_deterministic_with_any_root_delay)
{
    shampoo_is("", 0);
    shampoo_is("", 1);
    shampoo_is("", 3);
}

TEST(scalable_shampoo_is_deterministic_with_tracked_roots_and_little_memory)
{
    shampoo_is("root_method=tracked", 1);
    shampoo_is("best_effort_memory_usage_reduction=1", 3);
    shampoo_is("root_method=eigh graft_type=RMSPROP_NORMALIZED", 3);
}

/* Checks a model with the optimizer shampoo. Its roots are computed in steps 3, 6, 9 and 12. The gradients have very
 * different sizes, so Newton's method for roots needs a large epsilon. */
static void meta_is(const char *more, int delay)
{
    char rules[600];
    model m = { .rules = rules,
                .n = 4,
                .shapes = { { 2, { 30, 20 } }, { 2, { 16, 16 } }, { 3, { 4, 3, 10 } }, { 1, { 33 } } },
                .first = 3,
                .interval = 3,
                .delay = delay };

    snprintf(rules, sizeof rules,
             "p1 shampoo max_preconditioner_dim=8 precondition_frequency=3 betas=0.9,0.99 grafting_config=Adam "
             "epsilon=1e-4 root_delay=%d %s;* shampoo max_preconditioner_dim=16 precondition_frequency=3 "
             "betas=0.9,0.99 grafting_config=SGD epsilon=1e-4 root_delay=%d %s",
             delay, more, delay, more);
    is_the_same_however_it_is_run(&m);
}

TEST(shampoo_is_deterministic_with_any_root_delay)
{
    meta_is("", 0);
    meta_is("momentum=0.9", 1);
    meta_is("use_decoupled_weight_decay=no weight_decay=0.1", 3);
}

TEST(shampoo_is_deterministic_with_any_root_and_storage)
{
    meta_is("root_inverse_method=newton root_inverse_tolerance=1e-3 epsilon=1e7 "
            "precision_config=PrecisionConfig(inv_factor_matrix_dtype=float16)",
            0);
    meta_is("precision_config=PrecisionConfig(factor_matrix_dtype=bfloat16)", 1);
    meta_is("root_inverse_method=higher_order root_inverse_tolerance=1e-3 epsilon=0.1 "
            "precision_config=PrecisionConfig(filtered_grad_dtype=bfloat16,grafting_state_dtype=float16)",
            1);
    meta_is("root_inverse_method=tracked", 3);
    meta_is("preconditioner_dtype=float64 communication_dtype=BF16", 3);
}
