/* Tests the question whether a daemon still answers at an address, against peers that the test plays. */
#include <pthread.h>
#include <sys/socket.h>
#include <arpa/inet.h>

#include "test.h"
#include "daemon_process.h"
#include "probe.h"

WITH_THREADS();

typedef enum manner { ANSWERS, HANGS_UP, SILENT, ABSENT } manner;

typedef struct peer_of_test {
    int listener, port;
    manner manner;
    pthread_t thread;
} peer_of_test;

/* Takes one connection, reads, and acts in its manner. */
static void *serve(void *arg)
{
    peer_of_test *p = arg;
    int fd = accept(p->listener, NULL, NULL);
    char got[256];

    if (fd >= 0 && recv(fd, got, sizeof got, 0) > 0 && p->manner == ANSWERS) (void)!send(fd, "x", 1, MSG_NOSIGNAL);
    if (fd >= 0) close(fd);
    return NULL;
}

/* Opens a listening socket; a silent peer takes no connection, as a process that is stopped. An absent one has a port
 * on which nobody listens. */
static peer_of_test open_peer(manner how)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    peer_of_test p = { .manner = how, .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    socklen_t length = sizeof address;

    assert_int_equal(bind(p.listener, (struct sockaddr *)&address, sizeof address), 0);
    if (how != ABSENT) assert_int_equal(listen(p.listener, 8), 0);
    assert_int_equal(getsockname(p.listener, (struct sockaddr *)&address, &length), 0);
    p.port = ntohs(address.sin_port);
    return p;
}

static bool ask(peer_of_test *p, int timeout_ms)
{
    char url[64];
    bool answers;

    if (p->manner != SILENT) assert_int_equal(pthread_create(&p->thread, NULL, serve, p), 0);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", p->port);
    answers = pd_probe(url, timeout_ms);
    if (p->manner != SILENT) pthread_join(p->thread, NULL);
    close(p->listener);
    return answers;
}

TEST(a_peer_that_sends_a_byte_answers)
{
    peer_of_test p = open_peer(ANSWERS);

    assert_true(ask(&p, 5000));
}

TEST(a_peer_that_hangs_up_without_a_word_does_not_answer)
{
    peer_of_test p = open_peer(HANGS_UP);

    assert_false(ask(&p, 5000));
}

TEST(a_peer_that_is_stopped_does_not_answer_and_takes_bounded_time)
{
    peer_of_test p = open_peer(SILENT);
    double begun = seconds_now();

    assert_false(ask(&p, 200));
    assert_true(seconds_now() - begun >= 0.199); /* probes count whole ms */
    assert_true(seconds_now() - begun < 60);
}

TEST(an_address_where_nobody_listens_does_not_answer)
{
    peer_of_test p = open_peer(ABSENT);
    char url[64];

    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", p.port);
    assert_false(pd_probe(url, 5000));
    close(p.listener);
    assert_false(pd_probe("unix:///nowhere/at/all", 5000));
    assert_false(pd_probe("not an address", 5000));
}

TEST(of_several_addresses_one_that_answers_suffices)
{
    peer_of_test silent = open_peer(SILENT), p = open_peer(ANSWERS);
    char urls[128];

    assert_int_equal(pthread_create(&p.thread, NULL, serve, &p), 0);
    snprintf(urls, sizeof urls, "tcp://127.0.0.1:%d,tcp://127.0.0.1:%d", silent.port, p.port);
    assert_true(pd_probe(urls, (int)(1000 * patient(1))));
    pthread_join(p.thread, NULL);
    close(p.listener);
    close(silent.listener);
}
