/* The loop thread's code on socket pairs with a store in line: what needs an exact order of events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/socket.h>
#include <unistd.h>

#include "../../server/net/daemon.h"    /* tests have a daemon.h of their own */
#include "message.h"
#include "oom.h"
#include "store.h"

enum { CHUNK = 1024, FRAME = 8192 };

typedef struct scene {
    pd_daemon  *daemon;
    pd_store   *store;
    pd_mailbox *requests;
    uint64_t    now, last_id;
    char        said[4000];             /* the daemon's log */
    pd_arena   *arena;
    uint8_t     in[FRAME];              /* header and payload last heard */
    pd_prefix   prefix;
} scene;

static scene *listening;                /* whose log is kept: the daemon's logger has no argument */

static void keep_log(int level, const char *format, ...)
{
    size_t used = strlen(listening->said);
    va_list args;

    (void)level;
    va_start(args, format);
    vsnprintf(listening->said + used, sizeof listening->said - used, format, args);
    va_end(args);
}

static int set_up(void **state)
{
    pd_daemon_config config = {
        .listen = "", .unix_socket = "", .max_connections = 8, .handshake_ms = 60000, .heartbeat_ms = 5000, .silence_ms = 60000, .read_ms = 60000,
        .write_ms = 60000, .drain_ms = 1000, .ingest_bytes = 4 * CHUNK * sizeof(float), .chunk_elements = CHUNK, .max_payload = CHUNK * sizeof(float),
        .max_pieces = 16, .max_params = 16, .max_header = 4096, .hello_bytes = 1024, .blas_core = "none", .log = keep_log,
    };
    pd_store_config store = { .max_jobs = 2, .max_params = 16, .max_total_bytes = 1 << 20, .ingest_bytes = config.ingest_bytes, .chunk_elements = CHUNK,
                              .frame_bytes = config.max_payload, .threads = 1, .batch_ns = 5e7 };
    scene *s = listening = calloc(1, sizeof *s);

    assert_int_equal(pd_daemon_new(&s->daemon, &config, NULL), PD_OK);
    assert_int_equal(pd_store_new(&s->store, &store, NULL), PD_OK);
    s->requests = pd_mailbox_new(NULL, NULL);
    s->arena = pd_arena_new(PD_ARENA_BUDGET);
    s->now = 1000000000;
    pd_daemon_begin(s->daemon, s->requests);
    *state = s;
    return 0;
}

/* The loop's turn alone: what it asks of the store stays in the mailbox. */
static void turn(scene *s)
{
    for (int i = 0; i < 4; i++) pd_daemon_turn(s->daemon);
}

/* The store's turn: takes what was asked and posts what comes of it. */
static void answer(scene *s)
{
    pd_mail *mail = pd_mailbox_take(s->requests);
    pd_effect *first, *last;

    while (mail != NULL) {
        pd_request *request = (pd_request *)(void *)mail;
        mail = mail->next;
        request->mail.next = NULL;
        pd_store_apply(s->store, request, s->now);
    }
    while (pd_store_work(s->store, s->now)) continue;
    if ((first = last = pd_store_effects(s->store)) == NULL) return;
    while (last->mail.next != NULL) last = (pd_effect *)(void *)last->mail.next;
    assert_int_equal(pd_mailbox_post(pd_daemon_effects(s->daemon), &first->mail, &last->mail), PD_OK);
}

static void settle(scene *s)
{
    for (int i = 0; i < 6; i++) {
        turn(s);
        answer(s);
    }
    turn(s);
}

static int tear_down(void **state)
{
    scene *s = *state;

    settle(s);
    pd_store_apply(s->store, pd_request_new(PD_REQ_DROP, (pd_ticket){ 0, 0 }), s->now);
    settle(s);
    pd_daemon_end(s->daemon);
    answer(s);
    assert_int_equal(pd_store_count_bytes(s->store).held, 0);
    pd_daemon_free(s->daemon);
    pd_store_free(s->store);
    pd_mailbox_free(s->requests);
    pd_arena_free(s->arena);
    free(s);
    return 0;
}

/* ---- the other end ---- */

static int connect_peer(scene *s)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pd_daemon_adopt(s->daemon, pair[1]), PD_OK);
    return pair[0];
}

static void send_frame(scene *s, int fd, unsigned method, const ProtobufCMessage *message, size_t payload)
{
    static uint8_t zeros[FRAME];
    uint8_t *frame;
    size_t bytes;

    assert_int_equal(pd_frame_pack(&frame, &bytes, method, 0, ++s->last_id, message, NULL, 0, payload), PD_OK);
    assert_int_equal(send(fd, frame, bytes, MSG_NOSIGNAL), bytes);
    if (payload > 0) assert_int_equal(send(fd, zeros, payload, MSG_NOSIGNAL), payload);
    free(frame);
}

/* The next frame that has come; false: none. */
static bool hear(scene *s, int fd)
{
    uint8_t prefix[PD_PREFIX_BYTES];

    if (recv(fd, prefix, sizeof prefix, MSG_DONTWAIT) != (ssize_t)sizeof prefix) return false;
    assert_int_equal(pd_prefix_read(&s->prefix, prefix, FRAME, NULL), PD_OK);
    assert_true(s->prefix.header_bytes + s->prefix.payload_bytes <= sizeof s->in);
    if (s->prefix.header_bytes + s->prefix.payload_bytes > 0)
        assert_int_equal(recv(fd, s->in, s->prefix.header_bytes + s->prefix.payload_bytes, MSG_DONTWAIT),
                         s->prefix.header_bytes + s->prefix.payload_bytes);
    return true;
}

static void expect_reply(scene *s, int fd, unsigned method)
{
    if (!hear(s, fd)) fail_msg("no answer to %s", pd_method_name(method));
    assert_int_equal(s->prefix.method, method);
    assert_int_equal(s->prefix.flags, PD_FLAG_REPLY);
}

static void expect_error(scene *s, int fd, int code, const char *part)
{
    pd_error err;

    assert_true(hear(s, fd));
    assert_true((s->prefix.flags & PD_FLAG_ERROR) != 0);
    assert_int_equal(pd_message_error(s->arena, s->in, s->prefix.header_bytes, &err), code);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void say_hello(scene *s, int fd, const char *job, uint32_t rank, uint32_t world)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    char *rules[] = { (char *)"* sgd lr=1" };

    hello.protocol = 1;
    hello.job = (char *)job;
    hello.rank = rank;
    hello.world_size = world;
    hello.nonce = rank + 1;
    hello.rules = rules;
    hello.n_rules = 1;
    send_frame(s, fd, PD_HELLO, &hello.base, 0);
}

/* n parameters of one chunk each. */
static void say_declare(scene *s, int fd, unsigned n)
{
    static char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter at[8], *list[8];
    uint64_t shape = CHUNK;

    for (unsigned i = 0; i < n; i++) {
        paramd__parameter__init(&at[i]);
        at[i].name = names[i];
        at[i].shape = &shape;
        at[i].n_shape = 1;
        list[i] = &at[i];
    }
    declare.parameters = list;
    declare.n_parameters = n;
    declare.last = true;
    send_frame(s, fd, PD_DECLARE, &declare.base, 0);
}

static void say_data(scene *s, int fd, unsigned method, uint32_t handle, uint64_t step)
{
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };

    piece.handle = handle;
    piece.dtype = PD_F32;
    piece.count = CHUNK;
    init.pieces = push.pieces = pieces;
    init.n_pieces = push.n_pieces = 1;
    push.step = step;
    send_frame(s, fd, method, method == PD_INIT ? &init.base : &push.base, CHUNK * sizeof(float));
}

/* A worker with n parameters, initialised. */
static int join(scene *s, const char *job, uint32_t rank, uint32_t world, unsigned n)
{
    int fd = connect_peer(s);

    say_hello(s, fd, job, rank, world);
    settle(s);
    expect_reply(s, fd, PD_HELLO);
    say_declare(s, fd, n);
    settle(s);
    expect_reply(s, fd, PD_DECLARE);
    for (unsigned i = 0; rank == 0 && i < n; i++) {
        say_data(s, fd, PD_INIT, i, 0);
        settle(s);
        expect_reply(s, fd, PD_INIT);
    }
    return fd;
}

/* ---- */

static void a_worker_that_goes_before_its_welcome_is_lost(void **state)
{
    scene *s = *state;
    int fd = connect_peer(s), other = connect_peer(s);
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;
    Paramd__ListReply *reply;

    say_hello(s, fd, "j", 1, 2);
    turn(s);
    close(fd);
    turn(s);                            /* the loop has seen it go; the store does not know of it at all yet */
    settle(s);
    say_hello(s, other, "", 0, 0);
    list.what = 3;
    list.job = (char *)"j";
    send_frame(s, other, PD_LIST, &list.base, 0);
    settle(s);
    expect_reply(s, other, PD_HELLO);
    expect_reply(s, other, PD_LIST);
    assert_int_equal(pd_reply_unpack(s->arena, PD_LIST, s->in, s->prefix.header_bytes, (void **)&reply, NULL), PD_OK);
    assert_int_equal(reply->n_workers, 2);
    assert_string_equal(reply->workers[1]->state, "lost");
    close(other);
}

static void a_rank_whose_share_is_used_is_not_read_from_until_something_comes_home(void **state)
{
    scene *s = *state;
    int slow = join(s, "j", 0, 2, 8), fast = join(s, "j", 1, 2, 8);       /* rank 0 is missing, so nothing of rank 1 can be summed */

    for (uint32_t i = 0; i < 8; i++) say_data(s, fast, PD_PUSH, i, 1);
    settle(s);
    assert_true(pd_store_count_bytes(s->store).held <= 4 * CHUNK * sizeof(float));
    assert_int_equal(pd_daemon_calls(s->daemon, PD_PUSH), 2);       /* its reserve and half of what is left over: two frames */
    for (uint32_t i = 0; i < 8; i++) {
        say_data(s, slow, PD_PUSH, i, 1);
        settle(s);
    }
    assert_int_equal(pd_daemon_calls(s->daemon, PD_PUSH), 16);
    for (int i = 0; i < 8; i++) expect_reply(s, fast, PD_PUSH);
    close(fast);
    close(slow);
}

static void a_frame_that_waits_for_its_share_when_the_job_ends_is_refused_and_the_connection_lives(void **state)
{
    scene *s = *state;
    int fd = join(s, "j", 0, 2, 8), other = join(s, "j", 1, 2, 8), operator = connect_peer(s);
    Paramd__DropRequest drop = PARAMD__DROP_REQUEST__INIT;
    Paramd__Empty beat = PARAMD__EMPTY__INIT;

    for (uint32_t i = 0; i < 3; i++) say_data(s, fd, PD_PUSH, i, 1);
    say_hello(s, operator, "", 0, 0);
    drop.job = (char *)"j";
    send_frame(s, operator, PD_DROP, &drop.base, 0);
    settle(s);
    expect_reply(s, operator, PD_HELLO);
    expect_reply(s, operator, PD_DROP);
    for (int i = 0; i < 3; i++) expect_error(s, fd, PD_ABORTED, "");
    send_frame(s, fd, PD_HEARTBEAT, &beat.base, 0);
    settle(s);
    expect_reply(s, fd, PD_HEARTBEAT);
    close(fd);
    close(other);
    close(operator);
}

static void heartbeats_take_no_memory(void **state)
{
    scene *s = *state;
    int fd = join(s, "j", 0, 1, 1);
    Paramd__Empty beat = PARAMD__EMPTY__INIT;

    for (int i = 0; i < 8; i++) send_frame(s, fd, PD_HEARTBEAT, &beat.base, 0);
    oom_arm(0);
    turn(s);
    assert_false(oom_disarm());
    for (int i = 0; i < 8; i++) expect_reply(s, fd, PD_HEARTBEAT);
    close(fd);
}

static void an_id_under_way_ends_the_connection_that_uses_it_again(void **state)
{
    scene *s = *state;
    int fd = join(s, "j", 0, 2, 1);

    say_data(s, fd, PD_PUSH, 0, 1);
    settle(s);
    s->last_id--;
    say_data(s, fd, PD_PUSH, 0, 1);
    settle(s);
    expect_error(s, fd, PD_INVALID_ARGUMENT, "still under way");
    assert_int_equal(recv(fd, s->in, 1, MSG_DONTWAIT), 0);
    close(fd);
}

static void a_push_for_a_closed_round_is_read_away_and_answered(void **state)
{
    scene *s = *state;
    int fd = join(s, "j", 0, 1, 1);
    Paramd__DataReply *reply;

    for (int i = 0; i < 2; i++) {
        say_data(s, fd, PD_PUSH_PULL, 0, 1);
        settle(s);
        expect_reply(s, fd, PD_PUSH_PULL);
        assert_int_equal(s->prefix.payload_bytes, CHUNK * sizeof(float));
        pd_arena_reset(s->arena);
        assert_int_equal(pd_reply_unpack(s->arena, PD_PUSH_PULL, s->in, s->prefix.header_bytes, (void **)&reply, NULL), PD_OK);
        assert_int_equal(reply->outcomes[0]->outcome, PD_STEPPED);
        assert_int_equal(reply->outcomes[0]->step, 1);
    }
    close(fd);
}

/* Every allocation fails once, at any point of a conversation: the daemon answers or closes, and nothing is lost. */
static void survives_an_allocation_that_fails_anywhere(void **state)
{
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        scene *s;
        int fd;
        if (n > 0) set_up(state);
        s = *state;
        fd = connect_peer(s);
        say_hello(s, fd, "j", 0, 1);
        oom_arm(n);
        turn(s);
        failed = oom_disarm();
        settle(s);
        if (hear(s, fd) && s->prefix.flags == PD_FLAG_REPLY) {
            say_declare(s, fd, 2);
            oom_arm(n);
            turn(s);
            failed |= oom_disarm();
            settle(s);
            say_data(s, fd, PD_INIT, 0, 0);
            oom_arm(n);
            turn(s);
            failed |= oom_disarm();
            settle(s);
            say_data(s, fd, PD_PUSH_PULL, 0, 1);
            oom_arm(n);
            turn(s);
            failed |= oom_disarm();
            settle(s);
        }
        close(fd);
        if (failed) tear_down(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_worker_that_goes_before_its_welcome_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_whose_share_is_used_is_not_read_from_until_something_comes_home, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_frame_that_waits_for_its_share_when_the_job_ends_is_refused_and_the_connection_lives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(heartbeats_take_no_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_id_under_way_ends_the_connection_that_uses_it_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_push_for_a_closed_round_is_read_away_and_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(survives_an_allocation_that_fails_anywhere, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
