/* Tests jobs whose parameters are in several fragments: what is declared, and that each fragment takes its own steps. */
#include "test.h"
#include "fragment.h"
#include "rig.h"
#include "store_inside.h"

enum { WORLD = 3, CONN = 10, N = 100, PARAMS = 4 };

static const char *const names[PARAMS] = { "a", "b", "c", "d" };
static const pd_shape shapes[PARAMS] = { { 1, { N } }, { 1, { N } }, { 1, { N } }, { 1, { N } } };

/* Creates the job "job", and lets its ranks say Hello. No parameter is declared. */
static void begin(rig *r, const char *options, const char *rules)
{
    rig_make(r);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        assert_int_equal(rig_hello(r, "job", rank, WORLD, rank + 1, CONN + rank, options, rules), PD_OK);
}

static int declare(rig *r, uint32_t rank, const uint32_t *fragments)
{
    r->fragments = fragments;
    return rig_declare(r, r->job, rank, CONN + rank, names, shapes, NULL, PARAMS, PD_F32);
}

/* Checks that the first Declare is refused with a text that has `part`. */
static void check_refused(const char *options, const char *rules, const uint32_t *fragments, const char *part)
{
    rig r;

    begin(&r, options, rules);
    assert_int_equal(declare(&r, 0, fragments), PD_INVALID_ARGUMENT);
    if (strstr(r.error.text, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", r.error.text, part);
    assert_int_equal(declare(&r, 0, NULL), PD_OK); /* nothing has changed */
    rig_free(&r);
}

TEST(parameters_are_put_into_their_fragments)
{
    static const uint32_t fragments[PARAMS] = { 1, 0, 1, 2 };
    const pd_steps *steps;
    rig r;

    begin(&r, NULL, "* sgd lr=1");
    assert_int_equal(declare(&r, 0, fragments), PD_OK);
    steps = &inside_job(r.store, r.job)->steps;
    assert_int_equal(steps->n_fragments, 3);
    for (uint32_t i = 0; i < PARAMS; i++) assert_int_equal(steps->params[i].fragment->number, fragments[i]);
    rig_free(&r);
}

TEST(fragments_are_numbered_without_gaps)
{
    check_refused(NULL, "* sgd lr=1", (const uint32_t[]){ 0, 2, 2, 0 }, "fragment 1 has no parameter");
    check_refused(NULL, "* sgd lr=1", (const uint32_t[]){ 1, 1, 1, 1 }, "fragment 0 has no parameter");
}

TEST(a_job_has_at_most_256_fragments)
{
    check_refused(NULL, "* sgd lr=1", (const uint32_t[]){ 0, 1, 2, 256 }, "at most 256 fragments");
}

TEST(fragments_cannot_be_tied_together)
{
    static const uint32_t two[PARAMS] = { 0, 0, 1, 1 };

    check_refused("clip_global_norm=1", "* sgd lr=1", two, "clip_global_norm ties");
    check_refused("skip_outlier=3", "* sgd lr=1", two, "skip_outlier ties");
    check_refused("nonfinite_scope=job", "* sgd lr=1", two, "nonfinite_scope = job ties");
}

TEST(all_ranks_declare_the_same_fragments)
{
    rig r;

    begin(&r, NULL, "* sgd lr=1");
    assert_int_equal(declare(&r, 0, (const uint32_t[]){ 0, 0, 1, 1 }), PD_OK);
    assert_int_equal(declare(&r, 1, (const uint32_t[]){ 0, 1, 1, 1 }), PD_FAILED_PRECONDITION);
    assert_string_equal(r.error.text, "parameter b: job job has it in fragment 0, this rank declares it in fragment 1");
    assert_int_equal(declare(&r, 1, (const uint32_t[]){ 0, 0, 1, 1 }), PD_OK);
    rig_free(&r);
}
