/* Tests the ingest budget, which limits received frames that are not summed yet. Each rank that has declared keeps a
 * reserved part of it (its reserve), and no rank keeps memory that it cannot use. */
#include "rig.h"
#include "store_inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FRAME = 4096, N = FRAME / 4, CONN = 10, OTHER = 200, LARGE = 64 };
static const char *const name[] = { "w" };
static const pd_shape shape = { 1, { N } };
static float zeros[N];

/* Starts a store with an ingest budget of `frames` frames. A frame holds one chunk. */
static void start(rig *r, uint64_t frames)
{
    pd_store_config config = rig_config();

    config.chunk_elements = N;
    config.ingest_bytes = frames * FRAME;
    rig_new(r, &config);
}

static int declare(rig *r, const char *job, uint32_t rank, uint32_t world, uint64_t conn)
{
    assert_int_equal(rig_hello(r, job, rank, world, conn, conn, "job_linger=3600", "* sgd lr=1"), PD_OK);
    return rig_declare(r, r->job, rank, conn, name, &shape, NULL, 1, PD_F32);
}

static void lose(rig *r, uint32_t job, uint32_t rank, uint64_t conn)
{
    pd_request *request = pd_request_new(PD_REQ_LOST, (pd_ticket){ conn, 0 });

    request->job = job;
    request->rank = rank;
    rig_apply(r, request);
}

static void leave(rig *r, uint32_t job, uint32_t rank, uint64_t conn)
{
    pd_request *request = pd_request_new(PD_REQ_LEAVE, rig_ticket(r, conn));

    request->job = job;
    request->rank = rank;
    assert_int_equal(rig_apply(r, request), PD_OK);
}

static void one_process_of_a_large_world_keeps_one_reserve(void **state)
{
    rig r;

    (void)state;
    start(&r, LARGE);
    assert_int_equal(declare(&r, "large", 0, LARGE, CONN), PD_OK);
    assert_int_equal(r.store->ingest.reserved, FRAME);
    for (uint32_t rank = 0; rank < LARGE - 1; rank++)
        assert_int_equal(declare(&r, "other", rank, LARGE - 1, OTHER + rank), PD_OK);
    assert_int_equal(declare(&r, "third", 0, 1, 300), PD_RESOURCE_EXHAUSTED);
    rig_free(&r);
}

static void a_world_that_the_budget_never_holds_is_refused_at_its_first_rank(void **state)
{
    rig r;

    (void)state;
    start(&r, LARGE - 1);
    assert_int_equal(declare(&r, "large", 0, LARGE, CONN), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "64 ranks, this one with frames of up to 4096 bytes, need 262144 bytes of "
                                         "ingest budget, and there are 258048"));
    assert_int_equal(r.store->ingest.reserved, 0);
    rig_free(&r);
}

static void a_job_that_lingers_keeps_no_reserve(void **state)
{
    rig r;

    (void)state;
    start(&r, 2);
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(declare(&r, "gone", rank, 2, CONN + rank), PD_OK);
    for (uint32_t rank = 0; rank < 2; rank++) lose(&r, r.job, rank, CONN + rank);
    assert_int_equal(r.store->ingest.reserved, 0);
    assert_int_equal(r.store->ingest.n_ranks, 0);
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(declare(&r, "other", rank, 2, OTHER + rank), PD_OK);
    rig_free(&r);
}

static void a_rank_that_comes_back_to_a_taken_budget_is_told(void **state)
{
    rig r;

    (void)state;
    start(&r, 1);
    assert_int_equal(declare(&r, "gone", 0, 1, CONN), PD_OK);
    lose(&r, r.job, 0, CONN);
    assert_int_equal(declare(&r, "other", 0, 1, OTHER), PD_OK);
    assert_int_equal(declare(&r, "gone", 0, 1, CONN + 1), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "rank 0 has frames of up to 4096 bytes and needs as much ingest budget; of "
                                         "4096, 4096 are reserved by other ranks"));
    leave(&r, inside_find(r.store, "other")->steps.number, 0, OTHER);
    assert_int_equal(
        rig_declare(&r, inside_find(r.store, "gone")->steps.number, 0, CONN + 1, name, &shape, NULL, 1, PD_F32), PD_OK);
    rig_free(&r);
}

static void a_lost_rank_finds_its_reserve_while_others_train(void **state)
{
    rig r;

    (void)state;
    start(&r, 2);
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(declare(&r, "job", rank, 2, CONN + rank), PD_OK);
    lose(&r, r.job, 1, CONN + 1);
    assert_int_equal(declare(&r, "other", 0, 1, OTHER), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(declare(&r, "job", 1, 2, CONN + 2), PD_OK);
    rig_free(&r);
}

static void a_rank_that_leaves_gives_its_reserve_back(void **state)
{
    rig r;

    (void)state;
    start(&r, 2);
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(declare(&r, "job", rank, 2, CONN + rank), PD_OK);
    leave(&r, r.job, 1, CONN + 1);
    assert_int_equal(declare(&r, "other", 0, 1, OTHER), PD_OK);
    rig_free(&r);
}

/* Starts a job of two ranks with initial weights. Rank 0 has pushed for step 1 and rank 1 has not, so the store
 * holds one frame. Returns the job. */
static uint32_t with_a_frame_held(rig *r)
{
    uint32_t job;

    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(declare(r, "job", rank, 2, CONN + rank), PD_OK);
    job = r->job;
    assert_int_equal(rig_init(r, job, CONN, 0, zeros, N), PD_OK);
    rig_work(r);
    assert_int_equal(rig_push(r, job, 0, CONN, 1, 0, zeros, N), PD_OK);
    rig_work(r);
    return job;
}

static void what_a_rank_leaves_behind_counts_until_it_is_summed(void **state)
{
    uint32_t job;
    rig r;

    (void)state;
    start(&r, 8);
    job = with_a_frame_held(&r);
    assert_int_equal(r.bytes_out[CONN], FRAME);
    for (uint32_t rank = 0; rank < 2; rank++) leave(&r, job, rank, CONN + rank);
    assert_int_equal(r.store->ingest.reserved, FRAME);
    r.intent = PD_INTENT_RESUME;
    assert_int_equal(declare(&r, "job", 1, 2, CONN + 2), PD_OK);
    assert_int_equal(rig_push(&r, job, 1, CONN + 2, 1, 0, zeros, N), PD_OK);
    rig_work(&r);
    assert_int_equal(r.bytes_out[CONN], 0);
    assert_int_equal(r.store->ingest.reserved, FRAME); /* the reserve of rank 1, which is connected */
    rig_free(&r);
}

/* Rank 0 is within its quota until the six ranks of another job declare. Then the frame of rank 0 is summed at once,
 * because the loop thread may have stopped reading from rank 0 already. */
static void a_rank_that_others_press_is_summed(void **state)
{
    rig r;

    (void)state;
    start(&r, 8);
    with_a_frame_held(&r);
    assert_int_equal(r.bytes_out[CONN], FRAME);
    for (uint32_t rank = 0; rank < 6; rank++) assert_int_equal(declare(&r, "other", rank, 6, OTHER + rank), PD_OK);
    rig_work(&r);
    assert_int_equal(r.bytes_out[CONN], 0);
    rig_free(&r);
}

static void a_dropped_job_gives_all_back(void **state)
{
    pd_request *request;
    rig r;

    (void)state;
    start(&r, 8);
    with_a_frame_held(&r);
    request = pd_request_new(PD_REQ_DROP, rig_ticket(&r, 99));
    request->u.info.job_name = strdup("job");
    assert_int_equal(rig_apply(&r, request), PD_OK);
    assert_int_equal(r.store->ingest.reserved, 0);
    assert_int_equal(r.store->ingest.n_ranks, 0);
    assert_int_equal(r.store->ingest.held, 0);
    rig_free(&r);
}

/* ---- ranks come and go at random ---- */

enum { JOBS = 3, RANKS = 3, BUDGET = 5, TURNS = 4000 };

typedef struct seat {
    bool here, declared;
    uint64_t conn;
} seat;

/* Checks two sums of reserves. The loop thread's sum counts the connections that have declared, and must not exceed
 * the store's sum. The store's sum must not exceed the budget. */
static void check_sums(const rig *r, seat seats[JOBS][RANKS])
{
    uint64_t loop = 0, ranks = 0;

    for (int j = 0; j < JOBS; j++)
        for (int k = 0; k < RANKS; k++) ranks += seats[j][k].here && seats[j][k].declared;
    loop = ranks * FRAME;
    assert_true(loop <= r->store->ingest.reserved);
    assert_true(ranks <= r->store->ingest.n_ranks);
    assert_true(r->store->ingest.reserved <= r->store->config.ingest_bytes);
}

static void come(rig *r, const char *job, uint32_t rank, seat *at, uint64_t conn)
{
    int rc = declare(r, job, rank, RANKS, conn);

    assert_true(rc == PD_OK || rc == PD_RESOURCE_EXHAUSTED);
    *at = (seat){ true, rc == PD_OK, conn };
}

static void the_loop_threads_sum_never_exceeds_the_stores(void **state)
{
    static const char *const jobs[JOBS] = { "a", "b", "c" };
    seat seats[JOBS][RANKS] = { 0 };
    uint64_t seed = 18, conn = CONN;
    rig r;

    (void)state;
    start(&r, BUDGET);
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t j = (uint32_t)(rig_random(&seed) % JOBS), rank = (uint32_t)(rig_random(&seed) % RANKS);
        seat *at = &seats[j][rank];
        pd_job *job = inside_find(r.store, jobs[j]);
        uint64_t what = rig_random(&seed) % 4;
        if (!at->here || what == 0)
            come(&r, jobs[j], rank, at, ++conn); /* may replace a process that is connected as this rank */
        else if (what == 1)
            leave(&r, job->steps.number, rank, at->conn), *at = (seat){ 0 };
        else if (what == 2)
            lose(&r, job->steps.number, rank, at->conn), *at = (seat){ 0 };
        rig_sleep(&r, 0.001); /* a job without workers and parameters ends */
        check_sums(&r, seats);
    }
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_of_a_large_world_keeps_one_reserve),
        cmocka_unit_test(a_world_that_the_budget_never_holds_is_refused_at_its_first_rank),
        cmocka_unit_test(a_job_that_lingers_keeps_no_reserve),
        cmocka_unit_test(a_rank_that_comes_back_to_a_taken_budget_is_told),
        cmocka_unit_test(a_lost_rank_finds_its_reserve_while_others_train),
        cmocka_unit_test(a_rank_that_leaves_gives_its_reserve_back),
        cmocka_unit_test(what_a_rank_leaves_behind_counts_until_it_is_summed),
        cmocka_unit_test(a_rank_that_others_press_is_summed),
        cmocka_unit_test(a_dropped_job_gives_all_back),
        cmocka_unit_test(the_loop_threads_sum_never_exceeds_the_stores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
