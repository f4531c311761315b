/* Tests what roles and quotas do on connections: jobs that somebody may not see, ranks of others, counted quotas, and
 * roles that change. */
#include <sys/socket.h>

#include "test.h"
#include "conn.h"
#include "handlers.h"
#include "request.h"
#include "scene.h"

static int set_up(void **state)
{
    scene *s = *state = scene_new(16, NULL);

    s->identity = "token:alice";
    return 0;
}

static int tear_down(void **state)
{
    scene_free(*state);
    return 0;
}

/* Connects a worker of a job, which declares a parameter. Returns its socket. */
static int join(scene *s, const char *identity, const char *job, uint32_t world)
{
    int fd;

    s->identity = identity;
    fd = scene_connect(s);
    scene_hello(s, fd, job, 0, world);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    scene_declare(s, fd, 1);
    scene_settle(s);
    scene_expect(s, fd, PD_DECLARE);
    return fd;
}

static void ask_about(scene *s, int fd, unsigned method, const char *job)
{
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;
    Paramd__DropRequest drop = PARAMD__DROP_REQUEST__INIT;
    Paramd__SetRequest set = PARAMD__SET_REQUEST__INIT;
    Paramd__ImportRequest import = PARAMD__IMPORT_REQUEST__INIT;
    Paramd__ExportRequest export = PARAMD__EXPORT_REQUEST__INIT;
    Paramd__CheckpointRequest checkpoint = PARAMD__CHECKPOINT_REQUEST__INIT;
    Paramd__KickRequest kick = PARAMD__KICK_REQUEST__INIT;
    Paramd__GoBackRequest back = PARAMD__GO_BACK_REQUEST__INIT;

    list.what = PD_INFO_PARAMS;
    set.pattern = "*";
    import.act = PD_IMPORT_BEGIN;
    export.act = PD_EXPORT_BEGIN;
    list.job = drop.job = set.job = import.job = export.job = checkpoint.job = kick.job = back.job = (char *)job;
    switch (method) {
    case PD_HELLO: scene_hello(s, fd, job, 0, 1); break;
    case PD_LIST: scene_send(s, fd, method, &list.base, 0); break;
    case PD_DROP: scene_send(s, fd, method, &drop.base, 0); break;
    case PD_KICK: scene_send(s, fd, method, &kick.base, 0); break;
    case PD_GO_BACK: scene_send(s, fd, method, &back.base, 0); break;
    case PD_SET: scene_send(s, fd, method, &set.base, 0); break;
    case PD_IMPORT: scene_send(s, fd, method, &import.base, 0); break;
    case PD_EXPORT: scene_send(s, fd, method, &export.base, 0); break;
    default: assert_int_equal(method, PD_CHECKPOINT); scene_send(s, fd, method, &checkpoint.base, 0);
    }
}

/* Sends a request about a job, and returns the error that comes before the store has had a turn. Nothing is posted to
 * the store, whose work could take another time for a job that exists. */
static pd_error refusal_of(scene *s, unsigned method, const char *job)
{
    int fd = method == PD_HELLO ? scene_connect(s) : scene_operator(s);
    pd_error err = { 0 };

    scene_settle(s);
    ask_about(s, fd, method, job);
    scene_turn(s);
    if (pd_mailbox_take(s->requests) != NULL) fail_msg("%s about %s asks the store", pd_method_name(method), job);
    if (!scene_receive(s, fd)) fail_msg("%s about %s is not answered at once", pd_method_name(method), job);
    assert_true((s->prefix.flags & PD_FLAG_ERROR) != 0);
    pd_message_error(s->arena, s->in, s->prefix.header_bytes, &err, NULL);
    close(fd);
    scene_settle(s);
    return err;
}

EACH_TEST(set_up, tear_down);

TEST(a_job_without_a_role_is_answered_like_one_that_does_not_exist, scene *s)
{
    int bob;

    scene_roles(s, "token:bob push bob-*\ntoken:alice admin alice-*\n");
    bob = join(s, "token:bob", "bob-1", 1);
    s->identity = "token:alice";
    for (unsigned method = 0; method < PD_METHODS; method++) {
        pd_error exists, missing;
        if (pd_methods[method].may.job_at == 0) continue;
        exists = refusal_of(s, method, "bob-1");
        missing = refusal_of(s, method, "bob-2");
        assert_int_equal(exists.code, missing.code);
        *strstr(exists.text, "bob-1") = *strstr(missing.text, "bob-2") = '\0';
        assert_string_equal(exists.text, missing.text);
        assert_int_equal(exists.code, method == PD_HELLO ? PD_PERMISSION_DENIED : PD_NOT_FOUND);
    }
    close(bob);
}

TEST(the_words_for_a_job_that_may_not_be_seen_are_those_of_the_store, scene *s)
{
    pd_error err;
    int fd;

    scene_roles(s, "token:alice admin alice-*\n");
    err = refusal_of(s, PD_DROP, "bob-1");
    fd = scene_operator(s);
    ask_about(s, fd, PD_DROP, "alice-1");
    scene_settle(s);
    *strstr(err.text, "bob-1") = '\0';
    scene_expect_error(s, fd, PD_NOT_FOUND, err.text);
    close(fd);
}

static const Paramd__StatusReply *status(scene *s)
{
    Paramd__StatusReply *reply;
    int fd = scene_operator(s);

    scene_say(s, fd, PD_STATUS);
    scene_settle(s);
    scene_expect(s, fd, PD_STATUS);
    assert_int_equal(pd_reply_unpack(s->arena, PD_STATUS, s->in, s->prefix.header_bytes, (void **)&reply, NULL), PD_OK);
    close(fd);
    scene_settle(s);
    return reply;
}

TEST(lists_and_status_leave_out_the_jobs_of_others, scene *s)
{
    const Paramd__StatusReply *reply;
    int alice, bob;

    scene_roles(s, "token:bob push bob\ntoken:alice push alice\ntoken:root admin *\n");
    bob = join(s, "token:bob", "bob", 1);
    alice = join(s, "token:alice", "alice", 1);
    reply = status(s);
    assert_int_equal(reply->n_jobs, 1);
    assert_string_equal(reply->jobs[0]->name, "alice");
    assert_true(reply->connections == 0 && reply->bytes_in == 0 && reply->frames_in == 0 && reply->n_identities == 0);
    assert_true(reply->resident_bytes == 0 && reply->ingest_used == 0 && reply->n_loop_busy_ms == 0);
    assert_int_equal(scene_list(s, PD_INFO_JOBS, "")->n_jobs, 1);
    s->identity = "token:root";
    reply = status(s);
    assert_int_equal(reply->n_jobs, 2);
    assert_int_equal(reply->n_identities, 3);
    assert_true(reply->connections >= 3 && reply->frames_in > 0);
    close(alice);
    close(bob);
}

TEST(only_an_admin_of_the_job_sees_its_workers_identities, scene *s)
{
    const Paramd__WorkerInfo *worker;
    int fd;

    scene_roles(s, "token:alice push j\ntoken:root admin j\n");
    fd = join(s, "token:alice", "j", 1);
    worker = scene_list(s, PD_INFO_WORKERS, "j")->workers[0];
    assert_string_equal(worker->identity, "");
    assert_true(worker->nonce == 0);
    s->identity = "token:root";
    worker = scene_list(s, PD_INFO_WORKERS, "j")->workers[0];
    assert_string_equal(worker->identity, "token:alice");
    assert_true(worker->nonce == 1);
    close(fd);
}

static void hello_of(scene *s, int fd, uint64_t nonce)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    char *rules[] = { "* sgd lr=1" };

    hello.protocol = 1;
    hello.job = "j";
    hello.run = "launch";
    hello.world_size = 1;
    hello.nonce = nonce;
    hello.rules = rules;
    hello.n_rules = 1;
    scene_send(s, fd, PD_HELLO, &hello.base, 0);
}

static int hello_as(scene *s, const char *identity, uint64_t nonce)
{
    int fd;

    s->identity = identity;
    fd = scene_connect(s);
    hello_of(s, fd, nonce);
    scene_settle(s);
    return fd;
}

TEST(a_rank_is_not_taken_from_another_identity, scene *s)
{
    int alice, mallory;

    scene_roles(s, "* push j\n");
    alice = join(s, "token:alice", "j", 1); /* nonce 1 */
    mallory = hello_as(s, "token:mallory", 1);
    scene_expect_error(s, mallory, PD_PERMISSION_DENIED, "belongs to a process of another identity");
    close(mallory);
    mallory = hello_as(s, "token:mallory", 7);
    scene_expect_error(s, mallory, PD_PERMISSION_DENIED, "has a worker of another identity");
    close(mallory);
    scene_say(s, alice, PD_HEARTBEAT);
    scene_settle(s);
    scene_expect(s, alice, PD_HEARTBEAT); /* and still is the worker */
    close(alice);
    scene_settle(s);
    mallory = hello_as(s, "token:mallory", 1);
    scene_expect_error(s, mallory, PD_PERMISSION_DENIED, "belongs to a process of another identity");
    close(mallory);
    mallory = hello_as(s, "token:mallory", 7);
    scene_expect(s, mallory, PD_HELLO); /* the rank is free: roles say who may take it */
    close(mallory);
}

TEST(without_roles_a_new_process_takes_a_rank_over_from_any_identity, scene *s)
{
    int alice = join(s, "token:alice", "j", 1), other = hello_as(s, "token:other", 1);

    scene_expect_error(s, other, PD_PERMISSION_DENIED, "belongs to a process of another identity");
    close(other);
    other = hello_as(s, "token:other", 7);
    scene_expect(s, other, PD_HELLO);
    close(alice);
    close(other);
}

TEST(connections_beyond_the_quota_are_refused_and_then_closed, scene *s)
{
    int fds[4], last;

    scene_roles(s, "* read *\nquota token:alice connections=2\n");
    for (int i = 0; i < 2; i++) fds[i] = scene_operator(s);
    fds[2] = scene_connect(s);
    scene_settle(s);
    scene_expect_error(s, fds[2], PD_RESOURCE_EXHAUSTED, "2 connections of token:alice are already open");
    s->identity = "token:bob";
    fds[3] = scene_operator(s); /* has a quota of its own */
    s->identity = "token:alice";
    close(fds[0]);
    close(fds[2]);
    scene_settle(s);
    last = scene_operator(s);
    close(last);
    close(fds[1]);
    close(fds[3]);
}

TEST_STATE(a_flood_of_connections_leaves_room_for_other_identities)
{
    scene *s = *state;
    int fds[40], n = 0, bob;

    scene_free(s);
    *state = s = scene_new(16, NULL);
    s->identity = "token:alice";
    scene_roles(s, "* read *\nquota token:alice connections=0\n");
    while (n < 40 && (fds[n] = scene_connect(s)) >= 0) n++;
    assert_int_equal(n, PD_USAGE_ENDING);
    s->identity = "token:bob";
    bob = scene_connect(s);
    assert_true(bob >= 0);
    close(bob);
    while (n > 0) close(fds[--n]);
}

TEST(requests_beyond_the_quota_are_refused_on_all_connections_together, scene *s)
{
    int worker, one, two;
    Paramd__BarrierRequest barrier = PARAMD__BARRIER_REQUEST__INIT;

    scene_roles(s, "* admin *\nquota token:alice requests=2\n");
    worker = join(s, "token:alice", "j", 2);
    barrier.sequence = 1;
    scene_send(s, worker, PD_BARRIER, &barrier.base, 0); /* waits for rank 1 */
    scene_settle(s);
    one = scene_operator(s);
    two = scene_operator(s);
    scene_say(s, one, PD_STATUS);
    scene_turn(s); /* the store has not answered */
    scene_say(s, two, PD_STATUS);
    scene_turn(s);
    scene_expect_error(s, two, PD_RESOURCE_EXHAUSTED, "2 requests of token:alice are under way");
    scene_settle(s);
    scene_expect(s, one, PD_STATUS);
    scene_say(s, two, PD_STATUS);
    scene_settle(s);
    scene_expect(s, two, PD_STATUS);
    close(one);
    close(two);
    close(worker);
}

TEST(a_job_beyond_the_quota_is_refused_until_another_ends, scene *s)
{
    int one, two;

    scene_roles(s, "* admin *\nquota token:alice jobs=1\n");
    one = join(s, "token:alice", "one", 1);
    two = scene_connect(s);
    scene_hello(s, two, "two", 0, 1);
    scene_settle(s);
    scene_expect_error(s, two, PD_RESOURCE_EXHAUSTED, "one more than the 1 jobs that token:alice may have");
    close(two);
    two = scene_operator(s);
    ask_about(s, two, PD_DROP, "one");
    scene_settle(s);
    scene_expect(s, two, PD_DROP);
    close(two);
    close(one);
    scene_settle(s);
    two = join(s, "token:alice", "two", 1);
    close(two);
}

TEST(bytes_beyond_the_quota_are_refused_and_name_it, scene *s)
{
    int fd, other;

    scene_roles(s, "* admin *\nquota token:alice bytes=4k\n");
    fd = scene_connect(s);
    scene_hello(s, fd, "j", 0, 1);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    scene_declare(s, fd, 1);
    scene_settle(s);
    scene_expect_error(s, fd, PD_RESOURCE_EXHAUSTED, "allowed for token:alice");
    other = join(s, "token:bob", "k", 1); /* has no quota */
    scene_roles(s, "* admin *\nquota token:alice bytes=1M\n");
    scene_declare(s, fd, 1);
    scene_settle(s);
    scene_expect(s, fd, PD_DECLARE); /* the new quota holds for jobs that exist */
    close(fd);
    close(other);
}

TEST(a_worker_that_has_lost_its_role_is_ended_at_its_next_request, scene *s)
{
    int fd;

    scene_roles(s, "token:alice push j\n");
    fd = join(s, "token:alice", "j", 1);
    scene_roles(s, "token:alice read j\n");
    assert_false(scene_receive(s, fd));
    scene_data(s, fd, PD_INIT, 0, 0);
    scene_settle(s);
    scene_expect_error(s, fd, PD_PERMISSION_DENIED, "may no longer be a worker of job j");
    assert_string_equal(scene_list(s, PD_INFO_WORKERS, "j")->workers[0]->state, "lost");
    close(fd);
}

TEST(an_operator_gets_and_loses_roles_with_the_connection_open, scene *s)
{
    int worker = join(s, "token:bob", "j", 1), fd;

    s->identity = "token:alice";
    fd = scene_operator(s);
    scene_roles(s, "token:bob push j\ntoken:alice read j\n");
    ask_about(s, fd, PD_DROP, "j");
    scene_settle(s);
    scene_expect_error(s, fd, PD_PERMISSION_DENIED, "Drop of job j needs the role admin, token:alice has read");
    scene_roles(s, "token:bob push j\ntoken:alice admin j\n");
    ask_about(s, fd, PD_DROP, "j");
    scene_settle(s);
    scene_expect(s, fd, PD_DROP);
    close(fd);
    close(worker);
}

/* Returns the only connection of a scene. */
static pd_conn *only_conn(scene *s)
{
    pd_conn *found = NULL;

    for (size_t i = 0; i < s->daemon->table.capacity; i++) {
        if (s->daemon->table.at[i] == NULL) continue;
        assert_null(found);
        found = s->daemon->table.at[i];
    }
    assert_non_null(found);
    return found;
}

static void expect_answer(scene *s, int fd, unsigned method, const char *job, int code, const char *text)
{
    ask_about(s, fd, method, job);
    scene_settle(s);
    scene_expect_error(s, fd, code, text);
}

/* A role that is remembered falsely is believed until another job is named or the roles change: so a request about the
 * same job does not look through the roles. */
TEST(the_role_for_the_job_that_was_named_last_is_remembered, scene *s)
{
    pd_conn *conn;
    int fd;

    scene_roles(s, "token:alice read j\ntoken:alice push k\n");
    fd = scene_operator(s);
    scene_settle(s);
    conn = only_conn(s);
    expect_answer(s, fd, PD_DROP, "j", PD_PERMISSION_DENIED, "token:alice has read");
    conn->peer.access.asked_role = PD_ROLE_ADMIN;
    expect_answer(s, fd, PD_DROP, "j", PD_NOT_FOUND, "there is no job j"); /* from the store */
    expect_answer(s, fd, PD_DROP, "k", PD_PERMISSION_DENIED, "token:alice has push");
    expect_answer(s, fd, PD_DROP, "j", PD_PERMISSION_DENIED, "token:alice has read");
    conn->peer.access.asked_role = PD_ROLE_ADMIN;
    scene_roles(s, "token:alice push j\n");
    expect_answer(s, fd, PD_DROP, "j", PD_PERMISSION_DENIED, "token:alice has push");
    close(fd);
}

/* Only names of at most PD_NAME_MAX bytes are compared with the patterns of the roles. */
TEST(a_name_that_no_job_can_have_is_not_looked_up, scene *s)
{
    char longest[PD_NAME_MAX + 1], longer[PD_NAME_MAX + 2];
    int fd;

    memset(longest, 'j', sizeof longest);
    memset(longer, 'j', sizeof longer);
    longest[PD_NAME_MAX] = longer[PD_NAME_MAX + 1] = '\0';
    scene_roles(s, "token:alice read *\n");
    fd = scene_operator(s);
    scene_settle(s);
    expect_answer(s, fd, PD_DROP, longest, PD_PERMISSION_DENIED, "token:alice has read");
    assert_string_equal(only_conn(s)->peer.access.asked, longest);
    expect_answer(s, fd, PD_DROP, longer, PD_NOT_FOUND, "there is no job jjj");
    assert_string_equal(only_conn(s)->peer.access.asked, longest);
    close(fd);
    fd = scene_connect(s);
    expect_answer(s, fd, PD_HELLO, longer, PD_INVALID_ARGUMENT, "job name of 257 bytes");
    close(fd);
}

TEST(the_log_names_who_gave_a_command_and_whose_was_refused, scene *s)
{
    int worker, fd;

    scene_roles(s, "token:bob push j\ntoken:alice read j\ntoken:root admin j\n");
    worker = join(s, "token:bob", "j", 1);
    s->identity = "token:alice";
    fd = scene_operator(s);
    ask_about(s, fd, PD_DROP, "j");
    scene_settle(s);
    close(fd);
    s->identity = "token:root";
    fd = scene_operator(s);
    ask_about(s, fd, PD_DROP, "j");
    scene_settle(s);
    close(fd);
    if (strstr(s->said, "job j: Drop was refused, by token:alice as") == NULL) fail_msg("%s", s->said);
    if (strstr(s->said, "job j: drop, by token:root as") == NULL) fail_msg("%s", s->said);
    close(worker);
}
