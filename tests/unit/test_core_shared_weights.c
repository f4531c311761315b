/* Tests the client's core where weights lie in the server's segment of shared memory: it copies them from the right
 * places, and releases them. */
#include "test.h"
#include "descriptors.h"
#include "peer.h"

enum { PARAMS = 2, LARGE = 3 * CHUNK, LENT = 100000 };

static const int64_t sizes[PARAMS] = { 5000, LARGE };

static peer *sharing(uint64_t bytes)
{
    return peer_sharing(sizes, PARAMS, bytes);
}

static float gradients[2][5000], weights[2][5000];

/* Pushes and pulls, and answers with weights that begin at these places. Returns what the framer says. */
static int pull_from(peer *p, const uint64_t *places, pd_ticket_id *ticket)
{
    static pd_item items[PARAMS];
    peer_frame l;
    int rc;

    for (size_t i = 0; i < PARAMS; i++)
        items[i] = (pd_item){ .param = i, .gradient = gradients[i], .weights = weights[i] };
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, PARAMS, NULL, ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PUSH_PULL);
    rc = peer_reply_shared(p, &l.prefix, PARAMS, 1, places, 20032 + LARGE * 4);
    peer_frame_drop(&l);
    return rc;
}

TEST(weights_are_copied_from_where_the_server_says)
{
    static const uint64_t places[] = { 40004, 64 };
    peer *p = sharing(LENT);
    pd_ticket_id ticket;

    assert_int_equal(pull_from(p, places, &ticket), PD_OK);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    for (size_t i = 0; i < 20000; i++) assert_int_equal(((const uint8_t *)weights[0])[i], (uint8_t)((40004 + i) * 7));
    for (size_t i = 0; i < LARGE * 4; i++) assert_int_equal(((const uint8_t *)weights[1])[i], (uint8_t)((64 + i) * 7));
    peer_free(p);
}

TEST(counts_weights_in_shared_memory)
{
    static const uint64_t places[] = { 0, 64 };
    peer *p = sharing(LENT);
    pd_ticket_id ticket;

    pull_from(p, places, &ticket);
    assert_int_equal(pd_core_stats(p->core).shared_in, 20000 + LARGE * 4);
    assert_int_equal(pd_core_stats(p->core).payload_in, 20000 + LARGE * 4);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_free(p);
}

/* Checks that weights which begin at `place` break the protocol. */
static void assert_outside(uint64_t place)
{
    const uint64_t places[] = { place, 64 };
    peer *p = sharing(LENT);
    pd_ticket_id ticket;
    pd_error err;
    int rc = pull_from(p, places, &ticket);

    assert_int_equal(rc, PD_INTERNAL);
    assert_int_equal(peer_finish(p, ticket, &err), PD_INTERNAL);
    assert_non_null(strstr(err.text, "its weights are outside the shared memory"));
    peer_free(p);
}

TEST(weights_outside_the_servers_segment_are_refused)
{
    static const uint64_t places[] = { LENT - 20000 + 1, LENT, LENT + 64, UINT64_MAX, UINT64_MAX - 19999 };

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) assert_outside(places[i]);
}

TEST(weights_in_a_segment_that_never_came_are_refused)
{
    static const uint64_t places[] = { 0, 0 };
    peer *p = sharing(0);
    pd_ticket_id ticket;

    assert_true(pull_from(p, places, &ticket) != PD_OK);
    peer_free(p);
}

/* The server may write other weights there as soon as the connection has ended. */
TEST(weights_copied_after_the_server_has_closed_do_not_end_the_pull)
{
    static const uint64_t places[] = { 0, 64 };
    peer *p = sharing(LENT);
    pd_ticket_id ticket;

    p->has_closed = true;
    assert_int_equal(pull_from(p, places, &ticket), PD_CANCELLED);
    assert_false(pd_core_done(p->core, ticket));
    peer_free(p);
}

TEST(an_answer_that_holds_no_weights_cannot_lie_in_shared_memory)
{
    pd_prefix none = { .method = PD_BARRIER };
    peer *p = sharing(LENT);
    pd_ticket_id ticket;
    peer_frame l;

    assert_int_equal(pd_core_barrier(p->core, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_BARRIER);
    none.request = l.prefix.request;
    assert_true(peer_reply_shared(p, &none, 0, 1, NULL, 64) != PD_OK);
    peer_frame_drop(&l);
    peer_free(p);
}

/* Expects a Release after the core has been told the time. Returns how many answers it releases. */
static uint64_t expect_release(peer *p, pd_prefix *prefix)
{
    peer_frame l;
    uint64_t n;

    pd_core_tick(p->core, p->now);
    l = peer_expect(p, PD_RELEASE);
    n = ((const Paramd__ReleaseRequest *)l.message)->answers;
    *prefix = l.prefix;
    peer_frame_drop(&l);
    return n;
}

/* Answers a pull of all weights with shared memory. */
static void answer_pull(peer *p)
{
    static const uint64_t places[] = { 0, 64 };
    static pd_item items[PARAMS];
    pd_ticket_id ticket;
    peer_frame l;

    for (size_t i = 0; i < PARAMS; i++) items[i] = (pd_item){ .param = i, .weights = weights[i] };
    assert_int_equal(pd_core_pull(p->core, items, PARAMS, 0, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PULL);
    assert_int_equal(peer_reply_shared(p, &l.prefix, PARAMS, 1, places, 20032 + LARGE * 4), PD_OK);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

TEST(every_answer_that_was_read_is_released)
{
    peer *p = sharing(LENT);
    pd_prefix prefix;

    for (int i = 0; i < 3; i++) answer_pull(p);
    assert_int_equal(expect_release(p, &prefix), 3);
    peer_free(p);
}

TEST(a_second_release_waits_for_the_answer_to_the_first)
{
    peer *p = sharing(LENT);
    pd_prefix prefix;

    answer_pull(p);
    expect_release(p, &prefix);
    answer_pull(p);
    answer_pull(p);
    pd_core_tick(p->core, p->now);
    peer_expect_silence(p);
    peer_reply_ok(p, &prefix);
    assert_int_equal(expect_release(p, &prefix), 2);
    peer_free(p);
}

TEST(an_answer_to_a_pull_that_nobody_waits_for_is_released_too)
{
    static const uint64_t places[] = { 0, 64 };
    pd_prefix unknown = { .method = PD_PULL, .request = 12345 }, prefix;
    peer *p = sharing(LENT);

    assert_int_equal(peer_reply_shared(p, &unknown, PARAMS, 1, places, 20032 + LARGE * 4), PD_OK);
    assert_int_equal(expect_release(p, &prefix), 1);
    peer_free(p);
}

TEST(nothing_is_released_on_the_next_connection)
{
    peer *p = sharing(LENT);

    answer_pull(p);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, 1);
    peer_share(p, memfd_sealed(LENT, 0), LENT);
    pd_core_tick(p->core, p->now);
    peer_expect_silence(p);
    peer_free(p);
}
