/* Tests plans: which slots and tasks a parameter's optimizer has, and how many bytes they take. */
#include "test.h"
#include "coupled_row.h"
#include "optimizer_ops.h"
#include "plan_bytes.h"
#include "plan_make.h"

static const double no_fact[PD_MAX_MODEL_STATS];

static pd_declaration coupled(int rank, int64_t rows, int64_t cols)
{
    pd_declaration declaration = { .name = "w", .shape = { rank, { rows, cols } } };
    pd_hypers_init(&declaration.hypers, &coupled_row);
    return declaration;
}

TEST(gives_each_block_its_slots_and_task)
{
    pd_declaration declaration = coupled(2, 7, 5);
    pd_plan plan;

    assert_int_equal(pd_plan_make(&plan, &declaration, no_fact, NULL), PD_OK);
    assert_int_equal(plan.n_blocks, 6);
    assert_int_equal(plan.n_slots, 2 + 2 * 6);
    assert_int_equal(plan.n_tasks, 6);
    assert_int_equal(plan.elements, 35);
    for (size_t t = 0; t < plan.n_tasks; t++) {
        const pd_slot_spec *in = &plan.slots[plan.tasks[t].input[0]], *out = &plan.slots[plan.tasks[t].output[0]];
        assert_string_equal(in->name, "statistics");
        assert_string_equal(out->name, "root");
        assert_int_equal(in->number, t);
        assert_true(pd_shape_equal(&in->shape, &out->shape));
    }
    pd_plan_free(&plan);
}

TEST(counts_state_without_what_is_temporary)
{
    pd_declaration declaration = coupled(2, 7, 5);
    pd_plan plan;

    assert_int_equal(pd_plan_make(&plan, &declaration, no_fact, NULL), PD_OK);
    assert_int_equal(pd_plan_state_bytes(&plan), (2 * 35 + 1) * (int)sizeof(float));
    pd_plan_free(&plan);
    assert_int_equal(pd_plan_state_bytes(&plan), 0);
}

TEST(state_that_does_not_fit_is_the_largest)
{
    pd_slot_spec huge = { .name = "huge", .number = -1, .shape = { 1, { INT64_MAX / 8 } } };
    pd_plan plan = { 0 };

    for (int i = 0; i < 3; i++) assert_int_equal(pd_plan_slot(&plan, &huge), i);
    assert_true(pd_plan_state_bytes(&plan) == INT64_MAX);
    pd_plan_free(&plan);
}

TEST(refuses_impossible_shapes)
{
    pd_declaration negative = coupled(1, -1, 0), large = coupled(2, INT64_MAX, 2),
                   deep = coupled(PD_MAX_RANK + 1, 1, 1);
    pd_plan plan;
    pd_error err;

    assert_int_equal(pd_plan_make(&plan, &negative, no_fact, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_plan_make(&plan, &large, no_fact, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "(9223372036854775807, 2)"));
    assert_int_equal(pd_plan_make(&plan, &deep, no_fact, &err), PD_INVALID_ARGUMENT);
    assert_null(plan.slots);
}

TEST(refuses_hyperparameters_that_do_not_go_together)
{
    pd_declaration declaration = { .name = "w", .shape = { 1, { 4 } } };
    pd_plan plan;

    pd_hypers_init(&declaration.hypers, pd_optim_find("sgd"));
    assert_int_equal(pd_hypers_set(&declaration.hypers, "nesterov", "yes", NULL), PD_OK);
    assert_int_equal(pd_plan_make(&plan, &declaration, no_fact, NULL), PD_INVALID_ARGUMENT);
}

TEST(more_blocks_than_memory_can_hold_is_an_error)
{
    pd_declaration declaration = coupled(2, INT64_MAX / 16, 1);
    pd_plan plan;

    declaration.hypers.value[COUPLED_BLOCK_SIZE] = 1;
    assert_int_equal(pd_plan_make(&plan, &declaration, no_fact, NULL), PD_NO_MEMORY);
}

TEST(plans_for_parameters_without_elements)
{
    pd_declaration declaration = coupled(2, 0, 5);
    pd_plan plan;

    assert_int_equal(pd_plan_make(&plan, &declaration, no_fact, NULL), PD_OK);
    assert_int_equal(plan.n_blocks, 0);
    assert_int_equal(plan.n_tasks, 0);
    pd_plan_free(&plan);
}

TEST(leaves_nothing_behind_when_memory_ends)
{
    pd_declaration declaration = coupled(2, 7, 5);
    pd_plan plan;
    int64_t n;

    for (n = 0;; n++) {
        int rc;
        oom_arm(n);
        rc = pd_plan_make(&plan, &declaration, no_fact, NULL);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_true(plan.slots == NULL && plan.blocks == NULL && plan.tasks == NULL);
    }
    assert_true(n >= 3);
    pd_plan_free(&plan);
}
