/* Tests the lists of paramctl with realistic names: their columns and width, --output, --watch, colours, and top. */
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>

#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

#define JOB "resnet50-imagenet-bf16-sweep-0017"

static const char *const long_names[] = { "transformer.encoder.layers.11.self_attention.query_key_value.weight",
                                          "transformer.encoder.layers.11.self_attention.query_key_value.bias",
                                          "encoder.embeddings.position_embeddings.weight" };

enum { PARAMS = 3, SIDE = 16 };

/* The first element of every gradient. If it is infinite, the inverse roots fail. */
static float first_element = 1;

/* Opens a worker as rank `rank` of a job of two ranks. Its parameters have the long names. Rank 0 sends the initial
 * weights. */
static pd_client *join(const char *job, uint32_t rank)
{
    static const char *const rules[] = { "*bias sgd lr=0.1", "* scalable_shampoo block_size=8 learning_rate=0.1",
                                         NULL };
    static float at[PARAMS][SIDE * SIDE];
    pd_client_options options = { .urls = paramctl_server.url,
                                  .job = job,
                                  .rank = rank,
                                  .world_size = 2,
                                  .rules = rules,
                                  .options = (const char *const[]){ "nonfinite=apply", NULL },
                                  .label = "gpu-node-017.cluster.example.org:31337",
                                  .deadline = 20 };
    pd_client_param params[PARAMS];
    void *weights[] = { at[0], at[1], at[2] };
    pd_client *client;
    pd_error err = { 0 };

    for (size_t i = 0; i < PARAMS; i++)
        params[i] = (pd_client_param){ .name = long_names[i], .shape = { .rank = 2, .dim = { SIDE, SIDE } } };
    if (pd_client_open(&client, &options, &err) != PD_OK || pd_client_declare(client, params, PARAMS, &err) != PD_OK ||
        (rank == 0 && pd_client_init(client, weights, &err) != PD_OK))
        fail_msg("%s", err.text);
    return client;
}

typedef struct pair {
    pd_client *rank[2];
} pair;

/* Takes `steps` steps in which rank r sends the loss `loss` + r. */
static pair train(const char *job, int steps, double loss)
{
    static float gradient[SIDE * SIDE] = { 1, 2, 3 }; /* both ranks send it at the same time */
    pair both = { { join(job, 0), NULL } };
    pd_error err = { 0 };

    both.rank[1] = join(job, 1);
    gradient[0] = first_element;
    for (int s = 0; s < steps; s++) {
        pd_ticket_id tickets[2];
        for (int r = 0; r < 2; r++) {
            static pd_item items[2][PARAMS];
            static pd_scalar scalars[2];
            pd_push_options options = { .scalars = &scalars[r], .n_scalars = loss >= 0 };
            for (uint32_t p = 0; p < PARAMS; p++) items[r][p] = (pd_item){ .param = p, .gradient = gradient };
            scalars[r] = (pd_scalar){ .name = "loss", .value = loss + r };
            if (pd_client_push(both.rank[r], items[r], PARAMS, &options, &tickets[r], &err) != PD_OK)
                fail_msg("%s", err.text);
        }
        for (int r = 0; r < 2; r++)
            if (pd_client_wait(both.rank[r], tickets[r], 20, &err) != PD_OK) fail_msg("%s", err.text);
    }
    return both;
}

static void leave(pair *both)
{
    for (int r = 0; r < 2; r++) {
        pd_client_leave(both->rank[r], NULL);
        pd_client_close(both->rank[r]);
    }
}

static json_t *first_job(void)
{
    json_t *answer, *job;

    assert_int_equal(paramctl("jobs --json"), 0);
    answer = parsed();
    job = json_incref(json_array_get(json_object_get(answer, "jobs"), 0));
    json_decref(answer);
    return job;
}

TEST(jobs_show_the_nine_columns_that_matter)
{
    pair both = train(JOB, 3, 0.5);

    assert_int_equal(paramctl("jobs"), 0);
    assert_true(strncmp(paramctl_output, "JOB ", 4) == 0);
    for (const char *const *title = (const char *const[]){ "OPTIMIZER", " WORKERS", " STEP", " STEPS/S", " LOSS",
                                                           " STATE", " MEMORY", " DURABLE\n", NULL };
         *title != NULL; title++)
        assert_says(*title);
    assert_says("scalable_shampoo,sgd"); /* optimizers are sorted by their number of elements, largest first */
    assert_says(" 2/2 ");
    assert_says(" running ");
    assert_lines_fit(100);
    assert_int_equal(paramctl("jobs -o wide"), 0);
    assert_says("OPTIMIZER STATE");
    assert_says("CONTRIBUTIONS");
    leave(&both);
    assert_int_equal(paramctl("drop " JOB), 0);
}

TEST(a_job_shows_the_mean_loss_of_its_ranks)
{
    pair both = train(JOB, 2, 0.5); /* the ranks send losses 0.5 and 1.5 */
    json_t *job = first_job();

    assert_true(json_real_value(json_object_get(job, "loss")) == 1.0);
    assert_int_equal(json_integer_value(json_object_get(job, "loss_step")), 2);
    json_decref(job);
    leave(&both);
    assert_int_equal(paramctl("drop " JOB), 0);
}

TEST(a_job_without_a_loss_shows_a_dash)
{
    pair both = train(JOB, 2, -1);
    json_t *job = first_job();

    assert_int_equal(json_integer_value(json_object_get(job, "loss_step")), 0);
    json_decref(job);
    assert_int_equal(paramctl("jobs"), 0);
    assert_says("  -  running");
    leave(&both);
    assert_int_equal(paramctl("drop " JOB), 0);
}

TEST(a_job_counts_its_traffic_and_its_speed)
{
    pair both = train(JOB, 40, -1);
    json_t *job = first_job();
    json_int_t gradients = 2ll * 40 * PARAMS * SIDE * SIDE * 4; /* ranks, steps, parameters, elements, bytes of each */

    assert_in_range(json_integer_value(json_object_get(job, "bytes_in")), gradients, 2 * gradients);
    assert_true(json_integer_value(json_object_get(job, "bytes_out")) > 0);
    assert_true(json_real_value(json_object_get(job, "steps_per_second")) > 0);
    json_decref(job);
    leave(&both);
    assert_int_equal(paramctl("drop " JOB), 0);
}

TEST(every_list_fits_a_hundred_columns)
{
    static const char *const lists[] = { "jobs",         "status",     "top",        "params " JOB,
                                         "workers " JOB, "roots " JOB, "state " JOB, "settings " JOB };
    pair both = train(JOB, 2, 0.25);

    assert_int_equal(paramctl("set " JOB " '*bias' lr=0.05"), 0);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        assert_int_equal(paramctl("%s", lists[i]), 0);
        assert_lines_fit(100);
        assert_null(strchr(paramctl_output, '\033'));
    }
    assert_int_equal(paramctl("params -o wide " JOB), 0);
    assert_says(long_names[0]); /* with -o wide the parameter's long name is not cut */
    leave(&both);
    assert_int_equal(paramctl("drop " JOB), 0);
}

TEST(lists_fit_a_narrow_terminal)
{
    pair both = train(JOB, 1, -1);

    if (paramctl_shell("command -v script > /dev/null") != 0) skip();
    assert_int_equal(paramctl_shell("SHELL=/bin/sh TERM=dumb script -qec \"stty cols 80; $paramctl status; $paramctl "
                                    "jobs; $paramctl params " JOB "\" /dev/null < /dev/null | tr -d '\\r'"),
                     0);
    assert_says("DURABLE\n");
    assert_says("WAITS FOR\n");
    assert_lines_fit(80);
    leave(&both);
    assert_int_equal(paramctl("drop " JOB), 0);
}

TEST(a_pattern_that_matches_nothing_is_a_failure)
{
    static const char *const lists[] = { "roots", "params", "state", "settings" };
    pair both = train(JOB, 1, -1);

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        assert_int_equal(paramctl("%s " JOB " 'zzz*'", lists[i]), 1);
        assert_says("no parameter matches 'zzz*'");
    }
    assert_int_equal(paramctl("jobs 'zzz*'"), 1);
    assert_says("no job matches 'zzz*'");
    assert_int_equal(paramctl("jobs 'resnet50*'"), 0);
    assert_int_equal(paramctl("roots " JOB " '*bias'"), 0);
    assert_says("no roots"); /* a parameter matches the pattern, but it has no roots */
    assert_int_equal(paramctl("params " JOB " 'encoder*'"), 0);
    assert_says("encoder.embeddings");
    assert_null(strstr(paramctl_output, "bias"));
    leave(&both);
    assert_int_equal(paramctl("drop " JOB), 0);
}

TEST(whom_a_job_waits_for_is_shown)
{
    pd_client *alone = join(JOB, 0);

    assert_int_equal(paramctl("jobs -o wide"), 0);
    assert_says("WAITS FOR\n");
    assert_says("  1\n"); /* the job waits for rank 1 */
    pd_client_close(alone);
    assert_int_equal(paramctl("drop " JOB), 0);
}

TEST(watch_prints_block_after_block_in_a_pipe)
{
    assert_int_equal(paramctl_shell("timeout %g $paramctl jobs --watch=100ms | head -n 5", patient(20)), 0);
    assert_string_equal(paramctl_output, "no jobs\n\nno jobs\n\nno jobs\n");
    assert_int_equal(paramctl_shell("timeout %g $paramctl status --watch=100ms | head -n 1", patient(5)), 0);
    assert_says("server ");
}

HOLDS(watch_ends_with_status_3_when_the_daemon_is_gone,
      assert_int_equal(paramctl("jobs --watch --server tcp://127.0.0.1:1 --timeout 0.2"), 3));

/* Runs a command on a pseudo-terminal, with the program `script`. It starts $SHELL, which may be unset or any shell,
 * so the test sets it to /bin/sh. */
static void on_a_terminal(const char *environment, const char *command)
{
    if (paramctl_shell("command -v script > /dev/null") != 0) skip();
    assert_int_equal(paramctl_shell("SHELL=/bin/sh TERM=xterm %s script -qec \"$paramctl %s\" /dev/null < /dev/null",
                                    environment, command),
                     0);
}

TEST(an_error_stays_on_the_terminal_when_watch_ends)
{
    if (paramctl_shell("command -v script > /dev/null") != 0) skip();
    assert_int_equal(paramctl_shell("SHELL=/bin/sh TERM=xterm script -qec \"$paramctl jobs --watch --server "
                                    "tcp://127.0.0.1:1 --timeout 0.2\" /dev/null < /dev/null"),
                     3);
    assert_says("127.0.0.1:1: Connection refused");
    assert_null(strchr(paramctl_output, '\033')); /* the terminal was not cleared */
}

TEST(colours_are_for_terminals_that_want_them)
{
    pair both = train(JOB, 1, -1);

    on_a_terminal("", "jobs");
    assert_says("\033[1mJOB");
    on_a_terminal("NO_COLOR=1", "jobs");
    assert_null(strchr(paramctl_output, '\033'));
    on_a_terminal("TERM=dumb", "jobs");
    assert_null(strchr(paramctl_output, '\033'));
    leave(&both);
    assert_int_equal(paramctl("drop " JOB), 0);
}

TEST(top_prints_one_table_in_a_pipe)
{
    pair both = train(JOB, 2, 0.5);
    json_t *answer, *job;

    assert_int_equal(paramctl("top"), 0);
    assert_says(" 1 job, ");
    assert_says("WAITS FOR");
    assert_says(" 2/2 ");
    assert_int_equal(paramctl("top --json --sort memory"), 0);
    answer = parsed();
    job = json_array_get(json_object_get(answer, "jobs"), 0);
    assert_string_equal(json_string_value(json_object_get(job, "name")), JOB);
    assert_true(json_real_value(json_object_get(job, "loss")) == 1.0);
    json_decref(answer);
    leave(&both);
    assert_int_equal(paramctl("drop " JOB), 0);
}

TEST(top_fills_a_terminal_until_q)
{
    if (paramctl_shell("command -v script > /dev/null") != 0) skip();
    /* --foreground: otherwise `timeout` may put paramctl into the background, where reading the terminal stops it */
    assert_int_equal(paramctl_shell("echo q | SHELL=/bin/sh TERM=xterm script -qec \"stty cols 100 rows 20; timeout "
                                    "--foreground %g $paramctl top --watch=200ms\" /dev/null",
                                    patient(20)),
                     0);
    assert_says("sorted by name");
    assert_says("no jobs");
}

TEST(top_shows_a_job_with_failing_roots_in_red)
{
    pair both;

    if (paramctl_shell("command -v script > /dev/null") != 0) skip();
    first_element = INFINITY;
    both = train(JOB, 3, -1);
    first_element = 1;
    for (int colours = 0; colours < 2; colours++) {
        assert_int_equal(paramctl_shell("echo q | SHELL=/bin/sh TERM=xterm %s script -qec \"stty cols 120 rows 20; "
                                        "timeout --foreground %g $paramctl top --watch=200ms\" /dev/null",
                                        colours ? "" : "NO_COLOR=1", patient(20)),
                         0);
        assert_says(JOB);
        assert_int_equal(strstr(paramctl_output, "\033[31m" JOB) != NULL, colours);
    }
    leave(&both);
    assert_int_equal(paramctl("drop " JOB), 0);
}

/* Reads what a terminal shows until it shows `text`. */
static void await_on_screen(int terminal, const char *text)
{
    size_t n = 0;

    while (strstr(paramctl_output, text) == NULL) {
        ssize_t got = read(terminal, paramctl_output + n, sizeof paramctl_output - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
        paramctl_output[n] = '\0';
    }
}

/* Returns the exit status of a process. Fails if the process does not end by itself within patient(20) seconds. */
static int exit_status_of(pid_t pid)
{
    double deadline = seconds_now() + patient(20);
    int status = 0;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (seconds_now() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            fail_msg("the process did not end");
        }
        sleep_for(0.01);
    }
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(top_ends_when_its_terminal_is_gone_even_under_nohup)
{
    char program[512];
    int terminal;
    pid_t pid;

    snprintf(program, sizeof program, "%s/paramctl", getenv("PARAMD_BIN"));
    paramctl_output[0] = '\0';
    pid = forkpty(&terminal, NULL, NULL, NULL);
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGHUP, SIG_IGN);
        setenv("TERM", "xterm", 1);
        execl(program, program, "top", "--server", paramctl_server.url, "--watch=0.2s", (char *)NULL);
        _exit(127);
    }
    await_on_screen(terminal, "sorted by");
    close(terminal);
    assert_int_equal(exit_status_of(pid), 3);
}

GROUP(paramctl_start_server, paramctl_stop_server);
