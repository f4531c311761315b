/* Tests shared memory between the daemon and workers that are processes of their own: the same bits come by every way,
 * whatever is pushed and pulled; and nothing is left over when workers or jobs end. */
#include <signal.h>

#include "test.h"
#include "crew.h"
#include "daemon_process.h"
#include "descriptors.h"

enum { WORLD = 4, STEPS = 5 };

typedef struct fixture {
    test_daemon *daemon;
    char path[64], local[80], listen[128];
} fixture;

/* Starts a daemon that listens on TCP and on a Unix socket. `flag` NULL: no further flag. */
static void start(fixture *f, const char *flag)
{
    static int serial;

    snprintf(f->path, sizeof f->path, "/tmp/paramd-shared-%d-%d", (int)getpid(), serial++);
    snprintf(f->local, sizeof f->local, "unix://%s", f->path);
    snprintf(f->listen, sizeof f->listen, "--listen=127.0.0.1:0,%s", f->local);
    f->daemon = daemon_start((const char *const[]){ f->listen, "--chunk-bytes=64KiB", flag, NULL });
}

static int set_up(void **state)
{
    static fixture f;

    start(&f, NULL);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    int status = daemon_stop(f->daemon, patient(20));

    unlink(f->path);
    return status;
}

static bool has_no_segments(void *arg)
{
    return descriptors_of_segments(((const test_daemon *)arg)->pid) == 0;
}

/* Ends the job, which would linger. */
static void drop(const fixture *f)
{
    char line[256];

    snprintf(line, sizeof line, "%s/paramctl drop crew -s %s >/dev/null", getenv("PARAMD_BIN"), f->local);
    assert_int_equal(system(line), 0);
}

/* Runs the job by one way. Writes the hashes of every rank's weights. */
static void run(const fixture *f, const crew_job *job, crew_way way, uint64_t hashes[WORLD][CREW_PARAMS])
{
    crew c = crew_start(job, WORLD, way, f->daemon->url, f->local, false);
    bool shares = way == CREW_COPIED || way == CREW_HOME;

    crew_join(&c);
    for (int rank = 0; rank < WORLD; rank++) {
        memcpy(hashes[rank], c.results[rank].weights, sizeof hashes[rank]);
        /* Chunks in int4 are shorter than the payloads that are worth sharing. */
        assert_int_equal(c.results[rank].stats.shared_out > 0, shares && job->push != PD_INT4);
        assert_int_equal(c.results[rank].stats.shared_in > 0, shares);
    }
    crew_free(&c);
    drop(f);
    assert_true(await(has_no_segments, f->daemon, patient(10)));
}

static void expect_same_bits(const fixture *f, crew_job job)
{
    uint64_t expected[WORLD][CREW_PARAMS], got[WORLD][CREW_PARAMS];

    job.steps = STEPS;
    run(f, &job, CREW_TCP, expected);
    for (crew_way way = CREW_SOCKET; way < CREW_WAYS; way++) {
        run(f, &job, way, got);
        for (int rank = 0; rank < WORLD; rank++)
            for (int i = 0; i < CREW_PARAMS; i++)
                if (got[rank][i] != expected[rank][i]) fail_msg("way %d, rank %d, parameter %d", way, rank, i);
    }
}

#define ADAM "* adam lr=0.01"
#define SHAMPOO                                                                                                        \
    "* shampoo lr=0.01 betas=0.9,0.99 epsilon=1e-4 max_preconditioner_dim=64 precondition_frequency=2 "                \
    "grafting_config=SGD root_delay=1"

FIXTURE(set_up, tear_down);

HOLDS_FOR(fixture *f, sgd_has_the_same_bits_by_every_way,
          expect_same_bits(f, (crew_job){ .rule = "* sgd lr=0.1 momentum=0.9" }));

HOLDS_FOR(fixture *f, adam_has_the_same_bits_by_every_way, expect_same_bits(f, (crew_job){ .rule = ADAM }));

HOLDS_FOR(fixture *f, shampoo_has_the_same_bits_by_every_way, expect_same_bits(f, (crew_job){ .rule = SHAMPOO }));

HOLDS_FOR(fixture *f, adafactor_has_the_same_bits_by_every_way,
          expect_same_bits(f, (crew_job){ .rule = "* adafactor learning_rate=0.01 min_dim_size_to_factor=8" }));

HOLDS_FOR(fixture *f, int8_has_the_same_bits_by_every_way,
          expect_same_bits(f, (crew_job){ .rule = ADAM, .push = PD_INT8 }));

HOLDS_FOR(fixture *f, int8_has_the_same_median_by_every_way,
          expect_same_bits(f, (crew_job){ .rule = ADAM, .push = PD_INT8, .option = "aggregate=median" }));

HOLDS_FOR(fixture *f, int4_shards_have_the_same_bits_by_every_way,
          expect_same_bits(f, (crew_job){ .rule = ADAM, .push = PD_INT4, .ranged = true }));

HOLDS_FOR(fixture *f, bfloat16_has_the_same_bits_by_every_way,
          expect_same_bits(f, (crew_job){ .rule = ADAM, .push = PD_BF16, .pull = PD_BF16 }));

HOLDS_FOR(fixture *f, ranges_have_the_same_bits_by_every_way,
          expect_same_bits(f, (crew_job){ .rule = ADAM, .ranged = true }));

HOLDS_FOR(fixture *f, updates_have_the_same_bits_by_every_way,
          expect_same_bits(f, (crew_job){ .rule = SHAMPOO " communication_dtype=BF16", .update = PD_BF16 }));

HOLDS_FOR(fixture *f, a_median_has_the_same_bits_by_every_way,
          expect_same_bits(f, (crew_job){ .rule = ADAM, .option = "aggregate=median" }));

HOLDS_FOR(fixture *f, adasum_has_the_same_bits_by_every_way,
          expect_same_bits(f, (crew_job){ .rule = ADAM, .option = "aggregate=adasum" }));

/* Workers of one job may come by different ways: those over TCP get their weights out of the same segment. */
TEST(workers_that_come_by_different_ways_have_the_same_bits, const fixture *f)
{
    const crew_job job = { .rule = ADAM, .steps = STEPS };
    uint64_t expected[WORLD][CREW_PARAMS];
    crew c;

    run(f, &job, CREW_TCP, expected);
    c = crew_start(&job, 0, CREW_TCP, f->daemon->url, f->local, false);
    c.world = WORLD;
    for (int rank = 0; rank < WORLD; rank++) crew_start_rank(&c, rank, (crew_way)rank);
    crew_join(&c);
    for (int rank = 0; rank < WORLD; rank++)
        assert_memory_equal(c.results[rank].weights, expected[rank], sizeof expected[rank]);
    crew_free(&c);
}

/* Runs a job that stays at its end. */
static crew run_and_stay(const fixture *f, crew_way way, const crew_job *job)
{
    crew c = crew_start(job, WORLD, way, f->daemon->url, f->local, true);

    crew_await_steps(&c);
    return c;
}

static void end(crew *c)
{
    crew_let_go(c);
    crew_join(c);
    crew_free(c);
}

static const crew_job adam = { .rule = ADAM, .steps = STEPS };

/* All but the small parameter and the remainders that are too small go by shared memory, in both directions. */
TEST(gradients_and_weights_do_not_pass_through_the_socket, fixture *f)
{
    crew c = run_and_stay(f, CREW_HOME, &adam);

    for (int rank = 0; rank < WORLD; rank++) {
        const pd_client_stats *stats = &c.results[rank].stats;
        assert_true(stats->shared_out > stats->payload_out * 9 / 10);
        assert_true(stats->bytes_out < stats->payload_out / 2);
    }
    end(&c);
}

TEST(the_daemon_counts_the_bytes_of_shared_memory, const fixture *f)
{
    crew c = run_and_stay(f, CREW_COPIED, &adam);
    char line[256], text[8192] = "";
    FILE *pipe;
    uint64_t pushed = 0;
    const char *at;

    for (int rank = 0; rank < WORLD; rank++) pushed += c.results[rank].stats.payload_out;
    snprintf(line, sizeof line, "%s/paramctl jobs --json -s %s", getenv("PARAMD_BIN"), f->local);
    assert_non_null(pipe = popen(line, "r"));
    text[fread(text, 1, sizeof text - 1, pipe)] = '\0';
    assert_int_equal(pclose(pipe), 0);
    assert_non_null(at = strstr(text, "\"bytes_in\":"));
    assert_true(strtoull(at + 11, NULL, 10) >= pushed);
    end(&c);
}

TEST(an_operator_sees_the_job_while_its_workers_share_memory, const fixture *f)
{
    const crew_job job = { .rule = ADAM, .steps = 60 };
    crew c = crew_start(&job, WORLD, CREW_HOME, f->daemon->url, f->local, false);
    char line[256];

    snprintf(line, sizeof line, "%s/paramctl status -s %s >/dev/null && %s/paramctl jobs -s %s >/dev/null",
             getenv("PARAMD_BIN"), f->local, getenv("PARAMD_BIN"), f->local);
    for (int i = 0; i < 10; i++) assert_int_equal(system(line), 0);
    crew_join(&c);
    crew_free(&c);
}

TEST(a_worker_killed_in_training_comes_back_and_changes_nothing, const fixture *f)
{
    const crew_job job = { .rule = ADAM, .steps = 200 };
    uint64_t expected[WORLD][CREW_PARAMS];
    crew c;

    run(f, &job, CREW_TCP, expected);
    c = crew_start(&job, WORLD, CREW_COPIED, f->daemon->url, f->local, true);
    for (int i = 0; i < 4; i++) {
        crew_kill_after(&c, 1 + i % 3, 4 + 40 * i);
        crew_start_rank(&c, 1 + i % 3, i % 2 ? CREW_COPIED : CREW_HOME);
    }
    crew_await_steps(&c);
    crew_let_go(&c);
    crew_join(&c);
    for (int rank = 0; rank < WORLD; rank++)
        assert_memory_equal(c.results[rank].weights, expected[rank], sizeof expected[rank]);
    crew_free(&c);
}

/* The workers go on from the weights that rank 0 holds. Those may be of a step that was half taken, so only the ranks
 * are compared. */
TEST(workers_share_memory_with_a_daemon_that_was_started_again, fixture *f)
{
    const crew_job job = { .rule = "* sgd lr=0.1", .steps = 600 };
    crew c = crew_start(&job, WORLD, CREW_COPIED, f->daemon->url, f->local, true);

    crew_await(&c, 0, 10);
    daemon_kill(f->daemon);
    unlink(f->path);
    f->daemon = daemon_start((const char *const[]){ f->listen, "--chunk-bytes=64KiB", NULL });
    crew_await_steps(&c);
    assert_int_equal(descriptors_of_segments(f->daemon->pid), 1);
    for (int rank = 1; rank < WORLD; rank++)
        assert_memory_equal(c.results[rank].weights, c.results[0].weights, sizeof c.results[0].weights);
    end(&c);
}

TEST(the_daemon_keeps_one_descriptor_for_a_job_and_none_for_its_workers, const fixture *f)
{
    crew c = run_and_stay(f, CREW_COPIED, &adam);

    assert_int_equal(descriptors_of_segments(f->daemon->pid), 1);
    end(&c);
    drop(f);
    assert_true(await(has_no_segments, f->daemon, patient(10)));
}

TEST(killed_workers_leave_no_segment_behind, const fixture *f)
{
    crew c = run_and_stay(f, CREW_COPIED, &adam);

    for (int rank = 0; rank < WORLD; rank++) crew_kill_after(&c, rank, STEPS);
    drop(f);
    assert_true(await(has_no_segments, f->daemon, patient(10)));
    crew_free(&c);
}

/* Returns the KiB of shared memory that a process has mapped and touched. */
static long shared_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    assert_non_null(file = fopen(path, "r"));
    while (fgets(line, sizeof line, file) != NULL) sscanf(line, "RssShmem: %ld", &kib);
    fclose(file);
    return kib;
}

static bool has_no_shared_pages(void *arg)
{
    return shared_kib(((const test_daemon *)arg)->pid) == 0;
}

TEST(shared_pages_of_a_job_are_given_back_when_it_has_ended, const fixture *f)
{
    crew c = run_and_stay(f, CREW_COPIED, &adam);

    assert_true(shared_kib(f->daemon->pid) > 0);
    end(&c);
    drop(f);
    assert_true(await(has_no_shared_pages, f->daemon, patient(10)));
}

TEST(a_daemon_may_be_told_to_share_no_memory)
{
    fixture f;
    crew c;

    start(&f, "--shared-memory=no");
    c = run_and_stay(&f, CREW_HOME, &adam);
    for (int rank = 0; rank < WORLD; rank++)
        assert_int_equal(c.results[rank].stats.shared_out + c.results[rank].stats.shared_in, 0);
    assert_int_equal(descriptors_of_segments(f.daemon->pid), 0);
    end(&c);
    assert_int_equal(daemon_stop(f.daemon, patient(20)), 0);
    unlink(f.path);
}
