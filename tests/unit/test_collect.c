/* Tests aggregates that need all contributions at once, on random rounds against second implementations. The order of
 * arrival, memory, threads and batches vary. */
#include "test.h"
#include "rig.h"
#include "convert.h"

enum { MOST_RANKS = 20, MOST_ELEMENTS = 300, CHUNK = 64, JOB_CONN = 10 };
typedef enum how { TREE, VDOT, MEDIAN, TRIMMED, RADIAL, HOWS } how;

/* The input of one round of one parameter. */
typedef struct scene {
    how how;
    uint32_t world;
    int64_t n;
    int trim;
    bool ranged, absent[MOST_RANKS];
    rig_range range[MOST_RANKS];
    pd_dtype dtype[MOST_RANKS];
    float g[MOST_RANKS][MOST_ELEMENTS]; /* the second index is the element's index in the parameter */
} scene;

/* The way in which a round is played. It must not change the result. */
typedef struct play {
    bool over_quota,
        late;   /* over_quota: the quotas are so small that any frame exceeds its rank's quota. late: the store works
                 * only after all frames have arrived */
    bool lossy; /* some ranks are lost, and a new process of the rank sends all frames of the rank again */
    int threads;
    double batch_ns;
    uint64_t order; /* seed of the order of arrival */
} play;

static bool covers(const scene *s, uint32_t r, int64_t e)
{
    return s->range[r].start <= e && e < s->range[r].end;
}
static bool gives(const scene *s, uint32_t r, int64_t e)
{
    return covers(s, r, e) && !s->absent[r];
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Merges two vectors by Adasum's formula, overwrites `a` with the result and returns it. If one vector is NULL,
 * returns the other. */
static double *merge(double *a, double *b, int64_t n)
{
    double ab, f, g;

    if (a == NULL || b == NULL) return a != NULL ? a : b;
    ab = dot(a, b, n);
    f = 1 - ab / (2 * dot(a, a, n) + 1e-30);
    g = 1 - ab / (2 * dot(b, b, n) + 1e-30);
    for (int64_t i = 0; i < n; i++) a[i] = f * a[i] + g * b[i];
    return a;
}

/* Merges the vectors of the ranks that cover the elements, as a tree in the order of ranks. A rank without a gradient
 * is NULL. */
static const double *tree(double *x[], int k, int64_t n)
{
    int width = 1;

    while (width * 2 <= k) width *= 2;
    for (int r = width; r < k; r++) x[r - width] = merge(x[r - width], x[r], n);
    for (int half = 1; half < width; half *= 2)
        for (int r = 0; r < width; r += 2 * half) x[r] = merge(x[r], x[r + half], n);
    return x[0];
}

static void vdot(double *x[], int k, int64_t n, double *out)
{
    double s[MOST_ELEMENTS] = { 0 }, *given[MOST_RANKS];
    int m = 0;

    for (int r = 0; r < k; r++)
        if (x[r] != NULL) given[m++] = x[r];
    for (int r = 0; r < m; r++)
        for (int64_t i = 0; i < n; i++) s[i] += given[r][i];
    for (int64_t i = 0; i < n; i++) out[i] = 0;
    for (int r = 0; r < m; r++) {
        double gg = dot(given[r], given[r], n), f = 1 - (dot(given[r], s, n) - gg) / (m * gg);
        for (int64_t i = 0; i < n; i++) out[i] += f * given[r][i];
    }
}

/* The weight of a rank's push, which only the radial mean looks at, and whether it is a sum over examples. */
static double weight_of(uint32_t r)
{
    return r % 4;
}
static bool is_sum(uint32_t r)
{
    return r % 3 == 0;
}

/* Computes the radial mean by its formula, of the ranks that have the elements and a weight. */
static void radial_section(const scene *s, int64_t first, int64_t end, double *out)
{
    double direction[MOST_ELEMENTS] = { 0 }, length = 0, total = 0, norm = 0;

    for (uint32_t r = 0; r < s->world; r++) {
        double own = 0, examples = is_sum(r) ? weight_of(r) : 1;
        if (!gives(s, r, first) || weight_of(r) == 0) continue;
        for (int64_t e = first; e < end; e++) own += pow(s->g[r][e] / examples, 2);
        own = sqrt(own);
        total += weight_of(r);
        length += weight_of(r) * own;
        for (int64_t e = first; e < end; e++) direction[e] += weight_of(r) * (s->g[r][e] / examples) / own;
    }
    for (int64_t e = first; e < end; e++) norm += direction[e] * direction[e];
    for (int64_t e = first; e < end; e++) out[e] = length / total * direction[e] / sqrt(norm);
}

static void adasum_section(const scene *s, int64_t first, int64_t end, double *out)
{
    static double room[MOST_RANKS][MOST_ELEMENTS];
    double *x[MOST_RANKS];
    const double *result;
    int k = 0;

    for (uint32_t r = 0; r < s->world; r++) {
        if (!covers(s, r, first)) continue;
        x[k] = s->absent[r] ? NULL : room[k];
        for (int64_t e = first; e < end; e++) room[k][e - first] = s->g[r][e];
        k++;
    }
    if (s->how == VDOT) {
        vdot(x, k, end - first, out + first);
    } else if ((result = tree(x, k, end - first)) != NULL) {
        memcpy(out + first, result, (size_t)(end - first) * sizeof *out);
    }
}

/* Returns the end of the section that begins at element `first`: the next element where a non-empty range begins or
 * ends. */
static int64_t section_end(const scene *s, int64_t first)
{
    int64_t end = s->n;

    for (uint32_t r = 0; r < s->world; r++) {
        if (s->range[r].start == s->range[r].end) continue;
        if (s->range[r].start > first && s->range[r].start < end) end = s->range[r].start;
        if (s->range[r].end > first && s->range[r].end < end) end = s->range[r].end;
    }
    return end;
}

static int ascending(const void *a, const void *b)
{
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

static double robust(const scene *s, int64_t e)
{
    float x[MOST_RANKS];
    double sum = 0;
    int k = 0, trim;

    for (uint32_t r = 0; r < s->world; r++)
        if (gives(s, r, e)) x[k++] = isnan(s->g[r][e]) ? INFINITY : s->g[r][e];
    qsort(x, (size_t)k, sizeof *x, ascending);
    trim = s->how == MEDIAN || s->trim > (k - 1) / 2 ? (k - 1) / 2 : s->trim;
    for (int r = trim; r < k - trim; r++) sum += x[r];
    return sum / (k - 2 * trim);
}

/* Returns whether some element has no gradient with a weight. */
static bool lacks_weight(const scene *s)
{
    for (int64_t e = 0; e < s->n; e++) {
        bool any = false;
        for (uint32_t r = 0; r < s->world; r++) any = any || (gives(s, r, e) && weight_of(r) > 0);
        if (!any) return true;
    }
    return false;
}

/* Computes the expected aggregate. Returns false if some element has no gradient, in which case no step is taken. */
static bool twin(const scene *s, double *out)
{
    for (int64_t e = 0; e < s->n; e++) {
        bool any = false;
        for (uint32_t r = 0; r < s->world; r++) any = any || gives(s, r, e);
        if (!any) return false;
    }
    if (s->how == TREE || s->how == VDOT || s->how == RADIAL)
        for (int64_t first = 0, end; first < s->n; first = end)
            (s->how == RADIAL ? radial_section : adasum_section)(s, first, end = section_end(s, first), out);
    else
        for (int64_t e = 0; e < s->n; e++) out[e] = robust(s, e);
    return true;
}

static const char *options_of(const scene *s, char text[96])
{
    static const char *const names[HOWS] = { "adasum", "adasum_vdot", "median", "trimmed_mean", "radial_mean" };

    snprintf(text, 96, "aggregate=%s adasum_fold=yes trim=%d", names[s->how], s->trim);
    return text;
}

static void join(rig *r, const scene *s, uint32_t rank, uint64_t nonce)
{
    static const char *const name[] = { "w" };
    pd_shape shape = { 1, { s->n } };
    char options[96];

    assert_int_equal(rig_hello(r, "job", rank, s->world, nonce, JOB_CONN + rank, options_of(s, options), "* sgd lr=1"),
                     PD_OK);
    r->ranges = s->ranged ? &s->range[rank] : NULL;
    assert_int_equal(rig_declare(r, r->job, rank, JOB_CONN + rank, name, &shape, NULL, 1, PD_F32), PD_OK);
}

static void start(rig *r, const scene *s, const play *p)
{
    static float zeros[MOST_ELEMENTS];
    pd_store_config config = rig_config();

    if (p->over_quota) config.ingest_bytes = s->world * 4096;
    config.threads = p->threads;
    config.batch_ns = p->batch_ns;
    rig_new(r, &config);
    for (uint32_t rank = 0; rank < s->world; rank++) join(r, s, rank, rank + 1);
    for (uint32_t rank = 0; rank < (s->ranged ? s->world : 1); rank++)
        for (int64_t first = s->range[rank].start; first < s->range[rank].end;) {
            rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, JOB_CONN + rank, 0);
            int64_t n = pd_range_piece(s->range[rank].start, s->range[rank].end, CHUNK, (uint64_t)first);
            rig_piece(frame, 0, PD_F32, first, n, zeros);
            rig_send(r, frame);
            rig_work(r);
            assert_int_equal(r->error.code, PD_OK);
            first += n;
        }
}

static void push_piece(rig *r, const scene *s, uint32_t rank, int64_t first)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, JOB_CONN + rank, 1);

    if (s->absent[rank])
        rig_absent(frame, 0);
    else
        rig_piece(frame, 0, s->dtype[rank], first,
                  pd_range_piece(s->range[rank].start, s->range[rank].end, CHUNK, (uint64_t)first), s->g[rank] + first);
    rig_weight(frame, weight_of(rank), is_sum(rank)); /* a weight that all but the radial mean must ignore */
    assert_int_equal(rig_send(r, frame), PD_OK);
}

/* The position of one frame: its rank and its first element. */
typedef struct part {
    uint32_t rank;
    int64_t first;
} part;

/* Replaces the process of a rank by another one, which sends its frames again. The contributions of the lost process
 * stay. */
static void replace(rig *r, const scene *s, uint32_t rank, const part *given, uint32_t n, uint64_t *seed)
{
    pd_request *lost = pd_request_new(PD_REQ_LOST, (pd_ticket){ JOB_CONN + rank, 0 });

    lost->job = r->job;
    lost->rank = rank;
    rig_apply(r, lost);
    join(r, s, rank, rig_random(seed));
    for (uint32_t i = 0; i < n; i++)
        if (given[i].rank == rank) push_piece(r, s, rank, given[i].first);
}

/* Plays the round and writes the aggregate to `out`. The weights begin at 0 and the optimizer subtracts the
 * aggregate, so the aggregate is the negated weights. */
static pd_outcome play_out(const scene *s, const play *p, float *out)
{
    part left[MOST_RANKS * (MOST_ELEMENTS / CHUNK + 2)], given;
    uint64_t seed = p->order;
    uint32_t n = 0, all;
    pd_outcome outcome;
    rig r;

    start(&r, s, p);
    for (uint32_t rank = 0; rank < s->world; rank++) {
        int64_t end = s->range[rank].end;
        for (int64_t first = s->range[rank].start, count; first < end; first += count) {
            count = s->absent[rank] ? end - first : pd_range_piece(s->range[rank].start, end, CHUNK, (uint64_t)first);
            left[n].rank = rank;
            left[n++].first = first;
        }
    }
    for (all = n; n > 0;) {
        uint32_t i = (uint32_t)(rig_random(&seed) % n);
        if (p->lossy && rig_random(&seed) % 4 == 0)
            replace(&r, s, (uint32_t)(rig_random(&seed) % s->world), left + n, all - n, &seed);
        given = left[i];
        left[i] = left[--n];
        left[n] = given; /* left[n] and later entries have been pushed */
        push_piece(&r, s, given.rank, given.first);
        if (!p->late) rig_work(&r);
        if (p->over_quota && !p->late && n > 0) assert_int_equal(r.buffers_out, 0);
    }
    rig_work(&r);
    assert_int_equal(r.buffers_out, 0);
    assert_int_equal(r.versions[r.job][0].step, 1);
    outcome = r.versions[r.job][0].outcome;
    for (int64_t e = 0; e < s->n; e++) out[e] = -rig_weights(&r, r.job, 0)[e];
    rig_free(&r);
    return outcome;
}

static void random_ranges(scene *s, uint64_t *seed)
{
    for (uint32_t r = 0; r < s->world; r++) {
        int64_t a = (int64_t)(rig_random(seed) % (uint64_t)(s->n + 1)),
                b = (int64_t)(rig_random(seed) % (uint64_t)(s->n + 1));
        s->range[r] = (rig_range){ a < b ? a : b, a < b ? b : a };
        if (r > 1 && rig_random(seed) % 2 == 0)
            s->range[r] = s->range[r - 2]; /* half of the ranks get the range of the rank two before them, so that ranks
                                            * share shards */
        if (s->ranged && rig_random(seed) % 6 == 0)
            s->range[r].end = s->range[r].start; /* an empty range, which must not divide the elements into more
                                                  * sections */
        if (!s->ranged || r == 0 || rig_random(seed) % 6 == 0) s->range[r] = (rig_range){ 0, s->n };
    }
}

/* Cuts the parameter into shards, since the radial mean takes no ranges that overlap. A range may be empty. */
static void random_shards(scene *s, uint64_t *seed)
{
    uint32_t shards = 1 + (uint32_t)(rig_random(seed) % s->world);

    for (uint32_t r = 0; r < s->world && s->ranged; r++) {
        uint32_t shard = r % shards;
        s->range[r] = (rig_range){ s->n * shard / shards, s->n * (shard + 1) / shards };
    }
}

static void random_scene(scene *s, uint64_t *seed)
{
    memset(s, 0, sizeof *s);
    s->how = (how)(rig_random(seed) % HOWS);
    s->world = 1 + (uint32_t)(rig_random(seed) % (rig_random(seed) % 4 == 0 ? MOST_RANKS : 6));
    s->n = 1 + (int64_t)(rig_random(seed) % MOST_ELEMENTS);
    s->trim = s->how == TRIMMED ? (int)(rig_random(seed) % ((s->world + 1) / 2)) : 1;
    s->ranged = rig_random(seed) % 2 == 0;
    random_ranges(s, seed);
    if (s->how == RADIAL) random_shards(s, seed);
    for (uint32_t r = 0; r < s->world; r++) {
        s->absent[r] = rig_random(seed) % 5 == 0;
        s->dtype[r] = (pd_dtype)(PD_F32 + rig_random(seed) % 3);
        for (int64_t e = 0; e < s->n; e++) s->g[r][e] = (float)((double)(rig_random(seed) >> 11) * 0x1p-53 - 0.4);
        uint16_t narrow[MOST_ELEMENTS];
        if (s->dtype[r] == PD_F32) continue;
        pd_convert(narrow, s->dtype[r], s->g[r], PD_F32, s->n);
        pd_convert(s->g[r], PD_F32, narrow, s->dtype[r], s->n);
    }
}

static void expect_twin(const scene *s, pd_outcome outcome, const float *got)
{
    double expected[MOST_ELEMENTS];

    if (!twin(s, expected)) {
        assert_int_equal(outcome, PD_NO_GRADIENT);
        return;
    }
    if (s->how == RADIAL && lacks_weight(s)) {
        assert_int_equal(outcome, PD_SKIPPED);
        return;
    }
    assert_int_equal(outcome, PD_STEPPED);
    for (int64_t e = 0; e < s->n; e++)
        if (fabs(got[e] - expected[e]) >
            2e-6 * (s->how == TREE || s->how == VDOT || s->how == RADIAL ? s->world : fmax(1, fabs(expected[e]))))
            fail_msg("aggregate %d of %u ranks, element %lld: %.9g, expected %.9g", s->how, s->world, (long long)e,
                     got[e], expected[e]);
}

TEST(every_aggregate_equals_its_twin_in_any_order_of_events)
{
    static scene s;
    uint64_t seed = 5;

    for (int turn = 0; turn < 250; turn++) {
        float first[MOST_ELEMENTS], got[MOST_ELEMENTS];
        pd_outcome outcome;
        random_scene(&s, &seed);
        outcome = play_out(&s, &(play){ .threads = 1, .batch_ns = 50e6, .late = true, .order = 1 }, first);
        expect_twin(&s, outcome, first);
        for (int again = 0; again < 3; again++) {
            play p = { .over_quota = again < 2,
                       .late = again == 1,
                       .lossy = again != 1,
                       .threads = 1 + again,
                       .batch_ns = again == 1 ? 1 : 50e6,
                       .order = rig_random(&seed) };
            assert_int_equal(play_out(&s, &p, got), outcome);
            assert_memory_equal(got, first, (size_t)s.n * sizeof(float));
        }
    }
}

static void fill(scene *s, how h, uint32_t world, int64_t n)
{
    memset(s, 0, sizeof *s);
    *s = (scene){ .how = h, .world = world, .n = n, .trim = 1 };
    for (uint32_t r = 0; r < world; r++) {
        s->range[r] = (rig_range){ 0, n };
        s->dtype[r] = PD_F32;
        rig_noise(r + 1, s->g[r], n);
    }
}

static const play plain = { .threads = 1, .batch_ns = 50e6, .order = 3 };

TEST(a_rank_without_a_gradient_counts_as_zeros_in_the_tree)
{
    static scene s;
    float with[MOST_ELEMENTS], without[MOST_ELEMENTS];

    for (uint32_t away = 0; away < 8; away++) {
        fill(&s, TREE, 8, 200);
        s.absent[away] = s.absent[(away + 3) % 8] = true;
        assert_int_equal(play_out(&s, &plain, without), PD_STEPPED);
        memset(s.absent, 0, sizeof s.absent);
        memset(s.g[away], 0, sizeof s.g[away]);
        memset(s.g[(away + 3) % 8], 0, sizeof s.g[away]);
        assert_int_equal(play_out(&s, &plain, with), PD_STEPPED);
        assert_memory_equal(with, without, 200 * sizeof(float));
    }
}

TEST(a_single_contribution_is_returned_unchanged)
{
    static scene s;
    float got[MOST_ELEMENTS];

    for (how h = TREE; h < HOWS; h++) {
        fill(&s, h, 4, 150);
        s.absent[0] = s.absent[1] = s.absent[3] = true;
        s.g[2][7] = INFINITY; /* rank 2 contributes alone, so its vector must not change; a dot product would spread
                               * the infinity */
        play_out(&s, &plain, got);
        s.g[2][7] = 1;
        assert_int_equal(play_out(&s, &plain, got), PD_STEPPED);
        for (int64_t e = 0; e < s.n; e++) assert_true(got[e] == s.g[2][e]);
    }
}

/* With S shards, ranks s, s + S and so on contribute to shard s. The shard's result equals the result of a job of
 * these ranks alone, bit for bit. */
TEST(shards_are_never_mixed)
{
    static const struct {
        uint32_t world, shards;
    } cases[] = {
        { 4, 2 }, { 8, 2 }, { 8, 4 }, { 12, 3 }, { 6, 2 }, { 6, 3 }, { 4, 4 }, { 20, 2 }
    }; /* in the last case, several trees need their own memory at the same time */
    static scene whole, own;
    float got[MOST_ELEMENTS], expected[MOST_ELEMENTS];
    enum { SHARD = 70 };

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uint32_t world = cases[c].world, shards = cases[c].shards;
        fill(&whole, TREE, world, shards * SHARD);
        whole.ranged = true;
        for (uint32_t r = 0; r < world; r++)
            whole.range[r] = (rig_range){ r % shards * SHARD, (r % shards + 1) * SHARD };
        assert_int_equal(play_out(&whole, &plain, got), PD_STEPPED);
        for (uint32_t shard = 0; shard < shards; shard++) {
            fill(&own, TREE, world / shards, SHARD);
            for (uint32_t r = 0; r < own.world; r++)
                memcpy(own.g[r], whole.g[shard + r * shards] + shard * SHARD, SHARD * sizeof(float));
            assert_int_equal(play_out(&own, &plain, expected), PD_STEPPED);
            assert_memory_equal(got + shard * SHARD, expected, SHARD * sizeof(float));
        }
    }
}

TEST(a_minority_that_is_not_finite_does_not_spoil_a_robust_aggregate)
{
    static scene s;
    float got[MOST_ELEMENTS];

    for (how h = TREE; h < HOWS; h++) {
        fill(&s, h, 5, 130);
        s.g[3][100] = NAN;
        s.g[1][5] = -INFINITY;
        assert_int_equal(play_out(&s, &plain, got), h == MEDIAN || h == TRIMMED ? PD_STEPPED : PD_SKIPPED);
        if (h == MEDIAN || h == TRIMMED) expect_twin(&s, PD_STEPPED, got);
    }
}

TEST(a_shard_that_is_not_finite_skips_the_step)
{
    static scene s;
    float got[MOST_ELEMENTS];

    for (int i = 0; i < 2 * HOWS; i++) {
        fill(&s, (how)(i / 2), 4, 140);
        s.ranged = true;
        for (uint32_t r = 0; r < 4; r++) {
            s.range[r] = (rig_range){ r % 2 * 70, (r % 2 + 1) * 70 };
            if (r % 2 == (uint32_t)i % 2) s.g[r][r % 2 * 70 + 3] = INFINITY;
        }
        assert_int_equal(play_out(&s, &plain, got), PD_SKIPPED);
    }
}

TEST(a_majority_that_is_not_finite_skips_the_step)
{
    static scene s;
    float got[MOST_ELEMENTS];

    for (how h = MEDIAN; h < HOWS; h++) {
        fill(&s, h, 5, 130);
        s.g[0][129] = s.g[3][129] = s.g[4][129] = INFINITY;
        assert_int_equal(play_out(&s, &plain, got), PD_SKIPPED);
        assert_int_equal(play_out(&s, &(play){ .threads = 1, .batch_ns = 50e6, .late = true }, got),
                         PD_SKIPPED); /* all chunks of the round are aggregated in one batch */
    }
}
