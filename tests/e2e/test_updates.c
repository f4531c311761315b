/* Tests updates instead of weights: a worker that pulls the change of each step, in few bits, has the same weights as
 * the server. */
#include "test.h"
#include "daemon_process.h"
#include "proxy.h"
#include "team.h"

/* A matrix of three chunks of 4 KiB and a rest, a small matrix, a vector. */
static const int64_t elements[] = { 60 * 60, 12 * 10, 30 };
static const pd_shape shapes[] = { { 2, { 60, 60 } }, { 2, { 12, 10 } }, { 1, { 30 } } };
static const char *const names[] = { "large", "small", "vector" };
enum { PARAMS = 3, RANKS = 2, STEPS = 6 };
enum { UPDATES, WHOLE }; /* rank 0 pulls updates, rank 1 pulls whole weights */

typedef struct worker_of_two {
    pd_client *client;
    float *weights[PARAMS], *gradient[PARAMS];
    pd_item items[PARAMS];
    pd_ticket_id ticket;
} worker_of_two;

typedef struct pair {
    test_daemon *daemon;
    const char *rule;
    pd_dtype dtype;
    proxy *between; /* proxy between rank UPDATES and the daemon; NULL: it connects directly */
    worker_of_two at[RANKS];
} pair;

static const char *const flags[] = { "--chunk-bytes=4KiB", NULL };

static void open_rank(pair *p, int rank)
{
    const char *const rules[] = { p->rule, NULL };
    worker_of_two *w = &p->at[rank];
    char through[64];
    pd_error err = { 0 };

    snprintf(through, sizeof through, "tcp://127.0.0.1:%d", p->between != NULL ? proxy_port(p->between) : 0);
    if (pd_client_open(&w->client,
                       &(pd_client_options){ .urls = p->between != NULL && rank == UPDATES ? through : p->daemon->url,
                                             .job = "updates",
                                             .rank = rank,
                                             .world_size = RANKS,
                                             .rules = rules,
                                             .deadline = patient(10) },
                       &err) != PD_OK)
        fail_msg("%s", err.text);
}

static int declare(pair *p, int rank, pd_error *err)
{
    pd_client_param params[PARAMS];

    for (size_t i = 0; i < PARAMS; i++)
        params[i] =
            (pd_client_param){ .name = names[i], .shape = shapes[i], .update_dtype = rank == UPDATES ? p->dtype : 0 };
    return pd_client_declare(p->at[rank].client, params, PARAMS, err);
}

static void init(pair *p, int rank)
{
    pd_error err = { 0 };

    if (pd_client_init(p->at[rank].client, (void *const *)p->at[rank].weights, &err) != PD_OK) fail_msg("%s", err.text);
}

static void pair_new(pair *p, const char *rule, pd_dtype dtype, bool between)
{
    pd_error err = { 0 };

    *p = (pair){ .daemon = daemon_start(flags), .rule = rule, .dtype = dtype };
    if (between) p->between = proxy_start(p->daemon->port);
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < PARAMS; i++) {
            p->at[r].weights[i] = calloc((size_t)elements[i], sizeof(float));
            p->at[r].gradient[i] = calloc((size_t)elements[i], sizeof(float));
            fill_gradient(p->at[r].weights[i], elements[i], 7, 1, i);
        }
        open_rank(p, r);
        if (declare(p, r, &err) != PD_OK) fail_msg("%s", err.text);
        init(p, r);
    }
}

static void pair_free(pair *p)
{
    for (int r = 0; r < RANKS; r++) {
        pd_client_close(p->at[r].client);
        for (size_t i = 0; i < PARAMS; i++) {
            free(p->at[r].weights[i]);
            free(p->at[r].gradient[i]);
        }
    }
    if (p->between != NULL) proxy_stop(p->between);
    assert_int_equal(daemon_stop(p->daemon, patient(10)), 0);
}

static void begin(pair *p, int rank, uint64_t step, bool pulls, bool spoilt)
{
    worker_of_two *w = &p->at[rank];
    pd_error err = { 0 };

    for (size_t i = 0; i < PARAMS; i++) {
        fill_gradient(w->gradient[i], elements[i], rank, step, i);
        if (spoilt) w->gradient[i][3] = NAN;
        w->items[i] = (pd_item){ .param = i, .gradient = w->gradient[i], .weights = w->weights[i] };
    }
    if ((pulls ? pd_client_push_pull : pd_client_push)(w->client, w->items, PARAMS, NULL, &w->ticket, &err) != PD_OK)
        fail_msg("%s", err.text);
}

static void end(pair *p, int rank)
{
    pd_error err = { 0 };

    if (pd_client_wait(p->at[rank].client, p->at[rank].ticket, 0, &err) != PD_OK) fail_msg("%s", err.text);
}

static void step(pair *p, uint64_t number, bool spoilt)
{
    for (int r = 0; r < RANKS; r++) begin(p, r, number, true, spoilt && r == 0);
    for (int r = 0; r < RANKS; r++) end(p, r);
}

static void assert_same(const pair *p, const char *when)
{
    for (size_t i = 0; i < PARAMS; i++)
        if (memcmp(p->at[UPDATES].weights[i], p->at[WHOLE].weights[i], (size_t)elements[i] * sizeof(float)) != 0)
            fail_msg("%s: %s", when, names[i]);
}

static uint64_t payload_in(const pair *p, int rank)
{
    return pd_client_count(p->at[rank].client).payload_in;
}

static const char bf16[] = "* shampoo lr=0.05 betas=0.9,0.99 epsilon=1e-4 max_preconditioner_dim=16 "
                           "communication_dtype=BF16 grafting_config=SGD";
static const char f16[] = "* shampoo lr=0.05 betas=0.9,0.99 epsilon=1e-4 max_preconditioner_dim=16 "
                          "communication_dtype=FP16 grafting_config=SGD";
static const char f32[] = "* shampoo lr=0.05 betas=0.9,0.99 epsilon=1e-4 max_preconditioner_dim=16 grafting_config=SGD";

TEST(who_gets_updates_has_the_servers_weights_bit_for_bit)
{
    static const struct {
        const char *rule;
        pd_dtype dtype;
    } cases[] = { { bf16, PD_BF16 }, { f16, PD_F16 }, { f32, PD_F32 } };

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uint64_t before[RANKS];
        pair p;
        pair_new(&p, cases[c].rule, cases[c].dtype, false);
        for (int r = 0; r < RANKS; r++) before[r] = payload_in(&p, r);
        for (uint64_t s = 1; s <= STEPS; s++) {
            step(&p, s, false);
            assert_same(&p, "after a step");
        }
        assert_int_equal((payload_in(&p, UPDATES) - before[UPDATES]) * sizeof(float),
                         (payload_in(&p, WHOLE) - before[WHOLE]) * pd_dtype_size(cases[c].dtype));
        pair_free(&p);
    }
}

TEST(a_step_that_is_skipped_changes_nothing)
{
    pair p;

    pair_new(&p, bf16, PD_BF16, false);
    for (uint64_t s = 1; s <= STEPS; s++) {
        step(&p, s, s == 2 || s == 5);
        assert_int_equal(p.at[UPDATES].items[0].outcome, s == 2 || s == 5 ? 2 : 1);
        assert_same(&p, "with skipped steps");
    }
    pair_free(&p);
}

TEST(who_has_missed_versions_gets_whole_weights_and_then_updates_again)
{
    uint64_t before;
    pair p;

    pair_new(&p, bf16, PD_BF16, false);
    step(&p, 1, false);
    for (uint64_t s = 2; s <= 3; s++) {
        begin(&p, UPDATES, s, false, false); /* rank UPDATES pushes and does not pull */
        begin(&p, WHOLE, s, true, false);
        for (int r = 0; r < RANKS; r++) end(&p, r);
    }
    step(&p, 4, false);
    assert_same(&p, "after steps without a pull");
    before = payload_in(&p, UPDATES);
    step(&p, 5, false);
    assert_same(&p, "and after one more");
    assert_int_equal(payload_in(&p, UPDATES) - before, 2 * (elements[0] + elements[1] + elements[2]));
    pair_free(&p);
}

TEST(a_process_that_takes_the_rank_over_begins_with_whole_weights)
{
    pd_error err = { 0 };
    pair p;

    pair_new(&p, bf16, PD_BF16, false);
    step(&p, 1, false);
    pd_client_close(p.at[UPDATES].client);
    for (size_t i = 0; i < PARAMS; i++) memset(p.at[UPDATES].weights[i], 0x55, (size_t)elements[i] * sizeof(float));
    open_rank(&p, UPDATES);
    if (declare(&p, UPDATES, &err) != PD_OK) fail_msg("%s", err.text);
    init(&p, UPDATES);
    assert_same(&p, "after coming back");
    for (uint64_t s = 2; s <= 4; s++) {
        step(&p, s, false);
        assert_same(&p, "after coming back and a step");
    }
    pair_free(&p);
}

typedef struct broken {
    proxy *between;
    int connections;
} broken;

/* Returns whether the expected number of connections was made. The proxy has cut the first new connection in the
 * middle of an answer, and the client has opened another. */
static bool has_broken(void *arg)
{
    const broken *b = arg;
    return proxy_connections(b->between) >= b->connections;
}

TEST(a_connection_that_breaks_in_the_midst_of_an_answer_adds_nothing_twice)
{
    pair p;

    pair_new(&p, bf16, PD_BF16, true);
    for (uint64_t s = 1; s <= 12; s++) {
        int before = proxy_connections(p.between);
        proxy_cut_after(p.between, 0, 700 + (size_t)(s * 1237) % 7000); /* the answer of one step has 7,500 bytes */
        proxy_cut_now(p.between);
        begin(&p, UPDATES, s, true, false);
        begin(&p, WHOLE, s, true, false);
        end(&p, WHOLE);
        assert_true(await(has_broken, &(broken){ p.between, before + 2 }, patient(5)));
        proxy_cut_after(p.between, 0, 0);
        end(&p, UPDATES);
        assert_same(&p, "through a connection that breaks");
    }
    assert_true(proxy_connections(p.between) > 12);
    pair_free(&p);
}

static void assert_refused(const char *rule, pd_dtype dtype, const char *why)
{
    pd_error err = { 0 };
    pair p = { .daemon = daemon_start(flags), .rule = rule, .dtype = dtype };

    open_rank(&p, UPDATES);
    assert_int_equal(declare(&p, UPDATES, &err), PD_FAILED_PRECONDITION);
    if (strstr(err.text, why) == NULL) fail_msg("%s", err.text);
    pd_client_close(p.at[UPDATES].client);
    assert_int_equal(daemon_stop(p.daemon, patient(10)), 0);
}

TEST(updates_that_the_optimizer_does_not_give_are_refused)
{
    assert_refused("* sgd lr=0.1", PD_BF16, "sgd gives no updates");
    assert_refused("* shampoo communication_dtype=BF16 communicate_params=yes", PD_BF16, "communicate_params");
    assert_refused("* shampoo communication_dtype=FP16", PD_BF16, "updates of shampoo are float16 here");
}
