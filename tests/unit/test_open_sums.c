/* Tests what a step of an open set computes: a naive program gives the same bits for any order of pushes, ages, weights
 * and element types, and whether contributions are spilled or not. */
#include "test.h"
#include "convert.h"
#include "rig.h"
#include "set_rule.h"

#include <math.h>
#include <string.h>

enum { WORLD = 4, CONN = 10, CHUNK = 1024, CHUNKS = 2, N = CHUNK * CHUNKS, FRAMES = 64, EVENTS = 80 };
static const int64_t sizes[] = { N };

/* A push of one rank. */
typedef struct given {
    float values[N]; /* as rounded to its element type */
    pd_dtype dtype;
    uint64_t step; /* 0: the rank has none on its way */
    int sent;      /* number of chunks that were sent */
    double weight;
    bool presummed, absent;
} given;

/* The naive program: what the workers have pushed, and the weights as they should be. */
typedef struct naive {
    bool weighted;
    pd_damping damping;
    uint32_t quorum;
    uint64_t step;
    float weights[N];
    given at[WORLD];
} naive;

static double damp(pd_damping damping, uint64_t age)
{
    if (damping == PD_DAMPING_NONE) return 1;
    return damping == PD_DAMPING_INVERSE ? 1 / (1.0 + (double)age) : 1 / sqrt(1.0 + (double)age);
}

static bool counts(const naive *n, const given *g)
{
    return g->step > 0 && g->sent == CHUNKS && !g->absent && (!n->weighted || g->weight > 0);
}

/* Returns the aggregate of element e over the ranks whose push is whole, k of which have a gradient that counts. Each
 * operation is done in float64 and rounded to float32, which is exact for one operation on float32 values. */
static float aggregate(const naive *n, int e, int k)
{
    double total = 0;
    float sum = 0, divisor = 1;
    bool first = true;

    for (int r = 0; r < WORLD; r++) {
        const given *g = &n->at[r];
        double d, w;
        float scale;
        if (!counts(n, g)) continue;
        d = damp(n->damping, n->step + 1 - g->step);
        w = n->weighted ? g->weight : 1;
        scale = (float)(k == 1 || (n->weighted && g->presummed) ? d : w * d);
        total += w * d;
        sum = first ? (float)((double)scale * g->values[e])
                    : (float)((double)sum + (float)((double)scale * g->values[e]));
        if (k == 1 && n->weighted && g->presummed) divisor = (float)w;
        first = false;
    }
    if (k > 1) divisor = (float)total;
    return (float)((double)sum / divisor);
}

/* Takes a step of the naive program if a quorum is whole, and somebody of it, or nobody at all, has a gradient. */
static void step(naive *n)
{
    uint32_t whole = 0, gradients = 0;
    int k = 0;

    for (int r = 0; r < WORLD; r++) {
        whole += n->at[r].step > 0 && n->at[r].sent == CHUNKS;
        gradients += n->at[r].step > 0 && n->at[r].sent == CHUNKS && !n->at[r].absent;
        k += counts(n, &n->at[r]);
    }
    if (whole < n->quorum || (gradients == 0 && whole < WORLD)) return;
    for (int e = 0; e < N && k > 0; e++) n->weights[e] = (float)((double)n->weights[e] - aggregate(n, e, k));
    n->step++;
    for (int r = 0; r < WORLD; r++)
        if (n->at[r].sent == CHUNKS) n->at[r] = (given){ 0 };
}

static void begin_push(naive *n, uint32_t rank, uint64_t *seed)
{
    static const pd_dtype dtypes[] = { PD_F32, PD_F16, PD_BF16 };
    given *g = &n->at[rank];
    uint16_t rounded[N];

    g->step = n->step + 1;
    g->dtype = dtypes[rig_random(seed) % 3];
    g->weight = (double)(rig_random(seed) % 8) * 1.7;
    g->presummed = rig_random(seed) % 4 == 0;
    g->absent = rig_random(seed) % 8 == 0;
    for (int e = 0; e < N; e++) g->values[e] = (float)((double)(rig_random(seed) % 20011) / 9973 - 1);
    if (g->dtype == PD_F32) return;
    pd_convert(rounded, g->dtype, g->values, PD_F32, N);
    pd_convert(g->values, PD_F32, rounded, g->dtype, N);
}

/* Sends the next chunk of the rank's push, or that it is absent. */
static void send_next(rig *r, naive *n, uint32_t rank)
{
    given *g = &n->at[rank];
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, g->step);

    if (g->absent) {
        rig_absent(frame, 0);
        g->sent = CHUNKS;
    } else {
        rig_piece(frame, 0, g->dtype, g->sent * CHUNK, CHUNK, g->values + g->sent * CHUNK);
        rig_weight(frame, g->weight, g->presummed);
        g->sent++;
    }
    if (rig_send(r, frame) != PD_OK) fail_msg("%s", r->error.text);
    rig_work(r);
}

static void stall(rig *r, uint32_t rank)
{
    pd_request *request = pd_request_new(PD_REQ_STALLED, (pd_ticket){ CONN + rank, 0 });

    assert_non_null(request);
    request->job = r->job;
    request->rank = rank;
    assert_int_equal(rig_apply(r, request), PD_OK);
    rig_work(r);
}

static void play(naive *n, uint64_t seed)
{
    static const char *const dampings[] = { "none", "inverse", "root" };
    pd_store_config config = rig_config();
    char options[160];
    uint64_t taken;
    rig r;

    config.chunk_elements = CHUNK;
    config.ingest_bytes = FRAMES * CHUNK * 4;
    rig_new(&r, &config);
    snprintf(options, sizeof options, "quorum=%u staleness=none damping=%s aggregate=%s", n->quorum,
             dampings[n->damping], n->weighted ? "weighted_mean" : "mean");
    r.job = rig_start(&r, "job", WORLD, CONN, sizes, 1, options, NULL);
    rig_work(&r);
    memcpy(n->weights, rig_weights(&r, r.job, 0), sizeof n->weights);
    for (int i = 0; i < EVENTS; i++) {
        uint32_t rank = (uint32_t)(rig_random(&seed) % WORLD);
        if (n->at[rank].sent == CHUNKS) continue; /* it waits for its answer */
        if (n->at[rank].step == 0) begin_push(n, rank, &seed);
        send_next(&r, n, rank);
        if (rig_random(&seed) % 3 == 0) stall(&r, (uint32_t)(rig_random(&seed) % WORLD));
        step(n);
        taken = rig_versions(&r, r.job, 0)->step;
        if (taken != n->step)
            fail_msg("%s: step %llu, not %llu", options, (unsigned long long)taken, (unsigned long long)n->step);
        if (memcmp(n->weights, rig_weights(&r, r.job, 0), sizeof n->weights) != 0)
            fail_msg("%s: other weights after step %llu", options, (unsigned long long)taken);
    }
    assert_true(n->step > 5);
    rig_free(&r);
}

static void play_all(bool weighted, pd_damping damping)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        naive n = { .weighted = weighted, .damping = damping, .quorum = (uint32_t)(1 + seed % 3) };
        play(&n, seed);
    }
}

HOLDS(means_of_old_contributions_are_those_of_a_naive_program, play_all(false, PD_DAMPING_NONE));
HOLDS(damped_means_are_those_of_a_naive_program,
      (play_all(false, PD_DAMPING_INVERSE), play_all(false, PD_DAMPING_ROOT)));
HOLDS(weighted_means_of_old_contributions_are_those_of_a_naive_program, play_all(true, PD_DAMPING_NONE));
HOLDS(damped_weighted_means_are_those_of_a_naive_program,
      (play_all(true, PD_DAMPING_INVERSE), play_all(true, PD_DAMPING_ROOT)));
