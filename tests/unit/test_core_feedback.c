/* Tests how the client's core quantizes gradients: what it sends, and what becomes of the rest that quantizing leaves.
 * tests/golden/test_quantized_pushes.c compares whole runs with a NumPy program. */
#include "test.h"
#include "block_codec.h"
#include "feedback.h"
#include "peer.h"
#include "sharing.h"

enum { N = 150, STEPPED = 1, SKIPPED = 2, LATE = 5 };
static const int64_t sizes[] = { N };

/* Returns a worker of a job at step 0 whose parameter is pushed as int4, in chunks of CHUNK elements. */
static peer *worker_with(const pd_core_config *config)
{
    peer *p = peer_new(config);
    pd_ticket_id ticket;

    p->push_dtype = PD_INT4;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, 1);
    peer_answer_declare(p, 1, 0);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return p;
}

static peer *worker(void)
{
    return worker_with(&peer_four);
}

static void fill(float *gradient, int t)
{
    for (int i = 0; i < N; i++) gradient[i] = (float)((i * 37 + t * 101) % 97) / 7 - 6;
}

/* Writes the values of the n elements in a frame's payload, which lies anywhere in memory. */
static void decode(float *values, const peer_frame *l, int64_t n)
{
    float piece[N];

    memcpy(piece, l->payload, pd_dtype_bytes(PD_INT4, (uint64_t)n));
    pd_blocks_decode(values, PD_INT4, piece, n, 0, n);
}

/* Pushes a gradient and writes the values of what the core sends; answers with `outcome`. */
static void push_with(peer *p, const float *gradient, const pd_push_options *options, uint64_t step, uint32_t outcome,
                      float *values)
{
    pd_item item = { .param = 0, .gradient = gradient };
    pd_ticket_id ticket;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, options, &ticket, NULL), PD_OK);
    for (int64_t first = 0, n; first < N; first += n) {
        peer_frame l = peer_expect(p, PD_PUSH);
        const Paramd__Piece *piece = ((const Paramd__PushRequest *)l.message)->pieces[0];
        n = N - first < CHUNK ? N - first : CHUNK;
        assert_int_equal(piece->dtype, PD_INT4);
        assert_int_equal(piece->first, first);
        assert_int_equal(piece->count, n);
        assert_int_equal(l.prefix.payload_bytes, pd_dtype_bytes(PD_INT4, (uint64_t)n));
        decode(values + first, &l, n);
        assert_int_equal(peer_reply_data(p, &l.prefix, 1, outcome, step, NULL, 0), PD_OK);
        peer_frame_drop(&l);
    }
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

static void push(peer *p, const float *gradient, uint64_t step, uint32_t outcome, float *values)
{
    push_with(p, gradient, NULL, step, outcome, values);
}

/* Writes the values of a gradient that is pushed without a rest. */
static void quantized(const float *gradient, float *values)
{
    float piece[CHUNK];

    for (int64_t first = 0, n; first < N; first += n) {
        n = N - first < CHUNK ? N - first : CHUNK;
        pd_blocks_encode(piece, PD_INT4, gradient + first, n);
        pd_blocks_decode(values + first, PD_INT4, piece, n, 0, n);
    }
}

TEST(declare_promises_the_type_of_pushes)
{
    peer *p = peer_new(&peer_four);
    peer_frame l;

    p->push_dtype = PD_INT4;
    peer_connect(p);
    peer_welcome(p);
    peer_declare(p, sizes, 1);
    l = peer_expect(p, PD_DECLARE);
    assert_int_equal(((const Paramd__DeclareRequest *)l.message)->parameters[0]->push_dtype, PD_INT4);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(declare_promises_no_type_that_is_not_quantized)
{
    peer *p = peer_new(&peer_four);
    peer_frame l;

    p->push_dtype = PD_BF16;
    peer_connect(p);
    peer_welcome(p);
    peer_declare(p, sizes, 1);
    l = peer_expect(p, PD_DECLARE);
    assert_int_equal(((const Paramd__DeclareRequest *)l.message)->parameters[0]->push_dtype, 0);
    peer_frame_drop(&l);
    peer_free(p);
}

static void is_refused(pd_client_param param, const char *why)
{
    peer *p = peer_new(&peer_four);
    pd_ticket_id ticket;
    pd_error err = { 0 };

    param.name = "p";
    param.shape = (pd_shape){ 1, { 3 } };
    assert_int_equal(pd_core_declare(p->core, &param, 1, &ticket, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    peer_free(p);
}

HOLDS(weights_are_not_quantized,
      is_refused((pd_client_param){ .pull_dtype = PD_INT8 }, "weights are float32, float16 or bfloat16, not int8"));
HOLDS(model_state_is_not_quantized,
      is_refused((pd_client_param){ .push_dtype = PD_INT4, .model_state = true }, "not as int4"));
HOLDS(an_unknown_type_is_refused, is_refused((pd_client_param){ .push_dtype = (pd_dtype)6 }, "unknown element type 6"));

TEST(the_first_push_is_the_gradient_quantized)
{
    float gradient[N], values[N], expected[N];
    peer *p = worker();

    fill(gradient, 1);
    quantized(gradient, expected);
    push(p, gradient, 1, STEPPED, values);
    assert_memory_equal(values, expected, sizeof values);
    peer_free(p);
}

TEST(blocks_begin_at_the_first_element_of_each_piece_of_a_range)
{
    enum { START = 50 };
    peer *p = worker();
    pd_param_record record = { .start = START, .end = START + N, .push = PD_INT8 };
    float gradient[N], values[CHUNK], expected[CHUNK], piece[CHUNK];

    fill(gradient, 1);
    assert_int_equal(pd_feedback_begin(p->core, &record), PD_OK);
    pd_feedback_quantize(&record, gradient);
    for (int64_t first = START, n; first < record.end; first += n) {
        n = pd_range_piece(START, record.end, CHUNK, (uint64_t)first);
        pd_blocks_encode(piece, PD_INT8, gradient + first - START, n);
        pd_blocks_decode(expected, PD_INT8, piece, n, 0, n);
        pd_blocks_decode(values, PD_INT8, pd_feedback_piece(&record, first), n, 0, n);
        assert_memory_equal(values, expected, (size_t)n * sizeof(float));
    }
    pd_feedback_free(&record);
    peer_free(p);
}

TEST(gradients_may_change_as_soon_as_the_push_has_returned)
{
    float gradient[N], values[N], expected[N];
    peer *p = worker();
    pd_item item = { .param = 0, .gradient = gradient };
    pd_ticket_id ticket;
    peer_frame l;

    fill(gradient, 1);
    quantized(gradient, expected);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, NULL), PD_OK);
    memset(gradient, 0, sizeof gradient);
    l = peer_expect(p, PD_PUSH);
    decode(values, &l, CHUNK);
    assert_memory_equal(values, expected, CHUNK * sizeof(float));
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(values_that_counted_and_the_rest_are_all_that_was_pushed)
{
    float gradient[N], values[N];
    double all[N] = { 0 }, counted[N] = { 0 };
    peer *p = worker();

    for (int t = 1; t <= 20; t++) {
        fill(gradient, t);
        push(p, gradient, (uint64_t)t, STEPPED, values);
        for (int i = 0; i < N; i++) all[i] += (double)gradient[i], counted[i] += (double)values[i];
    }
    /* |gradient| <= 7.72, so a rest r is at most half a scale: r <= (7.72 + r) / 7 / 2. */
    for (int i = 0; i < N; i++) assert_true(fabs(all[i] - counted[i]) <= 7.72 / 13 + 1e-4);
    peer_free(p);
}

/* Pushes three gradients, the second one of which ends as `outcome`. Writes what is sent of the third one. */
static void send_third(int feedback, const pd_push_options *options, uint32_t outcome, float *values)
{
    pd_core_config config = peer_four;
    float gradient[N];
    peer *p;

    config.feedback = feedback;
    p = worker_with(&config);
    fill(gradient, 1);
    push(p, gradient, 1, STEPPED, values);
    fill(gradient, 2);
    push_with(p, gradient, options, 2, outcome, values);
    fill(gradient, 3);
    push(p, gradient, 3, STEPPED, values);
    peer_free(p);
}

/* Computes what is sent of the third gradient if the second one has not counted: `carried` times it is in the rest. */
static void third_without_second(float carried, float *values)
{
    float gradient[N], rest[N], second[N];

    fill(gradient, 1);
    quantized(gradient, values);
    for (int i = 0; i < N; i++) rest[i] = gradient[i] - values[i];
    fill(second, 2);
    for (int i = 0; i < N; i++) rest[i] = carried > 0 ? second[i] + rest[i] : rest[i];
    fill(gradient, 3);
    for (int i = 0; i < N; i++) gradient[i] += rest[i];
    quantized(gradient, values);
}

static void rest_stays(int feedback, const pd_push_options *options, uint32_t outcome, float carried)
{
    float values[N], expected[N];

    send_third(feedback, options, outcome, values);
    third_without_second(carried, expected);
    assert_memory_equal(values, expected, sizeof values);
}

HOLDS(a_late_push_leaves_the_rest, rest_stays(PD_FEEDBACK_ON, NULL, LATE, 0));
HOLDS(a_late_push_is_carried_over_where_that_is_asked_for, rest_stays(PD_FEEDBACK_CARRY, NULL, LATE, 1));
HOLDS(a_skipped_push_leaves_the_rest, rest_stays(PD_FEEDBACK_CARRY, NULL, SKIPPED, 0));
HOLDS(a_step_without_any_gradient_leaves_the_rest, rest_stays(PD_FEEDBACK_ON, NULL, 3, 0));
HOLDS(a_push_without_weight_leaves_the_rest,
      rest_stays(PD_FEEDBACK_ON, &(pd_push_options){ .zero_weight = true }, STEPPED, 0));

TEST(a_late_push_whose_shares_others_have_got_is_not_carried_over)
{
    float gradient[N], values[N], expected[N];
    pd_core_config config = peer_four;
    peer *p;

    config.feedback = PD_FEEDBACK_CARRY;
    p = worker_with(&config);
    p->core->shares.lost = UINT64_MAX;
    fill(gradient, 1);
    push(p, gradient, 1, LATE, values);
    fill(gradient, 2);
    push(p, gradient, 2, STEPPED, values);
    quantized(gradient, expected);
    assert_memory_equal(values, expected, sizeof values);
    peer_free(p);
}

TEST(a_push_that_counted_later_counts)
{
    float values[N], later[N];

    send_third(PD_FEEDBACK_ON, NULL, STEPPED, values);
    third_without_second(0, later);
    assert_memory_not_equal(values, later, sizeof values);
}

TEST(without_feedback_each_gradient_is_quantized_alone)
{
    float gradient[N], values[N], expected[N];

    send_third(PD_FEEDBACK_OFF, NULL, STEPPED, values);
    fill(gradient, 3);
    quantized(gradient, expected);
    assert_memory_equal(values, expected, sizeof values);
}

TEST(a_gradient_that_is_not_finite_does_not_spoil_the_next_ones)
{
    float gradient[N], values[N];
    peer *p = worker();

    fill(gradient, 1);
    gradient[5] = NAN;
    push(p, gradient, 1, STEPPED, values);
    assert_true(isnan(values[0]) && isnan(values[63]) && !isnan(values[64]));
    fill(gradient, 2);
    push(p, gradient, 2, STEPPED, values);
    for (int i = 0; i < N; i++) assert_true(isfinite(values[i]));
    peer_free(p);
}

TEST(a_push_that_was_refused_sends_the_same_bytes_when_it_is_repeated)
{
    float gradient[N], values[N], again[N];
    peer *p = worker();
    pd_item item = { .param = 0, .gradient = gradient };
    pd_ticket_id ticket;
    pd_error err;

    fill(gradient, 1);
    push(p, gradient, 1, STEPPED, values);
    fill(gradient, 2);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, NULL), PD_OK);
    for (int64_t first = 0, n; first < N; first += n) {
        peer_frame l = peer_expect(p, PD_PUSH);
        n = N - first < CHUNK ? N - first : CHUNK;
        decode(values + first, &l, n);
        peer_refuse(p, &l.prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
        peer_frame_drop(&l);
    }
    assert_int_equal(peer_finish(p, ticket, &err), PD_DEADLINE_EXCEEDED);
    push(p, gradient, 2, STEPPED, again);
    assert_memory_equal(values, again, sizeof values);
    peer_free(p);
}

TEST(after_a_reconnect_the_same_bytes_are_sent_again)
{
    float gradient[N], values[N], again[N];
    peer *p = worker();
    pd_item item = { .param = 0, .gradient = gradient };
    pd_ticket_id ticket;

    fill(gradient, 1);
    push(p, gradient, 1, STEPPED, values);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, NULL), PD_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t first = 0, n; first < N; first += n) {
            peer_frame l = peer_expect(p, PD_PUSH);
            n = N - first < CHUNK ? N - first : CHUNK;
            decode((pass == 0 ? values : again) + first, &l, n);
            peer_frame_drop(&l);
        }
        if (pass == 0) peer_come_back_at(p, (const uint64_t[]){ 1 }, 1);
    }
    assert_memory_equal(values, again, sizeof values);
    peer_free(p);
}

TEST(the_window_keeps_and_sends_the_bytes_that_counted)
{
    pd_core_config config = peer_four;
    float gradient[N], values[2][N], again[N];
    peer *p;

    config.window = 4;
    p = worker_with(&config);
    for (int t = 0; t < 2; t++) {
        fill(gradient, t);
        push(p, gradient, 1 + (uint64_t)t, STEPPED, values[t]);
    }
    assert_int_equal(p->core->window.bytes,
                     2 * (2 * pd_dtype_bytes(PD_INT4, CHUNK) + pd_dtype_bytes(PD_INT4, N % CHUNK)));
    peer_come_back_at(p, (const uint64_t[]){ 0 }, 1);
    for (int t = 0; t < 2; t++) {
        for (int64_t first = 0, n; first < N; first += n) {
            peer_frame l = peer_expect(p, PD_PUSH);
            n = N - first < CHUNK ? N - first : CHUNK;
            decode(again + first, &l, n);
            peer_reply_data(p, &l.prefix, 1, STEPPED, 1 + (uint64_t)t, NULL, 0);
            peer_frame_drop(&l);
        }
        assert_memory_equal(again, values[t], sizeof again);
    }
    peer_free(p);
}

TEST(a_rewind_sets_the_rest_to_0)
{
    float gradient[N], values[N], expected[N];
    peer *p = worker();
    pd_ticket_id ticket;

    fill(gradient, 1);
    push(p, gradient, 1, STEPPED, values);
    fill(gradient, 2);
    push(p, gradient, 2, STEPPED, values);
    peer_come_back_at(p, (const uint64_t[]){ 1 }, 1);
    assert_true(p->core->end.gone_back);
    assert_int_equal(pd_core_rewind(p->core, &ticket, NULL), PD_OK);
    assert_true(p->core->recovery.forgot_rest);
    if (pd_core_link(p->core, p->now) == PD_LINK_DROP) pd_core_down(p->core, p->now, "dropped");
    p->now = pd_core_next(p->core);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, 1, 1);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    push(p, gradient, 2, STEPPED, values);
    quantized(gradient, expected);
    assert_memory_equal(values, expected, sizeof values);
    peer_free(p);
}

TEST(a_job_that_is_created_again_keeps_the_rest_also_with_other_chunks)
{
    float gradient[N], values[N], expected[N], rest[N];
    float piece[N];
    pd_item item = { .param = 0, .gradient = gradient };
    peer *p = worker();
    pd_ticket_id ticket;
    peer_frame l;

    fill(gradient, 1);
    push(p, gradient, 1, STEPPED, values);
    for (int i = 0; i < N; i++) rest[i] = gradient[i] - values[i];
    peer_cut(p);
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    peer_refuse(p, &l.prefix, PD_NOT_FOUND, "there is no job job");
    peer_frame_drop(&l);
    pd_core_down(p->core, p->now, "dropped");
    assert_int_equal(pd_core_recreate(p->core, 0, &ticket, NULL), PD_OK);
    p->chunk_elements = 4 * CHUNK;
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, 1, 1);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    fill(gradient, 2);
    for (int i = 0; i < N; i++) expected[i] = gradient[i] + rest[i];
    pd_blocks_encode(piece, PD_INT4, expected, N);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PUSH);
    assert_int_equal(l.prefix.payload_bytes, pd_dtype_bytes(PD_INT4, N));
    assert_memory_equal(l.payload, piece, pd_dtype_bytes(PD_INT4, N));
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_declaration_without_memory_for_the_rest_is_undone)
{
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        peer *p = peer_new(&peer_four);
        pd_client_param param = { .name = "p", .shape = { 1, { N } }, .push_dtype = PD_INT8 };
        pd_ticket_id ticket;
        int rc;

        oom_arm(n);
        rc = pd_core_declare(p->core, &param, 1, &ticket, NULL);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        if (failed) assert_int_equal(pd_core_declare(p->core, &param, 1, &ticket, NULL), PD_OK);
        peer_free(p);
    }
}

TEST(a_push_without_memory_leaves_the_rest)
{
    float gradient[N], values[N], expected[N];
    bool failed = true;

    third_without_second(0, expected);
    for (int64_t n = 0; failed; n++) {
        peer *p = worker();
        pd_item item = { .param = 0, .gradient = gradient };
        pd_ticket_id ticket;

        fill(gradient, 1);
        push(p, gradient, 1, STEPPED, values);
        fill(gradient, 2);
        oom_arm(n);
        (void)pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, NULL);
        failed = oom_disarm();
        fill(gradient, 3);
        if (failed) push(p, gradient, 2, STEPPED, values);
        if (failed) assert_memory_equal(values, expected, sizeof values);
        peer_free(p);
    }
}

TEST(memory_for_a_gradient_that_is_quantized_holds_float32)
{
    peer *p = worker();
    float *buffer = pd_core_buffer(p->core, 0);

    assert_non_null(buffer);
    for (int i = 0; i < N; i++) buffer[i] = (float)i;
    assert_false(pd_segment_has(&p->core->out.staging.segment, buffer, 1));
    peer_free(p);
}

TEST(sent_bytes_are_those_of_the_codes)
{
    float gradient[N], values[N];
    peer *p = worker();

    fill(gradient, 1);
    push(p, gradient, 1, STEPPED, values);
    assert_int_equal(pd_core_stats(p->core).payload_out, pd_dtype_bytes(PD_INT4, N));
    peer_free(p);
}
