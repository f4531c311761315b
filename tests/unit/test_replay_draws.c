/* Tests replays with recorded random numbers, updates and counters, on a small run of kron that this optimizer library
 * recorded. */
#include "test.h"
#include "paramd/optim.h"
#include "replayed.h"

enum { STEPS = 6, ROWS = 3, COLS = 2, N = ROWS * COLS };

static const char config[] =
    "{\"learning_rate\": 0.1, \"b1\": 0.5, \"preconditioner_update_probability\": 0.5, \"memory_save_mode\": "
    "\"one_diag\", \"merge_small_dims\": false, \"partition_grads_into_blocks\": false}";

/* The recorded run: the factors of kron are updated in steps 2, 4 and 6, and balanced in step 4. */
static float W[STEPS + 1][N], G[STEPS + 1][N], probe[STEPS + 1][N], update[STEPS + 1][N], Q0[ROWS];
/* A second parameter of the same size with the same gradients and other random probes. */
static float other_W[STEPS + 1][N], other_probe[STEPS + 1][N];

static pd_model *new_model(void)
{
    pd_declaration declaration = { .name = "w", .shape = { 2, { ROWS, COLS } } }, both[2];
    pd_model *model = NULL;

    pd_hypers_init(&declaration.hypers, pd_optim_find("kron"));
    assert_int_equal(pd_hypers_set(&declaration.hypers, "learning_rate", "0.1", NULL), PD_OK);
    assert_int_equal(pd_hypers_set(&declaration.hypers, "b1", "0.5", NULL), PD_OK);
    assert_int_equal(pd_hypers_set(&declaration.hypers, "preconditioner_update_probability", "0.5", NULL), PD_OK);
    assert_int_equal(pd_hypers_set(&declaration.hypers, "memory_save_mode", "one_diag", NULL), PD_OK);
    assert_int_equal(pd_hypers_set(&declaration.hypers, "merge_small_dims", "no", NULL), PD_OK);
    assert_int_equal(pd_hypers_set(&declaration.hypers, "partition_grads_into_blocks", "no", NULL), PD_OK);
    both[0] = both[1] = declaration;
    both[1].name = "x";
    assert_int_equal(pd_model_new(&model, both, 2, 1, NULL), PD_OK);
    return model;
}

static int run_kron(void **state)
{
    pd_model *model = new_model();
    double factor[ROWS];

    (void)state;
    for (int i = 0; i < N; i++) W[0][i] = other_W[0][i] = (float)i - 2;
    for (int s = 1; s <= STEPS; s++) {
        pd_draws draws = { probe[s], s == 4 ? 0 : 0.5, N }, others = { other_probe[s], draws.uniform, N };
        pd_step_io io[2] = {
            { .gradient = G[s], .before = W[s - 1], .after = W[s], .update = update[s], .draws = &draws },
            { .gradient = G[s], .before = other_W[s - 1], .after = other_W[s], .draws = &others }
        };
        for (int i = 0; i < N; i++) {
            G[s][i] = (float)((i * 7 + s * 3) % 11) / 8 - 0.5f;
            probe[s][i] = (float)((i * 5 + s * 2) % 7) / 2 - 1.25f;
            other_probe[s][i] = (float)((i * 2 + s * 3) % 5) - 1.75f;
        }
        assert_int_equal(pd_model_step(model, io, NULL), PD_OK);
    }
    assert_int_equal(pd_model_read_part(model, 0, "Q", 0, -1, factor, ROWS, NULL), PD_OK);
    for (int i = 0; i < ROWS; i++) Q0[i] = (float)factor[i];
    pd_model_free(model);
    return 0;
}

static void add_of(tracefile *file, const char *what, int step, const char *param, const float *values)
{
    char name[40];

    snprintf(name, sizeof name, "%s/%04d/%s", what, step, param);
    tracefile_add_matrix(file, name, values, ROWS, COLS);
}

static void add(tracefile *file, const char *what, int step, const float *values)
{
    add_of(file, what, step, "w", values);
}

static tracefile recorded(void)
{
    tracefile file = tracefile_of("distributed_kron", "by_hand", "6", config);

    tracefile_meta(&file, "noise_update", "0");
    tracefile_meta(&file, "noise_state", "0");
    tracefile_meta(&file, "balanced_steps", "[4]");
    tracefile_meta(&file, "update_counter", "[1, 0, 1, 0, 1, 0]");
    add(&file, "param", 0, W[0]);
    add_of(&file, "param", 0, "x", other_W[0]);
    for (int s = 1; s <= STEPS; s++) {
        add(&file, "param", s, W[s]);
        add(&file, "grad", s, G[s]);
        add(&file, "update", s, update[s]);
        add_of(&file, "param", s, "x", other_W[s]);
        add_of(&file, "grad", s, "x", G[s]);
        if (s % 2 == 0) add(&file, "probe", s, probe[s]);
        if (s % 2 == 0) add_of(&file, "probe", s, "x", other_probe[s]);
    }
    tracefile_add(&file, "state/0006/w/Q/0", Q0, ROWS);
    return file;
}

/* Replaces the values of the tensor with that name by `instead`. */
static void replace(tracefile *file, const char *name, const float *instead)
{
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->entry[i].name, name) == 0) file->entry[i].at = instead;
}

TEST(a_run_with_its_own_draws_is_the_same)
{
    tracefile file = recorded();
    pd_replay_result r = replayed(&file);

    assert_int_equal(r.outcome, PD_REPLAY_OK);
    assert_true(r.verdict.error == 0 && r.verdict.compared == 2 * STEPS);
    assert_true(r.update.error == 0 && r.update.compared == STEPS && r.update_tolerance == 1e-6);
    assert_true(r.state.error == 0 && r.state.compared == 2 * STEPS + 1);
    pd_replay_result_free(&r);
}

TEST(another_probe_makes_another_run)
{
    tracefile file = recorded();

    replace(&file, "probe/0002/w", probe[3]);
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

/* Balancing leaves the product of the factors unchanged, and so the weights. Only the recorded factors show in which
 * steps they were balanced. */
TEST(factors_are_balanced_in_the_steps_recorded_and_in_no_others)
{
    static const char *const others[][2] = { { "[]", "" }, { "[4, 6]", "" }, { "4", "balanced_steps" } };
    tracefile file = recorded();

    for (int i = 0; i < 3; i++)
        assert_outcome_with(&file, "balanced_steps", others[i][0], PD_REPLAY_FAILED, others[i][1]);
}

TEST(a_probe_of_another_size_is_refused)
{
    tracefile file = recorded();

    for (size_t i = 0; i < file.n; i++) {
        if (strcmp(file.entry[i].name, "probe/0002/w") != 0) continue;
        file.entry[i].shape = (pd_shape){ .rank = 1, .dim = { N - 1 } };
        file.entry[i].bytes -= sizeof(float);
    }
    assert_outcome(&file, PD_REPLAY_FAILED, "parameter w: expected 6 normal numbers for a step, got 5");
}

TEST(an_update_is_judged_beside_the_weights)
{
    tracefile file = recorded();
    float off[N];
    pd_replay_result r;

    for (int i = 0; i < N; i++) off[i] = update[3][i] * (1 + 3e-6f);
    replace(&file, "update/0003/w", off);
    r = replayed(&file);
    assert_int_equal(r.outcome, PD_REPLAY_FAILED);
    assert_true(r.verdict.error == 0);
    assert_true(r.update.error > 2e-6 && r.update.error < 4e-6 && r.update.step == 3);
    pd_replay_result_free(&r);
    assert_outcome_with(&file, "noise_update", "4e-7", PD_REPLAY_OK, "");
    assert_outcome_with(&file, "noise_update", "1e-7", PD_REPLAY_FAILED, "");
    assert_outcome_with(&file, "noise_update", "little", PD_REPLAY_FAILED, "noise_update");
    assert_outcome_with(&file, "noise_update", "-1", PD_REPLAY_FAILED, "noise_update");
}

TEST(an_update_has_the_shape_of_its_parameter)
{
    tracefile file = recorded();

    for (size_t i = 0; i < file.n; i++)
        if (strcmp(file.entry[i].name, "update/0001/w") == 0)
            file.entry[i].shape = (pd_shape){ .rank = 1, .dim = { N } };
    assert_outcome(&file, PD_REPLAY_FAILED, "update/0001/w");
}

TEST(the_counter_is_state_of_every_step)
{
    tracefile file = recorded();
    pd_replay_result r = replayed_with(&file, "update_counter", "[1, 0, 1, 0, 1, 1]");

    assert_int_equal(r.outcome, PD_REPLAY_FAILED);
    assert_true(r.verdict.error == 0 && r.state.error == 1);
    assert_string_equal(r.state.worst, "update_counter");
    pd_replay_result_free(&r);
    assert_outcome_with(&file, "update_counter", "1", PD_REPLAY_FAILED, "update_counter");
}

TEST(a_daemon_that_would_draw_its_own_is_not_asked)
{
    tracefile file = recorded();
    pd_replay_result r = replayed_by(&file, &(pd_replay_options){ .server = "tcp://127.0.0.1:1", .timeout = 1 });

    assert_int_equal(r.outcome, PD_REPLAY_SKIPPED);
    assert_true(r.excused);
    assert_non_null(strstr(r.why.text, "random probes"));
    pd_replay_result_free(&r);
}

TEST(what_release_0_1_0_alone_did_is_left_out_and_said)
{
    static const char old[] = "{\"learning_rate\": 0.1, \"normalize_grads\": true}",
                      off[] = "{\"learning_rate\": 0.1, \"normalize_grads\": false}";
    tracefile file = recorded();

    assert_outcome_with(&file, "config", old, PD_REPLAY_SKIPPED, "records a defect: normalize_grads");
    assert_outcome_with(&file, "config", off, PD_REPLAY_FAILED, "");
}

TEST(without_memory_it_says_so)
{
    tracefile file = recorded();

    assert_fails_without_memory(&file);
}

GROUP(run_kron, NULL);
