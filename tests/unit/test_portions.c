/* Tests portions on the wire: what the answers to Hello and Declare say of a job on several shards, which handles
 * portions have, and that requests for what lies elsewhere are refused. */
#include "test.h"
#include "scene.h"

enum { ROWS = 512, COLS = 512, PORTION = ROWS / 2 * COLS, PIECES = 8192 };

static void hello_to(scene *s, int fd, uint32_t shard, uint32_t shards, uint64_t cluster)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    Paramd__Option scope = PARAMD__OPTION__INIT, split = PARAMD__OPTION__INIT, *options[] = { &scope, &split };
    char *rules[] = { "* sgd lr=1" };

    scope.name = "nonfinite_scope";
    scope.value = "job";
    split.name = "split_bytes";
    split.value = "512KiB";
    hello.options = options;
    hello.n_options = 2;
    hello.rules = rules;
    hello.n_rules = 1;
    hello.protocol = 1;
    hello.job = "j";
    hello.world_size = 1;
    hello.nonce = 1;
    hello.shard = shard;
    hello.shards = shards;
    hello.cluster = cluster;
    scene_send(s, fd, PD_HELLO, &hello.base, 0);
    scene_settle(s);
}

static const Paramd__HelloReply *welcome(scene *s, int fd)
{
    Paramd__HelloReply *reply;

    scene_expect(s, fd, PD_HELLO);
    assert_int_equal(pd_reply_unpack(s->arena, PD_HELLO, s->in, s->prefix.header_bytes, (void **)&reply, NULL), PD_OK);
    return reply;
}

/* Declares a, wte, which is cut in two, and b. */
static void declare(scene *s, int fd)
{
    static char *const names[] = { "a", "wte", "b" };
    Paramd__DeclareRequest request = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter at[3], *list[3];
    uint64_t matrix[] = { ROWS, COLS }, vector = 10;

    for (unsigned i = 0; i < 3; i++) {
        paramd__parameter__init(&at[i]);
        at[i].name = names[i];
        at[i].shape = i == 1 ? matrix : &vector;
        at[i].n_shape = i == 1 ? 2 : 1;
        list[i] = &at[i];
    }
    request.parameters = list;
    request.n_parameters = 3;
    request.last = true;
    scene_send(s, fd, PD_DECLARE, &request.base, 0);
    scene_settle(s);
}

static const Paramd__DeclareReply *declared(scene *s, int fd)
{
    Paramd__DeclareReply *reply;

    scene_expect(s, fd, PD_DECLARE);
    assert_int_equal(pd_reply_unpack(s->arena, PD_DECLARE, s->in, s->prefix.header_bytes, (void **)&reply, NULL),
                     PD_OK);
    return reply;
}

static int join(scene *s, uint32_t shard)
{
    int fd = scene_connect(s);

    hello_to(s, fd, shard, 2, 99);
    welcome(s, fd);
    declare(s, fd);
    return fd;
}

/* Sends initial weights of the elements [first, first + count) of what has the handle. */
static void init(scene *s, int fd, uint32_t handle, uint64_t first, uint64_t count)
{
    Paramd__InitRequest request = PARAMD__INIT_REQUEST__INIT;
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };

    piece.handle = handle;
    piece.dtype = PD_F32;
    piece.first = first;
    piece.count = count;
    request.pieces = pieces;
    request.n_pieces = 1;
    scene_send(s, fd, PD_INIT, &request.base, count * sizeof(float));
    scene_settle(s);
}

static void pull(scene *s, int fd, uint32_t handle, uint64_t first, uint64_t count)
{
    Paramd__PullRequest request = PARAMD__PULL_REQUEST__INIT;
    Paramd__Want want = PARAMD__WANT__INIT, *wants[] = { &want };

    want.handle = handle;
    want.first = first;
    want.count = count;
    request.wants = wants;
    request.n_wants = 1;
    scene_send(s, fd, PD_PULL, &request.base, 0);
    scene_settle(s);
}

OBJECT(scene_new_chunks(PIECES), scene_free);

TEST(the_answers_name_the_cluster_the_map_and_where_portions_lie, scene *s)
{
    const Paramd__DeclareReply *reply;
    uint32_t shards[4];
    int fd = scene_connect(s);

    hello_to(s, fd, 0, 2, 0);
    assert_true(welcome(s, fd)->cluster != 0);
    declare(s, fd);
    reply = declared(s, fd);
    assert_true(reply->map != 0 && reply->settles && reply->must_init);
    assert_int_equal(reply->n_parameters, 3);
    assert_int_equal(reply->parameters[0]->n_portions, 0);
    assert_int_equal(reply->parameters[2]->n_portions, 0);
    assert_int_equal(reply->parameters[1]->n_portions, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reply->parameters[1]->portions[i]->first, i * PORTION);
        assert_int_equal(reply->parameters[1]->portions[i]->count, PORTION);
        shards[i] = reply->parameters[1]->portions[i]->shard;
    }
    shards[2] = reply->parameters[0]->shard;
    shards[3] = reply->parameters[2]->shard;
    assert_int_equal(shards[0] + shards[1], 1);
    assert_int_equal(shards[2] + shards[3], 1);
    /* Nothing of what lies on the other shard is wanted here. */
    for (unsigned i = 0; i < 3; i += 2)
        assert_int_equal(reply->parameters[i]->initialised, reply->parameters[i]->shard == 1);
    assert_false(reply->parameters[1]->initialised);
    close(fd);
}

TEST(a_server_that_is_alone_names_no_cluster, scene *s)
{
    const Paramd__HelloReply *first;
    const Paramd__DeclareReply *reply;
    int fd = scene_connect(s);

    hello_to(s, fd, 0, 0, 0);
    first = welcome(s, fd);
    assert_true(first->cluster == 0 && first->life != 0);
    declare(s, fd);
    reply = declared(s, fd);
    assert_true(reply->map == 0 && !reply->settles);
    for (unsigned i = 0; i < 3; i++) assert_true(reply->parameters[i]->n_portions == 0);
    init(s, fd, 3, 0, 10);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "handle 3: 3 parameters are declared");
    close(fd);
}

TEST(a_portion_has_a_handle_and_counts_its_elements_from_its_first, scene *s)
{
    int fd = join(s, 1);
    uint32_t here = declared(s, fd)->parameters[1]->portions[0]->shard == 1 ? 3 : 4, elsewhere = 7 - here;

    for (uint64_t first = 0; first < PORTION; first += PIECES) {
        init(s, fd, here, first, PIECES);
        scene_expect(s, fd, PD_INIT);
    }
    pull(s, fd, here, PIECES, PIECES);
    scene_expect(s, fd, PD_PULL);
    assert_int_equal(s->prefix.payload_bytes, PIECES * sizeof(float));
    init(s, fd, here, PORTION, PIECES);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "between that and 131072");
    init(s, fd, elsewhere, 0, PIECES);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "lies on shard 0 of 2, this is shard 1");
    pull(s, fd, elsewhere, 0, PIECES);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "lies on shard 0 of 2, this is shard 1");
    init(s, fd, 5, 0, PIECES);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "handle 5: 5 parameters are declared");
    close(fd);
}

TEST(a_cut_parameter_and_one_of_another_shard_have_no_data_here, scene *s)
{
    int fd = join(s, 1);
    const Paramd__DeclareReply *reply = declared(s, fd);
    uint32_t here = reply->parameters[0]->shard == 1 ? 0 : 2, elsewhere = 2 - here;

    init(s, fd, 1, 0, PIECES);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "parameter wte is cut: its portions have handles of their own");
    pull(s, fd, 1, 0, PIECES);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "parameter wte is cut");
    init(s, fd, elsewhere, 0, 10);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "lies on shard 0 of 2, this is shard 1");
    init(s, fd, here, 0, 10);
    scene_expect(s, fd, PD_INIT);
    close(fd);
}

static void assert_no_hello(scene *s, uint32_t shard, uint32_t shards, uint64_t cluster, const char *words)
{
    int fd = scene_connect(s);

    hello_to(s, fd, shard, shards, cluster);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, words);
    close(fd);
    scene_settle(s);
}

TEST(a_hello_for_an_impossible_shard_is_refused, scene *s)
{
    int fd;

    assert_no_hello(s, 2, 2, 5, "shards go from 0 to 1");
    assert_no_hello(s, 0, 65, 5, "at most 64");
    assert_no_hello(s, 1, 2, 0, "say Hello to shard 0 first");
    assert_no_hello(s, 0, 1, 5, "for a server that is alone");
    fd = scene_connect(s);
    hello_to(s, fd, 1, 2, 5);
    assert_true(welcome(s, fd)->cluster == 5);
    close(fd);
}

TEST(lists_say_which_shard_has_the_job, scene *s)
{
    const Paramd__ListReply *reply;
    uint64_t map;
    int fd = join(s, 1);

    map = declared(s, fd)->map;
    reply = scene_list(s, PD_INFO_JOBS, "");
    assert_int_equal(reply->n_jobs, 1);
    assert_int_equal(reply->jobs[0]->shard, 1);
    assert_int_equal(reply->jobs[0]->shards, 2);
    assert_true(reply->jobs[0]->cluster == 99 && reply->jobs[0]->map == map);
    reply = scene_list(s, PD_INFO_PARAMS, "j");
    assert_int_equal(reply->n_params, 2);
    close(fd);
}
