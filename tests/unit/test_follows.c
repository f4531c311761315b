/* Tests which dimension of the parameter belongs to each dimension of a slot of the optimizer's state. */
#include "test.h"
#include "optimizer_ops.h"
#include "plan_make.h"
#include "rig.h"
#include "partition.h"

static pd_hypers hypers;
static pd_plan plan;

/* Makes the plan of one parameter. All numbers that describe the job are 0, since they don't matter here. */
static void make(const char *optimizer, const char *name, const char *value, pd_shape shape)
{
    pd_declaration declaration = { .name = "w", .shape = shape };
    double stats[PD_MAX_MODEL_STATS] = { 0 };
    pd_error err = { 0 };

    pd_hypers_init(&hypers, pd_optim_find(optimizer));
    if (name != NULL) assert_int_equal(pd_hypers_set(&hypers, name, value, &err), PD_OK);
    declaration.hypers = hypers;
    if (pd_plan_make(&plan, &declaration, stats, &err) != PD_OK) fail_msg("%s", err.text);
}

static int tear_down(void **state)
{
    (void)state;
    pd_plan_free(&plan);
    return 0;
}

static const pd_slot_spec *slot(const char *name, int number)
{
    for (size_t i = 0; i < plan.n_slots; i++)
        if (strcmp(plan.slots[i].name, name) == 0 && plan.slots[i].number == number) return &plan.slots[i];
    fail_msg("there is no %s", name);
    return NULL;
}

static void assert_follows(const pd_slot_spec *spec, int first, int second)
{
    assert_true(spec->follows_known);
    assert_int_equal(spec->follows[0], first);
    if (spec->shape.rank > 1) assert_int_equal(spec->follows[1], second);
}

EACH_TEST(NULL, tear_down);

TEST(slots_of_the_parameters_shape_follow_its_dimensions)
{
    make("adam", NULL, NULL, (pd_shape){ 3, { 4, 5, 6 } });
    assert_int_equal(plan.n_slots, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_follows(&plan.slots[i], 0, 1);
        assert_int_equal(plan.slots[i].follows[2], 2);
    }
}

TEST(a_number_follows_no_dimension_even_where_the_parameter_has_one_element)
{
    make("nadam", NULL, NULL, (pd_shape){ 1, { 1 } });
    assert_follows(slot("mu_product", -1), -1, 0);
    assert_follows(slot("exp_avg", -1), 0, 0);
}

TEST(a_slot_without_dimensions_follows_none)
{
    make("kron", NULL, NULL, (pd_shape){ 2, { 4, 5 } });
    assert_int_equal(slot("update_counter", -1)->shape.rank, 0);
    assert_true(slot("update_counter", -1)->follows_known);
}

/* The block is square. So the shape of a statistics matrix does not tell which dimension the matrix belongs to. */
TEST(statistics_of_a_block_follow_their_own_dimension_twice)
{
    static const char *const googles[] = { "statistics", "preconditioners" }, *const metas[] = {
        "factor_matrices", "inv_factor_matrices"
    };
    make("scalable_shampoo", "block_size", "8", (pd_shape){ 2, { 8, 8 } });
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < 2; d++) assert_follows(slot(googles[i], d), d, d);
    assert_follows(slot("momentum", -1), 0, 1);
    assert_follows(slot("diagonal_momentum", -1), 0, 1);
    assert_follows(slot("inverse_pth_root_errors", -1), -1, 0);
    pd_plan_free(&plan);
    make("shampoo", "max_preconditioner_dim", "8", (pd_shape){ 2, { 8, 8 } });
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < 2; d++) assert_follows(slot(metas[i], d), d, d);
}

TEST(statistics_of_merged_dimensions_follow_no_known_dimension)
{
    make("scalable_shampoo", "block_size", "12", (pd_shape){ 3, { 3, 4, 40 } });
    assert_false(slot("statistics", 0)->follows_known);
    assert_follows(slot("statistics", 1), 2, 2);
    assert_follows(slot("statistics", 7), 2, 2); /* the last block */
    pd_plan_free(&plan);
    make("shampoo", "max_preconditioner_dim", "12", (pd_shape){ 3, { 3, 4, 40 } });
    assert_false(slot("factor_matrices", 0)->follows_known);
    assert_follows(slot("factor_matrices", 1), 2, 2);
}

/* Returns the only dimension of `shape` that lies in dimension d of the merged shape; -1: several or none. A dimension
 * lies in d if its stride lies between the strides where d begins and ends. */
static int twin(const pd_shape *shape, const pd_shape *merged, int d)
{
    int64_t before = 1, after, at = 1;
    int found = -1, many = 0;

    for (int m = 0; m < d; m++) before *= merged->dim[m];
    after = before * merged->dim[d];
    for (int k = 0; k < shape->rank; at *= shape->dim[k++])
        if (shape->dim[k] > 1 && before <= at && at < after) {
            found = k;
            many++;
        }
    return many == 1 ? found : -1;
}

TEST_WITH(NULL, NULL, a_merged_dimension_is_one_of_the_shapes_or_several)
{
    uint64_t random = 5;
    for (int round = 0; round < 20000; round++) {
        pd_shape shape = { .rank = 1 + (int)(rig_random(&random) % 6) }, merged;
        for (int d = 0; d < shape.rank; d++) shape.dim[d] = 1 + (int64_t)(rig_random(&random) % 4);
        merged = pd_shape_merged(&shape, (int64_t)(rig_random(&random) % 30));
        for (int d = 0; d < merged.rank; d++)
            if (merged.dim[d] > 1 && pd_shape_merged_from(&shape, &merged, d) != twin(&shape, &merged, d))
                fail_msg("round %d, dimension %d", round, d);
        for (int d = 0; d < shape.rank; d++) assert_int_equal(pd_shape_merged_from(&shape, &shape, d), d);
    }
}

TEST_WITH(NULL, NULL, operators_see_which_dimensions_slots_follow)
{
    static const char *const names[] = { "w" };
    static const pd_shape shape = { 3, { 3, 4, 40 } };
    pd_store_config config = rig_config();
    const pd_info *info;
    rig r;
    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, "job", 0, 1, 1, 1, NULL, "* scalable_shampoo block_size=12"), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 0, 1, names, &shape, NULL, 1, PD_F32), PD_OK);
    info = rig_ask(&r, PD_INFO_STATE, "job");
    for (size_t i = 0; i < info->n_state; i++) {
        const pd_state_info *at = &info->state[i];
        if (strcmp(at->slot, "momentum") == 0) assert_true(at->follows_known && at->follows[2] == 2);
        if (strcmp(at->slot, "statistics") == 0)
            assert_true(at->follows_known == (at->number % 2 == 1) && (!at->follows_known || at->follows[1] == 2));
    }
    rig_free(&r);
}
