/* Tests that the bytes which a Declare counts against max_total_bytes cover the memory of the job, and not much more.
 * This includes jobs of many small parameters. */
#include "test.h"
#include "version_table.h"
#include "conn.h"
#include "rig.h"

enum { CONN = 10, MOST = 300, STEPS = 2, CHUNK = 4096 };

typedef struct job_case {
    const char *rule, *options;
    uint32_t world, params;
    pd_shape shape;
    bool ranged;
    double most; /* upper bound of the ratio of counted bytes to allocated bytes */
} job_case;

static const job_case cases[] = {
    { "* sgd lr=0.1", NULL, 1, MOST, { 1, { 16 } }, false, 1.5 },
    { "* sgd lr=0.1", NULL, 8, MOST, { 1, { 16 } }, false, 1.5 },
    { "* sgd lr=0.1", NULL, 8, 1, { 1, { 16 } }, false, 1.5 },
    { "* sgd lr=0.1 momentum=0.9", NULL, 4, 20, { 2, { 200, 100 } }, false, 1.5 },
    { "* adam lr=0.1", NULL, 1, MOST, { 1, { 16 } }, false, 1.5 },
    { "* adam lr=0.1", "aggregate=median", 4, 100, { 1, { 100 } }, false, 2 },
    { "* adam lr=0.1", "aggregate=adasum", 4, 100, { 1, { 100 } }, false, 2 },
    { "* adam lr=0.1", "aggregate=radial_mean", 3, 100, { 1, { 100 } }, false, 2 },
    { "* adam lr=0.1", "aggregate=trimmed_mean trim=1", 5, 3, { 1, { 20000 } }, false, 2 },
    { "* sgd lr=0.1", "clip_global_norm=1", 2, MOST, { 1, { 16 } }, false, 1.5 },
    { "* sgd lr=0.1", NULL, 4, 100, { 1, { 64 } }, true, 1.5 },
    { "* shampoo lr=0.1 max_preconditioner_dim=4 root_delay=1", NULL, 1, 100, { 2, { 8, 8 } }, false, 2 },
    { "* shampoo lr=0.1 max_preconditioner_dim=64", NULL, 2, 10, { 2, { 100, 100 } }, false, 2 },
    { "* scalable_shampoo learning_rate=0.1 block_size=4", NULL, 1, 100, { 2, { 8, 8 } }, false, 2 },
    { "* kron learning_rate=0.1", NULL, 1, 100, { 2, { 8, 8 } }, false, 2 },
    { "* adafactor learning_rate=0.1", NULL, 1, 100, { 2, { 8, 8 } }, false, 2 },
};

static char texts[MOST][64];
static const char *names[MOST];

/* The memory that the loop thread keeps for a job: entries of the version table, and the declarations of each
 * connection. */
typedef struct loop_part {
    pd_version_table *versions;
    pd_handles handles[8];
} loop_part;

static void make_loop_part(loop_part *loop, const job_case *c)
{
    int64_t elements;

    pd_shape_elements(&c->shape, &elements);
    loop->versions = pd_version_table_new(&(pd_version_table_user){ 0 });
    assert_int_equal(pd_version_table_reserve(loop->versions, 1, c->params), PD_OK);
    for (uint32_t rank = 0; rank < c->world; rank++)
        for (uint32_t p = 0; p < c->params; p++)
            assert_int_equal(pd_handles_add(&loop->handles[rank],
                                            &(pd_param_decl){ .name = (char *)names[p], .shape = c->shape }, elements),
                             PD_OK);
}

static void free_loop_part(loop_part *loop)
{
    pd_version_table_free(loop->versions);
    for (size_t i = 0; i < sizeof loop->handles / sizeof *loop->handles; i++) pd_handles_free(&loop->handles[i]);
}

static void declare_all(rig *r, const job_case *c)
{
    static pd_shape shapes[MOST];
    static rig_range ranges[MOST];
    int64_t elements;

    pd_shape_elements(&c->shape, &elements);
    for (uint32_t rank = 0; rank < c->world; rank++) {
        for (uint32_t p = 0; p < c->params; p++) {
            shapes[p] = c->shape;
            ranges[p] = (rig_range){ elements / c->world * rank, elements / c->world * (rank + 1) };
        }
        assert_int_equal(rig_hello(r, "job", rank, c->world, CONN + rank, CONN + rank, c->options, c->rule), PD_OK);
        r->ranges = c->ranged ? ranges : NULL;
        if (rig_declare(r, r->job, rank, CONN + rank, names, shapes, NULL, c->params, PD_F32) != PD_OK)
            fail_msg("%s: %s", c->rule, r->error.text);
    }
}

/* Sends one frame for each chunk of the parameter that the rank's range touches. */
static void send_param(rig *r, const job_case *c, pd_request_kind kind, uint32_t rank, uint32_t p, uint64_t step)
{
    static float values[20000];
    int64_t elements, start = 0, end;

    pd_shape_elements(&c->shape, &elements);
    end = elements;
    if (c->ranged) start = elements / c->world * rank, end = elements / c->world * (rank + 1);
    rig_noise(7 + rank + step, values, elements);
    for (int64_t first = start, n; first < end; first += n) {
        rig_frame *frame = rig_frame_new(r, kind, r->job, rank, CONN + rank, step);
        n = end - first < CHUNK - first % CHUNK ? end - first : CHUNK - first % CHUNK;
        rig_piece(frame, p, PD_F32, first, n, values + first);
        if (kind == PD_REQ_PUSH)
            rig_hyper(frame, strstr(c->rule, "learning_rate") != NULL ? "learning_rate" : "lr", "0.05");
        rig_send(r, frame);
        if (r->error.code != PD_OK) fail_msg("%s: %s", c->rule, r->error.text);
    }
}

/* Takes one step with all ranks. Returns the peak of allocated bytes during the step, without the request frames. */
static int64_t step(rig *r, const job_case *c, uint64_t step)
{
    int64_t before = oom_live(), frames;

    for (uint32_t rank = 0; rank < c->world; rank++)
        for (uint32_t p = 0; p < c->params; p++) send_param(r, c, PD_REQ_PUSH, rank, p, step);
    frames = oom_live() - before;
    oom_forget_peak();
    rig_work(r);
    return oom_peak() - frames;
}

/* Returns the size of the test's own version table, which is no memory of the job. */
static int64_t rigs_own(const rig *r)
{
    return r->versions[r->job % RIG_JOBS] != NULL ? 4096 * (int64_t)sizeof(rig_entry) : 0;
}

/* Trains a job, and compares the counted bytes with the peak of those that are allocated. With `keeps` the job has a
 * checkpoint from its first step on, which stays with the checkpoint writer while the next step runs. */
static void check(const job_case *c, bool keeps)
{
    const pd_option every = { "checkpoint_every", "1" };
    pd_store_config config = rig_config();
    loop_part loop = { 0 };
    int64_t base, most = 0, peak, counted;
    rig r;

    config.chunk_elements = CHUNK;
    config.pool_threads = 1;
    config.keeps = keeps;
    config.job_presets = &every;
    config.n_job_presets = 1;
    rig_new(&r, &config);
    r.lazy_disk = true;
    base = oom_live();
    declare_all(&r, c);
    make_loop_part(&loop, c);
    for (uint32_t rank = 0; rank < (c->ranged ? c->world : 1); rank++)
        for (uint32_t p = 0; p < c->params; p++) send_param(&r, c, PD_REQ_INIT, rank, p, 0);
    rig_work(&r);
    for (uint64_t s = 1; s <= STEPS; s++) {
        peak = step(&r, c, s) - base - rigs_own(&r);
        if (peak > most) most = peak;
    }
    assert_true(keeps == (r.checkpointing != NULL));
    counted = (int64_t)rig_ask(&r, PD_INFO_JOBS, "job")->jobs[0].committed_bytes;
    free_loop_part(&loop);
    rig_free(&r);
    if (counted < most || (double)counted > (c->most + (keeps ? 0.5 : 0)) * (double)most)
        fail_msg("%s, %s, %u parameters of %u workers%s: %lld bytes counted, %lld allocated", c->rule,
                 c->options != NULL ? c->options : "no options", c->params, c->world, keeps ? ", with checkpoints" : "",
                 (long long)counted, (long long)most);
}

TEST(counted_bytes_cover_what_is_allocated)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i], false);
}

TEST(counted_bytes_cover_a_checkpoint)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i], true);
}

static int prepare(void **state)
{
    (void)state;
    for (int i = 0; i < MOST; i++) {
        snprintf(texts[i], sizeof texts[i], "model.layers.%d.self_attn.q_proj.weight", i);
        names[i] = texts[i];
    }
    return 0;
}

GROUP(prepare, NULL);
