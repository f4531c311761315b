/* Tests sums of contributions: the result has the same bits in one pass or many, with one thread or four. */
#include "test.h"
#include "sums.h"
#include "convert.h"
#include "rig.h"
#include "rounds.h"

enum { WORLD = 5, N = 200000 }; /* N elements are one chunk, which is summed in several ranges */

typedef struct fixture {
    pd_buffer_pools all;
    pd_buffer_pool *pool;
    pd_round round;
    pd_chunk chunk;
    pd_contribution slots[WORLD];
    pd_request *frames[WORLD];
    float *g[WORLD];
} fixture;

static void set_up(fixture *f)
{
    f->pool = pd_buffer_pool_join(&f->all, NULL, N * sizeof(float));
    lay_round(&f->round, N, N, WORLD, &f->chunk, f->slots, NULL);
    for (uint32_t r = 0; r < WORLD; r++) {
        f->frames[r] = pd_request_new(PD_REQ_PUSH, (pd_ticket){ 1, 1 });
        f->frames[r]->u.data.weight = r + 1;
        f->g[r] = malloc(N * sizeof(float));
        rig_noise(r, f->g[r], N);
    }
}

static void tear_down(fixture *f)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        pd_request_free(f->frames[r]);
        free(f->g[r]);
    }
    pd_buffer_pool_leave(f->pool);
    assert_int_equal(f->all.used, 0);
}

static void give(fixture *f, uint32_t rank)
{
    pd_round_add(&f->round, &f->chunk, rank,
                 (pd_contribution){
                     .u.at = f->g[rank], .frame = f->frames[rank], .state = PD_CONTRIBUTION_HELD, .dtype = PD_F32 });
}

static void leave_out(fixture *f, uint32_t rank)
{
    pd_round_add(&f->round, &f->chunk, rank, (pd_contribution){ .state = PD_CONTRIBUTION_ABSENT });
}

static void pass(fixture *f, pd_sums *sums, uint32_t upto, pd_aggregation how, int threads, float **accumulator)
{
    pd_sums_clear(sums);
    assert_int_equal(pd_sums_plan(sums, &f->round, &f->chunk, upto, how, accumulator, f->pool), PD_OK);
    pd_sums_run(sums, threads);
    pd_sums_note(sums, &sums->passes[0], how);
}

/* Returns the aggregate, computed in several passes. A pass ends before each rank whose bit is set in `cuts`. The
 * result is valid until the next call. */
static float *aggregate(fixture *f, uint32_t cuts, pd_aggregation how, int threads, float *out)
{
    pd_sums sums = { 0 };
    float *accumulator = NULL;

    pd_round_reset(&f->round);
    for (uint32_t r = 0; r < WORLD; r++) {
        if (r == 3)
            leave_out(f, r);
        else
            give(f, r);
    }
    for (uint32_t r = 1; r < WORLD; r++)
        if (cuts >> r & 1) pass(f, &sums, r, how, threads, &accumulator);
    pass(f, &sums, WORLD, how, threads, &accumulator);
    assert_int_equal(f->round.unsummed, 0);
    assert_true(f->round.finite && !f->round.weightless);
    memcpy(out, accumulator, N * sizeof(float));
    pd_buffer_pool_give(f->pool, accumulator);
    pd_sums_free(&sums);
    return out;
}

FIXTURE(fixture, set_up, tear_down);

TEST(all_ways_to_cut_give_the_same_bits, fixture *f)
{
    float *expected = malloc(N * sizeof(float)), *got = malloc(N * sizeof(float));

    for (pd_aggregation how = PD_MEAN; how <= PD_SUM; how++) {
        aggregate(f, 0, how, 1, expected);
        for (uint32_t cuts = 0; cuts < 1u << WORLD; cuts += 2)
            assert_memory_equal(aggregate(f, cuts, how, 1 + (int)(cuts % 4), got), expected, N * sizeof(float));
    }
    free(expected);
    free(got);
}

TEST(each_aggregate_is_what_it_says, fixture *f)
{
    float *sum = malloc(N * sizeof(float)), *mean = malloc(N * sizeof(float)), *weighted = malloc(N * sizeof(float));

    f->frames[1]->u.data.presummed = true;
    aggregate(f, 0, PD_SUM, 2, sum);
    aggregate(f, 0, PD_MEAN, 2, mean);
    aggregate(f, 0, PD_WEIGHTED_MEAN, 2, weighted);
    for (int i = 0; i < N; i++) {
        float *const *g = f->g;
        float total = ((g[0][i] + g[1][i]) + g[2][i]) + g[4][i];
        float products = ((1 * g[0][i] + g[1][i]) + 3 * g[2][i]) + 5 * g[4][i];
        if (sum[i] != total || mean[i] != total / 4 || weighted[i] != products / 11) fail_msg("element %d", i);
    }
    free(sum);
    free(mean);
    free(weighted);
}

TEST(the_last_ranks_may_be_absent_after_a_pass, fixture *f)
{
    pd_sums sums = { 0 };
    float *accumulator = NULL;

    give(f, 0);
    give(f, 1);
    pass(f, &sums, 2, PD_MEAN, 1, &accumulator);
    for (uint32_t r = 2; r < WORLD; r++) leave_out(f, r);
    pass(f, &sums, WORLD, PD_MEAN, 1, &accumulator);
    for (int i = 0; i < N; i++) assert_true(accumulator[i] == (f->g[0][i] + f->g[1][i]) / 2);
    pd_buffer_pool_give(f->pool, accumulator);
    pd_sums_free(&sums);
}

TEST(a_round_without_contributions_needs_no_sum, fixture *f)
{
    pd_sums sums = { 0 };
    float *accumulator = NULL;

    for (uint32_t r = 0; r < WORLD; r++) leave_out(f, r);
    pass(f, &sums, WORLD, PD_MEAN, 1, &accumulator);
    assert_null(accumulator);
    assert_true(f->round.weightless);
    assert_int_equal(f->round.unsummed, 0);
    pd_sums_free(&sums);
}

TEST(finds_values_that_are_not_finite_in_any_range, fixture *f)
{
    static const int places[] = { 0, N / 2, N - 1 };

    for (int i = 0; i < 3; i++) {
        pd_sums sums = { 0 };
        float *accumulator = NULL, kept = f->g[2][places[i]];
        pd_round_reset(&f->round);
        f->g[2][places[i]] = i == 1 ? NAN : INFINITY;
        for (uint32_t r = 0; r < WORLD; r++) give(f, r);
        pass(f, &sums, WORLD, PD_SUM, 1, &accumulator);
        assert_false(f->round.finite);
        f->g[2][places[i]] = kept;
        pd_buffer_pool_give(f->pool, accumulator);
        pd_sums_free(&sums);
    }
}

TEST(without_memory_there_is_no_plan, fixture *f)
{
    for (uint32_t r = 0; r < WORLD; r++) give(f, r);
    for (int64_t n = 0;; n++) {
        pd_sums sums = { 0 };
        float *accumulator = NULL;
        bool failed;
        int rc;
        oom_arm(n);
        rc = pd_sums_plan(&sums, &f->round, &f->chunk, WORLD, PD_MEAN, &accumulator, f->pool);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        assert_int_equal(sums.n_passes, failed ? 0 : 1);
        assert_int_equal(f->chunk.summed, 0);
        pd_buffer_pool_give(f->pool, accumulator);
        pd_sums_free(&sums);
        if (!failed) break;
    }
}

/* Random ranges, weights, absent ranks and passes, compared with sums in double, element by element. */

enum { MOST_RANKS = 6, MOST_ELEMENTS = 200, MOST_CHUNKS = MOST_ELEMENTS };

/* A random round: ranks, their ranges, their gradients and the chunks. */
typedef struct scene {
    uint32_t world;
    int64_t elements, chunk;
    bool ranged, absent[MOST_RANKS];
    int64_t start[MOST_RANKS], end[MOST_RANKS];
    pd_request *frames[MOST_RANKS];
    float g[MOST_RANKS][MOST_ELEMENTS]; /* the second index is the element's index in the parameter */
    pd_dtype dtype[MOST_RANKS];
    uint16_t narrow[MOST_RANKS][MOST_ELEMENTS];
    pd_round round;
    pd_chunk chunks[MOST_CHUNKS];
    pd_contribution slots[MOST_CHUNKS * MOST_RANKS];
    pd_rank_range ranges[MOST_RANKS];
} scene;

static void random_range(scene *s, uint32_t r, uint64_t *seed)
{
    int64_t n = s->elements, a = (int64_t)(rig_random(seed) % (uint64_t)(n + 1)),
            b = (int64_t)(rig_random(seed) % (uint64_t)(n + 1));

    s->start[r] = a < b ? a : b;
    s->end[r] = a < b ? b : a;
    /* in one of three cases the rank declares the same range as the previous rank */
    if (r > 0 && rig_random(seed) % 3 == 0) s->start[r] = s->start[r - 1], s->end[r] = s->end[r - 1];
    if (!s->ranged || rig_random(seed) % 5 == 0) s->start[r] = 0, s->end[r] = n;
    if (s->ranged && rig_random(seed) % 6 == 0) s->end[r] = s->start[r];
}

static void random_scene(scene *s, uint64_t *seed)
{
    s->world = 1 + (uint32_t)(rig_random(seed) % MOST_RANKS);
    s->elements = 1 + (int64_t)(rig_random(seed) % MOST_ELEMENTS);
    s->chunk = 1 + (int64_t)(rig_random(seed) % MOST_ELEMENTS);
    s->ranged = rig_random(seed) % 4 != 0;
    for (uint32_t r = 0; r < s->world; r++) {
        static const double weights[] = { 0, 1, 3, 7.5, 0.1, 33 };
        random_range(s, r, seed);
        s->absent[r] = rig_random(seed) % 5 == 0;
        s->frames[r] = pd_request_new(PD_REQ_PUSH, (pd_ticket){ 1, 1 });
        s->frames[r]->u.data.weight = weights[rig_random(seed) % 6];
        s->frames[r]->u.data.presummed = rig_random(seed) % 4 == 0;
        s->dtype[r] = rig_random(seed) % 3 == 0 ? PD_BF16 : PD_F32;
        rig_noise(rig_random(seed), s->g[r], s->elements);
        if (s->dtype[r] == PD_F32) continue;
        pd_convert(s->narrow[r], PD_BF16, s->g[r], PD_F32, s->elements);
        pd_convert(s->g[r], PD_F32, s->narrow[r], PD_BF16, s->elements);
    }
}

static void file(scene *s, pd_chunk *chunk, uint32_t rank)
{
    pd_range run = pd_round_chunk_range(&s->round, chunk, rank);
    const void *at = s->dtype[rank] == PD_F32 ? (const void *)(s->g[rank] + run.first) : s->narrow[rank] + run.first;

    if (run.n == 0) return;
    if (s->absent[rank])
        pd_round_add(&s->round, chunk, rank, (pd_contribution){ .state = PD_CONTRIBUTION_ABSENT });
    else
        pd_round_add(&s->round, chunk, rank,
                     (pd_contribution){ .u.at = at,
                                        .frame = s->frames[rank],
                                        .state = PD_CONTRIBUTION_HELD,
                                        .dtype = (uint8_t)s->dtype[rank] });
}

static void one_pass(scene *s, pd_sums *sums, pd_chunk *chunk, uint32_t upto, pd_aggregation how, float **accumulator,
                     pd_buffer_pool *pool)
{
    pd_sums_clear(sums);
    assert_int_equal(pd_sums_plan(sums, &s->round, chunk, upto, how, accumulator, pool), PD_OK);
    pd_sums_run(sums, 1);
    pd_sums_note(sums, &sums->passes[0], how);
}

/* Plays a round: contributions arrive in a random order, and at random moments a chunk is summed as far as possible. */
static void play(scene *s, pd_aggregation how, bool at_once, uint64_t *seed, float *out, pd_buffer_pool *pool)
{
    pd_sums sums = { 0 };
    float *accumulator = NULL;
    uint32_t left[MOST_CHUNKS * MOST_RANKS], n = 0;

    memset(s->slots, 0, sizeof s->slots);
    memset(s->ranges, 0, sizeof s->ranges);
    lay_round(&s->round, s->elements, s->chunk, s->world, s->chunks, s->slots, s->ranged ? s->ranges : NULL);
    for (uint32_t r = 0; s->ranged && r < s->world; r++) pd_round_set_range(&s->round, r, s->start[r], s->end[r]);
    for (uint32_t c = 0; c < s->round.n_chunks; c++)
        for (uint32_t r = 0; r < s->world; r++) left[n++] = c * s->world + r;
    while (n > 0) {
        uint32_t i = (uint32_t)(rig_random(seed) % n), which = left[i];
        pd_chunk *chunk = &s->chunks[which / s->world];
        left[i] = left[--n];
        file(s, chunk, which % s->world);
        if (!at_once && rig_random(seed) % 2 == 0 && chunk->prefix > chunk->summed && chunk->prefix < s->world)
            one_pass(s, &sums, chunk, chunk->prefix, how, &accumulator, pool);
    }
    for (uint32_t c = 0; c < s->round.n_chunks; c++) {
        assert_int_equal(s->chunks[c].came, s->world);
        one_pass(s, &sums, &s->chunks[c], s->world, how, &accumulator, pool);
    }
    assert_int_equal(s->round.unsummed, 0);
    memset(out, 0, MOST_ELEMENTS * sizeof *out);
    if (accumulator != NULL) memcpy(out, accumulator, (size_t)s->elements * sizeof *out);
    pd_buffer_pool_give(pool, accumulator);
    pd_sums_free(&sums);
}

static bool takes_part(const scene *s, uint32_t r, int64_t e, pd_aggregation how)
{
    return !s->absent[r] && s->start[r] <= e && e < s->end[r] &&
           (how != PD_WEIGHTED_MEAN || s->frames[r]->u.data.weight > 0);
}

/* Checks that the aggregate `got` of element e is right. Returns false if no rank contributes this element. */
static bool check_element(const scene *s, int64_t e, pd_aggregation how, float got)
{
    double sum = 0, size = 0, weight = 0, value;
    uint32_t n = 0, last = 0;

    for (uint32_t r = 0; r < s->world; r++) {
        const pd_request *frame = s->frames[r];
        double w = frame->u.data.weight,
               term = s->g[r][e] * (how == PD_WEIGHTED_MEAN && !frame->u.data.presummed ? w : 1);
        if (!takes_part(s, r, e, how)) continue;
        sum += term;
        size += fabs(term);
        weight += w;
        n++;
        last = r;
    }
    if (n == 0) return false;
    value = how == PD_MEAN ? sum / n : how == PD_WEIGHTED_MEAN ? sum / weight : sum;
    if (n == 1 && !(how == PD_WEIGHTED_MEAN && s->frames[last]->u.data.presummed)) assert_true(got == s->g[last][e]);
    if (fabs(got - value) > 1e-6 * size / (how == PD_SUM ? 1 : how == PD_MEAN ? n : weight))
        fail_msg("element %lld: %.9g, expected %.9g", (long long)e, got, value);
    return true;
}

TEST(each_element_is_divided_by_the_ranks_that_cover_it_in_any_order, fixture *f)
{
    static scene s;
    uint64_t seed = 11;

    for (int turn = 0; turn < 1500; turn++) {
        float expected[MOST_ELEMENTS], got[MOST_ELEMENTS];
        pd_aggregation how = (pd_aggregation)(PD_MEAN + turn % 3);
        bool lacks = false, finite;
        memset(&s, 0, sizeof s);
        random_scene(&s, &seed);
        play(&s, how, true, &seed, expected, f->pool);
        for (int64_t e = 0; e < s.elements; e++)
            if (!check_element(&s, e, how, expected[e])) lacks = true;
        assert_true(s.round.weightless == lacks);
        finite = s.round.finite;
        assert_true(finite);
        for (int again = 0; again < 4; again++) {
            play(&s, how, false, &seed, got, f->pool);
            assert_true(s.round.weightless == lacks && s.round.finite == finite);
            for (int64_t e = 0; e < s.elements; e++)
                if (check_element(&s, e, how, expected[e])) assert_memory_equal(&got[e], &expected[e], sizeof got[e]);
        }
        for (uint32_t r = 0; r < s.world; r++) pd_request_free(s.frames[r]);
    }
}

/* The mean of one contribution is the contribution itself, not the contribution multiplied by its weight and then
 * divided by the weight, which would round twice. This also holds if it was summed before the other ranks were known
 * to be absent. */
TEST(the_mean_of_one_contribution_is_the_contribution, fixture *f)
{
    f->frames[1]->u.data.weight = 0.1;
    for (int early = 0; early < 2; early++) {
        pd_sums sums = { 0 };
        float *accumulator = NULL;
        pd_round_reset(&f->round);
        for (uint32_t r = 0; r < WORLD; r++) {
            if (r != 1)
                leave_out(f, r);
            else
                give(f, r);
        }
        if (early) pass(f, &sums, 3, PD_WEIGHTED_MEAN, 1, &accumulator);
        pass(f, &sums, WORLD, PD_WEIGHTED_MEAN, 1, &accumulator);
        assert_memory_equal(accumulator, f->g[1], N * sizeof(float));
        pd_buffer_pool_give(f->pool, accumulator);
        pd_sums_free(&sums);
    }
}
