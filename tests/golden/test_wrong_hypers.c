/* Tests that the comparison with recorded roots can fail: with a hyperparameter slightly off, inverse roots must lie
 * beyond their tolerance. Each run is copied with another hyperparameter. The copy keeps no recorded state but inverse
 * roots, since factors would fail first and hide them. */
#include <jansson.h>

#include "test.h"
#include "golden.h"
#include "replay.h"

/* In three of these runs, roots are hard to compute: condition numbers of 10^3 and more. */
static const char *const runs[] = { "start_preconditioning_step_1",
                                    "start_step_no_graft_1",
                                    "zero_grad_2",
                                    "blocks_1",
                                    "blocks_3",
                                    "beta1_zero_1",
                                    "dampening_1",
                                    "exponent_multiplier_1",
                                    "merge_dims_off",
                                    "momentum_1",
                                    "nesterov_1" };
enum { RUNS = sizeof runs / sizeof runs[0] };

static void change_epsilon(json_t *config)
{
    json_t *epsilon = json_object_get(config, "epsilon");

    assert_int_equal(json_real_set(epsilon, 1.1 * json_real_value(epsilon)), 0);
}

static void change_beta2(json_t *config)
{
    json_t *betas = json_object_get(config, "betas");

    assert_int_equal(json_array_set_new(betas, 1, json_real(json_number_value(json_array_get(betas, 1)) - 1e-3)), 0);
}

static void change_nothing(json_t *config)
{
    assert_non_null(config);
}

static void change_config(json_t *header, void (*change)(json_t *config))
{
    json_t *meta = json_object_get(header, "__metadata__"),
           *config = json_loads(json_string_value(json_object_get(meta, "config")), 0, NULL);
    char *text;

    assert_non_null(config);
    change(config);
    text = json_dumps(config, JSON_COMPACT);
    json_object_set_new(meta, "config", json_string(text));
    free(text);
    json_decref(config);
}

/* Renames recorded state from "state/..." to "other/...", so that a replay ignores it. Inverse roots keep their
 * names. */
static json_t *keep_roots(const json_t *header)
{
    json_t *kept = json_object(), *value;
    const char *name;

    json_object_foreach((json_t *)(uintptr_t)header, name, value)
    {
        char other[512];
        bool dropped = strncmp(name, "state/", 6) == 0 && strstr(name, "inv_factor_matrices") == NULL;
        snprintf(other, sizeof other, "%s%s", dropped ? "other" : "", dropped ? name + 5 : name);
        json_object_set(kept, other, value);
    }
    return kept;
}

static void write_copy(const char *path, const char *header, const char *data, size_t n)
{
    uint64_t length = strlen(header);
    FILE *out = fopen(path, "wb");

    assert_non_null(out);
    assert_int_equal(fwrite(&length, 8, 1, out), 1);
    assert_int_equal(fwrite(header, 1, length, out), length);
    assert_int_equal(fwrite(data, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

static void copy_run(const char *from, const char *to, void (*change)(json_t *config))
{
    size_t n;
    uint64_t length;
    char *bytes = golden_read(from, &n), *text;
    json_t *header, *kept;

    memcpy(&length, bytes, 8);
    assert_true(length <= n - 8);
    assert_non_null(header = json_loadb(bytes + 8, length, 0, NULL));
    change_config(header, change);
    kept = keep_roots(header);
    text = json_dumps(kept, JSON_COMPACT);
    write_copy(to, text, bytes + 8 + length, n - 8 - length);
    free(text);
    json_decref(kept);
    json_decref(header);
    free(bytes);
}

/* Plays a run with a changed configuration. Returns the largest error of a root, in units of its tolerance. */
static double error_of_roots(const char *run, void (*change)(json_t *config))
{
    char name[128], to[] = "/tmp/paramd-wrong-XXXXXX";
    pd_replay_result r;
    double error;
    int fd = mkstemp(to);

    assert_true(fd >= 0);
    close(fd);
    snprintf(name, sizeof name, "meta_shampoo/%s.safetensors", run);
    copy_run(golden_path(name), to, change);
    pd_replay_file(&r, to, &(pd_replay_options){ .local = true, .state = true });
    unlink(to);
    if (r.state.compared == 0) fail_msg("%s: no root was compared: %s", run, r.why.text);
    error = r.state.error / r.state.tolerance;
    print_message("%s: %.3g of the tolerance, at %s\n", run, error, r.state.worst);
    pd_replay_result_free(&r);
    return error;
}

static void expect(void (*change)(json_t *config), bool holds)
{
    for (int i = 0; i < RUNS; i++) {
        if ((error_of_roots(runs[i], change) <= 1) != holds)
            fail_msg("%s: expected roots %s their tolerance", runs[i], holds ? "within" : "beyond");
    }
}

HOLDS(roots_of_the_recorded_hyperparameters_are_within_their_tolerance, expect(change_nothing, true));

HOLDS(roots_with_an_epsilon_a_tenth_larger_are_beyond_their_tolerance, expect(change_epsilon, false));

HOLDS(roots_with_a_beta2_that_is_smaller_by_a_thousandth_are_beyond_their_tolerance, expect(change_beta2, false));
