/* Tests the client's core with weights that the program has changed by hand: how they are sent, which number pushes
 * bring, and what becomes of them when the connection breaks or the server goes back. */
#include "test.h"
#include "peer.h"
#include "replace.h"

enum { PARAMS = 2, SMALL = 3, LARGE = 150, STEP = 7, NUMBER = 77 };
static const int64_t sizes[PARAMS] = { SMALL, LARGE };

static peer *trained(const pd_core_config *config)
{
    return peer_trained(config, sizes, PARAMS, STEP);
}

static pd_core_config with_window(uint32_t window)
{
    pd_core_config config = peer_first;

    config.window = window;
    return config;
}

static int try_replace(peer *p, const uint32_t *params, size_t n, uint64_t number, pd_ticket_id *ticket, pd_error *err)
{
    static float weights[PARAMS][LARGE];
    pd_item items[PARAMS];

    for (size_t i = 0; i < n; i++) items[i] = (pd_item){ .param = params[i], .weights = weights[params[i] % PARAMS] };
    return pd_core_replace(p->core, items, n, number, ticket, err);
}

static pd_ticket_id replace(peer *p, const uint32_t *params, size_t n)
{
    pd_ticket_id ticket;

    assert_int_equal(try_replace(p, params, n, NUMBER, &ticket, NULL), PD_OK);
    return ticket;
}

static pd_ticket_id replace_both(peer *p)
{
    return replace(p, (uint32_t[]){ 0, 1 }, PARAMS);
}

/* Expects a frame of new weights, and answers it unless `answers` is false. Returns its number of pieces. */
static size_t expect_weights(peer *p, bool answers)
{
    peer_frame l = peer_expect(p, PD_INIT);
    const Paramd__InitRequest *init = l.message;
    size_t n = init->n_pieces;

    assert_int_equal(init->replaces, NUMBER);
    assert_int_equal(init->step, STEP);
    assert_int_equal(init->whole, PARAMS);
    if (answers) peer_reply_ok(p, &l.prefix);
    peer_frame_drop(&l);
    return n;
}

static void replace_and_answer(peer *p)
{
    pd_ticket_id ticket = replace_both(p);

    for (int i = 0; i < 4; i++) expect_weights(p, true);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

/* Pushes and pulls the first parameter. Returns the number that the push brings; answers it as the step after `step`.
 */
static uint64_t push_number(peer *p, uint64_t given, uint64_t step)
{
    static float gradient[SMALL], weights[SMALL];
    pd_item item = { .param = 0, .gradient = gradient, .weights = weights };
    pd_push_options options = { .replaces = given };
    pd_ticket_id ticket;
    peer_frame l;
    uint64_t number;

    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, &item, 1, &options, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PUSH_PULL);
    number = ((const Paramd__PushRequest *)l.message)->replaces;
    peer_reply_data(p, &l.prefix, 1, 1, step + 1, weights, SMALL);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return number;
}

TEST(all_frames_tell_the_step_the_number_and_how_many_parameters_come)
{
    peer *p = trained(&peer_first);
    pd_ticket_id ticket = replace_both(p);

    for (int i = 0; i < 4; i++) {
        assert_false(pd_core_done(p->core, ticket));
        assert_int_equal(expect_weights(p, true), 1);
    }
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_expect_silence(p);
    peer_free(p);
}

TEST(a_shard_whose_weights_stay_is_told_the_number)
{
    peer *p = trained(&peer_first);
    pd_ticket_id ticket;
    const Paramd__InitRequest *init;
    peer_frame l;

    assert_int_equal(pd_core_replace_none(p->core, NUMBER, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_INIT);
    init = l.message;
    assert_int_equal(init->n_pieces, 1);
    assert_true(init->pieces[0]->absent);
    assert_int_equal(init->replaces, NUMBER);
    assert_int_equal(init->step, STEP);
    assert_int_equal(init->whole, 0);
    assert_int_equal(l.prefix.payload_bytes, 0);
    peer_reply_ok(p, &l.prefix);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(push_number(p, 0, STEP), NUMBER);
    peer_free(p);
}

TEST(a_push_brings_the_number_that_the_program_gives)
{
    peer *p = trained(&peer_four);

    assert_int_equal(push_number(p, NUMBER, STEP), NUMBER);
    assert_int_equal(push_number(p, 0, STEP + 1), 0);
    peer_free(p);
}

TEST(rank_0_brings_the_number_of_what_it_has_sent)
{
    peer *p = trained(&peer_first);

    replace_and_answer(p);
    assert_int_equal(push_number(p, 0, STEP), NUMBER);
    assert_int_equal(push_number(p, 0, STEP + 1), 0);
    peer_free(p);
}

static void assert_refused(peer *p, const uint32_t *params, size_t n, uint64_t number, int code, const char *text)
{
    pd_ticket_id ticket;
    pd_error err;

    assert_int_equal(try_replace(p, params, n, number, &ticket, &err), code);
    if (strstr(err.text, text) == NULL) fail_msg("expected \"%s\" in: %s", text, err.text);
    peer_expect_silence(p);
}

TEST(only_rank_0_replaces_weights)
{
    peer *p = trained(&peer_four);

    assert_refused(p, (uint32_t[]){ 0 }, 1, NUMBER, PD_FAILED_PRECONDITION, "this is rank 2");
    peer_free(p);
}

TEST(in_a_job_with_open_sets_the_server_says_which_rank_replaces_weights)
{
    peer *p = peer_new(&peer_four);
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    p->open_sets = true;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, PARAMS);
    peer_answer_declare(p, PARAMS, STEP);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_false(pd_core_leads(p->core));
    assert_int_equal(try_replace(p, (uint32_t[]){ 0 }, 1, NUMBER, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_INIT);
    peer_refuse(p, &l.prefix, PD_FAILED_PRECONDITION, "rank 1 sends them");
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "rank 1 sends them"));
    peer_free(p);
}

TEST(items_that_cannot_be_replaced_are_refused)
{
    peer *p = trained(&peer_first);

    assert_refused(p, (uint32_t[]){ 0 }, 1, 0, PD_INVALID_ARGUMENT, "must not be 0");
    assert_refused(p, (uint32_t[]){ 0 }, 0, NUMBER, PD_INVALID_ARGUMENT, "no items");
    assert_refused(p, (uint32_t[]){ PARAMS }, 1, NUMBER, PD_INVALID_ARGUMENT, "parameter 2, but 2 are declared");
    assert_refused(p, (uint32_t[]){ 1, 1 }, 2, NUMBER, PD_INVALID_ARGUMENT, "parameter p1 is in another item");
    peer_free(p);
}

TEST(weights_are_not_replaced_during_a_push)
{
    peer *p = trained(&peer_first);
    pd_ticket_id ticket = peer_push_pull(p, 1, SMALL);
    peer_frame l = peer_expect(p, PD_PUSH_PULL);

    assert_refused(p, (uint32_t[]){ 1 }, 1, NUMBER, PD_INVALID_ARGUMENT, "p0 has a push under way");
    peer_reply_data(p, &l.prefix, 1, 1, STEP + 1, p->weights[0], SMALL);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_refused(p, (uint32_t[]){ 0, 1 }, 2, NUMBER, PD_INVALID_ARGUMENT,
                   "weights are replaced that are of one step");
    peer_free(p);
}

/* Answers Declare: the parameters are at `step`, with weights of the change `number`. */
static void answer_declare(peer *p, uint64_t step, uint64_t number)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[] = { &one, &one };
    peer_frame l = peer_expect(p, PD_DECLARE);

    one.step = step;
    one.initialised = true;
    one.replaces = number;
    message.parameters = all;
    message.n_parameters = PARAMS;
    peer_reply(p, &l.prefix, &message.base, NULL, 0);
    peer_frame_drop(&l);
}

static void come_back(peer *p, uint64_t step, uint64_t number)
{
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    answer_declare(p, step, number);
}

TEST(all_weights_are_sent_again_on_a_new_connection)
{
    peer *p = trained(&peer_first);
    pd_ticket_id ticket = replace_both(p);

    expect_weights(p, true);
    expect_weights(p, false);
    come_back(p, STEP, 0);
    for (int i = 0; i < 4; i++) {
        assert_false(pd_core_done(p->core, ticket));
        expect_weights(p, true);
    }
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_free(p);
}

TEST(weights_that_are_sent_again_stay_those_of_their_step)
{
    peer *p = trained(&peer_first);
    pd_ticket_id ticket = replace_both(p);
    pd_error err;
    peer_frame l;

    expect_weights(p, false);
    come_back(p, STEP + 1, 0); /* an earlier process of the rank had pushed */
    l = peer_expect(p, PD_INIT);
    assert_int_equal(((const Paramd__InitRequest *)l.message)->step, STEP);
    peer_refuse(p, &l.prefix, PD_FAILED_PRECONDITION, "for step 7, but it has closed step 8");
    peer_frame_drop(&l);
    for (int i = 1; i < 4; i++) {
        l = peer_expect(p, PD_INIT);
        peer_refuse(p, &l.prefix, PD_FAILED_PRECONDITION, "for step 7, but it has closed step 8");
        peer_frame_drop(&l);
    }
    assert_int_equal(peer_finish(p, ticket, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(push_number(p, 0, STEP + 1), 0);
    peer_free(p);
}

TEST(a_new_process_brings_the_number_of_the_weights_that_it_receives)
{
    pd_core_config config = peer_four;
    peer *p = peer_new(&config);
    pd_ticket_id ticket;

    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, PARAMS);
    answer_declare(p, STEP, NUMBER);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(push_number(p, 0, STEP), NUMBER);
    assert_int_equal(push_number(p, 0, STEP + 1), 0);
    peer_free(p);
}

TEST(a_server_that_has_lost_the_change_ends_the_handle_of_rank_0)
{
    peer *p = trained(&peer_first);

    replace_and_answer(p);
    come_back(p, STEP, 0);
    assert_true(p->core->end.gone_back);
    assert_non_null(strstr(p->core->end.error.text, "it has lost weights that were replaced after step 7"));
    peer_free(p);
}

TEST(a_server_that_still_has_the_change_goes_on)
{
    peer *p = trained(&peer_first);

    replace_and_answer(p);
    come_back(p, STEP, NUMBER);
    assert_false(p->core->end.gone_back);
    assert_int_equal(push_number(p, 0, STEP), NUMBER);
    peer_free(p);
}

TEST(a_window_does_not_reach_back_over_a_change)
{
    pd_core_config config = with_window(20);
    peer *p = trained(&config);

    assert_int_equal(push_number(p, 0, STEP), 0);
    assert_int_equal(push_number(p, 0, STEP + 1), 0);
    come_back(p, STEP + 1, 0);
    assert_false(p->core->end.gone_back);
    peer_free(p);

    p = trained(&config);
    replace_and_answer(p);
    assert_int_equal(push_number(p, 0, STEP), NUMBER);
    come_back(p, STEP, 0);
    assert_true(p->core->end.gone_back);
    peer_free(p);
}

TEST(a_window_sends_the_steps_after_a_change_again)
{
    pd_core_config config = with_window(20);
    peer *p = trained(&config);
    peer_frame l;

    replace_and_answer(p);
    assert_int_equal(push_number(p, 0, STEP), NUMBER);
    come_back(p, STEP, NUMBER);
    assert_false(p->core->end.gone_back);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(((const Paramd__PushRequest *)l.message)->replaces, NUMBER);
    peer_frame_drop(&l);
    peer_free(p);
}

/* Takes two steps as rank 2, the second with weights that were changed by hand if `number` is not 0. Then the server
 * goes back before both, and answers the first one with other weights. Returns the code with which the handle has
 * ended. */
static int repeat_with_other_weights(uint64_t number)
{
    static float other[SMALL] = { 1, 2, 3 };
    pd_core_config config = peer_four;
    peer *p;
    peer_frame l;
    int code;

    config.window = 20;
    p = trained(&config);
    assert_int_equal(push_number(p, 0, STEP), 0);
    assert_int_equal(push_number(p, number, STEP + 1), number);
    come_back(p, STEP, 0);
    l = peer_expect(p, PD_PUSH_PULL);
    peer_reply_data(p, &l.prefix, 1, 1, STEP + 1, other, SMALL);
    peer_frame_drop(&l);
    code = p->core->end.error.code;
    peer_free(p);
    return code;
}

TEST(weights_from_before_a_change_are_not_compared_with_those_after_it)
{
    assert_int_equal(repeat_with_other_weights(0), PD_FAILED_PRECONDITION);
    assert_int_equal(repeat_with_other_weights(NUMBER), PD_OK);
}

TEST(the_weights_of_the_last_step_are_not_compared_by_a_process_that_changes_weights)
{
    static float other[SMALL] = { 1, 2, 3 };
    pd_core_config config = peer_four;
    peer *p;
    peer_frame l;

    config.window = 20;
    p = trained(&config);
    assert_int_equal(push_number(p, NUMBER, STEP), NUMBER);
    assert_int_equal(push_number(p, 0, STEP + 1), 0);
    come_back(p, STEP + 1, 0); /* rank 0 may have changed the weights of step 9 before they came */
    l = peer_expect(p, PD_PUSH_PULL);
    peer_reply_data(p, &l.prefix, 1, 1, STEP + 2, other, SMALL);
    peer_frame_drop(&l);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

TEST(other_ranks_send_their_pushes_again)
{
    pd_core_config config = peer_four;
    peer *p;
    peer_frame l;

    config.window = 20;
    p = trained(&config);
    assert_int_equal(push_number(p, NUMBER, STEP), NUMBER);
    come_back(p, STEP, 0);
    assert_false(p->core->end.gone_back);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(((const Paramd__PushRequest *)l.message)->replaces, NUMBER);
    peer_frame_drop(&l);
    peer_free(p);
}
