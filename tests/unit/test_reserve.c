/* Tests the ingest budget, which limits received frames that are not summed yet. Each rank that has declared keeps a
 * reserved part of it (its reserve), and no rank keeps memory that it cannot use. */
#include "test.h"
#include "reserves.h"
#include "rig.h"
#include "store_inside.h"

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

/* Declares the ranks [from, to) of a job on connections from `conn` on. Returns how many of them were taken. */
static uint32_t declare_some(rig *r, const char *job, uint32_t from, uint32_t to, uint32_t world, uint64_t conn)
{
    uint32_t taken = 0;

    for (uint32_t rank = from; rank < to; rank++) taken += declare(r, job, rank, world, conn + rank) == PD_OK;
    return taken;
}

TEST(a_job_has_room_for_all_its_ranks_from_the_first_one_on)
{
    rig r;

    start(&r, LARGE);
    assert_int_equal(declare(&r, "large", 0, LARGE, CONN), PD_OK);
    assert_int_equal(r.store->ingest.reserved, LARGE * FRAME);
    assert_int_equal(declare(&r, "other", 0, 1, OTHER), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(declare_some(&r, "large", 1, LARGE, LARGE, CONN), LARGE - 1);
    rig_free(&r);
}

TEST(the_third_job_of_24_ranks_is_in_or_out_as_a_whole)
{
    rig r;

    start(&r, LARGE);
    for (uint32_t rank = 0; rank < 24; rank++) { /* the ranks of the jobs come by turns */
        assert_int_equal(declare(&r, "a", rank, 24, 1000 + rank), PD_OK);
        assert_int_equal(declare(&r, "b", rank, 24, 2000 + rank), PD_OK);
        assert_int_equal(declare(&r, "c", rank, 24, 3000 + rank), PD_RESOURCE_EXHAUSTED);
    }
    assert_int_equal(r.store->ingest.reserved, 48 * FRAME);
    assert_non_null(strstr(
        r.error.text,
        "job c: its 24 ranks, with frames of up to 4096 bytes, need 98304 more bytes of ingest budget than are free "
        "now: come again when another job has ended, raise limits.ingest_bytes (262144), or lower limits.chunk_bytes"));
    for (uint32_t rank = 0; rank < 24; rank++) leave(&r, inside_find(r.store, "a")->steps.number, rank, 1000 + rank);
    for (uint32_t rank = 0; rank < 24; rank++)
        assert_int_equal(
            rig_declare(&r, inside_find(r.store, "c")->steps.number, rank, 3000 + rank, name, &shape, NULL, 1, PD_F32),
            PD_OK);
    rig_free(&r);
}

TEST(a_world_that_the_budget_never_holds_is_refused_at_its_first_rank)
{
    rig r;

    start(&r, LARGE - 1);
    assert_int_equal(declare(&r, "large", 0, LARGE, CONN), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(
        r.error.text, "job large: its 64 ranks, with frames of up to 4096 bytes, need 262144 bytes of ingest budget, "
                      "and there are 258048 for all jobs: raise limits.ingest_bytes, or lower limits.chunk_bytes"));
    assert_int_equal(r.store->ingest.reserved, 0);
    rig_free(&r);
}

TEST(a_job_that_lingers_keeps_no_reserve)
{
    rig r;

    start(&r, 2);
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(declare(&r, "gone", rank, 2, CONN + rank), PD_OK);
    for (uint32_t rank = 0; rank < 2; rank++) lose(&r, r.job, rank, CONN + rank);
    assert_int_equal(r.store->ingest.reserved, 0);
    assert_int_equal(r.store->ingest.n_ranks, 0);
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(declare(&r, "other", rank, 2, OTHER + rank), PD_OK);
    rig_free(&r);
}

TEST(a_rank_that_comes_back_to_a_taken_budget_is_told)
{
    rig r;

    start(&r, 1);
    assert_int_equal(declare(&r, "gone", 0, 1, CONN), PD_OK);
    lose(&r, r.job, 0, CONN);
    assert_int_equal(declare(&r, "other", 0, 1, OTHER), PD_OK);
    assert_int_equal(declare(&r, "gone", 0, 1, CONN + 1), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "need 4096 more bytes of ingest budget than are free now"));
    leave(&r, inside_find(r.store, "other")->steps.number, 0, OTHER);
    assert_int_equal(
        rig_declare(&r, inside_find(r.store, "gone")->steps.number, 0, CONN + 1, name, &shape, NULL, 1, PD_F32), PD_OK);
    rig_free(&r);
}

TEST(sixty_three_lost_ranks_leave_room_for_everybody)
{
    rig r;

    start(&r, LARGE);
    assert_int_equal(declare_some(&r, "large", 0, LARGE, LARGE, 1000), LARGE);
    for (uint32_t rank = 1; rank < LARGE; rank++) lose(&r, r.job, rank, 1000 + rank);
    rig_sleep(&r, PD_RESERVE_KEPT_S - 1);
    assert_int_equal(declare(&r, "other", 0, 1, OTHER), PD_RESOURCE_EXHAUSTED);
    rig_sleep(&r, 1);
    assert_int_equal(r.store->ingest.reserved, FRAME);
    assert_int_equal(r.store->ingest.n_ranks, 1);
    assert_int_equal(declare_some(&r, "others", 0, LARGE - 1, LARGE - 1, 2000), LARGE - 1);
    rig_free(&r);
}

TEST(a_rank_that_comes_back_soon_finds_its_reserve)
{
    rig r;

    start(&r, 2);
    assert_int_equal(declare_some(&r, "job", 0, 2, 2, CONN), 2);
    lose(&r, r.job, 1, CONN + 1);
    rig_sleep(&r, PD_RESERVE_KEPT_S - 1);
    assert_int_equal(declare(&r, "other", 0, 1, OTHER), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(declare(&r, "job", 1, 2, CONN + 2), PD_OK);
    rig_sleep(&r, PD_RESERVE_KEPT_S);
    assert_int_equal(r.store->ingest.reserved, 2 * FRAME);
    rig_free(&r);
}

TEST(a_rank_that_comes_back_late_gets_its_reserve_again)
{
    rig r;

    start(&r, 2);
    assert_int_equal(declare_some(&r, "job", 0, 2, 2, CONN), 2);
    lose(&r, r.job, 1, CONN + 1);
    rig_sleep(&r, PD_RESERVE_KEPT_S);
    assert_int_equal(r.store->ingest.reserved, FRAME);
    assert_int_equal(declare(&r, "job", 1, 2, CONN + 2), PD_OK);
    assert_int_equal(r.store->ingest.reserved, 2 * FRAME);
    rig_free(&r);
}

/* Two of four ranks have lost their reserves, and another job has one of them. The first rank that comes back does not
 * take the other one: it takes both when both are free. */
TEST(lost_ranks_take_their_reserves_again_together)
{
    uint32_t other;
    rig r;

    start(&r, 4);
    assert_int_equal(declare_some(&r, "job", 0, 4, 4, CONN), 4);
    for (uint32_t rank = 2; rank < 4; rank++) lose(&r, r.job, rank, CONN + rank);
    rig_sleep(&r, PD_RESERVE_KEPT_S);
    assert_int_equal(declare(&r, "other", 0, 1, OTHER), PD_OK);
    other = r.job;
    assert_int_equal(declare(&r, "job", 2, 4, CONN + 12), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(r.store->ingest.reserved, 3 * FRAME);
    leave(&r, other, 0, OTHER);
    assert_int_equal(declare(&r, "job", 2, 4, CONN + 22), PD_OK);
    assert_int_equal(r.store->ingest.reserved, 4 * FRAME);
    assert_int_equal(declare(&r, "job", 3, 4, CONN + 13), PD_OK);
    rig_free(&r);
}

TEST(a_rank_that_leaves_gives_its_reserve_back)
{
    rig r;

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

TEST(what_a_rank_leaves_behind_counts_until_it_is_summed)
{
    uint32_t job;
    rig r;

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
    /* the reserves of rank 1, which is connected, and of rank 0, which its launch starts again */
    assert_int_equal(r.store->ingest.reserved, 2 * FRAME);
    rig_free(&r);
}

/* Rank 0 is within its quota until the six ranks of another job declare. Then the frame of rank 0 is summed at once,
 * because the loop thread may have stopped reading from rank 0 already. */
TEST(a_rank_that_others_press_is_summed)
{
    rig r;

    start(&r, 8);
    with_a_frame_held(&r);
    assert_int_equal(r.bytes_out[CONN], FRAME);
    for (uint32_t rank = 0; rank < 6; rank++) assert_int_equal(declare(&r, "other", rank, 6, OTHER + rank), PD_OK);
    rig_work(&r);
    assert_int_equal(r.bytes_out[CONN], 0);
    rig_free(&r);
}

TEST(a_dropped_job_gives_all_back)
{
    pd_request *request;
    rig r;

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

static void take_roles(rig *r, const char *text)
{
    pd_request *request = pd_request_new(PD_REQ_ROLES, (pd_ticket){ 0, 0 });

    assert_int_equal(pd_roles_parse(&request->u.roles, text, strlen(text), "roles", NULL), PD_OK);
    pd_store_apply(r->store, request, r->now);
}

TEST(one_identitys_jobs_leave_room_for_anothers)
{
    rig r;

    start(&r, LARGE);
    take_roles(&r, "* push *\n");
    r.identity = "token:a";
    assert_int_equal(declare(&r, "a1", 0, 20, CONN), PD_OK);
    assert_int_equal(declare(&r, "a2", 0, 13, CONN + 1), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "job a2: its 13 ranks, with frames of up to 4096 bytes, need 53248 more bytes "
                                         "of ingest budget, and the jobs of token:a may have 131072 together (ingest= "
                                         "of its quota in server.roles, else half of limits.ingest_bytes)"));
    assert_int_equal(declare(&r, "a3", 0, 12, CONN + 2), PD_OK);
    r.identity = "token:b";
    assert_int_equal(declare(&r, "b", 0, 32, OTHER), PD_OK);
    rig_free(&r);
}

TEST(a_quota_says_what_an_identity_may_reserve)
{
    rig r;

    start(&r, LARGE);
    take_roles(&r, "* push *\nquota token:a ingest=16k\nquota token:b ingest=256k\n");
    r.identity = "token:a";
    assert_int_equal(declare(&r, "a", 0, 5, CONN), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(declare(&r, "a2", 0, 4, CONN + 1), PD_OK);
    r.identity = "token:b";
    assert_int_equal(declare(&r, "b", 0, LARGE - 4, OTHER), PD_OK);
    take_roles(&r, "* push *\n"); /* token:b has more than half of the budget now: it keeps that, and gets no more */
    assert_int_equal(r.store->ingest.reserved, LARGE * FRAME);
    leave(&r, inside_find(r.store, "a2")->steps.number, 0, CONN + 1);
    assert_int_equal(declare(&r, "b2", 0, 1, OTHER + 1), PD_RESOURCE_EXHAUSTED);
    rig_free(&r);
}

TEST(another_identitys_worker_counts_for_the_jobs_owner)
{
    rig r;

    start(&r, 4);
    take_roles(&r, "* push *\nquota token:b ingest=0\n");
    r.identity = "token:a";
    assert_int_equal(rig_hello(&r, "j", 0, 2, CONN, CONN, "job_linger=3600", "* sgd lr=1"), PD_OK);
    r.identity = "token:b";
    assert_int_equal(declare(&r, "j", 1, 2, CONN + 1), PD_OK);
    rig_free(&r);
}

enum { JOBS = 3, RANKS = 3, BUDGET = 7, TURNS = 6000 };

typedef struct seat {
    bool here, declared;
    uint64_t conn;
} seat;

/* Checks what the ranks of one job have reserved. Returns the sum. */
static uint64_t check_job(const pd_job *job, const seat seats[RANKS])
{
    uint64_t sum = 0;

    for (uint32_t k = 0; job != NULL && k < RANKS; k++) {
        const pd_quota *quota = &job->steps.quotas[k];
        sum += quota->reserved;
        assert_true(quota->reserved == 0 || quota->reserved == FRAME);
        if (seats[k].declared) assert_int_equal(quota->reserved, FRAME);
        if (job->ranks[k].state == PD_RANK_LEFT || job->connected == 0) assert_int_equal(quota->reserved, 0);
    }
    return sum;
}

/* Checks the sums of reserves. The loop thread counts the connections that have declared: they all have their reserve
 * in the store, so its sum never exceeds the store's. The store's sum exceeds neither the budget nor the share of the
 * identity which all these jobs belong to, or do not (`share` NULL). */
static void check_sums(const rig *r, const char *const *jobs, seat seats[JOBS][RANKS], const pd_ingest_share *share)
{
    uint64_t sum = 0;

    for (int j = 0; j < JOBS; j++) sum += check_job(inside_find(r->store, jobs[j]), seats[j]);
    assert_int_equal(sum, r->store->ingest.reserved);
    assert_int_equal(sum, r->store->ingest.n_ranks * FRAME);
    assert_true(sum <= r->store->config.ingest_bytes);
    if (share == NULL) return;
    assert_int_equal(sum, share->reserved);
    assert_true(sum <= share->limit);
}

/* A rank comes, and perhaps replaces a process that is connected as this rank. If it is taken and had no reserve, its
 * job has those of all ranks that have not left. Returns whether it is taken. */
static bool come(rig *r, const char *name_of_job, uint32_t rank, seat *at, uint64_t conn)
{
    const pd_job *job = inside_find(r->store, name_of_job);
    bool had = job != NULL && job->steps.quotas[rank].reserved > 0;
    int rc = declare(r, name_of_job, rank, RANKS, conn);

    assert_true(rc == PD_OK || rc == PD_RESOURCE_EXHAUSTED);
    *at = (seat){ true, rc == PD_OK, conn };
    job = inside_find(r->store, name_of_job);
    for (uint32_t k = 0; rc == PD_OK && !had && k < RANKS; k++)
        if (job->ranks[k].state != PD_RANK_LEFT) assert_int_equal(job->steps.quotas[k].reserved, FRAME);
    return rc == PD_OK;
}

static void go(rig *r, const pd_job *job, uint32_t rank, seat *at, bool leaves)
{
    if (leaves)
        leave(r, job->steps.number, rank, at->conn);
    else
        lose(r, job->steps.number, rank, at->conn);
    *at = (seat){ 0 };
}

static void run_at_random(const char *roles, uint64_t seed)
{
    static const char *const jobs[JOBS] = { "a", "b", "c" };
    seat seats[JOBS][RANKS] = { 0 };
    uint64_t conn = CONN, taken = 0, refused = 0;
    pd_owner *owner = NULL;
    rig r;

    start(&r, BUDGET);
    if (roles != NULL) take_roles(&r, roles);
    r.identity = roles != NULL ? "token:a" : NULL;
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t j = (uint32_t)(rig_random(&seed) % JOBS), rank = (uint32_t)(rig_random(&seed) % RANKS);
        seat *at = &seats[j][rank];
        uint64_t what = rig_random(&seed) % 4;
        if (!at->here || what == 0) {
            bool in = come(&r, jobs[j], rank, at, ++conn);
            taken += in;
            refused += !in;
        } else if (what < 3) {
            go(&r, inside_find(r.store, jobs[j]), rank, at, what == 1);
        }
        /* a job without workers and parameters ends; sometimes lost ranks lose their reserves */
        rig_sleep(&r, rig_random(&seed) % 8 == 0 ? PD_RESERVE_KEPT_S : 0.001);
        owner = roles != NULL ? pd_owner_find(&r.store->owners, "token:a") : NULL;
        check_sums(&r, jobs, seats, owner != NULL ? pd_owner_share(owner) : NULL);
    }
    assert_true(taken > TURNS / 20 && refused > TURNS / 20);
    rig_free(&r);
}

TEST(whatever_ranks_do_the_sums_of_reserves_are_right)
{
    for (uint64_t seed = 18; seed < 22; seed++) run_at_random(NULL, seed);
}

TEST(whatever_ranks_do_an_identity_keeps_to_its_share)
{
    for (uint64_t seed = 18; seed < 22; seed++) run_at_random("* push *\nquota * ingest=16k\n", seed);
}
