/* Tests what the optimizer shampoo refuses, warns about or passes over: factors and roots that are not finite,
 * failed roots, missing gradients, and invalid values and shapes. */
#include "test.h"
#include "plan_make.h"
#include "shampoo_step.h"
#include "shampoos.h"

typedef shampoo_run run;

static run run_of(const pd_shape *shape, const char *hypers, int steps)
{
    return shampoo_run_of("shampoo", shape, hypers, steps);
}

static const pd_shape matrix = { 2, { 20, 9 } };
#define BLOCKS "max_preconditioner_dim=8 epsilon=1e-4 betas=0.9,0.99 "

/* Takes three good steps, then a step with `bad` in the gradient. Checks that this step is refused with `text`. */
static void step_is_refused(const char *hypers, float bad, const char *text)
{
    run r = run_of(&matrix, hypers, 3);
    float before[180];
    pd_error err;

    shampoo_run_all(&r);
    for (int again = 0; again < 2; again++) { /* the next step is refused too: the factor keeps the bad value */
        shampoo_run_draw(&r);
        if (again == 0) r.gradient[0][17 * 9 + 3] = bad;
        memcpy(before, r.weights[0], sizeof before);
        assert_int_equal(shampoo_run_try(&r, &err), PD_FAILED_PRECONDITION);
        if (strstr(err.text, text) == NULL || strstr(err.text, "w: ") == NULL) fail_msg("%s", err.text);
        assert_memory_equal(before, r.weights[0], sizeof before);
    }
    shampoo_run_end(&r);
}

TEST(a_factor_that_is_not_finite_refuses_the_step_in_upstreams_words)
{
    step_is_refused(BLOCKS, NAN,
                    "Encountered nan values in bias-corrected factor matrix block_4.0! To mitigate, check if nan "
                    "inputs are being passed into the network or nan gradients are being passed to the optimizer.");
    step_is_refused(BLOCKS, 1e30f,
                    "Encountered inf values in bias-corrected factor matrix block_4.0! In some cases, this may be due "
                    "to divergence of the algorithm.");
    step_is_refused(BLOCKS "preconditioner_dtype=float64", NAN,
                    "Encountered nan values in bias-corrected factor matrix block_4.0!");
}

/* In float32 the bias correction of the factor is a little less than 1 - betas[1]. So the corrected factor is larger
 * than the square of the gradient, and it overflows. */
TEST(a_factor_that_overflows_when_it_is_corrected_refuses_the_step)
{
    run r = run_of(&(pd_shape){ 1, { 2 } }, "betas=0,0.999", 0);
    float *L;
    pd_error err;

    shampoo_run_begin(&r);
    r.gradient[0][0] = 1.84467e19f;
    r.gradient[0][1] = 1;
    assert_int_equal(shampoo_run_try(&r, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "Encountered inf values in bias-corrected factor matrix block_0.0!"));
    L = shampoo_slot(&r, "factor_matrices", 0, 0, 4);
    assert_true(shampoo_all_finite(L, 4));
    free(L);
    shampoo_run_end(&r);
}

TEST(a_nan_gradient_between_two_roots_is_not_noticed)
{
    run r = run_of(&matrix, BLOCKS "grafting_config=SGD precondition_frequency=3", 0);
    pd_error err;

    shampoo_run_begin(&r);
    shampoo_run_draw(&r);
    r.gradient[0][0] = NAN;
    shampoo_run_step(&r);
    assert_true(isnan(r.weights[0][0]));
    shampoo_run_draw(&r);
    shampoo_run_step(&r);
    assert_int_equal(shampoo_run_try(&r, &err), PD_FAILED_PRECONDITION);
    shampoo_run_end(&r);
}

TEST(a_root_that_is_not_finite_refuses_the_step)
{
    run r = run_of(&(pd_shape){ 2, { 6, 5 } }, "use_merge_dims=no exponent_multiplier=30 root_retries=0", 0);
    pd_error err;

    shampoo_run_begin(&r);
    shampoo_run_draw(&r);
    for (int i = 0; i < 30; i++) r.gradient[0][i] *= 1e-7f;
    assert_int_equal(shampoo_run_try(&r, &err), PD_FAILED_PRECONDITION);
    if (strstr(err.text, "Encountered nan or inf values in inverse factor matrix block_0.0!") == NULL)
        fail_msg("%s", err.text);
    shampoo_run_end(&r);
}

/* After one iteration the root is too inexact and is refused. The last good root stays in use; where there was none,
 * the root is zero. */
TEST(a_root_that_failed_leaves_the_last_good_one_if_protected)
{
    static const char failing[] = "use_merge_dims=no betas=0,1 root_inverse_method=higher_order "
                                  "root_inverse_max_iterations=1 root_inverse_tolerance=1e-20 epsilon=1e-10 ";
    char bare[256];
    run kept = run_of(&(pd_shape){ 2, { 6, 5 } }, failing, 2), refused;
    float *R;
    pd_error err;

    shampoo_run_all(&kept);
    R = shampoo_slot(&kept, "inv_factor_matrices", 0, 0, 36);
    for (int i = 0; i < 36; i++) assert_true(R[i] == 0);
    free(R);
    shampoo_run_end(&kept);
    snprintf(bare, sizeof bare, "%suse_protected_eigh=no", failing);
    refused = run_of(&(pd_shape){ 2, { 6, 5 } }, bare, 0);
    shampoo_run_begin(&refused);
    shampoo_run_draw(&refused);
    assert_int_equal(shampoo_run_try(&refused, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "use_protected_eigh"));
    shampoo_run_end(&refused);
}

TEST(a_failed_root_is_repaired_by_retries)
{
    run r = run_of(&(pd_shape){ 2, { 6, 5 } },
                   "use_merge_dims=no betas=0,1 root_inverse_method=higher_order root_inverse_max_iterations=1 "
                   "root_inverse_tolerance=1e-20 root_retries=1",
                   1);
    float *R;

    shampoo_run_all(&r);
    R = shampoo_slot(&r, "inv_factor_matrices", 0, 0, 36);
    assert_true(R[0] > 0);
    free(R);
    shampoo_run_end(&r);
}

TEST(a_parameter_without_a_gradient_takes_no_step_and_its_group_counts_it)
{
    run both = run_of(&matrix, BLOCKS "grafting_config=Adam", 0), one;
    float before[180], *L, *later;

    both.n = 2;
    both.param[1] = (pd_declaration){ .name = "v", .shape = { 1, { 5 } }, .hypers = both.param[0].hypers };
    one = both;
    shampoo_run_begin(&both);
    shampoo_run_begin(&one);
    for (int step = 0; step < 4; step++) {
        one.missing[0] = step == 1 || step == 2;
        shampoo_run_draw(&both);
        for (int p = 0; p < 2; p++)
            memcpy(one.gradient[p], both.gradient[p], (size_t)(p == 0 ? 180 : 5) * sizeof(float));
        memcpy(before, one.weights[0], sizeof before);
        L = shampoo_slot(&one, "factor_matrices", 0, 0, 64);
        shampoo_run_step(&both);
        shampoo_run_step(&one);
        later = shampoo_slot(&one, "factor_matrices", 0, 0, 64);
        assert_int_equal(memcmp(before, one.weights[0], sizeof before) == 0, one.missing[0]);
        assert_int_equal(memcmp(L, later, 64 * sizeof *L) == 0, one.missing[0]);
        free(L);
        free(later);
    }
    assert_memory_equal(both.weights[1], one.weights[1], 5 * sizeof(float));
    shampoo_run_end(&both);
    shampoo_run_end(&one);
}

/* The bias corrections use the step count of the group, which also counts steps in which this parameter had no
 * gradient.
 *
 * Such steps have no other effect: they do not decay the factors or the filtered gradient. With betas[1] = 1, only
 * the correction of the filtered gradient depends on the count. */
TEST(corrections_follow_the_groups_count)
{
    run pair =
        run_of(&(pd_shape){ 1, { 3 } }, "lr=1 betas=0.5,1 start_preconditioning_step=100 grafting_config=SGD", 0);
    float expected;

    pair.n = 2;
    pair.param[1] = pair.param[0];
    pair.param[1].name = "v";
    pair.missing[0] = true;
    shampoo_run_begin(&pair);
    shampoo_run_step(&pair);
    shampoo_run_step(&pair);
    pair.missing[0] = false;
    pair.gradient[0][0] = 1;
    expected = pair.weights[0][0] - 0.5f / 0.875f; /* the filtered gradient 0.5, corrected for step 3 of the group */
    shampoo_run_step(&pair);
    assert_true(fabsf(pair.weights[0][0] - expected) < 1e-6f);
    shampoo_run_end(&pair);
}

static int check(const char *list, pd_error *err)
{
    pd_hypers hypers;
    char text[256], *rest = text, *word;
    int rc = PD_OK;

    pd_hypers_init(&hypers, pd_optim_find("shampoo"));
    snprintf(text, sizeof text, "%s", list);
    while (rc == PD_OK && (word = strsep(&rest, " ")) != NULL) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        rc = pd_hypers_set(&hypers, word, value, err);
    }
    return rc == PD_OK ? pd_hypers_check(&hypers, err) : rc;
}

static void assert_refused(const char *list, const char *part_of_text)
{
    pd_error err = { 0 };
    int rc = check(list, &err);

    if ((rc != PD_INVALID_ARGUMENT && rc != PD_OUT_OF_RANGE) || strstr(err.text, part_of_text) == NULL)
        fail_msg("%s: %d %s", list, rc, err.text);
}

TEST(what_cannot_be_is_refused)
{
    assert_refused("beta3=1", "Invalid beta3 parameter: 1.0. Must be in [0.0, 1.0).");
    assert_refused("beta3=-0.5", "Invalid beta3 parameter: -0.5.");
    assert_refused("dampening=1", "Invalid dampening parameter: 1.0.");
    assert_refused("num_trainers_per_group=0", "Invalid number of trainers per group: 0.");
    assert_refused("root_inverse_order=1", "root_inverse_order of shampoo: 1 is outside its range, 2 to 32");
    assert_refused("root_inverse_method=newton exponent_multiplier=1.82", "exponent_multiplier");
    assert_refused("root_inverse_method=higher_order exponent_multiplier=0.5", "exponent_multiplier");
    assert_refused("precondition_frequency=2 root_delay=3", "precondition_frequency");
    assert_refused("grafting_config=Nadam", "RMSprop");
    assert_refused("precision_config=PrecisionConfig(computation_dtype=bfloat16)", "float32");
    assert_refused("preconditioner_dtype=float32 precision_config=PrecisionConfig()",
                   "Both preconditioner_dtype and precision_config are provided.");
    assert_refused("preconditioner_dtype=float64 precision_config.momentum_dtype=bfloat16",
                   "Both preconditioner_dtype and precision_config are provided.");
    assert_refused("inv_root_override=[2,-1]", "Invalid exponent override list: [2, -1].");
    assert_refused("root_retries=7", "6");
    assert_int_equal(check("root_inverse_method=tracked exponent_multiplier=1.82 precondition_frequency=2 root_delay=2 "
                           "beta3=0 grafting_config.beta2=7",
                           NULL),
                     PD_OK);
}

TEST(the_group_of_trainers_divides_the_world)
{
    pd_declaration param = { .name = "w", .shape = { 1, { 4 } }, .world = 6 };
    double stats[PD_MAX_MODEL_STATS] = { 0 };
    pd_plan plan;
    pd_error err;

    for (int trainers = 1; trainers <= 7; trainers++) {
        char text[16];
        int rc;
        pd_hypers_init(&param.hypers, pd_optim_find("shampoo"));
        snprintf(text, sizeof text, "%d", trainers);
        assert_int_equal(pd_hypers_set(&param.hypers, "num_trainers_per_group", text, &err), PD_OK);
        rc = pd_plan_make(&plan, &param, stats, &err);
        assert_int_equal(rc, trainers <= 6 && 6 % trainers == 0 ? PD_OK : PD_INVALID_ARGUMENT);
        if (rc == PD_OK) pd_plan_free(&plan);
    }
}

TEST(what_decides_on_state_cannot_change_while_a_job_runs)
{
    static const struct {
        int index;
        double declared, now;
        bool may;
    } all[] = {
        { BETA1, 0.9, 0, false },    { BETA1, 0, 0.9, false },      { BETA1, 0.9, 0.8, true },
        { MOMENTUM, 0, 0.5, false }, { MOMENTUM, 0.5, 0, false },   { MOMENTUM, 0.5, 0.9, true },
        { LR, 0.1, 0, true },        { FREQUENCY, 1, 1, true },     { MAX_DIM, 8, 9, false },
        { GRAFTING, 0, 1, false },   { EPSILON, 1e-3, 1e-4, true }, { EPSILON, 1e-3, 0, false },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pd_hypers declared = shampoo_hypers("shampoo", ""), now;
        declared.value[all[i].index] = all[i].declared;
        now = declared;
        now.value[all[i].index] = all[i].now;
        assert_int_equal(pd_hypers_check_step(&declared, &now, NULL) == PD_OK, all[i].may);
    }
}

TEST(what_is_probably_a_mistake_is_warned_of)
{
    static const struct {
        const char *hypers, *part;
    } all[] = {
        { "", NULL },
        { "inv_root_override=2", NULL },
        { "exponent_multiplier=1.82", NULL },
        { "use_nesterov=yes momentum=0.5", NULL },
        { "inv_root_override=[0,0,2] exponent_multiplier=1.82", "advises one of them" },
        { "use_nesterov=yes", "without momentum" },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pd_hypers hypers = shampoo_hypers("shampoo", all[i].hypers);
        const char *text = hypers.row->warning(&hypers);
        assert_int_equal(text == NULL, all[i].part == NULL);
        if (text != NULL) assert_non_null(strstr(text, all[i].part));
    }
}

static void plan_is_refused(const pd_shape *shape, const char *hypers, const char *part_of_text)
{
    pd_declaration param = { .name = "emb", .shape = *shape, .hypers = shampoo_hypers("shampoo", hypers) };
    pd_plan plan;
    pd_error err;

    assert_int_equal(pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 0 }, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, "emb") == NULL || strstr(err.text, part_of_text) == NULL) fail_msg("%s", err.text);
}

TEST(shapes_that_cannot_be_are_refused_at_declaration)
{
    plan_is_refused(&(pd_shape){ 0, { 0 } }, "use_merge_dims=no", "use_merge_dims");
    plan_is_refused(&(pd_shape){ 2, { (int64_t)1 << 30, 2 } }, "max_preconditioner_dim=2147483647 use_merge_dims=no",
                    "max_preconditioner_dim");
}
