/* Tests how jobs on several shards recover, in a model (cluster_model.h): many random runs, and a large one. Each bug
 * that the model can have is seen. */
#include "test.h"
#include "cluster_model.h"

/* Checks what must hold at the end: shards that were not lost have got nothing twice, and went back only for others. */
static void check_counts(model *m, bool all_have_windows)
{
    uint32_t went_back = 0;

    for (uint32_t i = 0; i < 2 * m->shards; i++) {
        went_back += m->s[i].went_back;
        if (all_have_windows && m->s[i].crashes == 0 && m->s[i].resent > 0)
            blame(m, "a shard that was not lost got steps again");
    }
    if (went_back > 2 * m->crashes * m->shards) blame(m, "shards went back without need");
}

typedef struct dice {
    uint64_t state;
} dice;

static uint32_t throw(dice * d, uint32_t n)
{
    d->state = mix(d->state, 1);
    return (uint32_t)(d->state >> 33) % n;
}

typedef struct size {
    uint32_t shards, ranks, steps, every, crashes;
    bool workers_die;
    uint32_t window; /* of all workers; UINT32_MAX: some have one */
    uint32_t sleeps; /* how often an owner of a shard sleeps for longer than its lease lasts */
} size;

/* A worker that is slow for a while: it does nothing. */
typedef struct stall {
    uint32_t rank;
    uint64_t until; /* number of the first turn after that */
} stall;

static void draw_stall(stall *slow, dice *d, uint32_t ranks, uint64_t turn)
{
    if (turn < slow->until || throw(d, 100) != 0) return;
    *slow = (stall){ .rank = throw(d, ranks), .until = turn + throw(d, 600) };
}

/* Lets owners of shards sleep, wake and be replaced at random moments, while the engine is away at times. Workers whose
 * connections break may come to another owner. */
static void trouble_owners(model *m, dice *d, uint32_t gap, uint32_t *left, uint32_t *breaks)
{
    shard *any = &m->s[throw(d, 2 * m->shards)];

    if (*left > 0 && throw(d, gap) == 0) *left -= fall_asleep(holder(m, throw(d, m->shards)));
    if (throw(d, 100) == 0) (void)take_shard(m, throw(d, m->shards));
    if (throw(d, 100) == 0) (void)wake_up(any);
    if (throw(d, 100) == 0) (void)renew(m, any);
    if (throw(d, 200) == 0) m->away = !m->away;
    if (*breaks > 0 && throw(d, 200) == 0) *breaks -= change_owner(m, &m->w[throw(d, m->ranks)], throw(d, m->shards));
}

/* Runs a job with crashes at random moments. Returns what has gone wrong; NULL: nothing. */
static const char *run(const size *z, bug b, uint64_t seed, uint32_t *happened)
{
    dice d = { mix(seed, 3) };
    uint64_t turns = 0, most = (uint64_t)z->shards * z->ranks * z->steps * 400 + 2000000, gap;
    uint32_t left = z->crashes, sleeps = z->sleeps, breaks = z->sleeps;
    const char *fault;
    stall slow = { 0 };
    model m;

    model_new(&m, z->shards, z->ranks, z->steps, z->every, b);
    for (uint32_t r = 0; r < z->ranks; r++) m.w[r].window = z->window == UINT32_MAX ? throw(&d, 2) * 8 : z->window;
    m.calm = z->window != UINT32_MAX && z->window >= z->steps && !z->workers_die;
    gap = (uint64_t)z->shards * z->ranks * z->steps * 4 / (z->crashes + 1) + 1;
    while (m.fault == NULL && !(turns % 64 == 0 && is_done(&m)) && turns++ < most) {
        uint32_t rank = throw(&d, m.ranks);
        if (z->shards < 8) draw_stall(&slow, &d, m.ranks, turns);
        if (turns >= slow.until || rank != slow.rank) (void)act(&m, rank, throw(&d, m.shards));
        if (throw(&d, 25) == 0) (void)finish_writing(&m, &m.s[throw(&d, 2 * m.shards)]);
        if (throw(&d, 50) == 0) (void)begin_sync(&m, throw(&d, m.ranks));
        if (z->sleeps > 0) trouble_owners(&m, &d, (uint32_t)gap, &sleeps, &breaks);
        if (left == 0 || throw(&d, (uint32_t)gap) != 0) continue;
        left--;
        if (z->workers_die && throw(&d, 3) == 0)
            replace(&m, throw(&d, m.ranks));
        else
            crash(&m, holder(&m, throw(&d, m.shards)));
    }
    if (turns >= most) blame(&m, "the job has come to a stop");
    if (m.fault == NULL) check_counts(&m, z->window > 0 && z->window != UINT32_MAX && !z->workers_die);
    if (happened != NULL) *happened += z->crashes - left + z->sleeps - sleeps;
    fault = m.fault;
    model_free(&m);
    return fault;
}

static void try_size(const size *z, uint64_t seeds)
{
    uint32_t crashes = 0;

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        const char *fault = run(z, NONE, seed, &crashes);
        if (fault != NULL) fail_msg("seed %d: %s", (int)seed, fault);
    }
    assert_true(crashes > 0);
}

HOLDS(small_jobs_with_windows_recover, try_size(&(size){ 3, 3, 20, 3, 4, false, 60, 0 }, 300));
HOLDS(small_jobs_without_windows_recover, try_size(&(size){ 3, 3, 20, 3, 4, false, 0, 0 }, 300));
HOLDS(larger_crews_without_windows_recover, try_size(&(size){ 3, 8, 20, 3, 2, false, 0, 0 }, 300));
HOLDS(mixed_crews_recover, try_size(&(size){ 4, 3, 20, 3, 4, false, UINT32_MAX, 0 }, 300));
HOLDS(workers_that_die_are_replaced, try_size(&(size){ 3, 3, 20, 3, 6, true, UINT32_MAX, 0 }, 300));

HOLDS(shards_whose_owners_sleep_find_new_ones, try_size(&(size){ 3, 3, 20, 3, 1, false, 60, 4 }, 300));
HOLDS(shards_find_new_owners_without_windows, try_size(&(size){ 3, 3, 20, 3, 2, true, 0, 4 }, 300));
HOLDS(shards_of_mixed_crews_find_new_owners, try_size(&(size){ 2, 4, 20, 1, 2, true, UINT32_MAX, 6 }, 300));

/* With PARAMD_LARGE_MODEL=1 in the environment the job takes 50 steps and has 40 crashes: some minutes. */
TEST(a_large_job_recovers)
{
    bool all = getenv("PARAMD_LARGE_MODEL") != NULL;

    try_size(&(size){ 64, 1000, all ? 50 : 6, 2, all ? 40 : 4, true, UINT32_MAX, all ? 20 : 2 }, 1);
}

/* ---- the model finds bugs ---- */

/* Returns whether a bug is seen in one of many runs. */
static bool finds(bug b, const size *z)
{
    uint64_t seed = 1;

    while (seed <= 8000 && run(z, b, seed, NULL) == NULL) seed++;
    return seed <= 8000;
}

HOLDS(a_verdict_of_the_step_before_is_found,
      assert_true(finds(VERDICT_OF_STEP_BEFORE, &(size){ 2, 2, 8, 2, 0, false, 0, 0 })));
HOLDS(going_back_in_another_life_is_found,
      assert_true(finds(GO_BACK_IGNORES_LIFE, &(size){ 3, 8, 20, 3, 2, false, 0, 0 })));
HOLDS(giving_up_earlier_steps_when_going_back_is_found,
      assert_true(finds(GO_BACK_RAISES_FLOOR, &(size){ 2, 2, 30, 1, 20, true, UINT32_MAX, 0 })));
HOLDS(a_common_step_that_not_all_have_is_found,
      assert_true(finds(COMMON_TOO_HIGH, &(size){ 3, 3, 40, 2, 6, false, 0, 0 })));
HOLDS(resending_to_all_shards_is_found, assert_true(finds(RESENDS_TO_ALL, &(size){ 3, 3, 20, 3, 4, false, 60, 0 })));
HOLDS(a_worker_that_takes_a_lower_tenure_is_found,
      assert_true(finds(LOWER_TENURE_TAKEN, &(size){ 3, 3, 20, 3, 1, false, 60, 4 })));
HOLDS(an_owner_that_serves_on_is_found, assert_true(finds(SERVES_ON, &(size){ 3, 3, 20, 3, 2, true, 0, 4 })));
HOLDS(an_earlier_owner_that_makes_steps_durable_is_found,
      assert_true(finds(WRITES_ON, &(size){ 2, 3, 20, 1, 1, false, 0, 6 })));
HOLDS(an_earlier_owner_that_says_what_is_durable_is_found,
      assert_true(finds(REPORTS_UNSURE, &(size){ 2, 2, 20, 1, 1, true, UINT32_MAX, 6 })));
HOLDS(a_new_process_that_does_not_ask_who_owns_a_shard_is_found,
      assert_true(finds(NO_TABLE_ASKED, &(size){ 2, 4, 20, 1, 2, true, UINT32_MAX, 6 })));
