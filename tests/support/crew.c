/* crew.c - the workers of one job as processes. */
#include "crew.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <xxhash.h>

#include "convert.h"
#include "daemon_process.h"
#include "team.h"
#include "test.h"

/* A matrix of several chunks of 64 KiB, one that fits a chunk, one that is too small for shared memory, a vector. */
static const pd_shape shapes[CREW_PARAMS] = {
    { 2, { 160, 200 } }, { 2, { 96, 64 } }, { 2, { 5, 7 } }, { 1, { 5000 } }
};
static const char *const names[CREW_PARAMS] = { "large", "middle", "small", "vector" };

/* One worker, in its process. */
typedef struct hand {
    const crew *c;
    crew_result *result;
    crew_way way;
    int rank;
    pd_client *client;
    int64_t start[CREW_PARAMS], count[CREW_PARAMS]; /* its elements of each parameter */
    float *gradient[CREW_PARAMS];                   /* in float32 */
    void *push[CREW_PARAMS], *weights[CREW_PARAMS]; /* what is pushed and pulled */
} hand;

static bool failed(hand *h, const char *what, const pd_error *err)
{
    snprintf(h->result->failure, sizeof h->result->failure, "rank %d: %s: %s", h->rank, what, err->text);
    return false;
}

/* Returns the element type of the gradients that a worker gives to the library, if they are pushed as `push`. */
static pd_dtype given_as(pd_dtype push)
{
    return push != 0 && !pd_dtype_is_quantized(push) ? push : PD_F32;
}

static size_t bytes_of(pd_dtype dtype)
{
    return pd_dtype_size(given_as(dtype));
}

static bool open_handle(hand *h)
{
    const crew_job *job = h->c->job;
    const char *const rules[] = { job->rule, NULL }, *const options[] = { job->option, NULL };
    pd_error err = { 0 };
    const pd_client_options how = { .urls = h->way == CREW_TCP ? h->c->tcp : h->c->local,
                                    .job = "crew",
                                    .rank = h->rank,
                                    .world_size = h->c->world,
                                    .rules = rules,
                                    .options = options,
                                    .deadline = patient(40),
                                    .quiet = true,
                                    .no_shared_memory = h->way == CREW_SOCKET };

    return pd_client_open(&h->client, &how, &err) == PD_OK || failed(h, "open", &err);
}

static bool declare(hand *h)
{
    const crew_job *job = h->c->job;
    pd_client_param params[CREW_PARAMS];
    pd_error err = { 0 };

    for (size_t i = 0; i < CREW_PARAMS; i++) {
        int64_t n;
        pd_shape_elements(&shapes[i], &n);
        h->start[i] = job->ranged ? n * h->rank / h->c->world : 0;
        h->count[i] = (job->ranged ? n * (h->rank + 1) / h->c->world : n) - h->start[i];
        params[i] = (pd_client_param){ .name = names[i],
                                       .shape = shapes[i],
                                       .push_dtype = job->push,
                                       .pull_dtype = job->pull,
                                       .update_dtype = job->update,
                                       .ranged = job->ranged,
                                       .start = h->start[i],
                                       .end = job->ranged ? h->start[i] + h->count[i] : 0 };
    }
    return pd_client_declare(h->client, params, CREW_PARAMS, &err) == PD_OK || failed(h, "declare", &err);
}

/* Makes the buffers, and sends the initial weights: those of the whole tensor, of which a rank has its part. */
static bool initialise(hand *h)
{
    pd_error err = { 0 };

    for (size_t i = 0; i < CREW_PARAMS; i++) {
        float *whole = calloc((size_t)(h->start[i] + h->count[i]), sizeof *whole);
        h->gradient[i] = calloc((size_t)h->count[i], sizeof(float));
        h->weights[i] = calloc((size_t)h->count[i], sizeof(float));
        h->push[i] = h->way == CREW_HOME ? pd_client_buffer(h->client, i)
                                         : calloc((size_t)h->count[i], bytes_of(h->c->job->push));
        fill_gradient(whole, h->start[i] + h->count[i], 999, 0, i);
        pd_convert(h->weights[i], h->c->job->pull != 0 ? h->c->job->pull : PD_F32, whole + h->start[i], PD_F32,
                   h->count[i]);
        free(whole);
        if (h->push[i] == NULL) return failed(h, "pd_client_buffer", &err);
    }
    return pd_client_init(h->client, h->weights, &err) == PD_OK || failed(h, "init", &err);
}

/* Returns the lowest step of the parameters. In a process that came back, some may be one step ahead. */
static uint64_t lowest_step(const hand *h)
{
    uint64_t lowest = pd_client_step(h->client, 0);

    for (size_t i = 1; i < CREW_PARAMS; i++)
        if (pd_client_step(h->client, i) < lowest) lowest = pd_client_step(h->client, i);
    return lowest;
}

/* Takes this step of all parameters that have not taken it. Returns an error's code, with its text in *err. */
static int take_step(const hand *h, uint64_t step, pd_error *err)
{
    pd_dtype push = given_as(h->c->job->push);
    pd_item items[CREW_PARAMS];
    pd_ticket_id ticket;
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < CREW_PARAMS; i++) {
        if (pd_client_step(h->client, i) >= step) continue;
        fill_gradient(h->gradient[i], h->count[i], h->rank, step, i);
        pd_convert(h->push[i], push, h->gradient[i], PD_F32, h->count[i]);
        items[n++] = (pd_item){ .param = i, .gradient = h->push[i], .weights = h->weights[i] };
    }
    rc = pd_client_push_pull(h->client, items, n, NULL, &ticket, err);
    return rc == PD_OK ? pd_client_wait(h->client, ticket, 0, err) : rc;
}

/* Takes all steps. Goes on after the server has lost the job. */
static bool train(hand *h)
{
    pd_error err = { 0 };
    uint64_t step;
    int rc;

    while ((step = lowest_step(h)) < (uint64_t)h->c->job->steps) {
        rc = take_step(h, step + 1, &err);
        if (rc == PD_OK) h->result->step = (int)step + 1;
        if (rc == PD_DATA_LOSS) rc = pd_client_restart(h->client, h->weights, &err);
        if (rc != PD_OK && rc != PD_DATA_LOSS) return failed(h, "a step", &err);
    }
    return true;
}

static bool may_go(void *arg)
{
    return *((const hand *)arg)->c->let_go;
}

static void report(hand *h)
{
    for (size_t i = 0; i < CREW_PARAMS; i++)
        h->result->weights[i] = XXH3_64bits(h->weights[i], (size_t)h->count[i] * bytes_of(h->c->job->pull));
    h->result->stats = pd_client_count(h->client);
    h->result->at_end = true;
    if (h->c->stays) await(may_go, h, patient(60));
}

static void live(const crew *c, int rank, crew_way way)
{
    hand h = { .c = c, .result = &c->results[rank], .way = way, .rank = rank };
    pd_error err = { 0 };

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!open_handle(&h) || !declare(&h) || !initialise(&h) || !train(&h)) _exit(1);
    report(&h);
    if (pd_client_leave(h.client, &err) != PD_OK) {
        failed(&h, "leave", &err);
        _exit(1);
    }
    pd_client_close(h.client);
    h.result->done = true;
    _exit(0);
}

void crew_start_rank(crew *c, int rank, crew_way way)
{
    fflush(NULL);
    if ((c->pids[rank] = fork()) == 0) live(c, rank, way);
    assert_true(c->pids[rank] > 0);
}

crew crew_start(const crew_job *job, int world, crew_way way, const char *tcp, const char *local, bool stays)
{
    size_t bytes = sizeof(bool) + CREW_MOST * sizeof(crew_result);
    crew c = { .job = job, .tcp = tcp, .local = local, .world = world, .stays = stays };

    c.results = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(c.results, MAP_FAILED);
    c.let_go = (volatile bool *)&c.results[CREW_MOST];
    for (int rank = 0; rank < world; rank++) crew_start_rank(&c, rank, way);
    return c;
}

typedef struct reached {
    const crew *c;
    int rank, step;
} reached;

static bool has_reached(void *arg)
{
    const reached *r = arg;
    return r->c->results[r->rank].step >= r->step || r->c->results[r->rank].failure[0] != '\0';
}

void crew_await(const crew *c, int rank, int step)
{
    assert_true(await(has_reached, &(reached){ c, rank, step }, patient(40)));
}

void crew_kill_after(crew *c, int rank, int step)
{
    crew_await(c, rank, step);
    kill(c->pids[rank], SIGKILL);
    assert_int_equal(waitpid(c->pids[rank], NULL, 0), c->pids[rank]);
    c->pids[rank] = 0;
}

static bool all_at_end(void *arg)
{
    const crew *c = arg;

    for (int rank = 0; rank < c->world; rank++)
        if (!c->results[rank].at_end && c->results[rank].failure[0] == '\0') return false;
    return true;
}

void crew_await_steps(const crew *c)
{
    assert_true(await(all_at_end, (void *)(uintptr_t)c, patient(60)));
}

void crew_let_go(const crew *c)
{
    *c->let_go = true;
}

void crew_join(crew *c)
{
    for (int rank = 0; rank < c->world; rank++) {
        int status = 0;
        if (c->pids[rank] != 0) waitpid(c->pids[rank], &status, 0);
        c->pids[rank] = 0;
        if (!c->results[rank].done) fail_msg("status 0x%x: %s", status, c->results[rank].failure);
    }
}

void crew_free(crew *c)
{
    munmap(c->results, sizeof(bool) + CREW_MOST * sizeof(crew_result));
}
