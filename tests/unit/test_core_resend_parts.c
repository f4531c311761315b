/* Tests which frames of the window are sent again, and in which order: chunks, notes, ends of steps, parameters at
 * different steps, ranges, updates, shared memory. */
#include "test.h"
#include "core.h"
#include "descriptors.h"
#include "peer.h"

enum { WINDOW = 6, LARGE = 150, SMALL = 3 }; /* LARGE: three chunks of 64 */

static pd_core_config windowed_config(void)
{
    pd_core_config config = peer_four;

    config.window = WINDOW;
    return config;
}

static peer *trained(const int64_t *sizes, size_t n)
{
    pd_core_config config = windowed_config();

    return peer_trained(&config, sizes, n, 0);
}

static float values[PEER_ITEMS][LARGE];

/* Pushes the next step of some parameters. Each gradient is a number that follows from parameter and step. */
static pd_ticket_id push(peer *p, const size_t *params, size_t n, const pd_push_options *options)
{
    pd_ticket_id ticket;
    pd_error err;

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < LARGE; k++) values[i][k] = (float)(pd_core_step(p->core, params[i]) * 100 + params[i]);
        p->items[i] = (pd_item){ .param = params[i], .gradient = values[i] };
    }
    if (pd_core_push(p->core, PD_PUSH, p->items, n, options, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
    return ticket;
}

/* Expects a push of one chunk or tensor: parameter, first element, step, and the gradient of that step. */
static pd_prefix expect_push(peer *p, uint32_t param, uint64_t first, uint64_t step)
{
    peer_frame l = peer_expect(p, PD_PUSH);
    const Paramd__PushRequest *request = l.message;
    pd_prefix prefix = l.prefix;
    float value;

    assert_int_equal(request->step, step);
    assert_int_equal(request->n_pieces, 1);
    assert_int_equal(request->pieces[0]->handle, param);
    assert_int_equal(request->pieces[0]->first, first);
    memcpy(&value, l.payload, sizeof value);
    assert_true(value == (float)((step - 1) * 100 + param));
    peer_frame_drop(&l);
    return prefix;
}

static void answer(peer *p, const pd_prefix *asked, uint64_t step)
{
    peer_reply_data(p, asked, 1, 1, step, NULL, 0);
}

static pd_prefix expect(peer *p, unsigned method)
{
    peer_frame l = peer_expect(p, method);

    peer_frame_drop(&l);
    return l.prefix;
}

static void expect_chunks(peer *p, uint64_t step, pd_prefix *out)
{
    for (uint64_t i = 0; i < 3; i++) out[i] = expect_push(p, 0, i * 64, step);
}

static void answer_chunks(peer *p, const pd_prefix *asked, uint64_t step)
{
    for (int i = 0; i < 3; i++) answer(p, &asked[i], step);
}

static peer *large_at(uint64_t step)
{
    static const int64_t size = LARGE;
    static const size_t first = 0;
    peer *p = trained(&size, 1);
    pd_prefix asked[3];

    for (uint64_t s = 1; s <= step; s++) {
        pd_ticket_id ticket = push(p, &first, 1, NULL);
        expect_chunks(p, s, asked);
        answer_chunks(p, asked, s);
        assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    }
    return p;
}

TEST(every_chunk_of_a_step_is_answered_before_the_next_step_begins)
{
    peer *p = large_at(4);
    pd_prefix asked[3];

    peer_come_back_at(p, (uint64_t[]){ 2 }, 1);
    expect_chunks(p, 3, asked);
    peer_expect_silence(p);
    answer_chunks(p, asked, 3);
    expect_chunks(p, 4, asked);
    answer_chunks(p, asked, 4);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

/* The server had closed step 4 and answered for one chunk when it was lost. The other chunks are under way. */
TEST(a_step_of_which_only_some_answers_came_is_sent_as_a_whole)
{
    static const size_t first = 0;
    peer *p = large_at(3);
    pd_ticket_id ticket = push(p, &first, 1, NULL);
    pd_prefix asked[3];

    expect_chunks(p, 4, asked);
    answer(p, &asked[1], 4);
    assert_int_equal(pd_core_step(p->core, 0), 4);
    peer_come_back_at(p, (uint64_t[]){ 2 }, 1);
    expect_chunks(p, 3, asked);
    peer_expect_silence(p);
    answer_chunks(p, asked, 3);
    expect_chunks(p, 4, asked);
    answer_chunks(p, asked, 4);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    ticket = push(p, &first, 1, NULL);
    expect_chunks(p, 5, asked);
    answer_chunks(p, asked, 5);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_come_back_at(p, (uint64_t[]){ 3 }, 1); /* the step that came in two parts is in the window, too */
    expect_chunks(p, 4, asked);
    peer_free(p);
}

/* The program must not learn of the refusal: it would push the gradient again, for the step after it. */
TEST(a_refused_chunk_of_a_step_that_was_closed_before_is_sent_again)
{
    static const size_t first = 0;
    peer *p = large_at(3);
    pd_ticket_id ticket = push(p, &first, 1, NULL);
    pd_prefix asked[3], again;

    expect_chunks(p, 4, asked);
    answer(p, &asked[1], 4);
    peer_come_back_at(p, (uint64_t[]){ 3 }, 1);
    expect_chunks(p, 4, asked);
    peer_refuse(p, &asked[2], PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
    p->now += 3 * SECOND;
    pd_core_tick(p->core, p->now);
    assert_false(pd_core_done(p->core, ticket));
    again = expect_push(p, 0, 128, 4);
    answer(p, &again, 4);
    answer(p, &asked[0], 4);
    answer(p, &asked[1], 4);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_free(p);
}

static const int64_t two[] = { SMALL, SMALL };
static const size_t only[] = { 0 }, other[] = { 1 };

/* Takes a step of parameter 0 alone, with a note, and ends it. */
static void take_ended_step(peer *p, uint64_t step)
{
    char note[] = "note 0";
    pd_push_options options = { .note = note, .note_bytes = sizeof note };
    pd_ticket_id pushed, closed;
    pd_prefix noted, asked, ends;

    note[5] = (char)('0' + step);
    pushed = push(p, only, 1, &options);
    assert_int_equal(pd_core_close_step(p->core, step, &closed, NULL), PD_OK);
    noted = expect(p, PD_NOTE);
    asked = expect_push(p, 0, 0, step);
    ends = expect(p, PD_PUSH);
    peer_reply_ok(p, &noted);
    answer(p, &asked, step);
    peer_reply_data(p, &ends, 0, 0, 0, NULL, 0);
    assert_int_equal(peer_finish(p, pushed, NULL), PD_OK);
    assert_int_equal(peer_finish(p, closed, NULL), PD_OK);
}

static pd_prefix expect_note(peer *p, uint64_t step)
{
    peer_frame l = peer_expect(p, PD_NOTE);
    pd_prefix prefix = l.prefix;

    assert_int_equal(((const Paramd__NoteRequest *)l.message)->step, step);
    assert_int_equal(prefix.payload_bytes, 7);
    assert_int_equal(l.payload[5], '0' + step);
    peer_frame_drop(&l);
    return prefix;
}

static pd_prefix expect_end(peer *p, uint64_t step)
{
    peer_frame l = peer_expect(p, PD_PUSH);
    const Paramd__PushRequest *request = l.message;
    pd_prefix prefix = l.prefix;

    assert_true(request->last);
    assert_int_equal(request->step, step);
    assert_int_equal(request->n_pieces, 0);
    peer_frame_drop(&l);
    return prefix;
}

TEST(notes_and_ends_of_steps_are_sent_again_with_their_steps)
{
    peer *p = trained(two, 2);

    for (uint64_t step = 1; step <= 4; step++) take_ended_step(p, step);
    peer_come_back_at(p, (uint64_t[]){ 2, 2 }, 2);
    for (uint64_t step = 3; step <= 4; step++) {
        pd_prefix noted = expect_note(p, step), asked = expect_push(p, 0, 0, step), ends = expect_end(p, step);
        peer_expect_silence(p);
        peer_reply_ok(p, &noted);
        answer(p, &asked, step);
        if (step == 3) expect_note(p, 4);
        if (step == 3) expect_push(p, 0, 0, 4);
        peer_expect_silence(p); /* the end of step 4 waits until step 3 of the other parameter is closed */
        peer_reply_data(p, &ends, 0, 0, 0, NULL, 0);
        if (step == 3) peer_come_back_at(p, (uint64_t[]){ 3, 3 }, 2);
    }
    take_ended_step(p, 5);
    peer_free(p);
}

TEST(the_end_of_a_step_that_is_under_way_waits_for_its_turn)
{
    peer *p = trained(two, 2);
    pd_ticket_id closed;
    pd_prefix noted, asked, ends;

    take_ended_step(p, 1);
    take_ended_step(p, 2);
    assert_int_equal(pd_core_close_step(p->core, 3, &closed, NULL), PD_OK);
    peer_come_back_at(p, (uint64_t[]){ 1, 1 }, 2);
    noted = expect_note(p, 2);
    asked = expect_push(p, 0, 0, 2);
    ends = expect_end(p, 2);
    peer_reply_ok(p, &noted);
    answer(p, &asked, 2);
    peer_expect_silence(p);
    peer_reply_data(p, &ends, 0, 0, 0, NULL, 0);
    ends = expect_end(p, 3);
    peer_reply_data(p, &ends, 0, 0, 0, NULL, 0);
    assert_int_equal(peer_finish(p, closed, NULL), PD_OK);
    peer_free(p);
}

/* Else the server would take the gradient that was answered for absent. */
TEST(the_end_of_a_step_stays_behind_a_push_of_it_that_was_answered)
{
    peer *p = trained(two, 2);
    pd_ticket_id pushed, closed;
    pd_prefix asked;

    pushed = push(p, only, 1, NULL);
    assert_int_equal(pd_core_close_step(p->core, 1, &closed, NULL), PD_OK);
    asked = expect_push(p, 0, 0, 1);
    answer(p, &asked, 1);
    assert_int_equal(peer_finish(p, pushed, NULL), PD_OK);
    peer_come_back_at(p, (uint64_t[]){ 0, 0 }, 2);
    expect_push(p, 0, 0, 1);
    expect_end(p, 1);
    peer_free(p);
}

TEST(a_step_can_be_ended_meanwhile)
{
    peer *p = trained(two, 2);
    pd_ticket_id closed;
    pd_prefix noted, asked, ends;

    take_ended_step(p, 1);
    take_ended_step(p, 2);
    peer_come_back_at(p, (uint64_t[]){ 1, 1 }, 2);
    assert_int_equal(pd_core_close_step(p->core, 3, &closed, NULL), PD_OK);
    noted = expect_note(p, 2);
    asked = expect_push(p, 0, 0, 2);
    ends = expect_end(p, 2);
    peer_reply_ok(p, &noted);
    answer(p, &asked, 2);
    peer_reply_data(p, &ends, 0, 0, 0, NULL, 0);
    expect_end(p, 3);
    peer_free(p);
}

TEST(a_parameter_that_was_left_out_of_old_steps_needs_their_ends)
{
    peer *p = trained(two, 2);

    for (uint64_t step = 1; step <= WINDOW + 2; step++) take_ended_step(p, step);
    peer_come_back_at(p, (uint64_t[]){ WINDOW + 2, 1 }, 2);
    assert_true(p->core->end.gone_back);
    peer_free(p);
}

static void take_step(peer *p, const size_t *param, uint64_t step)
{
    pd_ticket_id ticket = push(p, param, 1, NULL);
    pd_prefix asked = expect_push(p, (uint32_t)*param, 0, step);

    answer(p, &asked, step);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

TEST(parameters_at_different_steps_go_on_by_themselves)
{
    peer *p = trained(two, 2);
    pd_prefix first, second;

    for (uint64_t step = 1; step <= 5; step++) take_step(p, only, step);
    for (uint64_t step = 1; step <= 3; step++) take_step(p, other, step);
    peer_come_back_at(p, (uint64_t[]){ 3, 1 }, 2);
    first = expect_push(p, 0, 0, 4);
    second = expect_push(p, 1, 0, 2);
    peer_expect_silence(p);
    answer(p, &second, 2);
    second = expect_push(p, 1, 0, 3);
    answer(p, &second, 3);
    peer_expect_silence(p);
    answer(p, &first, 4);
    first = expect_push(p, 0, 0, 5);
    answer(p, &first, 5);
    take_step(p, other, 4);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

/* The slow parameter keeps its steps, while the fast one has taken many. */
TEST(the_window_counts_the_steps_of_each_parameter)
{
    peer *p = trained(two, 2);

    for (uint64_t step = 1; step <= 2; step++) take_step(p, other, step);
    for (uint64_t step = 1; step <= 20; step++) take_step(p, only, step);
    assert_int_equal(p->core->window.bytes, (WINDOW + 2) * SMALL * sizeof(float));
    peer_come_back_at(p, (uint64_t[]){ 20, 0 }, 2);
    expect_push(p, 1, 0, 1);
    peer_come_back_at(p, (uint64_t[]){ 20 - WINDOW, 2 }, 2);
    expect_push(p, 0, 0, 20 - WINDOW + 1);
    peer_come_back_at(p, (uint64_t[]){ 20 - WINDOW - 1, 2 }, 2);
    assert_true(p->core->end.gone_back);
    peer_free(p);
}

TEST(a_rank_without_a_gradient_says_so_again)
{
    peer *p = trained(two, 2);
    pd_item item = { .param = 0 };
    const Paramd__PushRequest *request;
    pd_ticket_id ticket;
    peer_frame l;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PUSH);
    peer_reply_data(p, &l.prefix, 1, 3, 1, NULL, 0);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_come_back_at(p, (uint64_t[]){ 0, 0 }, 2);
    l = peer_expect(p, PD_PUSH);
    request = l.message;
    assert_true(request->pieces[0]->absent);
    peer_reply_data(p, &l.prefix, 1, 3, 1, NULL, 0);
    peer_frame_drop(&l);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

TEST(a_shard_is_sent_again_and_an_empty_one_keeps_nobody_waiting)
{
    static const pd_client_param params[] = {
        { .name = "shard", .shape = { 1, { 300 } }, .ranged = true, .start = 100, .end = 103 },
        { .name = "empty", .shape = { 1, { 300 } }, .ranged = true, .start = 70, .end = 70 },
    };
    pd_core_config config = windowed_config();
    peer *p = peer_new(&config);
    pd_item empty = { .param = 1 };
    pd_ticket_id ticket;
    pd_prefix asked;

    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(pd_core_declare(p->core, params, 2, &ticket, NULL), PD_OK);
    peer_answer_declare_at(p, (uint64_t[]){ 4, 4 }, 2);
    ticket = push(p, only, 1, NULL);
    asked = expect_push(p, 0, 100, 5);
    answer(p, &asked, 5);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(pd_core_pull(p->core, &empty, 1, 5, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    asked = expect(p, PD_PULL);
    peer_reply_data(p, &asked, 1, 0, 5, NULL, 0);
    peer_come_back_at(p, (uint64_t[]){ 4, 4 }, 2);
    assert_int_equal(pd_core_pull(p->core, &empty, 1, 5, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    asked = expect_push(p, 0, 100, 5);
    peer_expect_silence(p);
    answer(p, &asked, 5);
    expect(p, PD_PULL);
    peer_free(p);
}

/* Answers a push_pull of one parameter with an update of its three elements. */
static void answer_update(peer *p, const pd_prefix *asked, uint64_t step, bool update)
{
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome one = PARAMD__OUTCOME__INIT, *all[] = { &one };
    float whole[SMALL] = { 1, 2, 3 };

    one.outcome = 1;
    one.step = one.version = step;
    one.update = update;
    message.outcomes = all;
    message.n_outcomes = 1;
    peer_reply(p, asked, &message.base, update ? (void *)(uint16_t[SMALL]){ 0x3f80, 0, 0x4000 } : whole,
               update ? SMALL * 2 : sizeof whole);
}

static float own[SMALL];

/* Pushes and pulls a step. Returns the prefix, and the version of weights that the push says to have. */
static pd_prefix push_pull(peer *p, pd_ticket_id *ticket, uint64_t *holds)
{
    peer_frame l;

    p->items[0] = (pd_item){ .param = 0, .gradient = values[0], .weights = own };
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, p->items, 1, NULL, ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PUSH_PULL);
    *holds = ((const Paramd__PushRequest *)l.message)->pieces[0]->holds;
    peer_frame_drop(&l);
    return l.prefix;
}

static peer *updated_to(uint64_t step)
{
    static const pd_client_param param = { .name = "p0", .shape = { 1, { SMALL } }, .update_dtype = PD_BF16 };
    pd_core_config config = windowed_config();
    peer *p = peer_new(&config);
    pd_ticket_id ticket;
    uint64_t holds;

    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(pd_core_declare(p->core, &param, 1, &ticket, NULL), PD_OK);
    peer_answer_declare(p, 1, 0);
    for (uint64_t s = 1; s <= step; s++) {
        pd_prefix asked = push_pull(p, &ticket, &holds);
        assert_int_equal(holds, s > 1 ? s : 0);
        answer_update(p, &asked, s, s > 1);
        assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    }
    return p;
}

static uint64_t holds_of(const peer_frame *l)
{
    if (l->prefix.method == PD_PULL) return ((const Paramd__PullRequest *)l->message)->wants[0]->holds;
    return ((const Paramd__PushRequest *)l->message)->pieces[0]->holds;
}

/* The push that is sent again asks for the same update, so that the answers can be compared. Calls of the program ask
 * for whole weights once. */
TEST(updates_are_compared_and_calls_ask_for_whole_weights_once)
{
    peer *p = updated_to(3);
    pd_ticket_id ticket;
    uint64_t holds;
    peer_frame l;

    push_pull(p, &ticket, &holds);
    assert_int_equal(holds, 4);
    peer_come_back_at(p, (uint64_t[]){ 2 }, 1);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(holds_of(&l), 3);
    answer_update(p, &l.prefix, 3, true);
    peer_frame_drop(&l);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(holds_of(&l), 0);
    answer_update(p, &l.prefix, 4, false);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    push_pull(p, &ticket, &holds);
    assert_int_equal(holds, 5);
    peer_free(p);
}

TEST(a_pull_under_way_asks_for_whole_weights)
{
    peer *p = updated_to(3);
    pd_item item = { .param = 0, .weights = own };
    pd_ticket_id ticket;
    peer_frame l;

    assert_int_equal(pd_core_pull(p->core, &item, 1, 0, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    peer_come_back_at(p, (uint64_t[]){ 2 }, 1);
    l = peer_expect(p, PD_PUSH_PULL);
    answer_update(p, &l.prefix, 3, true);
    peer_frame_drop(&l);
    l = peer_expect(p, PD_PULL);
    assert_int_equal(holds_of(&l), 0);
    peer_frame_drop(&l);
    peer_free(p);
}

/* A server may send whole weights where it sent an update before: then the answers cannot be compared. */
TEST(weights_are_not_compared_with_an_update)
{
    peer *p = updated_to(3);
    peer_frame l;

    peer_come_back_at(p, (uint64_t[]){ 2 }, 1);
    l = peer_expect(p, PD_PUSH_PULL);
    answer_update(p, &l.prefix, 3, false);
    peer_frame_drop(&l);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

enum { SHARED_ELEMENTS = 5000, SHARED_PAYLOAD = SHARED_ELEMENTS * 4 };
static float shared_gradient[SHARED_ELEMENTS], shared_weights[SHARED_ELEMENTS];

static peer_frame expect_shared(peer *p, float value)
{
    peer_frame l = peer_expect(p, PD_PUSH_PULL);

    assert_true((l.prefix.flags & PD_FLAG_SHARED) != 0);
    for (int i = 0; i < SHARED_ELEMENTS; i++) assert_true(((const float *)(const void *)l.payload)[i] == value);
    return l;
}

static void come_back_sharing(peer *p, uint64_t step)
{
    peer_come_back_at(p, &step, 1);
    peer_share(p, memfd_sealed(2 * SHARED_PAYLOAD, 0), 2 * SHARED_PAYLOAD);
}

TEST(gradients_and_weights_in_shared_memory_are_sent_and_compared_again)
{
    static const int64_t size = SHARED_ELEMENTS;
    pd_core_config config = windowed_config();
    peer *p = peer_sharing_with(&config, &size, 1, 2 * SHARED_PAYLOAD);
    pd_item item = { .param = 0, .gradient = shared_gradient, .weights = shared_weights };
    peer_frame l;

    for (uint64_t step = 1; step <= 3; step++) {
        pd_ticket_id ticket;
        for (int i = 0; i < SHARED_ELEMENTS; i++) shared_gradient[i] = (float)step;
        assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, &item, 1, NULL, &ticket, NULL), PD_OK);
        l = expect_shared(p, (float)step);
        peer_reply_shared(p, &l.prefix, 1, step, (uint64_t[]){ step * 64 }, SHARED_PAYLOAD);
        peer_frame_drop(&l);
        assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    }
    come_back_sharing(p, 1);
    l = expect_shared(p, 2);
    peer_reply_shared(p, &l.prefix, 1, 2, (uint64_t[]){ 2 * 64 }, SHARED_PAYLOAD);
    peer_frame_drop(&l);
    assert_int_equal(p->core->end.error.code, PD_OK);
    l = expect_shared(p, 3);
    peer_reply_shared(p, &l.prefix, 1, 3, (uint64_t[]){ 2 * 64 }, SHARED_PAYLOAD); /* the weights of step 2 */
    peer_frame_drop(&l);
    assert_int_equal(p->core->end.error.code, PD_FAILED_PRECONDITION);
    peer_free(p);
}
