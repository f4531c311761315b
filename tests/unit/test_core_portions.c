/* Tests the client's core as one of several cores, each with a shard of the cluster: what it tells the server of the
 * cluster, which parameters and portions it sends to its shard, and what it does when the map changes. */
#include "test.h"
#include "peer.h"
#include "sharing.h"

/* Shard 1 of 3: it has "bias", and the second portion of "table" (rows of 4 elements, cut into 3 portions). */
enum { KERNEL, TABLE, BIAS, N, PORTION = N, PORTIONS = 3, SHARDS = 3, SHARD = 1 };
enum { FIRST = 80, COUNT = 160, ALL = 400 }; /* the shard's portion; in chunks of 64 of its own it has 3 */
static const pd_client_param params[N] = {
    { .name = "kernel", .shape = { 1, { 3 } } },
    { .name = "table", .shape = { 2, { 100, 4 } } },
    { .name = "bias", .shape = { 1, { 5 } } },
};

static const pd_core_config shard_1 = { .job = "job",
                                        .label = "test:1",
                                        .rank = 0,
                                        .world_size = 2,
                                        .nonce = 77,
                                        .urls = 2,
                                        .shard = SHARD,
                                        .shards = SHARDS,
                                        .cluster = 4711 };

/* Answers the Declare that comes next: with these places, at this step. */
static void answer_with(peer *p, const uint64_t firsts[PORTIONS + 1], const uint32_t shards[PORTIONS], uint32_t kernel,
                        uint64_t step, uint64_t map)
{
    Paramd__DeclareReply reply = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared at[N] = { PARAMD__DECLARED__INIT, PARAMD__DECLARED__INIT, PARAMD__DECLARED__INIT };
    Paramd__Declared *list[N] = { &at[0], &at[1], &at[2] };
    Paramd__Portion portion[PORTIONS], *portions[PORTIONS];
    peer_frame l = peer_expect(p, PD_DECLARE);

    for (size_t i = 0; i < N; i++) at[i].step = step, at[i].initialised = true;
    at[KERNEL].shard = kernel;
    at[BIAS].shard = SHARD;
    for (size_t k = 0; k < PORTIONS; k++) {
        paramd__portion__init(portions[k] = &portion[k]);
        portion[k].first = firsts[k];
        portion[k].count = firsts[k + 1] - firsts[k];
        portion[k].shard = shards[k];
    }
    at[TABLE].portions = portions;
    at[TABLE].n_portions = PORTIONS;
    reply.parameters = list;
    reply.n_parameters = N;
    reply.map = map;
    peer_reply(p, &l.prefix, &reply.base, NULL, 0);
    peer_frame_drop(&l);
}

static const uint64_t firsts[PORTIONS + 1] = { 0, FIRST, FIRST + COUNT, ALL };
static const uint32_t shards[PORTIONS] = { 0, SHARD, 2 };

static peer *welcomed(const pd_core_config *config)
{
    peer *p = peer_new(config);

    p->cluster = 4711;
    peer_connect(p);
    peer_welcome(p);
    return p;
}

static pd_ticket_id declare(peer *p, const pd_client_param *list)
{
    pd_ticket_id ticket;
    pd_error err;

    if (pd_core_declare(p->core, list, N, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
    return ticket;
}

static peer *running(const pd_core_config *config, const pd_client_param *list)
{
    peer *p = welcomed(config);
    pd_ticket_id ticket = declare(p, list);
    pd_error err;

    answer_with(p, firsts, shards, 0, 0, 5);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    return p;
}

TEST(hello_says_which_shard_is_meant)
{
    peer *p = peer_new(&shard_1);
    const Paramd__HelloRequest *hello;
    peer_frame l;

    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    hello = l.message;
    assert_int_equal(hello->shard, SHARD);
    assert_int_equal(hello->shards, SHARDS);
    assert_int_equal(hello->cluster, 4711);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_server_that_is_alone_gets_the_hello_of_before)
{
    peer *p = peer_new(&peer_first);
    const Paramd__HelloRequest *hello;
    peer_frame l;

    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    hello = l.message;
    assert_int_equal(hello->shard | hello->shards | hello->cluster, 0);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_server_that_knows_no_clusters_is_refused)
{
    peer *p = peer_new(&shard_1);
    Paramd__HelloReply hello = PARAMD__HELLO_REPLY__INIT;
    peer_frame l;
    pd_error err;

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.server = (char *)"paramd test";
    hello.chunk_elements = hello.max_pieces = CHUNK;
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    peer_reply(p, &l.prefix, &hello.base, NULL, 0);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, p->core->welcome_ticket, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "older than this library"));
    peer_free(p);
}

TEST(portions_have_the_handles_after_those_of_the_parameters)
{
    peer *p = running(&shard_1, params);
    const pd_param_record *records = p->core->params;

    assert_int_equal(p->core->n_params, N + PORTIONS);
    assert_true(records[KERNEL].elsewhere);
    assert_true(records[TABLE].elsewhere && records[TABLE].cut);
    assert_false(records[BIAS].elsewhere);
    assert_int_equal(records[TABLE].portion, PORTION);
    for (size_t k = 0; k < PORTIONS; k++) {
        const pd_param_record *portion = &records[PORTION + k];
        assert_string_equal(portion->name, "table");
        assert_int_equal(portion->origin, firsts[k]);
        assert_int_equal(portion->end - portion->start, firsts[k + 1] - firsts[k]);
        assert_int_equal(portion->elsewhere, k != 1);
    }
    assert_int_equal(p->core->map, 5);
    peer_free(p);
}

TEST(a_portion_is_cut_into_chunks_from_its_own_first_element)
{
    peer *p = running(&shard_1, params);
    static float gradient[COUNT], weights[COUNT];
    pd_item item = { .param = PORTION + 1, .gradient = gradient, .weights = weights };
    pd_ticket_id ticket;
    pd_error err;

    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, &item, 1, NULL, &ticket, &err), PD_OK);
    for (uint64_t first = 0; first < COUNT; first += CHUNK) {
        peer_frame l = peer_expect(p, PD_PUSH_PULL);
        const Paramd__PushRequest *push = l.message;
        uint64_t count = first + CHUNK < COUNT ? CHUNK : COUNT - first;
        float step[CHUNK];

        assert_int_equal(push->n_pieces, 1);
        assert_int_equal(push->step, 1);
        assert_int_equal(push->pieces[0]->handle, PORTION + 1);
        assert_int_equal(push->pieces[0]->first, first);
        assert_int_equal(push->pieces[0]->count, count);
        for (size_t i = 0; i < count; i++) step[i] = (float)(first + i);
        peer_reply_data(p, &l.prefix, 1, PD_OUTCOME_STEPPED, 1, step, count);
        peer_frame_drop(&l);
    }
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    for (size_t i = 0; i < COUNT; i++) assert_true(weights[i] == (float)i);
    assert_int_equal(item.step, 1);
    peer_free(p);
}

TEST(the_range_of_a_rank_is_cut_with_the_portions)
{
    enum { START = 100, END = 250 }; /* of the three portions: nothing, 20 to 160, 0 to 10 */
    static const int64_t expected[PORTIONS][2] = { { 0, 0 }, { START - FIRST, COUNT }, { 0, END - FIRST - COUNT } };
    pd_client_param ranged[N];
    peer *p;

    memcpy(ranged, params, sizeof ranged);
    ranged[TABLE].ranged = true;
    ranged[TABLE].start = START;
    ranged[TABLE].end = END;
    p = running(&shard_1, ranged);
    for (size_t k = 0; k < PORTIONS; k++) {
        assert_int_equal(p->core->params[PORTION + k].start, expected[k][0]);
        assert_int_equal(p->core->params[PORTION + k].end, expected[k][1]);
    }
    peer_free(p);
}

TEST(a_call_for_the_whole_model_names_only_what_the_shard_has)
{
    peer *p = running(&shard_1, params);
    float bias[5], table[COUNT];
    void *weights[N + PORTIONS] = { [BIAS] = bias, [PORTION + 1] = table };
    pd_ticket_id ticket;
    pd_error err;
    size_t pieces = 0;
    peer_frame l;

    assert_int_equal(pd_core_fetch(p->core, weights, &ticket, &err), PD_OK);
    while (peer_take(p, &l)) {
        const Paramd__PullRequest *pull = l.message;
        for (size_t i = 0; i < pull->n_wants; i++, pieces++)
            assert_true(pull->wants[i]->handle == BIAS || pull->wants[i]->handle == PORTION + 1);
        peer_frame_drop(&l);
    }
    assert_int_equal(pieces, 1 + (COUNT + CHUNK - 1) / CHUNK);
    peer_free(p);
}

TEST(no_call_may_name_a_parameter_that_lies_elsewhere)
{
    static const size_t wrong[] = { KERNEL, TABLE, PORTION, PORTION + 2, N + PORTIONS };
    peer *p = running(&shard_1, params);

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        float some[ALL];
        pd_item item = { .param = wrong[i], .weights = some };
        pd_ticket_id ticket;
        pd_error err;
        assert_int_equal(pd_core_pull(p->core, &item, 1, 0, PD_FORM_TRAIN, &ticket, &err), PD_INVALID_ARGUMENT);
        assert_true(pd_core_buffer(p->core, wrong[i]) == NULL);
    }
    peer_expect_silence(p);
    peer_free(p);
}

TEST(an_answer_with_other_portions_after_a_reconnect_ends_the_handle)
{
    static const uint64_t other[PORTIONS + 1] = { 0, FIRST + 4, FIRST + COUNT, ALL };
    static const uint32_t swapped[PORTIONS] = { 0, 2, SHARD };

    for (int i = 0; i < 5; i++) {
        peer *p = running(&shard_1, params);
        peer_cut(p);
        peer_connect(p);
        peer_welcome(p);
        answer_with(p, i == 1 ? other : firsts, i == 2 ? swapped : shards, i == 3, 0, i == 4 ? 6 : 5);
        assert_int_equal(p->core->end.error.code, i == 0 ? PD_OK : PD_FAILED_PRECONDITION);
        if (i > 0) assert_non_null(strstr(p->core->end.error.text, "another map"));
        peer_free(p);
    }
}

TEST(portions_that_overlap_or_leave_elements_out_break_the_protocol)
{
    static const struct {
        uint64_t firsts[PORTIONS + 1];
        uint32_t last;
    } wrong[] = {
        { { 0, FIRST, FIRST, ALL }, 2 },
        { { 4, FIRST, FIRST + COUNT, ALL }, 2 },
        { { 0, FIRST, FIRST + COUNT, ALL - 4 }, 2 },
        { { 0, FIRST, FIRST + COUNT, ALL + 4 }, 2 },
        { { 0, FIRST, FIRST - 4, ALL }, 2 },
        { { 0, FIRST, FIRST + COUNT, ALL }, SHARDS },
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const uint32_t lies[PORTIONS] = { 0, SHARD, wrong[i].last };
        peer *p = welcomed(&shard_1);
        pd_ticket_id ticket = declare(p, params);
        pd_error err;
        answer_with(p, wrong[i].firsts, lies, 0, 0, 5);
        assert_int_equal(peer_finish(p, ticket, &err), PD_INTERNAL);
        assert_non_null(strstr(err.text, "portions"));
        peer_free(p);
    }
}

TEST(a_withdrawn_declaration_can_be_made_anew)
{
    const pd_error why = { PD_FAILED_PRECONDITION, "another shard has refused it" };
    peer *p = running(&shard_1, params);
    pd_ticket_id ticket;
    pd_error err;

    pd_core_withdraw(p->core, &why);
    assert_int_equal(p->core->n_params, 0);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    ticket = declare(p, params);
    answer_with(p, firsts, shards, 0, 0, 5);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    peer_free(p);
}

TEST(quantized_gradients_have_memory_only_where_they_are_sent)
{
    pd_client_param coded[N];
    peer *p;

    memcpy(coded, params, sizeof coded);
    for (size_t i = 0; i < N; i++) coded[i].push_dtype = PD_INT8;
    p = running(&shard_1, coded);
    for (size_t i = 0; i < N + PORTIONS; i++)
        assert_int_equal(p->core->params[i].feedback.rest != NULL, i == BIAS || i == PORTION + 1);
    peer_free(p);
}
