/* Tests the memory of contributions in jobs whose sets are not known before they are fixed: a rank that waits for
 * ingest memory is relieved of all that the job keeps of it, and bits do not depend on that. */
#include "test.h"
#include "rig.h"
#include "store_inside.h"

#include <string.h>

enum { CHUNK = 1024, CHUNKS = 4, N = CHUNK * CHUNKS, CONN = 10, FRAME = CHUNK * 4, FRAMES = 16 };
static const int64_t sizes[] = { N };

static void start(rig *r, const char *options)
{
    pd_store_config config = rig_config();

    config.chunk_elements = CHUNK;
    config.ingest_bytes = FRAMES * FRAME;
    rig_new(r, &config);
    r->job = rig_start(r, "job", 2, CONN, sizes, 1, options, NULL);
    rig_work(r);
}

/* Pushes chunks [first, first + n) of the rank's gradient for a step, with a weight. */
static void push(rig *r, uint32_t rank, uint64_t step, int first, int n, double weight)
{
    float values[N];

    rig_noise(100 * step + rank, values, N);
    for (int c = first; c < first + n; c++) {
        rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
        rig_piece(frame, 0, PD_F32, c * CHUNK, CHUNK, values + c * CHUNK);
        rig_weight(frame, weight, false);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
    rig_work(r);
}

/* Tells the store that the rank's connection waits for memory. */
static void stall(rig *r, uint32_t rank)
{
    pd_request *request = pd_request_new(PD_REQ_STALLED, (pd_ticket){ CONN + rank, 0 });

    assert_non_null(request);
    request->job = r->job;
    request->rank = rank;
    assert_int_equal(rig_apply(r, request), PD_OK);
    rig_work(r);
}

static uint64_t step_of(rig *r)
{
    return rig_versions(r, r->job, 0)->step;
}

TEST(a_rank_that_waits_for_memory_is_relieved_while_the_set_is_open)
{
    rig r;

    start(&r, "quorum=2 staleness=2");
    push(&r, 0, 1, 0, 2, 1);
    assert_int_equal(r.buffers_out, 2);
    stall(&r, 0);
    assert_int_equal(r.buffers_out, 0);
    assert_int_equal(step_of(&r), 0);
    rig_free(&r);
}

TEST(a_rank_that_waits_for_memory_is_relieved_of_what_was_kept_for_the_next_step)
{
    rig r;

    start(&r, "quorum=1 staleness=2");
    push(&r, 1, 1, 0, 3, 1);
    push(&r, 0, 1, 0, CHUNKS, 1);
    assert_int_equal(step_of(&r), 1);
    assert_int_equal(r.buffers_out, 3);
    stall(&r, 1);
    assert_int_equal(r.buffers_out, 0);
    push(&r, 1, 1, 3, 1, 1);
    assert_int_equal(step_of(&r), 2);
    rig_free(&r);
}

/* Takes two steps. In the first one rank 1 is late by one chunk, so both ranks count in the second one. `spilled`: all
 * that rank 1 gives is spilled. Writes the weights after the second step to `out`. */
static void take_two(const char *options, bool spilled, float *out)
{
    rig r;

    start(&r, options);
    for (int c = 0; c < CHUNKS - 1; c++) {
        push(&r, 1, 1, c, 1, 3.7);
        if (spilled) stall(&r, 1);
    }
    assert_int_equal(r.buffers_out, spilled ? 0 : CHUNKS - 1);
    push(&r, 0, 1, 0, CHUNKS, 1.3);
    rig_sleep(&r, 2);
    rig_work(&r);
    assert_int_equal(step_of(&r), 1);
    push(&r, 0, 2, 0, CHUNKS - 1, 0.9);
    push(&r, 1, 1, CHUNKS - 1, 1, 3.7);
    push(&r, 0, 2, CHUNKS - 1, 1, 0.9);
    assert_int_equal(step_of(&r), 2);
    memcpy(out, rig_weights(&r, r.job, 0), N * sizeof *out);
    assert_int_equal(r.buffers_out, 0);
    rig_free(&r);
}

TEST(spilled_contributions_give_the_same_bits)
{
    static const char *const options[] = { "quorum=1 grace=1s staleness=1 aggregate=mean",
                                           "quorum=1 grace=1s staleness=1 aggregate=weighted_mean",
                                           "quorum=1 grace=1s staleness=1 aggregate=median",
                                           "quorum=1 grace=1s staleness=1 aggregate=adasum_vdot" };
    float held[N], spilled[N];

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        take_two(options[i], false, held);
        take_two(options[i], true, spilled);
        assert_memory_equal(held, spilled, sizeof held);
    }
}

TEST(the_bytes_that_may_be_spilled_are_counted_when_parameters_are_declared)
{
    uint64_t closed, open;
    rig r;

    start(&r, NULL);
    closed = inside_job(r.store, r.job)->steps.account.used;
    rig_free(&r);
    start(&r, "quorum=1");
    open = inside_job(r.store, r.job)->steps.account.used;
    assert_true(open == closed + 2 * N * sizeof(float));
    rig_free(&r);
}
