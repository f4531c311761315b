/* Tests programs that were compiled with another version of the header: their structs have fewer fields, or more. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"
#include "handle.h"

TEST(a_struct_of_an_impossible_size_is_refused)
{
    static const size_t sizes[] = { 0, 8, sizeof(pd_client_options) + 1 };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        pd_client_options options = { .urls = "tcp://127.0.0.1:1", .job = "j", .world_size = 1, .impatient = true };
        char got[64];
        pd_client *client;
        pd_error err = { 0 };

        snprintf(got, sizeof got, "pd_client_options has %zu bytes: libparamd " PARAMD_VERSION " expects ", sizes[i]);
        assert_int_equal(pd_client_open_sized(&client, &options, sizes[i], &err), PD_INVALID_ARGUMENT);
        if (strncmp(err.text, got, strlen(got)) != 0) fail_msg("%s", err.text);
        assert_non_null(strstr(err.text, "Pass sizeof(pd_client_options)"));
    }
}

TEST(fields_that_the_caller_does_not_have_are_zero)
{
    struct {
        int a, b, c;
    } out = { 7, 7, 7 };
    const int from[] = { 1, 2, 3 };

    assert_int_equal(pd_sized_read(&out, sizeof out, sizeof(int), from, 2 * sizeof(int), "it", NULL), PD_OK);
    assert_int_equal(out.a, 1);
    assert_int_equal(out.b, 2);
    assert_int_equal(out.c, 0);
}

/* Runs one step with structs that end with the last field of version 0.1. */
TEST(a_program_of_version_0_1_trains)
{
    enum { STRIDE = PD_LEAST_SIZE(pd_client_param, model_state) };
    test_daemon *daemon = daemon_start(NULL);
    pd_client_options options = { .urls = daemon->url, .job = "old", .world_size = 1, .deadline = patient(10) };
    pd_client_param params[] = { { .name = "a", .shape = { 1, { 2 } } }, { .name = "b", .shape = { 1, { 3 } } } };
    pd_push_options push = { .hypers = (const char *const[]){ "lr=2", NULL } };
    pd_client_stats stats = { .resent = 7 };
    float a[2] = { 0 }, b[3] = { 0 }, gradient[3] = { 1, 1, 1 };
    pd_item items[] = { { .param = 0, .gradient = gradient, .weights = a },
                        { .param = 1, .gradient = gradient, .weights = b } };
    char packed[2 * STRIDE];
    pd_ticket_id ticket;
    pd_client *client;
    pd_error err;

    for (size_t i = 0; i < 2; i++) memcpy(packed + i * STRIDE, &params[i], STRIDE);
    assert_int_equal(pd_client_open_sized(&client, &options, PD_LEAST_SIZE(pd_client_options, quiet), &err), PD_OK);
    assert_int_equal(pd_client_declare_sized(client, (void *)packed, 2, STRIDE, &err), PD_OK);
    assert_int_equal(pd_client_init(client, (void *const[]){ a, b }, &err), PD_OK);
    assert_int_equal(
        pd_client_push_pull_sized(client, items, 2, &push, PD_LEAST_SIZE(pd_push_options, sparse), &ticket, &err),
        PD_OK);
    assert_int_equal(pd_client_wait(client, ticket, 0, &err), PD_OK);
    assert_true(a[1] == -2 && b[2] == -2);
    pd_client_count_sized(client, &stats, offsetof(pd_client_stats, resent));
    assert_int_equal(stats.connects, 1);
    assert_int_equal(stats.resent, 7);
    pd_client_close(client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(the_library_says_which_version_it_is)
{
    assert_string_equal(pd_version(), PARAMD_VERSION);
    assert_string_equal(pd_version(), PD_VERSION);
}
