/* Tests a client whose rank another process has, or whose job is not there yet: what its Hello says, and for how long
 * it tries again. */
#include "test.h"
#include "peer.h"

#define SECOND UINT64_C(1000000000)

static const char text[] = "job j is in training: rank 0 (host:7, connected) holds it";

/* The client connects, and the server refuses its Hello. */
static void refuse(peer *p, int code)
{
    peer_frame l;

    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    peer_refuse(p, &l.prefix, code, text);
    peer_frame_drop(&l);
}

TEST(hello_tells_the_run_the_wish_to_resume_and_that_it_joins)
{
    pd_core_config config = peer_four;
    const Paramd__HelloRequest *hello;
    peer *p;
    peer_frame l;

    config.run = "monday";
    config.resume = PD_RESUME_NO;
    config.joins = true;
    p = peer_new(&config);
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    hello = l.message;
    assert_string_equal(hello->run, "monday");
    assert_int_equal(hello->resume, 2);
    assert_true(hello->joins);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(over_a_network_it_tries_for_35_seconds_to_get_a_rank_that_is_held)
{
    peer *p = peer_new(&peer_four);
    uint64_t begin = p->now;
    pd_error err;

    for (refuse(p, PD_ALREADY_EXISTS); p->core->end.error.code == PD_OK; refuse(p, PD_ALREADY_EXISTS)) {
        assert_true(p->now - begin < 35 * SECOND);
        assert_true(p->core->link.held_ns != 0);
        assert_string_equal(p->core->link.reason, text);
        peer_cut(p); /* the next attempt comes at most 2 s later */
    }
    assert_true(p->now - begin >= 35 * SECOND && p->now - begin < 38 * SECOND);
    assert_int_equal(peer_finish(p, p->core->welcome_ticket, &err), PD_ALREADY_EXISTS);
    assert_string_equal(err.text, text);
    peer_free(p);
}

TEST(it_gets_the_rank_when_the_server_finds_the_other_process_dead)
{
    peer *p = peer_new(&peer_four);

    refuse(p, PD_ALREADY_EXISTS);
    peer_cut(p);
    p->now += 30 * SECOND;
    peer_connect(p);
    peer_welcome(p);
    assert_true(pd_core_done(p->core, p->core->welcome_ticket));
    assert_int_equal(p->core->link.held_ns, 0);
    peer_free(p);
}

TEST(over_a_unix_socket_a_rank_that_is_held_ends_the_handle_at_once)
{
    peer *p = peer_new(&peer_four);
    pd_error err;

    p->local = true;
    refuse(p, PD_ALREADY_EXISTS);
    assert_int_equal(peer_finish(p, p->core->welcome_ticket, &err), PD_ALREADY_EXISTS);
    peer_free(p);
}

TEST(an_impatient_client_does_not_try_again)
{
    pd_core_config config = peer_four;
    pd_error err;
    peer *p;

    config.impatient = true;
    p = peer_new(&config);
    refuse(p, PD_ALREADY_EXISTS);
    assert_int_equal(peer_finish(p, p->core->welcome_ticket, &err), PD_ALREADY_EXISTS);
    peer_free(p);
}
