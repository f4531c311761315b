/* Tests a job of two groups of two ranks, each a replica whose ranks have half of the parameter, as FSDP shards it: if
 * a rank is killed, its partner never counts alone, and the other group goes on. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

enum { WORLD = 4, KILLED = 1, PARTNER = 0, N = 10, HALF = N / 2, STEPS = 30, STEPPED = 1, LATE = 5 };

/* A worker of the job, with the half of the parameter that its place in the group says. */
typedef struct worker {
    pd_client *client;
    pd_item item;
    pd_item_count count;
    float gradient[HALF], weights[HALF];
} worker;

/* Opens a worker whose gradient of each element is `value`. Returns false after an error. */
static bool open_worker(const char *url, worker *w, int rank, float value, pd_error *err)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    static const char *const options[] = { "rounds=quorum", "quorum=1", NULL };
    int64_t start = rank % 2 * HALF;
    pd_client_param param = {
        .name = "p", .shape = { .rank = 1, .dim = { N } }, .ranged = true, .start = start, .end = start + HALF
    };
    pd_client_options how = { .urls = url,
                              .job = "j",
                              .rank = rank,
                              .world_size = WORLD,
                              .group = 1 + (uint32_t)rank / 2,
                              .options = options,
                              .rules = rules,
                              .deadline = patient(30),
                              .quiet = true };

    for (int k = 0; k < HALF; k++) w->gradient[k] = value;
    w->item = (pd_item){ .gradient = w->gradient, .weights = w->weights };
    return pd_client_open(&w->client, &how, err) == PD_OK && pd_client_declare(w->client, &param, 1, err) == PD_OK;
}

static void must(bool good, const pd_error *err)
{
    if (!good) fail_msg("%s", err->text);
}

static bool init(worker *w, pd_error *err)
{
    void *const weights[] = { w->weights };

    return pd_client_init(w->client, weights, err) == PD_OK;
}

/* Runs the rank that is killed as a process of its own: it sends initial weights, says so, and waits for its end. */
static pid_t fork_killed(const char *url, int *ready)
{
    int ends[2];
    worker w = { 0 };
    pd_error err;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        bool good = open_worker(url, &w, KILLED, 100, &err) && init(&w, &err);
        if (write(ends[1], good ? "+" : "-", 1) == 1) pause();
        _exit(1);
    }
    assert_true(pid > 0);
    close(ends[1]);
    *ready = ends[0];
    return pid;
}

static void kill_it(pid_t pid, int ready)
{
    char said = 0;

    assert_int_equal(read(ready, &said, 1), 1);
    assert_int_equal(said, '+');
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready);
}

static pd_ticket_id push(worker *w)
{
    const pd_push_options options = { .counts = &w->count };
    pd_ticket_id ticket;
    pd_error err;

    must(pd_client_push_pull(w->client, &w->item, 1, &options, &ticket, &err) == PD_OK, &err);
    return ticket;
}

static void finish(worker *w, pd_ticket_id ticket)
{
    pd_error err;

    must(pd_client_wait(w->client, ticket, patient(30), &err) == PD_OK, &err);
}

TEST(the_partner_of_a_killed_rank_never_counts_alone_and_the_other_group_goes_on)
{
    test_daemon *daemon = daemon_start(NULL);
    worker workers[WORLD] = { 0 };
    pd_error err;
    int ready;
    pid_t pid = fork_killed(daemon->url, &ready);

    for (int r = 0; r < WORLD; r++)
        if (r != KILLED) must(open_worker(daemon->url, &workers[r], r, r == PARTNER ? 100 : 1, &err), &err);
    for (int r = 0; r < WORLD; r++)
        if (r != KILLED) must(init(&workers[r], &err), &err);
    kill_it(pid, ready);
    for (int step = 1; step <= STEPS; step++) {
        pd_ticket_id tickets[WORLD];
        for (int r = 0; r < WORLD; r++)
            if (r != KILLED) tickets[r] = push(&workers[r]);
        for (int r = 0; r < WORLD; r++)
            if (r != KILLED) finish(&workers[r], tickets[r]);
        assert_int_equal(workers[PARTNER].item.outcome, LATE);
        for (int r = 2; r < WORLD; r++) {
            assert_int_equal(workers[r].item.outcome, STEPPED);
            assert_int_equal(workers[r].count.counted, 2);
            assert_float_equal(workers[r].weights[0], -step, 0);
        }
    }
    for (int r = 0; r < WORLD; r++) pd_client_close(workers[r].client);
    daemon_end(daemon);
}
