/* Recorded cases of distributed_kron's routines, small enough to be computed by hand: when are they ok, and what is said of those that cannot be judged? */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "oom.h"
#include "replay.h"
#include "tracefile.h"

static tracefile new_file(const char *name, const char *config)
{
    tracefile file = { 0 };

    tracefile_meta(&file, "system", "distributed_kron");
    tracefile_meta(&file, "case", name);
    tracefile_meta(&file, "steps", "0");
    tracefile_meta(&file, "noise", "0");
    tracefile_meta(&file, "config", config);
    return file;
}

static void add_mat(tracefile *file, const char *name, const float *values, int64_t rows, int64_t cols)
{
    tracefile_add(file, name, values, rows * cols);
    file->entry[file->n - 1].shape = (pd_shape){ .rank = 2, .dim = { rows, cols } };
}

static pd_replay_result replayed(const tracefile *file)
{
    pd_replay_result result;
    char path[64];

    tracefile_write(file, path);
    pd_replay_file(&result, path, &(pd_replay_options){ .local = true });
    unlink(path);
    return result;
}

static void assert_ok(const tracefile *file, size_t cases)
{
    pd_replay_result r = replayed(file);

    if (r.outcome != PD_REPLAY_OK) fail_msg("error %g: \"%s\"", r.verdict.error, r.why.text);
    assert_int_equal(r.n, cases);
    pd_replay_result_free(&r);
}

static void assert_fails(const tracefile *file, const char *part_of_why)
{
    pd_replay_result r = replayed(file);

    if (r.outcome != PD_REPLAY_FAILED || strstr(r.why.text, part_of_why) == NULL) fail_msg("outcome %d: \"%s\"", r.outcome, r.why.text);
    pd_replay_result_free(&r);
}

/* Each tensor but inputs, one after the other, with another first number: a case fails then. */
static void assert_each_counts(const tracefile *file, const char *const *inputs)
{
    for (size_t i = 0; i < file->n; i++) {
        tracefile spoiled = *file;
        float other[16];
        int32_t whole;
        bool is_input = false;
        for (const char *const *name = inputs; *name != NULL; name++) is_input = is_input || strcmp(file->entry[i].name, *name) == 0;
        if (is_input) continue;
        memcpy(other, file->entry[i].at, file->entry[i].bytes);
        if (file->entry[i].dtype == PD_ST_F32) other[0] += 1e-4f;
        else memcpy(other, (memcpy(&whole, other, sizeof whole), whole++, &whole), sizeof whole);
        spoiled.entry[i].at = other;
        assert_fails(&spoiled, "");
    }
}

static void remove_last(tracefile *file) { file->n--; }

/* ---- the norm's lower bound: of a diagonal matrix its largest element, of none 0 ---- */

static const float wide[4] = { 3, 0, 0, 1 }, none[4] = { 0, 0, 0, 0 }, bound[1] = { 3 };
static const char *const norm_inputs[] = { "in/0000", "in/0001", NULL };

static tracefile norm_file(void)
{
    tracefile file = new_file("norm_lower_bound", "{}");

    add_mat(&file, "in/0000", wide, 2, 2);
    add_mat(&file, "in/0001", none, 2, 2);
    tracefile_add(&file, "out/0000", bound, 0);
    tracefile_add(&file, "out/0001", none, 0);
    return file;
}

static void bounds_are_judged_one_a_matrix(void **state)
{
    tracefile file = norm_file();

    (void)state;
    assert_ok(&file, 2);
    assert_each_counts(&file, norm_inputs);
    remove_last(&file);
    assert_fails(&file, "out/0001: missing");
}

static void a_matrix_that_is_not_square_has_no_bound(void **state)
{
    tracefile file = norm_file();

    (void)state;
    file.entry[1].shape = (pd_shape){ .rank = 2, .dim = { 1, 4 } };
    assert_fails(&file, "in/0001: expected a square matrix");
}

static void a_file_without_its_tensors_has_no_cases(void **state)
{
    tracefile file = new_file("norm_lower_bound", "{}");

    (void)state;
    tracefile_add(&file, "out/0000", bound, 0);
    assert_fails(&file, "in/****");
}

/* ---- an update: Q = (1, 2) on the diagonal, and one triangular dimension of the same ---- */

static const float Q[2] = { 1, 2 }, G[2] = { 1, 1 }, V[2] = { 1, 2 }, A[2] = { 1, 2 }, B[2] = { 1, 1 }, T1[2] = { 1, 4 }, T2[2] = { 1, 1 }, newQ[2] = { 1, 1.4f };
static const float preconditioned[2] = { 1, 4 };
/* Q = [1 1; 0 1], G = (1, 1), V = (1, 2): A = (2, 1); B = V Q^-1 = (1, 1); T1 = [4 2; 2 1], T2 = ones; the bound of [5 3; 3 2] = 5 [1 .6; .6 .4]: x = (1.36, .84),
 * |x| S' = ... and Q - .5 / bound triu [3 1; 1 0] Q; Q'Q G = [1 1; 1 2] (1, 1). */
static const float R[4] = { 1, 1, 0, 1 }, RA[2] = { 2, 1 }, RB[2] = { 1, 1 }, RT1[4] = { 4, 2, 2, 1 }, RT2[4] = { 1, 1, 1, 1 }, RP[2] = { 2, 3 };
static float newR[4];
static const char *const update_inputs[] = { "0000/Q/0", "0000/G", "0000/V", "0001/Q/0", "0001/G", "0001/V", NULL };
#define UPDATES(first) "{\"preconditioner_lr\": 0.5, \"cases\": [" first ", {\"shape\": [2], \"diag\": [false]}]}"

static tracefile update_file(const char *config)
{
    tracefile file = new_file("single_update", config);
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
    add_mat(&file, "0001/Q/0", R, 2, 2);
    tracefile_add(&file, "0001/G", G, 2);
    tracefile_add(&file, "0001/V", V, 2);
    tracefile_add(&file, "0001/A", RA, 2);
    tracefile_add(&file, "0001/conjB", RB, 2);
    add_mat(&file, "0001/term1/0", RT1, 2, 2);
    add_mat(&file, "0001/term2/0", RT2, 2, 2);
    tracefile_add(&file, "0001/precond_grad", RP, 2);
    add_mat(&file, "0001/newQ/0", newR, 2, 2);
    return file;
}

static const char two_updates[] = UPDATES("{\"shape\": [2], \"diag\": [true]}");

static void every_part_of_an_update_is_judged(void **state)
{
    tracefile file = update_file(two_updates);

    (void)state;
    assert_ok(&file, 2);
    assert_each_counts(&file, update_inputs);
    remove_last(&file);
    assert_fails(&file, "0001/newQ/0: missing");
}

static void an_update_of_another_shape_is_refused(void **state)
{
    static const struct { const char *config, *why; } cases[] = {
        { UPDATES("{\"shape\": [], \"diag\": []}"), "0000/G" }, { UPDATES("{\"shape\": [0], \"diag\": [true]}"), "0000/G" },
        { UPDATES("{\"shape\": [2], \"diag\": []}"), "0000/G" }, { UPDATES("{\"shape\": [3], \"diag\": [true]}"), "0000/G" },
        { UPDATES("{\"shape\": [2], \"diag\": [false]}"), "0000/Q/0" }, { UPDATES("{\"shape\": [1,1,1,1,1,1,1,1,2], \"diag\": [1,1,1,1,1,1,1,1,1]}"), "0000/G" },
        { UPDATES("{\"shape\": [4294967296, 4294967296], \"diag\": [true, true]}"), "0000/G" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tracefile file = update_file(cases[i].config);
        assert_fails(&file, cases[i].why);
    }
}

/* ---- when factors are updated ---- */

static const int32_t every_second[3] = { 2, 4, 6 }, annealed[3] = { 1, 2, 4 };
static const float probability[5] = { 1, 1, 1, .5f, .5f };
static const char *const probability_inputs[] = { NULL };

static tracefile probability_file(const char *config)
{
    tracefile file = new_file("update_probability", config);

    tracefile_add_typed(&file, "updated_steps/0", PD_ST_I32, every_second, 3);
    tracefile_add_typed(&file, "updated_steps/1", PD_ST_I32, annealed, 3);
    tracefile_add(&file, "probability/1", probability, 5);
    return file;
}

static const char two_probabilities[] = "[0.5, {\"min_prob\": 0.5, \"decay\": 1, \"flat_start\": 2}]";

static void updated_steps_are_judged_one_and_all(void **state)
{
    static const int32_t later[3] = { 2, 4, 8 }, fewer[3] = { 2, 6, 8 }, early[3] = { 2, 4, 5 };
    tracefile file = probability_file(two_probabilities);

    (void)state;
    assert_ok(&file, 2);
    assert_each_counts(&file, probability_inputs);
    file.entry[0].at = later;
    assert_fails(&file, "");
    file.entry[0].at = fewer;
    assert_fails(&file, "");
    file.entry[0].at = early;
    assert_fails(&file, "");
}

static void probabilities_that_are_none_are_refused(void **state)
{
    static const struct { const char *config, *why; } cases[] = {
        { "{}", "config" }, { "[]", "config" }, { "[0.5, {\"max_probe\": 1}]", "max_probe" }, { "[0.5, {\"max_prob\": 2}]", "max_prob" }, { "[0.5, 0.5, 0.5]", "updated_steps/2" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tracefile file = probability_file(cases[i].config);
        assert_fails(&file, cases[i].why);
    }
}

/* ---- JAX's generator ---- */

/* Of the key (0, 42), in the layout before 0.5. */
static const uint32_t folded[4] = { 1832780943, 270669613, 64467757, 2916123636 }, parted[6] = { 3134548294, 3733159049, 3746501087, 894150801, 801545058, 2363201431 };
static const float uniform[2] = { 0.7092923f, 0.6145383f }, normal[5] = { 0.6122652f, 1.1225884f, -0.8544134f, -0.8127326f, -0.8904051f };
static const char *const jax_inputs[] = { "balanced_steps/0", NULL };

static tracefile jax_file(void)
{
    tracefile file = new_file("jax_threefry", "{}");

    tracefile_add_typed(&file, "fold_in/0", PD_ST_I32, folded, 4);
    tracefile_add_typed(&file, "split/0", PD_ST_I32, parted, 6);
    tracefile_add(&file, "uniform/0", uniform, 2);
    tracefile_add(&file, "normal/0/5", normal, 5);
    tracefile_add_typed(&file, "balanced_steps/0", PD_ST_I32, folded, 1);
    file.entry[file.n - 1].shape.dim[0] = 0;
    file.entry[file.n - 1].bytes = 0;
    return file;
}

static void draws_of_jax_are_judged(void **state)
{
    tracefile file = jax_file();

    (void)state;
    assert_ok(&file, 1);
    assert_each_counts(&file, jax_inputs);
    tracefile_add_typed(&file, "uniform/1", PD_ST_F32, uniform, 2);
    assert_fails(&file, "fold_in/1: missing");
}

/* ---- memory ---- */

static void sweep(const tracefile *file)
{
    char path[64];

    tracefile_write(file, path);
    for (int64_t n = 0; ; n++) {
        pd_replay_result r;
        pd_replay_outcome outcome;
        oom_arm(n);
        pd_replay_file(&r, path, &(pd_replay_options){ .local = true });
        outcome = r.outcome;
        if (!oom_disarm()) {
            assert_int_equal(outcome, PD_REPLAY_OK);
            pd_replay_result_free(&r);
            break;
        }
        assert_int_equal(outcome, PD_REPLAY_FAILED);
        pd_replay_result_free(&r);
    }
    unlink(path);
}

static void without_memory_they_fail_and_leak_nothing(void **state)
{
    tracefile norms = norm_file(), updates = update_file(two_updates), probabilities = probability_file(two_probabilities), draws = jax_file();

    (void)state;
    sweep(&norms);
    sweep(&updates);
    sweep(&probabilities);
    sweep(&draws);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_are_judged_one_a_matrix),
        cmocka_unit_test(a_matrix_that_is_not_square_has_no_bound),
        cmocka_unit_test(a_file_without_its_tensors_has_no_cases),
        cmocka_unit_test(every_part_of_an_update_is_judged),
        cmocka_unit_test(an_update_of_another_shape_is_refused),
        cmocka_unit_test(updated_steps_are_judged_one_and_all),
        cmocka_unit_test(probabilities_that_are_none_are_refused),
        cmocka_unit_test(draws_of_jax_are_judged),
        cmocka_unit_test(without_memory_they_fail_and_leak_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
