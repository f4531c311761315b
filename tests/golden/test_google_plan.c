/* Tests the plan of scalable_shampoo for every shape of upstream's table, google_shampoo/preconditioner_plan.json:
 * the merged shape, the size of each statistic, and the exponent of its inverse root. */
#include <jansson.h>

#include "test.h"
#include "forecast.h"
#include "golden.h"
#include "optimizer_ops.h"

static json_t *entries;

static const pd_shape_entry *entry_from(const json_t *table, pd_shape_entry *entry)
{
    const json_t *dims = json_object_get(table, "shape");

    *entry = (pd_shape_entry){ .name = (char *)(uintptr_t) "w", .shape.rank = (int)json_array_size(dims) };
    for (int d = 0; d < entry->shape.rank; d++)
        entry->shape.dim[d] = json_integer_value(json_array_get(dims, (size_t)d));
    assert_int_equal(pd_shape_elements(&entry->shape, &entry->elements), PD_OK);
    return entry;
}

static void assert_statistics(const pd_plan *plan, const json_t *table)
{
    const json_t *sizes = json_object_get(table, "statistics_sizes"), *merged = json_object_get(table, "transformed");

    assert_int_equal(plan->n_tasks, json_array_size(sizes));
    assert_int_equal(plan->shape.rank, json_array_size(merged));
    for (int d = 0; d < plan->shape.rank; d++)
        assert_int_equal(plan->shape.dim[d], json_integer_value(json_array_get(merged, (size_t)d)));
    for (size_t t = 0; t < plan->n_tasks; t++) {
        const pd_slot_spec *slot = &plan->slots[plan->tasks[t].input[0]];
        assert_string_equal(slot->name, "statistics");
        assert_int_equal(slot->number, t);
        assert_int_equal(slot->shape.dim[0], json_integer_value(json_array_get(sizes, t)));
        assert_true(plan->tasks[t].exponent == json_number_value(json_object_get(table, "exponent")));
    }
}

TEST(statistics_and_exponents_are_upstreams)
{
    const json_t *table;
    size_t i, with_tasks = 0;

    json_array_foreach(entries, i, table)
    {
        pd_shape_entry entry;
        const pd_sizing job = pd_forecast_job();
        const pd_shapes shapes = { (pd_shape_entry *)(uintptr_t)entry_from(table, &entry), 1, 0 };
        char rule[200], *rules[] = { rule };
        pd_forecast f;
        pd_error err;
        if (entry.elements == 0) continue;
        snprintf(rule, sizeof rule,
                 "* scalable_shampoo block_size=%lld best_effort_shape_interpretation=%s "
                 "skip_preconditioning_dim_size_gt=1000000000",
                 (long long)json_integer_value(json_object_get(table, "block_size")),
                 json_is_true(json_object_get(table, "best_effort_shape_interpretation")) ? "yes" : "no");
        if (pd_forecast_make(&f, &job, &shapes, rules, 1, pd_optimizer_table, &err) != PD_OK)
            fail_msg("%s: %s", rule, err.text);
        assert_statistics(&f.kind[0]->plan, table);
        with_tasks += f.all.tasks > 0;
        pd_forecast_free(&f);
    }
    assert_true(with_tasks > 50);
}

static int open_tables(void **state)
{
    (void)state;
    entries = golden_table("google_shampoo/preconditioner_plan.json");
    return 0;
}

static int close_tables(void **state)
{
    (void)state;
    json_decref(entries);
    return 0;
}

GROUP(open_tables, close_tables);
