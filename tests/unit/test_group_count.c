/* Tests a model whose parameters share step counters by group: missing gradients, schedules, refused steps, and the
 * returned updates. */
#include "test.h"
#include "paramd/optim.h"
#include "stern_row.h"

enum { PARAMS = 5, N = 6 };

/* The parameters are declared in the order "a" to "e". "a" and "c" form one group, "b" and "d" another. The
 * optimizer of "e" has no groups, so "e" counts its own steps. */
typedef struct fixture {
    pd_declaration declaration[PARAMS];
    pd_model *model;
    pd_step_io io[PARAMS];
    float weights[PARAMS][N], gradient[PARAMS][N], update[PARAMS][N];
} fixture;

static void declare(fixture *f, const char *name, const char *value)
{
    static const char *const names[PARAMS] = { "a", "b", "c", "d", "e" };

    for (int p = 0; p < PARAMS; p++) {
        pd_declaration *d = &f->declaration[p];
        *d = (pd_declaration){ .name = names[p], .shape = { 1, { N } }, .group = p == 4 ? 0 : p % 2 };
        pd_hypers_init(&d->hypers, p == 4 ? pd_optim_find("sgd") : &stern_row);
        if (p < 4 && name != NULL) assert_int_equal(pd_hypers_set(&d->hypers, name, value, NULL), PD_OK);
    }
}

static void make(fixture *f, const char *name, const char *value)
{
    pd_error err;

    memset(f, 0, sizeof *f);
    declare(f, name, value);
    if (pd_model_new(&f->model, f->declaration, PARAMS, 2, &err) != PD_OK) fail_msg("%s", err.text);
}

static void finish(fixture *f)
{
    pd_model_free(f->model);
    for (int p = 0; p < PARAMS; p++) pd_hypers_free(&f->declaration[p].hypers);
}

/* Prepares a step: parameter p gets a gradient of ones if bit p of `present` is set, otherwise no gradient. */
static void prepare(fixture *f, unsigned present)
{
    for (int p = 0; p < PARAMS; p++) {
        for (int i = 0; i < N; i++) f->gradient[p][i] = 1;
        f->io[p] = (pd_step_io){ .before = f->weights[p],
                                 .after = f->weights[p],
                                 .gradient = (present >> p & 1) != 0 ? f->gradient[p] : NULL };
    }
}

static void step(fixture *f, unsigned present)
{
    pd_error err;

    prepare(f, present);
    if (pd_model_step(f->model, f->io, &err) != PD_OK) fail_msg("%s", err.text);
}

/* Returns the step number that parameter p saw in its last step; 0: p has taken no step. */
static double seen(const fixture *f, size_t p)
{
    double count = -1;

    assert_int_equal(pd_model_read_part(f->model, p, "seen", -1, -1, &count, 1, NULL), PD_OK);
    return count;
}

static void assert_seen(const fixture *f, double a, double b, double c, double d)
{
    assert_true(seen(f, 0) == a && seen(f, 1) == b && seen(f, 2) == c && seen(f, 3) == d);
}

TEST(a_groups_counter_advances_when_one_member_has_a_gradient, fixture *f)
{
    make(f, NULL, NULL);
    step(f, 0x1f);
    assert_seen(f, 1, 1, 1, 1);
    step(f, 1 << 0 | 1 << 4);
    step(f, 1 << 0 | 1 << 1);
    assert_seen(f, 3, 2, 1, 1);
    step(f, 1 << 2); /* the group's counter includes the steps in which "c" had no gradient */
    assert_seen(f, 3, 2, 4, 1);
    step(f, 1 << 3 | 1 << 0);
    assert_seen(f, 5, 2, 4, 3);
    finish(f);
}

TEST(without_any_gradient_nothing_happens, fixture *f)
{
    make(f, NULL, NULL);
    step(f, 0);
    step(f, 1 << 4);
    assert_seen(f, 0, 0, 0, 0);
    step(f, 0xf);
    assert_seen(f, 1, 1, 1, 1);
    finish(f);
}

TEST(a_parameter_without_a_gradient_keeps_weights_and_state, fixture *f)
{
    double before[N], after[N];
    float weights[N];

    make(f, NULL, NULL);
    step(f, 0x1f);
    memcpy(weights, f->weights[2], sizeof weights);
    assert_int_equal(pd_model_read_part(f->model, 2, "average", -1, -1, before, N, NULL), PD_OK);
    step(f, 0x1b);
    assert_memory_equal(f->weights[2], weights, sizeof weights);
    assert_int_equal(pd_model_read_part(f->model, 2, "average", -1, -1, after, N, NULL), PD_OK);
    assert_memory_equal(before, after, sizeof before);
    finish(f);
}

/* With gradients of ones, a step moves the weights by lr (r + M). So the movement shows which learning rate the step
 * used. r is the root of the weight's block, computed from the sum of the block's gradients. M is the moving average
 * of the gradients. */
TEST(schedules_follow_the_groups_counter, fixture *f)
{
    double value[PD_MAX_HYPERS];

    make(f, "lr", "linear_warmup(peak=8,warmup_steps=8)");
    for (int s = 0; s < 3; s++) step(f, 1 << 0);
    step(f, 1 << 2);
    pd_hypers_at(&f->declaration[2].hypers, 3, value);
    assert_true(value[STERN_LR] > 0 && f->weights[2][0] == -(float)value[STERN_LR] * (5 + 1));
    finish(f);
}

TEST(rows_without_groups_count_alone, fixture *f)
{
    double value[PD_MAX_HYPERS];

    memset(f, 0, sizeof *f);
    declare(f, NULL, NULL);
    for (int p = 3; p < 5; p++) {
        f->declaration[p].group = 0;
        pd_hypers_init(&f->declaration[p].hypers, pd_optim_find("sgd"));
        assert_int_equal(pd_hypers_set(&f->declaration[p].hypers, "lr", "linear_warmup(peak=8,warmup_steps=8)", NULL),
                         PD_OK);
    }
    assert_int_equal(pd_model_new(&f->model, f->declaration, PARAMS, 1, NULL), PD_OK);
    step(f, 1 << 3);
    step(f, 1 << 3);
    step(f, 1 << 4);
    pd_hypers_at(&f->declaration[4].hypers, 0, value);
    assert_true(f->weights[4][0] == -(float)value[pd_hypers_find(pd_optim_find("sgd"), "lr")]);
    finish(f);
}

TEST(a_group_is_refused_and_the_others_step, fixture *f)
{
    float weights[PARAMS][N];
    pd_error err = { 0 };

    make(f, NULL, NULL);
    step(f, 0x1f);
    memcpy(weights, f->weights, sizeof weights);
    prepare(f, 0x1f);
    f->gradient[2][5] = NAN;
    assert_int_equal(pd_model_step(f->model, f->io, &err), PD_FAILED_PRECONDITION);
    assert_string_equal(err.text, "c: NaN in block 1");
    assert_int_equal(err.code, PD_FAILED_PRECONDITION);
    for (int p = 0; p < PARAMS; p++)
        assert_true((memcmp(weights[p], f->weights[p], sizeof weights[p]) == 0) == (p == 0 || p == 2));
    assert_seen(f, 1, 2, 1, 2);
    step(f, 0x1f);
    assert_seen(f, 3, 3, 3, 3); /* 3 steps, since the groups counted the refused step too */
    finish(f);
}

TEST(of_two_refused_groups_the_first_ones_error_is_reported, fixture *f)
{
    pd_error err = { 0 };

    make(f, NULL, NULL);
    prepare(f, 0x1f);
    f->gradient[1][0] = NAN;
    f->gradient[2][0] = INFINITY;
    assert_int_equal(pd_model_step(f->model, f->io, &err), PD_FAILED_PRECONDITION);
    assert_string_equal(err.text, "c: infinity in block 0"); /* both groups are refused; the group of "a" comes
                                                              * first, and its step fails at "c" */
    prepare(f, 1 << 3);                                      /* the next step succeeds: the error of the earlier step
                                                              * is not reported again */
    assert_int_equal(pd_model_step(f->model, f->io, &err), PD_OK);
    finish(f);
}

TEST(a_row_that_gives_updates_says_what_it_added, fixture *f)
{
    float weights[N];

    make(f, NULL, NULL);
    step(f, 0x1f);
    memcpy(weights, f->weights[1], sizeof weights);
    prepare(f, 0x1f);
    f->io[1].update = f->update[1];
    assert_int_equal(pd_model_step(f->model, f->io, NULL), PD_OK);
    for (int i = 0; i < N; i++) assert_true(f->update[1][i] != 0 && f->weights[1][i] == weights[i] + f->update[1][i]);
    finish(f);
}

TEST(updates_of_a_row_that_gives_none_are_refused_and_nothing_changes, fixture *f)
{
    pd_error err = { 0 };

    make(f, NULL, NULL);
    prepare(f, 0x1f);
    f->io[4].update = f->update[4];
    assert_int_equal(pd_model_step(f->model, f->io, &err), PD_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "parameter e"));
    assert_seen(f, 0, 0, 0, 0);
    f->io[4].gradient = NULL; /* "e" has no gradient now, so its update is not needed and the step succeeds */
    assert_int_equal(pd_model_step(f->model, f->io, &err), PD_OK);
    assert_seen(f, 1, 1, 1, 1);
    finish(f);
}

TEST(without_memory_there_is_no_model, fixture *f)
{
    int rc;

    memset(f, 0, sizeof *f);
    declare(f, NULL, NULL);
    for (int64_t n = 0;; n++) {
        oom_arm(n);
        rc = pd_model_new(&f->model, f->declaration, PARAMS, 1, NULL);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
    }
    assert_int_equal(rc, PD_OK);
    finish(f);
}

/* A step allocates the temporary slots of "a" to "d" before any work runs. After that, only preconditioner tasks can
 * run out of memory. */
TEST(a_step_without_memory_counts_for_no_group, fixture *f)
{
    int failures = 0;

    for (int64_t n = 0;; n++) {
        bool armed;
        int rc;
        make(f, NULL, NULL);
        step(f, 0x05);
        prepare(f, 0x1f);
        oom_arm(n);
        rc = pd_model_step(f->model, f->io, NULL);
        armed = oom_disarm();
        if (rc == PD_NO_MEMORY) {
            failures++;
            assert_seen(f, 1, 0, 1, 0);
            step(f, 0x1f);
        } else {
            assert_int_equal(rc, PD_OK);
        }
        assert_seen(f, 2, 1, 2, 1);
        finish(f);
        if (!armed) break;
    }
    assert_true(failures >= 4);
}

FIXTURE(fixture, NULL, NULL);
