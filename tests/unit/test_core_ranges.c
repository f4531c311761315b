/* Tests ranges in the client's core: how a range is declared, how a shard is cut along the chunks of the whole tensor,
 * and where its weights are written. */
#include "test.h"
#include "peer.h"

enum { START = 50, END = 200 }; /* in chunks of 64, the shard is cut into 50-64, 64-128, 128-192 and 192-200 */

/* A whole parameter, a shard and an empty shard, declared by rank 2 or rank 0. */
static const pd_client_param params[] = {
    { .name = "whole", .shape = { 1, { 3 } } },
    { .name = "shard", .shape = { 2, { 3, 100 } }, .ranged = true, .start = START, .end = END },
    { .name = "empty", .shape = { 1, { 100 } }, .ranged = true, .start = 70, .end = 70 },
};

static peer *running(const pd_core_config *config, bool initialised)
{
    peer *p = peer_new(config);
    Paramd__DeclareReply reply = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[] = { &one, &one, &one };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(pd_core_declare(p->core, params, 3, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_DECLARE);
    one.initialised = initialised;
    reply.parameters = all;
    reply.n_parameters = 3;
    reply.must_init = !initialised;
    peer_reply(p, &l.prefix, &reply.base, NULL, 0);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    return p;
}

TEST(declares_the_ranges)
{
    peer *p = peer_new(&peer_four);
    Paramd__DeclareRequest *declare;
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(pd_core_declare(p->core, params, 3, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_DECLARE);
    declare = l.message;
    assert_false(declare->parameters[0]->ranged);
    assert_int_equal(declare->parameters[0]->range_start | declare->parameters[0]->range_end, 0);
    assert_true(declare->parameters[1]->ranged);
    assert_int_equal(declare->parameters[1]->range_start, START);
    assert_int_equal(declare->parameters[1]->range_end, END);
    assert_int_equal(declare->parameters[1]->n_shape, 2);
    assert_true(declare->parameters[2]->ranged);
    assert_int_equal(declare->parameters[2]->range_start, 70);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(refuses_an_invalid_range)
{
    static const struct {
        bool ranged;
        int64_t start, end;
        const char *says;
    } wrong[] = {
        { true, 5, 4, "range of elements 5 to 4: expected 0 <= start <= end <= 10" },
        { true, 0, 11, "0 to 11" },
        { true, -1, 3, "-1 to 3" },
        { true, 11, 11, "11 to 11" },
        { false, 0, 3, "start and end need `ranged`" },
    };

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        pd_client_param param = {
            .name = "w", .shape = { 1, { 10 } }, .ranged = wrong[i].ranged, .start = wrong[i].start, .end = wrong[i].end
        };
        peer *p = peer_new(&peer_four);
        pd_ticket_id ticket;
        pd_error err;
        assert_int_equal(pd_core_declare(p->core, &param, 1, &ticket, &err), PD_INVALID_ARGUMENT);
        if (strstr(err.text, wrong[i].says) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, wrong[i].says);
        peer_free(p);
    }
}

/* Checks and answers one push-pull frame of a shard. Element i of the parameter gets the weight 1000 + i. */
static void answer_piece(peer *p, uint64_t first, uint64_t count, const float *gradient)
{
    peer_frame l = peer_expect(p, PD_PUSH_PULL);
    const Paramd__PushRequest *push = l.message;
    float weights[64];

    assert_int_equal(push->n_pieces, 1);
    assert_int_equal(push->pieces[0]->handle, 1);
    assert_int_equal(push->pieces[0]->first, first);
    assert_int_equal(push->pieces[0]->count, count);
    assert_memory_equal(l.payload, gradient + (first - START), count * sizeof(float));
    for (uint64_t i = 0; i < count; i++) weights[i] = 1000 + (float)(first + i);
    assert_int_equal(peer_reply_data(p, &l.prefix, 1, 1, 1, weights, count), PD_OK);
    peer_frame_drop(&l);
}

TEST(a_shard_is_cut_along_the_chunks_of_the_whole_tensor)
{
    peer *p = running(&peer_four, true);
    float gradient[END - START], weights[END - START + 1] = { 0 };
    pd_item item = { .param = 1, .gradient = gradient, .weights = weights };
    pd_ticket_id ticket;
    pd_error err;

    for (int i = 0; i < END - START; i++) gradient[i] = (float)i;
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, &item, 1, NULL, &ticket, &err), PD_OK);
    answer_piece(p, 50, 14, gradient);
    answer_piece(p, 64, 64, gradient);
    answer_piece(p, 128, 64, gradient);
    answer_piece(p, 192, 8, gradient);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    for (int i = 0; i < END - START; i++) assert_true(weights[i] == (float)(1000 + START + i));
    assert_true(weights[END - START] == 0);
    assert_int_equal(pd_core_stats(p->core).payload_out, sizeof gradient);
    assert_int_equal(pd_core_stats(p->core).payload_in, sizeof gradient);
    peer_free(p);
}

TEST(an_empty_shard_needs_no_memory)
{
    static const char byte;
    peer *p = running(&peer_four, true);
    pd_item items[] = { { .param = 2, .gradient = &byte }, { .param = 0 } };
    const Paramd__PushRequest *push;
    const Paramd__PullRequest *pull;
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    assert_int_equal(pd_core_pull(p->core, items + 1, 1, 0, PD_FORM_TRAIN, &ticket, &err),
                     PD_INVALID_ARGUMENT); /* a pull needs a buffer, since this parameter has elements */
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 1, NULL, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_PUSH_PULL);
    push = l.message;
    assert_int_equal(push->n_pieces, 1);
    assert_false(push->pieces[0]->absent);
    assert_int_equal(push->pieces[0]->first, 70);
    assert_int_equal(push->pieces[0]->count, 0);
    assert_int_equal(l.prefix.payload_bytes, 0);
    assert_int_equal(peer_reply_data(p, &l.prefix, 1, 0, 0, NULL, 0), PD_OK);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);

    items[0].gradient = NULL; /* the gradient of an empty shard may be a null pointer */
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 1, NULL, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_true(((const Paramd__PushRequest *)l.message)->pieces[0]->absent);
    assert_int_equal(peer_reply_data(p, &l.prefix, 1, 0, 0, NULL, 0), PD_OK);
    peer_frame_drop(&l);
    l = peer_expect(p, PD_PULL);
    pull = l.message;
    assert_int_equal(pull->wants[0]->first, 70);
    assert_int_equal(pull->wants[0]->count, 0);
    assert_int_equal(peer_reply_data(p, &l.prefix, 1, 0, 0, NULL, 0), PD_OK);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    peer_free(p);
}

/* Rank 0 alone initializes a parameter without ranges. Every rank that has elements initializes its own range. */
TEST(a_rank_initialises_the_parameters_that_it_is_asked_for)
{
    for (int first = 0; first < 2; first++) {
        peer *p = running(first ? &peer_first : &peer_four, false);
        float whole[3] = { 0 }, shard[END - START];
        void *weights[] = { whole, shard, NULL };
        size_t frames = first ? 5 : 4, elements = 0;
        pd_ticket_id ticket;
        pd_error err;
        for (int i = 0; i < END - START; i++) shard[i] = (float)i;
        assert_int_equal(pd_core_init(p->core, weights, &ticket, &err), PD_OK);
        for (size_t i = 0; i < frames; i++) {
            peer_frame l = peer_expect(p, PD_INIT);
            const Paramd__InitRequest *init = l.message;
            for (size_t k = 0; k < init->n_pieces; k++) {
                assert_int_equal(init->pieces[k]->handle, first && i == 0 ? 0 : 1);
                elements += init->pieces[k]->count;
            }
            assert_int_equal(peer_reply_ok(p, &l.prefix), PD_OK);
            peer_frame_drop(&l);
        }
        peer_expect_silence(p);
        assert_int_equal(elements, END - START + (first ? 3 : 0));
        assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
        peer_free(p);
    }
}
