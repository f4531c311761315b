/* The example's model: its derivatives are those of its loss, and workers' gradients average to the whole batch's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "counter.h"
#include "mlp.h"

#include <string.h>

enum { INPUTS = 7, CLASSES = 4, BATCH = 12 };
static const int widths[MLP_LAYERS + 1] = { INPUTS, 6, 5, CLASSES };

typedef struct fixture {
    mlp     net;
    float   x[BATCH * INPUTS];
    uint8_t label[BATCH];
} fixture;

static int64_t elements(const mlp *net, int tensor)
{
    pd_shape shape = mlp_shape(net, tensor);
    int64_t  n = 0;
    assert_int_equal(pd_shape_elements(&shape, &n), PD_OK);
    return n;
}

static int setup(void **state)
{
    static fixture f;

    assert_int_equal(mlp_new(&f.net, widths, BATCH), PD_OK);
    mlp_init(&f.net, 5);
    for (int l = 0; l < MLP_LAYERS; l++)                /* biases that are not 0, so that they are tested too */
        for (int i = 0; i < widths[l + 1]; i++) f.net.tensor[2 * l + 1][i] = 0.3f * counter_symmetric(6, (uint64_t)l, (uint64_t)i);
    for (int i = 0; i < BATCH * INPUTS; i++) f.x[i] = counter_symmetric(7, 0, (uint64_t)i);
    for (int i = 0; i < BATCH; i++) f.label[i] = (uint8_t)counter_below(CLASSES, 8, 0, (uint64_t)i);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    mlp_free(&f->net);
    return 0;
}

static double loss(fixture *f)
{
    int correct;
    return mlp_evaluate(&f->net, f->x, f->label, BATCH, &correct);
}

static void derivatives_agree_with_differences_of_the_loss(void **state)
{
    fixture    *f = *state;
    const float reach = 1e-3f;

    mlp_differentiate(&f->net, f->x, f->label, BATCH);
    for (int t = 0; t < MLP_TENSORS; t++)
        for (int64_t i = 0; i < elements(&f->net, t); i++) {
            float *at = &f->net.tensor[t][i], here = *at, above = here + reach, below = here - reach;
            double high, low, slope;
            *at = above;
            high = loss(f);
            *at = below;
            low = loss(f);
            *at = here;
            slope = (high - low) / ((double)above - (double)below);
            if (fabs(slope - (double)f->net.gradient[t][i]) > 1e-3)
                fail_msg("%s[%lld]: derivative %g, difference %g", mlp_name(t), (long long)i, (double)f->net.gradient[t][i], slope);
        }
}

static void gradients_of_parts_average_to_the_whole_batch(void **state)
{
    fixture *f = *state;
    float    mean[INPUTS * 6] = { 0 };
    int      bounds[] = { 0, 5, 6, BATCH };

    for (int part = 0; part < 3; part++) {
        int n = bounds[part + 1] - bounds[part];
        mlp_differentiate(&f->net, f->x + bounds[part] * INPUTS, f->label + bounds[part], n);
        for (int i = 0; i < INPUTS * 6; i++) mean[i] += f->net.gradient[0][i] * (float)n / BATCH;
    }
    mlp_differentiate(&f->net, f->x, f->label, BATCH);
    for (int i = 0; i < INPUTS * 6; i++) assert_float_equal(mean[i], f->net.gradient[0][i], 1e-6);
}

static void loss_of_equal_scores_is_the_logarithm_of_the_classes(void **state)
{
    fixture *f = *state;

    for (int t = 0; t < MLP_TENSORS; t++) memset(f->net.tensor[t], 0, (size_t)elements(&f->net, t) * sizeof(float));
    assert_float_equal(loss(f), log(CLASSES), 1e-6);
}

static void large_scores_give_a_finite_loss(void **state)
{
    fixture *f = *state;

    f->net.tensor[MLP_TENSORS - 1][0] = 1e30f;
    assert_true(isfinite(loss(f)));
}

static void counts_correct_answers(void **state)
{
    fixture *f = *state;
    int      correct, expected = 0;

    for (int t = 0; t < MLP_TENSORS; t++) memset(f->net.tensor[t], 0, (size_t)elements(&f->net, t) * sizeof(float));
    f->net.tensor[MLP_TENSORS - 1][2] = 1.0f;                   /* the answer is always 2 */
    for (int i = 0; i < BATCH; i++) expected += f->label[i] == 2;
    assert_true(expected > 0);
    mlp_evaluate(&f->net, f->x, f->label, BATCH, &correct);
    assert_int_equal(correct, expected);
}

static void first_weights_depend_on_the_seed_alone(void **state)
{
    fixture *f = *state;
    mlp      twin;

    assert_int_equal(mlp_new(&twin, widths, 1), PD_OK);
    mlp_init(&f->net, 9);
    mlp_init(&twin, 9);
    for (int t = 0; t < MLP_TENSORS; t++)
        assert_memory_equal(f->net.tensor[t], twin.tensor[t], (size_t)elements(&twin, t) * sizeof(float));
    mlp_init(&twin, 10);
    assert_memory_not_equal(f->net.tensor[0], twin.tensor[0], (size_t)elements(&twin, 0) * sizeof(float));
    mlp_free(&twin);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(derivatives_agree_with_differences_of_the_loss),
        CASE(gradients_of_parts_average_to_the_whole_batch),
        CASE(loss_of_equal_scores_is_the_logarithm_of_the_classes),
        CASE(large_scores_give_a_finite_loss),
        CASE(counts_correct_answers),
        CASE(first_weights_depend_on_the_seed_alone),
    };
    return cmocka_run_group_tests_name("mlp", tests, NULL, NULL);
}
