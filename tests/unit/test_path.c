/* Tests the verdict on the path of a connection by what the kernel would tell, and the connection beside on the
 * loopback interface. */
#include <netinet/in.h>
#include <sys/socket.h>

#include "test.h"
#include "path.h"

#define S UINT64_C(1000000000)

/* A connection as its kernel tells it, and the time. */
typedef struct scene {
    pd_path path;
    pd_path_facts facts;
    uint64_t now;
} scene;

static scene begin(void)
{
    scene s = { .now = 100 * S };

    pd_path_init(&s.path);
    s.facts.received = 1000;
    return s;
}

static pd_path_advice judge(scene *s, double seconds)
{
    s->now += (uint64_t)(seconds * 1e9);
    return pd_path_judge(&s->path, &s->facts, s->now);
}

/* Cuts the path: nothing is acknowledged. */
static void cut(scene *s, bool unacked)
{
    s->facts.attempts = 5;
    s->facts.silent_ns = 10 * S;
    s->facts.unacked = s->facts.unsent = unacked;
    assert_int_equal(judge(s, 1), PD_PATH_GO_ON);
    assert_int_equal(s->path.state, PD_PATH_CUT);
}

static void heal(scene *s)
{
    s->facts.attempts = 0;
    s->facts.silent_ns = 0;
    s->facts.unacked = s->facts.unsent = false;
}

TEST(a_peer_whose_kernel_acknowledges_is_no_cut)
{
    scene s = begin();

    s.facts.unacked = s.facts.unsent = true; /* a large push is under way, and the server reads slowly */
    for (int i = 0; i < 100; i++) assert_int_equal(judge(&s, 1), PD_PATH_GO_ON);
    s.facts.silent_ns = 60 * S; /* nothing was sent for a minute, and now a first packet is */
    assert_int_equal(judge(&s, 1), PD_PATH_GO_ON);
    s.facts.attempts = 1;
    assert_int_equal(judge(&s, 1), PD_PATH_GO_ON);
    s.facts.silent_ns = S; /* packets are lost, and acknowledged after all */
    s.facts.attempts = 3;
    assert_int_equal(judge(&s, 1), PD_PATH_GO_ON);
    assert_int_equal(s.path.state, PD_PATH_WELL);
}

TEST(a_connection_that_owes_bytes_is_replaced_once_another_is_made)
{
    scene s = begin();

    cut(&s, true);
    for (int i = 0; i < 10; i++) assert_int_equal(judge(&s, 1), PD_PATH_GO_ON);
    s.path.made = true;
    assert_int_equal(judge(&s, 0.2), PD_PATH_REPLACE);
}

TEST(bytes_of_the_server_end_a_cut)
{
    scene s = begin();

    cut(&s, true);
    s.path.made = true;
    s.facts.received++;
    assert_int_equal(judge(&s, 0.2), PD_PATH_GO_ON);
    assert_int_equal(s.path.state, PD_PATH_WELL);
}

TEST(a_server_that_answers_after_a_cut_keeps_its_connection)
{
    scene s = begin();

    cut(&s, true);
    heal(&s);
    assert_int_equal(judge(&s, 0.2), PD_PATH_ASK);
    s.path.made = true;
    assert_int_equal(judge(&s, 0.5), PD_PATH_GO_ON);
    s.facts.received += 12;
    assert_int_equal(judge(&s, 0.2), PD_PATH_GO_ON);
    assert_int_equal(s.path.state, PD_PATH_WELL);
}

TEST(a_server_whose_answers_are_not_carried_is_connected_anew)
{
    scene s = begin();

    cut(&s, false);
    s.path.made = true; /* the idle connection would be probed only later */
    assert_int_equal(judge(&s, 0.2), PD_PATH_ASK);
    heal(&s);
    assert_int_equal(judge(&s, 0.5), PD_PATH_GO_ON);
    assert_int_equal(judge(&s, 0.6), PD_PATH_REPLACE);
}

TEST(a_question_behind_a_large_push_has_time)
{
    scene s = begin();

    cut(&s, true);
    heal(&s);
    assert_int_equal(judge(&s, 0.2), PD_PATH_ASK);
    s.path.made = true;
    s.facts.unacked = s.facts.unsent = true;
    for (int i = 0; i < 60; i++) assert_int_equal(judge(&s, 0.5), PD_PATH_GO_ON);
    s.facts.unacked = s.facts.unsent = false;
    s.facts.rtt_ns = S;
    assert_int_equal(judge(&s, 2), PD_PATH_GO_ON); /* the round trip takes a second */
    assert_int_equal(judge(&s, 4), PD_PATH_REPLACE);
}

TEST(a_cut_that_comes_back_is_a_cut)
{
    scene s = begin();

    cut(&s, true);
    heal(&s);
    assert_int_equal(judge(&s, 0.2), PD_PATH_ASK);
    s.facts.attempts = 4;
    s.facts.silent_ns = 3 * S;
    s.facts.unacked = s.facts.unsent = true;
    assert_int_equal(judge(&s, 2), PD_PATH_GO_ON);
    assert_int_equal(s.path.state, PD_PATH_CUT);
    s.path.made = true;
    assert_int_equal(judge(&s, 0.2), PD_PATH_REPLACE);
}

TEST(a_network_that_breaks_often_is_given_more_time)
{
    scene s = begin();

    for (int i = 0; i < 3; i++) { /* patience: 2 s, 4 s, 8 s */
        cut(&s, true);
        s.path.made = true;
        assert_int_equal(judge(&s, 1), PD_PATH_REPLACE);
        s.path.made = false;
        s.path.state = PD_PATH_WELL;
    }
    s.facts.silent_ns = 7 * S;
    assert_int_equal(judge(&s, 1), PD_PATH_GO_ON);
    assert_int_equal(s.path.state, PD_PATH_WELL);
    assert_int_equal(judge(&s, 100), PD_PATH_GO_ON); /* after a calm minute it is as patient as at first */
    assert_int_equal(s.path.state, PD_PATH_CUT);
}

TEST(a_connection_beside_is_made_to_the_same_address)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0), beside, peers[2];
    struct pollfd polled;
    pd_path path;

    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 4), 0);
    getsockname(listener, (struct sockaddr *)&address, &size);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, size), 0);
    peers[0] = accept(listener, NULL, NULL);
    pd_path_init(&path);
    pd_path_begin(&path, fd, 0);
    assert_int_equal(pd_path_poll(&path).fd, -1);
    path.state = PD_PATH_CUT; /* as the kernel would have told */
    polled = pd_path_poll(&path);
    assert_int_equal(pd_path_look(&path, &polled, 10 * S), PD_PATH_ASK); /* it tells that nothing is outstanding */
    polled = pd_path_poll(&path);
    assert_int_equal(poll(&polled, 1, 5000), 1);
    peers[1] = accept(listener, NULL, NULL);
    pd_path_look(&path, &polled, 10 * S);
    assert_true(path.made);
    assert_int_equal(pd_path_look(&path, &(struct pollfd){ .fd = -1 }, 12 * S), PD_PATH_REPLACE);
    beside = pd_path_take(&path);
    assert_int_equal(write(peers[1], "x", 1), 1);
    assert_int_equal(read(beside, &(char){ 0 }, 1), 1);
    pd_path_end(&path);
    assert_true(path.next_ns == UINT64_MAX);
    for (int i = 0; i < 2; i++) close(peers[i]);
    close(beside);
    close(fd);
    close(listener);
}

TEST(a_unix_socket_is_not_watched)
{
    pd_path path;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pd_path_init(&path);
    pd_path_begin(&path, pair[0], 0);
    assert_true(path.next_ns == UINT64_MAX);
    close(pair[0]);
    close(pair[1]);
}
