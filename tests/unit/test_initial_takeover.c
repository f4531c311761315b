/* Tests initial_weights = mean when another process takes a rank over before the mean is computed. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORLD = 3, N = 2, SIZE = 200 };
static const int64_t sizes[N] = { SIZE, 5 };
static const char *const names[N] = { "p0", "p1" };
static const pd_shape shapes[N] = { { 1, { SIZE } }, { 1, { 5 } } };

/* Joins rank `rank` on connection 10 + rank + again. If `again` is not 0, the worker is another process at the same
 * rank. */
static void join(rig *r, uint32_t rank, uint64_t again, const char *options, pd_dtype pull)
{
    char text[200];

    snprintf(text, sizeof text, "initial_weights=mean %s", options != NULL ? options : "");
    assert_int_equal(rig_hello(r, "job", rank, WORLD, 10 + rank + again, 10 + rank + again, text, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, rank, 10 + rank + again, names, shapes, NULL, N, pull), PD_OK);
}

static void join_all(rig *r, const char *options)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) join(r, rank, 0, options, PD_F32);
}

static void weights_of(uint32_t rank, uint32_t param, float *out)
{
    rig_noise(1 + rank + 10 * param, out, sizes[param]);
}

/* Sends one chunk of a rank's weights. */
static int send_chunk(rig *r, uint32_t rank, uint64_t again, uint32_t param, int64_t first)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, 10 + rank + again, 0);
    float values[SIZE];

    weights_of(rank + (uint32_t)again, param, values);
    rig_piece(frame, param, PD_F32, first, sizes[param] - first < 64 ? sizes[param] - first : 64, values + first);
    return rig_send(r, frame);
}

static void send_param(rig *r, uint32_t rank, uint64_t again, uint32_t param)
{
    for (int64_t first = 0; first < sizes[param]; first += 64)
        assert_int_equal(send_chunk(r, rank, again, param, first), PD_OK);
}

static void send_all(rig *r, uint32_t rank, uint64_t again)
{
    for (uint32_t p = 0; p < N; p++) send_param(r, rank, again, p);
}

static const pd_snapshot *published(const rig *r, uint32_t param)
{
    const rig_entry *board = r->board[r->job % RIG_JOBS];

    return board != NULL ? board[param].snapshot : NULL;
}

/* Checks the mean of parameter `param`. The weights of rank 1 are expected to come from process `again` of this
 * rank; 0: its first process. */
static void assert_mean_with_another(rig *r, uint32_t param, uint64_t again)
{
    float a[SIZE], b[SIZE], c[SIZE];

    weights_of(0, param, a);
    weights_of(1 + (uint32_t)again, param, b);
    weights_of(2, param, c);
    assert_non_null(published(r, param));
    for (int64_t i = 0; i < sizes[param]; i++)
        assert_true(rig_weights(r, r->job, param)[i] == ((a[i] + b[i]) + c[i]) / 3.0f);
}

static void weights_sent_in_part_are_replaced_by_the_next_process(void **state)
{
    rig *r = *state;

    join_all(r, NULL);
    send_all(r, 0, 0);
    send_all(r, 2, 0);
    send_chunk(r, 1, 0, 0, 0);
    send_chunk(r, 1, 0, 0, 64);
    rig_work(r); /* all three ranks have sent the first two chunks */
    join(r, 1, 100, NULL, PD_F32);
    assert_true(r->must_init);
    assert_false(r->initialised[0]);
    assert_int_equal(send_chunk(r, 1, 0, 0, 128), PD_ABORTED);
    assert_int_equal(send_chunk(r, 1, 100, 0, 128), PD_OK);
    assert_int_equal(send_chunk(r, 1, 100, 0, 192), PD_OK);
    rig_work(r);
    assert_null(published(r, 0)); /* the new process must send the first two chunks again before the mean is
                                   * published */
    assert_string_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[0].missing, "1");
    send_all(r, 1, 100);
    rig_work(r);
    for (uint32_t p = 0; p < N; p++) assert_mean_with_another(r, p, 100);
    assert_int_equal(r->buffers_out, 0);
}

static void weights_sent_whole_stay_when_the_next_process_comes(void **state)
{
    rig *r = *state;

    join_all(r, NULL);
    send_param(r, 1, 0, 0);
    join(r, 1, 100, NULL, PD_F32);
    assert_true(r->must_init && r->initialised[0] && !r->initialised[1]);
    send_all(r, 1, 100);
    send_all(r, 0, 0);
    send_all(r, 2, 0);
    rig_work(r);
    assert_mean_with_another(r, 0, 0);
    assert_mean_with_another(r, 1, 100);
}

/* The rank's process comes back on another connection, and is not taken for a new process. */
static void a_process_that_comes_back_goes_on(void **state)
{
    rig *r = *state;

    join_all(r, NULL);
    send_chunk(r, 1, 0, 0, 0);
    assert_int_equal(rig_hello(r, "job", 1, WORLD, 11, 77, "initial_weights=mean ", "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 1, 77, names, shapes, NULL, N, PD_F32), PD_OK);
    for (uint32_t p = 0; p < N; p++)
        for (int64_t first = p == 0 ? 64 : 0; first < sizes[p]; first += 64) {
            rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, 1, 77, 0);
            float values[SIZE];
            weights_of(1, p, values);
            rig_piece(frame, p, PD_F32, first, sizes[p] - first < 64 ? sizes[p] - first : 64, values + first);
            assert_int_equal(rig_send(r, frame), PD_OK);
        }
    send_all(r, 0, 0);
    send_all(r, 2, 0);
    rig_work(r);
    for (uint32_t p = 0; p < N; p++) assert_mean_with_another(r, p, 0);
}

static int set_up_narrow(void **state)
{
    pd_store_config config = rig_config();

    config.ingest_bytes = WORLD * 4096; /* the budget covers only the reserves of the ranks, so any frame puts its
                                         * rank over quota */
    return rig_set_up_with(state, &config);
}

static void weights_already_in_the_mean_are_refused_from_another_process(void **state)
{
    rig *r = *state;

    join_all(r, NULL);
    send_chunk(r, 0, 0, 0, 0);
    send_chunk(r, 1, 0, 0, 0);
    rig_work(r);
    assert_int_equal(r->buffers_out, 0); /* both are summed */
    join(r, 1, 100, NULL, PD_F32);
    assert_int_equal(send_chunk(r, 1, 100, 0, 0), PD_FAILED_PRECONDITION);
    assert_non_null(
        strstr(r->error.text,
               "p0: part of rank 1's initial weights has come from another process and is in the mean already"));
    assert_int_equal(send_chunk(r, 1, 100, 1, 0), PD_OK); /* the other process may send p1, since no weights of p1
                                                           * have come from the first process */
    rig_work(r);
}

static void ranks_over_quota_give_the_same_mean(void **state)
{
    rig *r = *state;

    join_all(r, NULL);
    for (uint32_t p = 0; p < N; p++)
        for (int64_t first = 0; first < sizes[p]; first += 64)
            for (uint32_t rank = 0; rank < WORLD; rank++) {
                assert_int_equal(send_chunk(r, rank, 0, p, first), PD_OK);
                rig_work(r);
            }
    for (uint32_t p = 0; p < N; p++) assert_mean_with_another(r, p, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(weights_sent_in_part_are_replaced_by_the_next_process),
        CASE(weights_sent_whole_stay_when_the_next_process_comes),
        CASE(a_process_that_comes_back_goes_on),
        cmocka_unit_test_setup_teardown(weights_already_in_the_mean_are_refused_from_another_process, set_up_narrow,
                                        rig_tear_down),
        cmocka_unit_test_setup_teardown(ranks_over_quota_give_the_same_mean, set_up_narrow, rig_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
