/* Tests how the box of a handle carries tallies: alone, and with several handles over model shards that lose
 * connections, are killed and go back. */
#include "test.h"
#include "settle_box.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { SHARDS = 3, BOXES = 2, KEPT = 8, GOAL = 80, WINDOW = 24, MOST_PHASES = 2, TALLY = 4 };

/* Steps that 3 divides have two phases. */
static uint32_t phases_of(uint64_t step)
{
    return step % 3 == 0 ? 2 : 1;
}

static void fill(uint8_t *tally, uint32_t shard, uint64_t step, uint32_t phase)
{
    tally[0] = (uint8_t)shard;
    tally[1] = (uint8_t)step;
    tally[2] = (uint8_t)phase;
    tally[3] = (uint8_t)(shard * 31 + step * 7 + phase);
}

/* What a core has sent to a shard and was not answered. */
typedef struct wire {
    bool up, asks, gives;
    pd_settle_frame ask, verdict;
} wire;

/* A shard as the box sees it. It has all contributions at once, and goes on with each verdict. */
typedef struct model {
    uint64_t closed;
    uint32_t phase; /* the phase of step closed + 1 whose tally it has made last */
    uint64_t oldest;
    uint64_t verdicts; /* number that it has taken */
    wire wires[BOXES];
} model;

typedef struct world {
    pd_settle_box *box[BOXES];
    model shard[SHARDS];
    uint64_t seed;
} world;

static uint64_t draw(world *w, uint64_t n)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return w->seed % n;
}

static void start(world *w, uint64_t seed)
{
    pd_error err;

    *w = (world){ .seed = seed * 977 + 1 };
    for (int b = 0; b < BOXES; b++) assert_int_equal(pd_settle_box_new(&w->box[b], SHARDS, WINDOW, &err), PD_OK);
    for (int i = 0; i < SHARDS; i++) w->shard[i].oldest = 1;
}

static void end(world *w)
{
    for (int b = 0; b < BOXES; b++) pd_settle_box_free(w->box[b]);
}

static void cut(world *w, int b, uint32_t i)
{
    if (w->shard[i].wires[b].up) pd_settle_box_gone(w->box[b], i);
    w->shard[i].wires[b] = (wire){ 0 };
}

/* Kills a shard, which comes back some steps earlier. */
static void kill_shard(world *w, uint32_t i)
{
    model *m = &w->shard[i];
    uint64_t back = draw(w, 6);

    for (int b = 0; b < BOXES; b++) cut(w, b, i);
    m->closed = m->closed > back ? m->closed - back : 0;
    m->phase = 0;
    m->oldest = m->closed + 1;
}

/* Sends what the box has for a core. */
static void send_some(world *w, int b, uint32_t i)
{
    wire *l = &w->shard[i].wires[b];

    if (!l->up) {
        l->up = true;
        pd_settle_box_joined(w->box[b], i, true, w->shard[i].closed);
    }
    if (!l->asks) l->asks = pd_settle_box_next_ask(w->box[b], i, &l->ask);
    if (!l->gives) l->gives = pd_settle_box_next_verdict(w->box[b], i, &l->verdict);
}

/* Answers an ask, if the shard has made a tally at or after it. */
static void answer_ask(world *w, int b, uint32_t i)
{
    model *m = &w->shard[i];
    wire *l = &m->wires[b];
    uint64_t step = l->ask.step, newest = m->closed + 1;
    uint32_t phase = l->ask.phase;
    pd_error gone, err = { .code = PD_OK };
    uint8_t bytes[TALLY];

    if (newest > KEPT && m->oldest < newest - KEPT) m->oldest = newest - KEPT;
    if (step < m->oldest) {
        pd_fail(&gone, PD_NOT_FOUND, "not kept");
        l->asks = false;
        assert_int_equal(pd_settle_box_told(w->box[b], i, 0, 0, (pd_tally_span){ NULL, 0 }, &gone, &err), PD_OK);
        return;
    }
    if (phase >= phases_of(step)) {
        step++;
        phase = 0;
    }
    if (step > newest || (step == newest && phase > m->phase)) return;
    fill(bytes, i, step, phase);
    l->asks = false;
    assert_int_equal(pd_settle_box_told(w->box[b], i, step, phase, (pd_tally_span){ bytes, TALLY }, NULL, &err), PD_OK);
}

/* Takes a verdict, if the shard has made its tally. */
static void take_verdict(world *w, int b, uint32_t i)
{
    model *m = &w->shard[i];
    wire *l = &m->wires[b];
    uint64_t step = l->verdict.step;
    uint32_t phase = l->verdict.phase;
    pd_error err = { .code = PD_OK };

    if (step > m->closed + 1 || (step == m->closed + 1 && phase > m->phase)) return;
    assert_int_equal(l->verdict.n, SHARDS);
    for (uint32_t s = 0; s < SHARDS; s++) {
        uint8_t bytes[TALLY];
        fill(bytes, s, step, phase);
        assert_int_equal(l->verdict.tallies[s].n, TALLY);
        assert_memory_equal(l->verdict.tallies[s].at, bytes, TALLY);
    }
    l->gives = false;
    assert_int_equal(pd_settle_box_taken(w->box[b], i, NULL, &err), PD_OK);
    if (step != m->closed + 1 || phase != m->phase) return;
    m->verdicts++;
    if (++m->phase < phases_of(step)) return;
    m->closed++;
    m->phase = 0;
}

/* Does one random thing. */
static void turn(world *w, uint64_t cuts, uint64_t kills)
{
    uint32_t i = (uint32_t)draw(w, SHARDS);
    int b = (int)draw(w, BOXES);

    if (cuts > 0 && draw(w, cuts) == 0) cut(w, b, i);
    if (kills > 0 && draw(w, kills) == 0) kill_shard(w, i);
    send_some(w, b, i);
    if (w->shard[i].wires[b].asks && draw(w, 2) == 0) answer_ask(w, b, i);
    if (w->shard[i].wires[b].gives && draw(w, 2) == 0) take_verdict(w, b, i);
}

static uint64_t slowest(const world *w)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < SHARDS; i++)
        if (w->shard[i].closed < least) least = w->shard[i].closed;
    return least;
}

static void run(uint64_t seed, uint64_t cuts, uint64_t kills)
{
    world w;
    int turns = 0;

    start(&w, seed);
    while (slowest(&w) < GOAL && ++turns < 200000) turn(&w, cuts, kills);
    if (slowest(&w) < GOAL)
        fail_msg("seed %llu: stuck at step %llu", (unsigned long long)seed, (unsigned long long)slowest(&w));
    end(&w);
}

TEST(steps_go_on_as_long_as_tallies_are_carried)
{
    for (uint64_t seed = 1; seed <= 50; seed++) run(seed, 0, 0);
}

TEST(lost_connections_lose_no_verdict)
{
    for (uint64_t seed = 1; seed <= 100; seed++) run(seed, 40, 0);
}

TEST(a_shard_that_went_back_gets_the_verdicts_that_it_needs)
{
    for (uint64_t seed = 1; seed <= 200; seed++) run(seed, 60, 300);
}

/* ---- one box by hand ---- */

static pd_settle_box *two(void)
{
    pd_settle_box *box;
    pd_error err;

    assert_int_equal(pd_settle_box_new(&box, 2, 0, &err), PD_OK);
    return box;
}

static void tell(pd_settle_box *box, uint32_t shard, uint64_t step, uint8_t value)
{
    pd_settle_frame frame;
    pd_error err;

    assert_true(pd_settle_box_next_ask(box, shard, &frame));
    assert_int_equal(frame.n, 0);
    assert_int_equal(pd_settle_box_told(box, shard, step, 0, (pd_tally_span){ &value, 1 }, NULL, &err), PD_OK);
}

static int take(pd_settle_box *box, uint32_t shard, uint8_t first, uint8_t second, const pd_error *refusal)
{
    pd_settle_frame frame;
    pd_error err;

    assert_true(pd_settle_box_next_verdict(box, shard, &frame));
    assert_int_equal(frame.tallies[0].at[0], first);
    assert_int_equal(frame.tallies[1].at[0], second);
    return pd_settle_box_taken(box, shard, refusal, &err);
}

TEST(nothing_is_asked_before_all_shards_have_joined_and_then_from_the_slowest_one_on)
{
    pd_settle_box *box = two();
    pd_settle_frame frame;

    pd_settle_box_joined(box, 0, true, 7);
    assert_false(pd_settle_box_next_ask(box, 0, &frame));
    pd_settle_box_joined(box, 1, true, 6);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(pd_settle_box_next_ask(box, i, &frame));
        assert_int_equal(frame.step, 7);
        assert_int_equal(frame.phase, 0);
        assert_false(pd_settle_box_next_ask(box, i, &frame)); /* one is under way */
    }
    pd_settle_box_free(box);
}

TEST(a_job_whose_steps_need_no_verdicts_is_asked_nothing)
{
    pd_settle_box *box = two();
    pd_settle_frame frame;

    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, false, 0);
    for (uint32_t i = 0; i < 2; i++) assert_false(pd_settle_box_next_ask(box, i, &frame));
    pd_settle_box_free(box);
}

TEST(the_other_cores_are_woken_when_a_verdict_is_there)
{
    pd_settle_box *box = two();
    int fd = eventfd(0, EFD_NONBLOCK);
    eventfd_t count;

    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, true, 0);
    pd_settle_box_wake(box, 0, fd);
    tell(box, 0, 1, 10);
    assert_int_equal(eventfd_read(fd, &count), -1);
    tell(box, 1, 1, 20);
    assert_int_equal(eventfd_read(fd, &count), 0);
    assert_int_equal(take(box, 0, 10, 20, NULL), PD_OK);
    assert_int_equal(take(box, 1, 10, 20, NULL), PD_OK);
    close(fd);
    pd_settle_box_free(box);
}

TEST(after_a_refusal_all_shards_are_asked_again)
{
    pd_settle_box *box = two();
    pd_settle_frame frame;
    pd_error no;

    pd_fail(&no, PD_INVALID_ARGUMENT, "another tally");
    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, true, 0);
    tell(box, 0, 1, 10);
    tell(box, 1, 1, 20);
    assert_int_equal(take(box, 0, 10, 20, NULL), PD_OK);
    assert_int_equal(take(box, 1, 10, 20, &no), PD_OK);
    tell(box, 0, 1, 10);
    tell(box, 1, 1, 21);
    assert_int_equal(take(box, 1, 10, 21, NULL), PD_OK);
    assert_false(pd_settle_box_next_verdict(box, 0, &frame)); /* it has taken the first one */
    pd_settle_box_free(box);
}

TEST(a_verdict_that_is_refused_again_and_again_ends_the_handle)
{
    pd_settle_box *box = two();
    pd_error no;
    int rc = PD_OK, times = 0;

    pd_fail(&no, PD_INVALID_ARGUMENT, "another one has come before");
    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, true, 0);
    while (rc == PD_OK && ++times < 100) {
        tell(box, 0, 1, 10);
        tell(box, 1, 1, 20);
        rc = take(box, 1, 10, 20, &no);
    }
    assert_int_equal(rc, PD_INVALID_ARGUMENT);
    assert_int_equal(times, 2 * PD_SETTLE_ATTEMPTS);
    pd_settle_box_free(box);
}

TEST(what_is_not_kept_any_more_was_carried_by_others)
{
    pd_settle_box *box = two();
    pd_settle_frame frame;
    pd_error gone, err;

    pd_fail(&gone, PD_NOT_FOUND, "not kept");
    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, true, 4);
    assert_true(pd_settle_box_next_ask(box, 0, &frame));
    assert_int_equal(frame.step, 5);
    assert_int_equal(pd_settle_box_told(box, 0, 0, 0, (pd_tally_span){ NULL, 0 }, &gone, &err), PD_OK);
    assert_true(pd_settle_box_next_ask(box, 0, &frame));
    assert_int_equal(frame.step, 6);
    pd_settle_box_free(box);
}

TEST(a_job_that_went_back_is_settled_anew)
{
    pd_settle_box *box = two();
    pd_settle_frame frame;

    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, true, 0);
    for (uint64_t step = 1; step <= 4; step++) {
        tell(box, 0, step, 10);
        tell(box, 1, step, 20);
        for (uint32_t i = 0; i < 2; i++) assert_int_equal(take(box, i, 10, 20, NULL), PD_OK);
    }
    for (uint32_t i = 0; i < 2; i++) pd_settle_box_gone(box, i);
    pd_settle_box_forget(box, 2);
    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, true, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_false(pd_settle_box_next_verdict(box, i, &frame));
        assert_true(pd_settle_box_next_ask(box, i, &frame));
        assert_int_equal(frame.step * 10 + frame.phase, 21); /* after step 2, phase 0 */
    }
    pd_settle_box_free(box);
}

TEST(the_text_names_the_shard_that_others_wait_for)
{
    pd_settle_box *box = two();
    char text[120];

    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, true, 0);
    assert_string_equal(pd_settle_box_text(box, text, sizeof text), "");
    tell(box, 0, 1, 10);
    assert_string_equal(pd_settle_box_text(box, text, sizeof text),
                        "shard 1 has given no tally of step 1 yet, others wait for it");
    tell(box, 1, 1, 20);
    assert_string_equal(pd_settle_box_text(box, text, sizeof text), "");
    pd_settle_box_free(box);
}

/* A core with a thread of its own, and its shard. */
typedef struct core {
    pd_settle_box *box;
    uint32_t shard;
    int fd;
    uint64_t closed;
    pthread_t thread;
} core;

enum { THREAD_STEPS = 400 };

/* Does what an I/O thread does: sends what the box has, takes the answers, sleeps until it is woken. */
static void *carry(void *arg)
{
    core *c = arg;
    pd_settle_frame frame;
    eventfd_t count;
    pd_error err;

    pd_settle_box_joined(c->box, c->shard, true, 0);
    while (c->closed < THREAD_STEPS) {
        bool asked = pd_settle_box_next_ask(c->box, c->shard, &frame), gave;
        uint8_t bytes[TALLY];
        if (asked) {
            fill(bytes, c->shard, frame.step + (frame.phase > 0), 0);
            pd_settle_box_told(c->box, c->shard, frame.step + (frame.phase > 0), 0, (pd_tally_span){ bytes, TALLY },
                               NULL, &err);
        }
        if ((gave = pd_settle_box_next_verdict(c->box, c->shard, &frame))) {
            c->closed = frame.step;
            pd_settle_box_taken(c->box, c->shard, NULL, &err);
        }
        if (!asked && !gave) eventfd_read(c->fd, &count);
    }
    return NULL;
}

TEST(cores_on_threads_of_their_own_carry_all_steps)
{
    pd_settle_box *box;
    core cores[SHARDS];
    pd_error err;

    assert_int_equal(pd_settle_box_new(&box, SHARDS, 0, &err), PD_OK);
    for (uint32_t i = 0; i < SHARDS; i++) {
        cores[i] = (core){ .box = box, .shard = i, .fd = eventfd(0, 0) };
        pd_settle_box_wake(box, i, cores[i].fd);
    }
    for (uint32_t i = 0; i < SHARDS; i++) assert_int_equal(pthread_create(&cores[i].thread, NULL, carry, &cores[i]), 0);
    for (uint32_t i = 0; i < SHARDS; i++) pthread_join(cores[i].thread, NULL);
    for (uint32_t i = 0; i < SHARDS; i++) close(cores[i].fd);
    pd_settle_box_free(box);
}
