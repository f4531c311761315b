/* Tests what the daemon refuses, and the texts of its errors. */
#include "test.h"
#include "daemon_process.h"
#include "team.h"

static const int64_t sizes[] = { 40, 8 };

static int open_as(const test_daemon *daemon, const pd_client_options *as, pd_client **client, pd_error *err)
{
    pd_client_options options = *as;

    options.urls = daemon->url;
    options.deadline = patient(5);
    return pd_client_open(client, &options, err);
}

/* Opens two workers. Checks that the second is refused with this error code and with a text that contains `words`. */
static void expect_refusal(const test_daemon *daemon, const pd_client_options *first, const pd_client_options *second,
                           int code, const char *words)
{
    pd_client *a, *b;
    pd_error err = { 0 };

    if (open_as(daemon, first, &a, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(open_as(daemon, second, &b, &err), code);
    if (strstr(err.text, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    pd_client_close(a);
}

HOLDS_FOR(test_daemon *daemon, a_worker_with_another_world_size_is_told_so,
          expect_refusal(daemon, &(pd_client_options){ .job = "world", .rank = 0, .world_size = 2 },
                         &(pd_client_options){ .job = "world", .rank = 1, .world_size = 3 }, PD_FAILED_PRECONDITION,
                         "world_size"));

TEST(a_worker_with_another_configuration_is_told_the_key, test_daemon *daemon)
{
    static const char *const mean[] = { "aggregate=mean", NULL }, *const sum[] = { "aggregate=sum", NULL };

    expect_refusal(daemon, &(pd_client_options){ .job = "keys", .rank = 0, .world_size = 2, .options = mean },
                   &(pd_client_options){ .job = "keys", .rank = 1, .world_size = 2, .options = sum },
                   PD_FAILED_PRECONDITION, "aggregate");
}

TEST(a_worker_with_other_rules_is_told_which, test_daemon *daemon)
{
    static const char *const one[] = { "* sgd lr=0.5", NULL }, *const two[] = { "* sgd lr=0.25", NULL };

    expect_refusal(daemon, &(pd_client_options){ .job = "rules", .rank = 0, .world_size = 2, .rules = one },
                   &(pd_client_options){ .job = "rules", .rank = 1, .world_size = 2, .rules = two },
                   PD_FAILED_PRECONDITION, "0.25");
}

static void expect_open_refused(const test_daemon *daemon, const pd_client_options *as, int code, const char *words)
{
    pd_client *client;
    pd_error err = { 0 };

    assert_int_equal(open_as(daemon, as, &client, &err), code);
    if (strstr(err.text, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

/* Writes a rule with a table of about 60 KB into the caller's text. */
static void fill_long_rule(char *rule, size_t size)
{
    size_t used = (size_t)snprintf(rule, size, "* sgd lr=table(1");

    while (used < 60000) used += (size_t)snprintf(rule + used, size - used, ",%g", 1 + (double)used);
    snprintf(rule + used, size - used, ")");
}

TEST(rules_that_do_not_fit_hello_are_told_which_limit_to_raise, test_daemon *daemon)
{
    static char rule[61000];
    const char *rules[] = { rule, NULL };

    fill_long_rule(rule, sizeof rule);
    expect_open_refused(daemon, &(pd_client_options){ .job = "long", .rank = 0, .world_size = 1, .rules = rules },
                        PD_RESOURCE_EXHAUSTED, "raise limits.hello_bytes");
}

TEST(long_rules_are_taken_where_the_limit_is_raised)
{
    static char rule[61000];
    const char *rules[] = { rule, NULL };
    test_daemon *daemon = daemon_start((const char *const[]){ "--hello-bytes=64KiB", NULL });
    pd_client *client;
    pd_error err = { 0 };

    fill_long_rule(rule, sizeof rule);
    if (open_as(daemon, &(pd_client_options){ .job = "long", .rank = 0, .world_size = 1, .rules = rules }, &client,
                &err) != PD_OK)
        fail_msg("%s", err.text);
    pd_client_close(client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(an_option_that_does_not_exist_is_named, test_daemon *daemon)
{
    static const char *const options[] = { "agregate=mean", NULL };
    expect_open_refused(daemon, &(pd_client_options){ .job = "typo", .world_size = 1, .options = options },
                        PD_INVALID_ARGUMENT, "agregate");
}

TEST(a_value_that_is_none_of_an_options_is_named, test_daemon *daemon)
{
    static const char *const options[] = { "nonfinite=explode", NULL };
    expect_open_refused(daemon, &(pd_client_options){ .job = "value", .world_size = 1, .options = options },
                        PD_INVALID_ARGUMENT, "explode");
}

static int declare_with(const test_daemon *daemon, const char *job, int rank, int world, const char *const *rules,
                        const pd_client_param *params, size_t n, pd_client **client, pd_error *err)
{
    int rc = open_as(daemon, &(pd_client_options){ .job = job, .rank = rank, .world_size = world, .rules = rules },
                     client, err);

    if (rc != PD_OK) *client = NULL;
    return rc == PD_OK ? pd_client_declare(*client, params, n, err) : rc;
}

static void expect_declare_refused(const test_daemon *daemon, const char *job, const char *const *rules,
                                   const pd_client_param *params, size_t n, int code, const char *words)
{
    pd_client *client;
    pd_error err = { 0 };

    assert_int_equal(declare_with(daemon, job, 0, 1, rules, params, n, &client, &err), code);
    if (strstr(err.text, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    pd_client_close(client);
}

TEST(a_shape_that_differs_from_what_another_rank_declared_is_named, test_daemon *daemon)
{
    const pd_client_param mine[] = { { .name = "layer/kernel", .shape = { 2, { 4, 10 } } } },
                          other[] = { { .name = "layer/kernel", .shape = { 2, { 10, 4 } } } };
    pd_client *a, *b;
    pd_error err = { 0 };

    assert_int_equal(open_as(daemon, &(pd_client_options){ .job = "shapes", .rank = 0, .world_size = 2 }, &a, &err),
                     PD_OK);
    assert_int_equal(pd_client_declare(a, mine, 1, &err), PD_OK);
    assert_int_equal(declare_with(daemon, "shapes", 1, 2, NULL, other, 1, &b, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "layer/kernel"));
    assert_non_null(strstr(err.text, "(4, 10)"));
    assert_non_null(strstr(err.text, "(10, 4)"));
    assert_int_equal(pd_client_declare(b, mine, 1, &err), PD_OK); /* the refused client declares correctly */
    pd_client_close(a);
    pd_client_close(b);
}

TEST(a_shape_that_no_tensor_has_is_told_as_it_came, test_daemon *daemon)
{
    const pd_client_param vast[] = { { .name = "vast", .shape = { 3, { 1 << 30, 1 << 30, 1 << 30 } } } },
                          deep[] = { { .name = "deep", .shape = { .rank = 9 } } };

    expect_declare_refused(daemon, "vast", NULL, vast, 1, PD_INVALID_ARGUMENT,
                           "parameter vast: expected dimensions from 0 and fewer than 2^60 elements, got shape "
                           "(1073741824, 1073741824, 1073741824)");
    expect_declare_refused(daemon, "deep", NULL, deep, 1, PD_INVALID_ARGUMENT,
                           "parameter deep: expected rank 0 to 8, got 9");
}

/* A client whose declaration was refused may declare again at once. The second call wakes the client's thread, maybe
 * while the thread still closes the first connection. If this wake-up stayed unread, it would end every later
 * attempt to connect. */
TEST(a_handle_can_be_mended_however_quickly_it_asks_again, test_daemon *daemon)
{
    enum { TIMES = 20 };
    const pd_client_param wrong[] = { { .name = "wrong", .shape = { 1, { 4 } } } },
                          right[] = { { .name = "right", .shape = { 1, { 4 } } } };
    const char *const rules[] = { "right sgd", NULL };
    pd_error err = { 0 };

    for (int i = 0; i < TIMES; i++) {
        char job[32];
        pd_client *client;
        snprintf(job, sizeof job, "mended-%d", i);
        assert_int_equal(declare_with(daemon, job, 0, 1, rules, wrong, 1, &client, &err), PD_INVALID_ARGUMENT);
        if (pd_client_declare(client, right, 1, &err) != PD_OK) fail_msg("attempt %d: %s", i, err.text);
        pd_client_close(client);
    }
}

TEST(a_parameter_that_another_rank_did_not_declare_is_named, test_daemon *daemon)
{
    const pd_client_param mine[] = { { .name = "a", .shape = { 1, { 4 } } } },
                          other[] = { { .name = "a", .shape = { 1, { 4 } } }, { .name = "b", .shape = { 1, { 4 } } } };
    pd_client *a, *b;
    pd_error err = { 0 };

    assert_int_equal(open_as(daemon, &(pd_client_options){ .job = "sets", .rank = 0, .world_size = 2 }, &a, &err),
                     PD_OK);
    assert_int_equal(pd_client_declare(a, mine, 1, &err), PD_OK);
    assert_int_equal(declare_with(daemon, "sets", 1, 2, NULL, other, 2, &b, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "b"));
    pd_client_close(a);
    pd_client_close(b);
}

static const pd_client_param plain[] = { { .name = "w", .shape = { 1, { 4 } } } };

TEST(an_unknown_optimizer_a_bad_hyperparameter_and_a_name_twice_are_refused, test_daemon *daemon)
{
    static const char *const unknown[] = { "* adamant", NULL }, *const hyper[] = { "* sgd momentun=0.9", NULL },
                             *const range[] = { "* sgd lr=-1", NULL };
    const pd_client_param twice[] = { { .name = "w", .shape = { 1, { 4 } } }, { .name = "w", .shape = { 1, { 4 } } } };

    expect_open_refused(daemon, &(pd_client_options){ .job = "unknown", .world_size = 1, .rules = unknown },
                        PD_INVALID_ARGUMENT, "adamant");
    expect_open_refused(daemon, &(pd_client_options){ .job = "hyper", .world_size = 1, .rules = hyper },
                        PD_INVALID_ARGUMENT, "momentun");
    expect_open_refused(daemon, &(pd_client_options){ .job = "range", .world_size = 1, .rules = range },
                        PD_INVALID_ARGUMENT, "lr");
    expect_declare_refused(daemon, "twice", NULL, twice, 2, PD_INVALID_ARGUMENT, "w");
}

TEST(a_parameter_that_no_rule_matches_is_named, test_daemon *daemon)
{
    static const char *const rules[] = { "encoder/* sgd", NULL };
    expect_declare_refused(daemon, "unmatched", rules, plain, 1, PD_INVALID_ARGUMENT, "w");
}

TEST(more_bytes_than_the_daemon_may_hold_are_refused)
{
    static const char *const flags[] = { "--max-total-bytes=1MiB", NULL };
    const pd_client_param large[] = { { .name = "large", .shape = { 2, { 1000, 1000 } } } };
    test_daemon *daemon = daemon_start(flags);
    pd_client *client;
    pd_error err = { 0 };

    expect_declare_refused(daemon, "large", NULL, large, 1, PD_RESOURCE_EXHAUSTED, "max_total_bytes");
    assert_int_equal(declare_with(daemon, "small", 0, 1, NULL, plain, 1, &client, &err), PD_OK);
    pd_client_close(client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

typedef struct attempt {
    const test_daemon *daemon;
    pd_client *client;
} attempt;

static bool opens_a_third(void *arg)
{
    attempt *a = arg;
    pd_error err;

    return open_as(a->daemon, &(pd_client_options){ .job = "c", .world_size = 1 }, &a->client, &err) == PD_OK;
}

TEST(one_connection_too_many_is_told_and_the_others_live)
{
    static const char *const flags[] = { "--max-connections=2", NULL };
    test_daemon *daemon = daemon_start(flags);
    pd_client *a, *b, *c;
    pd_error err = { 0 };

    assert_int_equal(open_as(daemon, &(pd_client_options){ .job = "a", .world_size = 1 }, &a, &err), PD_OK);
    assert_int_equal(open_as(daemon, &(pd_client_options){ .job = "b", .world_size = 1 }, &b, &err), PD_OK);
    assert_int_equal(open_as(daemon, &(pd_client_options){ .job = "c", .world_size = 1 }, &c, &err),
                     PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "max_connections"));
    assert_int_equal(pd_client_barrier(a, &err), PD_OK);
    pd_client_close(a);
    attempt third = { daemon, NULL };
    assert_true(await(opens_a_third, &third, patient(5))); /* the daemon has seen that one connection was closed */
    assert_int_equal(pd_client_barrier(third.client, &err), PD_OK);
    pd_client_close(b);
    pd_client_close(third.client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(one_job_too_many_is_refused)
{
    static const char *const flags[] = { "--max-jobs=1", NULL };
    test_daemon *daemon = daemon_start(flags);

    expect_refusal(daemon, &(pd_client_options){ .job = "a", .world_size = 1 },
                   &(pd_client_options){ .job = "b", .world_size = 1 }, PD_RESOURCE_EXHAUSTED, "max_jobs");
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(more_parameters_than_a_job_may_have_are_refused)
{
    static const char *const flags[] = { "--max-params=1", NULL };
    const pd_client_param two[] = { { .name = "a", .shape = { 1, { 4 } } }, { .name = "b", .shape = { 1, { 4 } } } };
    test_daemon *daemon = daemon_start(flags);

    expect_declare_refused(daemon, "two", NULL, two, 2, PD_RESOURCE_EXHAUSTED, "max_params");
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

/* Each rank reserves its largest frame in the ingest budget, which limits gradients in flight. Two ranks fit, three
 * do not. */
TEST(a_job_whose_ranks_have_no_share_of_the_ingest_budget_is_refused)
{
    static const char *const flags[] = { "--chunk-bytes=64KiB", "--ingest-bytes=140KiB", NULL };
    const pd_client_param param[] = { { .name = "w", .shape = { 1, { 20000 } } } };
    test_daemon *daemon = daemon_start(flags);
    pd_client *three, *two[2];
    pd_error err = { 0 };

    assert_int_equal(declare_with(daemon, "three", 0, 3, NULL, param, 1, &three, &err), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "ingest_bytes"));
    pd_client_close(three);
    for (int r = 0; r < 2; r++)
        if (declare_with(daemon, "two", r, 2, NULL, param, 1, &two[r], &err) != PD_OK)
            fail_msg("rank %d: %s", r, err.text);
    for (int r = 0; r < 2; r++) pd_client_close(two[r]);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(calls_in_the_wrong_order_are_refused_without_asking, test_daemon *daemon)
{
    model *m = model_new(sizes, 2);
    pd_client *client;
    pd_ticket_id ticket;
    pd_error err = { 0 };
    pd_item item = { .param = 0 };

    assert_int_equal(open_as(daemon, &(pd_client_options){ .job = "order", .world_size = 1 }, &client, &err), PD_OK);
    assert_int_equal(pd_client_push(client, &item, 1, NULL, &ticket, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(pd_client_declare(client, m->params, 2, &err), PD_OK);
    assert_int_equal(pd_client_declare(client, m->params, 2, &err), PD_FAILED_PRECONDITION);
    item.param = 2;
    assert_int_equal(pd_client_push(client, &item, 1, NULL, &ticket, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_client_leave(client, &err), PD_OK);
    assert_int_equal(pd_client_barrier(client, &err), PD_FAILED_PRECONDITION);
    pd_client_close(client);
    model_free(m);
}

GROUP_OBJECT(daemon_start(NULL), daemon_end);
