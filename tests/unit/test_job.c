/* Tests jobs: which workers may join, which worker has a rank, and which workers wait at a barrier. */
#include "test.h"
#include "job_keys.h"
#include "rig.h"
#include "store_inside.h"

static const int64_t sizes[] = { 8 };

static void set_up(rig *r)
{
    pd_store_config config = rig_config();

    config.max_jobs = 2;
    rig_new(r, &config);
}

static int push_one(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step)
{
    float g[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };

    return rig_push(r, job, rank, conn, step, 0, g, 8);
}

/* Sends a request that needs no fields besides job, rank and connection. */
static int tell(rig *r, pd_request_kind kind, uint32_t job, uint32_t rank, uint64_t conn)
{
    pd_request *request = pd_request_new(kind, kind == PD_REQ_LOST ? (pd_ticket){ conn, 0 } : rig_ticket(r, conn));

    request->job = job;
    request->rank = rank;
    if (kind == PD_REQ_LOST) strcpy(request->u.lost.reason, "connection reset");
    return rig_apply(r, request);
}

static int barrier(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t sequence)
{
    pd_request *request = pd_request_new(PD_REQ_BARRIER, rig_ticket(r, conn));

    request->job = job;
    request->rank = rank;
    request->u.barrier.sequence = sequence;
    return rig_apply(r, request);
}

FIXTURE(rig, set_up, rig_free);

TEST(the_first_hello_creates_the_job, rig *r)
{
    assert_int_equal(rig_hello(r, "a", 1, 2, 5, 10, "seed=18446744073709551615", NULL), PD_OK);
    assert_true(r->created);
    assert_true(r->seed == UINT64_MAX);
    uint32_t job = r->job;
    assert_int_equal(rig_hello(r, "a", 0, 2, 6, 11, "seed=18446744073709551615", NULL), PD_OK);
    assert_false(r->created);
    assert_int_equal(r->job, job);
    assert_int_equal(rig_hello(r, "b", 0, 1, 6, 12, NULL, NULL), PD_OK);
    assert_int_not_equal(r->job, job);
}

TEST(limits_the_number_of_jobs, rig *r)
{
    rig_hello(r, "a", 0, 1, 1, 10, NULL, NULL);
    rig_hello(r, "b", 0, 1, 1, 11, NULL, NULL);
    assert_int_equal(rig_hello(r, "c", 0, 1, 1, 12, NULL, NULL), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r->error.text, "2 jobs"));
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->n_jobs, 2);
}

typedef struct bad {
    const char *job;
    uint32_t rank, world;
    const char *options, *rules;
    int code;
    const char *says;
} bad;
static const bad refused[] = {
    { "", 0, 1, NULL, NULL, PD_INVALID_ARGUMENT, "name" },
    { "a\nb", 0, 1, NULL, NULL, PD_INVALID_ARGUMENT, "control" },
    { "a\xc2\x9b"
      "b",
      0, 1, NULL, NULL, PD_INVALID_ARGUMENT, "control character at byte 1: U+009B" },
    { "job\xe2\x80\xae", 0, 1, NULL, NULL, PD_INVALID_ARGUMENT, "U+202E" },
    { "a\xff", 0, 1, NULL, NULL, PD_INVALID_ARGUMENT, "not UTF-8 at byte 1" },
    { "a", 0, 1, "aggregate=m\xe2\x80\xa8", NULL, PD_INVALID_ARGUMENT,
      "the value of option 0 has a control character at byte 1: U+2028" },
    { "a", 0, 1, "aggre\033gate=mean", NULL, PD_INVALID_ARGUMENT,
      "the name of option 0 has a control character at byte 5: U+001B" },
    { "a", 0, 1, NULL, "b* sgd;w\033[2J* sgd", PD_INVALID_ARGUMENT,
      "rule 1 has a control character at byte 1, U+001B: \"w?[2J* sgd\"" },
    { "a", 2, 2, NULL, NULL, PD_INVALID_ARGUMENT, "ranks 0 to 1" },
    { "a", 0, 0, NULL, NULL, PD_INVALID_ARGUMENT, "workers" },
    { "a", 0, 1000000, NULL, NULL, PD_INVALID_ARGUMENT, "4096" },
    { "a", 0, 1, "agregate=mean", NULL, PD_INVALID_ARGUMENT, "aggregate, adasum_fold, trim, nonfinite" },
    { "a", 0, 1, "aggregate=best", NULL, PD_INVALID_ARGUMENT,
      "mean|weighted_mean|sum|adasum|adasum_vdot|median|trimmed_mean|radial_mean" },
    { "a", 0, 1, "on_lost_worker=grow", NULL, PD_INVALID_ARGUMENT, "shrink" },
    { "a", 0, 1, "step_timeout=0", NULL, PD_INVALID_ARGUMENT, "seconds" },
    { "a", 0, 1, "step_timeout=1e-9", NULL, PD_INVALID_ARGUMENT,
      "step_timeout = 1e-9: expected a duration like 500ms, 30s, 5m, 1h or 1d (seconds without a unit), at least" },
    { "a", 0, 1, "job_linger=8000h", NULL, PD_INVALID_ARGUMENT, "at most 604800s" },
    { "a", 0, 1, "job_linger=1us", NULL, PD_INVALID_ARGUMENT, "duration" },
    { "a", 0, 1, "step_timeout=nan", NULL, PD_INVALID_ARGUMENT, "seconds" },
    { "a", 0, 1, "step_timeout=5sec", NULL, PD_INVALID_ARGUMENT, "duration" },
    { "a", 0, 1, "seed=-1", NULL, PD_INVALID_ARGUMENT, "whole number" },
    { "a", 0, 1, "start_step=-1", NULL, PD_INVALID_ARGUMENT, "whole number from 0 to 9007199254740992" },
    { "a", 0, 1, "start_step=9007199254740993", NULL, PD_INVALID_ARGUMENT, "whole number from 0 to 9007199254740992" },
    { "a", 0, 1, "start_step=1e3", NULL, PD_INVALID_ARGUMENT, "whole number" },
    { "a", 0, 1, NULL, "*", PD_INVALID_ARGUMENT, "glob optimizer" },
    { "a", 0, 1, NULL, "* adamm", PD_INVALID_ARGUMENT, "sgd" },
    { "a", 0, 1, NULL, "* sgd lr", PD_INVALID_ARGUMENT, "name=value" },
    { "a", 0, 1, NULL, "* sgd lrr=1", PD_INVALID_ARGUMENT, "momentum" },
    { "a", 0, 1, NULL, "* sgd lr=-1", PD_INVALID_ARGUMENT, "lr" },
    { "a", 0, 1, NULL, "* sgd;x* sgd nesterov=yes", PD_INVALID_ARGUMENT, "nesterov" },
};

TEST(refuses_a_hello_that_makes_no_sense, rig *r)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const bad *b = &refused[i];
        assert_int_equal(rig_hello(r, b->job, b->rank, b->world, 1, 10, b->options, b->rules), b->code);
        if (strstr(r->error.text, b->says) == NULL) fail_msg("case %zu says: %s", i, r->error.text);
        assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->n_jobs, 0);
    }
}

/* Writes a rule whose glob has n bytes, and matches all names. */
static void rule_of(char *text, size_t n)
{
    memset(text, '*', n);
    strcpy(text + n, " sgd lr=1");
}

TEST(the_glob_of_a_rule_has_at_most_256_bytes, rig *r)
{
    char rule[300];

    rule_of(rule, 257);
    assert_int_equal(rig_hello(r, "a", 0, 1, 1, 10, NULL, rule), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r->error.text, "has 257 bytes; expected at most 256"));
    rule_of(rule, 256);
    assert_int_equal(rig_hello(r, "a", 0, 1, 1, 10, NULL, rule), PD_OK);
    rule_of(rule, 257);
    assert_int_equal(rig_hello(r, "a", 0, 1, 1, 10, NULL, rule), PD_INVALID_ARGUMENT);
}

/* Servers took longer globs once. A restart with this one must not lose their jobs. */
TEST(a_job_of_an_older_server_keeps_its_longer_globs, rig *r)
{
    char rule[300];
    uint8_t *image;
    size_t n;
    pd_error err;
    pd_request *drop = pd_request_new(PD_REQ_DROP, rig_ticket(r, 9));
    pd_job *job = inside_job(r->store, rig_start(r, "a", 1, 10, &(int64_t){ 4 }, 1, NULL, "* sgd lr=1"));

    rule_of(rule, 280);
    free(job->steps.rules[0].text);
    job->steps.rules[0].text = strdup(rule);
    rig_work(r);
    assert_int_equal(pd_store_save_job(r->store, "a", &image, &n, &err), PD_OK);
    drop->u.info.job_name = strdup("a");
    assert_int_equal(rig_apply(r, drop), PD_OK);
    assert_int_equal(pd_store_load_job(r->store, image, n, r->now, &err), PD_OK);
    free(image);
    assert_int_equal(rig_hello(r, "a", 0, 1, 10, 11, NULL, "* sgd lr=1"), PD_FAILED_PRECONDITION);
    assert_int_equal(rig_hello(r, "a", 0, 1, 10, 12, NULL, rule), PD_OK);
    assert_int_equal(rig_hello(r, "b", 0, 1, 1, 13, NULL, rule), PD_INVALID_ARGUMENT);
}

static const bad different[] = {
    { "a", 1, 3, "nonfinite=reject", "* sgd lr=1", PD_FAILED_PRECONDITION, "world_size = 2" },
    { "a", 1, 2, "nonfinite=skip", "* sgd lr=1", PD_FAILED_PRECONDITION,
      "nonfinite = reject, this worker comes with skip" },
    { "a", 1, 2, NULL, "* sgd lr=1", PD_FAILED_PRECONDITION, "nonfinite" },
    { "a", 1, 2, "nonfinite=reject seed=3", "* sgd lr=1", PD_FAILED_PRECONDITION,
      "seed = 0, this worker comes with 3" },
    { "a", 1, 2, "nonfinite=reject", "* sgd lr=2", PD_FAILED_PRECONDITION, "lr=2" },
    { "a", 1, 2, "nonfinite=reject", NULL, PD_FAILED_PRECONDITION, "lr=1" },
    { "a", 1, 2, "nonfinite=reject", "b* sgd;* sgd lr=1", PD_FAILED_PRECONDITION, "1 optimizer rules" },
    { "a", 1, 2, "nonfinite=maybe", "* sgd lr=1", PD_INVALID_ARGUMENT, "nonfinite" },
};

TEST(refuses_a_worker_that_describes_another_job, rig *r)
{
    rig_hello(r, "a", 0, 2, 1, 10, "nonfinite=reject", "* sgd lr=1");
    for (size_t i = 0; i < sizeof different / sizeof different[0]; i++) {
        const bad *b = &different[i];
        assert_int_equal(rig_hello(r, b->job, b->rank, b->world, 2, 11, b->options, b->rules), b->code);
        if (strstr(r->error.text, b->says) == NULL) fail_msg("case %zu says: %s", i, r->error.text);
        assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].connected, 1);
    }
    assert_int_equal(rig_hello(r, "a", 1, 2, 2, 11, "nonfinite=reject step_timeout=60.0", "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_hello(r, "a", 1, 2, 2, 11, "nonfinite=reject step_timeout=60000ms", "* sgd lr=1"),
                     PD_OK); /* the same step_timeout as above (60 s), written in another unit */
    assert_int_equal(rig_hello(r, "a", 1, 2, 2, 11, "nonfinite=reject step_timeout=1min", "* sgd lr=1"), PD_OK);
}

TEST(the_list_of_keys_is_cut_to_its_buffer)
{
    char text[64], small[3];

    memset(text, 'x', sizeof text);
    assert_string_equal(pd_job_keys_list(text, 24), "aggregate, adasum_fo...");
    assert_int_equal(text[24], 'x');
    assert_string_equal(pd_job_keys_list(small, sizeof small), "ag");
}

TEST(presets_come_from_the_daemon)
{
    static char name[] = "nonfinite", value[] = "reject", wrong[] = "maybe";
    pd_option preset = { name, value };
    pd_store_config config = rig_config();
    pd_store *store;
    pd_error err;
    rig r;

    config.job_presets = &preset;
    config.n_job_presets = 1;
    rig_new(&r, &config);
    rig_hello(&r, "a", 0, 2, 1, 10, NULL, NULL);
    assert_int_equal(rig_hello(&r, "a", 1, 2, 2, 11, "nonfinite=skip", NULL), PD_FAILED_PRECONDITION);
    assert_int_equal(rig_hello(&r, "a", 1, 2, 2, 11, "nonfinite=reject", NULL), PD_OK);
    rig_free(&r);
    preset.value = wrong;
    assert_int_equal(pd_store_new(&store, &config, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_job_key_check("seed", "7", &err), PD_OK);
    assert_int_equal(pd_job_key_check("seeds", "7", &err), PD_NOT_FOUND);
    assert_int_equal(pd_job_key_check("seed", "x", &err), PD_INVALID_ARGUMENT);
}

/* A label is printed in the log and in other workers' errors, so it must not contain line breaks or control
 * characters. */
TEST(a_label_is_one_printable_line, rig *r)
{
    pd_request *request = pd_request_new(PD_REQ_HELLO, rig_ticket(r, 10));

    request->u.hello.job_name = strdup("a");
    request->u.hello.label = strdup("host\n3 job a: dropped\x7f");
    request->u.hello.world_size = 1;
    assert_int_equal(rig_apply(r, request), PD_OK);
    assert_string_equal(rig_ask(r, PD_INFO_WORKERS, "a")->workers[0].label, "host?3 job a: dropped?");
}

TEST(a_process_that_comes_back_keeps_its_contributions, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, NULL, NULL);
    static const char *const name[] = { "p0" };
    static const pd_shape shape = { 1, { 8 } };

    assert_int_equal(push_one(r, job, 1, 11, 1), PD_OK);
    tell(r, PD_REQ_LOST, job, 1, 11);
    assert_string_equal(rig_ask(r, PD_INFO_WORKERS, "a")->workers[1].state, "lost");
    assert_int_equal(push_one(r, job, 1, 11, 1), PD_ABORTED);
    assert_int_equal(rig_hello(r, "a", 1, 2, 11, 21, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(push_one(r, job, 1, 21, 1), PD_FAILED_PRECONDITION); /* refused, since the worker has not declared
                                                                           * its parameters on the new connection */
    assert_int_equal(rig_declare(r, job, 1, 21, name, &shape, NULL, 1, PD_F32), PD_OK);
    assert_int_equal(r->steps[0], 0);
    assert_int_equal(push_one(r, job, 1, 21, 1), PD_OK); /* the push is sent again, but counts once */
    assert_int_equal(push_one(r, job, 0, 10, 1), PD_OK);
    rig_work(r);
    assert_int_equal(r->versions[job][0].step, 1);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].contributions, 2);
    assert_int_equal(r->info->jobs[0].duplicates, 1);
    assert_int_equal(r->fenced_conn, 0);
}

TEST(a_new_process_takes_a_rank_over_and_fences_the_old_one, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, NULL, NULL);
    static const char *const name[] = { "p0" };
    static const pd_shape shape = { 1, { 8 } };

    assert_int_equal(push_one(r, job, 1, 11, 1), PD_OK);
    assert_int_equal(rig_hello(r, "a", 1, 2, 99, 21, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(r->fenced_conn, 11);
    assert_int_equal(r->fenced.code, PD_ABORTED);
    assert_non_null(strstr(r->fenced.text, "host:99"));
    assert_int_equal(push_one(r, job, 1, 11, 1), PD_ABORTED);
    tell(r, PD_REQ_LOST, job, 1, 11); /* the old connection ends, but the rank is not lost: its new process is
                                       * connected */
    assert_string_equal(rig_ask(r, PD_INFO_WORKERS, "a")->workers[1].state, "connected");
    rig_declare(r, job, 1, 21, name, &shape, NULL, 1, PD_F32);
    push_one(r, job, 0, 10, 1);
    rig_work(r);
    assert_int_equal(r->versions[job][0].step, 1); /* the round closes with the contribution that the old process has
                                                 * sent */
    assert_int_equal(push_one(r, job, 1, 21, 2), PD_OK);
}

TEST(a_worker_that_has_left_is_not_lost, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, NULL, NULL);

    assert_int_equal(tell(r, PD_REQ_LEAVE, job, 1, 11), PD_OK);
    tell(r, PD_REQ_LOST, job, 1, 11);
    assert_string_equal(rig_ask(r, PD_INFO_WORKERS, "a")->workers[1].state, "left");
    assert_int_equal(push_one(r, job, 1, 11, 1), PD_ABORTED);
    assert_int_equal(tell(r, PD_REQ_LEAVE, job, 1, 11), PD_ABORTED);
}

TEST(a_job_lingers_after_its_last_worker_and_then_ends, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, "job_linger=30", NULL);

    push_one(r, job, 1, 11, 1);
    tell(r, PD_REQ_LOST, job, 0, 10);
    assert_true(pd_store_next_tick(r->store) == r->now + 30000000000); /* when the rank's reserve ends */
    tell(r, PD_REQ_LOST, job, 1, 11);
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].state, "lingering");
    assert_true(pd_store_next_tick(r->store) == r->now + 30000000000);
    rig_sleep(r, 29.9);
    assert_int_equal(r->gone, 0);
    rig_sleep(r, 0.1);
    assert_int_equal(r->gone, 1);
    assert_int_equal(r->gone_job, job);
    assert_int_equal(r->buffers_out, 0);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->n_jobs, 0);
    assert_int_equal(pd_store_count_bytes(r->store).weights, 0);
    assert_int_equal(push_one(r, job, 1, 11, 1), PD_ABORTED);
}

/* A job without parameters ends as soon as its last worker is gone. A later worker can then create a job of the same
 * name with other options. */
TEST(a_job_without_parameters_ends_with_its_last_worker, rig *r)
{
    assert_int_equal(rig_hello(r, "a", 0, 3, 10, 10, "aggregate=adasum", "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_hello(r, "a", 1, 3, 11, 11, "aggregate=adasum", "* sgd lr=1"), PD_OK);
    tell(r, PD_REQ_LOST, r->job, 0, 10);
    rig_sleep(r, 0);
    assert_int_equal(r->gone, 0);
    tell(r, PD_REQ_LOST, r->job, 1, 11);
    rig_sleep(r, 0);
    assert_int_equal(r->gone, 1);
    assert_non_null(strstr(r->goodbye.text, "none had declared parameters"));
    assert_int_equal(rig_hello(r, "a", 0, 3, 10, 10, "aggregate=adasum adasum_fold=yes", "* sgd lr=1"), PD_OK);
    assert_true(r->created);
}

TEST(a_worker_that_comes_back_in_time_keeps_the_job, rig *r)
{
    uint32_t job = rig_start(r, "a", 1, 10, sizes, 1, "job_linger=30", NULL);

    push_one(r, job, 0, 10, 1);
    rig_work(r);
    tell(r, PD_REQ_LOST, job, 0, 10);
    rig_sleep(r, 29);
    assert_int_equal(rig_hello(r, "a", 0, 1, 77, 20, "job_linger=30", "* sgd lr=1"), PD_OK);
    assert_false(r->created);
    rig_sleep(r, 29);
    assert_int_equal(r->gone, 0);
    assert_int_equal(rig_ask(r, PD_INFO_PARAMS, "a")->params[0].step, 1);
}

static int drop(rig *r, const char *name)
{
    pd_request *request = pd_request_new(PD_REQ_DROP, rig_ticket(r, 1));

    request->u.info.job_name = strdup(name);
    return rig_apply(r, request);
}

TEST(an_operator_drops_a_job_at_once, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, NULL, NULL);

    push_one(r, job, 1, 11, 1);
    barrier(r, job, 1, 11, 1);
    assert_int_equal(drop(r, "b"), PD_NOT_FOUND);
    assert_int_equal(drop(r, "a"), PD_OK);
    assert_int_equal(r->gone, 1);
    assert_non_null(strstr(r->goodbye.text, "operator"));
    assert_int_equal(r->buffers_out, 0);
    assert_int_equal(rig_hello(r, "a", 0, 1, 1, 10, NULL, NULL), PD_OK);
    assert_true(r->created);
    assert_int_not_equal(r->job, job);
}

TEST(the_memory_of_a_large_job_is_taken_back_at_once_and_freed_in_parts, rig *r)
{
    enum { MANY = 4000 };
    static char text[MANY][16];
    static const char *names[MANY];
    static pd_shape shapes[MANY];
    int parts = 0;

    for (int p = 0; p < MANY; p++) {
        snprintf(text[p], sizeof text[p], "p%d", p);
        names[p] = text[p];
        shapes[p] = (pd_shape){ 1, { 1 } };
    }
    assert_int_equal(rig_hello(r, "large", 0, 1, 10, 10, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, 10, names, shapes, NULL, MANY, PD_F32), PD_OK);
    assert_int_equal(drop(r, "large"), PD_OK);
    assert_true(r->store->budget.used == 0);
    for (; pd_store_has_work(r->store); parts++) {
        assert_non_null(r->store->jobs.ended);
        (void)pd_store_work(r->store, r->now);
    }
    assert_int_equal(parts, 1); /* the first part was freed with the job's end */
    assert_null(r->store->jobs.ended);
}

TEST(a_job_may_be_dropped_with_work_left_to_do, rig *r)
{
    uint32_t job = rig_start(r, "a", 1, 10, sizes, 1, NULL, NULL),
             other = rig_start(r, "b", 1, 20, sizes, 1, NULL, NULL);

    push_one(r, job, 0, 10, 1);
    push_one(r, other, 0, 20, 1);
    assert_int_equal(drop(r, "a"), PD_OK);
    rig_work(r);
    assert_int_equal(r->versions[other][0].step, 1);
    assert_int_equal(r->buffers_out, 0);
}

TEST(a_barrier_opens_when_every_rank_is_there, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, NULL, NULL);
    uint64_t before = r->answered;

    for (uint64_t sequence = 1; sequence <= 3; sequence++) {
        barrier(r, job, 1, 11, sequence);
        assert_int_equal(r->answered, before);
        barrier(r, job, 0, 10, sequence);
        assert_int_equal(r->answered, before += 2);
    }
    assert_int_equal(barrier(r, job, 0, 10, 2), PD_OK); /* barrier 2 is requested again, long after all ranks reached
                                                         * it */
    assert_int_equal(r->answered, before += 1);
    assert_int_equal(barrier(r, job, 0, 10, 5), PD_FAILED_PRECONDITION);
    assert_int_equal(barrier(r, job, 0, 10, 0), PD_FAILED_PRECONDITION);
}

TEST(a_barrier_sent_again_on_a_new_connection_replaces_the_first, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, NULL, NULL);

    barrier(r, job, 1, 11, 1);
    rig_hello(r, "a", 1, 2, 11, 21, NULL, "* sgd lr=1"); /* the same nonce */
    uint64_t before = r->answered;
    barrier(r, job, 1, 21, 1);
    barrier(r, job, 0, 10, 1);
    assert_int_equal(r->answered, before + 2);
}

TEST(a_second_barrier_on_one_connection_is_refused_while_the_first_waits, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, NULL, NULL);
    uint64_t before = r->answered;

    barrier(r, job, 1, 11, 1);
    assert_int_equal(barrier(r, job, 1, 11, 1), PD_FAILED_PRECONDITION);
    barrier(r, job, 0, 10, 1);
    assert_int_equal(r->answered, before + 3); /* two replies to the barrier requests and one error: every request
                                                * has been answered */
}

TEST(a_new_process_joins_the_next_barrier_of_the_others, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, NULL, NULL);

    barrier(r, job, 1, 11, 1);
    barrier(r, job, 0, 10, 1);
    barrier(r, job, 1, 11, 2); /* rank 1 waits on this connection; then a new process takes the rank over */
    rig_hello(r, "a", 1, 2, 99, 21, NULL, "* sgd lr=1");
    uint64_t before = r->answered;
    barrier(r, job, 0, 10, 2);
    assert_int_equal(r->answered, before);
    barrier(r, job, 1, 21, 1); /* the new process's barrier 1 is the job's barrier 2 */
    assert_int_equal(r->answered, before + 2);
}
