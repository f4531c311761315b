/* Tests which handshakes give way to others, with a thread of handshakes that the test holds back. */
#include <signal.h>
#include <sys/socket.h>

#include "test.h"
#include "daemon.h"
#include "daemon_process.h"
#include "loop.h"
#include "uvloop.h"
#include "pki.h"
#include "small_daemon.h"
#include "tls_inside.h"
#include "tls_stream.h"

WITH_THREADS();

enum { PEERS = 6, MOST = 3, STEPS = 100 };

typedef struct peer {
    int fd;
    pd_tls_stream *stream;
    pd_tls_step step;
} peer;

typedef struct fixture {
    char tokens[40];
    pd_tls_context *server, *client;
    pd_daemon *daemon;
    pd_uvloop *loop;
    pd_mailbox *requests;
    peer peers[PEERS];
    int state; /* of handshakes, and how many are to be in it */
    unsigned n;
} fixture;

/* A step of a handshake on the daemon's side waits for `go`. */
static uv_sem_t go;
static int (*shake_hands)(SSL *ssl);

static int wait_and_shake_hands(SSL *ssl)
{
    uv_sem_wait(&go);
    return shake_hands(ssl);
}

static void make_contexts(fixture *f)
{
    char line[PD_TOKEN_LINE];
    pd_tls_files files = { .tokens = f->tokens };

    strcpy(f->tokens, "/tmp/handshake_XXXXXX");
    close(mkstemp(f->tokens));
    assert_int_equal(pd_token_new(line, "alice", NULL), PD_OK);
    pki_write_tokens(f->tokens, line, NULL);
    assert_int_equal(pd_tls_server(&f->server, &files, NULL), PD_OK);
    assert_int_equal(pd_tls_client(&f->client, &files, NULL), PD_OK);
    shake_hands = f->server->library.SSL_do_handshake;
    f->server->library.SSL_do_handshake = wait_and_shake_hands;
}

static void set_up(fixture *f)
{
    pd_daemon_config config = small_daemon();

    signal(SIGPIPE, SIG_IGN);
    uv_sem_init(&go, 0);
    make_contexts(f);
    config.max_connections = MOST;
    config.tls = f->server;
    assert_int_equal(pd_daemon_new(&f->daemon, &config, NULL), PD_OK);
    f->loop = f->daemon->platform.arg;
    f->requests = pd_mailbox_new(NULL, NULL);
    pd_daemon_begin(f->daemon, f->requests);
}

static void let_go(void)
{
    for (int i = 0; i < STEPS; i++) uv_sem_post(&go);
}

static void tear_down(fixture *f)
{
    let_go();
    pd_daemon_end(f->daemon);
    pd_daemon_free(f->daemon);
    pd_mailbox_free(f->requests);
    for (int i = 0; i < PEERS; i++) {
        pd_tls_stream_free(f->peers[i].stream);
        close(f->peers[i].fd);
    }
    pd_tls_unref(f->server);
    pd_tls_unref(f->client);
    uv_sem_destroy(&go);
    unlink(f->tokens);
}

static void go_on(peer *p)
{
    p->step = pd_tls_handshake(p->stream, NULL);
}

/* Connects a peer, which sends its first message. */
static void connect_peer(fixture *f, int i)
{
    int fd[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    f->peers[i].fd = fd[0];
    assert_int_equal(pd_tls_stream_new(&f->peers[i].stream, f->client, fd[0], "localhost", NULL), PD_OK);
    pd_handshake_begin(f->loop, fd[1], "peer");
    go_on(&f->peers[i]);
}

static bool is_so(void *arg)
{
    const fixture *f = arg;

    pd_daemon_turn(f->daemon);
    return f->loop->handshakes.n[f->state] == f->n;
}

/* Runs the loop until `n` handshakes are in a state. */
static void turn_until(fixture *f, int state, unsigned n)
{
    f->state = state;
    f->n = n;
    assert_true(await(is_so, f, patient(10)));
}

static bool has_conn(void *arg)
{
    return pd_daemon_turn(((fixture *)arg)->daemon);
}

FIXTURE(fixture, set_up, tear_down);

TEST(a_peer_that_has_answered_does_not_give_way_to_first_messages, fixture *f)
{
    connect_peer(f, 0);
    uv_sem_post(&go);
    turn_until(f, PD_HANDSHAKE_ANSWERED, 1);
    for (int i = 1; i <= 2; i++) connect_peer(f, i); /* keep the thread */
    turn_until(f, PD_HANDSHAKE_COMPUTED, 2);
    go_on(&f->peers[0]);
    assert_int_equal(f->peers[0].step, PD_TLS_DONE);
    for (int i = 3; i < PEERS; i++) {
        turn_until(f, PD_HANDSHAKE_QUEUED, (unsigned)i - 2);
        connect_peer(f, i); /* the last one is one too many */
    }
    assert_int_equal(f->loop->handshakes.dropped, 1);
    let_go();
    assert_true(await(has_conn, f, patient(10)));
}
