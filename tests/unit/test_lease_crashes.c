/* Tests with random histories that each share of the data counts exactly once, although workers are killed, join, are
 * removed while they live, and the server crashes.
 *
 * A worker keeps its pushes, as a client with a resend window does, and says of which share each was made. A ledger has
 * the shares that have counted in each step, as reported. What it has of a step and of later ones is void once the step
 * is reported with other shares, which no worker may have seen otherwise. */
#include "test.h"
#include "elastic_job.h"
#include "durable_job.h"
#include "fragment.h"
#include "shares.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SEEDS = 4 }; /* few cases, since sanitizers are slow */
#else
enum { SEEDS = 40 };
#endif
enum { RANKS = 4, MOST = 4000, TURNS = 1200, PATIENCE = 200000 };
static const uint64_t none = UINT64_MAX;

/* A push of a worker. */
typedef struct sent {
    uint64_t step, share;
    bool answered;
} sent;

/* The worker that has a rank, or had it last. */
typedef struct worker {
    bool connected, declared;  /* declared: its Declare was answered */
    bool waits, unfiled, late; /* a push is under way; nothing was said of it yet; it was said to be late */
    bool known;                /* it knows the leases that it has, and what step it has seen */
    uint64_t nonce, conn, course, seen, until, share;
    pd_rank_leases brought; /* what answers on this connection bring from step brought.step on; n = 0: nothing */
    uint64_t away;          /* number of turns for which it does not come back */
    sent pushes[MOST];
    size_t n, next; /* number of pushes; index of the one that is under way, or that is sent next */
} worker;

/* What has counted in a step. */
typedef struct ledger {
    uint64_t shares[RANKS]; /* of each rank that has counted in the step; `none`: it has not */
    bool told;              /* the step was reported, in the course that the job has now */
} ledger;

typedef struct world {
    rig r;
    const char *options;
    uint64_t seed, names;    /* names: number of nonces and connections so far */
    uint64_t closed, course; /* step and course that were reported last */
    worker workers[RANKS];
    uint64_t filed[RANKS][MOST]; /* share of the rank's last push for the step that may count */
    ledger steps[MOST];
    uint32_t crashes, refused; /* refused: number of pushes of shares that were not leased any more */
} world;

static uint64_t draw(world *w, uint64_t n)
{
    return rig_random(&w->seed) % n;
}

/* ---- what workers learn ---- */

static void disconnect(worker *k)
{
    k->connected = k->declared = k->waits = false;
    k->brought.n = 0;
}

/* Lets a worker forget what it has seen: it takes the steps again from there on. */
static void begin_anew(worker *k)
{
    k->known = false;
    k->n = k->next = k->seen = 0;
    k->share = none;
}

static void on_declared(world *w, uint32_t rank, const pd_effect *effect)
{
    worker *k = &w->workers[rank];
    const pd_rank_leases *leases = &effect->u.declared.leases;
    uint64_t here = effect->u.declared.params[0].step;

    if (!k->known && leases->n == 0) {
        disconnect(k); /* the server repeats steps: it comes again */
        return;
    }
    if (leases->n > 0 && (!k->known || here >= k->seen)) k->share = leases->ranges[0].first;
    if (here > k->seen) k->seen = here;
    if (k->brought.n == 0) k->brought = *leases, k->brought.step = 0;
    k->known = k->declared = true;
    k->next = 0;
    while (k->next < k->n && k->pushes[k->next].answered && k->pushes[k->next].step <= here) k->next++;
}

/* Takes the answer to the push under way. Only the answer to a new push brings leases that count. */
static void answer(worker *k)
{
    sent *push = &k->pushes[k->next++];

    k->waits = false;
    if (!push->answered && k->brought.n > 0 && k->until >= k->brought.step) k->share = k->brought.ranges[0].first;
    push->answered = true;
    if (k->until > k->seen) k->seen = k->until;
}

static void look_at(world *w, uint32_t rank)
{
    worker *k = &w->workers[rank];

    if (k->waits && !k->unfiled && k->until <= w->closed) answer(k);
}

static void note(world *w, const pd_closed *closed)
{
    ledger *l = &w->steps[closed->step];
    ledger now = { .told = true };
    bool same;

    for (uint32_t r = 0; r < RANKS; r++) {
        uint32_t age = pd_counted_has(closed->counted, r) ? pd_counted_age(closed->counted, r) : 0;
        now.shares[r] = pd_counted_has(closed->counted, r) ? w->filed[r][closed->step - age] : none;
    }
    same = !l->told || memcmp(l->shares, now.shares, sizeof l->shares) == 0;
    for (uint32_t r = 0; !same && r < RANKS; r++)
        if (w->workers[r].connected && w->workers[r].known && w->workers[r].course == w->course &&
            w->workers[r].seen >= closed->step)
            fail_msg("step %d uses other shares than rank %d has seen", (int)closed->step, (int)r);
    for (uint64_t s = closed->step + 1; !same && s < MOST; s++) w->steps[s].told = false;
    *l = now;
}

static void on_closed(world *w, const pd_effect *effect)
{
    const pd_closed *closed = &effect->u.closed.at[0];

    if (effect->u.closed.course != 0) w->course = effect->u.closed.course;
    w->closed = closed->step;
    if (closed->outcome == 0) return;
    note(w, closed);
    for (uint32_t r = 0; r < RANKS; r++) {
        worker *k = &w->workers[r];
        if (k->waits && !k->unfiled && !k->late && k->until == closed->step && pd_counted_keeps(closed->counted, r))
            k->until++;
        look_at(w, r);
    }
}

static void on_filed(world *w, uint32_t rank, const pd_effect *effect)
{
    worker *k = &w->workers[rank];

    if (!k->waits) return;
    k->unfiled = false;
    k->late = effect->u.filed.how == PD_FILED_LATE;
    k->until = effect->u.filed.step;
    if (effect->u.filed.how == PD_FILED_FOR) w->filed[rank][k->pushes[k->next].step] = k->pushes[k->next].share;
    w->refused += k->late && k->until < k->pushes[k->next].step;
    look_at(w, rank);
}

static void watch(void *watcher, const pd_effect *effect)
{
    world *w = watcher;

    if (effect->kind == PD_EFF_CLOSED) on_closed(w, effect);
    if (effect->kind == PD_EFF_MEMBERS && effect->u.members.course != 0) w->course = effect->u.members.course;
    for (uint32_t r = 0; r < RANKS; r++) {
        worker *k = &w->workers[r];
        if (!k->connected || effect->ticket.conn != k->conn) continue;
        if (effect->kind == PD_EFF_DECLARED) on_declared(w, r, effect);
        if (effect->kind == PD_EFF_FILED) on_filed(w, r, effect);
        if (effect->kind == PD_EFF_LEASES) k->brought = effect->u.leases;
        if (effect->kind == PD_EFF_FENCED) disconnect(k);
    }
}

/* ---- what workers do ---- */

static void join(world *w, uint32_t rank)
{
    worker *k = &w->workers[rank];

    k->conn = ELASTIC_CONN + w->names++ % 400;
    w->r.seen = k->seen;
    w->r.course = k->course;
    w->r.window = MOST;
    k->connected = true;
    if (rig_hello(&w->r, "job", rank, RANKS, k->nonce, k->conn, w->options, "* sgd lr=1") != PD_OK)
        fail_msg("%s", w->r.error.text);
    if (!k->connected) return; /* the job takes another course since it has come, and sends it away */
    if (k->known && k->course != w->r.welcome_course) begin_anew(k);
    k->course = w->r.welcome_course;
    if (elastic_declare(&w->r, rank, k->conn) != PD_OK) fail_msg("%s", w->r.error.text);
}

/* Starts another process at a rank. */
static void start_process(world *w, uint32_t rank)
{
    worker *k = &w->workers[rank];

    memset(k, 0, sizeof *k);
    k->nonce = 1000 + w->names++;
    k->share = none;
}

static void lose(world *w, uint32_t rank)
{
    worker *k = &w->workers[rank];

    (void)rig_ask_as(&w->r, PD_REQ_LOST, rank, k->conn, 0);
    disconnect(k);
    k->away = draw(w, 60);
}

/* Kills the process of a rank, and starts another one. */
static void restart(world *w, uint32_t rank)
{
    lose(w, rank);
    start_process(w, rank);
}

/* Lets a worker send its next push: one again, or a new one of the share that it has. */
static void push(world *w, uint32_t rank)
{
    worker *k = &w->workers[rank];
    rig_frame *frame;
    float g[ELASTIC_N];

    if (k->next == k->n) {
        if (k->share == none || k->seen + 1 >= MOST || k->n == MOST) return;
        k->pushes[k->n++] = (sent){ k->seen + 1, k->share, false };
    }
    if (k->pushes[k->next].step > elastic_job(&w->r)->steps.fragments[0].fixed + 1) return;
    frame = rig_frame_new(&w->r, PD_REQ_PUSH, w->r.job, rank, k->conn, k->pushes[k->next].step);
    elastic_fill(g, 1);
    rig_piece(frame, 0, PD_F32, 0, ELASTIC_N, g);
    rig_share(frame, k->pushes[k->next].share);
    k->waits = k->unfiled = true;
    if (rig_send(&w->r, frame) != PD_OK) fail_msg("rank %d: %s", (int)rank, w->r.error.text);
}

static pd_store_config whole_chunks(void)
{
    pd_store_config config = durable_config();

    config.chunk_elements = 128; /* a parameter is one chunk */
    return config;
}

static void crash(world *w)
{
    pd_store_config config = whole_chunks();

    for (uint32_t r = 0; r < RANKS; r++) disconnect(&w->workers[r]);
    rig_crash(&w->r, &config);
    w->r.job = inside_find(w->r.store, "job")->steps.number;
    w->r.wants = 1;
    w->course = inside_find(w->r.store, "job")->saved.course;
    w->crashes++;
}

static void act(world *w)
{
    uint32_t rank = (uint32_t)draw(w, RANKS);
    worker *k = &w->workers[rank];
    uint64_t chance = draw(w, 200);

    if (k->away > 0)
        k->away--;
    else if (!k->connected)
        join(w, rank);
    else if (chance < 2)
        lose(w, rank);
    else if (chance < 4)
        restart(w, rank);
    else if (k->declared && !k->waits)
        push(w, rank);
    if (draw(w, 3) > 0) rig_work(&w->r);
    if (draw(w, 4) == 0) rig_sleep(&w->r, 0.05);
    while (w->r.n_logging > 0 && draw(w, 3) == 0) rig_write_record(&w->r);
    if (w->r.checkpointing != NULL && draw(w, 6) == 0) rig_write_checkpoint(&w->r);
    if (w->r.disk != NULL && draw(w, 80) == 0) crash(w);
}

/* Lets all workers go on without crashes until all shares that were given so far are used. */
static void settle(world *w)
{
    uint64_t given = pd_shares_counts(elastic_job(&w->r)->steps.shares).next;
    uint64_t turn = 0;

    while (pd_shares_least_unused(elastic_job(&w->r)->steps.shares) < given && turn++ < PATIENCE) {
        worker *k = &w->workers[turn % RANKS];
        if (!k->connected)
            join(w, turn % RANKS);
        else if (k->declared && !k->waits)
            push(w, turn % RANKS);
        rig_work(&w->r);
        rig_sleep(&w->r, 0.05);
        while (w->r.n_logging > 0) rig_write_record(&w->r);
        if (w->r.checkpointing != NULL) rig_write_checkpoint(&w->r);
    }
    if (turn >= PATIENCE)
        fail_msg("share %d is never used", (int)pd_shares_least_unused(elastic_job(&w->r)->steps.shares));
}

static void each_share_has_counted_once(const world *w)
{
    uint64_t below = pd_shares_least_unused(elastic_job(&w->r)->steps.shares);
    uint32_t *times = calloc(below + 1, sizeof *times);

    assert_non_null(times);
    for (uint64_t s = 1; s < MOST; s++)
        for (uint32_t r = 0; w->steps[s].told && r < RANKS; r++)
            if (w->steps[s].shares[r] < below) times[w->steps[s].shares[r]]++;
    for (uint64_t share = 0; share < below; share++)
        if (times[share] != 1) fail_msg("share %d has counted %u times", (int)share, times[share]);
    free(times);
}

static void initialise(world *w)
{
    static const float zeros[ELASTIC_N];

    rig_work(&w->r);
    assert_int_equal(rig_init(&w->r, w->r.job, w->workers[0].conn, 0, zeros, ELASTIC_N), PD_OK);
    rig_work(&w->r);
}

static void check(const char *options, uint64_t seed, uint32_t *crashes, uint32_t *refused)
{
    world *w = calloc(1, sizeof *w);
    pd_store_config config = whole_chunks();

    assert_non_null(w);
    w->options = options;
    w->seed = seed;
    elastic_set_options(options);
    rig_new(&w->r, &config);
    w->r.watch = watch;
    w->r.watcher = w;
    w->r.wants = 1;
    for (uint32_t r = 0; r < RANKS; r++) {
        start_process(w, r);
        join(w, r);
    }
    initialise(w);
    w->r.lazy_wal = w->r.lazy_disk = true;
    for (int turn = 0; turn < TURNS; turn++) act(w);
    settle(w);
    each_share_has_counted_once(w);
    *crashes += w->crashes;
    *refused += w->refused;
    rig_free(&w->r);
    free(w);
}

/* Checks histories of many seeds. `refuses`: in some, pushes come whose share is not leased to their rank any more. */
static void check_seeds(const char *options, bool refuses)
{
    uint32_t crashes = 0, refused = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) check(options, seed, &crashes, &refused);
    assert_true(crashes > SEEDS && (refused > 0 || !refuses || SEEDS < 40));
}

#define SHRINKS "min_workers=1 max_workers=4 reconnect_grace=1s checkpoint_every=8"

TEST(each_share_counts_once_with_checkpoints)
{
    check_seeds(SHRINKS, true);
}

TEST(each_share_counts_once_with_a_log)
{
    check_seeds(SHRINKS " durability=log", false);
}

TEST(each_share_of_a_quorum_counts_once_with_checkpoints)
{
    check_seeds(SHRINKS " rounds=quorum quorum=2 staleness=1", true);
}

TEST(each_share_of_a_quorum_counts_once_with_a_log)
{
    check_seeds(SHRINKS " rounds=quorum quorum=2 staleness=1 durability=log", false);
}
