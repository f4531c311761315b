/* Tests that the TCP benchmark moves all bytes in both directions at once. */
#include <sys/wait.h>

#include "test.h"
#include "bench.h"

enum { BYTES = 3 * 1000 * 1000 + 7 };

static void play_rounds(size_t bytes, size_t chunk, int rounds)
{
    pd_yardstick y;
    pd_error err = { 0 };
    uint8_t *out = malloc(bytes), *in = malloc(bytes);

    memset(out, 5, bytes);
    assert_int_equal(pd_yardstick_start(&y, 1, bytes, chunk, &err), PD_OK);
    int fd = pd_yardstick_connect(&y, &err);
    assert_true(fd >= 0);
    for (int round = 0; round < rounds; round++) {
        memset(in, 0, bytes);
        if (pd_yardstick_round(&y, fd, out, in, &err) != PD_OK) fail_msg("%s", err.text);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(in[i], 1); /* the server sends bytes of 1 */
    }
    close(fd);
    pd_yardstick_stop(&y);
    free(out);
    free(in);
}

HOLDS(every_byte_comes_back_in_every_round, play_rounds(BYTES, 4 << 20, 3));

HOLDS(chunks_that_do_not_divide_are_no_difference, play_rounds(BYTES, 12345, 2));

HOLDS(a_round_may_be_a_single_byte, play_rounds(1, 4 << 20, 5));

TEST(several_connections_have_their_rounds_in_any_order)
{
    static uint8_t out[1000], in[1000];
    pd_yardstick y;
    int fd[3];

    assert_int_equal(pd_yardstick_start(&y, 3, sizeof out, 100, NULL), PD_OK);
    for (int i = 0; i < 3; i++) assert_true((fd[i] = pd_yardstick_connect(&y, NULL)) >= 0);
    for (int i = 0; i < 6; i++) assert_int_equal(pd_yardstick_round(&y, fd[2 - i % 3], out, in, NULL), PD_OK);
    for (int i = 0; i < 3; i++) close(fd[i]);
    pd_yardstick_stop(&y);
}

TEST(its_server_ends_with_the_last_connection)
{
    pd_yardstick y;
    int status;

    assert_int_equal(pd_yardstick_start(&y, 1, 100, 100, NULL), PD_OK);
    close(pd_yardstick_connect(&y, NULL));
    assert_int_equal(waitpid(y.pid, &status, 0), y.pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(a_server_that_is_gone_is_an_error)
{
    static uint8_t out[100], in[100];
    pd_yardstick y;
    pd_error err = { 0 };

    assert_int_equal(pd_yardstick_start(&y, 1, 100, 100, NULL), PD_OK);
    int fd = pd_yardstick_connect(&y, NULL);
    assert_int_equal(pd_yardstick_round(&y, fd, out, in, NULL), PD_OK);
    pd_yardstick_stop(&y);
    assert_int_equal(pd_yardstick_round(&y, fd, out, in, &err), PD_UNAVAILABLE);
    assert_int_equal(pd_yardstick_connect(&y, &err), PD_UNAVAILABLE);
    close(fd);
}

TEST(a_pass_of_more_workers_takes_longer)
{
    double one = pd_pass_seconds(1, 8 << 20), many = pd_pass_seconds(16, 8 << 20);

    assert_true(one > 0);
    assert_true(many > one);
}
