/* Tests the step thread: its start, its processors, its idle time and its stop. */
#define _GNU_SOURCE /* CPU_SET */
#include <dirent.h>
#include <sched.h>
#include <time.h>

#include "test.h"
#include "stepper.h"

WITH_THREADS();

enum { ELEMENTS = 1000 };

typedef struct fixture {
    pd_mailbox *effects;
    pd_stepper *stepper;
    pd_mail *backlog;
    uint64_t last_id, buffers_out;
    uint32_t job;
} fixture;

static void post(fixture *f, pd_request *request)
{
    assert_int_equal(pd_mailbox_post(pd_stepper_requests(f->stepper), &request->mail, &request->mail), PD_OK);
}

static uint64_t soon(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec + 20) * 1000000000u;
}

static void absorb(fixture *f, const pd_effect *effect)
{
    if (effect->kind == PD_EFF_HELLO) f->job = effect->job;
    if (effect->kind == PD_EFF_BUFFER) {
        free(effect->u.buffer->at);
        free(effect->u.buffer);
        f->buffers_out--;
    }
    for (size_t i = 0; effect->kind == PD_EFF_CLOSED && i < effect->u.closed.n; i++) {
        pd_request *released = pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 });
        released->u.released.first = effect->u.closed.at[i].published;
        post(f, released);
    }
}

/* Waits for a message (effect) of the given kind from the step thread. Absorbs the messages that come before it. */
static void expect(fixture *f, pd_effect_kind kind)
{
    bool closed, found = false;

    while (!found) {
        if (f->backlog == NULL) f->backlog = pd_mailbox_wait(f->effects, soon(), &closed);
        assert_non_null(f->backlog);
        while (f->backlog != NULL && !found) {
            pd_effect *effect = (pd_effect *)(void *)f->backlog;
            f->backlog = f->backlog->next;
            if (effect->kind == PD_EFF_ERROR) fail_msg("%s", effect->u.error.text);
            found = effect->kind == kind;
            absorb(f, effect);
            pd_effect_free(effect);
        }
    }
}

static pd_request *ask(fixture *f, pd_request_kind kind)
{
    pd_request *request = pd_request_new(kind, (pd_ticket){ 1, ++f->last_id });
    request->job = f->job;
    return request;
}

static int start(void **state, pd_numa numa)
{
    fixture *f = calloc(1, sizeof *f);
    pd_stepper_config config = {
        .store = { .max_jobs = 4,
                   .max_params = 16,
                   .max_total_bytes = 1 << 28,
                   .ingest_bytes = 1 << 24,
                   .chunk_elements = 1 << 20,
                   .threads = 2,
                   .batch_ns = 5e7 },
        .pool_threads = 2,
        .numa = numa,
    };
    pd_error err;

    f->effects = config.effects = pd_mailbox_new(NULL, NULL);
    if (pd_stepper_start(&f->stepper, &config, &err) != PD_OK) fail_msg("%s", err.text);
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return start(state, (pd_numa){ .finding = PD_NUMA_ONE_NODE });
}

/* Starts the step thread on a made-up node that has one of the processors. */
static int set_up_on_a_node(void **state)
{
    pd_numa numa = { .finding = PD_NUMA_CHOSEN, .nodes = 2, .cpus = 1 };
    cpu_set_t allowed;
    int cpu = 0;

    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    while (!CPU_ISSET(cpu, &allowed)) cpu++;
    CPU_SET(cpu, &numa.mask);
    return start(state, numa);
}

/* Stops the step thread. Frees the messages that are still in the mailbox, as the loop thread does. */
static int tear_down(void **state)
{
    fixture *f = *state;
    pd_mail *mail, *next;

    assert_true(pd_stepper_stop(f->stepper, UINT64_MAX, NULL));
    for (int i = 0; i < 2; i++) {
        for (mail = i == 0 ? f->backlog : pd_mailbox_take(f->effects); mail != NULL; mail = next) {
            pd_effect *effect = (pd_effect *)(void *)mail;
            next = mail->next;
            assert_int_not_equal(effect->kind, PD_EFF_TASK);
            if (effect->kind == PD_EFF_BUFFER) absorb(f, effect);
            pd_effect_free(effect);
        }
    }
    assert_int_equal(f->buffers_out, 0);
    pd_mailbox_free(f->effects);
    free(f);
    return 0;
}

static void join(fixture *f)
{
    pd_request *hello = ask(f, PD_REQ_HELLO), *declare;

    hello->u.hello.job_name = strdup("j");
    hello->u.hello.label = strdup("here");
    hello->u.hello.world_size = 1;
    hello->u.hello.nonce = 5;
    hello->u.hello.rules = calloc(1, sizeof(char *));
    hello->u.hello.rules[0] = strdup("* sgd lr=1");
    hello->u.hello.n_rules = 1;
    post(f, hello);
    expect(f, PD_EFF_HELLO);
    declare = ask(f, PD_REQ_DECLARE);
    declare->u.declare.params = calloc(1, sizeof(pd_param_decl));
    declare->u.declare.params[0] =
        (pd_param_decl){ .name = strdup("w"), .shape = { 1, { ELEMENTS } }, .pull_dtype = PD_F32 };
    declare->u.declare.n = 1;
    post(f, declare);
    expect(f, PD_EFF_DECLARED);
}

static pd_request *data(fixture *f, pd_request_kind kind, uint64_t step, float value)
{
    pd_request *request = ask(f, kind);
    pd_buffer *buffer = calloc(1, sizeof *buffer);

    buffer->conn = 1;
    buffer->charged = buffer->size = ELEMENTS * sizeof(float);
    buffer->at = aligned_alloc(64, 4096);
    for (int i = 0; i < ELEMENTS; i++) ((float *)(void *)buffer->at)[i] = value;
    f->buffers_out++;
    request->u.data.pieces = calloc(1, sizeof(pd_piece));
    request->u.data.pieces[0] = (pd_piece){ .dtype = PD_F32, .count = ELEMENTS, .at = buffer->at };
    request->u.data.n = 1;
    request->u.data.buffer = buffer;
    request->u.data.step = step;
    request->u.data.weight = 1;
    return request;
}

FIXTURE(set_up, tear_down);

TEST(takes_a_job_from_its_first_request_to_steps, fixture *f)
{
    join(f);
    post(f, data(f, PD_REQ_INIT, 0, 1));
    expect(f, PD_EFF_CLOSED);
    for (uint64_t step = 1; step <= 5; step++) {
        post(f, data(f, PD_REQ_PUSH, step, 1));
        expect(f, PD_EFF_CLOSED);
    }
}

TEST(stops_with_a_round_open_and_mail_under_way, fixture *f)
{
    join(f);
    post(f, data(f, PD_REQ_INIT, 0, 1));
    for (uint64_t step = 1; step <= 3; step++)
        post(f, data(f, PD_REQ_PUSH, step, 1)); /* the test does not wait for the results */
}

TEST(is_idle_when_there_is_nothing_to_do, fixture *f)
{
    join(f);
    for (int i = 0; pd_stepper_busy_ns(f->stepper) != 0; i++) {
        assert_true(i < 5000);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

TEST(deadlines_pass_without_mail, fixture *f)
{
    pd_request *drain = ask(f, PD_REQ_DRAIN);

    drain->u.drain.deadline_ns = 1000000;
    post(f, drain);
    expect(f, PD_EFF_OK);
}

/* Counts the threads of this process that may run on `cpus` processors. */
static int threads_on(int cpus)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    int n = 0;

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        cpu_set_t set;
        if (entry->d_name[0] != '.' && sched_getaffinity(atoi(entry->d_name), sizeof set, &set) == 0)
            n += CPU_COUNT(&set) == cpus;
    }
    closedir(folder);
    return n;
}

TEST_WITH(set_up_on_a_node, tear_down, stays_on_its_node_while_the_root_pool_has_all_processors, void *given)
{
    cpu_set_t allowed;

    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    if (CPU_COUNT(&allowed) < 2) skip();
    join(given);
    assert_int_equal(threads_on(1), 1);
    assert_true(threads_on(CPU_COUNT(&allowed)) >= 4); /* this thread and three of the pool */
}

TEST(refuses_a_store_that_cannot_be)
{
    pd_option preset = { "no_such_key", "1" };
    pd_stepper_config config = { .store = { .max_jobs = 1,
                                            .max_params = 1,
                                            .max_total_bytes = 1 << 20,
                                            .ingest_bytes = 1 << 20,
                                            .chunk_elements = 1024,
                                            .threads = 1,
                                            .batch_ns = 5e7,
                                            .job_presets = &preset,
                                            .n_job_presets = 1 },
                                 .pool_threads = 1 };
    pd_stepper *stepper;
    pd_error err;

    config.effects = pd_mailbox_new(NULL, NULL);
    assert_int_not_equal(pd_stepper_start(&stepper, &config, &err), PD_OK);
    assert_non_null(strstr(err.text, "no_such_key"));
    pd_mailbox_free(config.effects);
}
