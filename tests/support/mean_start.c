/* mean_start.c - starts a job with the mean of all ranks' weights. */
#include "mean_start.h"

#include "test.h"

const int64_t mean_sizes[MEAN_PARAMS] = { MEAN_SIZE, 5 };
const char *const mean_names[MEAN_PARAMS] = { "p0", "p1" };
const pd_shape mean_shapes[MEAN_PARAMS] = { { 1, { MEAN_SIZE } }, { 1, { 5 } } };

void mean_join(rig *r, uint32_t rank, uint64_t again, const char *options, pd_dtype pull)
{
    char text[200];

    snprintf(text, sizeof text, "initial_weights=mean %s", options != NULL ? options : "");
    assert_int_equal(rig_hello(r, "job", rank, MEAN_WORLD, 10 + rank + again, 10 + rank + again, text, "* sgd lr=1"),
                     PD_OK);
    assert_int_equal(rig_declare(r, r->job, rank, 10 + rank + again, mean_names, mean_shapes, NULL, MEAN_PARAMS, pull),
                     PD_OK);
}

void mean_join_all(rig *r, const char *options)
{
    for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) mean_join(r, rank, 0, options, PD_F32);
}

void mean_weights(uint32_t rank, uint32_t param, float *out)
{
    rig_noise(1 + rank + 10 * param, out, mean_sizes[param]);
}

int mean_send_chunk(rig *r, uint32_t rank, uint64_t again, uint32_t param, int64_t first)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, rank, 10 + rank + again, 0);
    float values[MEAN_SIZE];

    mean_weights(rank + (uint32_t)again, param, values);
    rig_piece(frame, param, PD_F32, first, mean_sizes[param] - first < 64 ? mean_sizes[param] - first : 64,
              values + first);
    return rig_send(r, frame);
}

void mean_send_param(rig *r, uint32_t rank, uint64_t again, uint32_t param)
{
    for (int64_t first = 0; first < mean_sizes[param]; first += 64)
        assert_int_equal(mean_send_chunk(r, rank, again, param, first), PD_OK);
}

void mean_send_all(rig *r, uint32_t rank, uint64_t again)
{
    for (uint32_t p = 0; p < MEAN_PARAMS; p++) mean_send_param(r, rank, again, p);
}

const pd_published *mean_published(const rig *r, uint32_t param)
{
    const rig_entry *versions = r->versions[r->job % RIG_JOBS];

    return versions != NULL ? versions[param].published : NULL;
}
