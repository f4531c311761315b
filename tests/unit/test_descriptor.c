/* Tests descriptors that go over a Unix socket beside the bytes. Every test checks that none is left over. */
#define _GNU_SOURCE /* F_ADD_SEALS */
#include <fcntl.h>
#include <sys/socket.h>

#include "test.h"
#include "transport.h"
#include "descriptors.h"

enum { MOST = 12 };

typedef struct pair {
    int end[2];
    int taken, attached; /* as a transport keeps them */
    int before;          /* descriptors that were open before */
} pair;

static pair both;

static int set_up(void **state)
{
    both = (pair){ .taken = -1, .attached = -1, .before = descriptors_open(0) };
    *state = &both;
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both.end);
}

static int tear_down(void **state)
{
    pair *p = *state;

    close(p->end[0]);
    close(p->end[1]);
    if (p->taken >= 0) close(p->taken);
    if (p->attached >= 0) close(p->attached);
    return descriptors_open(0) == p->before ? 0 : -1;
}

static ssize_t send_text(pair *p, const char *text)
{
    return pd_descriptor_send(p->end[0], &(struct iovec){ (char *)text, strlen(text) }, 1, &p->attached);
}

/* Receives up to `most` bytes. Fails the test if they are not `text`. */
static void expect_text(pair *p, size_t most, const char *text)
{
    char bytes[64];
    ssize_t got = pd_descriptor_receive(p->end[1], &(struct iovec){ bytes, most }, 1, &p->taken);

    assert_int_equal(got, strlen(text));
    assert_memory_equal(bytes, text, (size_t)got);
}

/* Sends one byte with n descriptors of new memfds, in one control message. Returns the first of them, still open. */
static int send_many(const pair *p, size_t n)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(MOST * sizeof(int))];
    } control = { .header = {
                      .cmsg_len = CMSG_LEN(n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
    struct iovec byte = { (char *)"x", 1 };
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(n * sizeof(int))
    };
    int fds[MOST];

    for (size_t i = 0; i < n; i++) assert_true((fds[i] = memfd_with(0, 1 + i, 0)) >= 0);
    memcpy(CMSG_DATA(&control.header), fds, n * sizeof *fds);
    assert_int_equal(sendmsg(p->end[0], &message, MSG_NOSIGNAL), 1);
    for (size_t i = 1; i < n; i++) close(fds[i]);
    return fds[0];
}

EACH_TEST(set_up, tear_down);

TEST(passes_a_descriptor_with_the_first_byte, pair *p)
{
    int kept;

    p->attached = memfd_sealed(100, 3);
    kept = dup(p->attached);
    assert_int_equal(send_text(p, "abc"), 3);
    expect_text(p, 1, "a");
    assert_true(same_file(p->taken, kept));
    expect_text(p, 9, "bc");
    close(kept);
}

TEST(closes_the_descriptor_that_is_sent, pair *p)
{
    int before = descriptors_open(0);

    p->attached = memfd_sealed(100, 3);
    assert_int_equal(send_text(p, "abc"), 3);
    assert_int_equal(p->attached, -1);
    assert_int_equal(descriptors_open(0), before);
}

TEST(a_descriptor_whose_byte_does_not_fit_stays_attached, pair *p)
{
    static char bulk[1 << 16];
    int kept;

    while (send(p->end[0], bulk, sizeof bulk, MSG_NOSIGNAL) > 0) continue;
    p->attached = memfd_sealed(100, 3);
    kept = p->attached;
    assert_int_equal(send_text(p, "abc"), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(p->attached, kept);
}

TEST(bytes_alone_bring_no_descriptor, pair *p)
{
    assert_int_equal(send_text(p, "abc"), 3);
    expect_text(p, 9, "abc");
    assert_int_equal(p->taken, -1);
}

TEST(bytes_alone_leave_the_one_that_came_before, pair *p)
{
    int kept;

    p->attached = memfd_sealed(100, 3);
    assert_int_equal(send_text(p, "a"), 1);
    expect_text(p, 9, "a");
    kept = p->taken;
    assert_int_equal(send_text(p, "b"), 1);
    expect_text(p, 9, "b");
    assert_int_equal(p->taken, kept);
}

TEST(a_descriptor_that_came_is_closed_by_exec, pair *p)
{
    p->attached = memfd_sealed(100, 3);
    assert_int_equal(send_text(p, "a"), 1);
    expect_text(p, 9, "a");
    assert_true((fcntl(p->taken, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST(keeps_the_first_of_any_number_and_closes_the_others, pair *p)
{
    for (size_t n = 1; n <= MOST; n++) {
        int before = descriptors_open(0) - (p->taken >= 0), first = send_many(p, n);
        expect_text(p, 9, "x");
        assert_true(same_file(p->taken, first));
        close(first);
        assert_int_equal(descriptors_open(0), before + 1);
    }
}

TEST(a_later_one_replaces_an_earlier_one, pair *p)
{
    int before = descriptors_open(0), last = -1;

    for (int i = 0; i < 20; i++) {
        if (last >= 0) close(last);
        last = send_many(p, 1);
        expect_text(p, 9, "x");
    }
    assert_true(same_file(p->taken, last));
    close(last);
    assert_int_equal(descriptors_open(0), before + 1);
}

TEST(descriptors_that_nobody_received_go_with_the_socket, pair *p)
{
    for (int i = 0; i < 20; i++) close(send_many(p, 3));
}

TEST(bytes_come_without_their_descriptor_where_none_is_free, pair *p)
{
    char byte;
    ssize_t got;

    close(send_many(p, 1));
    descriptors_forbid();
    got = pd_descriptor_receive(p->end[1], &(struct iovec){ &byte, 1 }, 1, &p->taken);
    descriptors_allow();
    assert_int_equal(got, 1);
    assert_int_equal(p->taken, -1);
}

HOLDS_FOR(const pair *p, a_connection_is_open_while_nobody_has_closed_it,
          assert_true(pd_descriptor_is_open(p->end[0])));

TEST(bytes_that_wait_do_not_end_it, pair *p)
{
    assert_int_equal(send_text(p, "abc"), 3);
    assert_true(pd_descriptor_is_open(p->end[1]));
}

TEST(a_peer_that_has_only_ended_its_sending_side_has_not_closed_it, const pair *p)
{
    shutdown(p->end[0], SHUT_WR);
    assert_true(pd_descriptor_is_open(p->end[1]));
}

TEST(a_side_that_sends_no_more_still_has_an_open_connection, const pair *p)
{
    shutdown(p->end[1], SHUT_WR);
    assert_true(pd_descriptor_is_open(p->end[1]));
}

TEST(a_peer_that_has_closed_it_ends_it, const pair *p)
{
    close(p->end[0]);
    assert_false(pd_descriptor_is_open(p->end[1]));
    assert_int_equal(dup(p->end[1]), p->end[0]); /* what tear_down closes */
}

TEST(a_peer_that_has_closed_it_ends_it_even_where_its_bytes_wait, pair *p)
{
    assert_int_equal(send_text(p, "abc"), 3);
    close(p->end[0]);
    assert_false(pd_descriptor_is_open(p->end[1]));
    assert_int_equal(dup(p->end[1]), p->end[0]);
}

TEST(the_peer_of_a_unix_socket_is_its_user, const pair *p)
{
    pd_identity identity;
    char expected[32];

    snprintf(expected, sizeof expected, "user:%u", (unsigned)geteuid());
    pd_descriptor_identify(p->end[0], &identity);
    assert_int_equal(identity.kind, PD_IDENTITY_USER);
    assert_string_equal(identity.text, expected);
}

TEST(the_peer_of_another_socket_is_anyone)
{
    pd_identity identity;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    pd_descriptor_identify(fd, &identity);
    close(fd);
    assert_int_equal(identity.kind, PD_IDENTITY_NONE);
    assert_string_equal(identity.text, "anyone");
}
