/* Tests how a client's core follows its shard: it refuses earlier owners, asks its server for the table of shards, and
 * connects to the newest owner. */
#include "test.h"
#include "address.h"
#include "call.h"
#include "follow.h"
#include "peer.h"

enum { PARAMS = 2, ELEMENTS = 3, SHARD = 2 };
static const int64_t sizes[PARAMS] = { ELEMENTS, ELEMENTS };
#define MS (SECOND / 1000)

/* A worker of shard 2 of 4, and the table that it shares with the cores of the other shards. */
typedef struct world {
    pd_shard_table *table;
    pd_address addresses[2];
    peer *p;
} world;

static pd_core_config config_of(const world *w)
{
    pd_core_config config = peer_first;

    config.addresses = w->addresses;
    config.urls = 2;
    config.shard = SHARD;
    config.shards = 4;
    config.table = w->table;
    return config;
}

static void set_up(world *w)
{
    pd_core_config config;
    pd_address *two;
    size_t n;

    w->table = pd_shard_table_new(1);
    assert_int_equal(pd_addresses_parse(&two, &n, "tcp://a:1,tcp://a:2", PD_TO_CONNECT, NULL), PD_OK);
    memcpy(w->addresses, two, sizeof w->addresses);
    free(two);
    config = config_of(w);
    w->p = peer_new(&config);
    w->p->cluster = 4711;
    w->p->creator = 1000;
    w->p->tenure = 5;
    w->p->shards_known = 4;
}

static void tear_down(world *w)
{
    peer_free(w->p);
    pd_shard_table_free(w->table);
}

FIXTURE(world, set_up, tear_down);

static void learn(world *w, const char *url, uint64_t tenure)
{
    Paramd__ShardsReply reply = PARAMD__SHARDS_REPLY__INIT;
    Paramd__ShardInfo one = PARAMD__SHARD_INFO__INIT, *list = &one;

    one.shard = SHARD;
    one.url = (char *)url;
    one.tenure = tenure;
    reply.n_shards = 1;
    reply.shards = &list;
    pd_shard_table_learn(w->table, &reply);
}

/* A server's answer: the shard's owner, and a spare. */
static void learn_with_spare(world *w, const char *url, uint64_t tenure, const char *spare)
{
    Paramd__ShardsReply reply = PARAMD__SHARDS_REPLY__INIT;
    Paramd__ShardInfo one = PARAMD__SHARD_INFO__INIT, *list = &one;
    Paramd__SpareInfo waits = PARAMD__SPARE_INFO__INIT, *spares = &waits;

    one.shard = SHARD;
    one.url = (char *)url;
    one.tenure = tenure;
    waits.url = (char *)spare;
    reply.n_shards = reply.n_spares = 1;
    reply.shards = &list;
    reply.spares = &spares;
    pd_shard_table_learn(w->table, &reply);
}

/* The server tells that an entry of the table has changed. */
static void tell_moved(peer *p)
{
    const pd_prefix nobody = { .method = PD_HEARTBEAT };
    Paramd__Ok ok = PARAMD__OK__INIT;

    ok.moved = 17;
    assert_int_equal(peer_reply(p, &nobody, &ok.base, NULL, 0), PD_OK);
}

static void join(world *w)
{
    peer_connect(w->p);
    peer_welcome(w->p);
}

/* Lets `ns` pass, and returns how many requests Shards the core makes, which get no answer. */
static int asks_within(peer *p, uint64_t ns)
{
    uint64_t end = p->now + ns;
    peer_frame l;
    int asks = 0;

    for (; p->now < end; p->now += 10 * MS) {
        pd_core_received(p->core, 0, p->now);
        pd_core_tick(p->core, p->now);
        while (peer_take(p, &l)) {
            asks += l.prefix.method == PD_SHARDS;
            peer_frame_drop(&l);
        }
    }
    return asks;
}

/* Takes the core's next request Shards, and answers that the shard's owner is at `url`. */
static void answer_shards(world *w, const char *url, uint64_t tenure)
{
    Paramd__ShardsReply reply = PARAMD__SHARDS_REPLY__INIT;
    Paramd__ShardInfo one = PARAMD__SHARD_INFO__INIT, *list = &one;
    peer_frame l;

    w->p->now = pd_core_next(w->p->core);
    pd_core_tick(w->p->core, w->p->now);
    l = peer_expect(w->p, PD_SHARDS);
    one.shard = SHARD;
    one.url = (char *)url;
    one.tenure = tenure;
    reply.n_shards = 1;
    reply.shards = &list;
    assert_int_equal(peer_reply(w->p, &l.prefix, &reply.base, NULL, 0), PD_OK);
    peer_frame_drop(&l);
}

/* Returns the text of the address that the core connects to next. */
static const char *next_address(const peer *p)
{
    static char text[PD_ADDRESS_TEXT];

    return pd_address_text(&p->core->setup.addresses[p->core->link.url], text);
}

TEST(hello_brings_the_highest_tenure_that_was_seen, world *w)
{
    const Paramd__HelloRequest *hello;
    peer_frame l;

    peer_connect(w->p);
    l = peer_expect(w->p, PD_HELLO);
    hello = l.message;
    assert_true(hello->follows);
    assert_int_equal(hello->tenure, 0);
    peer_frame_drop(&l);
    peer_cut(w->p);
    join(w);
    peer_cut(w->p);
    peer_connect(w->p);
    l = peer_expect(w->p, PD_HELLO);
    hello = l.message;
    assert_int_equal(hello->tenure, 5);
    peer_frame_drop(&l);
}

TEST(the_welcome_of_an_earlier_owner_is_not_accepted, world *w)
{
    join(w);
    peer_cut(w->p);
    w->p->tenure = 4;
    join(w);
    assert_false(w->p->core->link.welcomed);
    assert_int_equal(pd_core_link(w->p->core, w->p->now), PD_LINK_DROP);
    assert_non_null(strstr(w->p->core->link.reason, "no longer the owner of shard 2"));
    peer_cut(w->p);
    w->p->tenure = 0; /* a server without a table */
    join(w);
    assert_false(w->p->core->link.welcomed);
    peer_cut(w->p);
    w->p->tenure = 6;
    join(w);
    assert_true(w->p->core->link.welcomed);
    assert_int_equal(w->p->core->following.tenure, 6);
}

TEST(whatever_tenures_come_no_welcome_has_a_lower_one_than_before, world *w)
{
    uint64_t random = 3, highest = 0;

    for (int i = 0; i < 300; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        w->p->tenure = (random >> 33) % 40;
        join(w);
        assert_int_equal(w->p->core->link.welcomed, w->p->tenure >= highest);
        highest = w->p->tenure > highest ? w->p->tenure : highest;
        assert_int_equal(w->p->core->following.tenure, highest);
        pd_core_down(w->p->core, w->p->now, "cut");
        w->p->now = pd_core_next(w->p->core);
    }
}

TEST(a_server_without_a_table_is_never_asked, world *w)
{
    w->p->tenure = 0;
    w->p->shards_known = 0;
    join(w);
    tell_moved(w->p);
    assert_int_equal(asks_within(w->p, 10 * SECOND), 0);
    peer_cut(w->p);
    peer_cut(w->p);
    join(w);
    assert_int_equal(asks_within(w->p, 10 * SECOND), 0);
    assert_true(pd_shard_table_due(w->table, SHARD) == UINT64_MAX);
}

TEST(a_notice_is_followed_by_one_request_within_half_a_second, world *w)
{
    join(w);
    answer_shards(w, "tcp://a:1", 5); /* a welcome with a new tenure is, too */
    w->p->now += 5 * SECOND;
    pd_core_received(w->p->core, 1, w->p->now);
    for (int i = 0; i < 63; i++) tell_moved(w->p); /* one of each other shard */
    assert_in_range(pd_follow_due(w->p->core), w->p->now, w->p->now + SECOND / 2);
    assert_int_equal(asks_within(w->p, 10 * SECOND), 1);
}

TEST(the_core_whose_server_has_told_of_a_change_asks_before_the_cores_of_other_shards, world *w)
{
    join(w);
    answer_shards(w, "tcp://a:1", 5);
    w->p->now += 5 * SECOND;
    pd_core_received(w->p->core, 1, w->p->now);
    tell_moved(w->p);
    assert_true(pd_follow_due(w->p->core) < pd_shard_table_due(w->table, SHARD + 1));
}

/* Asks the core's server to go back, and refuses that. */
static void refuse_to_go_back(world *w, int code)
{
    const uint64_t tenures[] = { 2, 3, 5, 4 };
    const pd_back_to to = { .step = 8, .life = 77, .durable = 9, .tenures = tenures, .n_tenures = 4 };
    const Paramd__GoBackRequest *back;
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    assert_int_equal(pd_core_ask_back(w->p->core, &to, &ticket, &err), PD_OK);
    l = peer_expect(w->p, PD_GO_BACK);
    back = l.message;
    assert_int_equal(back->n_tenures, 4);
    assert_memory_equal(back->tenures, tenures, sizeof tenures);
    assert_int_equal(back->durable, 10);
    peer_refuse(w->p, &l.prefix, code, "no");
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(w->p, ticket, &err), code);
}

TEST(a_server_that_does_not_go_back_now_is_asked_where_the_shards_are, world *w)
{
    join(w);
    answer_shards(w, "tcp://a:1", 5);
    w->p->now += 5 * SECOND;
    pd_core_received(w->p->core, 1, w->p->now);
    refuse_to_go_back(w, PD_NOT_FOUND);
    assert_true(pd_follow_due(w->p->core) == UINT64_MAX);
    refuse_to_go_back(w, PD_ABORTED);
    assert_in_range(pd_follow_due(w->p->core), w->p->now, w->p->now + SECOND / 2);
    assert_true(pd_follow_due(w->p->core) < pd_shard_table_due(w->table, SHARD + 1));
}

TEST(a_request_that_the_connection_has_lost_is_made_again, world *w)
{
    join(w);
    assert_int_equal(asks_within(w->p, SECOND), 1);
    peer_cut(w->p);
    join(w);
    assert_int_equal(asks_within(w->p, 2 * SECOND), 1);
}

TEST(a_core_that_cannot_connect_lets_another_one_ask, world *w)
{
    join(w);
    answer_shards(w, "tcp://a:1", 5);
    pd_core_down(w->p->core, w->p->now, "cut"); /* it may be back at once */
    assert_true(pd_shard_table_due(w->table, SHARD) == UINT64_MAX);
    w->p->now = pd_core_next(w->p->core);
    pd_core_down(w->p->core, w->p->now, "connection refused");
    assert_true(pd_shard_table_due(w->table, SHARD) < w->p->now + 2 * SECOND);
    assert_true(pd_follow_due(w->p->core) == UINT64_MAX); /* it has no connection itself */
}

TEST(a_shard_that_has_moved_is_connected_at_its_new_place_at_once, world *w)
{
    join(w);
    answer_shards(w, "tcp://a:1", 5);
    assert_false(pd_core_follow(w->p->core, w->p->now));
    tell_moved(w->p);
    answer_shards(w, "tcp://b:9", 8);
    assert_true(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(pd_core_link(w->p->core, w->p->now), PD_LINK_DROP);
    assert_non_null(strstr(w->p->core->link.reason, "shard 2 has moved to tcp://b:9"));
    pd_core_down(w->p->core, w->p->now, "dropped");
    assert_string_equal(next_address(w->p), "tcp://b:9");
    assert_in_range(pd_core_next(w->p->core), w->p->now, w->p->now + SECOND / 10);
    w->p->tenure = 5; /* the earlier owner, by some mistake of the network */
    join(w);
    assert_false(w->p->core->link.welcomed);
}

/* The owner sleeps: the kernel of its machine accepts a connection, and nobody reads the Hello. */
TEST(a_core_that_waits_for_a_welcome_goes_to_the_new_place_first, world *w)
{
    join(w);
    pd_core_down(w->p->core, w->p->now, "the server is silent");
    w->p->now = pd_core_next(w->p->core);
    peer_connect(w->p);
    learn(w, "tcp://b:9", 8);
    assert_true(pd_core_follow(w->p->core, w->p->now));
    assert_true(w->p->core->setup.urls > 1); /* there are addresses that the user has named */
    pd_core_down(w->p->core, w->p->now, "dropped");
    assert_string_equal(next_address(w->p), "tcp://b:9");
    pd_core_down(w->p->core, w->p->now, "connection refused");
    assert_string_not_equal(next_address(w->p), "tcp://b:9");
}

TEST(a_core_that_waits_for_its_next_attempt_goes_to_the_new_place_now, world *w)
{
    join(w);
    pd_core_down(w->p->core, w->p->now, "cut");
    for (int i = 0; i < 40; i++) {
        w->p->now = pd_core_next(w->p->core);
        pd_core_down(w->p->core, w->p->now, "connection refused");
    }
    assert_true(pd_core_next(w->p->core) > w->p->now);
    learn(w, "tcp://b:9", 8);
    assert_true(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(pd_core_link(w->p->core, w->p->now), PD_LINK_CONNECT);
    assert_string_equal(next_address(w->p), "tcp://b:9");
}

TEST(an_owner_that_has_registered_again_keeps_its_connection, world *w)
{
    join(w);
    answer_shards(w, "tcp://advertised:1", 5);
    assert_false(pd_core_follow(w->p->core, w->p->now));
    learn(w, "tcp://advertised:1", 8);
    assert_false(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(pd_core_link(w->p->core, w->p->now), PD_LINK_KEEP);
    assert_int_equal(w->p->core->following.tenure, 8);
    assert_string_equal(next_address(w->p), "tcp://a:1"); /* as the user has named it */
}

TEST(an_answer_about_an_earlier_owner_changes_nothing, world *w)
{
    join(w);
    learn(w, "tcp://b:9", 4);
    assert_false(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(pd_core_link(w->p->core, w->p->now), PD_LINK_KEEP);
    assert_int_equal(w->p->core->following.tenure, 5);
}

TEST(a_shard_that_never_answered_is_looked_for_at_both_places, world *w)
{
    bool seen[3] = { false };

    learn(w, "tcp://b:9", 8);
    assert_true(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(w->p->core->setup.urls, 3);
    for (int i = 0; i < 3; i++) {
        seen[w->p->core->link.url] = true;
        pd_core_down(w->p->core, w->p->now, "connection refused");
        w->p->now = pd_core_next(w->p->core);
    }
    assert_true(seen[0] && seen[1] && seen[2]);
}

/* Lets attempts fail until the core wants to connect to this address. */
static void fail_until(peer *p, const char *address)
{
    for (int i = 0; i < 10; i++) {
        if (pd_core_link(p->core, p->now) == PD_LINK_CONNECT && strcmp(next_address(p), address) == 0) return;
        pd_core_down(p->core, p->now, "connection refused");
        p->now = pd_core_next(p->core);
    }
    fail_msg("the core does not try %s", address);
}

TEST(spares_are_tried_when_the_owner_does_not_answer, world *w)
{
    join(w);
    learn_with_spare(w, "tcp://advertised:1", 5, "tcp://spare:7");
    assert_true(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(pd_core_link(w->p->core, w->p->now), PD_LINK_KEEP);
    assert_int_equal(w->p->core->setup.urls, 3);
    fail_until(w->p, "tcp://spare:7");
    fail_until(w->p, "tcp://a:1");
    fail_until(w->p, "tcp://a:2");
    learn(w, "tcp://advertised:1", 5); /* the spare is gone */
    assert_true(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(w->p->core->setup.urls, 2);
    learn(w, "tcp://advertised:1", 5);
    assert_false(pd_core_follow(w->p->core, w->p->now));
}

TEST(an_owner_that_was_a_spare_keeps_the_connection_and_is_the_address_from_then_on, world *w)
{
    join(w);
    learn_with_spare(w, "tcp://advertised:1", 5, "tcp://spare:7");
    assert_true(pd_core_follow(w->p->core, w->p->now));
    fail_until(w->p, "tcp://spare:7");
    w->p->tenure = 8;
    join(w);
    assert_true(w->p->core->link.welcomed);
    learn(w, "tcp://spare:7", 8);
    assert_true(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(pd_core_link(w->p->core, w->p->now), PD_LINK_KEEP);
    assert_int_equal(w->p->core->setup.urls, 3); /* with those that the user has named */
    assert_string_equal(next_address(w->p), "tcp://spare:7");
    learn(w, "tcp://third:3", 9);
    assert_true(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(pd_core_link(w->p->core, w->p->now), PD_LINK_DROP);
    assert_string_equal(next_address(w->p), "tcp://third:3");
}

TEST(a_shard_that_has_moved_on_from_the_spare_is_followed_there, world *w)
{
    join(w);
    learn_with_spare(w, "tcp://advertised:1", 5, "tcp://spare:7");
    assert_true(pd_core_follow(w->p->core, w->p->now));
    fail_until(w->p, "tcp://spare:7");
    w->p->tenure = 8;
    join(w);
    learn(w, "tcp://third:3", 9); /* before the table has told of the spare */
    assert_true(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(pd_core_link(w->p->core, w->p->now), PD_LINK_DROP);
    assert_string_equal(next_address(w->p), "tcp://third:3");
}

TEST(a_shard_whose_owner_and_spares_are_gone_is_looked_for_where_the_user_has_named_it, world *w)
{
    join(w);
    learn(w, "tcp://b:9", 8);
    assert_true(pd_core_follow(w->p->core, w->p->now));
    pd_core_down(w->p->core, w->p->now, "dropped");
    assert_string_equal(next_address(w->p), "tcp://b:9");
    fail_until(w->p, "tcp://a:1");
    fail_until(w->p, "tcp://a:2");
    fail_until(w->p, "tcp://b:9");
}

TEST(the_core_of_a_shard_tries_all_addresses_that_the_user_has_named_for_the_cluster, world *w)
{
    pd_core_config config = config_of(w);
    pd_address *home;
    size_t n;
    peer *p;

    assert_int_equal(pd_addresses_parse(&home, &n, "tcp://b:9", PD_TO_CONNECT, NULL), PD_OK);
    config.named = w->addresses;
    config.n_named = 2;
    config.addresses = home;
    config.urls = 1;
    learn(w, "tcp://b:9", 5);
    p = peer_new(&config);
    assert_true(pd_core_follow(p->core, p->now));
    fail_until(p, "tcp://a:2");
    fail_until(p, "tcp://a:1");
    fail_until(p, "tcp://b:9");
    peer_free(p);
    free(home);
}

TEST(the_core_of_a_shard_that_has_no_owner_now_says_that_it_follows, world *w)
{
    pd_core_config config = config_of(w);
    const Paramd__HelloRequest *hello;
    peer_frame l;
    peer *p;

    learn(w, "tcp://a:1", 0);
    p = peer_new(&config);
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    hello = l.message;
    assert_int_equal(hello->tenure, PD_TENURE_UNKNOWN);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(an_address_that_is_none_changes_nothing, world *w)
{
    join(w);
    learn(w, "tcp://:::", 8);
    assert_false(pd_core_follow(w->p->core, w->p->now));
    assert_int_equal(pd_core_link(w->p->core, w->p->now), PD_LINK_KEEP);
    assert_int_equal(w->p->core->following.tenure, 5);
}

TEST(a_push_that_was_under_way_is_sent_to_the_new_owner, world *w)
{
    pd_ticket_id declared, push;
    peer_frame l;

    w->p->life = 1;
    join(w);
    declared = peer_declare(w->p, sizes, PARAMS);
    w->p->core->setup.shards = 1; /* the peer has no portions */
    peer_answer_declare(w->p, PARAMS, 0);
    assert_int_equal(peer_finish(w->p, declared, NULL), PD_OK);
    push = peer_push_pull(w->p, PARAMS, ELEMENTS);
    l = peer_expect(w->p, PD_PUSH_PULL);
    peer_frame_drop(&l);
    learn(w, "tcp://b:9", 8);
    assert_true(pd_core_follow(w->p->core, w->p->now));
    peer_cut(w->p);
    w->p->tenure = 8;
    join(w);
    peer_answer_declare(w->p, PARAMS, 0);
    l = peer_expect(w->p, PD_PUSH_PULL);
    peer_frame_drop(&l);
    assert_false(pd_core_done(w->p->core, push));
}

/* Returns a worker whose user has named one server of the four. */
static peer *lone_worker(const world *w)
{
    pd_core_config config = config_of(w);
    peer *p;

    config.shard = config.shards = 0;
    p = peer_new(&config);
    p->tenure = 5;
    p->shards_known = 4;
    return p;
}

/* Answers the lone worker's request Shards with n owners. */
static void answer_lone(peer *p, uint32_t n)
{
    static char urls[4][32];
    Paramd__ShardsReply reply = PARAMD__SHARDS_REPLY__INIT;
    Paramd__ShardInfo all[4], *list[4];
    peer_frame l = peer_expect(p, PD_SHARDS);

    for (uint32_t i = 0; i < n; i++) {
        paramd__shard_info__init(list[i] = &all[i]);
        snprintf(urls[i], sizeof urls[i], "tcp://s%u:1", i);
        all[i].shard = i;
        all[i].url = i == 1 && n == 3 ? (char *)"" : urls[i];
        all[i].tenure = 2 + i;
        all[i].alive = true;
    }
    reply.n_shards = n;
    reply.shards = list;
    assert_int_equal(peer_reply(p, &l.prefix, &reply.base, NULL, 0), PD_OK);
    peer_frame_drop(&l);
}

TEST(a_handle_of_one_server_of_several_ends_when_it_knows_them_all, world *w)
{
    peer *p = lone_worker(w);
    pd_shard_list list;
    pd_error err;

    peer_connect(p);
    peer_welcome(p);
    assert_false(pd_core_done(p->core, p->core->welcome_ticket));
    answer_lone(p, 4);
    assert_true(p->core->following.spread);
    assert_int_equal(peer_finish(p, p->core->welcome_ticket, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(pd_shard_table_list(w->table, &list, &err), PD_OK);
    assert_int_equal(list.n, 4);
    pd_shard_list_free(&list);
    peer_free(p);
}

TEST(a_handle_of_one_server_waits_until_every_shard_has_had_an_owner, world *w)
{
    peer *p = lone_worker(w);

    peer_connect(p);
    peer_welcome(p);
    answer_lone(p, 3);
    assert_false(p->core->following.spread);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    assert_non_null(strstr(p->core->link.reason, "shard 1 of the cluster has had no owner yet"));
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    answer_lone(p, 4);
    assert_true(p->core->following.spread);
    peer_free(p);
}

TEST(a_cluster_of_one_shard_is_joined_like_a_server_alone, world *w)
{
    peer *p = lone_worker(w);
    pd_error err;

    p->shards_known = 1;
    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(peer_finish(p, p->core->welcome_ticket, &err), PD_OK);
    assert_false(p->core->following.spread);
    peer_free(p);
}

TEST(a_job_of_one_server_that_is_older_than_its_cluster_follows_no_shard, world *w)
{
    peer *p = lone_worker(w);
    pd_ticket_id declared;

    p->tenure = p->shards_known = 0; /* the server has no engine yet */
    p->creator = 1000;
    peer_connect(p);
    peer_welcome(p);
    declared = peer_declare(p, sizes, PARAMS);
    peer_answer_declare(p, PARAMS, 0);
    assert_int_equal(peer_finish(p, declared, NULL), PD_OK);
    p->core->begun = true;
    peer_cut(p);
    p->tenure = 5;
    p->shards_known = 4;
    peer_connect(p);
    peer_welcome(p);
    assert_true(p->core->link.welcomed);
    peer_answer_declare(p, PARAMS, 0);
    assert_int_equal(asks_within(p, 3 * SECOND), 0);
    peer_free(p);
}

TEST(a_core_without_a_table_knows_how_many_shards_there_are_and_follows_none, world *w)
{
    pd_core_config config = config_of(w);
    const Paramd__HelloRequest *hello;
    peer_frame l;
    peer *p;

    config.table = NULL;
    config.job = "";
    config.shard = config.shards = 0;
    p = peer_new(&config);
    p->tenure = 5;
    p->shards_known = 4;
    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(p->core->following.known, 4);
    assert_true(p->core->link.welcomed);
    tell_moved(p);
    assert_int_equal(asks_within(p, 5 * SECOND), 0);
    assert_false(pd_core_follow(p->core, p->now));
    peer_cut(p);
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    hello = l.message;
    assert_false(hello->follows);
    assert_int_equal(hello->tenure, 0);
    peer_frame_drop(&l);
    peer_free(p);
}
