/* Tests that a log brings back steps that end in every way: taken, skipped, refused by the optimizer, without a
 * gradient. A job takes a random course, crashes after any step, and must have the image of the job that did not. */
#include "test.h"
#include "counting_row.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

WITH_THREADS();

enum { PARAMS = 4, WORLD = 2, SIZE = 3, STEPS = 10, CONN = 10 };
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SEEDS = 1 }; /* few cases, since sanitizers are slow */
#else
enum { SEEDS = 2 };
#endif

static const int64_t sizes[PARAMS] = { SIZE, SIZE, SIZE, SIZE };
static const char rules[] = "p3 adam;* counting";
#define LOG "durability=log checkpoint_every=100"

/* How the jobs of these tests differ. */
static const char *const options[] = {
    LOG,
    LOG " nonfinite_scope=job",
    LOG " nonfinite_scope=job clip_global_norm=2500",
    LOG " clip_global_norm=2500",
    LOG " skip_outlier=1 clip_global_norm=2500",
    LOG " aggregate=weighted_mean",
    LOG " aggregate=weighted_mean nonfinite_scope=job",
    LOG " aggregate=median",
};
enum { KINDS = sizeof options / sizeof options[0] };

typedef enum part { GIVEN, ABSENT, ABSENT_AT_RANK_1, SPOILED, HUGE_ } part;

typedef struct random_course {
    const char *options;
    uint64_t seed;
} random_course;

/* Returns what happens to a parameter in a step: in half of all steps its gradient is not simply there. */
static part part_of(const random_course *c, uint64_t step, uint32_t param)
{
    uint64_t drawn = c->seed * 1000003 + step * 1009 + param;
    unsigned n = (rig_random(&drawn), rig_random(&drawn) % 12);

    return n < 6 ? GIVEN : n < 8 ? ABSENT : n < 9 ? ABSENT_AT_RANK_1 : n < 10 ? SPOILED : HUGE_;
}

/* Returns the weight of all contributions to a step: 0 in one of four steps of a weighted mean. */
static double weight_of(const random_course *c, uint64_t step)
{
    uint64_t drawn = c->seed * 7919 + step;

    return (rig_random(&drawn), rig_random(&drawn)) % 4 == 0 ? 0 : 1 + (double)(step % 3);
}

static void push(rig *r, const random_course *c, uint32_t rank, uint64_t step, uint32_t param)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
    part what = part_of(c, step, param);
    float g = what == HUGE_ ? 2 * COUNTING_LIMIT : (float)(1 + param + 4 * step + rank),
          values[SIZE] = { g, what == SPOILED && rank == 1 ? INFINITY : g, -g };

    if (what == ABSENT || (what == ABSENT_AT_RANK_1 && rank == 1))
        rig_absent(frame, param);
    else
        rig_piece(frame, param, PD_F32, 0, SIZE, values);
    if (strstr(c->options, "weighted_mean") != NULL) rig_weight(frame, weight_of(c, step), false);
    if (rig_send(r, frame) != PD_OK) fail_msg("step %d: %s", (int)step, r->error.text);
}

static void take_step(rig *r, const random_course *c, uint64_t step)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (uint32_t param = 0; param < PARAMS; param++) push(r, c, rank, step, param);
    rig_work(r);
}

static pd_store_config config(void)
{
    pd_store_config config = durable_config();

    config.rows = counting_rows();
    return config;
}

typedef struct image {
    uint8_t *at;
    size_t bytes;
} image;

static image image_of(const rig *r)
{
    image out;
    pd_error err;

    if (pd_store_save_job(r->store, "job", &out.at, &out.bytes, &err) != PD_OK) fail_msg("%s", err.text);
    return out;
}

static void assert_image(const rig *r, const image *expected, const random_course *c, uint64_t step)
{
    image got = image_of(r);

    if (got.bytes != expected->bytes || memcmp(got.at, expected->at, got.bytes) != 0)
        fail_msg("\"%s\", seed %d: after step %d the job came back with another image", c->options, (int)c->seed,
                 (int)step);
    free(got.at);
}

/* Makes a job from the checkpoint and the log of another rig. */
static void come_back(rig *next, const rig *r)
{
    pd_store_config other = config();

    other.threads = 2;
    rig_new(next, &other);
    if (rig_restore(next, r) != PD_OK || rig_replay(next, r) != PD_OK) fail_msg("%s", next->error.text);
}

static void join(rig *r, const random_course *c)
{
    static const char *const names[PARAMS] = { "p0", "p1", "p2", "p3" };
    const pd_shape shape = { 1, { SIZE } }, shapes[PARAMS] = { shape, shape, shape, shape };

    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_int_equal(rig_hello(r, "job", rank, WORLD, CONN + rank, CONN + rank, c->options, rules), PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, CONN + rank, names, shapes, NULL, PARAMS, PD_F32), PD_OK);
    }
}

/* Brings the job back after a step, and at times lets it take the rest of the course: its images must be those of the
 * job that was not interrupted. */
static void crash_after(const rig *r, const random_course *c, uint64_t step, const image *images)
{
    rig next;

    come_back(&next, r);
    assert_image(&next, &images[step], c, step);
    if (step % 3 == c->seed % 3) {
        join(&next, c);
        for (uint64_t then = step + 1; then <= STEPS; then++) take_step(&next, c, then);
        assert_image(&next, &images[STEPS], c, STEPS);
    }
    rig_free(&next);
}

/* Ways in which rounds of a course have ended, as bits 1 << outcome. */
static unsigned outcomes_of(const rig *r)
{
    unsigned outcomes = 0;

    for (uint32_t param = 0; param < PARAMS; param++) outcomes |= 1u << rig_versions(r, r->job, param)->outcome;
    return outcomes;
}

/* Takes a course without a crash, and keeps the image after each step. Returns how its rounds ended. */
static unsigned take_all(const random_course *c, image images[STEPS + 1])
{
    pd_store_config plain = config();
    unsigned outcomes = 0;
    rig r;

    rig_new(&r, &plain);
    r.job = rig_start(&r, "job", WORLD, CONN, sizes, PARAMS, c->options, rules);
    for (uint64_t step = 1; step <= STEPS; step++) {
        take_step(&r, c, step);
        outcomes |= outcomes_of(&r);
        images[step] = image_of(&r);
    }
    rig_free(&r);
    return outcomes;
}

/* Takes the same course with a crash after each of its steps. */
static void check(const random_course *c, const image *images)
{
    pd_store_config plain = config();
    rig r;

    rig_new(&r, &plain);
    r.job = rig_start(&r, "job", WORLD, CONN, sizes, PARAMS, c->options, rules);
    for (uint64_t step = 1; step <= STEPS; step++) {
        take_step(&r, c, step);
        assert_int_equal(r.durable, step);
        assert_int_equal(r.disk->step, 0);
        crash_after(&r, c, step, images);
    }
    rig_free(&r);
}

TEST(a_log_brings_steps_back_however_they_ended)
{
    const unsigned all = 1u << PD_STEPPED | 1u << PD_SKIPPED | 1u << PD_NO_GRADIENT | 1u << PD_REFUSED;

    for (int kind = 0; kind < KINDS; kind++) {
        unsigned outcomes = 0;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            random_course c = { options[kind], seed };
            image images[STEPS + 1] = { 0 };
            outcomes |= take_all(&c, images);
            check(&c, images);
            for (uint64_t step = 1; step <= STEPS; step++) free(images[step].at);
        }
        if (outcomes != all) fail_msg("\"%s\": rounds ended in the ways %x, not %x", options[kind], outcomes, all);
    }
}
