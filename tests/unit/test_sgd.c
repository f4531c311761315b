/* Tests sgd against plain loops. */
#include "test.h"
#include "paramd/optim.h"

enum { N = 150001, STEPS = 5 }; /* three ranges of elements; the last ends with part of a vector */

typedef struct fixture {
    float weights[N], buffer[N], gradient[N], after[N], expected[N];
} fixture;

static void set_up(fixture *f)
{
    for (int i = 0; i < N; i++) f->expected[i] = f->weights[i] = sinf((float)i);
}

static void set(pd_hypers *hypers, const char *const *options)
{
    pd_error err;

    pd_hypers_init(hypers, pd_optim_find("sgd"));
    for (; options[0] != NULL; options += 2)
        if (pd_hypers_set(hypers, options[0], options[1], &err) != PD_OK) fail_msg("%s", err.text);
}

static double value(const pd_hypers *hypers, const char *name)
{
    return hypers->value[pd_hypers_find(hypers->row, name)];
}

/* The reference: the formulas in torch.optim.SGD's documentation, one element at a time. `volatile` keeps the
 * compiler from fusing operations. */
static void naive(fixture *f, const pd_hypers *h, bool first)
{
    const float lr = (float)value(h, "lr"), momentum = (float)value(h, "momentum"),
                gain = (float)(1 - value(h, "dampening"));
    const float decay = (float)value(h, "weight_decay");

    for (int i = 0; i < N; i++) {
        volatile float g = value(h, "maximize") != 0 ? -f->gradient[i] : f->gradient[i], t, u;
        if (decay != 0) {
            t = decay * f->expected[i];
            g = g + t;
        }
        if (momentum != 0) {
            t = momentum * f->buffer[i];
            u = gain * g;
            f->buffer[i] = first ? g : t + u;
            t = momentum * f->buffer[i];
            g = value(h, "nesterov") != 0 ? g + t : f->buffer[i];
        }
        t = lr * g;
        f->expected[i] = f->expected[i] - t;
    }
}

static void new_model(pd_model **model, const pd_hypers *hypers)
{
    pd_declaration param = { .name = "w", .shape = { 1, { N } }, .hypers = *hypers };
    pd_error err;
    if (pd_model_new(model, &param, 1, 2, &err) != PD_OK) fail_msg("%s", err.text);
}

static void new_gradient(fixture *f, int step)
{
    for (int i = 0; i < N; i++) f->gradient[i] = cosf((float)(i * step)) * 0.1f;
}

static void follows_the_definition(fixture *f, const char *const *options, bool in_place)
{
    pd_hypers hypers;
    pd_model *model;

    set(&hypers, options);
    new_model(&model, &hypers);
    for (int step = 1; step <= STEPS; step++) {
        float *after = in_place ? f->weights : f->after;
        new_gradient(f, step);
        naive(f, &hypers, step == 1);
        assert_int_equal(
            pd_model_step(model, &(pd_step_io){ .gradient = f->gradient, .before = f->weights, .after = after }, NULL),
            PD_OK);
        if (!in_place) memcpy(f->weights, f->after, sizeof f->weights);
        assert_memory_equal(f->weights, f->expected, sizeof f->weights);
    }
    pd_model_free(model);
}

#define OPTIONS(...)                                                                                                   \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

FIXTURE(fixture, set_up, NULL);

HOLDS_FOR(fixture *f, plain, follows_the_definition(f, OPTIONS("lr", "0.1"), false));
HOLDS_FOR(fixture *f, weight_decay, follows_the_definition(f, OPTIONS("lr", "0.1", "weight_decay", "0.01"), false));
HOLDS_FOR(fixture *f, momentum, follows_the_definition(f, OPTIONS("lr", "0.1", "momentum", "0.9"), false));
HOLDS_FOR(fixture *f, momentum_in_place, follows_the_definition(f, OPTIONS("lr", "0.1", "momentum", "0.9"), true));
HOLDS_FOR(fixture *f, momentum_with_weight_decay,
          follows_the_definition(f, OPTIONS("momentum", "0.9", "weight_decay", "0.1"), false));
HOLDS_FOR(fixture *f, dampening,
          follows_the_definition(f, OPTIONS("lr", "0.1", "momentum", "0.8", "dampening", "0.3"), false));
HOLDS_FOR(fixture *f, nesterov,
          follows_the_definition(f, OPTIONS("lr", "0.1", "momentum", "0.9", "nesterov", "yes"), true));
HOLDS_FOR(fixture *f, nesterov_with_weight_decay,
          follows_the_definition(f, OPTIONS("lr", "0.1", "momentum", "0.9", "nesterov", "yes", "weight_decay", "0.02"),
                                 false));
HOLDS_FOR(fixture *f, maximize,
          follows_the_definition(f, OPTIONS("lr", "0.1", "momentum", "0.9", "maximize", "yes", "weight_decay", "0.02"),
                                 false));

TEST(keeps_a_buffer_only_with_momentum)
{
    pd_hypers hypers;
    pd_model *model;

    set(&hypers, OPTIONS("lr", "0.1"));
    new_model(&model, &hypers);
    assert_int_equal(pd_model_state_bytes(model), 0);
    pd_model_free(model);
    set(&hypers, OPTIONS("momentum", "0.5"));
    new_model(&model, &hypers);
    assert_int_equal(pd_model_state_bytes(model), N * (int)sizeof(float));
    pd_model_free(model);
}

TEST(a_parameter_without_a_gradient_takes_no_step, fixture *f)
{
    pd_hypers hypers;
    pd_model *model;

    set(&hypers, OPTIONS("lr", "0.1", "momentum", "0.9"));
    new_model(&model, &hypers);
    memset(f->after, 0x55, sizeof f->after);
    memcpy(f->expected, f->after, sizeof f->expected);
    assert_int_equal(pd_model_step(model, &(pd_step_io){ .before = f->weights, .after = f->after }, NULL), PD_OK);
    assert_memory_equal(f->after, f->expected, sizeof f->after);

    memcpy(f->expected, f->weights,
           sizeof f->expected); /* the next step is the first with a gradient: the buffer becomes the gradient */
    new_gradient(f, 1);
    naive(f, &hypers, true);
    pd_model_step(model, &(pd_step_io){ .gradient = f->gradient, .before = f->weights, .after = f->after }, NULL);
    assert_memory_equal(f->after, f->expected, sizeof f->after);
    pd_model_free(model);
}

TEST(takes_a_steps_own_hyperparameters, fixture *f)
{
    pd_hypers declared, now;
    pd_model *model;

    set(&declared, OPTIONS("lr", "0.1"));
    set(&now, OPTIONS("lr", "0.025", "weight_decay", "0.5"));
    new_model(&model, &declared);
    new_gradient(f, 1);
    naive(f, &now, true);
    pd_model_step(model,
                  &(pd_step_io){ .gradient = f->gradient,
                                 .before = f->weights,
                                 .after = f->after,
                                 .hypers = now.value,
                                 .hypers_mask = UINT64_MAX },
                  NULL);
    assert_memory_equal(f->after, f->expected, sizeof f->after);
    pd_model_free(model);
}

/* Each step uses the values of the schedules. One step brings a learning rate of its own instead. */
TEST(follows_schedules, fixture *f)
{
    static const double rates[] = { 0.5, 0.25, 0.125, 0.125 }, momenta[] = { 0.5, 0.5, 0.75, 0.75 };
    enum { OWN = 1 }; /* the step with its own learning rate */
    pd_hypers scheduled;
    pd_model *model;

    set(&scheduled,
        OPTIONS("lr", "table(0.5,0.25,0.125)", "momentum", "piecewise(0.5,2:0.75)", "weight_decay", "0.25"));
    new_model(&model, &scheduled);
    for (int s = 0; s < 4; s++) {
        pd_hypers now = scheduled;
        double own[PD_MAX_HYPERS];
        for (int i = 0; i < PD_MAX_HYPERS; i++) own[i] = NAN;
        own[pd_hypers_find(scheduled.row, "lr")] = 2;
        now.value[pd_hypers_find(now.row, "lr")] = s == OWN ? 2 : rates[s];
        now.value[pd_hypers_find(now.row, "momentum")] = momenta[s];
        new_gradient(f, s);
        naive(f, &now, s == 0);
        pd_model_step(model,
                      &(pd_step_io){ .gradient = f->gradient,
                                     .before = f->weights,
                                     .after = f->weights,
                                     .hypers = s == OWN ? own : NULL,
                                     .hypers_mask = (uint64_t)1 << pd_hypers_find(scheduled.row, "lr") },
                      NULL);
        assert_memory_equal(f->weights, f->expected, sizeof f->weights);
    }
    pd_model_free(model);
    pd_hypers_free(&scheduled);
}

TEST(a_model_refuses_a_schedule_that_the_row_cannot_follow)
{
    pd_declaration declaration = { .name = "w", .shape = { .rank = 1, .dim = { 8 } } };
    pd_model *model = NULL;
    pd_error err;

    pd_hypers_init(&declaration.hypers, pd_optim_find("sgd"));
    assert_int_equal(pd_hypers_set(&declaration.hypers, "momentum", "table(0,0.5)", &err), PD_OK);
    assert_int_equal(pd_model_new(&model, &declaration, 1, 1, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "momentum cannot change from 0 to 0.5"));
    assert_null(model);
    pd_hypers_free(&declaration.hypers);
}

TEST(has_torchs_defaults)
{
    pd_hypers hypers;

    pd_hypers_init(&hypers, pd_optim_find("sgd"));
    assert_true(value(&hypers, "lr") == 1e-3);
    assert_true(value(&hypers, "momentum") == 0 && value(&hypers, "dampening") == 0 &&
                value(&hypers, "weight_decay") == 0);
    assert_true(value(&hypers, "nesterov") == 0 && value(&hypers, "maximize") == 0);
}

TEST(nesterov_needs_momentum_without_dampening)
{
    pd_hypers hypers;

    set(&hypers, OPTIONS("nesterov", "yes"));
    assert_int_equal(pd_hypers_check(&hypers, NULL), PD_INVALID_ARGUMENT);
    set(&hypers, OPTIONS("nesterov", "yes", "momentum", "0.9", "dampening", "0.1"));
    assert_int_equal(pd_hypers_check(&hypers, NULL), PD_INVALID_ARGUMENT);
    set(&hypers, OPTIONS("nesterov", "yes", "momentum", "0.9"));
    assert_int_equal(pd_hypers_check(&hypers, NULL), PD_OK);
}

TEST(refuses_negative_rates)
{
    static const char *const names[] = { "lr", "momentum", "weight_decay" };
    pd_hypers hypers;

    pd_hypers_init(&hypers, pd_optim_find("sgd"));
    for (size_t i = 0; i < 3; i++) assert_int_equal(pd_hypers_set(&hypers, names[i], "-0.1", NULL), PD_OUT_OF_RANGE);
    assert_int_equal(pd_hypers_set(&hypers, "dampening", "-0.1", NULL), PD_OK);
}

TEST(momentum_may_vary_but_not_come_or_go)
{
    pd_hypers with, more, without;

    set(&with, OPTIONS("momentum", "0.85"));
    set(&more, OPTIONS("momentum", "0.95"));
    set(&without, OPTIONS("lr", "1"));
    assert_int_equal(pd_hypers_check_step(&with, &more, NULL), PD_OK);
    assert_int_equal(pd_hypers_check_step(&with, &without, NULL), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_hypers_check_step(&without, &with, NULL), PD_INVALID_ARGUMENT);
}
