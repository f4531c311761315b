/* Tests shampoo against upstream's own tables in meta_shampoo: which options its constructor accepts and its errors for
 * others, when roots are computed and first used, merged dimensions, blocks and where their elements lie, and the keys
 * of saved state. */
#include <jansson.h>

#include "test.h"
#include "golden.h"
#include "partition.h"
#include "optimizer.h"
#include "shampoo_step.h"
#include "state_keys.h"

static json_t *validation, *schedules, *merges, *offsets, *checkpoints; /* rows of the recorded tables */

static json_t *open_table(json_t **rows, const char *name)
{
    json_t *table = golden_table(name);

    assert_non_null(*rows = json_object_get(table, "rows"));
    return table;
}

static int64_t number(const json_t *entry, const char *key)
{
    return json_integer_value(json_object_get(entry, key));
}

/* Writes a value as users do: 0.5, yes, [1,2], PrecisionConfig(name=value). */
static void write_value(FILE *out, const json_t *value)
{
    const char *key, *separator = "";
    json_t *item;
    size_t i;

    switch (json_typeof(value)) {
    case JSON_TRUE: fputs("yes", out); break;
    case JSON_FALSE: fputs("no", out); break;
    case JSON_STRING: fputs(json_string_value(value), out); break;
    case JSON_INTEGER: fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); break;
    case JSON_REAL: fprintf(out, "%.17g", json_real_value(value)); break;
    case JSON_NULL: fputs("none", out); break;
    case JSON_ARRAY:
        fputc('[', out);
        json_array_foreach(value, i, item)
        {
            fputs(separator, out);
            write_value(out, item);
            separator = ",";
        }
        fputc(']', out);
        break;
    case JSON_OBJECT:
        fputs("PrecisionConfig(", out);
        json_object_foreach((json_t *)value, key, item)
        {
            fprintf(out, "%s%s=", separator, key);
            write_value(out, item);
            separator = ",";
        }
        fputc(')', out);
    }
}

static int set_option(pd_hypers *hypers, const char *name, const json_t *value, pd_error *err)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    int rc;

    assert_non_null(out);
    write_value(out, value);
    assert_int_equal(fclose(out), 0);
    rc = pd_hypers_set(hypers, name, text, err);
    free(text);
    return rc;
}

/* Sets the options of a table entry. *parsed receives whether all values could be read: only then upstream's
 * constructor gets to check them. */
static int set_options(pd_hypers *hypers, const json_t *entry, bool *parsed, pd_error *err)
{
    const char *graft = json_string_value(json_object_get(entry, "grafting")), *key;
    json_t *value;
    int rc = PD_OK;

    pd_hypers_init(hypers, pd_optim_find("shampoo"));
    if (graft != NULL) assert_int_equal(pd_hypers_set(hypers, "grafting_config", graft, err), PD_OK);
    json_object_foreach(json_object_get(entry, "options"), key, value)
    {
        char name[96];
        snprintf(name, sizeof name, "%s%s", graft != NULL ? "grafting_config." : "", key);
        if (rc == PD_OK) rc = set_option(hypers, name, value, err);
    }
    *parsed = rc == PD_OK || rc == PD_OUT_OF_RANGE;
    return rc == PD_OK ? pd_hypers_check(hypers, err) : rc;
}

TEST(options_are_taken_and_refused_as_upstream_does_it)
{
    size_t i, texts = 0;
    json_t *entry;

    json_array_foreach(validation, i, entry)
    {
        pd_error err = { 0 };
        pd_hypers hypers;
        bool parsed;
        int rc = set_options(&hypers, entry, &parsed, &err);
        if ((rc == PD_OK) != json_is_true(json_object_get(entry, "accepted")))
            fail_msg("%s: %s", json_dumps(entry, 0), rc == PD_OK ? "taken" : err.text);
        if (rc == PD_OK || !parsed) continue; /* upstream has no error text for a value that cannot be read */
        assert_string_equal(err.text, json_string_value(json_object_get(entry, "message")));
        texts++;
    }
    assert_true(texts >= 20);
}

TEST(roots_are_computed_and_used_when_upstreams_are)
{
    size_t i;
    json_t *entry;

    json_array_foreach(schedules, i, entry)
    {
        const json_t *list = json_object_get(entry, "root_inverse_at");
        pd_hypers hypers;
        size_t next = 0;
        pd_hypers_init(&hypers, pd_optim_find("shampoo"));
        hypers.value[FREQUENCY] = (double)number(entry, "precondition_frequency");
        hypers.value[START_STEP] = (double)number(entry, "start_preconditioning_step");
        assert_int_equal(pd_hypers_check(&hypers, NULL), PD_OK);
        for (int64_t step = 1; step <= 30; step++) {
            bool theirs = next < json_array_size(list) && json_integer_value(json_array_get(list, next)) == step;
            next += theirs;
            if (pd_shampoo_due(NULL, hypers.value, step, NULL) != theirs)
                fail_msg("%s: step %d", json_dumps(entry, 0), (int)step);
        }
        assert_int_equal(pd_shampoo_start(hypers.value), number(entry, "shampoo_direction_from"));
    }
    assert_true(i > 0);
}

static pd_shape shape_from(const json_t *list)
{
    pd_shape shape = { .rank = (int)json_array_size(list) };

    assert_true(json_is_array(list) && shape.rank <= PD_MAX_RANK);
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = json_integer_value(json_array_get(list, (size_t)d));
    return shape;
}

static void check_blocks(const json_t *entry, const char *key, const char *merge)
{
    const json_t *shapes = json_object_get(entry, key);
    pd_declaration param = { .name = "w", .shape = shape_from(json_object_get(entry, "shape")) };
    pd_plan plan;
    pd_error err;

    if (shapes == NULL) return;
    pd_hypers_init(&param.hypers, pd_optim_find("shampoo"));
    param.hypers.value[MAX_DIM] = (double)number(entry, "max_preconditioner_dim");
    assert_int_equal(pd_hypers_set(&param.hypers, "use_merge_dims", merge, &err), PD_OK);
    if (pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 0 }, &err) != PD_OK)
        fail_msg("%s: %s", json_dumps(entry, 0), err.text);
    if (plan.n_blocks != json_array_size(shapes))
        fail_msg("%s, merged %s: we have %zu blocks", json_dumps(entry, 0), merge, plan.n_blocks);
    for (size_t b = 0; b < plan.n_blocks; b++) {
        pd_shape theirs = shape_from(json_array_get(shapes, b));
        assert_int_equal(plan.shape.rank, theirs.rank);
        assert_memory_equal(plan.blocks[b].size, theirs.dim, (size_t)theirs.rank * sizeof theirs.dim[0]);
    }
    pd_plan_free(&plan);
}

TEST(dimensions_are_merged_and_cut_as_upstream_does_it)
{
    size_t i;
    json_t *entry;

    json_array_foreach(merges, i, entry)
    {
        check_blocks(entry, "blocks_merged", "yes");
        check_blocks(entry, "blocks_unmerged", "no");
    }
    assert_true(i > 0);
}

TEST(a_blocks_elements_are_upstreams)
{
    enum { MOST = 4096 };
    static float whole[MOST], dense[MOST];
    size_t i;
    json_t *entry;

    for (int e = 0; e < MOST; e++) whole[e] = (float)e;
    json_array_foreach(offsets, i, entry)
    {
        pd_shape shape = shape_from(json_object_get(entry, "shape"));
        const json_t *blocks = json_object_get(entry, "blocks");
        int64_t n = 0, split = number(entry, "split");
        assert_true(pd_shape_elements(&shape, &n) == PD_OK && n <= MOST);
        assert_int_equal(pd_partition_count(&shape, split), json_array_size(blocks));
        for (size_t b = 0; b < json_array_size(blocks); b++) {
            const json_t *theirs = json_array_get(blocks, b);
            pd_block block = pd_partition_block(&shape, split, (int64_t)b);
            int64_t elements = pd_block_elements(&block, shape.rank);
            double sum = 0;
            pd_block_gather(dense, whole, &shape, &block);
            for (int64_t e = 0; e < elements; e++) sum += (double)dense[e];
            assert_int_equal((int64_t)dense[0], number(theirs, "first"));
            assert_int_equal((int64_t)dense[elements - 1], number(theirs, "last"));
            assert_int_equal((int64_t)sum, number(theirs, "sum"));
        }
    }
    assert_true(i > 0);
}

static pd_plan plan_of_row(const json_t *entry, const json_t *param)
{
    pd_declaration declaration = { .name = json_string_value(json_array_get(param, 0)) };
    const json_t *shape = json_array_get(param, 1);
    double stats[PD_MAX_MODEL_STATS] = { 0 };
    pd_plan plan = { 0 };
    pd_error err = { 0 };
    const char *key;
    json_t *value;

    pd_hypers_init(&declaration.hypers, pd_optim_find("shampoo"));
    json_object_foreach(json_object_get(entry, "options"), key,
                        value) if (set_option(&declaration.hypers, key, value, &err) != PD_OK) fail_msg("%s", err.text);
    declaration.hypers.value[MAX_DIM] = (double)number(entry, "max_preconditioner_dim");
    assert_int_equal(pd_hypers_set(&declaration.hypers, "grafting_config",
                                   json_string_value(json_object_get(entry, "grafting")), &err),
                     PD_OK);
    for (size_t d = 0; d < json_array_size(shape); d++)
        declaration.shape.dim[declaration.shape.rank++] = json_integer_value(json_array_get(shape, d));
    if (pd_plan_make(&plan, &declaration, stats, &err) != PD_OK) fail_msg("%s", err.text);
    return plan;
}

/* Checks that every key names a part of our state with the same shape, and that the keys together cover the whole
 * state. */
static void check_keys(const pd_plan *plan, const char *name, const json_t *state)
{
    int64_t covered[64] = { 0 }, elements;
    const char *key;
    json_t *tensor;

    json_object_foreach((json_t *)state, key, tensor)
    {
        const json_t *shape = json_object_get(tensor, "shape");
        char whole[512];
        pd_state_key read;
        pd_part part;
        snprintf(whole, sizeof whole, "%s%s", name, key);
        pd_state_key_read(&read, whole, &name, 1);
        if (read.kind == PD_KEY_UNKNOWN) fail_msg("%s is not known", whole);
        if (read.kind != PD_KEY_PART) continue;
        if (!pd_plan_part(plan, read.slot, read.number, read.block, &part))
            fail_msg("%s is no part of the state", whole);
        assert_int_equal((size_t)part.shape.rank, json_array_size(shape));
        for (int d = 0; d < part.shape.rank; d++)
            assert_int_equal(part.shape.dim[d], json_integer_value(json_array_get(shape, (size_t)d)));
        assert_int_equal(pd_shape_elements(&part.shape, &elements), PD_OK);
        covered[part.slot] += elements;
    }
    assert_true(plan->n_slots <= 64);
    for (size_t k = 0; k < plan->n_slots; k++) {
        assert_int_equal(pd_shape_elements(&plan->slots[k].shape, &elements), PD_OK);
        assert_int_equal(covered[k], plan->slots[k].temporary ? 0 : elements);
    }
}

TEST(saved_state_has_upstreams_keys)
{
    size_t i, k;
    json_t *entry, *param;

    json_array_foreach(checkpoints, i, entry) json_array_foreach(json_object_get(entry, "params"), k, param)
    {
        const char *name = json_string_value(json_array_get(param, 0));
        pd_plan plan = plan_of_row(entry, param);
        check_keys(&plan, name, json_object_get(json_object_get(entry, "state"), name));
        pd_plan_free(&plan);
    }
    assert_true(i > 0);
}

static json_t *tables[5];

static int open_tables(void **state)
{
    (void)state;
    tables[0] = open_table(&validation, "meta_shampoo/table_validation.json");
    tables[1] = open_table(&schedules, "meta_shampoo/table_schedule.json");
    tables[2] = open_table(&merges, "meta_shampoo/table_merge_and_blocks.json");
    tables[3] = open_table(&offsets, "meta_shampoo/table_block_offsets.json");
    tables[4] = open_table(&checkpoints, "meta_shampoo/table_checkpoint_keys.json");
    return 0;
}

static int close_tables(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) json_decref(tables[i]);
    return 0;
}

GROUP(open_tables, close_tables);
