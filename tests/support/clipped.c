/* clipped.c - runs a small job with one rank and four vectors, for tests of clipping. */
#include "clipped.h"

#include "counting_row.h"
#include "test.h"

const int64_t clipped_sizes[CLIPPED] = { 70, 3, 300, 1 };

static const pd_optimizer_ops **all_rows(void)
{
    static const char *const names[] = { "sgd", "adam", "shampoo", "scalable_shampoo" };
    static const pd_optimizer_ops *rows[8];

    for (int i = 0; i < 4; i++) rows[i] = pd_optim_find(names[i]);
    rows[4] = limited_row();
    rows[5] = values_row();
    rows[6] = &counting_row;
    return rows;
}

pd_store_config clipped_configuration(void)
{
    pd_store_config config = rig_config();

    config.rows = all_rows();
    return config;
}

int clipped_set_up(void **state)
{
    pd_store_config config = clipped_configuration();

    return rig_set_up_with(state, &config);
}

const pd_job_info *clipped_info(rig *r)
{
    return &rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0];
}

/* The elements lie in [-1, 1), so that steps of all optimizers stay finite. */
void clipped_gradient(uint32_t rank, uint64_t step, uint32_t param, float *out, int64_t n)
{
    uint64_t seed = 1 + param + 100 * step + 10000 * rank;

    for (int64_t i = 0; i < n; i++) out[i] = (float)((double)(int64_t)rig_random(&seed) * 0x1p-63);
}

void clipped_push_scaled(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step, uint32_t param, int64_t n,
                         float scale)
{
    float *g = malloc((size_t)n * sizeof *g);

    clipped_gradient(rank, step, param, g, n);
    for (int64_t i = 0; i < n; i++) g[i] *= scale;
    assert_int_equal(rig_push(r, job, rank, conn, step, param, g, n), PD_OK);
    free(g);
}

void clipped_push(rig *r, uint32_t job, uint64_t step, uint32_t param)
{
    clipped_push_scaled(r, job, 0, 10, step, param, clipped_sizes[param], 1);
}

void clipped_push_one(rig *r, uint32_t job, uint64_t step, uint32_t param, float value)
{
    float g[300] = { value };

    assert_int_equal(rig_push(r, job, 0, 10, step, param, g, clipped_sizes[param]), PD_OK);
}

void clipped_push_absent(rig *r, uint32_t job, uint64_t step, uint32_t param)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, 0, 10, step);

    rig_absent(frame, param);
    assert_int_equal(rig_send(r, frame), PD_OK);
}

uint32_t clipped_start(rig *r, const char *options, const char *rules)
{
    return rig_start(r, "job", 1, 10, clipped_sizes, CLIPPED, options, rules);
}

/* Sums the squares in long double, independently of the server's code. */
double clipped_norm(uint64_t step, uint32_t first, uint32_t end)
{
    long double sum = 0;

    for (uint32_t p = first; p < end; p++) {
        float g[300];
        clipped_gradient(0, step, p, g, clipped_sizes[p]);
        for (int64_t i = 0; i < clipped_sizes[p]; i++) sum += (long double)g[i] * g[i];
    }
    return (double)sqrtl(sum);
}

static double limit(const double *hyper)
{
    return hyper[pd_hypers_find(pd_optim_find("sgd"), "dampening")];
}

static pd_optimizer_ops sgd_called(const char *name)
{
    pd_optimizer_ops row = *pd_optim_find("sgd");

    row.name = name;
    return row;
}

const pd_optimizer_ops *limited_row(void)
{
    static pd_optimizer_ops row;

    row = sgd_called("limited");
    row.clip_norm = limit;
    return &row;
}

const pd_optimizer_ops *values_row(void)
{
    static pd_optimizer_ops row;

    row = sgd_called("values");
    row.takes_values = true;
    return &row;
}
