/* Tests which parameters a replay declares for the parameters of a trace: whole ones, or the blocks of their shards. */
#include "test.h"
#include "replay_run.h"
#include "replayed.h"

static const float w0[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, g[12] = { 2, 4, 6, 8, 2, 4, 6, 8, 2, 4, 6, 8 };
static float w1[12];

/* Makes a trace of one step w <- w - 0.5 g: a 4 by 3 matrix w and a vector b of 2 elements. */
static tracefile sgd_file(const char *shards)
{
    tracefile file = tracefile_of("torch_optim", "by_hand", "1",
                                  "{\"optimizer\": \"SGD\", \"lr\": 0.5, \"groups\": [{\"params\": [\"w\"]}]}");

    for (int i = 0; i < 12; i++) w1[i] = w0[i] - .5f * g[i];
    if (shards != NULL) tracefile_meta(&file, "shards", shards);
    tracefile_add_matrix(&file, "param/0000/w", w0, 4, 3);
    tracefile_add_matrix(&file, "grad/0001/w", g, 4, 3);
    tracefile_add_matrix(&file, "param/0001/w", w1, 4, 3);
    tracefile_add(&file, "param/0000/b", w0, 2);
    tracefile_add(&file, "grad/0001/b", g, 2);
    tracefile_add(&file, "param/0001/b", w1, 2);
    return file;
}

static void assert_refused(const char *shards, const char *part_of_why)
{
    tracefile file = sgd_file(shards);

    assert_outcome(&file, PD_REPLAY_FAILED, part_of_why);
}

static int find(const tracefile *file, pd_replay_parts *parts, pd_error *err)
{
    const char *config = "{\"optimizer\": \"SGD\", \"lr\": 0.5, \"groups\": [{\"params\": [\"w\"]}]}";
    json_t *json = json_loads(config, 0, NULL);
    pd_recipe recipe;
    pd_trace *trace;
    int rc;

    trace = tracefile_open(file);
    assert_int_equal(pd_recipe_read(&recipe, "torch_optim", json, NULL), PD_OK);
    rc = pd_replay_parts_find(parts, trace, &recipe, err);
    pd_recipe_free(&recipe);
    pd_trace_close(trace);
    json_decref(json);
    return rc;
}

static const pd_replay_part *named(const pd_replay_parts *parts, const char *name)
{
    for (size_t i = 0; i < parts->n; i++) {
        if (strcmp(parts->at[i].name, name) == 0) return &parts->at[i];
    }
    fail_msg("there is no part %s", name);
    return NULL;
}

TEST(without_shards_each_parameter_is_declared_whole)
{
    tracefile file = sgd_file(NULL);
    pd_replay_parts parts;

    assert_int_equal(find(&file, &parts, NULL), PD_OK);
    assert_int_equal(parts.n, 2);
    assert_true(named(&parts, "1/w")->shape.rank == 2 && named(&parts, "1/w")->group == 1 &&
                named(&parts, "0/b")->group == 0);
    pd_replay_parts_free(&parts);
}

/* Elements 0 to 7 of w are declared as two rows and one element. Elements 7 to 12 are declared as the rest of that
 * row and one more row. No shard names b, so b is declared whole. */
TEST(the_blocks_of_each_shard_are_declared_by_where_they_begin)
{
    tracefile file = sgd_file("[{\"w\": [0, 7]}, {\"w\": [7, 7]}, {\"w\": [7, 12]}]");
    pd_replay_parts parts;

    assert_int_equal(find(&file, &parts, NULL), PD_OK);
    assert_int_equal(parts.n, 5);
    assert_true(named(&parts, "1/w@0")->shape.rank == 2 && named(&parts, "1/w@0")->shape.dim[0] == 2 &&
                named(&parts, "1/w@0")->shape.dim[1] == 3);
    assert_true(named(&parts, "1/w@6")->shape.rank == 1 && named(&parts, "1/w@6")->shape.dim[0] == 1 &&
                named(&parts, "1/w@6")->offset == 6);
    assert_true(named(&parts, "1/w@7")->shape.dim[0] == 2);
    assert_true(named(&parts, "1/w@9")->offset == 9);
    assert_true(named(&parts, "0/b")->shape.dim[0] == 2);
    pd_replay_parts_free(&parts);
}

TEST(a_replay_of_shards_moves_every_element)
{
    tracefile file = sgd_file("[{\"w\": [0, 7], \"b\": [0, 1]}, {\"w\": [7, 12], \"b\": [1, 2]}]");
    pd_replay_result r = replayed(&file);

    if (r.outcome != PD_REPLAY_OK) fail_msg("%s", r.why.text);
    assert_int_equal(r.verdict.compared, 2);
    pd_replay_result_free(&r);
}

TEST(shards_that_do_not_cover_their_parameter_are_refused)
{
    assert_refused("[{\"w\": [0, 7]}]", "those of w end at element 7 of 12");
    assert_refused("[{\"w\": [0, 7]}, {\"w\": [8, 12]}]", "expected a range from 7 on within 12 elements, got 8 to 12");
    assert_refused("[{\"w\": [0, 7]}, {\"w\": [6, 12]}]", "got 6 to 12");
    assert_refused("[{\"w\": [0, 13]}]", "got 0 to 13");
    assert_refused("[{\"w\": [0, -1]}]", "got 0 to -1");
    assert_refused("[{\"w\": [0]}]", "expected [start, end] of w");
    assert_refused("[{\"w\": [0, 1.5]}]", "expected [start, end] of w");
    assert_refused("{}", "expected a JSON list");
}

TEST(without_memory_it_fails_and_leaks_nothing)
{
    tracefile file = sgd_file("[{\"w\": [0, 7]}, {\"w\": [7, 12]}]");

    assert_fails_without_memory(&file);
}
