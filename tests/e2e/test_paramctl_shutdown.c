/* Tests paramctl shutdown and drain: they wait as long as the daemon drains, and name the workers that it waits for. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

static test_daemon *served;

/* Opens a rank of a job of two ranks with one parameter. */
static pd_client *join(uint32_t rank)
{
    pd_client_options options = { .urls = served->url, .job = "open", .rank = rank, .world_size = 2, .deadline = 20 };
    pd_client_param param = { .name = "w", .shape = { .rank = 1, .dim = { 2 } } };
    static float at[2] = { 1, 2 };
    void *weights[] = { at };
    pd_client *client;
    pd_error err = { 0 };

    if (pd_client_open(&client, &options, &err) != PD_OK || pd_client_declare(client, &param, 1, &err) != PD_OK ||
        (rank == 0 && pd_client_init(client, weights, &err) != PD_OK))
        fail_msg("%s", err.text);
    return client;
}

static void push(pd_client *client)
{
    static const float gradient[2] = { 1, 1 };
    static pd_item items[8];
    static size_t n;
    pd_item *item = &items[n++];
    pd_ticket_id ticket;
    pd_error err = { 0 };

    assert_true(n <= sizeof items / sizeof items[0]);
    item->gradient = gradient;
    if (pd_client_push(client, item, 1, NULL, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
}

/* Runs a command with a timeout of one second. */
static int run(const char *command)
{
    paramctl_ask(served->url);
    return paramctl("%s --timeout 1", command);
}

/* The daemon's drain timeout is longer than --timeout. The command waits for the drain timeout. */
TEST(shutdown_waits_for_the_drain_and_says_for_whom)
{
    pd_client *clients[2];
    double began;

    served = daemon_start((const char *const[]){ "--drain-timeout=4s", NULL });
    clients[0] = join(0);
    clients[1] = join(1);
    push(clients[0]);
    daemon_await_contributions(served, "open", 1);
    began = seconds_now();
    assert_int_equal(run("shutdown"), 0);
    assert_true(seconds_now() - began >= 3.5);
    assert_says("job open: step 1 waits for rank 1, ");
    assert_says(" of at most 4 s\n");
    assert_says("the daemon has stopped\n");
    for (int r = 0; r < 2; r++) pd_client_close(clients[r]);
    assert_int_equal(daemon_stop(served, patient(5)), 0);
}

TEST(drain_says_for_whom_it_waits_and_fails_when_its_time_is_over)
{
    pd_client *clients[2];

    served = daemon_start((const char *const[]){ "--drain-timeout=1s", NULL });
    clients[0] = join(0);
    clients[1] = join(1);
    push(clients[0]);
    daemon_await_contributions(served, "open", 1);
    assert_int_equal(run("drain --within 2.5s"), 1);
    assert_says("job open: step 1 waits for rank 1, ");
    assert_says("not drained: job open: ");
    push(clients[1]);
    assert_int_equal(run("drain"), 0);
    assert_string_equal(paramctl_output, "drained: no step is under way and none will begin\n");
    for (int r = 0; r < 2; r++) pd_client_close(clients[r]);
    assert_int_equal(daemon_stop(served, patient(5)), 0);
}

TEST(shutdown_of_an_idle_daemon_says_only_that_it_has_stopped)
{
    served = daemon_start(NULL);
    assert_int_equal(run("shutdown"), 0);
    assert_string_equal(paramctl_output, "the daemon has stopped\n");
    assert_int_equal(daemon_stop(served, patient(5)), 0);
}
