/* Tests what the optimizer shampoo does with semantics=2026: its classes against what they must equal, decays,
 * exponents, counting, and which options do not fit together. Recorded runs of upstream: tests/golden/test_meta_head.c,
 * test_meta_soap.c and test_meta_kl.c. */
#include "test.h"
#include "plan_make.h"
#include "shampoo_step.h"
#include "shampoos.h"

typedef shampoo_run run;

#define NEW "semantics=2026 use_merge_dims=no epsilon=1e-4 betas=0.9,0.99 "
static const pd_shape matrix = { 2, { 12, 7 } };

static run run_of(const pd_shape *shape, const char *hypers, int steps)
{
    return shampoo_run_of("shampoo", shape, hypers, steps);
}

static bool runs_agree(const pd_shape *shape, const char *one, const char *other, int steps)
{
    return shampoo_runs_agree("shampoo", shape, one, other, steps);
}

/* Returns how far the weights of two runs are from each other, over the way of the first one. The optimizers see the
 * same gradients. */
static double distance(run a, run b)
{
    double apart = 0, way = 0;
    float *start;
    int64_t n;

    shampoo_run_begin(&a);
    shampoo_run_begin(&b);
    n = shampoo_elements(&a.param[0]);
    assert_non_null(start = malloc((size_t)n * sizeof *start));
    memcpy(start, a.weights[0], (size_t)n * sizeof *start);
    for (int step = 0; step < a.steps; step++) {
        shampoo_run_draw(&a);
        memcpy(b.gradient[0], a.gradient[0], (size_t)n * sizeof *start);
        shampoo_run_step(&a);
        shampoo_run_step(&b);
    }
    for (int64_t i = 0; i < n; i++) {
        apart += pow((double)(a.weights[0][i] - b.weights[0][i]), 2);
        way += pow((double)(a.weights[0][i] - start[i]), 2);
    }
    free(start);
    shampoo_run_end(&a);
    shampoo_run_end(&b);
    assert_true(way > 0);
    return sqrt(apart / way);
}

static double differs_from(const char *row, const char *other, const char *shampoo)
{
    return distance(run_of(&matrix, shampoo, 8), shampoo_run_of(row, &matrix, other, 8));
}

HOLDS(the_release_of_2024_is_the_default,
      assert_true(runs_agree(&matrix, "epsilon=1e-4", "epsilon=1e-4 semantics=2024", 4)));

TEST(roots_begin_as_the_identity)
{
    run r = run_of(&matrix, NEW, 0);
    float *R;

    shampoo_run_begin(&r);
    R = shampoo_slot(&r, "inv_factor_matrices", 1, 0, 49);
    for (int i = 0; i < 49; i++) assert_true(R[i] == (i % 8 == 0 ? 1.0f : 0.0f));
    free(R);
    shampoo_run_end(&r);
}

/* Without a graft, steps before the start are those of sgd with the corrected average of the gradient. With beta1 = 0
 * that is the gradient. */
TEST(before_the_start_a_step_without_graft_is_that_of_sgd)
{
    assert_true(differs_from("sgd", "lr=0.01", "semantics=2026 lr=0.01 betas=0,0.99 start_preconditioning_step=100") <
                1e-5);
}

/* A root that is not there yet would be the identity, whose direction has nothing to do with the graft's. */
TEST(late_roots_are_waited_for_with_the_grafts_steps)
{
    static const char late[] = NEW "grafting_config=Adam precondition_frequency=4 root_delay=3 ",
                      never[] = NEW "grafting_config=Adam start_preconditioning_step=1000 ";

    assert_true(runs_agree(&matrix, late, never, 6));
    assert_false(runs_agree(&matrix, late, never, 7));
}

TEST(classes_of_first_order_are_torchs_optimizers)
{
    assert_true(differs_from("adam", "lr=0.01 betas=0.9,0.95 eps=1e-8",
                             NEW "preconditioner_config=Adam lr=0.01 grafting_config.beta2=0.95 "
                                 "grafting_config.epsilon=1e-8") < 1e-4);
    assert_true(differs_from("adagrad", "lr=0.01", "semantics=2026 betas=0,0.9 preconditioner_config=AdaGrad lr=0.01") <
                1e-5);
    assert_true(differs_from("rmsprop", "lr=0.01 alpha=0.9 eps=1e-10",
                             "semantics=2026 betas=0,0.9 preconditioner_config=RMSprop lr=0.01 "
                             "grafting_config.beta2=0.9") < 1e-5);
    assert_true(differs_from("sgd", "lr=0.01", "semantics=2026 betas=0,0.9 preconditioner_config=SGD lr=0.01") < 1e-5);
}

TEST(signs_are_lions_without_its_averages)
{
    assert_true(differs_from("lion", "lr=0.01 betas=0,0 weight_decay=0.1",
                             "semantics=2026 betas=0,0.9 preconditioner_config=SignDescent lr=0.01 weight_decay=0.1") <
                1e-5);
}

/* Muon's momentum is another average of the gradient, whose length the iteration does not see. */
TEST(spectral_descent_is_muon_without_nesterov)
{
    assert_true(
        differs_from("muon", "lr=0.01 momentum=0.9 nesterov=no weight_decay=0 eps=1e-8",
                     "semantics=2026 betas=0.9,0.9 use_bias_correction=no preconditioner_config=SpectralDescent "
                     "lr=0.013093073414159543") < 1e-3);
}

TEST(spectral_descent_takes_matrices_alone)
{
    pd_declaration param = { .name = "b",
                             .shape = { 1, { 5 } },
                             .hypers = shampoo_hypers("shampoo", NEW "preconditioner_config=SpectralDescent") };
    pd_plan plan;
    pd_error err;

    assert_int_equal(pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 0 }, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "needs matrices"));
}

TEST(corrected_eigenvalues_before_the_start_are_adams)
{
    assert_true(differs_from("adam", "lr=0.01 betas=0.9,0.99 eps=1e-4",
                             NEW "lr=0.01 preconditioner_config=EigenvalueCorrectedShampoo "
                                 "start_preconditioning_step=100") < 1e-4);
    assert_true(differs_from("adam", "lr=0.01 betas=0.9,0.99 eps=1e-4",
                             NEW "lr=0.01 preconditioner_config=EigenvalueCorrectedShampoo "
                                 "start_preconditioning_step=3") > 1e-2);
}

/* A basis turns both what is divided and what divides: in any orthonormal basis the step of a matrix with one direction
 * is Adam's in that basis. So all ignored dimensions leave Adam. */
TEST(a_basis_of_ignored_dimensions_is_that_of_the_elements)
{
    assert_true(differs_from("adam", "lr=0.01 betas=0.9,0.99 eps=1e-4",
                             NEW "lr=0.01 preconditioner_config=EigenvalueCorrectedShampoo "
                                 "ignored_basis_change_dims=[2:[0,1]]") < 1e-4);
}

TEST(classes_with_eigenvectors_have_the_steps_of_roots)
{
    assert_true(runs_agree(&matrix, NEW, NEW "preconditioner_config=EigendecomposedShampoo", 5));
    assert_true(runs_agree(&matrix, NEW "preconditioner_config=RootInvKLShampoo",
                           NEW "preconditioner_config=EigendecomposedKLShampoo", 5));
    assert_true(runs_agree(&matrix, NEW, NEW "rank_deficient_stability_config=PerturbationAfter", 5));
}

/* Many QR iterations lead to the eigenvectors that a decomposition gives. */
TEST(qr_and_eigh_agree_where_qr_has_converged)
{
    static const char eigh[] = NEW "start_preconditioning_step=30 preconditioner_config=EigendecomposedShampoo ";
    static const char qr[] = NEW "start_preconditioning_step=30 preconditioner_config=EigendecomposedShampoo "
                                 "root_inverse_method=qr root_inverse_max_iterations=500";

    assert_true(distance(run_of(&matrix, eigh, 34), run_of(&matrix, qr, 34)) < 1e-3);
}

TEST(exponents_are_by_order_and_dimension)
{
    assert_true(runs_agree(&matrix, NEW, NEW "inverse_exponent_override=[2:0.25]", 4));
    assert_true(runs_agree(&matrix, NEW "inverse_exponent_override=[2:0.5]",
                           NEW "inverse_exponent_override=[1:3,2:[0:0.5,1:0.5]]", 4));
    assert_true(runs_agree(&matrix, NEW, NEW "inverse_exponent_override=[1:3,3:[2:0]]", 4));
    assert_false(runs_agree(&matrix, NEW, NEW "inverse_exponent_override=[2:[1:0.5]]", 4));
}

TEST(an_exponent_of_0_leaves_a_factor_out)
{
    run r = run_of(&matrix, NEW "inverse_exponent_override=[2:[0:0]]", 3), none;
    double value[1];
    float *L;

    shampoo_run_all(&r);
    L = shampoo_slot(&r, "factor_matrices", 0, 0, 49);
    assert_true(L[0] > 0);
    assert_int_equal(pd_model_read_part(r.model, 0, "factor_matrices", 1, 0, value, 1, NULL), PD_NOT_FOUND);
    free(L);
    shampoo_run_end(&r);
    none = run_of(&matrix, "semantics=2026 lr=0.01 betas=0,0.9 inverse_exponent_override=[1:0,2:0]", 5);
    assert_true(distance(none, shampoo_run_of("sgd", &matrix, "lr=0.01", 5)) < 1e-5);
}

/* decay: the factor by which a step without gradients shrinks the weights, 1 - lr alpha */
static void assert_decay(const char *type, double lr, double alpha)
{
    char list[256];
    run r;
    float before;

    snprintf(list, sizeof list,
             "semantics=2026 lr=%g peak_lr=0.5 weight_decay=0.25 weight_decay_type=%s betas=0,0.9 epsilon=1e-4 ", lr,
             type);
    r = run_of(&(pd_shape){ 1, { 1 } }, list, 1);
    shampoo_run_begin(&r);
    before = r.weights[0][0] = 2;
    r.gradient[0][0] = 0;
    shampoo_run_step(&r);
    assert_true(fabs((double)r.weights[0][0] - (double)before * (1 - lr * alpha)) < 1e-6);
    shampoo_run_end(&r);
}

TEST(decay_is_whole_or_a_share_of_the_peak_rate)
{
    assert_decay("DECOUPLED", 0.125, 0.25);
    assert_decay("CORRECTED", 0.125, 0.25 * 0.125 / 0.5);
    assert_decay("INDEPENDENT", 0.125, 0.25 / 0.5);
    assert_true(runs_agree(&matrix, NEW "weight_decay=0.1 weight_decay_type=L2",
                           NEW "weight_decay=0.1 use_decoupled_weight_decay=no", 4));
    assert_true(runs_agree(&matrix, NEW "lr=0.02 weight_decay=0.1 weight_decay_type=CORRECTED",
                           NEW "lr=0.02 weight_decay=0.1 weight_decay_type=DECOUPLED", 4));
}

/* Without the weight (1 - beta2) and a correction, a factor is 1 / (1 - beta2) times as large, and the exponents of a
 * matrix's two factors make 1/2 of that. */
TEST(terms_of_factors_may_have_the_weight_1)
{
    run r = run_of(&matrix, NEW "drop_weighting_factor_on_gsquare=yes betas=0,0.75", 1);
    run s = run_of(&matrix, NEW "betas=0,0.75", 1);
    float *a, *b;

    shampoo_run_all(&r);
    shampoo_run_all(&s);
    a = shampoo_slot(&r, "factor_matrices", 0, 0, 144);
    b = shampoo_slot(&s, "factor_matrices", 0, 0, 144);
    for (int i = 0; i < 144; i++) assert_true(a[i] == 4 * b[i]);
    free(a);
    free(b);
    shampoo_run_end(&r);
    shampoo_run_end(&s);
}

TEST(steps_without_a_gradient_count)
{
    static const char *const lists[] = { "semantics=2024", "semantics=2026" };

    for (int k = 0; k < 2; k++) {
        run r = run_of(&matrix, lists[k], 0);
        shampoo_run_begin(&r);
        for (int step = 0; step < 6; step++) {
            r.missing[0] = step % 2 == 0;
            shampoo_run_draw(&r);
            shampoo_run_step(&r);
        }
        assert_int_equal(pd_model_count(r.model, 0), k == 0 ? 3 : 6);
        shampoo_run_end(&r);
    }
}

#define GPA "train_interp_coeff=0.7 eval_interp_coeff=0.9 weight_decay=0.1 lr=0.01 "
#define AVERAGES                                                                                                       \
    "iterate_averaging_config.train_interp_coeff=0.7 iterate_averaging_config.eval_interp_coeff=0.9 weight_decay=0.1 " \
    "lr=0.01 "

TEST(averages_of_iterates_are_those_of_gpa_and_schedule_free)
{
    assert_true(differs_from("gpa", GPA "beta1=0.9 beta2=0.95 eps=1e-8",
                             NEW AVERAGES "preconditioner_config=Adam grafting_config.beta2=0.95 "
                                          "grafting_config.epsilon=1e-8") < 1e-4);
    assert_true(differs_from("schedule_free_sgd", "lr=0.01 momentum=0.8",
                             "semantics=2026 betas=0,0.9 preconditioner_config=SGD lr=0.01 "
                             "iterate_averaging_config.train_interp_coeff=0.8 "
                             "iterate_averaging_config.eval_interp_coeff=schedule_free") < 1e-4);
}

/* The weights are train x + (1 - train) z, where x are those to evaluate with and z_minus_y = z - weights. */
TEST(the_weights_to_evaluate_with_are_the_averaged_ones)
{
    run r = run_of(&matrix, NEW AVERAGES, 5);
    float x[84], *d;

    shampoo_run_all(&r);
    d = shampoo_slot(&r, "z_minus_y", -1, -1, 84);
    pd_model_read_out(r.model, 0, r.weights[0], x);
    for (int i = 0; i < 84; i++) {
        double z = (double)(r.weights[0][i] + d[i]), y = 0.7 * (double)x[i] + 0.3 * z;
        assert_true(d[i] != 0 && fabs(y - (double)r.weights[0][i]) < 1e-6);
    }
    free(d);
    shampoo_run_end(&r);
}

TEST(without_averages_the_weights_themselves_are_evaluated)
{
    run r = run_of(&matrix, NEW, 3);
    float x[84];

    shampoo_run_all(&r);
    pd_model_read_out(r.model, 0, r.weights[0], x);
    assert_memory_equal(x, r.weights[0], sizeof x);
    shampoo_run_end(&r);
}

/* A missed step counts in the average over all steps, with the rate of the next one. */
TEST(missed_steps_count_in_the_average_over_all_steps)
{
    run r = run_of(&matrix,
                   NEW "lr=0.5 iterate_averaging_config.train_interp_coeff=0.8 "
                       "iterate_averaging_config.eval_interp_coeff=schedule_free",
                   0);
    double sum = 0;

    shampoo_run_begin(&r);
    for (int step = 0; step < 6; step++) {
        r.missing[0] = step == 2 || step == 3;
        shampoo_run_draw(&r);
        shampoo_run_step(&r);
    }
    assert_int_equal(pd_model_read_part(r.model, 0, "weight_sum", -1, -1, &sum, 1, NULL), PD_OK);
    assert_true(sum == 6 * 0.25);
    shampoo_run_end(&r);
}

TEST(dimensions_are_merged_from_the_last_one)
{
    run r = run_of(&(pd_shape){ 3, { 8, 20, 10 } }, "semantics=2026 max_preconditioner_dim=256 epsilon=1e-4", 1);
    float *L;

    shampoo_run_all(&r);
    L = shampoo_slot(&r, "factor_matrices", 1, 0, 200 * 200);
    free(L);
    shampoo_run_end(&r);
}

TEST(the_number_of_threads_does_not_change_a_bit)
{
    static const char *const kinds[] = {
        "max_preconditioner_dim=32 semantics=2026 epsilon=1e-4 grafting_config=Adam weight_decay=0.1 momentum=0.9",
        "max_preconditioner_dim=20 semantics=2026 epsilon=1e-8 preconditioner_config=EigenvalueCorrectedShampoo "
        "precondition_frequency=3 root_delay=2 target_parameter_dimensionality=inf",
        "max_preconditioner_dim=32 semantics=2026 epsilon=1e-4 preconditioner_config=EigendecomposedKLShampoo "
        "root_inverse_method=qr betas=0,0.9 weight_decay_type=L2 weight_decay=0.1",
        "max_preconditioner_dim=32 semantics=2026 epsilon=1e-4 preconditioner_config=SignDescent grafting_config=SGD",
        "max_preconditioner_dim=32 semantics=2026 epsilon=1e-4 iterate_averaging_config.train_interp_coeff=0.8 "
        "iterate_averaging_config.eval_interp_coeff=schedule_free",
    };
    static const pd_shape shapes[] = { { 2, { 70, 50 } }, { 3, { 11, 13, 21 } }, { 1, { 100 } } };

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < 3; s++) shampoo_assert_threads_agree("shampoo", &shapes[s], kinds[k], 4);
    shampoo_assert_threads_agree("shampoo", &shapes[0], NEW "preconditioner_config=SpectralDescent", 4);
}

TEST(every_block_has_the_scratch_memory_that_it_takes)
{
    static const pd_shape shapes[] = { { 2, { 360, 301 } }, { 2, { 190, 400 } }, { 2, { 9, 9 } } };
    static const char *const kinds[] = { "preconditioner_config=EigenvalueCorrectedShampoo",
                                         "preconditioner_config=SpectralDescent",
                                         "preconditioner_config=SignDescent weight_decay_type=L2",
                                         "preconditioner_config=EigendecomposedKLShampoo root_inverse_method=qr" };

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            pd_declaration param = { .name = "w", .shape = shapes[s] };
            pd_plan plan;
            char list[256];
            snprintf(list, sizeof list, NEW "max_preconditioner_dim=200 %s", kinds[k]);
            param.hypers = shampoo_hypers("shampoo", list);
            assert_int_equal(pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 0 }, NULL), PD_OK);
            for (size_t b = 0; b < plan.n_blocks; b++) {
                shampoo_scratch parts = pd_shampoo_scratch(&plan, &plan.blocks[b], param.hypers.value);
                assert_true(parts.gradient + parts.filtered + parts.direction + parts.products + parts.whitened <=
                            (int64_t)plan.scratch_floats);
            }
            pd_plan_free(&plan);
        }
}

static void assert_refused(const char *list, const char *part)
{
    pd_hypers hypers;
    pd_error err = { 0 };
    int rc;

    shampoo_take(&hypers, "shampoo", list);
    rc = pd_hypers_check(&hypers, &err);
    if (rc != PD_INVALID_ARGUMENT || strstr(err.text, part) == NULL) fail_msg("%s: %d %s", list, rc, err.text);
    pd_hypers_free(&hypers);
}

TEST(each_release_refuses_what_only_the_other_one_has)
{
    static const char *const newer[] = { "preconditioner_config=EigenvalueCorrectedShampoo",
                                         "inverse_exponent_override=[2:0.5]",
                                         "drop_weighting_factor_on_gsquare=yes",
                                         "weight_decay_type=CORRECTED",
                                         "rank_deficient_stability_config=PerturbationAfter",
                                         "target_parameter_dimensionality=2",
                                         "root_inverse_method=qr",
                                         "iterate_averaging_config.train_interp_coeff=0.5",
                                         "ignored_basis_change_dims=[1:0]" };

    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) assert_refused(newer[i], "set semantics=2026");
    assert_refused("semantics=2026 inv_root_override=2", "set inverse_exponent_override");
    assert_refused("semantics=2026 exponent_multiplier=2", "set semantics=2024");
    assert_refused("semantics=2026 preconditioner_dtype=float64", "set semantics=2024");
}

TEST(what_does_not_fit_together_is_refused)
{
    assert_refused("semantics=2026 root_inverse_method=qr", "needs a preconditioner_config with eigenvectors");
    assert_refused("semantics=2026 preconditioner_config=EigendecomposedShampoo root_inverse_method=newton",
                   "must be eigen or qr");
    assert_refused("semantics=2026 epsilon=1e-3 rank_deficient_stability_config=PseudoInverse", "Must be == 0.0");
    assert_refused("semantics=2026 epsilon=0 rank_deficient_stability_config=PseudoInverse root_inverse_method=newton",
                   "PseudoInverse needs roots");
    assert_refused("semantics=2026 ignored_basis_change_dims=[1:0]", "needs preconditioner_config=Eigenvalue");
    assert_refused("semantics=2026 preconditioner_config=Adam grafting_config=SGD", "must be none");
    assert_refused("semantics=2026 weight_decay_type=CORRECTED lr=linear_warmup(peak=1,warmup_steps=5)",
                   "peak_lr of shampoo must be given where lr has a schedule");
    assert_refused("semantics=2026 weight_decay_type=INDEPENDENT lr=0", "must be given where lr is 0");
    assert_refused(NEW AVERAGES "momentum=0.5", "momentum of shampoo must be 0");
    assert_refused(NEW AVERAGES "hyperball=yes", "hyperball of shampoo cannot be combined");
    assert_refused(NEW AVERAGES "communication_dtype=BF16", "must be FP32");
    assert_refused(NEW "iterate_averaging_config.train_interp_coeff=1e-9", "expected 1e-6 to 1");
    assert_refused(NEW AVERAGES "iterate_averaging_config.eval_interp_coeff=-0.5", "expected 0 to 1, or schedule_free");
    assert_refused("semantics=2026 preconditioner_config=EigenvalueCorrectedShampoo "
                   "inverse_exponent_override=[2:[0:0.5,1:0.25]]",
                   "takes one exponent");
}

TEST(lists_by_order_are_refused_with_what_is_wrong)
{
    assert_refused("semantics=2026 inverse_exponent_override=[9:0.5]", "a number of dimensions from 0 to 8, got \"9\"");
    assert_refused("semantics=2026 inverse_exponent_override=[2:-1]", "an exponent from 0 to 16, got \"-1\"");
    assert_refused("semantics=2026 inverse_exponent_override=[2:[2:1]]", "a dimension below 2, got \"2\"");
    assert_refused("semantics=2026 inverse_exponent_override=[2:[x:1]]", "a dimension below 2, got \"x\"");
    assert_refused("semantics=2026 inverse_exponent_override=2", "key:value");
    assert_refused("semantics=2026 preconditioner_config=EigenvalueCorrectedShampoo ignored_basis_change_dims=[2:2]",
                   "a dimension below 2");
}

TEST(newton_computes_whole_roots_alone)
{
    pd_declaration param = { .name = "w", .shape = matrix };
    pd_plan plan;
    pd_error err;

    shampoo_take(&param.hypers, "shampoo", NEW "root_inverse_method=newton inverse_exponent_override=[2:0.3]");
    assert_int_equal(pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 0 }, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "only exponents 1/p"));
    pd_hypers_free(&param.hypers);
    assert_true(distance(run_of(&matrix, NEW, 4), run_of(&matrix, NEW "root_inverse_method=newton", 4)) < 1e-2);
}

TEST(out_of_memory_is_told_and_leaves_nothing)
{
    shampoo_assert_steps_without_memory("shampoo", &matrix,
                                        NEW "preconditioner_config=EigenvalueCorrectedShampoo root_inverse_method=qr "
                                            "ignored_basis_change_dims=[1:0]",
                                        400);
}
