/* Tests that no order of parameters and arrivals causes a deadlock, at the smallest ingest budget that Declare
 * accepts. */
#include "test.h"
#include "rig.h"
#include "store_inside.h"

enum { WORLD = 4, N = 6, CHUNK = 1024, FRAME = CHUNK * 4, STEPS = 3, PIECES = 16 };
static const int64_t sizes[N] = { 5 * CHUNK, CHUNK, 2 * CHUNK + 7, 9, 3 * CHUNK, CHUNK };

/* The chunks that one rank sends, in an order of its own, and how far it has got. */
typedef struct sender {
    uint32_t param[PIECES];
    int64_t first[PIECES], count[PIECES]; /* the ranges that the rank sends in each step, in the order of sending */
    size_t n, next;
    uint64_t step;
    uint32_t rank;
} sender;

static void lay_out(sender *s, uint32_t rank, const uint32_t *order, const rig_range *ranges)
{
    *s = (sender){ .rank = rank, .step = 1 };
    for (int i = 0; i < N; i++) {
        uint32_t p = order[i];
        int64_t start = ranges != NULL ? ranges[p].start : 0, end = ranges != NULL ? ranges[p].end : sizes[p];
        for (int64_t first = start; first < end; first += s->count[s->n++]) {
            s->param[s->n] = p;
            s->first[s->n] = first;
            s->count[s->n] = pd_range_piece(start, end, CHUNK, (uint64_t)first);
        }
    }
}

/* Gives each rank a quarter of each parameter, as FSDP does, and up to a chunk of each neighbour's quarter. */
static void spread(rig_range ranges[WORLD][N], uint64_t *seed)
{
    for (int64_t r = 0; r < WORLD; r++)
        for (int p = 0; p < N; p++) {
            int64_t part = (sizes[p] + WORLD - 1) / WORLD,
                    start = part * r - (int64_t)(rig_random(seed) % 3 * (CHUNK / 2));
            int64_t end = part * (r + 1) + (int64_t)(rig_random(seed) % 3 * (CHUNK / 2));
            ranges[r][p].start = start < 0 ? 0 : start < sizes[p] ? start : sizes[p];
            ranges[r][p].end = end < sizes[p] ? end : sizes[p];
        }
}

/* Starts a job as rig_start does, but each rank declares its own ranges. */
static uint32_t start_ranged(rig *r, const char *options, rig_range ranges[WORLD][N])
{
    static const char *const names[N] = { "p0", "p1", "p2", "p3", "p4", "p5" };
    static float zeros[CHUNK];
    pd_shape shapes[N];

    for (int p = 0; p < N; p++) shapes[p] = (pd_shape){ 1, { sizes[p] } };
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_int_equal(rig_hello(r, "job", rank, WORLD, 10 + rank, 10 + rank, options, "* sgd lr=1"), PD_OK);
        r->ranges = ranges[rank];
        assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, names, shapes, NULL, N, PD_F32), PD_OK);
        assert_int_equal(r->reserve, FRAME);
    }
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        static const uint32_t order[N] = { 0, 1, 2, 3, 4, 5 };
        sender s;
        lay_out(&s, rank, order, ranges[rank]);
        for (size_t i = 0; i < s.n; i++) {
            rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, 10 + rank, 0);
            rig_piece(frame, s.param[i], PD_F32, s.first[i], s.count[i], zeros);
            rig_send(r, frame);
            rig_work(r);
            assert_int_equal(r->error.code, PD_OK);
        }
    }
    return r->job;
}

static void orders(uint32_t order[WORLD][N], uint64_t *seed)
{
    for (int r = 0; r < WORLD; r++) {
        for (uint32_t i = 0; i < N; i++) order[r][i] = r % 2 == 0 ? i : N - 1 - i;
        for (uint32_t i = N; r >= 2 && i > 1; i--) {
            uint32_t j = (uint32_t)(rig_random(seed) % i), swap = order[r][i - 1];
            order[r][i - 1] = order[r][j];
            order[r][j] = swap;
        }
    }
}

/* Returns whether a rank may send a frame, by the loop thread's rule (net/admission.h). A rank with nothing in
 * flight may always send one frame. Other ranks may have as much in flight as their reserve and an equal part of the
 * budget that is not reserved. */
static bool is_admitted(const rig *r, const pd_store_config *config, uint32_t rank, size_t bytes)
{
    uint64_t charged = r->bytes_out[10 + rank], used = 0, spare = config->ingest_bytes - WORLD * r->reserve;

    for (int i = 0; i < WORLD; i++) used += r->bytes_out[10 + i];
    return charged == 0 || (charged + bytes <= r->reserve + spare / WORLD && used + bytes <= config->ingest_bytes);
}

/* Sends the rank's next chunk, if the budget and the step of its parameter allow it. Returns whether it was sent. */
static bool try_to_send(rig *r, const pd_store_config *config, uint32_t job, sender *s)
{
    static float values[CHUNK];
    rig_frame *frame;
    uint32_t p = s->param[s->next];
    int64_t n = s->count[s->next];

    if (s->step > STEPS || r->versions[job][p].step + 1 < s->step) return false;
    if (!is_admitted(r, config, s->rank, (size_t)(n * 4 + 63) / 64 * 64)) return false;
    frame = rig_frame_new(r, PD_REQ_PUSH, job, s->rank, 10 + s->rank, s->step);
    rig_piece(frame, p, PD_F32, s->first[s->next], n, values);
    assert_int_equal(rig_send(r, frame), PD_OK);
    if (++s->next == s->n) {
        s->next = 0;
        s->step++;
    }
    return true;
}

static bool somebody_sends(rig *r, const pd_store_config *config, uint32_t job, sender *senders, uint64_t *seed)
{
    uint32_t start = (uint32_t)(rig_random(seed) % WORLD);

    for (uint32_t i = 0; i < WORLD; i++)
        if (try_to_send(r, config, job, &senders[(start + i) % WORLD])) return true;
    return false;
}

static void train(uint64_t ingest, const char *options, bool ranged, uint64_t seed)
{
    rig_range ranges[WORLD][N];
    pd_store_config config = rig_config();
    uint32_t order[WORLD][N], job;
    sender senders[WORLD];
    uint64_t most = 0;
    rig r;

    config.chunk_elements = CHUNK;
    config.ingest_bytes = ingest;
    rig_new(&r, &config);
    orders(order, &seed);
    spread(ranges, &seed);
    job = ranged ? start_ranged(&r, options, ranges) : rig_start(&r, "job", WORLD, 10, sizes, N, options, NULL);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        lay_out(&senders[rank], rank, order[rank], ranged ? ranges[rank] : NULL);
    for (;;) {
        bool sent = somebody_sends(&r, &config, job, senders, &seed), worked = false;
        uint64_t used = 0;
        for (int i = 0; i < WORLD; i++) used += r.bytes_out[10 + i];
        if (used > most) most = used;
        if (!sent || rig_random(&seed) % 3 == 0) {
            uint64_t home = r.buffers_out, batches = r.batches;
            rig_work(&r);
            worked = r.buffers_out < home || r.batches > batches;
        }
        if (!sent && !worked) break; /* no rank can send, and the store has no work */
    }
    for (uint32_t p = 0; p < N; p++) assert_int_equal(r.versions[job][p].step, STEPS);
    assert_true(most <= ingest);
    rig_free(&r);
}

TEST(four_orders_finish_at_the_smallest_budget)
{
    for (uint64_t seed = 1; seed <= 40; seed++) train(WORLD * FRAME, NULL, false, seed);
}

TEST(four_orders_finish_at_budgets_that_do_not_divide)
{
    for (uint64_t extra = 1; extra < 3 * WORLD * FRAME; extra += 3001) train(WORLD * FRAME + extra, NULL, false, extra);
}

/* Contributions to parameters that wait for each other are already summed, so they use up no rank's quota. */
TEST(four_orders_finish_when_the_job_steps_as_a_whole)
{
    for (uint64_t seed = 1; seed <= 40; seed++) train(WORLD * FRAME, "nonfinite_scope=job", false, seed);
}

TEST(four_orders_of_shards_finish_at_the_smallest_budget)
{
    for (uint64_t seed = 1; seed <= 40; seed++) train(WORLD * FRAME + seed % 4 * 1500, NULL, true, seed);
}

/* These aggregates need the whole parameter from every rank at once, but each rank may have only one chunk in
 * flight. The store keeps the other chunks in separate memory. */
TEST(four_orders_finish_with_aggregates_that_need_everything_at_once)
{
    static const char *const how[] = { "aggregate=adasum adasum_fold=yes", "aggregate=median",
                                       "aggregate=adasum_vdot nonfinite_scope=job nonfinite=apply",
                                       "aggregate=trimmed_mean nonfinite_scope=job" };

    for (uint64_t seed = 1; seed <= 40; seed++) {
        train(WORLD * FRAME, how[seed % 4], false, seed);
        train(WORLD * FRAME, "aggregate=radial_mean", false, seed);
        train(WORLD * FRAME + seed * 1500, how[seed % 4], seed % 2 == 0, seed);
    }
}

TEST(declare_refuses_what_the_budget_cannot_hold)
{
    pd_store_config config = rig_config();
    static const char *const names[] = { "w" };
    static const pd_shape shape = { 1, { 5 * CHUNK } };
    rig r;

    config.chunk_elements = CHUNK;
    config.ingest_bytes = WORLD * FRAME - 1;
    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, "job", 0, WORLD, 1, 10, NULL, NULL), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 0, 10, names, &shape, NULL, 1, PD_F32), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "16384 bytes"));
    assert_non_null(strstr(r.error.text, "16383"));
    rig_free(&r);
}

static void limit(rig *r, uint32_t max_jobs, uint64_t max_total_bytes)
{
    pd_request *request = pd_request_new(PD_REQ_LIMITS, (pd_ticket){ 0, 0 });

    request->u.limits.max_jobs = max_jobs;
    request->u.limits.max_total_bytes = max_total_bytes;
    assert_int_equal(rig_apply(r, request), PD_OK);
}

TEST(limits_that_change_hold_for_what_comes_next)
{
    pd_store_config config = rig_config();
    static const char *const names[] = { "w" };
    static const pd_shape shape = { 1, { 1000 } };
    rig r;

    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, "first", 0, 1, 1, 10, NULL, NULL), PD_OK);
    limit(&r, 1, config.max_total_bytes);
    assert_int_equal(rig_hello(&r, "second", 0, 1, 2, 11, NULL, NULL), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "the 1 jobs allowed"));
    limit(&r, 2, 1000);
    assert_int_equal(rig_hello(&r, "second", 0, 1, 2, 11, NULL, NULL), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 0, 11, names, &shape, NULL, 1, PD_F32), PD_RESOURCE_EXHAUSTED);
    limit(&r, 2, config.max_total_bytes);
    assert_int_equal(rig_declare(&r, r.job, 0, 11, names, &shape, NULL, 1, PD_F32), PD_OK);
    rig_free(&r);
}

/* With enough memory, a chunk is summed once, when the contributions of all ranks are there. */
TEST(holds_contributions_until_all_are_there_when_memory_allows)
{
    pd_store_config config = rig_config();
    float values[64] = { 0 };
    uint32_t job;
    rig r;
    static const int64_t one[] = { 64 };

    rig_new(&r, &config);
    job = rig_start(&r, "job", WORLD, 10, one, 1, NULL, NULL);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_int_equal(r.buffers_out, rank);
        assert_int_equal(rig_push(&r, job, rank, 10 + rank, 1, 0, values, 64), PD_OK);
        rig_work(&r);
    }
    assert_int_equal(r.buffers_out, 0);
    rig_free(&r);
}

TEST(sums_at_once_what_a_pressed_rank_holds_in_order)
{
    pd_store_config config = rig_config();
    static const int64_t one[] = { CHUNK };
    float values[CHUNK] = { 0 };
    uint32_t job;
    rig r;

    config.chunk_elements = CHUNK;
    config.ingest_bytes = WORLD * FRAME;
    rig_new(&r, &config);
    job = rig_start(&r, "job", WORLD, 10, one, 1, NULL, NULL);
    static const uint32_t arrivals[WORLD] = { 1, 0, 3, 2 };
    static const uint64_t held[WORLD] = { 1, 0, 1, 0 };
    for (int i = 0; i < WORLD; i++) {
        rig_frame *frame = rig_frame_new(&r, PD_REQ_PUSH, job, arrivals[i], 10 + arrivals[i], 1);
        rig_piece(frame, 0, PD_F32, 0, CHUNK, values);
        assert_int_equal(rig_send(&r, frame), PD_OK);
        rig_work(&r);
        assert_int_equal(r.buffers_out, held[i]);
    }
    assert_int_equal(r.versions[job][0].step, 1);
    rig_free(&r);
}

static void send_chunk(rig *r, uint32_t job, uint32_t rank, uint64_t conn, int64_t chunk)
{
    static float values[CHUNK];
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, rank, conn, 1);

    rig_piece(frame, 0, PD_F32, chunk * CHUNK, CHUNK, values);
    assert_int_equal(rig_send(r, frame), PD_OK);
}

/* Three processes have had rank 3, and the first two were replaced. All three have pushed chunks from the end of the
 * parameter. With two chunks each from ranks 1 and 2, the budget is full, and nobody can send more. The chunks that
 * are next in order must be summed to make room. */
TEST(what_dead_processes_hold_blocks_nobody)
{
    static const int64_t twenty[] = { 20 * CHUNK };
    static const char *const name[] = { "p0" };
    static const pd_shape shape = { 1, { 20 * CHUNK } };
    pd_store_config config = rig_config();
    uint32_t job;
    rig r;

    config.chunk_elements = CHUNK;
    config.ingest_bytes = 16 * FRAME;
    rig_new(&r, &config);
    job = rig_start(&r, "job", WORLD, 10, twenty, 1, NULL, NULL);
    for (int64_t process = 0; process < 3; process++) {
        uint64_t conn = 13 + 10 * (uint64_t)process;
        if (process > 0) {
            assert_int_equal(rig_hello(&r, "job", 3, WORLD, conn, conn, NULL, "* sgd lr=1"), PD_OK);
            assert_int_equal(rig_declare(&r, job, 3, conn, name, &shape, NULL, 1, PD_F32), PD_OK);
        }
        for (int64_t i = 0; i < 4; i++) send_chunk(&r, job, 3, conn, 19 - 4 * process - i);
    }
    for (uint32_t rank = 1; rank <= 2; rank++)
        for (int64_t chunk = 0; chunk < 2; chunk++) send_chunk(&r, job, rank, 10 + rank, chunk);
    rig_work(&r);
    send_chunk(&r, job, 0, 10, 0);
    rig_work(&r);
    assert_int_equal(r.bytes_out[10], 0);
    rig_free(&r);
}

TEST(a_dropped_job_gives_its_budget_back)
{
    static const int64_t one[] = { CHUNK };
    pd_store_config config = rig_config();
    rig r;

    config.chunk_elements = CHUNK;
    config.ingest_bytes = WORLD * FRAME;
    rig_new(&r, &config);
    for (int i = 0; i < 3; i++) {
        rig_start(&r, "job", WORLD, 10, one, 1, NULL, NULL);
        rig_apply(&r, pd_request_new(PD_REQ_DROP, rig_ticket(&r, 1)));
        assert_int_equal(r.gone, i + 1);
    }
    rig_free(&r);
}

/* The sums of 20,000 chunks are due at once. They are computed in several batches, whose arrays stay, and count for no
 * job. */
TEST(sums_of_many_small_chunks_take_bounded_memory)
{
    enum { CHUNKS = 20000, SMALL = 16 };
    static const int64_t large[] = { (int64_t)CHUNKS * SMALL };
    pd_store_config config = rig_config();
    float *values = calloc((size_t)large[0], sizeof *values);
    const pd_sums *sums;
    uint32_t job;
    rig r;

    config.chunk_elements = SMALL;
    rig_new(&r, &config);
    sums = &r.store->sums;
    job = rig_start(&r, "job", 2, 10, large, 1, NULL, NULL);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(rig_push(&r, job, rank, 10 + rank, 1, 0, values, large[0]), PD_OK);
    rig_work(&r);
    assert_int_equal(inside_job(r.store, job)->steps.params[0].saved.step, 1);
    assert_true(sums->passes_room <= 16384 && sums->sums_room <= 16384);
    rig_free(&r);
    free(values);
}
