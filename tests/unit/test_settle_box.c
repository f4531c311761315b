/* Tests how the box of a handle carries tallies: alone, and with several handles over model shards that lose
 * connections, are killed and go back. */
#include "test.h"
#include "settle_box.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

WITH_THREADS();

enum { SHARDS = 3, BOXES = 2, KEPT = 8, GOAL = 80, WINDOW = 24, TALLY = 4, PATIENCE = 20000 };

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

/* Where a request of a core is. */
typedef enum stage { NONE, SENT, ANSWERED } stage;

/* What a core has sent to a shard, and the answer to its ask. */
typedef struct wire {
    bool up;
    stage ask, verdict;
    pd_settle_frame asked, given;
    uint64_t step; /* the answer to the ask: a tally, or that it is not kept */
    uint32_t phase;
    bool gone;
} wire;

/* A shard as the box sees it. It makes a tally as soon as the program has pushed, and goes on with each verdict. */
typedef struct model {
    uint64_t closed;
    uint32_t phase; /* the phase of step closed + 1 whose tally it makes next, or waits for */
    wire wires[BOXES];
} model;

/* What is done to the shards, one of so many turns of each kind; 0: never. */
typedef struct harms {
    uint64_t cuts, kills, renewals;
} harms;

typedef struct world {
    uint32_t boxes;
    pd_settle_box *box[BOXES];
    model shard[SHARDS];
    uint64_t pushed;  /* steps whose gradients the program has pushed to all shards */
    uint64_t durable; /* no shard goes back further */
    uint64_t seed;
} world;

static uint64_t draw(world *w, uint64_t n)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return w->seed % n;
}

static void start(world *w, uint64_t seed, uint32_t boxes)
{
    pd_error err;

    *w = (world){ .seed = seed * 977 + 1, .boxes = boxes };
    for (uint32_t b = 0; b < boxes; b++) assert_int_equal(pd_settle_box_new(&w->box[b], SHARDS, WINDOW, &err), PD_OK);
}

static void end(world *w)
{
    for (uint32_t b = 0; b < w->boxes; b++) pd_settle_box_free(w->box[b]);
}

static uint64_t slowest(const world *w)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < SHARDS; i++)
        if (w->shard[i].closed < least) least = w->shard[i].closed;
    return least;
}

static uint64_t fastest(const world *w)
{
    uint64_t most = 0;

    for (int i = 0; i < SHARDS; i++)
        if (w->shard[i].closed > most) most = w->shard[i].closed;
    return most;
}

static void cut(world *w, uint32_t b, uint32_t i)
{
    if (w->shard[i].wires[b].up) pd_settle_box_gone(w->box[b], i);
    w->shard[i].wires[b] = (wire){ .up = false };
}

/* Kills a shard, which comes back some steps earlier. It has the tallies of the steps that it has closed. */
static void kill_shard(world *w, uint32_t i)
{
    model *m = &w->shard[i];
    uint64_t back = draw(w, 3) == 0 ? draw(w, WINDOW) : draw(w, 4), most = fastest(w);

    if (most > WINDOW - 2 && w->durable < most - (WINDOW - 2)) w->durable = most - (WINDOW - 2);
    for (uint32_t b = 0; b < w->boxes; b++) cut(w, b, i);
    m->closed = m->closed > w->durable + back ? m->closed - back : w->durable;
    m->phase = 0;
}

/* Replaces the process of a box. Steps that only the old one could send again are durable. */
static void renew(world *w, uint32_t b)
{
    pd_error err;

    if (fastest(w) > slowest(w) + 1) return;
    w->durable = slowest(w);
    for (uint32_t i = 0; i < SHARDS; i++) cut(w, b, i);
    pd_settle_box_free(w->box[b]);
    assert_int_equal(pd_settle_box_new(&w->box[b], SHARDS, WINDOW, &err), PD_OK);
}

/* Sends what the box has for a core. */
static void send_some(world *w, uint32_t b, uint32_t i)
{
    wire *l = &w->shard[i].wires[b];

    if (!l->up) {
        l->up = true;
        pd_settle_box_joined(w->box[b], i, true, w->shard[i].closed);
    }
    if (pd_settle_box_next_ask(w->box[b], i, &l->asked)) l->ask = SENT; /* an answer to an earlier one is lost */
    if (l->verdict == NONE && pd_settle_box_next_verdict(w->box[b], i, &l->given)) l->verdict = SENT;
}

/* Lets the shard look at an ask, and answer it if it has made a tally at or after it. */
static void look_at_ask(const world *w, const model *m, wire *l)
{
    uint64_t newest = m->closed + 1;

    l->step = l->asked.step;
    l->phase = l->asked.phase;
    l->gone = newest > KEPT && l->step < newest - KEPT;
    if (l->phase >= phases_of(l->step)) {
        l->step++;
        l->phase = 0;
    }
    if (l->gone || l->step < newest || (l->step == newest && newest <= w->pushed && l->phase <= m->phase))
        l->ask = ANSWERED;
}

/* Lets the shard look at a verdict, and take it if it has made its tally. */
static void look_at_verdict(const world *w, model *m, wire *l)
{
    uint64_t step = l->given.step;
    uint32_t phase = l->given.phase;

    if (step > m->closed && (step > m->closed + 1 || step > w->pushed || phase > m->phase)) return;
    assert_int_equal(l->given.n, SHARDS);
    for (uint32_t s = 0; s < SHARDS; s++) {
        uint8_t bytes[TALLY];
        fill(bytes, s, step, phase);
        assert_int_equal(l->given.tallies[s].n, TALLY);
        assert_memory_equal(l->given.tallies[s].at, bytes, TALLY);
    }
    l->verdict = ANSWERED;
    if (step != m->closed + 1 || phase != m->phase) return;
    if (++m->phase < phases_of(step)) return;
    m->closed++;
    m->phase = 0;
}

/* Gives the box an answer that has come. */
static void receive(world *w, uint32_t b, uint32_t i)
{
    wire *l = &w->shard[i].wires[b];
    pd_error gone, err = { .code = PD_OK };
    uint8_t bytes[TALLY];

    fill(bytes, i, l->step, l->phase);
    pd_fail(&gone, PD_NOT_FOUND, "not kept");
    if (l->ask == ANSWERED && draw(w, 2) == 0) {
        l->ask = NONE;
        assert_int_equal(pd_settle_box_told(w->box[b], i, l->step, l->phase, (pd_tally_span){ bytes, TALLY },
                                            l->gone ? &gone : NULL, &err),
                         PD_OK);
    }
    if (l->verdict == ANSWERED && draw(w, 2) == 0) {
        l->verdict = NONE;
        assert_int_equal(pd_settle_box_taken(w->box[b], i, NULL, &err), PD_OK);
    }
}

/* Does one random thing that brings the steps on. The program pushes when it has the weights of all shards. */
static void turn(world *w)
{
    uint32_t i = (uint32_t)draw(w, SHARDS), b = (uint32_t)draw(w, w->boxes);
    wire *l = &w->shard[i].wires[b];

    if (draw(w, 8) == 0 && w->pushed < slowest(w) + 1) w->pushed = slowest(w) + 1;
    send_some(w, b, i);
    if (l->ask == SENT && draw(w, 2) == 0) look_at_ask(w, &w->shard[i], l);
    if (l->verdict == SENT && draw(w, 2) == 0) look_at_verdict(w, &w->shard[i], l);
    receive(w, b, i);
}

/* Does harm up to three times, with some turns between. */
static void disturb(world *w, const harms *harm)
{
    for (uint64_t times = 1 + draw(w, 3); times > 0; times--) {
        uint32_t i = (uint32_t)draw(w, SHARDS), b = (uint32_t)draw(w, w->boxes);
        if (harm->cuts > 0 && draw(w, harm->cuts) == 0) cut(w, b, i);
        if (harm->kills > 0 && draw(w, harm->kills) == 0) kill_shard(w, i);
        if (harm->renewals > 0 && draw(w, harm->renewals) == 0) renew(w, b);
        for (uint64_t turns = draw(w, 40); turns > 0; turns--) turn(w);
    }
}

/* Takes steps with harm between, until all shards have GOAL. Nothing else heals what the harm has done: after it, all
 * shards must come further than any has been. */
static void run(uint64_t seed, uint32_t boxes, harms harm)
{
    world w;

    start(&w, seed, boxes);
    while (slowest(&w) < GOAL) {
        uint64_t target = fastest(&w) + 1 + draw(&w, 3);
        int turns = 0;
        while (slowest(&w) < target && ++turns < PATIENCE) turn(&w);
        if (slowest(&w) < target)
            fail_msg("seed %llu, %u boxes: stuck at step %llu, others at %llu", (unsigned long long)seed, boxes,
                     (unsigned long long)slowest(&w), (unsigned long long)fastest(&w));
        disturb(&w, &harm);
    }
    end(&w);
}

TEST(steps_go_on_as_long_as_tallies_are_carried)
{
    for (uint64_t seed = 1; seed <= 50; seed++) run(seed, 1 + seed % BOXES, (harms){ 0 });
}

TEST(lost_connections_lose_no_verdict)
{
    for (uint64_t seed = 1; seed <= 200; seed++) run(seed, 1 + seed % BOXES, (harms){ .cuts = 2 });
}

TEST(a_shard_that_went_back_gets_the_verdicts_that_it_needs)
{
    for (uint64_t seed = 1; seed <= 400; seed++) run(seed, 1 + seed % BOXES, (harms){ .cuts = 4, .kills = 2 });
}

TEST(a_new_process_carries_what_the_old_one_has_left)
{
    for (uint64_t seed = 1; seed <= 400; seed++)
        run(seed, 1 + seed % BOXES, (harms){ .cuts = 4, .kills = 4, .renewals = 2 });
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

/* A shard that is killed while the worker leaves would else hold its Leave back for ever. */
TEST(a_shard_that_was_left_is_waited_for_no_more)
{
    int fd = eventfd(0, EFD_NONBLOCK);
    pd_settle_box *box;
    eventfd_t count;

    assert_int_equal(pd_settle_box_new(&box, 2, 0, NULL), PD_OK);
    pd_settle_box_joined(box, 0, false, 5);
    pd_settle_box_joined(box, 1, false, 5);
    pd_settle_box_wake(box, 1, fd);
    pd_settle_box_gone(box, 0);
    assert_false(pd_settle_box_all_here(box));
    assert_int_equal(eventfd_read(fd, &count), -1);
    pd_settle_box_left(box, 0);
    assert_true(pd_settle_box_all_here(box));
    assert_int_equal(eventfd_read(fd, &count), 0);
    pd_settle_box_wake(box, 1, -1);
    pd_settle_box_free(box);
    close(fd);
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

TEST(after_a_refusal_an_ask_for_a_later_tally_is_replaced)
{
    pd_settle_box *box = two();
    pd_settle_frame frame;
    pd_error no;

    pd_fail(&no, PD_INVALID_ARGUMENT, "another tally");
    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, true, 0);
    tell(box, 0, 1, 10);
    tell(box, 1, 1, 20);
    assert_int_equal(take(box, 0, 10, 20, NULL), PD_OK);
    assert_true(pd_settle_box_next_ask(box, 0, &frame)); /* the next step waits for the program's next push */
    assert_int_equal(frame.step * 10 + frame.phase, 11);
    assert_int_equal(take(box, 1, 10, 20, &no), PD_OK);
    tell(box, 0, 1, 10);
    tell(box, 1, 1, 21);
    assert_int_equal(take(box, 1, 10, 21, NULL), PD_OK);
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

/* Carries steps 1 to n, whose tallies are 10 and 20, to both shards. */
static void carry_steps(pd_settle_box *box, uint64_t n)
{
    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, true, 0);
    for (uint64_t step = 1; step <= n; step++) {
        tell(box, 0, step, 10);
        tell(box, 1, step, 20);
        for (uint32_t i = 0; i < 2; i++) assert_int_equal(take(box, i, 10, 20, NULL), PD_OK);
    }
}

TEST(the_last_verdict_stays_for_a_shard_that_goes_back_while_another_one_has_it)
{
    pd_settle_box *box = two();
    pd_settle_frame frame;
    pd_error err;

    carry_steps(box, 4);
    assert_true(pd_settle_box_next_ask(box, 0, &frame)); /* not answered before the program pushes step 5 */
    pd_settle_box_gone(box, 1);
    pd_settle_box_joined(box, 1, true, 2);
    for (uint64_t step = 3; step <= 4; step++) {
        assert_true(pd_settle_box_next_verdict(box, 1, &frame));
        assert_int_equal(frame.step, step);
        assert_int_equal(pd_settle_box_taken(box, 1, NULL, &err), PD_OK);
    }
    pd_settle_box_free(box);
}

TEST(verdicts_are_forgotten_when_all_shards_have_gone_back)
{
    pd_settle_box *box = two();
    pd_settle_frame frame;

    carry_steps(box, 4);
    for (uint32_t i = 0; i < 2; i++) {
        pd_settle_box_gone(box, i);
        pd_settle_box_joined(box, i, true, 2 + i);
    }
    assert_true(pd_settle_box_next_verdict(box, 0, &frame)); /* shard 1 has closed step 3 */
    assert_int_equal(frame.step, 3);
    assert_false(pd_settle_box_next_verdict(box, 1, &frame));
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(pd_settle_box_next_ask(box, i, &frame));
        assert_int_equal(frame.step * 10 + frame.phase, 31);
    }
    pd_settle_box_free(box);
}

TEST(an_old_verdict_is_given_only_while_a_shard_is_there_that_has_not_gone_back)
{
    for (uint64_t closed = 3; closed <= 4; closed++) {
        pd_settle_box *box = two();
        pd_settle_frame frame;
        carry_steps(box, 4);
        for (uint32_t i = 0; i < 2; i++) pd_settle_box_gone(box, i);
        pd_settle_box_joined(box, 1, true, 3);
        assert_false(pd_settle_box_next_verdict(box, 1, &frame)); /* shard 0 may have gone back, too */
        pd_settle_box_joined(box, 0, true, closed);
        assert_int_equal(pd_settle_box_next_verdict(box, 1, &frame), closed == 4);
        pd_settle_box_free(box);
    }
}

TEST(a_box_that_has_forgotten_begins_again_with_new_connections)
{
    pd_settle_box *box = two();
    pd_settle_frame frame;
    uint8_t old = 10;
    pd_error err;

    carry_steps(box, 4);
    assert_true(pd_settle_box_next_ask(box, 0, &frame));
    pd_settle_box_forget(box);
    assert_int_equal(pd_settle_box_told(box, 0, 5, 0, (pd_tally_span){ &old, 1 }, NULL, &err), PD_OK);
    for (uint32_t i = 0; i < 2; i++) assert_false(pd_settle_box_next_ask(box, i, &frame));
    for (uint32_t i = 0; i < 2; i++) pd_settle_box_gone(box, i);
    for (uint32_t i = 0; i < 2; i++) pd_settle_box_joined(box, i, true, 3);
    for (uint32_t i = 0; i < 2; i++) {
        assert_false(pd_settle_box_next_verdict(box, i, &frame));
        assert_true(pd_settle_box_next_ask(box, i, &frame));
        assert_int_equal(frame.step * 10 + frame.phase, 40);
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
