/* Tests how the loop thread handles notes, recalls and requests for checkpoints, and where it tells of durable steps.
 * The loop thread's code runs on socket pairs; the tests themselves answer in place of the store. */
#include <sys/socket.h>

#include "test.h"
#include "cluster_table.h"
#include "conn.h"
#include "conversation.h"
#include "scene.h"

WITH_THREADS();

static pd_cluster_table table; /* of a daemon with an engine */

static const pd_cluster_table *tell_table(void *arg)
{
    (void)arg;
    return &table;
}

/* Makes the daemon the owner of a shard, under a lease that has ended or never ends. */
static void set_lease(scene *s, bool ended)
{
    table = (pd_cluster_table){ .name = "demo", .n_shards = 1, .tenure = 3, .owned_until_ms = ended ? 1 : UINT64_MAX };
    s->daemon->platform.table = tell_table;
}

/* Returns the only request that the loop has posted since the last call. The caller owns it. */
static pd_request *take(scene *s, pd_request_kind kind)
{
    pd_request *request;

    scene_turn(s);
    request = (pd_request *)(void *)pd_mailbox_take(s->requests);
    assert_non_null(request);
    assert_null(request->mail.next);
    assert_int_equal(request->kind, kind);
    return request;
}

static void post(scene *s, pd_effect *effect)
{
    effect->number = ++s->turn.effects;
    assert_int_equal(pd_mailbox_post(pd_conversation_effects(s->daemon), &effect->mail, &effect->mail), PD_OK);
    scene_turn(s);
}

static pd_effect *effect_of(pd_effect_kind kind, pd_ticket ticket, uint32_t job)
{
    pd_effect *effect = calloc(1, sizeof *effect);

    assert_non_null(effect);
    effect->kind = kind;
    effect->ticket = ticket;
    effect->job = job;
    return effect;
}

/* Answers a request with an empty effect of the given kind, and frees it. */
static void answer(scene *s, pd_request *request, pd_effect_kind kind)
{
    post(s, effect_of(kind, request->ticket, request->job));
    pd_request_free(request);
}

/* Lets the loop know that steps of the job up to `step` are durable. */
static void note_durable(scene *s, uint32_t job, uint64_t step)
{
    pd_effect *effect = effect_of(PD_EFF_DURABLE, (pd_ticket){ 0, 0 }, job);

    effect->u.durable.step = step;
    effect->u.durable.mirrored = step - 1;
    post(s, effect);
}

static uint32_t job_of(scene *s, const char *name)
{
    pd_request *request = pd_request_new(PD_REQ_INFO, (pd_ticket){ 1, 1 });
    pd_effect *effect;
    uint32_t job;

    request->u.info.what = PD_INFO_JOBS;
    request->u.info.job_name = strdup(name);
    request->u.info.pattern = strdup("");
    pd_store_apply(s->store, request, s->now);
    effect = pd_store_effects(s->store);
    assert_int_equal(effect->kind, PD_EFF_INFO);
    job = effect->u.info->jobs[0].number;
    pd_effect_free(effect);
    return job;
}

/* Sends a frame whose payload consists of the byte `fill`, and lets the loop read meanwhile. */
static void send_filled(scene *s, int fd, unsigned method, const ProtobufCMessage *message, size_t payload, int fill)
{
    uint8_t *frame, *at = malloc(payload + 1);
    size_t bytes;
    ssize_t got;

    memset(at, fill, payload);
    assert_int_equal(pd_frame_pack(&frame, &bytes, method, 0, ++s->last_id, message, NULL, 0, payload), PD_OK);
    assert_int_equal(send(fd, frame, bytes, MSG_NOSIGNAL), bytes);
    for (size_t sent = 0; sent<payload; sent += got> 0 ? (size_t)got : 0) {
        got = send(fd, at + sent, payload - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        scene_turn(s);
    }
    free(frame);
    free(at);
}

static void note(scene *s, int fd, uint64_t step, size_t bytes, int fill)
{
    Paramd__NoteRequest request = PARAMD__NOTE_REQUEST__INIT;

    request.step = step;
    send_filled(s, fd, PD_NOTE, &request.base, bytes, fill);
}

static void ask_checkpoint(scene *s, int fd, const char *job, uint64_t step, uint32_t wait_ms)
{
    Paramd__CheckpointRequest request = PARAMD__CHECKPOINT_REQUEST__INIT;

    request.job = (char *)job;
    request.step = step;
    request.wait_ms = wait_ms;
    scene_send(s, fd, PD_CHECKPOINT, &request.base, 0);
}

/* Reads the next frame, which must be an answer to `method`, and unpacks its header. */
static void *expect_reply(scene *s, int fd, unsigned method)
{
    void *reply;

    scene_expect(s, fd, method);
    pd_arena_reset(s->arena);
    assert_int_equal(pd_reply_unpack(s->arena, method, s->in, s->prefix.header_bytes, &reply, NULL), PD_OK);
    return reply;
}

OBJECT(scene_new(16, NULL), scene_free);

TEST(a_note_comes_to_the_store_with_its_rank_and_step, scene *s)
{
    int fd = scene_join(s, 1, 2, 1);
    pd_request *request;

    note(s, fd, 7, 300, 0x5a);
    request = take(s, PD_REQ_WORKER_STATE);
    assert_int_equal(request->rank, 1);
    assert_int_equal(request->job, job_of(s, "j"));
    assert_int_equal(request->u.worker_state.step, 7);
    assert_int_equal(request->u.worker_state.bytes, 300);
    for (size_t i = 0; i < 300; i++) assert_int_equal(request->u.worker_state.buffer->at[i], 0x5a);
    pd_conn_return_buffer(s->daemon, request->u.worker_state.buffer);
    answer(s, request, PD_EFF_OK);
    scene_expect(s, fd, PD_NOTE);
    close(fd);
}

TEST(an_empty_note_comes_without_a_payload, scene *s)
{
    int fd = scene_join(s, 0, 1, 1);
    pd_request *request;

    note(s, fd, 1, 0, 0);
    request = take(s, PD_REQ_WORKER_STATE);
    assert_null(request->u.worker_state.buffer);
    assert_int_equal(request->u.worker_state.bytes, 0);
    answer(s, request, PD_EFF_OK);
    scene_expect(s, fd, PD_NOTE);
    close(fd);
}

TEST(a_note_may_be_larger_than_the_ranks_gradients)
{
    scene *s = scene_new_chunks(1 << 18); /* frames of up to 1 MiB; the parameter has 4 KiB */
    int fd = scene_join(s, 0, 1, 1);
    pd_request *request;

    note(s, fd, 1, PD_WORKER_STATE_MAX, 3);
    request = take(s, PD_REQ_WORKER_STATE);
    assert_int_equal(request->u.worker_state.bytes, PD_WORKER_STATE_MAX);
    assert_int_equal(request->u.worker_state.buffer->at[PD_WORKER_STATE_MAX - 1], 3);
    pd_conn_return_buffer(s->daemon, request->u.worker_state.buffer);
    answer(s, request, PD_EFF_OK);
    scene_expect(s, fd, PD_NOTE);
    close(fd);
    scene_free(s);
}

TEST(a_note_of_more_than_1_mib_is_refused_and_the_connection_lives)
{
    scene *s = scene_new_chunks(1 << 19);
    int fd = scene_join(s, 0, 1, 1);

    note(s, fd, 1, PD_WORKER_STATE_MAX + 1, 3);
    scene_turn(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "worker state of 1048577 bytes: at most 1048576");
    scene_say(s, fd, PD_HEARTBEAT);
    scene_turn(s);
    scene_expect(s, fd, PD_HEARTBEAT);
    assert_null(pd_mailbox_take(s->requests));
    close(fd);
    scene_free(s);
}

TEST(an_operator_has_no_notes, scene *s)
{
    int fd = scene_operator(s);

    note(s, fd, 1, 10, 0);
    scene_turn(s);
    scene_expect_error(s, fd, PD_FAILED_PRECONDITION, "Note is for workers");
    scene_say(s, fd, PD_RECALL);
    scene_turn(s);
    scene_expect_error(s, fd, PD_FAILED_PRECONDITION, "Recall is for workers");
    close(fd);
}

TEST(a_recall_is_answered_with_the_note_and_its_step, scene *s)
{
    int fd = scene_join(s, 0, 1, 1);
    const Paramd__RecallReply *reply;
    pd_request *request;
    pd_effect *effect;

    scene_say(s, fd, PD_RECALL);
    request = take(s, PD_REQ_GET_WORKER_STATE);
    effect = effect_of(PD_EFF_WORKER_STATE, request->ticket, request->job);
    effect->u.worker_state.step = 12;
    effect->u.worker_state.bytes = 5;
    effect->u.worker_state.at = (uint8_t *)strdup("there");
    pd_request_free(request);
    post(s, effect);
    reply = expect_reply(s, fd, PD_RECALL);
    assert_int_equal(reply->step, 12);
    assert_int_equal(reply->bytes, 5);
    assert_int_equal(s->prefix.payload_bytes, 5);
    assert_memory_equal(s->in + s->prefix.header_bytes, "there", 5);
    close(fd);
}

TEST(a_recall_without_a_note_is_answered_with_step_0, scene *s)
{
    int fd = scene_join(s, 0, 1, 1);
    const Paramd__RecallReply *reply;

    scene_say(s, fd, PD_RECALL);
    answer(s, take(s, PD_REQ_GET_WORKER_STATE), PD_EFF_WORKER_STATE);
    reply = expect_reply(s, fd, PD_RECALL);
    assert_int_equal(reply->step, 0);
    assert_int_equal(s->prefix.payload_bytes, 0);
    close(fd);
}

/* Notes are copied for their answers, so there is one such copy at a time, whatever is asked. */
TEST(a_recall_waits_for_the_answer_to_the_one_before, scene *s)
{
    int fd = scene_join(s, 0, 1, 1);

    for (int i = 0; i < 3; i++) scene_say(s, fd, PD_RECALL);
    for (int i = 0; i < 3; i++) {
        pd_request *request = take(s, PD_REQ_GET_WORKER_STATE);
        assert_null(pd_mailbox_take(s->requests));
        answer(s, request, PD_EFF_WORKER_STATE);
        expect_reply(s, fd, PD_RECALL);
    }
    close(fd);
}

TEST(a_worker_asks_for_a_checkpoint_of_its_own_job, scene *s)
{
    int fd = scene_join(s, 0, 1, 1);
    pd_request *request;

    ask_checkpoint(s, fd, "", 3, 1500);
    request = take(s, PD_REQ_CHECKPOINT);
    assert_int_equal(request->job, job_of(s, "j"));
    assert_null(request->u.checkpoint.job_name);
    assert_int_equal(request->u.checkpoint.step, 3);
    assert_int_equal(request->u.checkpoint.wait_ns, 1500000000);
    answer(s, request, PD_EFF_CHECKPOINT);
    expect_reply(s, fd, PD_CHECKPOINT);
    assert_null(strstr(s->said, "checkpoint"));
    close(fd);
}

/* Answers the next request for a checkpoint: it has been written, of this step. */
static void write_checkpoint(scene *s, uint64_t step)
{
    pd_request *request = take(s, PD_REQ_CHECKPOINT);
    pd_effect *effect = effect_of(PD_EFF_CHECKPOINT, request->ticket, request->job);

    effect->u.checkpoint.step = step;
    pd_request_free(request);
    post(s, effect);
}

/* Runs a tick of the conversation, as the daemon does every 250 ms. */
static void tick(scene *s)
{
    pd_conversation_tick(s->daemon);
    scene_turn(s);
}

/* Lets a worker ask an owner whose lease has ended for a checkpoint of step 3, and wait for it so long. Its answer is
 * withheld. Returns the worker's socket. */
static int wait_for_lease(scene *s, uint32_t wait_ms)
{
    int fd = scene_join(s, 0, 1, 1);

    set_lease(s, true);
    ask_checkpoint(s, fd, "", 3, wait_ms);
    write_checkpoint(s, 3);
    return fd;
}

TEST(a_worker_waits_for_its_checkpoint_until_an_owner_whose_lease_has_ended_has_one_again, scene *s)
{
    int fd = wait_for_lease(s, 0);

    tick(s);
    assert_false(scene_receive(s, fd));
    set_lease(s, false);
    tick(s);
    assert_int_equal(((Paramd__CheckpointReply *)expect_reply(s, fd, PD_CHECKPOINT))->step, 3);
    close(fd);
}

TEST(a_worker_that_waits_for_a_lease_hears_after_its_time_why, scene *s)
{
    int fd = wait_for_lease(s, 1);

    scene_pass(s, 2);
    scene_turn(s);
    scene_expect_error(s, fd, PD_DEADLINE_EXCEEDED, "step 3 is on the disk of this daemon, but the lease of its shard");
    close(fd);
}

TEST(a_worker_that_ends_while_it_waits_for_a_lease_leaves_nothing_behind, scene *s)
{
    close(wait_for_lease(s, 0));
    scene_settle(s);
    tick(s);
    assert_int_equal(s->daemon->table.n, 0);
}

TEST(a_withheld_answer_for_which_there_is_no_memory_closes_its_connection, scene *s)
{
    int fd = wait_for_lease(s, 0);
    bool failed;

    set_lease(s, false);
    oom_arm(0);
    pd_conversation_tick(s->daemon);
    failed = oom_disarm();
    assert_true(failed);
    assert_int_equal(s->daemon->table.n, 0);
    close(fd);
}

TEST(an_operator_hears_of_a_checkpoint_without_a_lease, scene *s)
{
    int fd = scene_operator(s);

    set_lease(s, true);
    ask_checkpoint(s, fd, "j", 0, 0);
    write_checkpoint(s, 40);
    assert_int_equal(((Paramd__CheckpointReply *)expect_reply(s, fd, PD_CHECKPOINT))->step, 40);
    close(fd);
}

TEST(a_worker_cannot_ask_for_a_checkpoint_of_another_job, scene *s)
{
    int fd = scene_join(s, 0, 1, 1);

    ask_checkpoint(s, fd, "k", 0, 0);
    scene_turn(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "Checkpoint of job k: a worker must not name a job");
    close(fd);
}

TEST(an_operator_asks_by_name_and_the_answer_has_step_bytes_and_time, scene *s)
{
    int fd = scene_operator(s);
    const Paramd__CheckpointReply *reply;
    pd_request *request;
    pd_effect *effect;

    ask_checkpoint(s, fd, "j", 0, 0);
    request = take(s, PD_REQ_CHECKPOINT);
    assert_int_equal(request->job, 0);
    assert_string_equal(request->u.checkpoint.job_name, "j");
    assert_int_equal(request->u.checkpoint.wait_ns, 30000000000u);
    effect = effect_of(PD_EFF_CHECKPOINT, request->ticket, 1);
    effect->u.checkpoint.step = 40;
    effect->u.checkpoint.bytes = 4096;
    effect->u.checkpoint.ns = 12999999;
    pd_request_free(request);
    post(s, effect);
    reply = expect_reply(s, fd, PD_CHECKPOINT);
    assert_int_equal(reply->step, 40);
    assert_int_equal(reply->bytes, 4096);
    assert_int_equal(reply->ms, 12);
    assert_non_null(strstr(s->said, "checkpoint"));
    close(fd);
}

TEST(an_operator_must_name_the_job_of_a_checkpoint, scene *s)
{
    int fd = scene_operator(s);

    ask_checkpoint(s, fd, "", 0, 0);
    scene_turn(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "job name of 0 bytes");
    close(fd);
}

TEST(nobody_waits_longer_than_ten_minutes_for_a_checkpoint, scene *s)
{
    int fd = scene_operator(s);

    ask_checkpoint(s, fd, "j", 0, 600001);
    scene_turn(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "wait_ms 600001: at most 600000");
    ask_checkpoint(s, fd, "j", 0, 600000);
    answer(s, take(s, PD_REQ_CHECKPOINT), PD_EFF_CHECKPOINT);
    expect_reply(s, fd, PD_CHECKPOINT);
    close(fd);
}

/* Joins and declares as rank 1. Returns the durable step that the answer tells, with that of the mirror. */
static uint64_t declare_as_second(scene *s, int fd)
{
    const Paramd__DeclareReply *reply;

    scene_hello(s, fd, "j", 1, 2);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    scene_declare(s, fd, 1);
    scene_settle(s);
    reply = (Paramd__DeclareReply *)expect_reply(s, fd, PD_DECLARE);
    assert_int_equal(reply->mirrored, reply->durable_step - 1);
    return reply->durable_step;
}

TEST(answers_to_data_frames_and_declare_tell_the_durable_step, scene *s)
{
    int first = scene_join(s, 0, 2, 1), second;
    uint32_t job = job_of(s, "j");

    note_durable(s, job, 20);
    second = scene_connect(s);
    assert_int_equal(declare_as_second(s, second), 20);
    scene_initialise(s, first, 1);
    scene_data(s, first, PD_PUSH, 0, 1);
    scene_settle(s);
    note_durable(s, job, 21);
    scene_data(s, second, PD_PUSH, 0, 1);
    scene_settle(s);
    assert_int_equal(((Paramd__DataReply *)expect_reply(s, first, PD_PUSH))->durable_step, 21);
    assert_int_equal(((Paramd__DataReply *)expect_reply(s, second, PD_PUSH))->durable_step, 21);
    close(first);
    close(second);
}

/* Pushes for a step of a job of one worker. Returns the durable step that the answer tells, with that of the mirror.
 */
static uint64_t durable_after(scene *s, int fd, uint64_t step)
{
    const Paramd__DataReply *reply;

    scene_data(s, fd, PD_PUSH, 0, step);
    scene_settle(s);
    reply = (Paramd__DataReply *)expect_reply(s, fd, PD_PUSH);
    assert_int_equal(reply->mirrored, reply->durable_step - 1);
    return reply->durable_step;
}

TEST(answers_of_an_owner_whose_lease_has_ended_repeat_the_durable_step_before, scene *s)
{
    int fd = scene_join(s, 0, 1, 1);
    uint32_t job = job_of(s, "j");

    scene_initialise(s, fd, 1);
    set_lease(s, false);
    note_durable(s, job, 20);
    assert_int_equal(durable_after(s, fd, 1), 20);
    set_lease(s, true);
    note_durable(s, job, 21);
    assert_int_equal(durable_after(s, fd, 2), 20);
    set_lease(s, false);
    assert_int_equal(durable_after(s, fd, 3), 21);
    close(fd);
}

TEST(a_declare_tells_which_steps_an_owner_has_whose_lease_has_ended, scene *s)
{
    int first = scene_join(s, 0, 2, 1), second = scene_connect(s);

    set_lease(s, true);
    table.n_shards = 0; /* its workers do not follow shards */
    note_durable(s, job_of(s, "j"), 5);
    assert_int_equal(declare_as_second(s, second), 5);
    close(first);
    close(second);
}

TEST(a_job_from_a_checkpoint_has_a_durable_step_before_its_workers_come, scene *s)
{
    int fd;

    note_durable(s, 1, 5); /* the store numbers its jobs from 1 */
    fd = scene_connect(s);
    scene_hello(s, fd, "j", 0, 1);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    assert_int_equal(job_of(s, "j"), 1);
    scene_declare(s, fd, 1);
    scene_settle(s);
    assert_int_equal(((Paramd__DeclareReply *)expect_reply(s, fd, PD_DECLARE))->durable_step, 5);
    close(fd);
}

TEST(hello_tells_the_store_of_the_window_and_the_barriers, scene *s)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    int fd = scene_connect(s);
    pd_request *request;
    pd_effect *effect;

    hello.protocol = 1;
    hello.job = (char *)"j";
    hello.world_size = 1;
    hello.nonce = 1;
    hello.window = 20;
    hello.barriers = 3;
    scene_send(s, fd, PD_HELLO, &hello.base, 0);
    request = take(s, PD_REQ_HELLO);
    assert_int_equal(request->u.hello.window, 20);
    assert_int_equal(request->u.hello.barriers, 3);
    effect = effect_of(PD_EFF_ERROR, request->ticket, 0);
    pd_fail(&effect->u.error, PD_UNAVAILABLE, "the test refuses");
    post(s, effect);
    pd_request_free(request);
    scene_expect_error(s, fd, PD_UNAVAILABLE, "the test refuses");
    close(fd);
}

/* Frees requests that reached the mailbox, as the store does. Those that tell of lost connections reach the store. */
static void absorb_requests(scene *s)
{
    pd_mail *next;

    for (pd_mail *mail = pd_mailbox_take(s->requests); mail != NULL; mail = next) {
        pd_request *request = (pd_request *)(void *)mail;
        next = mail->next;
        mail->next = NULL;
        if (request->kind == PD_REQ_LOST) {
            pd_store_apply(s->store, request, s->now);
            continue;
        }
        if (request->kind == PD_REQ_WORKER_STATE) pd_conn_return_buffer(s->daemon, request->u.worker_state.buffer);
        pd_request_free(request);
    }
}

/* Sends a request, and lets the n-th allocation of the loop fail. Then the peer gets an error, or the connection ends.
 * Returns whether an allocation failed. */
static bool fails_at(void (*say)(scene *s, int fd), int64_t n)
{
    scene *s = scene_new(16, NULL);
    int fd = scene_join(s, 0, 1, 1);
    bool failed;

    say(s, fd);
    oom_arm(n);
    pd_daemon_turn(s->daemon);
    failed = oom_disarm();
    if (failed && scene_receive(s, fd)) assert_int_equal(s->prefix.flags & PD_FLAG_ERROR, PD_FLAG_ERROR);
    scene_turn(s);
    absorb_requests(s);
    close(fd);
    scene_free(s);
    return failed;
}

static void say_note(scene *s, int fd)
{
    Paramd__NoteRequest request = PARAMD__NOTE_REQUEST__INIT;
    scene_send(s, fd, PD_NOTE, &request.base, 100);
}

static void say_recall(scene *s, int fd)
{
    scene_say(s, fd, PD_RECALL);
}

static void say_checkpoint(scene *s, int fd)
{
    ask_checkpoint(s, fd, "", 0, 0);
}

TEST(without_memory_a_request_is_refused_and_nothing_leaks)
{
    static void (*const all[])(scene * s, int fd) = { say_note, say_recall, say_checkpoint };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int64_t n = 0;
        while (fails_at(all[i], n)) n++;
        assert_true(n >= 3);
    }
}
