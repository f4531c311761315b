/* Tests declarations in the client's core: how axes and model state are sent, and how the notes that optimizers
 * write about parameters are received. Also tests that the core never sends a sparse gradient. */
#include "test.h"
#include "peer.h"

static const pd_client_param params[] = {
    { .name = "kernel", .shape = { 2, { 3, 4 } }, .axes = "embed,mlp" },
    { .name = "mean", .shape = { 1, { 4 } }, .axes = "", .model_state = true, .fragment = 1 },
};
enum { N = 2 };

static peer *welcomed(void)
{
    peer *p = peer_new(&peer_four);

    peer_connect(p);
    peer_welcome(p);
    return p;
}

/* Answers the Declare that was just received, with a note on the first parameter. While the core reads the answer,
 * its allocation number n fails; no allocation fails if n is -1. Returns whether an allocation failed. */
static bool answer_short(peer *p, const pd_prefix *to, const char *note, int64_t n)
{
    Paramd__DeclareReply reply = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared at[N] = { PARAMD__DECLARED__INIT, PARAMD__DECLARED__INIT }, *list[N] = { &at[0], &at[1] };
    uint8_t *frame;
    size_t bytes;
    bool failed = false;

    at[0].note = (char *)note;
    reply.parameters = list;
    reply.n_parameters = N;
    assert_int_equal(pd_frame_pack(&frame, &bytes, to->method, PD_FLAG_REPLY, to->request, &reply.base, NULL, 0, 0),
                     PD_OK);
    if (n >= 0) oom_arm(n);
    peer_feed(p, frame, bytes);
    if (n >= 0) failed = oom_disarm();
    free(frame);
    return failed;
}

static void answer(peer *p, const pd_prefix *to, const char *note)
{
    answer_short(p, to, note, -1);
}

static pd_ticket_id declare(peer *p)
{
    pd_ticket_id ticket;
    pd_error err;

    if (pd_core_declare(p->core, params, N, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
    return ticket;
}

static void run(peer *p, const char *note)
{
    pd_ticket_id ticket = declare(p);
    peer_frame l = peer_expect(p, PD_DECLARE);
    pd_error err;

    answer(p, &l.prefix, note);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
}

TEST(a_declaration_brings_axes_and_model_state)
{
    peer *p = welcomed();
    peer_frame l;
    const Paramd__DeclareRequest *request;
    declare(p);
    l = peer_expect(p, PD_DECLARE);
    request = l.message;
    assert_string_equal(request->parameters[0]->axes, "embed,mlp");
    assert_false(request->parameters[0]->model_state);
    assert_string_equal(request->parameters[1]->axes, "");
    assert_true(request->parameters[1]->model_state);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_declaration_brings_the_fragment)
{
    peer *p = welcomed();
    peer_frame l;
    const Paramd__DeclareRequest *request;
    declare(p);
    l = peer_expect(p, PD_DECLARE);
    request = l.message;
    assert_int_equal(request->parameters[0]->fragment, 0);
    assert_int_equal(request->parameters[1]->fragment, 1);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(bad_axes_are_refused_before_anything_is_sent)
{
    pd_client_param bad = { .name = "kernel", .shape = { 2, { 3, 4 } }, .axes = "embed" };
    peer *p = welcomed();
    pd_ticket_id ticket;
    pd_error err;
    assert_int_equal(pd_core_declare(p->core, &bad, 1, &ticket, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text,
                        "parameter kernel: axes: expected a name for each of 2 dimensions, got 1 in \"embed\"");
    peer_expect_silence(p);
    declare(p); /* the corrected declaration is accepted */
    peer_free(p);
}

TEST(a_note_can_be_read_once_the_parameters_are_declared)
{
    peer *p = welcomed();
    assert_string_equal(pd_core_note(p->core, 0), "");
    run(p, "a rule has no effect");
    assert_string_equal(pd_core_note(p->core, 0), "a rule has no effect");
    assert_string_equal(pd_core_note(p->core, 1), "");
    assert_string_equal(pd_core_note(p->core, N), "");
    peer_free(p);
}

/* Breaks the connection and connects again. Answers the core's repeated Declare with `note`. */
static void run_again(peer *p, const char *note)
{
    peer_frame l;

    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    l = peer_expect(p, PD_DECLARE);
    answer(p, &l.prefix, note);
    peer_frame_drop(&l);
}

/* A reconnect must neither move nor replace the note, because the caller may have kept a pointer to it. */
TEST(a_note_stays_where_it_is_after_a_reconnect)
{
    peer *p = welcomed();
    const char *before;
    run(p, "first");
    before = pd_core_note(p->core, 0);
    run_again(p, "second");
    assert_ptr_equal(pd_core_note(p->core, 0), before);
    assert_string_equal(before, "first");
    peer_free(p);
}

TEST(without_memory_a_note_is_asked_for_again)
{
    bool failed = true;
    int64_t n;
    for (n = 0; failed; n++) {
        peer *p = welcomed();
        pd_ticket_id ticket = declare(p);
        peer_frame l = peer_expect(p, PD_DECLARE);
        pd_error err;
        failed = answer_short(p, &l.prefix, "a note", n);
        peer_frame_drop(&l);
        if (failed) {
            assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
            run_again(p, "a note");
        }
        assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
        assert_string_equal(pd_core_note(p->core, 0), "a note");
        peer_free(p);
    }
    assert_true(n > 1);
}

TEST(without_memory_nothing_is_declared)
{
    bool failed = true;
    for (int64_t n = 0; failed; n++) {
        peer *p = peer_new(&peer_four); /* the core has no connection, so the Declare is not sent yet */
        pd_ticket_id ticket;
        pd_error err;
        int rc;
        oom_arm(n);
        rc = pd_core_declare(p->core, params, N, &ticket, &err);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        if (failed) assert_int_equal(pd_core_declare(p->core, params, N, &ticket, &err), PD_OK);
        peer_free(p);
    }
}

TEST(a_sparse_gradient_is_not_sent)
{
    float gradient[12] = { 0 };
    pd_item item = { .param = 0, .gradient = gradient };
    peer *p = welcomed();
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;
    run(p, "");
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, &(pd_push_options){ .sparse = true }, &ticket, &err),
                     PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "parameter kernel: its gradient is sparse, and a parameter must be dense here: make "
                                  "it dense before the push (in PyTorch: Embedding(sparse=False), or grad.to_dense())");
    peer_expect_silence(p);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_PUSH);
    peer_frame_drop(&l);
    peer_free(p);
}
