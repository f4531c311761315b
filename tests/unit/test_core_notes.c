/* Tests what the client's core does about checkpoints while the server lives: notes, the durable step, and requests for
 * a checkpoint. */
#include "test.h"
#include "call.h"
#include "peer.h"

enum { PARAMS = 2, ELEMENTS = 3, STEP = 7 };
static const int64_t sizes[PARAMS] = { ELEMENTS, ELEMENTS };
static float gradient[PARAMS][ELEMENTS];
static pd_item items[PARAMS];

static peer *trained(void)
{
    return peer_trained(&peer_four, sizes, PARAMS, STEP);
}

static int push_noted(peer *p, const void *note, size_t bytes, pd_ticket_id *ticket, pd_error *err)
{
    pd_push_options options = { .note = note, .note_bytes = bytes };

    for (size_t i = 0; i < PARAMS; i++) items[i] = (pd_item){ .param = i, .gradient = gradient[i] };
    return pd_core_push(p->core, PD_PUSH, items, PARAMS, &options, ticket, err);
}

static pd_ticket_id push(peer *p, const char *note)
{
    pd_ticket_id ticket;

    assert_int_equal(push_noted(p, note, strlen(note), &ticket, NULL), PD_OK);
    return ticket;
}

/* Expects a note, and returns its prefix. */
static pd_prefix expect_note(peer *p, const char *text)
{
    peer_frame l = peer_expect(p, PD_NOTE);
    pd_prefix prefix = l.prefix;

    assert_int_equal(((const Paramd__NoteRequest *)l.message)->step, STEP + 1);
    assert_int_equal(prefix.payload_bytes, strlen(text));
    assert_memory_equal(l.payload, text, strlen(text));
    peer_frame_drop(&l);
    return prefix;
}

static pd_prefix expect(peer *p, unsigned method)
{
    peer_frame l = peer_expect(p, method);

    peer_frame_drop(&l);
    return l.prefix;
}

static void come_back(peer *p)
{
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, STEP);
}

TEST(a_note_goes_out_before_the_push_of_its_step)
{
    peer *p = trained();

    push(p, "batch 8");
    expect_note(p, "batch 8");
    expect(p, PD_PUSH);
    peer_free(p);
}

TEST(a_push_without_a_note_sends_none)
{
    peer *p = trained();
    pd_ticket_id ticket;

    assert_int_equal(push_noted(p, NULL, 0, &ticket, NULL), PD_OK);
    expect(p, PD_PUSH);
    peer_free(p);
}

TEST(an_empty_note_is_a_note)
{
    peer *p = trained();

    push(p, "");
    expect_note(p, "");
    peer_free(p);
}

TEST(the_callers_note_is_copied)
{
    char text[] = "batch 8";
    peer *p = trained();

    push(p, text);
    text[0] = 'X';
    expect_note(p, "batch 8");
    peer_free(p);
}

TEST(a_ticket_waits_for_the_answer_to_its_note)
{
    peer *p = trained();
    pd_ticket_id ticket = push(p, "batch 8");
    pd_prefix note = expect_note(p, "batch 8"), pushed = expect(p, PD_PUSH);

    peer_reply_data(p, &pushed, PARAMS, 1, STEP + 1, NULL, 0);
    assert_false(pd_core_done(p->core, ticket));
    peer_reply_ok(p, &note);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_free(p);
}

TEST(a_note_is_sent_again_on_the_next_connection)
{
    peer *p = trained();

    push(p, "batch 8");
    expect_note(p, "batch 8");
    come_back(p);
    expect_note(p, "batch 8");
    expect(p, PD_PUSH);
    peer_free(p);
}

/* The push is sent again because it has no answer, and a server that was started anew has lost its note. Neither comes
 * from a window. */
TEST(an_answered_note_that_goes_again_with_its_push_counts_as_sent_again_and_not_as_replayed)
{
    peer *p = trained();
    pd_client_stats stats;
    pd_prefix note;

    push(p, "batch 8");
    note = expect_note(p, "batch 8");
    expect(p, PD_PUSH);
    peer_reply_ok(p, &note);
    come_back(p);
    expect_note(p, "batch 8");
    expect(p, PD_PUSH);
    stats = pd_core_stats(p->core);
    assert_int_equal(stats.resent, 2);
    assert_int_equal(stats.replayed, 0);
    peer_free(p);
}

TEST(a_server_that_shuts_down_gets_the_note_on_the_next_connection)
{
    peer *p = trained();
    pd_ticket_id ticket = push(p, "batch 8");
    pd_prefix note = expect_note(p, "batch 8");

    peer_refuse(p, &note, PD_UNAVAILABLE, "shutting down");
    assert_false(pd_core_done(p->core, ticket));
    come_back(p);
    expect_note(p, "batch 8");
    peer_free(p);
}

TEST(a_push_goes_on_without_a_note_that_was_refused)
{
    peer *p = trained();
    pd_ticket_id ticket = push(p, "batch 8");
    pd_prefix note = expect_note(p, "batch 8"), pushed = expect(p, PD_PUSH);
    pd_error err;

    peer_refuse(p, &note, PD_RESOURCE_EXHAUSTED, "no room for notes");
    p->now += 3 * SECOND; /* a push with a refused part ends after less time */
    pd_core_tick(p->core, p->now);
    assert_false(pd_core_done(p->core, ticket));
    peer_reply_data(p, &pushed, PARAMS, 1, STEP + 1, NULL, 0);
    assert_int_equal(peer_finish(p, ticket, &err), PD_RESOURCE_EXHAUSTED);
    assert_string_equal(err.text, "no room for notes");
    assert_int_equal(items[1].outcome, 1);
    assert_int_equal(pd_core_step(p->core, 1), STEP + 1);
    peer_free(p);
}

TEST(a_note_that_is_too_long_or_nowhere_is_refused)
{
    uint8_t *large = calloc(1, PD_WORKER_STATE_BYTES + 1);
    peer *p = trained();
    pd_ticket_id ticket;
    pd_error err;

    assert_int_equal(push_noted(p, large, PD_WORKER_STATE_BYTES + 1, &ticket, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "at most 1048576"));
    assert_int_equal(push_noted(p, NULL, 3, &ticket, &err), PD_INVALID_ARGUMENT);
    peer_expect_silence(p);
    assert_int_equal(push_noted(p, large, PD_WORKER_STATE_BYTES - 4096, &ticket, &err), PD_OK);
    free(large);
    peer_free(p);
}

TEST(without_memory_neither_the_note_nor_the_push_goes_out)
{
    peer *p = trained();
    pd_ticket_id ticket;
    bool failed = true;
    int64_t n = 0;

    for (; failed; n++) {
        int rc;
        oom_arm(n);
        rc = push_noted(p, "batch 8", 7, &ticket, NULL);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        if (failed) peer_expect_silence(p);
    }
    assert_true(n > 4);
    expect_note(p, "batch 8");
    peer_free(p);
}

static pd_ticket_id recall(peer *p, pd_prefix *asked)
{
    pd_ticket_id ticket;

    assert_int_equal(pd_core_get_worker_state(p->core, &ticket, NULL), PD_OK);
    *asked = expect(p, PD_RECALL);
    return ticket;
}

/* Sends a note with an announced length. */
static int answer(peer *p, const pd_prefix *asked, uint64_t announced, const char *text)
{
    Paramd__RecallReply reply = PARAMD__RECALL_REPLY__INIT;

    reply.step = STEP;
    reply.bytes = announced;
    return peer_reply(p, asked, &reply.base, (void *)text, strlen(text));
}

TEST(a_recall_brings_the_note_behind_its_header)
{
    peer *p = trained();
    pd_prefix asked;
    pd_ticket_id ticket = recall(p, &asked);
    uint8_t *reply;
    size_t bytes;

    assert_int_equal(answer(p, &asked, 7, "batch 8"), PD_OK);
    assert_int_equal(pd_core_finish(p->core, ticket, &reply, &bytes, NULL), PD_OK);
    assert_memory_equal(reply + bytes, "batch 8", 7);
    free(reply);
    peer_free(p);
}

TEST(a_recall_may_bring_nothing)
{
    peer *p = trained();
    pd_prefix asked;
    pd_ticket_id ticket = recall(p, &asked);

    assert_int_equal(answer(p, &asked, 0, ""), PD_OK);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_free(p);
}

TEST(a_note_of_another_length_than_announced_ends_the_handle)
{
    peer *p = trained();
    pd_prefix asked;

    recall(p, &asked);
    assert_int_equal(answer(p, &asked, 200, "batch 8"), PD_INTERNAL);
    assert_int_equal(p->core->end.error.code, PD_INTERNAL);
    peer_free(p);
}

TEST(a_note_that_is_too_long_ends_the_handle)
{
    peer *p = trained();
    pd_prefix asked;

    recall(p, &asked);
    assert_int_equal(answer(p, &asked, UINT64_C(1) << 40, ""), PD_INTERNAL);
    peer_free(p);
}

TEST(a_recall_is_asked_again_on_the_next_connection)
{
    peer *p = trained();
    pd_prefix asked;
    pd_ticket_id ticket = recall(p, &asked);

    peer_refuse(p, &asked, PD_UNAVAILABLE, "shutting down");
    assert_false(pd_core_done(p->core, ticket));
    come_back(p);
    expect(p, PD_RECALL);
    peer_free(p);
}

/* Pushes for a step. The answer tells a durable step, from which one on all steps are within reach, and
 * DataReply.mirrored. */
static void push_and_tell(peer *p, uint64_t durable, uint64_t unbroken, uint64_t mirrored)
{
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome one = PARAMD__OUTCOME__INIT, *all[] = { &one, &one };
    pd_prefix pushed;

    push(p, "");
    expect_note(p, "");
    pushed = expect(p, PD_PUSH);
    one.step = one.version = STEP + 1;
    message.outcomes = all;
    message.n_outcomes = PARAMS;
    message.durable_step = durable;
    message.unbroken = unbroken;
    message.mirrored = mirrored;
    assert_int_equal(peer_reply(p, &pushed, &message.base, NULL, 0), PD_OK);
}

TEST(answers_tell_the_durable_step)
{
    peer *p = trained();

    assert_int_equal(p->core->progress.durable, 0);
    push_and_tell(p, 5, 4, 0);
    assert_int_equal(p->core->progress.durable, 5);
    assert_int_equal(p->core->progress.unbroken, 4);
    assert_int_equal(p->core->progress.mirrored, 0);
    peer_free(p);
}

TEST(an_answer_that_tells_an_earlier_durable_step_takes_none_back)
{
    peer *p = trained();

    p->core->progress.durable = 9;
    p->core->progress.unbroken = 7;
    push_and_tell(p, 5, 5, 0);
    assert_int_equal(p->core->progress.durable, 9);
    assert_int_equal(p->core->progress.unbroken, 7);
    peer_free(p);
}

TEST(answers_tell_which_steps_the_mirror_has)
{
    peer *p = trained();

    push_and_tell(p, 5, 4, 4);
    assert_int_equal(p->core->progress.mirrored, 4);
    peer_free(p);
}

TEST(an_answer_that_tells_of_no_mirror_takes_none_back)
{
    peer *p = trained();

    p->core->progress.mirrored = 4;
    push_and_tell(p, 5, 4, 0);
    assert_int_equal(p->core->progress.mirrored, 4);
    peer_free(p);
}

TEST(a_server_that_comes_back_tells_its_durable_step)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[] = { &one, &one };
    peer *p = trained();
    pd_prefix asked;

    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    asked = expect(p, PD_DECLARE);
    one.step = STEP;
    one.initialised = true;
    message.parameters = all;
    message.n_parameters = PARAMS;
    message.durable_step = STEP;
    message.mirrored = STEP;
    peer_reply(p, &asked, &message.base, NULL, 0);
    assert_int_equal(p->core->progress.durable, STEP);
    assert_int_equal(p->core->progress.mirrored, STEP);
    peer_free(p);
}

TEST(a_request_for_a_checkpoint_has_its_step_and_its_patience)
{
    Paramd__CheckpointReply reply = PARAMD__CHECKPOINT_REPLY__INIT;
    const Paramd__CheckpointRequest *request;
    peer *p = trained();
    pd_ticket_id ticket;
    peer_frame l;

    assert_int_equal(pd_core_checkpoint(p->core, 9, 2500, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_CHECKPOINT);
    request = l.message;
    assert_int_equal(request->step, 9);
    assert_int_equal(request->wait_ms, 2500);
    assert_string_equal(request->job, "");
    reply.step = 9;
    peer_reply(p, &l.prefix, &reply.base, NULL, 0);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_free(p);
}

TEST(a_disk_that_has_failed_is_an_error_of_the_call)
{
    peer *p = trained();
    pd_ticket_id ticket;
    pd_prefix asked;
    pd_error err;

    assert_int_equal(pd_core_checkpoint(p->core, 0, 2500, &ticket, NULL), PD_OK);
    asked = expect(p, PD_CHECKPOINT);
    peer_refuse(p, &asked, PD_UNAVAILABLE, "the disk is full");
    assert_int_equal(peer_finish(p, ticket, &err), PD_UNAVAILABLE);
    assert_string_equal(err.text, "the disk is full");
    peer_free(p);
}
