/* Tests when recorded cases of distributed_kron's routines are judged ok, and what is reported for cases that cannot be
 * judged. The cases are small enough to compute by hand. */
#include "test.h"
#include "replayed.h"

static void assert_ok(const tracefile *file, size_t cases)
{
    pd_replay_result r = replayed(file);

    if (r.outcome != PD_REPLAY_OK) fail_msg("error %g: \"%s\"", r.verdict.error, r.why.text);
    assert_int_equal(r.n, cases);
    pd_replay_result_free(&r);
}

/* Checks that `cases` cases are ok. Then changes the first number of each tensor except `inputs`, one tensor at a
 * time, and checks that the replay fails. */
static void assert_judged(const tracefile *file, size_t cases, const char *const *inputs)
{
    assert_ok(file, cases);
    for (size_t i = 0; i < file->n; i++) {
        tracefile spoiled = *file;
        float other[16];
        int32_t whole;
        bool is_input = false;
        for (const char *const *name = inputs; *name != NULL; name++)
            is_input = is_input || strcmp(file->entry[i].name, *name) == 0;
        if (is_input) continue;
        memcpy(other, file->entry[i].at, file->entry[i].bytes);
        if (file->entry[i].dtype == PD_ST_F32)
            other[0] += 1e-4f;
        else
            memcpy(other, (memcpy(&whole, other, sizeof whole), whole++, &whole), sizeof whole);
        spoiled.entry[i].at = other;
        assert_outcome(&spoiled, PD_REPLAY_FAILED, "");
    }
}

static void remove_last(tracefile *file)
{
    file->n--;
}

/* Lower bound of a matrix norm: the largest element of a diagonal matrix, 0 for a zero matrix. */

static const float wide[4] = { 3, 0, 0, 1 }, none[4] = { 0, 0, 0, 0 }, bound[1] = { 3 };
static const char *const norm_inputs[] = { "in/0000", "in/0001", NULL };

static tracefile norm_file(void)
{
    tracefile file = tracefile_of("distributed_kron", "norm_lower_bound", "0", "{}");

    tracefile_add_matrix(&file, "in/0000", wide, 2, 2);
    tracefile_add_matrix(&file, "in/0001", none, 2, 2);
    tracefile_add_all(&file, (const tracefile_values[]){ { "out/0000", bound, 0 }, { "out/0001", none, 0 } }, 2);
    return file;
}

TEST(bounds_are_judged_one_a_matrix)
{
    tracefile file = norm_file();

    assert_judged(&file, 2, norm_inputs);
    remove_last(&file);
    assert_outcome(&file, PD_REPLAY_FAILED, "out/0001: missing");
}

TEST(a_matrix_that_is_not_square_has_no_bound)
{
    tracefile file = norm_file();

    file.entry[1].shape = (pd_shape){ .rank = 2, .dim = { 1, 4 } };
    assert_outcome(&file, PD_REPLAY_FAILED, "in/0001: expected a square matrix");
}

TEST(a_file_without_its_tensors_has_no_cases)
{
    tracefile file = tracefile_of("distributed_kron", "norm_lower_bound", "0", "{}");

    tracefile_add(&file, "out/0000", bound, 0);
    assert_outcome(&file, PD_REPLAY_FAILED, "in/****");
}

/* One update: case 0 has a diagonal factor Q = (1, 2), case 1 a triangular factor. */

static const float Q[2] = { 1, 2 }, G[2] = { 1, 1 }, V[2] = { 1, 2 }, A[2] = { 1, 2 }, B[2] = { 1, 1 },
                   T1[2] = { 1, 4 }, T2[2] = { 1, 1 }, newQ[2] = { 1, 1.4f };
static const float preconditioned[2] = { 1, 4 };
/* Case 1, computed by hand: Q = [1 1; 0 1], G = (1, 1), V = (1, 2).
 *   A = Q G = (2, 1); B = V Q^-1 = (1, 1); T1 = A A' = [4 2; 2 1]; T2 = B B', all ones
 *   norm bound of T1 + T2 = [5 3; 3 2] = 5 S with S = [1 .6; .6 .4]: 5 |S x| / |x| with x = (1.36, .84)
 *   new Q = Q - .5 / bound triu(T1 - T2) Q with T1 - T2 = [3 1; 1 0]
 *   preconditioned gradient = Q'Q G = [1 1; 1 2] (1, 1) */
static const float R[4] = { 1, 1, 0, 1 }, RA[2] = { 2, 1 }, RB[2] = { 1, 1 }, RT1[4] = { 4, 2, 2, 1 },
                   RT2[4] = { 1, 1, 1, 1 }, RP[2] = { 2, 3 };
static float newR[4];
static const char *const update_inputs[] = { "0000/Q/0", "0000/G", "0000/V", "0001/Q/0", "0001/G", "0001/V", NULL };
#define UPDATES(first) "{\"preconditioner_lr\": 0.5, \"cases\": [" first ", {\"shape\": [2], \"diag\": [false]}]}"

static tracefile update_file(const char *config)
{
    tracefile file = tracefile_of("distributed_kron", "single_update", "0", config);
    double x = 1.36 * 1.36 + 0.84 * 0.84, first = (1.36 + 0.84 * 0.6), second = (1.36 * 0.6 + 0.84 * 0.4);
    double step = 0.5 / (5 * __builtin_sqrt((first * first + second * second) / x));

    newR[0] = (float)(1 - 3 * step), newR[1] = (float)(1 - 4 * step), newR[2] = 0, newR[3] = 1;
    tracefile_add(&file, "0000/Q/0", Q, 2);
    tracefile_add(&file, "0000/G", G, 2);
    tracefile_add(&file, "0000/V", V, 2);
    tracefile_add(&file, "0000/A", A, 2);
    tracefile_add(&file, "0000/conjB", B, 2);
    tracefile_add(&file, "0000/term1/0", T1, 2);
    tracefile_add(&file, "0000/term2/0", T2, 2);
    tracefile_add(&file, "0000/precond_grad", preconditioned, 2);
    tracefile_add(&file, "0000/newQ/0", newQ, 2);
    tracefile_add_matrix(&file, "0001/Q/0", R, 2, 2);
    tracefile_add(&file, "0001/G", G, 2);
    tracefile_add(&file, "0001/V", V, 2);
    tracefile_add(&file, "0001/A", RA, 2);
    tracefile_add(&file, "0001/conjB", RB, 2);
    tracefile_add_matrix(&file, "0001/term1/0", RT1, 2, 2);
    tracefile_add_matrix(&file, "0001/term2/0", RT2, 2, 2);
    tracefile_add(&file, "0001/precond_grad", RP, 2);
    tracefile_add_matrix(&file, "0001/newQ/0", newR, 2, 2);
    return file;
}

static const char two_updates[] = UPDATES("{\"shape\": [2], \"diag\": [true]}");

TEST(every_part_of_an_update_is_judged)
{
    tracefile file = update_file(two_updates);

    assert_judged(&file, 2, update_inputs);
    remove_last(&file);
    assert_outcome(&file, PD_REPLAY_FAILED, "0001/newQ/0: missing");
}

TEST(an_update_of_another_shape_is_refused)
{
    static const struct {
        const char *config, *why;
    } cases[] = {
        { UPDATES("{\"shape\": [], \"diag\": []}"), "0000/G" },
        { UPDATES("{\"shape\": [0], \"diag\": [true]}"), "0000/G" },
        { UPDATES("{\"shape\": [2], \"diag\": []}"), "0000/G" },
        { UPDATES("{\"shape\": [3], \"diag\": [true]}"), "0000/G" },
        { UPDATES("{\"shape\": [2], \"diag\": [false]}"), "0000/Q/0" },
        { UPDATES("{\"shape\": [1,1,1,1,1,1,1,1,2], \"diag\": [1,1,1,1,1,1,1,1,1]}"), "0000/G" },
        { UPDATES("{\"shape\": [4294967296, 4294967296], \"diag\": [true, true]}"), "0000/G" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tracefile file = update_file(cases[i].config);
        assert_outcome(&file, PD_REPLAY_FAILED, cases[i].why);
    }
}

/* Each dimension has size 1, and all numbers are 1. So T1 equals T2, and the update leaves Q unchanged. */
TEST(an_update_may_have_as_many_dimensions_as_a_tensor)
{
    static const char *const whole[] = { "G", "V", "A", "conjB", "precond_grad" }, *const of_dim[] = { "Q", "term1",
                                                                                                       "term2",
                                                                                                       "newQ" };
    static const float one[1] = { 1 };
    static const char config[] = "{\"preconditioner_lr\": 0.5, \"cases\": [{\"shape\": [1,1,1,1,1,1,1,1], \"diag\": "
                                 "[true,true,true,true,true,true,true,true]}]}";
    tracefile file = tracefile_of("distributed_kron", "single_update", "0", config);
    char name[32];

    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "0000/%s", whole[i]);
        tracefile_add(&file, name, one, 1);
    }
    for (int i = 0; i < 4 * PD_MAX_RANK; i++) {
        snprintf(name, sizeof name, "0000/%s/%d", of_dim[i / PD_MAX_RANK], i % PD_MAX_RANK);
        tracefile_add(&file, name, one, 1);
    }
    assert_ok(&file, 1);
}

static const int32_t every_second[3] = { 2, 4, 6 }, annealed[3] = { 1, 2, 4 };
static const float probability[5] = { 1, 1, 1, .5f, .5f };
static const char *const probability_inputs[] = { NULL };

static tracefile probability_file(const char *config)
{
    tracefile file = tracefile_of("distributed_kron", "update_probability", "0", config);

    tracefile_add_typed(&file, "updated_steps/0", PD_ST_I32, every_second, 3);
    tracefile_add_typed(&file, "updated_steps/1", PD_ST_I32, annealed, 3);
    tracefile_add(&file, "probability/1", probability, 5);
    return file;
}

static const char two_probabilities[] = "[0.5, {\"min_prob\": 0.5, \"decay\": 1, \"flat_start\": 2}]";

TEST(updated_steps_are_judged_one_and_all)
{
    static const int32_t wrong[][3] = { { 2, 4, 8 }, { 2, 6, 8 }, { 2, 4, 5 } };
    tracefile file = probability_file(two_probabilities);

    assert_judged(&file, 2, probability_inputs);
    for (int i = 0; i < 3; i++) {
        file.entry[0].at = wrong[i];
        assert_outcome(&file, PD_REPLAY_FAILED, "");
    }
}

TEST(steps_without_an_update_are_judged_as_far_as_probabilities_reach)
{
    static const float rare[5] = { .2f, .2f, .2f, .2f, .2f }, still_rare[6] = { .2f, .2f, .2f, .2f, .2f, .2f };
    tracefile file =
        tracefile_of("distributed_kron", "update_probability", "0", "[{\"min_prob\": 0.2, \"max_prob\": 0.2}]");

    tracefile_add_typed(&file, "updated_steps/0", PD_ST_I32, every_second, 1);
    file.entry[0].shape.dim[0] = 0;
    file.entry[0].bytes = 0;
    tracefile_add(&file, "probability/0", rare, 5);
    assert_ok(&file, 1);
    remove_last(&file);
    tracefile_add(&file, "probability/0", still_rare, 6);
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(probabilities_that_are_none_are_refused)
{
    static const struct {
        const char *config, *why;
    } cases[] = {
        { "{}", "config" },
        { "[]", "config" },
        { "[0.5, {\"max_probe\": 1}]", "max_probe" },
        { "[0.5, {\"max_prob\": 2}]", "max_prob" },
        { "[0.5, 0.5, 0.5]", "updated_steps/2" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tracefile file = probability_file(cases[i].config);
        assert_outcome(&file, PD_REPLAY_FAILED, cases[i].why);
    }
}

/* Numbers that JAX gives for the key (0, 42), in its random-bit layout before version 0.5. */
static const uint32_t folded[4] = { 1832780943, 270669613, 64467757, 2916123636 },
                      parted[6] = { 3134548294, 3733159049, 3746501087, 894150801, 801545058, 2363201431 };
static const float uniform[2] = { 0.7092923f, 0.6145383f },
                   normal[5] = { 0.6122652f, 1.1225884f, -0.8544134f, -0.8127326f, -0.8904051f };
static const char *const jax_inputs[] = { "balanced_steps/0", NULL };

static tracefile jax_file(void)
{
    tracefile file = tracefile_of("distributed_kron", "jax_threefry", "0", "{}");

    tracefile_add_typed(&file, "fold_in/0", PD_ST_I32, folded, 4);
    tracefile_add_typed(&file, "split/0", PD_ST_I32, parted, 6);
    tracefile_add(&file, "uniform/0", uniform, 2);
    tracefile_add(&file, "normal/0/5", normal, 5);
    tracefile_add_typed(&file, "balanced_steps/0", PD_ST_I32, folded, 1);
    file.entry[file.n - 1].shape.dim[0] = 0;
    file.entry[file.n - 1].bytes = 0;
    return file;
}

TEST(draws_of_jax_are_judged)
{
    tracefile file = jax_file();

    assert_judged(&file, 1, jax_inputs);
    tracefile_add_typed(&file, "uniform/1", PD_ST_F32, uniform, 2);
    assert_outcome(&file, PD_REPLAY_FAILED, "fold_in/1: missing");
}

TEST(draws_of_jax_may_be_many_and_long)
{
    enum { MANY = 40, LONG = 300 };
    static float same[LONG];
    tracefile file = jax_file(), other = file;
    char name[32];

    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "normal/0/a%d", i);
        tracefile_add(&file, name, normal, 5);
    }
    assert_ok(&file, 1);
    tracefile_add(&other, "normal/0/300", same, LONG);
    assert_outcome(&other, PD_REPLAY_FAILED, "");
}

TEST(without_memory_they_fail_and_leak_nothing)
{
    tracefile norms = norm_file(), updates = update_file(two_updates),
              probabilities = probability_file(two_probabilities), draws = jax_file();

    assert_fails_without_memory(&norms);
    assert_fails_without_memory(&updates);
    assert_fails_without_memory(&probabilities);
    assert_fails_without_memory(&draws);
}
