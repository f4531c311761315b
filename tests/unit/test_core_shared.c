/* Tests the client's core over a connection that passes descriptors: when it offers to share memory, when it goes on
 * without, and what it tells the server. */
#include "test.h"
#include "descriptors.h"
#include "peer.h"
#include "sharing.h"

enum { PARAMS = 2, LARGE = 3 * CHUNK };

/* Two parameters. The peer allows frames of a MiB, so one push has both. */
static const int64_t sizes[PARAMS] = { 5000, LARGE };

static peer *connected(const pd_core_config *config)
{
    peer *p = peer_new(config);

    p->local = true;
    p->chunk_elements = SHARED_CHUNK;
    peer_connect(p);
    return p;
}

/* Returns a peer whose core has declared its parameters and offers its segment next. */
static peer *declared(pd_ticket_id *ticket)
{
    peer *p = connected(&peer_four);

    peer_welcome(p);
    *ticket = peer_declare(p, sizes, PARAMS);
    peer_answer_declare(p, PARAMS, 0);
    return p;
}

static peer *sharing(uint64_t bytes)
{
    return peer_sharing(sizes, PARAMS, bytes);
}

static float gradients[2][5000], weights[2][5000];

static pd_ticket_id push(peer *p, unsigned method)
{
    static pd_item items[PARAMS];
    pd_ticket_id ticket;
    pd_error err;

    for (size_t i = 0; i < PARAMS; i++) {
        for (int64_t k = 0; k < sizes[i]; k++) gradients[i][k] = (float)(k + (int64_t)i);
        items[i] =
            (pd_item){ .param = i, .gradient = gradients[i], .weights = method == PD_PUSH_PULL ? weights[i] : NULL };
    }
    if (pd_core_push(p->core, method, items, PARAMS, NULL, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
    return ticket;
}

static bool is_shared(const peer_frame *l)
{
    return (l->prefix.flags & PD_FLAG_SHARED) != 0;
}

/* Expects a push, and returns whether its payload is in shared memory. It is the gradients wherever it is. */
static bool expect_push(peer *p)
{
    peer_frame l = peer_expect(p, PD_PUSH);
    bool shared = is_shared(&l);

    assert_int_equal(l.prefix.payload_bytes, 5000 * 4 + 32 + LARGE * 4);
    assert_memory_equal(l.payload, gradients[0], 20000);
    assert_memory_equal(l.payload + 20032, gradients[1], LARGE * 4);
    peer_frame_drop(&l);
    return shared;
}

/* Returns whether the Hello of a new core says that it shares. */
static bool says_shares(const pd_core_config *config, bool local)
{
    peer *p = peer_new(config);
    peer_frame l;
    bool shares;

    p->local = local;
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    shares = ((const Paramd__HelloRequest *)l.message)->shares;
    peer_frame_drop(&l);
    peer_free(p);
    return shares;
}

HOLDS(a_worker_says_that_it_shares_over_a_connection_that_passes_descriptors,
      assert_true(says_shares(&peer_four, true)));

HOLDS(a_worker_does_not_share_over_another_connection, assert_false(says_shares(&peer_four, false)));

TEST(a_worker_does_not_share_where_its_user_forbids_it)
{
    pd_core_config config = peer_four;

    config.no_shared_memory = true;
    assert_false(says_shares(&config, true));
}

TEST(a_worker_whose_frames_have_checksums_does_not_share)
{
    pd_core_config config = peer_four;

    config.checksum = true;
    assert_false(says_shares(&config, true));
}

TEST(an_operator_does_not_share)
{
    pd_core_config config = peer_four;

    config.job = "";
    assert_false(says_shares(&config, true));
}

TEST(offers_its_segment_when_the_parameters_are_accepted)
{
    pd_ticket_id ticket;
    peer *p = declared(&ticket);
    peer_frame l = peer_expect(p, PD_SHARE);

    assert_true(((const Paramd__ShareRequest *)l.message)->bytes >= (5000 + LARGE) * 4);
    assert_true(p->came >= 0);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(pushes_wait_for_the_answer_to_the_offer)
{
    pd_ticket_id ticket;
    peer *p = declared(&ticket);
    peer_frame l = peer_expect(p, PD_SHARE);

    push(p, PD_PUSH);
    peer_expect_silence(p);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_gradient_is_copied_to_the_segment)
{
    peer *p = sharing(100000);

    push(p, PD_PUSH);
    assert_true(expect_push(p));
    assert_int_equal(pd_core_stats(p->core).shared_out, 20032 + LARGE * 4);
    peer_free(p);
}

TEST(a_gradient_computed_in_its_buffer_is_found_there)
{
    peer *p = sharing(100000);
    float *at = pd_core_buffer(p->core, 0);
    pd_item item = { .param = 0, .gradient = at };
    pd_ticket_id ticket;
    peer_frame l;

    for (int i = 0; i < 5000; i++) at[i] = (float)i;
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PUSH);
    assert_true(is_shared(&l));
    at[3] = 99; /* what the peer reads is the caller's own memory */
    assert_int_equal(((const float *)(const void *)l.payload)[3], 99);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_server_that_lends_nothing_still_reads_pushes)
{
    peer *p = sharing(0);

    push(p, PD_PUSH);
    assert_true(expect_push(p));
    peer_free(p);
}

TEST(goes_on_through_the_socket_when_the_offer_is_refused)
{
    pd_ticket_id ticket;
    peer *p = declared(&ticket);
    peer_frame l = peer_expect(p, PD_SHARE);

    push(p, PD_PUSH);
    assert_int_equal(peer_refuse(p, &l.prefix, PD_FAILED_PRECONDITION, "the server shares no memory"), PD_OK);
    assert_false(expect_push(p));
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(goes_on_through_the_socket_where_no_segment_can_be_made)
{
    pd_ticket_id ticket;
    peer *p = connected(&peer_four);

    peer_welcome(p);
    ticket = peer_declare(p, sizes, PARAMS);
    descriptors_forbid();
    peer_answer_declare(p, PARAMS, 0);
    descriptors_allow();
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    push(p, PD_PUSH);
    assert_false(expect_push(p));
    peer_free(p);
}

/* Connects anew after the core has dropped a connection. It does not offer to share again. */
static void expect_no_second_offer(peer *p)
{
    peer_frame l;

    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    peer_cut(p);
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    assert_false(((const Paramd__HelloRequest *)l.message)->shares);
    peer_frame_drop(&l);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, 0);
    push(p, PD_PUSH);
    assert_false(expect_push(p));
}

TEST(connects_anew_without_sharing_when_the_descriptor_is_missing)
{
    pd_ticket_id ticket;
    peer *p = declared(&ticket);

    peer_share(p, -1, 100000);
    assert_non_null(strstr(p->core->link.reason, "the request has no file descriptor"));
    expect_no_second_offer(p);
    peer_free(p);
}

TEST(connects_anew_without_sharing_when_the_servers_segment_cannot_be_mapped)
{
    pd_ticket_id ticket;
    peer *p = declared(&ticket);

    peer_share(p, memfd_sealed(99999, 0), 100000);
    assert_non_null(strstr(p->core->link.reason, "expected a memfd of 100000 bytes"));
    expect_no_second_offer(p);
    peer_free(p);
}

TEST(offers_again_on_the_next_connection)
{
    peer *p = sharing(100000);

    push(p, PD_PUSH);
    assert_true(expect_push(p));
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, 0);
    peer_share(p, memfd_sealed(100000, 0), 100000);
    assert_true(expect_push(p));
    peer_free(p);
}

TEST(a_push_goes_through_the_socket_of_a_connection_that_does_not_share)
{
    peer *p = sharing(100000);

    push(p, PD_PUSH);
    assert_true(expect_push(p));
    peer_cut(p);
    p->local = false;
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, 0);
    assert_false(expect_push(p));
    peer_free(p);
}

/* Pushes under way have copies in the segment, so a buffer that does not fit beside them lies elsewhere. */
TEST(a_buffer_is_there_while_copies_have_the_segment)
{
    peer *p = sharing(100000);
    uint64_t bytes;
    float *at;

    push(p, PD_PUSH);
    assert_true(expect_push(p));
    bytes = p->core->out.staging.segment.bytes;
    at = pd_core_buffer(p->core, 0);
    assert_non_null(at);
    assert_true((uint8_t *)at < p->core->out.staging.segment.at ||
                (uint8_t *)at >= p->core->out.staging.segment.at + bytes);
    for (int64_t i = 0; i < sizes[0]; i++) assert_true(at[i] == 0);
    assert_ptr_equal(pd_core_buffer(p->core, 0), at);
    peer_free(p);
}

TEST(a_buffer_needs_declared_parameters)
{
    peer *p = connected(&peer_four);

    peer_welcome(p);
    assert_null(pd_core_buffer(p->core, 0));
    peer_free(p);
}

TEST(a_buffer_needs_a_parameter)
{
    peer *p = sharing(100000);

    assert_null(pd_core_buffer(p->core, PARAMS));
    peer_free(p);
}

TEST(buffers_of_all_parameters_are_apart)
{
    peer *p = sharing(100000);
    float *first = pd_core_buffer(p->core, 0), *second = pd_core_buffer(p->core, 1);

    assert_true(first + sizes[0] <= second || second + sizes[1] <= first);
    peer_free(p);
}

/* Pushes both parameters from these places. Returns the ticket, and the push's frame. */
static pd_ticket_id push_from(peer *p, float *const *at, peer_frame *frame)
{
    static pd_item items[PARAMS];
    pd_ticket_id ticket;
    pd_error err;

    for (size_t i = 0; i < PARAMS; i++) items[i] = (pd_item){ .param = i, .gradient = at[i] };
    if (pd_core_push(p->core, PD_PUSH, items, PARAMS, NULL, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
    *frame = peer_expect(p, PD_PUSH);
    return ticket;
}

static void get_buffers(peer *p, float **at)
{
    for (size_t i = 0; i < PARAMS; i++) assert_non_null(at[i] = pd_core_buffer(p->core, i));
}

/* Pushes from the buffers, and lets the push fail. The server keeps what it has got. */
static void push_in_vain(peer *p, float **at)
{
    pd_ticket_id ticket;
    peer_frame l;

    get_buffers(p, at);
    ticket = push_from(p, at, &l);
    assert_true(is_shared(&l));
    peer_refuse(p, &l.prefix, PD_DEADLINE_EXCEEDED, "contributions so far are kept");
    assert_int_equal(peer_finish(p, ticket, NULL), PD_DEADLINE_EXCEEDED);
    peer_frame_drop(&l);
}

static bool are_handed_out(peer *p, float *const *at)
{
    float *now[PARAMS];

    get_buffers(p, now);
    assert_int_equal(now[0] == at[0], now[1] == at[1]);
    return now[0] == at[0];
}

static void push_answered(peer *p, float *const *at, uint64_t step)
{
    peer_frame l;
    pd_ticket_id ticket = push_from(p, at, &l);

    peer_reply_data(p, &l.prefix, PARAMS, PD_OUTCOME_STEPPED, step, NULL, 0);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_frame_drop(&l);
}

TEST(buffers_of_a_push_that_failed_are_handed_out_again_when_their_step_has_closed)
{
    peer *p = sharing(100000);
    float *at[PARAMS], *others[PARAMS];

    push_in_vain(p, at);
    assert_false(are_handed_out(p, at));
    get_buffers(p, others);
    for (int64_t i = 0; i < sizes[0]; i++) assert_true(others[0][i] == 0);
    assert_false(are_handed_out(p, at));
    assert_true(are_handed_out(p, others));
    push_answered(p, at, 1); /* once more the same values */
    assert_true(are_handed_out(p, at));
    peer_free(p);
}

/* Lets the core know that the server has closed a step. */
static void pull(peer *p, uint64_t step)
{
    pd_item items[PARAMS] = { { .param = 0, .weights = weights[0] }, { .param = 1, .weights = weights[1] } };
    pd_ticket_id ticket;
    peer_frame l;

    assert_int_equal(pd_core_pull(p->core, items, PARAMS, step, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PULL);
    peer_reply_data(p, &l.prefix, PARAMS, 0, step, gradients[0], (size_t)(sizes[0] + 8 + sizes[1]));
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(p->core->params[1].server_step, step);
    peer_frame_drop(&l);
}

/* The server may keep the push for a later step than the one that it was for. */
TEST(buffers_of_a_push_with_open_sets_are_handed_out_again_when_a_later_push_is_answered)
{
    peer *p = sharing(100000);
    float *at[PARAMS], *others[PARAMS];

    p->core->open_sets = true;
    push_in_vain(p, at);
    pull(p, 1);
    assert_false(are_handed_out(p, at));
    get_buffers(p, others);
    push_answered(p, others, 2);
    assert_true(are_handed_out(p, at));
    peer_free(p);
}

TEST(copies_of_a_push_with_open_sets_stay_until_a_later_push_is_answered)
{
    float *const at[PARAMS] = { gradients[0], gradients[1] };
    peer *p = sharing(100000);
    peer_frame l;

    p->core->open_sets = true;
    push_from(p, at, &l);
    assert_true(is_shared(&l));
    peer_refuse(p, &l.prefix, PD_DEADLINE_EXCEEDED, "contributions so far are kept");
    peer_frame_drop(&l);
    pull(p, 1);
    pd_sharing_release(p->core);
    assert_int_equal(p->core->out.staging.given_up, 1);
    push_answered(p, at, 2);
    pd_sharing_release(p->core);
    assert_int_equal(p->core->out.staging.given_up, 0);
    peer_free(p);
}

TEST(nobody_reads_buffers_for_an_earlier_life_of_the_job)
{
    peer *p = sharing(100000);
    float *at[PARAMS];

    push_in_vain(p, at);
    assert_false(are_handed_out(p, at));
    peer_cut(p);
    p->life++;
    peer_connect(p);
    peer_welcome(p);
    assert_true(are_handed_out(p, at));
    peer_free(p);
}

TEST(a_core_that_is_freed_keeps_no_descriptor)
{
    int before = descriptors_open(0);
    peer *p = sharing(100000);

    push(p, PD_PUSH);
    peer_free(p);
    assert_int_equal(descriptors_open(0), before);
}

/* Offers to share with the n-th allocation failing. Returns whether one failed. Whatever fails, the core pushes. */
static bool offer_without_memory(int64_t n)
{
    peer *p = connected(&peer_four);
    pd_ticket_id ticket;
    bool failed;

    peer_welcome(p);
    ticket = peer_declare(p, sizes, PARAMS);
    (void)ticket;
    oom_arm(n);
    (void)pd_sharing_begin(p->core);
    failed = oom_disarm();
    peer_free(p);
    return failed;
}

TEST(an_offer_that_has_no_memory_leaks_nothing)
{
    int before = descriptors_open(0);
    int64_t n = 0;

    while (offer_without_memory(n)) n++;
    assert_true(n > 0);
    assert_int_equal(descriptors_open(0), before);
}
