/* sim_quantized.c - follows what quantized pushes send and leave over. */
#include "sim_quantized.h"

#include "sim_judge.h"

/* Quantizes a block of up to PD_BLOCK elements: a scale for all of them, and a whole number for each. */
static void quantize_block(const float *x, float *value, int64_t n, float largest_code)
{
    float most = 0, scale;

    for (int64_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    scale = most / largest_code;
    for (int64_t i = 0; i < n; i++) {
        float code = scale > 0 ? nearbyintf(x[i] / scale) : 0;
        value[i] = fminf(fmaxf(code, -largest_code), largest_code) * scale;
    }
}

/* Quantizes a vector whose first element has this index: pieces end where chunks do, and begin with a block. */
static void quantize(const sim_history *h, const float *x, float *value, int64_t start, int64_t n)
{
    int64_t chunk = (int64_t)h->chunk;

    for (int64_t at = 0, end; at < n; at = end) {
        end = (start + at) / chunk * chunk + chunk - start;
        if (end > at + PD_BLOCK) end = at + PD_BLOCK;
        if (end > n) end = n;
        quantize_block(x + at, value + at, end - at, h->job->push_dtype == PD_INT8 ? 127 : 7);
    }
}

static float *new_vector(int64_t n)
{
    return sim_must(calloc((size_t)n + 1, sizeof(float)));
}

/* Keeps the values that a rank has sent. */
static void keep(sim_history *h, uint32_t rank, uint64_t step, uint32_t param, const float *values, int64_t n)
{
    sim_coded *coded;

    if (h->coded == NULL) h->coded = sim_must(calloc(1, sizeof *h->coded));
    coded = h->coded;
    if (coded->at[rank][step][param] == NULL) coded->at[rank][step][param] = new_vector(n);
    memcpy(coded->at[rank][step][param], values, (size_t)n * sizeof *values);
}

void sim_quantized_push(sim_history *h, sim_rests *rests, uint32_t rank, uint64_t step, uint32_t param,
                        const float *gradient, int64_t start, int64_t n)
{
    sim_side before = sim_enter(SIM_HARNESS);

    if (rests->rest[param] == NULL) {
        rests->rest[param] = new_vector(n);
        rests->sum[param] = new_vector(n);
        rests->sent[param] = new_vector(n);
    }
    for (int64_t i = 0; i < n; i++) rests->sum[param][i] = gradient[i] + rests->rest[param][i];
    quantize(h, rests->sum[param], rests->sent[param], start, n);
    rests->ended[param] = false;
    keep(h, rank, step, param, rests->sent[param], n);
    sim_enter(before);
}

void sim_quantized_end(const sim_job *job, sim_rests *rests, uint32_t param, int64_t n, int outcome)
{
    bool carries = outcome == PD_LATE && job->open.carries;

    if (rests->rest[param] == NULL || rests->ended[param] || (outcome != PD_STEPPED && !carries)) return;
    rests->ended[param] = true;
    for (int64_t i = 0; i < n; i++)
        rests->rest[param][i] = rests->sum[param][i] - (carries ? 0 : rests->sent[param][i]);
}

void sim_rests_free(sim_rests *rests)
{
    sim_side before = sim_enter(SIM_HARNESS);

    for (uint32_t p = 0; p < SIM_PARAMS; p++) {
        free(rests->rest[p]);
        free(rests->sum[p]);
        free(rests->sent[p]);
    }
    *rests = (sim_rests){ 0 };
    sim_enter(before);
}

bool sim_quantized_is_sent(const sim_history *h, uint32_t rank, uint64_t step, uint32_t param)
{
    return h->coded != NULL && h->coded->at[rank][step][param] != NULL;
}

const float *sim_quantized_of(const sim_history *h, uint32_t rank, uint64_t step, uint32_t param)
{
    const float *values = h->coded != NULL ? h->coded->at[rank][step][param] : NULL;

    if (values == NULL)
        sim_fail("whole", "%s rank %u counts with its push for step %llu, which it has not sent", h->job->name, rank,
                 (unsigned long long)step);
    return values;
}

void sim_quantized_free(sim_history *h)
{
    for (uint32_t rank = 0; h->coded != NULL && rank < SIM_WORLD; rank++)
        for (int step = 0; step < VERSIONS; step++)
            for (uint32_t p = 0; p < SIM_PARAMS; p++) free(h->coded->at[rank][step][p]);
    free(h->coded);
    h->coded = NULL;
}
