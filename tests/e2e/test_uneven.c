/* Tests workers with uneven numbers of steps: who needs a rank that has left for good gets an error at once, and goes
 * on when a process comes back to that rank. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

enum { SIZE = 4, WORLD = 2 };

typedef struct worker {
    pd_client *client;
    float weights[SIZE], gradient[SIZE];
    pd_item item;
    pd_ticket_id ticket;
} worker;

static const char *const rules[] = { "* sgd lr=0.5", NULL };
static const char *const options_of_job[] = { "step_timeout=1800s", NULL };

/* Opens a worker, declares its parameter, and gets the weights. */
static void open_worker(worker *w, const char *url, int rank)
{
    pd_client_options options = {
        .urls = url, .job = "uneven", .rank = rank, .world_size = WORLD, .run = "tonight", .deadline = patient(20)
    };
    pd_client_param param = { .name = "w", .shape = { 1, { SIZE } } };
    void *all[] = { w->weights };
    pd_error err;

    memset(w, 0, sizeof *w);
    for (int i = 0; i < SIZE; i++) w->gradient[i] = 1;
    w->item = (pd_item){ .gradient = w->gradient, .weights = w->weights };
    options.rules = rules;
    options.options = options_of_job;
    if (pd_client_open(&w->client, &options, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_client_declare(w->client, &param, 1, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_client_init(w->client, all, &err) != PD_OK) fail_msg("%s", err.text);
}

static void push(worker *w)
{
    pd_error err;

    if (pd_client_push_pull(w->client, &w->item, 1, NULL, &w->ticket, &err) != PD_OK) fail_msg("%s", err.text);
}

static void expect_stepped(worker *w, float weight)
{
    pd_error err;

    if (pd_client_wait(w->client, w->ticket, 0, &err) != PD_OK) fail_msg("%s", err.text);
    for (int i = 0; i < SIZE; i++) assert_true(w->weights[i] == weight);
}

static void expect_left_behind(int code, const pd_error *err, double since, const char *needed)
{
    assert_int_equal(code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err->text, "rank 0 ("));
    assert_non_null(strstr(err->text, "has left job uneven for good after step 1"));
    assert_non_null(strstr(err->text, "different numbers of batches"));
    if (strstr(err->text, needed) == NULL) fail_msg("\"%s\" does not say \"%s\"", err->text, needed);
    assert_true(seconds_now() - since < patient(10));
}

TEST(who_needs_a_rank_that_has_left_hears_so_at_once_and_goes_on_when_it_is_back)
{
    test_daemon *daemon = daemon_start(NULL);
    worker short_one, long_one;
    double begin;
    pd_error err;
    int rc;

    open_worker(&short_one, daemon->url, 0);
    open_worker(&long_one, daemon->url, 1);
    push(&short_one);
    push(&long_one);
    expect_stepped(&short_one, -0.5f);
    expect_stepped(&long_one, -0.5f);
    assert_int_equal(pd_client_leave(short_one.client, &err), PD_OK);
    pd_client_close(short_one.client);

    for (int i = 0; i < 2; i++) {
        begin = seconds_now();
        push(&long_one);
        rc = pd_client_wait(long_one.client, long_one.ticket, 0, &err);
        expect_left_behind(rc, &err, begin, "step 2 of w");
    }
    begin = seconds_now();
    rc = pd_client_barrier(long_one.client, &err);
    expect_left_behind(rc, &err, begin, "a barrier");

    open_worker(&short_one, daemon->url, 0);
    push(&short_one);
    push(&long_one);
    expect_stepped(&short_one, -1.0f);
    expect_stepped(&long_one, -1.0f);
    pd_client_close(short_one.client);
    pd_client_close(long_one.client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}
