/* Tests SIGTERM and SIGINT as events: a signal at any moment of the shutdown changes nothing. */
#include <signal.h>
#include <sys/wait.h>

#include "test.h"
#include "uvloop.h"

enum {
    CHILDREN = 100,
    BETWEEN_US = 50
}; /* BETWEEN_US: pause between signals; without it, the process would do nothing but handle signals */

static void end_loop(void *arg, int number)
{
    (void)number;
    uv_stop(arg);
}

/* Runs a loop that ends at the first signal. The daemon's loop ends at the second. */
static _Noreturn void serve(int ready)
{
    uv_loop_t loop;
    pd_signals signals = { .open = false };
    pd_error err;

    uv_loop_init(&loop);
    if (pd_signals_open(&signals, &loop, end_loop, &loop, &err) != PD_OK) _exit(2);
    pd_signals_begin(&signals);
    if (write(ready, "", 1) != 1) _exit(3);
    uv_run(&loop, UV_RUN_DEFAULT);
    pd_signals_end(&signals);
    uv_run(&loop, UV_RUN_DEFAULT);
    _exit(uv_loop_close(&loop) == 0 ? 0 : 4);
}

/* Starts a process and sends it signals until it has ended. Returns its exit status, as waitpid gives it. */
static int end_by_many_signals(void)
{
    int ready[2], status = 0;
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    if ((pid = fork()) == 0) serve(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    for (int i = 0; waitpid(pid, &status, WNOHANG) == 0; i++) {
        kill(pid, i % 2 == 0 ? SIGTERM : SIGINT);
        usleep(BETWEEN_US);
    }
    close(ready[0]);
    close(ready[1]);
    return status;
}

TEST(a_process_that_ends_is_not_killed_by_further_signals)
{
    for (int i = 0; i < CHILDREN; i++) assert_int_equal(end_by_many_signals(), 0);
}

TEST(no_signals_are_taken_where_none_were_asked_for)
{
    pd_signals signals = { .open = false };
    struct sigaction before, after;

    sigaction(SIGTERM, NULL, &before);
    pd_signals_begin(&signals);
    pd_signals_end(&signals);
    sigaction(SIGTERM, NULL, &after);
    assert_true(before.sa_handler == after.sa_handler);
}
