/* Tests weights that a program has changed by hand: rank 0 sends them between two steps, they come into force together,
 * and the pushes of all ranks must tell of the same change. */
#include "test.h"
#include "exporting.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

enum { NUMBER = 77, OTHER = 78, OPERATOR = 99, MOST = 256, PARAMS = 2 };

static const char *const names[] = { "p0", "p1" };

#define OPTIONS "durability=checkpoint checkpoint_every=100"
static uint64_t conns[2]; /* connections of the ranks' processes */

static void start(rig *r, const char *options)
{
    pd_store_config config = durable_config();

    durable_job_start(r, &config, options);
    for (uint32_t rank = 0; rank < 2; rank++) conns[rank] = DURABLE_CONN + rank;
}

/* Lets another process take a rank over. */
static void succeed(rig *r, uint32_t rank, uint64_t conn)
{
    const pd_shape shapes[] = { { 1, { durable_job_sizes[0] } }, { 1, { durable_job_sizes[1] } } };

    assert_int_equal(rig_hello(r, "job", rank, 2, conn, conn, OPTIONS, "* adam"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, rank, conn, names, shapes, NULL, PARAMS, PD_F32), PD_OK);
    conns[rank] = conn;
}

static void make_checkpoint(rig *r)
{
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    assert_int_equal(r->disk->step, 1);
}

static void set_up(rig *r)
{
    start(r, OPTIONS);
    durable_job_step(r, 1);
}

/* Weights that were changed by hand: other ones for each parameter and each change. */
static const float *made(uint32_t param, uint64_t number)
{
    static float values[MOST];

    rig_noise(1000 * number + param, values, MOST);
    return values;
}

/* Sends chunks of a parameter's new weights, from `first` up to `end`, as one frame. Returns the code of the answer. */
static int send_chunks(rig *r, uint32_t rank, uint64_t step, uint32_t param, uint64_t number, uint32_t whole,
                       int64_t first, int64_t end)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, conns[rank], step);
    uint64_t before = r->answered;

    rig_replaces(frame, number, whole);
    for (int64_t at = first; at < end; at += r->chunk)
        rig_piece(frame, param, PD_F32, at, end - at < r->chunk ? end - at : r->chunk, made(param, number) + at);
    rig_send(r, frame);
    rig_work(r);
    assert_int_equal(r->answered, before + 1);
    return r->error.code;
}

static int send_param(rig *r, uint64_t step, uint32_t param, uint64_t number, uint32_t whole)
{
    return send_chunks(r, 0, step, param, number, whole, 0, durable_job_sizes[param]);
}

static void replace(rig *r, uint64_t step, uint64_t number)
{
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(send_param(r, step, p, number, PARAMS), PD_OK);
}

/* Pushes the gradient that durable_job_push pushes, with the number of a change. Returns the code of an error, which
 * may come before the round closes. */
static int push(rig *r, uint32_t rank, uint32_t param, uint64_t step, uint64_t number)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, conns[rank], step);
    int64_t n = durable_job_sizes[param];
    float values[MOST];

    rig_noise(step * 100 + rank * 10 + param, values, MOST);
    rig_replaces(frame, number, 0);
    for (int64_t at = 0; at < n; at += r->chunk)
        rig_piece(frame, param, PD_F32, at, n - at < r->chunk ? n - at : r->chunk, values + at);
    r->error.code = PD_OK;
    rig_send(r, frame);
    rig_work(r);
    return r->error.code;
}

static void step_all(rig *r, uint64_t step, uint64_t number)
{
    for (uint32_t p = 0; p < PARAMS; p++)
        for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(push(r, rank, p, step, number), PD_OK);
    assert_int_equal(durable_job_step_of(r, 1), step);
}

static bool is_in_force(rig *r, uint32_t param, uint64_t number)
{
    return memcmp(rig_weights(r, r->job, param), made(param, number),
                  (size_t)durable_job_sizes[param] * sizeof(float)) == 0;
}

static void assert_says(const rig *r, const char *text)
{
    if (strstr(r->error.text, text) == NULL) fail_msg("expected \"%s\" in: %s", text, r->error.text);
}

FIXTURE(rig, set_up, rig_free);

TEST(weights_come_into_force_when_all_of_them_have_come, rig *r)
{
    assert_int_equal(send_chunks(r, 0, 1, 0, NUMBER, 2, 0, 128), PD_OK);
    assert_int_equal(send_param(r, 1, 1, NUMBER, 2), PD_OK);
    assert_false(is_in_force(r, 1, NUMBER));
    assert_int_equal(send_chunks(r, 0, 1, 0, NUMBER, 2, 128, 200), PD_OK);
    for (uint32_t p = 0; p < PARAMS; p++) {
        assert_true(is_in_force(r, p, NUMBER));
        assert_int_equal(rig_versions(r, r->job, p)->step, 1);
        assert_int_equal(rig_versions(r, r->job, p)->published->version, 1);
    }
}

TEST(a_chunk_that_comes_twice_counts_once, rig *r)
{
    for (int i = 0; i < 4; i++) assert_int_equal(send_chunks(r, 0, 1, 0, NUMBER, 1, 0, 64), PD_OK);
    assert_false(is_in_force(r, 0, NUMBER));
    assert_int_equal(send_chunks(r, 0, 1, 0, NUMBER, 1, 64, 200), PD_OK);
    assert_true(is_in_force(r, 0, NUMBER));
}

TEST(other_parameters_keep_their_weights, rig *r)
{
    float before[MOST];

    memcpy(before, rig_weights(r, r->job, 1), (size_t)durable_job_sizes[1] * sizeof(float));
    assert_int_equal(send_param(r, 1, 0, NUMBER, 1), PD_OK);
    assert_true(is_in_force(r, 0, NUMBER));
    assert_memory_equal(rig_weights(r, r->job, 1), before, (size_t)durable_job_sizes[1] * sizeof(float));
    step_all(r, 2, NUMBER);
}

/* Says that a parameter keeps its weights in a change. Returns the code of the answer. */
static int keep(rig *r, uint32_t param, uint64_t number, uint32_t whole)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, 0, conns[0], 1);

    rig_replaces(frame, number, whole);
    rig_absent(frame, param);
    rig_send(r, frame);
    rig_work(r);
    return r->error.code;
}

TEST(a_change_elsewhere_alone_brings_its_number, rig *r)
{
    float before[MOST];

    memcpy(before, rig_weights(r, r->job, 0), (size_t)durable_job_sizes[0] * sizeof(float));
    assert_int_equal(keep(r, 0, NUMBER, 0), PD_OK);
    assert_memory_equal(rig_weights(r, r->job, 0), before, (size_t)durable_job_sizes[0] * sizeof(float));
    assert_int_equal(push(r, 1, 1, 2, 0), PD_FAILED_PRECONDITION);
    assert_says(r, "rank 1 pushes p1 for step 2 with other weights than rank 0");
    step_all(r, 2, NUMBER);
    step_all(r, 3, 0);
}

TEST(a_parameter_that_keeps_its_weights_does_not_count_among_those_that_come, rig *r)
{
    assert_int_equal(keep(r, 1, NUMBER, 1), PD_OK);
    assert_int_equal(push(r, 1, 1, 2, OTHER), PD_OK);
    assert_int_equal(send_param(r, 1, 0, NUMBER, 1), PD_FAILED_PRECONDITION);
    assert_int_equal(push(r, 1, 1, 2, OTHER), PD_OK);
    assert_false(is_in_force(r, 0, NUMBER));
}

TEST(a_change_that_has_come_in_part_does_not_come_into_force_as_one_elsewhere, rig *r)
{
    assert_int_equal(send_chunks(r, 0, 1, 0, NUMBER, 1, 0, 64), PD_OK);
    assert_int_equal(keep(r, 1, NUMBER, 0), PD_FAILED_PRECONDITION);
    step_all(r, 2, 0);
}

TEST(a_later_change_before_the_next_push_takes_the_place_of_an_earlier_one, rig *r)
{
    replace(r, 1, NUMBER);
    replace(r, 1, OTHER);
    assert_true(is_in_force(r, 1, OTHER));
    step_all(r, 2, OTHER);
}

TEST(the_next_step_goes_on_from_them)
{
    static const float one = 1;
    const int64_t size = 1;
    pd_store_config config = rig_config();
    rig r;
    rig_frame *frame;

    rig_new(&r, &config);
    rig_start(&r, "job", 1, DURABLE_CONN, &size, 1, NULL, "* sgd lr=1");
    frame = rig_frame_new(&r, PD_REQ_INIT, r.job, 0, DURABLE_CONN, 0);
    rig_replaces(frame, NUMBER, 1);
    rig_piece(frame, 0, PD_F32, 0, 1, &(float){ 5 });
    rig_send(&r, frame);
    rig_work(&r);
    frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, DURABLE_CONN, 1);
    rig_replaces(frame, NUMBER, 0);
    rig_piece(frame, 0, PD_F32, 0, 1, &one);
    assert_int_equal(rig_send(&r, frame), PD_OK);
    rig_work(&r);
    assert_true(*rig_weights(&r, r.job, 0) == 4);
    rig_free(&r);
}

/* Sends both weights of the job's only parameter. */
static void send_two(rig *r, uint64_t number, pd_dtype dtype, const float *weights)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, 0, DURABLE_CONN, 0);

    rig_replaces(frame, number, 1);
    rig_piece(frame, 0, dtype, 0, 2, weights);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
}

TEST(weights_of_16_bits_leave_those_that_they_round_alike)
{
    const float fine[] = { 1 + 0x1p-12f, 2 };
    const float coarse[] = { 1, 4 };
    const int64_t size = 2;
    pd_store_config config = rig_config();
    rig r;

    rig_new(&r, &config);
    rig_start(&r, "job", 1, DURABLE_CONN, &size, 1, NULL, "* sgd lr=1");
    send_two(&r, NUMBER, PD_F32, fine);
    send_two(&r, OTHER, PD_BF16, coarse);
    assert_true(rig_weights(&r, r.job, 0)[0] == fine[0] && rig_weights(&r, r.job, 0)[1] == 4);
    rig_free(&r);
}

TEST(an_update_does_not_build_on_weights_that_were_replaced, rig *r)
{
    replace(r, 1, NUMBER);
    assert_int_equal(rig_versions(r, r->job, 0)->published->builds_on, 0);
}

TEST(only_rank_0_sends_them, rig *r)
{
    assert_int_equal(send_chunks(r, 1, 1, 1, NUMBER, 1, 0, 100), PD_FAILED_PRECONDITION);
    assert_says(r, "rank 0 sends them");
    assert_false(is_in_force(r, 1, NUMBER));
}

TEST(they_replace_those_of_the_step_that_is_closed, rig *r)
{
    assert_int_equal(send_param(r, 0, 0, NUMBER, 1), PD_FAILED_PRECONDITION);
    assert_says(r, "replacement weights are for step 0, but it has closed step 1");
    assert_int_equal(send_param(r, 2, 0, NUMBER, 1), PD_FAILED_PRECONDITION);
    replace(r, 1, NUMBER);
}

TEST(they_come_before_rank_0_begins_the_next_step, rig *r)
{
    assert_int_equal(push(r, 0, 1, 2, 0), PD_OK);
    assert_int_equal(send_param(r, 1, 0, NUMBER, 1), PD_FAILED_PRECONDITION);
    assert_says(r, "p1: rank 0 has begun step 2");
    assert_false(is_in_force(r, 0, NUMBER));
    assert_int_equal(push(r, 0, 0, 2, 0), PD_OK);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(push(r, 1, p, 2, 0), PD_OK);
    assert_int_equal(durable_job_step_of(r, 0), 2);
}

TEST(a_part_of_them_is_dropped_when_rank_0_pushes, rig *r)
{
    assert_int_equal(send_param(r, 1, 0, NUMBER, 2), PD_OK);
    step_all(r, 2, 0);
    assert_int_equal(send_param(r, 2, 1, NUMBER, 2), PD_OK);
    assert_false(is_in_force(r, 1, NUMBER));
    assert_int_equal(send_param(r, 2, 0, NUMBER, 2), PD_OK);
    assert_true(is_in_force(r, 0, NUMBER) && is_in_force(r, 1, NUMBER));
}

TEST(a_part_that_an_earlier_process_has_sent_does_not_count, rig *r)
{
    assert_int_equal(send_param(r, 1, 0, NUMBER, 2), PD_OK);
    succeed(r, 0, 55);
    assert_int_equal(send_param(r, 1, 1, NUMBER, 2), PD_OK);
    assert_false(is_in_force(r, 1, NUMBER));
    assert_int_equal(send_param(r, 1, 0, NUMBER, 2), PD_OK);
    assert_true(is_in_force(r, 1, NUMBER));
}

TEST(a_new_process_cannot_replace_weights_of_a_step_after_which_its_predecessor_has_pushed, rig *r)
{
    assert_int_equal(push(r, 0, 0, 2, 0), PD_OK);
    succeed(r, 0, 55);
    assert_int_equal(send_chunks(r, 0, 1, 0, NUMBER, 2, 0, 64), PD_FAILED_PRECONDITION);
    assert_says(r, "p0: rank 0 has begun step 2");
    assert_null(
        inside_job(r->store, r->job)->steps.params[0].next); /* nothing waits where the step writes its weights */
    assert_int_equal(push(r, 1, 0, 2, 0), PD_OK);
    assert_int_equal(durable_job_step_of(r, 0), 2);
}

/* Starts a job that takes steps without rank 0, and lets rank 0 send a part of new weights. */
static void send_a_part(rig *r)
{
    start(r, OPTIONS " rounds=quorum quorum=1");
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(push(r, 1, p, 1, 0), PD_OK);
    assert_int_equal(durable_job_step_of(r, 1), 1);
    assert_int_equal(send_chunks(r, 0, 1, 0, NUMBER, 2, 0, 64), PD_OK);
}

TEST(a_part_of_them_is_dropped_when_the_job_steps_without_rank_0)
{
    float before[MOST];
    rig r;

    send_a_part(&r);
    memcpy(before, rig_weights(&r, r.job, 0), (size_t)durable_job_sizes[0] * sizeof(float));
    for (uint32_t p = 0; p < PARAMS; p++) {
        rig_frame *frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 1, conns[1], 2);
        rig_absent(frame, p);
        rig_send(&r, frame);
        rig_work(&r);
    }
    rig_sleep(&r, 6); /* it waits for a gradient of rank 0 as long as reconnect_grace */
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 0), 2); /* a step without a gradient leaves the weights as they were */
    assert_memory_equal(rig_weights(&r, r.job, 0), before, (size_t)durable_job_sizes[0] * sizeof(float));
    assert_int_equal(send_chunks(&r, 0, 1, 0, NUMBER, 2, 64, 200), PD_FAILED_PRECONDITION);
    replace(&r, 2, OTHER);
    assert_true(is_in_force(&r, 0, OTHER) && is_in_force(&r, 1, OTHER));
    rig_free(&r);
}

TEST(those_of_a_ranged_parameter_are_refused)
{
    static const rig_range halves[2] = { { 0, 50 }, { 50, 100 } };
    const pd_shape shape = { 1, { 100 } };
    const float *initial = made(0, OTHER);
    pd_store_config config = rig_config();
    rig_frame *frame;
    rig r;

    rig_new(&r, &config);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig_hello(&r, "job", rank, 2, DURABLE_CONN + rank, DURABLE_CONN + rank, NULL, "* sgd"), PD_OK);
        assert_int_equal(rig_declare_range(&r, rank, DURABLE_CONN + rank, "w", &shape, halves[rank]), PD_OK);
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        frame = rig_frame_new(&r, PD_REQ_INIT, r.job, rank, DURABLE_CONN + rank, 0);
        rig_piece(frame, 0, PD_F32, halves[rank].start, rank == 0 ? 50 : 14, initial + halves[rank].start);
        if (rank == 1) rig_piece(frame, 0, PD_F32, 64, 36, initial + 64);
        rig_send(&r, frame);
        rig_work(&r);
    }
    frame = rig_frame_new(&r, PD_REQ_INIT, r.job, 0, DURABLE_CONN, 0);
    rig_replaces(frame, NUMBER, 1);
    rig_piece(frame, 0, PD_F32, 0, 50, initial);
    rig_send(&r, frame);
    rig_work(&r);
    assert_int_equal(r.error.code, PD_FAILED_PRECONDITION);
    assert_says(&r, "spread over the ranks");
    rig_free(&r);
}

TEST(without_memory_nothing_changes, rig *r)
{
    size_t bytes = (size_t)durable_job_sizes[1] * sizeof(float);
    float before[MOST];
    bool survived = false;

    memcpy(before, rig_weights(r, r->job, 1), bytes);
    for (int64_t at = 0; at < 50 && !survived; at++) {
        rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, 0, DURABLE_CONN, 1);
        pd_request *request;

        rig_replaces(frame, NUMBER, 1);
        rig_piece(frame, 1, PD_F32, 0, 64, made(1, NUMBER));
        rig_piece(frame, 1, PD_F32, 64, 36, made(1, NUMBER) + 64);
        request = rig_request(frame);
        oom_arm(at);
        rig_apply(r, request);
        (void)pd_store_work(r->store, r->now);
        survived = !oom_disarm();
        rig_work(r);
        assert_int_equal(r->error.code, survived ? PD_OK : PD_NO_MEMORY);
        if (!survived) assert_memory_equal(rig_weights(r, r->job, 1), before, bytes);
    }
    assert_true(survived && is_in_force(r, 1, NUMBER));
}

TEST(a_rank_that_has_not_changed_its_weights_is_refused, rig *r)
{
    replace(r, 1, NUMBER);
    assert_int_equal(push(r, 1, 0, 2, 0), PD_FAILED_PRECONDITION);
    assert_says(r, "rank 1 pushes p0 for step 2 with other weights than rank 0");
    assert_says(r, "change them on all ranks alike");
    step_all(r, 2, NUMBER);
}

TEST(a_rank_that_alone_has_changed_its_weights_is_refused, rig *r)
{
    assert_int_equal(push(r, 0, 0, 2, 0), PD_OK);
    assert_int_equal(push(r, 1, 0, 2, NUMBER), PD_FAILED_PRECONDITION);
    assert_says(r, "rank 1 pushes p0 for step 2 with other weights than rank 0");
}

TEST(the_rank_whose_push_is_second_has_the_error, rig *r)
{
    assert_int_equal(push(r, 1, 0, 2, NUMBER), PD_OK);
    assert_int_equal(push(r, 0, 0, 2, 0), PD_FAILED_PRECONDITION);
    assert_says(r, "rank 0 pushes p0 for step 2 with other weights than rank 1");
}

TEST(weights_are_not_replaced_if_another_rank_has_pushed_with_others, rig *r)
{
    assert_int_equal(push(r, 1, 1, 2, OTHER), PD_OK);
    assert_int_equal(send_param(r, 1, 0, NUMBER, 1), PD_FAILED_PRECONDITION);
    assert_says(r, "rank 1 has pushed p1 for it with other weights");
    assert_false(is_in_force(r, 0, NUMBER));
}

TEST(a_push_with_the_same_change_may_come_before_it, rig *r)
{
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(push(r, 1, p, 2, NUMBER), PD_OK);
    replace(r, 1, NUMBER);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(push(r, 0, p, 2, NUMBER), PD_OK);
    assert_int_equal(durable_job_step_of(r, 0), 2);
}

TEST(rank_0_cannot_push_with_weights_that_it_has_not_sent, rig *r)
{
    assert_int_equal(push(r, 0, 0, 2, NUMBER), PD_FAILED_PRECONDITION);
    assert_says(r, "has not sent them");
    assert_int_equal(push(r, 0, 0, 2, 0), PD_OK);
}

TEST(the_step_after_the_next_needs_no_number, rig *r)
{
    replace(r, 1, NUMBER);
    step_all(r, 2, NUMBER);
    step_all(r, 3, 0);
}

TEST(what_a_process_that_has_gone_has_said_does_not_bind_its_successor, rig *r)
{
    assert_int_equal(push(r, 1, 0, 2, NUMBER), PD_OK);
    succeed(r, 1, 55);
    step_all(r, 2, 0);
}

TEST(a_new_process_learns_the_number, rig *r)
{
    replace(r, 1, NUMBER);
    succeed(r, 1, 55);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(r->replaced[p], NUMBER);
    step_all(r, 2, NUMBER);
    succeed(r, 1, 56);
    assert_int_equal(r->replaced[0], 0);
}

TEST(an_export_that_is_read_keeps_the_weights_that_it_has, rig *r)
{
    float before[MOST];

    memcpy(before, rig_weights(r, r->job, 0), (size_t)durable_job_sizes[0] * sizeof(float));
    assert_int_equal(export_begin(r, "job", OPERATOR, false, 30), PD_OK);
    replace(r, 1, NUMBER);
    assert_int_equal(export_weights(r, "job", OPERATOR, "p0", 0, durable_job_sizes[0]), PD_OK);
    assert_memory_equal(r->exported.at, before, (size_t)durable_job_sizes[0] * sizeof(float));
    assert_int_equal(export_end(r, "job", OPERATOR), PD_OK);
    assert_int_equal(export_begin(r, "job", OPERATOR, false, 30), PD_OK);
    assert_int_equal(export_weights(r, "job", OPERATOR, "p0", 0, durable_job_sizes[0]), PD_OK);
    assert_memory_equal(r->exported.at, made(0, NUMBER), (size_t)durable_job_sizes[0] * sizeof(float));
    assert_int_equal(export_end(r, "job", OPERATOR), PD_OK);
}

TEST(an_export_that_waits_for_a_step_has_the_new_weights_of_all_parameters, rig *r)
{
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(push(r, rank, 0, 2, 0), PD_OK);
    assert_int_equal(export_begin(r, "job", OPERATOR, false, 30), PD_OK);
    assert_int_equal(send_param(r, 2, 0, NUMBER, 1), PD_OK);
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(push(r, rank, 1, 2, 0), PD_OK);
    assert_int_equal(r->exported.step, 2);
    assert_int_equal(export_weights(r, "job", OPERATOR, "p0", 0, durable_job_sizes[0]), PD_OK);
    assert_memory_equal(r->exported.at, made(0, NUMBER), (size_t)durable_job_sizes[0] * sizeof(float));
    assert_int_equal(export_end(r, "job", OPERATOR), PD_OK);
}

TEST(a_checkpoint_has_the_new_weights_and_the_number, void *given)
{
    rig *r = given, next;
    pd_store_config config = durable_config();

    replace(r, 1, NUMBER);
    make_checkpoint(r);
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, r), PD_OK);
    durable_job_join(&next, NULL);
    assert_int_equal(next.steps[0], 1);
    assert_int_equal(next.replaced[1], NUMBER);
    assert_true(is_in_force(&next, 0, NUMBER) && is_in_force(&next, 1, NUMBER));
    step_all(&next, 2, NUMBER);
    step_all(r, 2, NUMBER);
    for (uint32_t p = 0; p < PARAMS; p++)
        assert_memory_equal(rig_weights(&next, next.job, p), rig_weights(r, r->job, p),
                            (size_t)durable_job_sizes[p] * sizeof(float));
    rig_free(&next);
}

TEST(a_checkpoint_of_the_step_before_the_change_has_the_old_ones_and_no_number, void *given)
{
    rig *r = given, next;
    pd_store_config config = durable_config();

    make_checkpoint(r);
    replace(r, 1, NUMBER);
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, r), PD_OK);
    durable_job_join(&next, NULL);
    assert_int_equal(next.replaced[0], 0);
    assert_false(is_in_force(&next, 0, NUMBER));
    rig_free(&next);
}

TEST(the_last_checkpoint_of_a_server_that_stops_has_them, rig *r)
{
    uint64_t kept;

    make_checkpoint(r);
    replace(r, 1, NUMBER);
    kept = r->kept;
    rig_drain(r, OPERATOR, 30);
    rig_work(r);
    assert_int_equal(r->kept, kept + 1);
    assert_int_equal(r->disk->step, 1);
}

TEST(a_log_begins_anew_behind_a_checkpoint_that_has_them)
{
    pd_store_config config = durable_config();
    rig r, next;

    start(&r, "durability=log checkpoint_every=100");
    durable_job_step(&r, 1);
    assert_int_equal(r.n_records, 1);
    replace(&r, 1, NUMBER);
    assert_int_equal(r.disk->step, 1);
    step_all(&r, 2, NUMBER);
    step_all(&r, 3, 0);
    assert_int_equal(r.n_records, 2);
    assert_int_equal(r.durable, 3);
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, &r), PD_OK);
    assert_int_equal(rig_replay(&next, &r), PD_OK);
    durable_job_join(&next, NULL);
    assert_int_equal(next.steps[0], 3);
    assert_int_equal(next.replaced[0], 0);
    for (uint32_t p = 0; p < PARAMS; p++)
        assert_memory_equal(rig_weights(&next, next.job, p), rig_weights(&r, r.job, p),
                            (size_t)durable_job_sizes[p] * sizeof(float));
    rig_free(&next);
    rig_free(&r);
}

TEST(no_entry_is_written_before_that_checkpoint_is)
{
    rig r;

    start(&r, "durability=log checkpoint_every=1");
    durable_job_step(&r, 1);
    assert_int_equal(r.disk->step, 1);
    r.lazy_disk = true;
    replace(&r, 1, NUMBER);
    assert_non_null(r.checkpointing);
    step_all(&r, 2, NUMBER);
    assert_int_equal(r.durable, 1);
    r.lazy_disk = false;
    rig_write_checkpoint(&r);
    rig_work(&r);
    assert_int_equal(r.durable, 2);
    rig_free(&r);
}
