/* Tests the contract between optimizers and the library. The optimizer coupled_row, written for tests, must agree
 * with a second implementation in plain loops. */
#include "test.h"
#include "batch.h"
#include "coupled_row.h"
#include "optimizer.h"

enum { PARAMS = 5, STEPS = 11, MOST = 300 * 130, OUT = 4096 };

/* The blocks divide no shape evenly, except for the scalar. The last shape is enough work (56 us by
 * pd_optim_cost_ns) to be shared by threads. */
static const struct {
    pd_shape shape;
    int block_size, range;
} models[PARAMS] = {
    { { 2, { 7, 5 } }, 3, 4 },    { { 1, { 10 } }, 4, 3 },           { { 0, { 0 } }, 3, 4 },
    { { 3, { 4, 3, 5 } }, 2, 7 }, { { 2, { 300, 130 } }, 40, 1000 },
};

typedef struct twin {
    int64_t a, b, c, n; /* three dimensions, missing ones in front are 1 */
    int block_size;
    float w[MOST], S[MOST], R[MOST], root[STEPS + 1][MOST], tally;
    bool good[STEPS + 1];
    int64_t count;
} twin;

static void twin_init(twin *t, int p)
{
    const pd_shape *s = &models[p].shape;
    memset(t, 0, sizeof *t);
    t->c = s->rank > 0 ? s->dim[s->rank - 1] : 1;
    t->b = s->rank > 1 ? s->dim[s->rank - 2] : 1;
    t->a = s->rank > 2 ? s->dim[s->rank - 3] : 1;
    t->n = t->a * t->b * t->c;
    t->block_size = models[p].block_size;
    for (int64_t i = 0; i < t->n; i++) t->R[i] = 1;
}

/* For each block in order: runs BEGIN, then BODY for each element of the block with the element's index i, then END. */
#define EACH_BLOCK(t, BEGIN, BODY, END)                                                                                \
    for (int64_t a0 = 0; a0 < (t)->a; a0 += (t)->block_size)                                                           \
        for (int64_t b0 = 0; b0 < (t)->b; b0 += (t)->block_size)                                                       \
            for (int64_t c0 = 0; c0 < (t)->c; c0 += (t)->block_size) {                                                 \
                BEGIN                                                                                                  \
                for (int64_t x = a0; x < a0 + (t)->block_size && x < (t)->a; x++)                                      \
                    for (int64_t y = b0; y < b0 + (t)->block_size && y < (t)->b; y++)                                  \
                        for (int64_t z = c0; z < c0 + (t)->block_size && z < (t)->c; z++) {                            \
                            int64_t i = (x * (t)->b + y) * (t)->c + z;                                                 \
                            BODY                                                                                       \
                        }                                                                                              \
                END                                                                                                    \
            }

static void twin_root(twin *t, const double *h)
{
    EACH_BLOCK(
        t, float sum = 0; int n = 0;, sum += t->S[i]; n++;
        , for (int64_t x = a0; x < a0 + t->block_size && x < t->a;
               x++) for (int64_t y = b0; y < b0 + t->block_size && y < t->b;
                         y++) for (int64_t z = c0; z < c0 + t->block_size && z < t->c; z++) {
            int64_t i = (x * t->b + y) * t->c + z;
            t->root[t->count][i] = 1 / (1 + sqrtf(t->S[i] + sum / (float)n));
        })
    t->good[t->count] = h[COUPLED_SPOIL] == COUPLED_SPOIL_NONE || t->count != (int64_t)h[COUPLED_SPOIL_AT];
}

static void twin_step(twin *t, const float *G, const double *h, double largest_block)
{
    double sum = 0, most = 0;
    float scale;
    int64_t due = ++t->count - (int64_t)h[COUPLED_ROOT_DELAY];

    for (int64_t i = 0; i < t->n; i++) t->S[i] = t->S[i] / 2 + G[i] * G[i];
    if (t->count % (int64_t)h[COUPLED_INTERVAL] == 0) twin_root(t, h);
    if (due >= 1 && t->good[due]) memcpy(t->R, t->root[due], sizeof t->R);
    EACH_BLOCK(
        t, double part = 0;,
                           {
                               float D = G[i] * t->R[i];
                               part += (double)D * (double)D;
                               if (fabs((double)D) > most) most = fabs((double)D);
                           },
                           sum += part;)
    scale = (float)(h[COUPLED_LR] / (sqrt(sum) + most + largest_block));
    for (int64_t i = 0; i < t->n; i++) t->w[i] -= scale * (G[i] * t->R[i]);
    if (t->count % 2 == 1) t->tally += (float)sqrt(sum);
}

typedef struct manner {
    int threads;
    bool alone; /* steps every parameter in a batch of its own */
    bool late;  /* delivers tasks only when an optimizer waits for them, newest first */
} manner;

typedef struct fixture {
    pd_declaration declaration[PARAMS];
    double stats[PD_MAX_MODEL_STATS];
    pd_optim *optim[PARAMS];
    twin twin[PARAMS];
    float before[PARAMS][MOST], after[PARAMS][MOST], gradient[PARAMS][MOST];
    pd_task *out[OUT];
    int owner[OUT], n_out;
} fixture;

static void declare(fixture *f, const char *const *options)
{
    memset(f, 0, sizeof *f);
    for (int p = 0; p < PARAMS; p++) {
        pd_hypers *hypers = &f->declaration[p].hypers;
        f->declaration[p].name = "w";
        f->declaration[p].shape = models[p].shape;
        pd_hypers_init(hypers, &coupled_row);
        hypers->value[COUPLED_BLOCK_SIZE] = models[p].block_size;
        hypers->value[COUPLED_RANGE] = models[p].range;
        for (int o = 0; options[o] != NULL; o += 2)
            assert_int_equal(pd_hypers_set(hypers, options[o], options[o + 1], NULL), PD_OK);
        twin_init(&f->twin[p], p);
    }
    pd_model_stats_of(&coupled_row, f->declaration, PARAMS, f->stats);
    for (int p = 0; p < PARAMS; p++)
        assert_int_equal(pd_optim_new(&f->optim[p], &f->declaration[p], f->stats, NULL), PD_OK);
}

static void finish(fixture *f)
{
    for (int p = 0; p < PARAMS; p++) pd_optim_free(f->optim[p]);
}

static void fill_gradients(fixture *f, int64_t step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < MOST; i++)
            f->gradient[p][i] = sinf((float)(i + 1) * (float)step * 0.37f + (float)p) * powf(10, (float)(i % 7 - 3));
}

static void begin(fixture *f, int p)
{
    assert_int_equal(
        pd_optim_begin(f->optim[p], &(pd_step_io){ f->gradient[p], f->before[p], f->after[p], NULL, 0, NULL, NULL }),
        PD_OK);
}

static void run(fixture *f, const manner *way)
{
    if (!way->alone) {
        assert_int_equal(pd_batch_run(f->optim, PARAMS, way->threads), PD_OK);
        return;
    }
    for (int p = PARAMS - 1; p >= 0; p--) assert_int_equal(pd_batch_run(&f->optim[p], 1, way->threads), PD_OK);
}

static void take_tasks(fixture *f)
{
    for (int p = 0; p < PARAMS; p++)
        for (pd_task *task; (task = pd_optim_capture(f->optim[p])) != NULL;) {
            assert_true(f->n_out < OUT);
            f->owner[f->n_out] = p;
            f->out[f->n_out++] = task;
        }
}

/* Runs and delivers all tasks that were handed out, newest first. */
static void give_tasks_back(fixture *f)
{
    while (f->n_out > 0) {
        pd_task *task = f->out[--f->n_out];
        pd_task_run(task);
        pd_optim_deliver(f->optim[f->owner[f->n_out]], task);
    }
}

static bool all_done(const fixture *f)
{
    for (int p = 0; p < PARAMS; p++)
        if (!pd_optim_done(f->optim[p])) return false;
    return true;
}

static void step(fixture *f, int64_t number, const manner *way)
{
    fill_gradients(f, number);
    for (int p = 0; p < PARAMS; p++) begin(f, p);
    run(f, way);
    for (;;) {
        take_tasks(f);
        if (!way->late || !all_done(f)) give_tasks_back(f);
        if (all_done(f)) break;
        run(f, way);
    }
    for (int p = 0; p < PARAMS; p++) {
        memcpy(f->before[p], f->after[p], sizeof f->before[p]);
        twin_step(&f->twin[p], f->gradient[p], f->declaration[p].hypers.value, f->stats[0]);
    }
}

static void assert_same_as_twin(const fixture *f)
{
    for (int p = 0; p < PARAMS; p++) {
        const twin *t = &f->twin[p];
        assert_memory_equal(f->before[p], t->w, (size_t)t->n * sizeof(float));
        assert_memory_equal(pd_optim_slot(f->optim[p], 1).at, &t->tally, sizeof t->tally);
        assert_int_equal(pd_optim_count(f->optim[p]), t->count);
    }
}

#define OPTIONS(...)                                                                                                   \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

static void follows_twin(fixture *f, const manner *way, const char *const *options)
{
    declare(f, options);
    for (int s = 1; s <= STEPS; s++) {
        step(f, s, way);
        assert_same_as_twin(f);
    }
    give_tasks_back(f);
    finish(f);
}

static const manner usual = { 2, false, false }, late = { 2, false, true };

HOLDS_FOR(fixture *f, uses_roots_of_its_own_step_with_delay_0, follows_twin(f, &usual, OPTIONS("interval", "3")));
HOLDS_FOR(fixture *f, uses_roots_one_step_later_with_delay_1,
          follows_twin(f, &usual, OPTIONS("interval", "3", "root_delay", "1")));
HOLDS_FOR(fixture *f, uses_roots_two_steps_later_with_delay_2,
          follows_twin(f, &usual, OPTIONS("interval", "3", "root_delay", "2")));
HOLDS_FOR(fixture *f, delay_may_be_as_long_as_the_interval,
          follows_twin(f, &late, OPTIONS("interval", "2", "root_delay", "2")));
HOLDS_FOR(fixture *f, delay_may_be_longer_than_the_interval,
          follows_twin(f, &late, OPTIONS("interval", "1", "root_delay", "3")));

TEST(bits_do_not_depend_on_the_number_of_threads, fixture *f)
{
    for (int threads = 1; threads <= 4; threads *= 2)
        follows_twin(f, &(manner){ threads, false, false }, OPTIONS("interval", "2", "root_delay", "1"));
}

TEST(bits_do_not_depend_on_the_company_in_a_batch, fixture *f)
{
    for (int threads = 1; threads <= 4; threads *= 2)
        follows_twin(f, &(manner){ threads, true, false }, OPTIONS("interval", "2", "root_delay", "1"));
}

TEST(bits_do_not_depend_on_when_tasks_come_back, fixture *f)
{
    follows_twin(f, &late, OPTIONS("interval", "2"));
    follows_twin(f, &late, OPTIONS("interval", "3", "root_delay", "2"));
}

/* The parameters of a group share a step counter. This group's parameters have no gradient in some steps, so their
 * counter skips numbers. */
TEST(a_counter_may_run_on_without_a_step, fixture *f)
{
    static const int counts[] = {
        1, 2, 3, 4, 7, 8, 9, 11
    }; /* Roots of counts 3 and 9 are due at 5 and 11. There is no count 5, so the first root is used at 7. */

    declare(f, OPTIONS("interval", "3", "root_delay", "2"));
    for (size_t s = 0; s < sizeof counts / sizeof counts[0]; s++) {
        for (int p = 0; p < PARAMS; p++) {
            pd_optim_set_count(f->optim[p], counts[s] - 1);
            f->twin[p].count = counts[s] - 1;
            if (counts[s] == 7) memcpy(f->twin[p].R, f->twin[p].root[3], sizeof f->twin[p].R);
        }
        step(f, counts[s], &late);
        assert_same_as_twin(f);
    }
    give_tasks_back(f);
    finish(f);
}

TEST(roots_that_were_missed_are_adopted_in_order, fixture *f)
{
    declare(f, OPTIONS("interval", "1", "root_delay", "3"));
    for (int s = 1; s <= 3; s++) step(f, s, &late);
    for (int p = 0; p < PARAMS; p++) {
        pd_optim_set_count(f->optim[p], 8); /* the next step has count 9: the roots of steps 1, 2 and 3 are due */
        f->twin[p].count = 8;
        memcpy(f->twin[p].R, f->twin[p].root[3], sizeof f->twin[p].R);
    }
    step(f, 9, &late);
    assert_same_as_twin(f);
    assert_int_equal(pd_optim_root_stats(f->optim[0]).adopted, 18);
    give_tasks_back(f);
    finish(f);
}

TEST(a_fact_is_shared_by_all_parameters, fixture *f)
{
    declare(f, OPTIONS("lr", "1"));
    assert_true(f->stats[0] == 40 * 40);
    finish(f);
}

TEST(facts_leave_other_rows_out)
{
    pd_declaration two[2] = { { .shape = models[4].shape }, { .shape = models[0].shape } };
    double stats[PD_MAX_MODEL_STATS];

    pd_hypers_init(&two[0].hypers, pd_optim_find("sgd"));
    pd_hypers_init(&two[1].hypers, &coupled_row);
    pd_model_stats_of(&coupled_row, two, 2, stats);
    assert_true(stats[0] == 9);
    pd_model_stats_of(&coupled_row, two, 1, stats);
    assert_true(stats[0] == 0);
}

TEST(parks_a_step_whose_root_is_late, fixture *f)
{
    declare(f, OPTIONS("interval", "3", "root_delay", "2"));
    for (int s = 1; s <= 4; s++) { /* the tasks of step 3 are not delivered */
        fill_gradients(f, s);
        for (int p = 0; p < PARAMS; p++) begin(f, p);
        run(f, &usual);
        assert_true(all_done(f));
        take_tasks(f);
    }
    begin(f, 0);
    pd_batch_run(f->optim, 1, 2);
    assert_true(pd_optim_waits(f->optim[0]));
    assert_false(pd_optim_done(f->optim[0]));
    assert_int_equal(pd_optim_root_stats(f->optim[0]).waits, 1);
    pd_batch_run(f->optim, 1, 2); /* the step still waits, so the batch skips it; its wait is not counted again */
    assert_int_equal(pd_optim_root_stats(f->optim[0]).waits, 1);
    give_tasks_back(f);
    assert_false(pd_optim_waits(f->optim[0]));
    pd_batch_run(f->optim, 1, 2);
    assert_true(pd_optim_done(f->optim[0]));
    finish(f);
}

TEST(others_go_on_while_one_is_parked, fixture *f)
{
    pd_optim *both[2];

    declare(f, OPTIONS("interval", "1"));
    both[0] = f->optim[0];
    assert_int_equal(pd_hypers_set(&f->declaration[1].hypers, "interval", "7", NULL), PD_OK);
    assert_int_equal(pd_optim_new(&both[1], &f->declaration[1], f->stats, NULL), PD_OK);
    fill_gradients(f, 1);
    begin(f, 0);
    assert_int_equal(
        pd_optim_begin(both[1], &(pd_step_io){ f->gradient[1], f->before[1], f->after[1], NULL, 0, NULL, NULL }),
        PD_OK);
    pd_batch_run(both, 2, 2);
    assert_true(pd_optim_waits(both[0]));
    assert_true(pd_optim_done(both[1]));
    take_tasks(f);
    give_tasks_back(f);
    pd_batch_run(both, 2, 2);
    assert_true(pd_optim_done(both[0]));
    pd_optim_free(both[1]);
    finish(f);
}

TEST(counts_what_is_due_and_adopted, fixture *f)
{
    pd_root_stats stats;

    declare(f, OPTIONS("interval", "2", "root_delay", "1"));
    for (int s = 1; s <= 5; s++) step(f, s, &usual);
    stats = pd_optim_root_stats(f->optim[0]); /* 6 blocks: each computes a root in steps 2 and 4, and uses it in
                                               * steps 3 and 5 */
    assert_int_equal(stats.due, 12);
    assert_int_equal(stats.adopted, 12);
    assert_int_equal(stats.failed, 0);
    assert_true(stats.last_error == 4);
    finish(f);
}

static void a_failed_root_keeps_the_last_good_one(fixture *f, const char *how)
{
    follows_twin(f, &usual, OPTIONS("interval", "2", "spoil", how, "spoil_at", "6"));
    declare(f, OPTIONS("interval", "2", "root_delay", "1", "spoil", how, "spoil_at", "2"));
    for (int s = 1; s <= 3; s++) step(f, s, &usual);
    assert_same_as_twin(f);
    assert_int_equal(pd_optim_root_stats(f->optim[0]).failed, 6);
    assert_int_equal(pd_optim_root_stats(f->optim[0]).adopted, 0);
    finish(f);
}

HOLDS_FOR(fixture *f, a_root_that_fails_keeps_the_last_good_one, a_failed_root_keeps_the_last_good_one(f, "error"));

TEST(a_root_that_is_not_finite_keeps_the_last_good_one, fixture *f)
{
    declare(f, OPTIONS("interval", "2", "spoil", "nan", "spoil_at", "2"));
    step(f, 1, &usual);
    step(f, 2, &usual);
    assert_same_as_twin(f);
    assert_int_equal(pd_optim_root_stats(f->optim[0]).failed, 6);
    finish(f);
}

TEST(statistics_that_are_not_finite_never_reach_the_root, fixture *f)
{
    declare(f, OPTIONS("interval", "1"));
    fill_gradients(f, 1);
    f->gradient[0][0] = NAN; /* an element of the first of six blocks */
    begin(f, 0);
    pd_batch_run(f->optim, 1, 2);
    take_tasks(f);
    give_tasks_back(f);
    pd_batch_run(f->optim, 1, 2);
    assert_true(pd_optim_done(f->optim[0]));
    assert_int_equal(pd_optim_root_stats(f->optim[0]).failed, 1);
    assert_int_equal(pd_optim_root_stats(f->optim[0]).adopted, 5);
    finish(f);
}

TEST(a_task_that_was_not_run_counts_as_failed, fixture *f)
{
    declare(f, OPTIONS("interval", "1"));
    fill_gradients(f, 1);
    begin(f, 0);
    pd_batch_run(f->optim, 1, 1);
    for (pd_task *task; (task = pd_optim_capture(f->optim[0])) != NULL;) pd_optim_deliver(f->optim[0], task);
    pd_batch_run(f->optim, 1, 1);
    assert_true(pd_optim_done(f->optim[0]));
    assert_int_equal(pd_optim_root_stats(f->optim[0]).failed, 6);
    finish(f);
}

TEST(a_task_outlives_its_optim, fixture *f)
{
    declare(f, OPTIONS("interval", "1"));
    fill_gradients(f, 1);
    begin(f, 0);
    pd_batch_run(f->optim, 1, 1);
    take_tasks(f);
    assert_int_equal(f->n_out, 6);
    finish(f); /* frees the optimizers in the middle of a step, before its tasks are delivered */
    while (f->n_out > 0) {
        pd_task_run(f->out[--f->n_out]);
        pd_task_free(f->out[f->n_out]);
    }
}

TEST(a_task_tells_its_cost, fixture *f)
{
    pd_task *task;

    declare(f, OPTIONS("interval", "1"));
    begin(f, 0);
    pd_batch_run(f->optim, 1, 1);
    task = pd_optim_capture(f->optim[0]);
    assert_true(pd_task_cost(task) == 4 * 9);
    pd_task_took(task, 12.5);
    pd_task_run(task);
    pd_optim_deliver(f->optim[0], task);
    take_tasks(f);
    give_tasks_back(f);
    pd_batch_run(f->optim, 1, 1);
    assert_true(pd_optim_root_stats(f->optim[0]).last_cost_ms == 12.5);
    finish(f);
}

TEST(no_memory_for_temporaries_changes_nothing, fixture *f)
{
    int rc;

    declare(f, OPTIONS("interval", "2"));
    step(f, 1, &usual);
    fill_gradients(f, 2);
    oom_arm(0);
    rc = pd_optim_begin(f->optim[0], &(pd_step_io){ f->gradient[0], f->before[0], f->after[0], NULL, 0, NULL, NULL });
    assert_true(oom_disarm());
    assert_int_equal(rc, PD_NO_MEMORY);
    assert_int_equal(pd_optim_count(f->optim[0]), 1);
    assert_true(pd_optim_done(f->optim[0]));
    step(f, 2, &usual);
    assert_same_as_twin(f);
    finish(f);
}

TEST(no_memory_for_a_batch_has_run_nothing, fixture *f)
{
    int64_t n;

    declare(f, OPTIONS("interval", "2"));
    fill_gradients(f, 1);
    for (int p = 0; p < PARAMS; p++) begin(f, p);
    for (n = 0;; n++) { /* no task is due in step 1: all allocations are the batch's own */
        int rc;
        oom_arm(n);
        rc = pd_batch_run(f->optim, PARAMS, 2);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        for (int p = 0; p < PARAMS; p++) assert_false(pd_optim_done(f->optim[p]));
    }
    assert_true(n > 0);
    assert_true(all_done(f));
    for (int p = 0; p < PARAMS; p++) {
        twin_step(&f->twin[p], f->gradient[p], f->declaration[p].hypers.value, f->stats[0]);
        memcpy(f->before[p], f->after[p], sizeof f->before[p]);
    }
    assert_same_as_twin(f);
    finish(f);
}

/* The copies for all tasks are allocated together, with two allocations. If one of them fails, each task gets copies
 * of its own. */
TEST(no_memory_for_a_tasks_copies_counts_it_as_failed, fixture *f)
{
    int spared = 0;
    bool hit = true;

    for (int64_t n = 3; hit; n++) { /* skips the allocations of the batch itself */
        pd_root_stats stats;
        int rc;
        declare(f, OPTIONS("interval", "1"));
        fill_gradients(f, 1);
        begin(f, 0);
        oom_arm(n);
        rc = pd_batch_run(f->optim, 1, 1);
        hit = oom_disarm();
        if (rc == PD_OK) {
            take_tasks(f);
            give_tasks_back(f);
            assert_int_equal(pd_batch_run(f->optim, 1, 1), PD_OK);
            stats = pd_optim_root_stats(f->optim[0]);
            assert_true(pd_optim_done(f->optim[0]));
            assert_true(stats.failed <= hit);
            spared += hit && stats.failed == 0;
            assert_int_equal(stats.adopted + stats.failed, 6);
        }
        finish(f);
    }
    assert_int_equal(spared, 2);
}

TEST(no_memory_for_state_gives_no_optim, fixture *f)
{
    pd_optim *optim;
    int64_t n;

    declare(f, OPTIONS("interval", "1"));
    for (n = 0;; n++) {
        int rc;
        oom_arm(n);
        rc = pd_optim_new(&optim, &f->declaration[0], f->stats, NULL);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
    }
    assert_true(n > 5);
    pd_optim_free(optim);
    finish(f);
}

static int set_up(void **state)
{
    return (*state = malloc(sizeof(fixture))) == NULL;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}
EACH_TEST(set_up, tear_down);
