/* Tests when recorded averages of gradients and weighted means are judged ok, failed or skipped. */
#include "test.h"
#include "replayed.h"

static const float a[2] = { 3, 0 }, b[2] = { 0, 4 }, c[2] = { 3, 4 }, d[2] = { 1, 0 };

#define CONFIG(variant, adasum, n, shards)                                                                             \
    "{\"variant\": \"" variant "\", \"adasum\": " adasum ", \"n_devices\": " #n ", \"N_WEIGHTS_SHARDS\": " #shards "}"

static void add_replica(tracefile *file, int rank, const float *gradient, const float *average)
{
    char name[32];

    snprintf(name, sizeof name, "grad/0001/r%02d/w", rank);
    tracefile_add(file, name, gradient, 2);
    snprintf(name, sizeof name, "average/0001/r%02d/w", rank);
    tracefile_add(file, name, average, 2);
}

/* Makes a trace of two replicas with the gradients `first` and `second`. Both receive the result `average`. */
static tracefile pair(const char *config, const float *first, const float *second, const float *average)
{
    tracefile file = tracefile_of("trax_average", "some", "1", config);

    add_replica(&file, 0, first, average);
    add_replica(&file, 1, second, average);
    return file;
}

TEST(orthogonal_gradients_have_half_their_sum_for_mean_and_all_for_adasum)
{
    static const float mean[2] = { 1.5f, 2 };
    tracefile of_mean = pair(CONFIG("mean", "false", 2, 1), a, b, mean),
              tree = pair(CONFIG("adasum_butterfly", "true", 2, 1), a, b, c);
    tracefile vdot = pair(CONFIG("adasum_vdot", "true", 2, 1), a, b, c),
              older = pair(CONFIG("mean_2021", "false", 2, 1), a, b, mean);

    assert_outcome(&of_mean, PD_REPLAY_OK, "");
    assert_outcome(&older, PD_REPLAY_OK, "");
    assert_outcome(&tree, PD_REPLAY_OK, "");
    assert_outcome(&vdot, PD_REPLAY_OK, "");
    tree.entry[3].at = mean;
    assert_outcome(&tree, PD_REPLAY_FAILED, "");
}

TEST(each_replica_is_compared)
{
    static const float mean[2] = { 1.5f, 2 }, off[2] = { 1.5f, 2.001f };
    tracefile file = pair(CONFIG("mean", "false", 2, 1), a, b, mean);

    file.entry[1].at = off;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
    file.entry[1].at = mean;
    file.entry[3].at = off;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

/* The gradients are a = (3, 0), c = (3, 4), b = (0, 4) and b again. Neighbours are merged first, then the two results:
 *
 *   a with c: a a = 9, c c = 25, a c = 9, so the result r is a / 2 + (1 - 9/50) c = (3.96, 3.28)
 *   b with b: the result is b
 *   r with b: b b = 16, r b = 13.12 */
TEST(adasum_of_four_merges_neighbours_first)
{
    float first[2] = { 3.96f, 3.28f }, result[2], f = 13.12f / (2 * (3.96f * 3.96f + 3.28f * 3.28f)), g = 13.12f / 32;
    tracefile file = tracefile_of("trax_average", "some", "1", CONFIG("adasum_butterfly", "true", 4, 1));

    for (int i = 0; i < 2; i++) result[i] = (1 - f) * first[i] + (1 - g) * b[i];
    add_replica(&file, 0, a, result);
    add_replica(&file, 1, c, result);
    add_replica(&file, 2, b, result);
    add_replica(&file, 3, b, result);
    assert_outcome(&file, PD_REPLAY_OK, "");
    file.entry[2].at = b; /* replicas in other pairs give another result */
    file.entry[4].at = c;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(a_zero_gradient_spoils_vdot_alone)
{
    static const float zero[2] = { 0, 0 }, nans[2] = { NAN, NAN };
    tracefile vdot = pair(CONFIG("adasum_vdot", "true", 2, 1), a, zero, nans),
              tree = pair(CONFIG("adasum_butterfly", "true", 2, 1), a, zero, a);

    assert_outcome(&vdot, PD_REPLAY_OK, "");
    assert_outcome(&tree, PD_REPLAY_OK, "");
}

TEST(errors_are_measured_against_the_larger_input)
{
    static const float up[2] = { 1000, 0 }, down[2] = { -1000, 0 }, little[2] = { 5e-4f, 0 }, more[2] = { 5e-3f, 0 };
    tracefile file = pair(CONFIG("mean", "false", 2, 1), up, down, little);

    assert_outcome(&file, PD_REPLAY_OK, ""); /* 5e-7 of 1000 */
    file.entry[1].at = file.entry[3].at = more;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(replicas_average_with_those_that_hold_the_same_shard)
{
    static const float even[2] = { 2, 0 }, odd[2] = { 1.5f, 4 };
    tracefile file = tracefile_of("trax_average", "some", "1", CONFIG("mean", "false", 4, 2));

    add_replica(&file, 0, a, even);
    add_replica(&file, 1, b, odd);
    add_replica(&file, 2, d, even);
    add_replica(&file, 3, c, odd);
    assert_outcome(&file, PD_REPLAY_OK, "");
    file.entry[5].at = odd;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(adasum_of_shards_is_a_defect_of_upstreams)
{
    tracefile file = tracefile_of("trax_average", "some", "1", CONFIG("adasum_butterfly", "true", 4, 2));
    pd_replay_result r;

    for (int rank = 0; rank < 4; rank++) add_replica(&file, rank, a, a);
    r = replayed(&file);
    assert_true(r.outcome == PD_REPLAY_SKIPPED && r.excused && strstr(r.why.text, "different shards") != NULL);
    pd_replay_result_free(&r);
    tracefile_meta(&file, "config", CONFIG("adasum_butterfly", "true", 4, 4)); /* each alone */
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(adasum_of_other_than_a_power_of_two_is_refused)
{
    tracefile file = tracefile_of("trax_average", "some", "1", CONFIG("adasum_butterfly", "true", 3, 1)),
              two = pair(CONFIG("adasum_butterfly", "true", 6, 1), a, b, c);

    assert_outcome(&two, PD_REPLAY_FAILED,
                   "adasum of 6 replicas"); /* the configured number of replicas is checked first */
    for (int rank = 0; rank < 3; rank++) add_replica(&file, rank, a, a);
    assert_outcome(&file, PD_REPLAY_FAILED, "adasum of 3 replicas: expected 1, 2, 4, 8 or another power of two");
    tracefile_meta(&file, "config", CONFIG("adasum_butterfly", "true", 4, 1)); /* 4 configured, 3 in the file */
    assert_outcome(&file, PD_REPLAY_FAILED, "adasum of 3 replicas");
    assert_outcome_with(&file, "config", CONFIG("adasum_vdot", "true", 3, 1), PD_REPLAY_OK, "");
}

TEST(shards_divide_the_replicas)
{
    tracefile file = pair(CONFIG("mean", "false", 2, 3), a, b, a);

    assert_outcome(&file, PD_REPLAY_FAILED, "multiple of N_WEIGHTS_SHARDS; got 2 and 3");
    assert_outcome_with(&file, "config", CONFIG("mean", "false", 3, 2), PD_REPLAY_FAILED,
                        "multiple of N_WEIGHTS_SHARDS; got 3 and 2");
    assert_outcome_with(&file, "config", CONFIG("mean", "false", 4, 4), PD_REPLAY_FAILED,
                        "a multiple of 4 replicas, got 2");
    assert_outcome_with(&file, "config", CONFIG("mean", "false", 0, 1), PD_REPLAY_FAILED, "got 0 and 1");
    assert_outcome_with(&file, "config", CONFIG("mean", "false", 2, -1), PD_REPLAY_FAILED, "got 2 and -1");
}

TEST(other_aggregates_are_skipped_by_name)
{
    tracefile file = pair(CONFIG("adasum_butterfly_2021", "true", 2, 1), a, b, a);

    assert_outcome(&file, PD_REPLAY_SKIPPED, "aggregate adasum_butterfly_2021 is not implemented");
    assert_outcome_with(&file, "config", "{\"n_devices\": 2}", PD_REPLAY_SKIPPED, "records no averages");
}

/* Replica 0 has the values 1 and 3 with the weights 1 and 0.5, replica 1 the values 5 and 7 with the weights 2 and
 * 0. The sums of the weights are 1.5 and 2, on average 1.75. */
static const float v0[2] = { 1, 3 }, x0[2] = { 1, .5f }, v1[2] = { 5, 7 }, x1[2] = { 2, 0 };
static const float per_core[1] = { 1.75f }, own0[1] = { 2.5f / 1.75f }, own1[1] = { 10 / 1.75f },
                   mean[1] = { 12.5f / 3.5f };

static tracefile weighted_file(void)
{
    static const tracefile_values all[] = {
        { "values/r00", v0, 2 },
        { "weights/r00", x0, 2 },
        { "values/r01", v1, 2 },
        { "weights/r01", x1, 2 },
        { "n_weights_per_core/r00", per_core, 0 },
        { "n_weights_per_core/r01", per_core, 0 },
        { "weighted_mean/r00", own0, 0 },
        { "weighted_mean/r01", own1, 0 },
        { "mean_of_replicas", mean, 0 },
    };
    tracefile file = tracefile_of("trax_average", "weighted_two", "1",
                                  "{\"function\": \"_n_weights_per_core, _WeightedMean\", \"n_devices\": 2}");

    tracefile_add_all(&file, all, sizeof all / sizeof *all);
    return file;
}

TEST(each_example_weighs_the_same_wherever_it_is)
{
    tracefile file = weighted_file();
    pd_replay_result r = replayed(&file);

    assert_int_equal(r.outcome, PD_REPLAY_OK);
    assert_true(r.cases && r.n == 1 && r.verdict.compared == 5);
    pd_replay_result_free(&r);
    for (size_t i = 4; i < 9; i++) {
        static const float off[1] = { 1.7f };
        file = weighted_file();
        file.entry[i].at = off;
        assert_outcome(&file, PD_REPLAY_FAILED, "");
    }
}

TEST(weights_that_are_all_zero_give_nan)
{
    static const float zero[2] = { 0, 0 }, nan[1] = { NAN };
    static const tracefile_values all[] = {
        { "values/r00", v0, 2 },         { "weights/r00", zero, 2 },     { "n_weights_per_core/r00", zero, 0 },
        { "weighted_mean/r00", nan, 0 }, { "mean_of_replicas", nan, 0 },
    };
    tracefile file = tracefile_of("trax_average", "weighted_one", "1", "{\"n_devices\": 1}");

    tracefile_add_all(&file, all, sizeof all / sizeof *all);
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(a_weighted_mean_without_its_tensors_fails)
{
    tracefile file;

    for (size_t i = 0; i < 9; i++) {
        file = weighted_file();
        strcpy(file.entry[i].name, "other");
        assert_outcome(&file, PD_REPLAY_FAILED, "missing");
    }
    file = weighted_file();
    file.entry[1].shape.dim[0] = 1, file.entry[1].bytes = sizeof(float);
    assert_outcome(&file, PD_REPLAY_FAILED, "weights/r00: not as many as there are values");
    assert_outcome_with(&file, "config", "{\"n_devices\": 65}", PD_REPLAY_FAILED, "n_devices, 1 to 64");
}

TEST(many_replicas_are_weighed)
{
    static const float one[1] = { 1 };
    tracefile file = tracefile_of("trax_average", "weighted_many", "1", "{\"n_devices\": 15}");
    char name[40];

    for (int r = 0; r < 15; r++) {
        snprintf(name, sizeof name, "values/r%02d", r), tracefile_add(&file, name, one, 1);
        snprintf(name, sizeof name, "weights/r%02d", r), tracefile_add(&file, name, one, 1);
        snprintf(name, sizeof name, "n_weights_per_core/r%02d", r), tracefile_add(&file, name, one, 0);
        snprintf(name, sizeof name, "weighted_mean/r%02d", r), tracefile_add(&file, name, one, 0);
    }
    tracefile_add(&file, "mean_of_replicas", one, 0);
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(without_memory_it_fails_and_leaks_nothing)
{
    tracefile adasum = pair(CONFIG("adasum_butterfly", "true", 2, 1), a, b, c), weighted = weighted_file();

    assert_fails_without_memory(&adasum);
    assert_fails_without_memory(&weighted);
}
