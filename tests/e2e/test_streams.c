/* Tests the random numbers of a job's workers: one stream that all workers share, and one stream for each worker. */
#include "test.h"
#include "daemon_process.h"
#include "random.h"
#include "team.h"

enum { WORLD = 3, N = 500, KEY = 7, FIRST = 3 };
static const int64_t elements[] = { 4 };

/* Numbers drawn by each rank. */
typedef struct draws {
    float shared[WORLD][N], own[WORLD][N], shared_normal[WORLD][N], own_normal[WORLD][N], parts[WORLD][N];
    uint64_t seed[WORLD];
} draws;

static bool draw(worker *w)
{
    draws *d = w->team->arg;
    int r = w->rank;

    pd_client_normal(w->client, PD_STREAM_OWN, KEY, FIRST, d->own_normal[r], N);
    pd_client_uniform(w->client, PD_STREAM_OWN, KEY, FIRST, d->own[r], N);
    if (!worker_step(w, NULL, NULL)) return false;
    pd_client_normal(w->client, PD_STREAM_SHARED, KEY, FIRST, d->shared_normal[r], N);
    pd_client_uniform(w->client, PD_STREAM_SHARED, KEY, FIRST, d->shared[r], N);
    for (uint64_t at = 0, n; at < N; at += n) {
        n = 1 + (at + (uint64_t)r) % 13;
        if (n > N - at) n = N - at;
        pd_client_uniform(w->client, PD_STREAM_SHARED, KEY, FIRST + at, d->parts[r] + at, n);
    }
    d->seed[r] = pd_client_welcome(w->client)->seed;
    return true;
}

static void run(const test_daemon *daemon, const char *seed, draws *d)
{
    const char *const rules[] = { "* sgd lr=0.1", NULL }, *const options[] = { seed, NULL };
    model *m = model_new(elements, 1);
    team t = { .url = daemon->url,
               .job = seed,
               .world = WORLD,
               .rules = rules,
               .options = options,
               .model = m,
               .work = draw,
               .arg = d };
    worker workers[TEAM_MOST];

    team_run(&t, workers);
    team_free(&t, workers);
    model_free(m);
}

static draws one, another;

static int draw_in_two_jobs(void **state)
{
    static const char *const flags[] = { NULL };
    test_daemon *daemon = daemon_start(flags);

    (void)state;
    run(daemon, "seed=12345678901234567890", &one);
    run(daemon, "seed=6", &another);
    return daemon_stop(daemon, patient(10));
}

static int common(const float *a, const float *b)
{
    int n = 0;

    for (int i = 0; i < N; i++) n += a[i] == b[i];
    return n;
}

TEST(all_ranks_share_a_stream)
{
    for (int r = 1; r < WORLD; r++) {
        assert_memory_equal(one.shared[r], one.shared[0], sizeof one.shared[0]);
        assert_memory_equal(one.shared_normal[r], one.shared_normal[0], sizeof one.shared_normal[0]);
    }
}

TEST(each_rank_has_a_stream_of_its_own)
{
    for (int r = 0; r < WORLD; r++) {
        assert_in_range(common(one.own[r], one.shared[0]), 0, 1);
        assert_in_range(common(one.own_normal[r], one.shared_normal[0]), 0, 1);
        for (int k = 0; k < r; k++) assert_in_range(common(one.own[r], one.own[k]), 0, 1);
    }
}

TEST(another_seed_gives_other_numbers)
{
    assert_in_range(common(one.shared[0], another.shared[0]), 0, 1);
    for (int r = 0; r < WORLD; r++) assert_in_range(common(one.own[r], another.own[r]), 0, 1);
}

TEST(parts_of_a_draw_are_the_draw)
{
    for (int r = 0; r < WORLD; r++) assert_memory_equal(one.parts[r], one.shared[0], sizeof one.parts[r]);
}

/* Computes a uniform number step by step, as the header specifies it. */
static float uniform_of(uint64_t seed, uint64_t stream, uint64_t i)
{
    const uint32_t zero[2] = { 0, 0 }, all[2] = { UINT32_MAX, UINT32_MAX }, which[2] = { (uint32_t)stream, 0 },
                   key[2] = { KEY, 0 };
    const uint32_t counter[2] = { (uint32_t)(i / 2), 0 };
    uint32_t k[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) }, out[2];

    pd_threefry(k, zero, out);
    pd_threefry(out, all, k);
    pd_threefry(k, which, out);
    pd_threefry(out, key, k);
    pd_threefry(k, counter, out);
    return (float)(out[i % 2] >> 8) / 16777216.0f;
}

TEST(another_client_can_make_the_same)
{
    assert_true(one.seed[0] == UINT64_C(12345678901234567890));
    for (uint64_t i = 0; i < N; i++) {
        assert_true(one.shared[0][i] == uniform_of(one.seed[0], 0, FIRST + i));
        for (uint64_t r = 0; r < WORLD; r++) assert_true(one.own[r][i] == uniform_of(one.seed[0], 1 + r, FIRST + i));
    }
}

GROUP(draw_in_two_jobs, NULL);
