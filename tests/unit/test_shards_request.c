/* Tests what a daemon with a table of shards tells workers and operators, and which workers it refuses. The table is
 * the test's. */
#include "test.h"
#include "conversation.h"
#include "loop.h"
#include "cluster_table.h"
#include "scene.h"

typedef struct world {
    scene *s;
    pd_cluster_table table;
} world;

static world *present; /* the function of the platform has no argument of the test's own */

static const pd_cluster_table *tell_table(void *arg)
{
    (void)arg;
    return &present->table;
}

static void set_up(world *w)
{
    present = w;
    w->s = scene_new(16, NULL);
    w->s->daemon->platform.table = tell_table;
    w->table.name = "demo";
    w->table.version = 7;
    w->table.n_shards = 3;
    w->table.own = 1;
    w->table.tenure = 20;
    w->table.owned_until_ms = UINT64_MAX;
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(w->table.shards[i].url, sizeof w->table.shards[i].url, "tcp://s%u:7070", i);
        w->table.shards[i].tenure = i == 1 ? 20 : 10 + i;
        w->table.shards[i].alive = i != 2;
    }
    w->table.shards[1].lease_ms = 7000;
    w->table.n_spares = 1;
    strcpy(w->table.spares[0].name, "host9");
    strcpy(w->table.spares[0].http, "http://host9:8080");
    strcpy(w->table.spares[0].url, "tcp://host9:7070");
}

static void tear_down(world *w)
{
    scene_free(w->s);
}

FIXTURE(world, set_up, tear_down);

/* A Hello of a worker of job "j", and the answer to it. */
static void greet(scene *s, int fd, const Paramd__HelloRequest *with)
{
    Paramd__HelloRequest hello = *with;
    char *rules[] = { (char *)"* sgd lr=1" };

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.job = (char *)"j";
    hello.world_size = 1;
    hello.nonce = 5;
    hello.rules = rules;
    hello.n_rules = 1;
    scene_send(s, fd, PD_HELLO, &hello.base, 0);
    scene_settle(s);
}

static const Paramd__HelloReply *expect_welcome(scene *s, int fd)
{
    void *message;

    scene_expect(s, fd, PD_HELLO);
    assert_int_equal(pd_reply_unpack(s->arena, PD_HELLO, s->in, s->prefix.header_bytes, &message, NULL), PD_OK);
    return message;
}

static const Paramd__ShardsReply *ask_shards(scene *s, int fd)
{
    void *message;

    scene_say(s, fd, PD_SHARDS);
    scene_settle(s);
    scene_expect(s, fd, PD_SHARDS);
    pd_arena_reset(s->arena);
    assert_int_equal(pd_reply_unpack(s->arena, PD_SHARDS, s->in, s->prefix.header_bytes, &message, NULL), PD_OK);
    return message;
}

static Paramd__HelloRequest hello_of(uint32_t shard, uint32_t shards, uint64_t tenure)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;

    hello.shard = shard;
    hello.shards = shards;
    hello.cluster = shard > 0 ? 4711 : 0;
    hello.tenure = tenure;
    hello.follows = true;
    return hello;
}

/* Sends a Hello that is refused. */
static void expect_refusal(world *w, const Paramd__HelloRequest *hello, int code, const char *part)
{
    int fd = scene_connect(w->s);

    greet(w->s, fd, hello);
    scene_expect_error(w->s, fd, code, part);
    close(fd);
    scene_settle(w->s);
}

TEST(shards_lists_owners_and_spares, world *w)
{
    int fd = scene_operator(w->s);
    const Paramd__ShardsReply *reply = ask_shards(w->s, fd);

    assert_string_equal(reply->cluster, "demo");
    assert_int_equal(reply->version, 7);
    assert_int_equal(reply->n_shards, 3);
    assert_int_equal(reply->shards[1]->shard, 1);
    assert_string_equal(reply->shards[1]->url, "tcp://s1:7070");
    assert_int_equal(reply->shards[1]->tenure, 20);
    assert_int_equal(reply->shards[1]->lease_ms, 7000);
    assert_true(reply->shards[0]->alive);
    assert_false(reply->shards[2]->alive);
    assert_int_equal(reply->n_spares, 1);
    assert_string_equal(reply->spares[0]->name, "host9");
    assert_string_equal(reply->spares[0]->http, "http://host9:8080");
    assert_string_equal(reply->spares[0]->url, "tcp://host9:7070");
    close(fd);
}

TEST(a_daemon_without_an_engine_says_in_words_that_it_has_no_table, world *w)
{
    int fd = scene_operator(w->s);

    w->s->daemon->platform.table = NULL;
    scene_say(w->s, fd, PD_SHARDS);
    scene_settle(w->s);
    scene_expect_error(w->s, fd, PD_FAILED_PRECONDITION, "this daemon has no cluster.engine: name every shard");
    close(fd);
}

TEST(the_largest_table_fits_into_a_frame, world *w)
{
    int fd = scene_operator(w->s);
    const Paramd__ShardsReply *reply;

    w->table.n_shards = PD_MAX_SHARDS;
    w->table.n_spares = PD_CLUSTER_SPARES;
    for (uint32_t i = 0; i < PD_MAX_SHARDS; i++) {
        memset(w->table.shards[i].url, 'u', PD_CLUSTER_URL - 1);
        memset(w->table.shards[i].http, 'h', PD_CLUSTER_URL - 1);
        memset(w->table.spares[i].http, 'h', PD_CLUSTER_URL - 1);
        memset(w->table.spares[i].url, 'u', PD_CLUSTER_URL - 1);
    }
    reply = ask_shards(w->s, fd);
    assert_int_equal(reply->n_shards, PD_MAX_SHARDS);
    assert_int_equal(strlen(reply->shards[63]->url), PD_CLUSTER_URL - 1);
    close(fd);
}

TEST(a_welcome_has_the_daemons_tenure_and_the_number_of_shards, world *w)
{
    Paramd__HelloRequest hello = hello_of(1, 3, 20);
    const Paramd__HelloReply *reply;
    int fd = scene_connect(w->s);

    greet(w->s, fd, &hello);
    reply = expect_welcome(w->s, fd);
    assert_int_equal(reply->tenure, 20);
    assert_int_equal(reply->shards_known, 3);
    assert_int_not_equal(reply->creator, 0);
    close(fd);
}

TEST(a_worker_that_knows_a_newer_owner_is_sent_away, world *w)
{
    Paramd__HelloRequest hello = hello_of(1, 3, 21);

    expect_refusal(w, &hello, PD_UNAVAILABLE, "shard 1 has a newer owner, with tenure 21: that of this daemon is 20");
}

TEST(a_daemon_without_an_engine_sends_who_follows_a_shard_away, world *w)
{
    Paramd__HelloRequest hello = hello_of(1, 3, 21);

    w->s->daemon->platform.table = NULL;
    expect_refusal(w, &hello, PD_UNAVAILABLE, "this daemon owns no shard");
}

TEST(who_follows_a_shard_to_another_ones_daemon_looks_elsewhere, world *w)
{
    Paramd__HelloRequest hello = hello_of(2, 3, 15);

    expect_refusal(w, &hello, PD_UNAVAILABLE, "this daemon has shard 1 of cluster demo");
}

TEST(a_list_in_another_order_is_refused_for_good, world *w)
{
    Paramd__HelloRequest hello = hello_of(2, 3, 0);

    expect_refusal(w, &hello, PD_FAILED_PRECONDITION, "order the list as the shards are numbered");
}

TEST(a_worker_that_names_one_daemon_is_told_to_ask_and_joins_nothing, world *w)
{
    Paramd__HelloRequest hello = hello_of(0, 0, 0);
    const Paramd__HelloReply *reply;
    int fd = scene_connect(w->s);

    greet(w->s, fd, &hello);
    reply = expect_welcome(w->s, fd);
    assert_int_equal(reply->shards_known, 3);
    assert_int_equal(reply->creator, 0);
    assert_int_equal(ask_shards(w->s, fd)->n_shards, 3);
    close(fd);
    assert_int_equal(scene_list(w->s, 1, "")->n_jobs, 0);
}

TEST(an_older_client_that_names_one_daemon_hears_what_to_do, world *w)
{
    Paramd__HelloRequest hello = hello_of(0, 0, 0);

    hello.follows = false;
    expect_refusal(w, &hello, PD_FAILED_PRECONDITION, "one of the 3 shards of cluster demo: name all of them");
}

TEST(a_cluster_of_one_shard_is_joined_as_before, world *w)
{
    Paramd__HelloRequest hello = hello_of(0, 0, 0);
    const Paramd__HelloReply *reply;
    int fd = scene_connect(w->s);

    w->table.n_shards = 1;
    w->table.own = 0;
    greet(w->s, fd, &hello);
    reply = expect_welcome(w->s, fd);
    assert_int_not_equal(reply->creator, 0);
    assert_int_equal(reply->tenure, 20);
    close(fd);
}

/* Returns the number of notices that have come. */
static int notices(scene *s, int fd, uint64_t version)
{
    void *message;
    int n = 0;

    while (scene_receive(s, fd)) {
        assert_int_equal(s->prefix.method, PD_HEARTBEAT);
        assert_int_equal(s->prefix.request, 0);
        assert_int_equal(pd_reply_unpack(s->arena, PD_HEARTBEAT, s->in, s->prefix.header_bytes, &message, NULL), PD_OK);
        assert_int_equal(((const Paramd__Ok *)message)->moved, version);
        n++;
    }
    return n;
}

TEST(an_owner_whose_lease_has_ended_creates_no_job_as_another_one_may_have_it, world *w)
{
    Paramd__HelloRequest hello = hello_of(1, 3, 20);
    int fd;

    w->table.owned_until_ms = 1;
    expect_refusal(w, &hello, PD_UNAVAILABLE, "job j is not on this server, whose lease of shard 1 has ended");
    hello.rejoins = true;
    expect_refusal(w, &hello, PD_UNAVAILABLE, "job j is not on this server, whose lease of shard 1 has ended");
    hello.rejoins = false;
    w->table.owned_until_ms = UINT64_MAX;
    fd = scene_connect(w->s);
    greet(w->s, fd, &hello);
    assert_true(expect_welcome(w->s, fd)->created);
    close(fd);
}

TEST(an_owner_whose_lease_has_ended_lets_workers_come_back_to_a_job_that_it_has, world *w)
{
    const Paramd__HelloRequest hello = hello_of(1, 3, 20);

    for (int i = 0; i < 2; i++) {
        int fd = scene_connect(w->s);
        greet(w->s, fd, &hello);
        assert_int_equal(expect_welcome(w->s, fd)->created, i == 0);
        close(fd);
        scene_settle(w->s);
        w->table.owned_until_ms = 1;
    }
}

TEST(workers_that_follow_hear_once_that_a_shard_has_moved, world *w)
{
    Paramd__HelloRequest hello = hello_of(1, 3, 20);
    int operator= scene_operator(w->s), fd = scene_connect(w->s);

    greet(w->s, fd, &hello);
    expect_welcome(w->s, fd);
    w->table.version = 8;
    pd_conversation_tell_moved(w->s->daemon);
    scene_settle(w->s);
    assert_int_equal(notices(w->s, fd, 8), 1);
    assert_int_equal(notices(w->s, operator, 8), 0);
    close(operator);
    close(fd);
}

TEST(workers_that_do_not_follow_hear_nothing, world *w)
{
    Paramd__HelloRequest hello = hello_of(1, 3, 20);
    int fd = scene_connect(w->s);

    hello.follows = false;
    greet(w->s, fd, &hello);
    expect_welcome(w->s, fd);
    pd_conversation_tell_moved(w->s->daemon);
    scene_settle(w->s);
    assert_int_equal(notices(w->s, fd, 7), 0);
    close(fd);
}

/* Joins shard 1 as a worker, and asks it to go back. */
static int ask_back(world *w, const uint64_t *tenures, size_t n)
{
    Paramd__GoBackRequest back = PARAMD__GO_BACK_REQUEST__INIT;
    Paramd__HelloRequest hello = hello_of(1, 3, 20);
    int fd = scene_connect(w->s);

    greet(w->s, fd, &hello);
    expect_welcome(w->s, fd);
    back.step = 4;
    back.life = 1;
    back.tenures = (uint64_t *)tenures;
    back.n_tenures = n;
    scene_send(w->s, fd, PD_GO_BACK, &back.base, 0);
    scene_settle(w->s);
    return fd;
}

TEST(who_has_looked_at_an_earlier_owner_of_another_shard_does_not_send_this_one_back, world *w)
{
    int fd;

    for (uint32_t i = 0; i < 3; i++) {
        uint64_t tenures[] = { 30, 30, 30 };
        w->table.shards[i].last_tenure = 31;
        fd = ask_back(w, tenures, 3);
        scene_expect_error(w->s, fd, PD_ABORTED, "has a newer owner, with tenure 31, than the one with 30");
        close(fd);
        w->table.shards[i].last_tenure = 30;
        scene_settle(w->s);
    }
}

/* A server that has gone since does not count less than one that is there: last_tenure. */
TEST(an_owner_that_is_gone_has_been_there_all_the_same, world *w)
{
    const uint64_t tenures[] = { 10, 20, 12 };
    int fd;

    w->table.shards[2].tenure = 0;
    w->table.shards[2].alive = false;
    w->table.shards[2].last_tenure = 13;
    fd = ask_back(w, tenures, 3);
    scene_expect_error(w->s, fd, PD_ABORTED, "shard 2 has a newer owner");
    close(fd);
}

/* The store refuses what gets there: the job has no checkpoints. */
TEST(who_has_looked_at_the_newest_owners_or_does_not_know_them_is_not_refused, world *w)
{
    const uint64_t same[] = { 10, 20, 12 }, newer[] = { 11, 25, 13 }, unknown[] = { 0, 20, 0 };
    const uint64_t *const lists[] = { same, newer, unknown, same };
    int fd;

    for (uint32_t i = 0; i < 3; i++) w->table.shards[i].last_tenure = i == 1 ? 20 : 10 + i;
    for (int i = 0; i < 4; i++) {
        fd = ask_back(w, lists[i], i < 3 ? 3 : 0);
        scene_expect_error(w->s, fd, PD_FAILED_PRECONDITION, "no checkpoints to go back to");
        close(fd);
        scene_settle(w->s);
    }
    w->s->daemon->platform.table = NULL;
}

TEST(more_tenures_than_a_cluster_has_shards_are_refused, world *w)
{
    static const uint64_t tenures[PD_MAX_SHARDS + 1];
    int fd = ask_back(w, tenures, PD_MAX_SHARDS + 1);

    scene_expect_error(w->s, fd, PD_INVALID_ARGUMENT, "GoBack with tenures of 65 shards: at most 64");
    close(fd);
}
