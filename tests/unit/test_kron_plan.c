/* Tests how a declaration for kron is planned before state is allocated: slots, blocks, notes, forecasts and
 * refusals. */
#include "test.h"
#include "kron_plan.h"
#include "plan_bytes.h"
#include "plan_make.h"
#include "shampoos.h"

#define SHAPE(...) (&(pd_shape){ .rank = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), .dim = { __VA_ARGS__ } })

static pd_plan plan_of(const pd_shape *shape, const char *hypers, const char *axes)
{
    pd_declaration param = { .name = "w", .shape = *shape, .axes = axes };
    pd_error err;
    pd_plan plan;

    shampoo_take(&param.hypers, "kron", hypers);
    if (pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 0 }, &err) != PD_OK) fail_msg("%s", err.text);
    pd_hypers_free(&param.hypers);
    return plan;
}

static bool has_slot(const pd_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n_slots; i++)
        if (strcmp(plan->slots[i].name, name) == 0) return true;
    return false;
}

TEST(without_momentum_there_is_no_buffer)
{
    pd_plan with = plan_of(SHAPE(5, 4), "", NULL), without = plan_of(SHAPE(5, 4), "b1=0", NULL);

    assert_true(has_slot(&with, "mu"));
    assert_false(has_slot(&without, "mu"));
    pd_plan_free(&with);
    pd_plan_free(&without);
}

#define WHOLE "merge_small_dims=no partition_grads_into_blocks=no"

/* Products along the longer side of a matrix are cut along that side, since the other one may be too short to be cut.
 * Only these products cannot be computed in place. */
TEST(only_large_blocks_with_a_longer_side_have_work_memory)
{
    static const struct {
        pd_shape shape;
        const char *hypers;
        bool large, other;
    } cases[] = {
        { { 2, { 1024, 1024 } }, WHOLE, false, false },
        { { 2, { 2048, 2048 } }, WHOLE, true, false },
        { { 2, { 4096, 1024 } }, WHOLE, true, true },
        { { 2, { 1024, 4096 } }, WHOLE, true, true },
        { { 2, { 4096, 1024 } }, WHOLE " max_size_triangular=2048", true, false }, /* the longer factor is diagonal */
        { { 2, { 4096, 1024 } }, "block_size=512", false, false },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pd_plan plan = plan_of(&cases[i].shape, cases[i].hypers, NULL);
        assert_true(plan.large_products == cases[i].large);
        assert_true(has_slot(&plan, "half_update") == cases[i].other);
        pd_plan_free(&plan);
    }
}

static int scanned(const char *axes, const char *hypers)
{
    pd_plan plan = plan_of(SHAPE(4, 3, 2), hypers, axes);
    int n = ((const pd_kron_own *)plan.own)->scanned;

    pd_plan_free(&plan);
    return n;
}

TEST(leading_axes_of_certain_names_are_scanned)
{
    assert_int_equal(scanned(NULL, ""), 0);
    assert_int_equal(scanned("embed,layers,mlp", ""), 0);
    assert_int_equal(scanned("layers,embed,mlp", ""), 1);
    assert_int_equal(scanned("layers,stack,mlp", ""), 2);
    assert_int_equal(scanned("layers,embed,mlp", "scanned_axes=none"), 0);
    assert_int_equal(scanned("blocks,heads,mlp", "scanned_axes=heads,blocks"), 2);
    assert_int_equal(scanned("heads,mlp,blocks", "scanned_axes=[heads,blocks]"), 1);
    assert_int_equal(scanned(",heads,mlp", "scanned_axes=heads,"), 0);
}

static void assert_declaration_refused(const pd_shape *shape, const char *axes, const char *hypers, const char *text)
{
    pd_declaration param = { .name = "w", .shape = *shape, .hypers = shampoo_hypers("kron", hypers), .axes = axes };
    pd_error err = { 0 };
    pd_plan plan;

    assert_int_equal(pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 0 }, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, text) == NULL || strncmp(err.text, "parameter w:", 12) != 0) fail_msg("%s", err.text);
}

TEST(invalid_declarations_are_refused)
{
    assert_declaration_refused(SHAPE(7), "layers", "", "all dimensions are scanned");
    assert_declaration_refused(SHAPE(7, 3), "layers", "", "expected 2 names");
    assert_declaration_refused(SHAPE(100000, 100000), NULL, "block_size=8 max_size_triangular=200000",
                               "more than 262144 blocks");
    assert_declaration_refused(SHAPE(100000, 100000), NULL, "memory_save_mode=all_diag",
                               "a block would have more than");
    assert_declaration_refused(SHAPE(70000, 70000), NULL, "partition_grads_into_blocks=no max_size_triangular=200000",
                               "a block would have more than");
    assert_declaration_refused(SHAPE(3, 3, 64, 64), NULL, "merge_small_dims=no", "pad_blocks=no");
}

TEST(slots_are_stacks_of_factors_by_layer_and_block)
{
    pd_plan plan =
        plan_of(SHAPE(3, 20, 11), "block_size=8 merge_small_dims=no memory_save_mode=one_diag precond_dtype=bfloat16",
                "layers,,");
    const pd_slot_spec *Q = &plan.slots[((const pd_kron_own *)plan.own)->q];

    assert_int_equal(plan.n_blocks, 3 * 2); /* 3 layers of 2 blocks: the dimension of 20 has a diagonal factor, so
                                             * only the dimension of 11 is cut */
    assert_int_equal(plan.n_tasks, 3 * 2);
    assert_true(pd_shape_equal(&Q[0].shape, SHAPE(6, 24)) && pd_shape_equal(&Q[1].shape, SHAPE(6, 8, 8)));
    assert_true(Q[0].storage == PD_STORE_BF16 && Q[1].storage == PD_STORE_BF16 && !Q[0].identity && Q[1].identity);
    assert_true(plan.blocks[3].start[0] == 1 && plan.blocks[3].start[2] == 8 && plan.blocks[3].size[2] == 3 &&
                plan.blocks[3].size[1] == 20);
    assert_true(Q[0].follows_known && Q[0].follows[0] == -1 && Q[0].follows[1] == 1 && Q[1].follows[1] == 2 &&
                Q[1].follows[2] == -1);
    assert_int_equal(pd_plan_state_bytes(&plan), 4 * (660 + 1) + 2 * 6 * (24 + 64));
    pd_plan_free(&plan);
}

TEST(a_factor_of_a_merged_dimension_follows_none)
{
    pd_plan plan = plan_of(SHAPE(4, 6, 5), "partition_grads_into_blocks=no", "layers,,");
    const pd_slot_spec *Q = &plan.slots[((const pd_kron_own *)plan.own)->q];

    assert_true(pd_shape_equal(&Q->shape, SHAPE(4, 30, 30)));
    assert_true(Q->follows[0] == 0 && Q->follows[1] == -1 && Q->follows[2] == -1);
    pd_plan_free(&plan);
}

static bool notes(const pd_shape *shape, const char *hypers, const char *part)
{
    pd_plan plan = plan_of(shape, hypers, NULL);
    bool found = *part == '\0' ? plan.note[0] == '\0' : strstr(plan.note, part) != NULL;

    pd_plan_free(&plan);
    return found;
}

TEST(factors_far_larger_than_their_weights_are_noted)
{
    assert_true(notes(SHAPE(256, 128), "",
                      "hold 256 numbers for each weight; with merge_small_dims=no pad_blocks=no they would hold 2.5"));
    assert_true(notes(SHAPE(256, 128), "merge_small_dims=no", ""));
    assert_true(notes(SHAPE(768, 3072), "", ""));
    assert_true(notes(SHAPE(5, 7), "merge_small_dims=no", "hold 3745 numbers"));
    assert_true(notes(SHAPE(5, 7), "merge_small_dims=no pad_blocks=no", ""));
    assert_true(notes(SHAPE(10), "", ""));
}

TEST(running_out_of_memory_is_reported_and_leaves_nothing)
{
    pd_declaration param = { .name = "w", .shape = { 3, { 2, 9, 6 } }, .axes = "layers,," };

    shampoo_take(&param.hypers, "kron", "block_size=4 scanned_axes=layers,x mu_dtype=bfloat16 precond_dtype=bfloat16");
    assert_true(oom_each(shampoo_try_model, &param) > 10);
    pd_hypers_free(&param.hypers);
}

TEST(values_out_of_range_are_refused_by_name)
{
    static const char *const refused[][3] = {
        { "b1", "1", "below 1" },
        { "b1", "linear(init=0,end=0.9,steps=5)", "cannot change from 0" },
        { "weight_decay", "-1", "-1" },
        { "preconditioner_update_probability", "1.5", "anneal" },
        { "preconditioner_update_probability", "precond_update_prob_schedule(max_prob=2)", "max_prob" },
        { "preconditioner_init_scale", "0", "above 0, or auto" },
        { "block_size", "0", "1" },
        { "target_merged_dim_size", "0", "1" },
        { "memory_save_mode", "two_diag", "one_diag" },
        { "root_delay", "2", "expected at most 1, the steps between two updates" },
    };

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        shampoo_assert_refused("kron", refused[i][0], refused[i][1], refused[i][2]);
}

TEST(dimensions_may_be_asked_for_that_no_parameter_has)
{
    for (int d = 0; d < 2; d++) {
        pd_hypers hypers = shampoo_hypers("kron", d == 0 ? "min_ndim_triangular=100" : "weight_decay_min_ndim=100");
        assert_int_equal(pd_hypers_check(&hypers, NULL), PD_OK);
    }
}

TEST(precisions_go_by_jax_s_words)
{
    static const char *const words[] = { "bfloat16", "tensorfloat32", "float32", "default", "high", "highest" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        pd_hypers hypers = shampoo_hypers("kron", "");
        assert_int_equal(pd_hypers_set(&hypers, "precond_update_precision", words[i], NULL), PD_OK);
        assert_int_equal(pd_hypers_set(&hypers, "precond_grads_precision", words[i], NULL), PD_OK);
    }
}

TEST(a_delay_is_at_most_the_shortest_interval)
{
    shampoo_hypers("kron", "root_delay=1");
    shampoo_hypers("kron", "preconditioner_update_probability=0.3 root_delay=4");
    for (int bad = 0; bad < 2; bad++) {
        pd_hypers hypers = shampoo_hypers("kron", "preconditioner_update_probability=0.05 root_delay=20");
        pd_error err = { 0 };
        assert_int_equal(pd_hypers_set(&hypers, "preconditioner_update_probability",
                                       bad ? "table(0.05,0.06,0.05)" : "table(0.05,0.04)", &err),
                         PD_OK);
        assert_int_equal(pd_hypers_check(&hypers, &err), bad ? PD_INVALID_ARGUMENT : PD_OK);
        pd_hypers_free(&hypers);
    }
}

TEST(options_that_deviate_from_upstream_give_a_warning)
{
    pd_hypers plain = shampoo_hypers("kron", ""), skips = shampoo_hypers("kron", "skip_zero_updates=yes");

    assert_null(plain.row->warning(&plain));
    assert_non_null(strstr(skips.row->warning(&skips), "skip_zero_updates"));
}

TEST(a_forecast_goes_by_the_probability_alone)
{
    pd_hypers hypers = shampoo_hypers("kron", "preconditioner_update_probability=0.3"),
              anneal = shampoo_hypers("kron", "");
    pd_plan plan = plan_of(SHAPE(5, 4), "", NULL);

    for (int64_t count = 1; count < 20; count++) {
        assert_int_equal(hypers.row->due(&plan, hypers.value, count, NULL), count % 4 == 0);
        assert_true(anneal.row->due(&plan, anneal.value, count, NULL));
    }
    assert_true(anneal.row->due(&plan, anneal.value, 34 * 1000, NULL));
    assert_false(anneal.row->due(&plan, anneal.value, 34 * 1000 + 1, NULL));
    pd_plan_free(&plan);
}
