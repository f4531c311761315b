/* Tests how paramctl plan --shards spreads a model over several daemons: nothing is lost, nothing is uneven without a
 * reason, and the reason is named. */
#include "test.h"
#include "forecast.h"
#include "shapes_file.h"
#include "shard_plan.h"
#include "spread.h"

/* A model of a file of shapes, and its forecast with one rule. */
typedef struct planned {
    pd_shapes shapes;
    pd_forecast forecast;
} planned;

static const pd_speeds speeds = { 2e9, 1e11 };

static void make_fragments(planned *p, const char *rule, const char *key, const char *value, uint32_t fragments)
{
    char path[400];
    char *const rules[] = { (char *)rule };
    pd_sizing job = pd_forecast_job();
    pd_error err = { 0 };

    snprintf(path, sizeof path, "%s/tests/support/gpt2_small.shapes", PD_SOURCE_DIR);
    job.world = 8;
    job.fragments = fragments;
    assert_int_equal(pd_job_values_set(&job.values, key, value, &err), PD_OK);
    if (pd_shapes_read(&p->shapes, path, &err) != PD_OK ||
        pd_forecast_make(&p->forecast, &job, &p->shapes, rules, 1, pd_optimizer_table, &err) != PD_OK)
        fail_msg("%s", err.text);
}

static void make(planned *p, const char *rule, const char *key, const char *value)
{
    make_fragments(p, rule, key, value, 1);
}

static void drop(planned *p)
{
    pd_forecast_free(&p->forecast);
    pd_shapes_free(&p->shapes);
}

static pd_shard_plan spread(const planned *p, uint32_t shards, pd_shard_plan_uncut *uncut)
{
    pd_shard_plan out;
    pd_error err = { 0 };

    if (pd_shard_plan_make(&out, uncut, &p->forecast, shards, &speeds, &err) != PD_OK) fail_msg("%s", err.text);
    return out;
}

TEST(one_daemon_has_the_whole_forecast)
{
    planned p = { 0 };
    pd_shard_plan one;

    make(&p, "* adamw", "nonfinite_scope", "job");
    one = spread(&p, 1, NULL);
    assert_int_equal(one.portions, p.shapes.n);
    assert_int_equal(one.memory, pd_footprint_sum(&p.forecast.all.need));
    assert_true(one.traffic == 8.0 * 8 * (double)p.forecast.all.elements);
    assert_true(one.skew.over_mean == 1);
    assert_int_equal(one.map, 0);
    assert_true(fabs(one.step_s - one.traffic / 2e9) < 1e-9);
    drop(&p);
}

TEST(gpt2_small_is_spread_as_evenly_as_its_portions_allow)
{
    static const struct {
        const char *rule;
        uint32_t shards;
        double skew;
    } known[] = { { "* adamw", 4, 1.01 },
                  { "* adamw", 16, 1.09 },
                  { "* adamw", 64, 4.35 },
                  { "* shampoo precondition_frequency=50 root_delay=50", 4, 1.01 },
                  { "* shampoo precondition_frequency=50 root_delay=50", 16, 1.65 } };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        planned p = { 0 };
        pd_shard_plan s;
        make(&p, known[i].rule, "nonfinite_scope", "job");
        s = spread(&p, known[i].shards, NULL);
        assert_true(fabs(s.skew.over_mean - known[i].skew) < 0.006);
        assert_true(s.map != 0);
        if (s.skew.over_mean > 1.05) assert_non_null(strstr(s.cause, "wte.weight, rows "));
        drop(&p);
    }
}

TEST(more_daemons_have_less_of_everything)
{
    planned p = { 0 };
    pd_shard_plan few, many;

    make(&p, "* shampoo precondition_frequency=50 root_delay=50", "nonfinite_scope", "job");
    few = spread(&p, 2, NULL);
    many = spread(&p, 8, NULL);
    assert_true(many.memory < few.memory && many.traffic < few.traffic && many.step_flops < few.step_flops);
    assert_true(many.root_flops < few.root_flops && many.step_s < few.step_s);
    assert_int_equal(few.portions, many.portions); /* where a parameter is cut does not depend on the daemons */
    drop(&p);
}

TEST(a_parameter_that_cannot_be_cut_is_named_with_the_reason)
{
    planned p = { 0 };
    pd_shard_plan_uncut uncut;

    make(&p, "* kron", "nonfinite_scope", "job");
    assert_true(spread(&p, 4, &uncut).skew.over_mean > 1.2);
    assert_string_equal(uncut.name, "wte.weight");
    assert_int_equal(uncut.why, PD_UNCUT_OPTIMIZER);
    drop(&p);
    make(&p, "* adamw", "nonfinite_scope", "parameter");
    (void)spread(&p, 4, &uncut);
    assert_int_equal(uncut.why, PD_UNCUT_APART);
    drop(&p);
    make(&p, "* adamw", "clip_global_norm", "1");
    (void)spread(&p, 4, &uncut);
    assert_null(uncut.name);
    drop(&p);
}

TEST(more_daemons_than_portions_are_refused)
{
    planned p = { 0 };
    pd_shard_plan s;

    make(&p, "* adamw", "nonfinite_scope", "job");
    s = spread(&p, 1000, NULL);
    assert_int_equal(s.empty, s.portions);
    assert_true(s.empty < s.shards);
    assert_int_equal(spread(&p, 16, NULL).empty, 16);
    drop(&p);
}

TEST(a_fragment_lies_whole_on_one_daemon_where_not_every_rank_counts)
{
    planned p = { 0 };
    pd_shard_plan_uncut uncut;
    pd_shard_plan s;

    make_fragments(&p, "* adamw", "quorum", "4", 12);
    s = spread(&p, 4, &uncut);
    assert_true(s.fragments);
    assert_int_equal(s.portions, p.shapes.n);
    assert_int_equal(s.empty, 4);
    assert_true(s.skew.over_mean > 1.15); /* wte.weight is larger than a fourth of the model */
    assert_int_equal(strncmp(s.cause, "wte.weight", 10), 0);
    assert_int_equal(uncut.why, PD_UNCUT_SETS);
    drop(&p);
    make_fragments(&p, "* adamw", "quorum", "4", 3);
    assert_int_equal(spread(&p, 3, NULL).empty, 3);
    assert_int_equal(spread(&p, 4, NULL).empty, 3);
    drop(&p);
}

TEST(the_table_names_the_cause_and_what_is_not_cut)
{
    planned p = { 0 };
    pd_shard_plan_uncut uncut;
    pd_shard_plan two[2];
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    json_t *json;
    pd_error err = { 0 };

    make(&p, "* kron", "nonfinite_scope", "job");
    two[0] = spread(&p, 1, &uncut);
    two[1] = spread(&p, 16, &uncut);
    assert_int_equal(pd_shard_plan_print(two, 2, &uncut, &p.forecast, &speeds, out, &err), PD_OK);
    fclose(out);
    assert_non_null(strstr(text, "SHARDS"));
    assert_non_null(strstr(text, "wte.weight (147 MiB) is not cut: its optimizer looks at the whole parameter"));
    assert_non_null(strstr(text, "of 8 workers"));
    free(text);
    json = pd_shard_plan_json(two, 2, &uncut);
    assert_int_equal(json_array_size(json_object_get(json, "shard_plans")), 2);
    json_decref(json);
    drop(&p);
}

/* Returns the number of the map that daemons make of the model. */
static uint64_t daemons_map(const planned *p, uint32_t shards)
{
    pd_param_decl *decls = calloc(p->shapes.n, sizeof *decls);
    const pd_spread_job job = { .sizing = &p->forecast.job,
                                .rules = p->forecast.rules,
                                .n_rules = p->forecast.n_rules,
                                .decls = decls,
                                .n = p->shapes.n,
                                .shards = shards,
                                .whole = true,
                                .most = 65536 };
    double budget_ns = INFINITY;
    pd_model_facts facts;
    pd_spread *made;
    pd_map map;
    pd_error err = { 0 };
    int rc;

    for (size_t i = 0; i < p->shapes.n; i++)
        decls[i] = (pd_param_decl){ .name = p->shapes.entries[i].name, .shape = p->shapes.entries[i].shape, .rule = 1 };
    assert_non_null(made = pd_spread_new(&job));
    assert_true(pd_spread_some(made, &budget_ns, &rc, &err));
    if (rc != PD_OK) fail_msg("%s", err.text);
    pd_spread_take(made, &map, &facts);
    pd_spread_free(made);
    pd_model_facts_free(&facts);
    free(map.portions);
    free(decls);
    return map.fingerprint;
}

TEST(the_map_is_that_of_the_daemons)
{
    static const char *const rules[] = { "* adamw", "* shampoo precondition_frequency=50 root_delay=50", "* kron",
                                         "* scalable_shampoo" };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (uint32_t shards = 2; shards <= 32; shards *= 4) {
            planned p = { 0 };
            make(&p, rules[i], "nonfinite_scope", "job");
            assert_int_equal(spread(&p, shards, NULL).map, daemons_map(&p, shards));
            drop(&p);
        }
}
