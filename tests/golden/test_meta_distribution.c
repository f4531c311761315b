/* Tests distribution against upstream's tables in meta_shampoo: blocks in a flat range of a tensor, and blocks that are
 * assigned to ranks. */
#include <jansson.h>

#include "test.h"
#include "assignment.h"
#include "golden.h"
#include "partition.h"
#include "replay_run.h"

static json_t *recoveries, *assignments; /* rows of the recorded tables */

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

static pd_shape shape_from(const json_t *list)
{
    pd_shape shape = { .rank = (int)json_array_size(list) };

    assert_true(json_is_array(list) && shape.rank <= PD_MAX_RANK);
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = json_integer_value(json_array_get(list, (size_t)d));
    return shape;
}

static void check_recovery(const json_t *row)
{
    const json_t *blocks = json_object_get(row, "blocks");
    pd_shape shape = shape_from(json_object_get(row, "shape"));
    pd_recovered r;

    assert_int_equal(pd_recover_blocks(&r, &shape, number(row, "start"), number(row, "end"), NULL), PD_OK);
    assert_int_equal(r.n, json_array_size(blocks));
    for (int i = 0; i < r.n; i++) {
        const json_t *block = json_array_get(blocks, (size_t)i);
        pd_shape theirs = shape_from(json_object_get(block, "shape"));
        if (!pd_shape_equal(&r.at[i].shape, &theirs) || r.at[i].offset != number(block, "offset"))
            fail_msg("block %d of %s", i, json_dumps(row, 0));
    }
}

TEST(a_flat_ranges_blocks_are_upstreams)
{
    size_t i;
    json_t *row;

    json_array_foreach(recoveries, i, row) check_recovery(row);
    assert_true(i > 0);
}

enum { MOST_BLOCKS = 4096, MOST_RANKS = 64 };

/* Computes the bytes of every block of every parameter after merging and cutting. Returns the number of blocks. */
static size_t find_blocks(const json_t *row, int64_t *bytes)
{
    int64_t limit = number(row, "max_preconditioner_dim");
    pd_dtype dtype =
        strcmp(json_string_value(json_object_get(row, "communication_dtype")), "FP32") == 0 ? PD_F32 : PD_BF16;
    size_t n = 0, p;
    json_t *param;

    json_array_foreach(json_object_get(row, "params"), p, param)
    {
        pd_shape shape = shape_from(param);
        if (json_is_true(json_object_get(row, "use_merge_dims"))) shape = pd_shape_merged(&shape, limit);
        for (int64_t b = 0; b < pd_partition_count(&shape, limit); b++) {
            pd_block block = pd_partition_block(&shape, limit, b);
            assert_true(n < MOST_BLOCKS);
            assert_int_equal(p, json_integer_value(json_array_get(json_object_get(row, "block_param"), n)));
            bytes[n++] = pd_assigned_bytes(pd_block_elements(&block, shape.rank), dtype);
        }
    }
    return n;
}

static void assert_list(const json_t *row, const char *key, size_t i, int64_t ours)
{
    int64_t theirs = json_integer_value(json_array_get(json_object_get(row, key), i));

    if (ours != theirs)
        fail_msg("%s[%zu] is %lld and not %lld: %s", key, i, (long long)ours, (long long)theirs, json_dumps(row, 0));
}

static void check_assignment(const json_t *row)
{
    int ranks = (int)number(row, "group_size"), owner[MOST_BLOCKS], rc;
    int64_t bytes[MOST_BLOCKS], rank_bytes[MOST_RANKS];
    size_t n = find_blocks(row, bytes);

    assert_true(ranks <= MOST_RANKS);
    assert_int_equal(n, json_array_size(json_object_get(row, "rank")));
    rc = pd_assign_blocks(owner, rank_bytes, bytes, n, ranks, NULL);
    assert_int_equal(rc, json_is_true(json_object_get(row, "refused")) ? PD_FAILED_PRECONDITION : PD_OK);
    for (size_t i = 0; i < n; i++) {
        assert_list(row, "aligned_bytes", i, bytes[i]);
        assert_list(row, "rank", i, owner[i]);
    }
    for (int r = 0; r < ranks; r++) assert_list(row, "rank_bytes", (size_t)r, rank_bytes[r]);
    assert_int_equal(pd_gathered_bytes(rank_bytes, ranks), number(row, "gather_bytes_total"));
    assert_int_equal(pd_gathered_bytes(rank_bytes, ranks) / ranks, number(row, "buffer_bytes_per_rank"));
}

TEST(blocks_are_dealt_to_ranks_as_upstream_deals_them)
{
    size_t i;
    json_t *row;

    json_array_foreach(assignments, i, row) check_assignment(row);
    assert_true(i > 0);
}

static json_t *tables[2];

static int open_tables(void **state)
{
    (void)state;
    tables[0] = open_table(&recoveries, "meta_shampoo/table_fsdp_recovery.json");
    tables[1] = open_table(&assignments, "meta_shampoo/table_ddp_assignment.json");
    return 0;
}

static int close_tables(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) json_decref(tables[i]);
    return 0;
}

GROUP(open_tables, close_tables);
