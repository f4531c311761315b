/* Tests the output of paramctl plan: which parameters, slots and tasks share a line. */
#include "test.h"
#include "coupled_row.h"
#include "forecasts.h"

TEST(tasks_that_differ_have_lines_of_their_own)
{
    model m = { 0 };

    add_param(&m, "w", 2, 9, 6);
    assert_tells(forecast(&m, "* varied lr=2", NULL), false,
                 " 5 tasks, exponent -1/2, 40 flop each\n from statistics.0 … 4; tally to root.0 … 4\n"
                 " 1 task, exponent -1/2, 5.0 kflop\n from statistics.0, 5; tally to root.5\n");
    pd_forecast_free(&m.forecast);
}

TEST(a_task_with_many_slots_has_a_line_for_inputs_and_one_for_outputs)
{
    model m = { 0 };

    add_param(&m, "w", 2, 8, 12);
    assert_tells(forecast(&m, "* scalable_shampoo block_size=4 root_method=tracked", NULL), false,
                 "\n from statistics.0 … 11; eigenbasis.0 … 11\n to preconditioners.0 … 11; eigenbasis.0 … 11\n");
    pd_forecast_free(&m.forecast);
}

TEST(storage_and_its_bytes_are_told)
{
    model m = { 0 };

    add_param(&m, "w", 2, 8, 12);
    const pd_forecast *f = forecast(&m, "* scalable_shampoo block_size=8 best_effort_memory_usage_reduction=yes", NULL);
    assert_tells(f, false, " momentum (8, 12) int8 144 B\n"); /* 8 * 12 codes of 1 byte, 12 buckets of 4 bytes */
    assert_tells(f, false,
                 " statistics.0 … 2 (8, 8) int16+diagonal x3 576 B\n"); /* each: 64 codes of 2 bytes, 8 buckets and 8
                                                                         * diagonal elements of 4 bytes */
    assert_tells(f, false, " direction (8, 12) temporary -\n");
    pd_forecast_free(&m.forecast);
}

TEST(slots_of_blocks_are_told_by_block)
{
    model m = { 0 };

    add_param(&m, "w", 2, 5, 10); /* 8 blocks: rows are cut into 3 + 2, columns into 3 + 3 + 3 + 1 */
    const pd_forecast *f = forecast(&m, "* wide storage=float16", NULL);
    assert_tells(f, false, " momentum (5, 10) float16 100 B\n");
    assert_tells(f, false, " average (5, 10) float64 400 B\n");
    assert_tells(f, false, " direction (5, 10) temporary 400 B\n");
    assert_tells(f, false, " block_0 … 3.statistics.0 (3, 3) float64 x4 288 B\n");
    assert_tells(f, false, " block_4 … 7.short (2,) float32 x4 32 B\n");
    assert_tells(f, false, "\n from block_0 … 3.statistics.0\n to block_0 … 3.root.0; block_0 … 3.short\n");
    assert_tells(f, true, " block_7.root.0 (2, 2) float64 32 B\n");
    pd_forecast_free(&m.forecast);
}

TEST(numbers_that_are_not_even_are_told_by_some)
{
    model m = { 0 };

    add_param(&m, "w", 2, 10, 7);
    const pd_forecast *f = forecast(&m, "* coupled", NULL);
    assert_tells(f, false, "statistics.0, 1, 3 … 7 (3, 3) float32 x6");
    assert_tells(f, false, "statistics.2, 5, 8 (3, 1) float32 x3");
    pd_forecast_free(&m.forecast);
    m = (model){ 0 };
    add_param(&m, "w", 2, 18, 5);
    assert_tells(forecast(&m, "* coupled", NULL), false, "statistics.1, 3 … 11 (3, 2) float32 x6");
    pd_forecast_free(&m.forecast);
}

TEST(equal_blocks_share_a_line)
{
    model m = { 0 };

    add_param(&m, "w", 2, 9, 6);
    const pd_forecast *f = forecast(&m, "* coupled", NULL);
    assert_tells(f, false, "statistics.0 … 5 (3, 3) float32 x6 216 B\n");
    assert_tells(f, false, " 6 blocks of (3, 3), 0 flop a step\n");
    assert_tells(f, false, "6 tasks, exponent -1/2, 36 flop each\n from statistics.0 … 5 to root.0 … 5\n");
    pd_forecast_free(&m.forecast);
}

TEST(blocks_at_the_edge_have_lines_of_their_own)
{
    model m = small_model();
    const pd_forecast *f = forecast(&m, "* coupled", NULL);
    pd_groups slots;

    assert_tells(f, false, "6 blocks of at most (3, 3)");
    assert_tells(f, false, "statistics.0, 2 (3, 3)");
    assert_tells(f, false, "statistics.5 (1, 2)");
    assert_int_equal(pd_group_slots(&slots, &f->kind[0]->plan, false), PD_OK);
    assert_int_equal(slots.n, 2 + 2 * 4);
    assert_int_equal(slots.first[slots.n], f->kind[0]->plan.n_slots);
    pd_groups_free(&slots);
    pd_forecast_free(&m.forecast);
}

TEST(every_item_is_in_one_group_with_its_like)
{
    model m = { 0 };
    const pd_plan *plan;
    pd_groups g;
    bool seen[1024] = { false };

    add_param(&m, "w", 2, 20, 31);
    plan = &forecast(&m, "* coupled", NULL)->kind[0]->plan;
    assert_int_equal(pd_group_slots(&g, plan, false), PD_OK);
    for (size_t k = 0; k < g.n; k++)
        for (size_t i = g.first[k]; i < g.first[k + 1]; i++) {
            const pd_slot_spec *one = &plan->slots[g.item[g.first[k]]], *it = &plan->slots[g.item[i]];
            assert_false(seen[g.item[i]]);
            seen[g.item[i]] = true;
            assert_string_equal(it->name, one->name);
            assert_true(pd_shape_equal(&it->shape, &one->shape));
            assert_true(i == g.first[k] || g.item[i] > g.item[i - 1]);
        }
    for (size_t i = 0; i < plan->n_slots; i++) assert_true(seen[i]);
    pd_groups_free(&g);
    pd_forecast_free(&m.forecast);
}

TEST(layers_that_are_alike_are_told_once)
{
    model m = { 0 };

    add_param(&m, "h.0.w1", 2, 4, 4);
    add_param(&m, "h.0.w2", 2, 4, 5);
    add_param(&m, "h.10.w1", 2, 4, 4);
    add_param(&m, "h.11.w1", 2, 4, 4);
    const pd_forecast *f = forecast(&m, "* sgd momentum=0.9", NULL);
    assert_int_equal(f->n_kinds, 2);
    assert_tells(f, false, "\nh.*.w* x3\n");
    assert_tells(f, false, "sgd: state 64 B each, 192 B of all 3\n");
    assert_tells(f, false, "\nh.0.w2\n");
    assert_does_not_tell(f, false, "h.11.w1");
    assert_tells(f, true, "\nh.11.w1\n");
    assert_does_not_tell(f, true, " of all ");
    pd_forecast_free(&m.forecast);
}

TEST(names_of_equal_parameters_stand_over_one_entry)
{
    model m = { 0 };

    add_param(&m, "z.weight", 1, 4, 0);
    add_param(&m, "between", 1, 5, 0);
    add_param(&m, "c.2.bias", 1, 4, 0);
    add_param(&m, "b.0.bias", 1, 4, 0);
    add_param(&m, "b.1.bias", 1, 4, 0);
    assert_tells(
        forecast(&m, NULL, NULL), false,
        "\nz.weight\nc.2.bias\nb.*.bias x2\n sgd: state 0 B each, 0 B of all 4\n weights (4,) float32 16 B\nbetween\n");
    pd_forecast_free(&m.forecast);
}

TEST(many_names_of_equal_parameters_are_counted)
{
    static char name[20][8];
    model m = { 0 };

    for (int i = 0; i < 20; i++) {
        snprintf(name[i], sizeof name[i], "%c", 'a' + i);
        add_param(&m, name[i], 1, 4, 0);
    }
    assert_tells(forecast(&m, NULL, NULL), false, "\ng\nand 13 others\n");
    pd_forecast_free(&m.forecast);
}

TEST(verbose_lists_every_slot_and_task)
{
    model m = small_model();
    const pd_forecast *f = forecast(&m, "* coupled", NULL);
    char name[80];

    for (int b = 0; b < 6; b++) {
        snprintf(name, sizeof name, "\n statistics.%d (", b);
        assert_tells(f, true, name);
        snprintf(name, sizeof name, "from statistics.%d to root.%d\n", b, b);
        assert_tells(f, true, name);
    }
    pd_forecast_free(&m.forecast);
}

TEST(sgd_has_weights_and_at_most_momentum)
{
    model m = small_model();
    const pd_forecast *f = forecast(&m, NULL, NULL);

    assert_int_equal(f->all.state_bytes, 0);
    assert_does_not_tell(f, false, "momentum");
    assert_does_not_tell(f, false, "due");
    assert_does_not_tell(f, false, "tasks");
    pd_forecast_free(&m.forecast);
    assert_tells(forecast(&m, "* sgd momentum=0.9", NULL), false, " momentum_buffer (7, 5) float32 140 B\n");
    pd_forecast_free(&m.forecast);
}

TEST(gpt2_small_has_nine_kinds_of_124_million_elements)
{
    char path[512], rule[] = "* coupled block_size=128";
    char *rules[] = { rule };
    const pd_sizing job = pd_forecast_job();
    pd_shapes shapes;
    pd_forecast f;

    snprintf(path, sizeof path, "%s/tests/support/gpt2_small.shapes", PD_SOURCE_DIR);
    assert_int_equal(pd_shapes_read(&shapes, path, NULL), PD_OK);
    assert_int_equal(pd_forecast_make(&f, &job, &shapes, rules, 1, forecast_rows, NULL), PD_OK);
    assert_int_equal(f.all.params, 148);
    assert_int_equal(f.all.elements, 124439808);
    assert_int_equal(f.n_kinds, 9);
    assert_int_equal(f.all.blocks, 393 * 6 + 8 * 6 + 12 * (6 * 18 + 36 + 2 * 6 * 24 + 18 + 24) + 74 * 6);
    pd_forecast_free(&f);
    pd_shapes_free(&shapes);
}
