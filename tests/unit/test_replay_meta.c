/* Tests when recorded roots of Meta's Shampoo are judged ok, failed, skipped or refused. */
#include "test.h"
#include "replayed.h"

/* A has the eigenvalues 9 and 1. Its inverse square root (`half`) has 1/3 and 1, its inverse (`whole`) 1/9 and 1,
 * its power -3/2 (`three_halves`) 1/27 and 1. */
static const float A[4] = { 5, 4, 4, 5 }, half[4] = { 2.0f / 3, -1.0f / 3, -1.0f / 3, 2.0f / 3 },
                   whole[4] = { 5.0f / 9, -4.0f / 9, -4.0f / 9, 5.0f / 9 };
static const float three_halves[4] = { 14.0f / 27, -13.0f / 27, -13.0f / 27, 14.0f / 27 },
                   half_and_little[4] = { 0.667f, -0.333f, -0.333f, 0.667f };
static const float diagonal[4] = { 4, 0, 0, 16 }, of_diagonal[4] = { 0.125f, 0, 0, 1.0f / 64 },
                   singular[4] = { 1, 1, 1, 1 }, lost[4] = { NAN, NAN, NAN, NAN };
static const float negative[4] = { -1, 4, 4, -1 }; /* eigenvalues 3 and -5 */
static const double half64[4] = { 2.0 / 3, -1.0 / 3, -1.0 / 3, 2.0 / 3 };

static tracefile new_file(const char *name, const char *config)
{
    tracefile file = tracefile_of("meta_shampoo", name, "1", config);

    tracefile_meta(&file, "noise", "1e-6");
    return file;
}

static void add(tracefile *file, const char *matrix, const float *a, const char *root, const float *x)
{
    tracefile_add_matrix(file, matrix, a, 2, 2);
    if (x != NULL) tracefile_add_matrix(file, root, x, 2, 2);
}

/* Replays one case: the root of matrix `a` with the given arguments, for which `x` was recorded. Expects `outcome`. */
static void assert_case(const char *arguments, const float *a, const float *x, pd_replay_outcome outcome)
{
    char config[512];
    tracefile file;

    snprintf(config, sizeof config, "{\"items\": [{%s}]}", arguments);
    file = new_file("root_newton", config);
    add(&file, "A/0000", a, "X/0000", x);
    assert_outcome(&file, outcome, "");
}

TEST(every_method_is_judged)
{
    tracefile file = new_file(
        "root_eigen", "{\"items\": [{\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0, \"noise\": 1e-7}, "
                      "{\"method\": \"eigen\", \"root\": 2, \"epsilon\": 1e-12, \"exponent_multiplier\": 3, \"noise\": "
                      "1e-7}, {\"method\": \"diagonal\", \"root\": 4, \"exponent_multiplier\": 6, \"epsilon\": 0, "
                      "\"noise\": 1e-7}, {\"method\": \"newton\", \"root\": 2, \"epsilon\": 0, \"tolerance\": 1e-6, "
                      "\"max_iterations\": 100, \"noise\": 1e-6}, {\"method\": \"higher_order\", \"root\": \"2/3\", "
                      "\"epsilon\": 1e-5, \"order\": 3, \"tolerance\": 1e-6, \"max_iterations\": 100, \"noise\": "
                      "1e-4}, {\"method\": \"eigen\", \"root\": \"1/1\", \"epsilon\": 0, \"noise\": 1e-7}]}");
    pd_replay_result r;

    add(&file, "A/0000", A, "X/0000", half);
    add(&file, "A/0001", A, "X/0001", three_halves);
    add(&file, "A/0002", diagonal, "X/0002", of_diagonal);
    add(&file, "A/0003", A, "X/0003", half);
    add(&file, "A/0004", A, "X/0004", three_halves);
    add(&file, "A/0005", A, "X/0005", whole);
    r = replayed(&file);
    if (r.outcome != PD_REPLAY_OK)
        fail_msg("error %g in %s: %s", r.verdict.error, r.n > 0 ? r.params[r.verdict.param] : "", r.why.text);
    assert_true(r.cases && r.n == 6 && r.tolerance == 1);
    for (size_t i = 0; i < r.n; i++) assert_true(r.verdicts[i].compared == 2);
    assert_string_equal(r.params[5], "case 005");
    pd_replay_result_free(&r);
}

/* The recorded root is off by 5e-4 of its size: too much for a noise of 1e-4, but not for a noise of 1e-3. */
TEST(each_case_has_a_tolerance_of_its_own)
{
    assert_case("\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0, \"noise\": 1e-4", A, half_and_little,
                PD_REPLAY_FAILED);
    assert_case("\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0, \"noise\": 1e-3", A, half_and_little,
                PD_REPLAY_OK);
}

TEST(where_the_noise_is_large_there_is_only_to_be_a_root)
{
    assert_case("\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0, \"noise\": 0.02", A, whole, PD_REPLAY_OK);
    assert_case("\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0, \"noise\": 0.005", A, whole, PD_REPLAY_FAILED);
    assert_case("\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0, \"noise\": 0.02", negative, whole,
                PD_REPLAY_FAILED);
}

TEST(what_is_not_finite_for_them_must_be_refused)
{
    assert_case("\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0, \"nonfinite\": true", negative, lost,
                PD_REPLAY_OK);
    assert_case("\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0, \"nonfinite\": true", A, lost, PD_REPLAY_FAILED);
}

#define NEWTON                                                                                                         \
    "\"method\": \"newton\", \"root\": 2, \"epsilon\": 0, \"tolerance\": 1e-6, \"max_iterations\": 100, \"noise\": "   \
    "1e-6"

/* Newton takes 6 steps to this root. */
TEST(an_iteration_ends_as_theirs_after_as_many_steps)
{
    assert_case(NEWTON ", \"flag\": \"CONVERGED\", \"iterations\": 6, \"float64\": {\"iterations\": 6}", A, half,
                PD_REPLAY_OK);
    assert_case(NEWTON ", \"flag\": \"CONVERGED\", \"iterations\": 7, \"float64\": {\"iterations\": 5}", A, half,
                PD_REPLAY_OK);
    assert_case(NEWTON ", \"flag\": \"CONVERGED\", \"iterations\": 7, \"float64\": {\"iterations\": 8}", A, half,
                PD_REPLAY_FAILED);
    assert_case(NEWTON ", \"flag\": \"CONVERGED\", \"iterations\": 5", A, half, PD_REPLAY_FAILED);
    assert_case(NEWTON ", \"flag\": \"REACHED_MAX_ITERS\", \"iterations\": 6", A, half, PD_REPLAY_FAILED);
}

#define FURTHER                                                                                                        \
    "\"method\": \"higher_order\", \"root\": 2, \"order\": 2, \"epsilon\": 1e-5, \"tolerance\": 1e-20, "               \
    "\"max_iterations\": 100, \"noise\": 1e-4"

/* Below float32 precision, rounding decides after how many iterations the root stops improving. */
TEST(below_float32_the_number_of_steps_is_not_judged)
{
    assert_case(FURTHER ", \"flag\": \"EARLY_STOP\", \"iterations\": 77", A, half, PD_REPLAY_OK);
    assert_case(FURTHER ", \"flag\": \"CONVERGED\", \"iterations\": 77", A, half, PD_REPLAY_OK);
    assert_case(FURTHER ", \"flag\": \"REACHED_MAX_ITERS\", \"iterations\": 100", A, half, PD_REPLAY_FAILED);
}

TEST(what_diverged_for_them_must_not_converge)
{
    assert_case("\"method\": \"newton\", \"root\": 2, \"epsilon\": 0, \"tolerance\": 1e-6, \"max_iterations\": 100, "
                "\"noise\": 0.0, \"error\": NaN",
                negative, half, PD_REPLAY_OK);
    assert_case("\"method\": \"newton\", \"root\": 2, \"epsilon\": 0, \"tolerance\": 1e-6, \"max_iterations\": 100, "
                "\"noise\": 0.0, \"error\": NaN",
                A, half, PD_REPLAY_FAILED);
}

#define RAISES ", \"raises\": {\"type\": \"ArithmeticError\"}"

TEST(an_error_of_theirs_is_one_of_ours)
{
    static const char few[] = "\"method\": \"higher_order\", \"root\": 2, \"order\": 2, \"epsilon\": 1e-6, "
                              "\"tolerance\": 1e-6, \"max_iterations\": 2" RAISES;
    static const char many[] = "\"method\": \"higher_order\", \"root\": 2, \"order\": 2, \"epsilon\": 1e-6, "
                               "\"tolerance\": 1e-6, \"max_iterations\": 99" RAISES;

    assert_case(few, singular, NULL, PD_REPLAY_OK);
    assert_case(many, A, NULL, PD_REPLAY_FAILED);
}

/* The recorded optimizer raised an error in float32 but found a root in float64. Ours need not fail, but its root
 * must then equal the float64 root. */
TEST(an_error_that_rounding_made_may_be_a_root_instead)
{
    static const double wrong[4] = { 1, 0, 0, 1 };

    for (int right = 0; right < 2; right++) {
        tracefile file =
            new_file("root_newton", "{\"items\": [{\"method\": \"higher_order\", \"root\": 2, \"order\": 2, "
                                    "\"epsilon\": 1e-5, \"tolerance\": 1e-6, \"max_iterations\": 100" RAISES "}]}");
        tracefile_meta(&file, "noise", "1e-4");
        add(&file, "A/0000", A, NULL, NULL);
        tracefile_add_typed(&file, "X64/0000", PD_ST_F64, right ? half64 : wrong, 4);
        assert_outcome(&file, right ? PD_REPLAY_OK : PD_REPLAY_FAILED, "");
    }
}

TEST(a_failed_decomposition_is_tried_again_in_float64)
{
    for (int wrong = 0; wrong < 3; wrong++) {
        tracefile file =
            new_file("root_retry_double", "{\"root\": 2, \"epsilon\": 0.0, \"retry_double_precision\": true}");
        tracefile_add_matrix(&file, "A/0000", A, 2, 2);
        tracefile_add_typed(&file, "X/0000", PD_ST_F64, half64, 4);
        if (wrong == 1) tracefile_meta(&file, "config", "{\"root\": 1, \"epsilon\": 0.0}");
        tracefile_add_matrix(&file, "X_without_failure/0000", wrong == 2 ? whole : half, 2, 2);
        assert_outcome(&file, wrong ? PD_REPLAY_FAILED : PD_REPLAY_OK, "");
    }
}

TEST(impossible_arguments_are_refused)
{
    static const struct {
        const char *arguments, *why;
        pd_replay_outcome outcome;
    } bad[] = {
        { "\"method\": \"eigen\", \"root\": 0, \"epsilon\": 0", "a root of 1 to 1000", PD_REPLAY_FAILED },
        { "\"method\": \"eigen\", \"root\": 9000000000, \"epsilon\": 0", "a root of 1 to 1000", PD_REPLAY_FAILED },
        { "\"method\": \"eigen\", \"root\": \"4/0\", \"epsilon\": 0", "a root of 1 to 1000", PD_REPLAY_FAILED },
        { "\"method\": \"eigen\", \"root\": \"4/3x\", \"epsilon\": 0", "a root of 1 to 1000", PD_REPLAY_FAILED },
        { "\"method\": \"eigen\", \"root\": \"4\", \"epsilon\": 0", "a root of 1 to 1000", PD_REPLAY_FAILED },
        { "\"method\": \"eigen\", \"root\": 2, \"epsilon\": -1", "an epsilon from 0 on", PD_REPLAY_FAILED },
        { "\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0, \"exponent_multiplier\": 1e9", "at most 100",
          PD_REPLAY_FAILED },
        { "\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0", "a noise from 0 on", PD_REPLAY_FAILED },
        { "\"method\": \"qr\", \"root\": 2, \"epsilon\": 0", "a method of", PD_REPLAY_SKIPPED },
        { "\"root\": 2, \"epsilon\": 0", "a method of", PD_REPLAY_SKIPPED },
        { "\"method\": \"newton\", \"root\": \"4/3\", \"epsilon\": 0, \"max_iterations\": 9", "no p/q",
          PD_REPLAY_SKIPPED },
        { "\"method\": \"newton\", \"root\": 4, \"epsilon\": 0, \"max_iterations\": 9, \"exponent_multiplier\": 2",
          "no exponent_multiplier", PD_REPLAY_SKIPPED },
        { "\"method\": \"newton\", \"root\": 4, \"epsilon\": 0, \"max_iterations\": 1000000",
          "max_iterations of 1 to 10000", PD_REPLAY_FAILED },
        { "\"method\": \"newton\", \"root\": 4, \"epsilon\": 0, \"max_iterations\": 9, \"tolerance\": -1",
          "a tolerance from 0 on", PD_REPLAY_FAILED },
        { "\"method\": \"higher_order\", \"root\": 4, \"epsilon\": 0, \"max_iterations\": 9, \"order\": 1",
          "an order of 2 to 64", PD_REPLAY_FAILED },
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char config[512];
        tracefile file;
        snprintf(config, sizeof config, "{\"items\": [{%s}]}", bad[i].arguments);
        file = new_file("root_eigen", config);
        add(&file, "A/0000", A, "X/0000", half);
        assert_outcome(&file, bad[i].outcome, bad[i].why);
    }
}

TEST(missing_tensors_are_named)
{
    tracefile file =
        new_file("root_eigen", "{\"items\": [{\"method\": \"eigen\", \"root\": 2, \"epsilon\": 0, \"noise\": 0}]}");

    assert_outcome(&file, PD_REPLAY_FAILED, "A/0000: missing");
    tracefile_add_matrix(&file, "A/0000", A, 2, 2);
    assert_outcome(&file, PD_REPLAY_FAILED, "X/0000: missing");
    tracefile_add(&file, "X/0000", half, 3);
    assert_outcome(&file, PD_REPLAY_FAILED, "X/0000: unexpected size");
    file.entry[0].shape = (pd_shape){ .rank = 2, .dim = { 1, 4 } };
    assert_outcome(&file, PD_REPLAY_FAILED, "A/0000: expected a square matrix");
}

TEST(there_must_be_items)
{
    tracefile file = new_file("root_eigen", "{\"items\": []}");

    assert_outcome(&file, PD_REPLAY_FAILED, "expected `items`");
    file = new_file("root_eigen", "{}");
    assert_outcome(&file, PD_REPLAY_FAILED, "expected `items`");
}
