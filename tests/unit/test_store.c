/* The training state as a whole: from Hello to new weights. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = { "a.weight", "b.weight", "c.bias" };
static const pd_shape shapes[] = { { 2, { 10, 20 } }, { 1, { 64 } }, { 1, { 3 } } };
enum { N = 3, WORLD = 2 };
static const int64_t sizes[N] = { 200, 64, 3 };

/* Two ranks on connections 10 and 11, all declared, weights 1. */
static uint32_t start(rig *r, const char *options, const char *rules)
{
    float ones[200];

    for (int i = 0; i < 200; i++) ones[i] = 1;
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_int_equal(rig_hello(r, "job", rank, WORLD, 100 + rank, 10 + rank, options, rules), PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, names, shapes, NULL, N, PD_F32), PD_OK);
        assert_true(r->must_init == (rank == 0));
    }
    for (uint32_t p = 0; p < N; p++) assert_int_equal(rig_init(r, r->job, 10, p, ones, sizes[p]), PD_OK);
    return r->job;
}

static void steps_by_the_mean_of_the_gradients(void **state)
{
    pd_store_config config = rig_config();
    float g0[200], g1[200];
    rig r;
    uint32_t job;

    (void)state;
    rig_new(&r, &config);
    job = start(&r, NULL, "* sgd lr=0.5");
    for (int i = 0; i < 200; i++) g0[i] = 1, g1[i] = 3;
    for (uint32_t p = 0; p < N; p++) {
        assert_int_equal(rig_push(&r, job, 1, 11, 1, p, g1, sizes[p]), PD_OK);
        assert_int_equal(rig_push(&r, job, 0, 10, 1, p, g0, sizes[p]), PD_OK);
    }
    rig_work(&r);
    for (uint32_t p = 0; p < N; p++) {
        assert_int_equal(r.board[job][p].outcome, PD_STEPPED);
        assert_int_equal(r.board[job][p].step, 1);
        for (int i = 0; i < sizes[p]; i++) assert_true(rig_weights(&r, job, p)[i] == 0.0f);
    }
    assert_int_equal(r.buffers_out, 0);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_by_the_mean_of_the_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
