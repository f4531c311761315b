/* elastic_job.c - a job whose workers join, are lost and come back. */
#include "elastic_job.h"

#include "durable_job.h"
#include "test.h"

static const char *const names[] = { "p" };
const pd_shape elastic_shape = { 1, { ELASTIC_N } };
static const char *with; /* options of the next Hellos */

void elastic_set_options(const char *options)
{
    with = options;
}

void elastic_new(rig *r, const char *options)
{
    pd_store_config config = durable_config();

    elastic_set_options(options);
    rig_new(r, &config);
}

void elastic_any_rank(rig *r, const char *options)
{
    elastic_new(r, options);
    r->any_rank = true;
}

void elastic_begin(rig *r, uint32_t world, const char *options)
{
    elastic_new(r, options);
    for (uint32_t rank = 0; rank < world; rank++) elastic_join(r, rank, world, ELASTIC_CONN + rank);
    elastic_init(r);
}

int elastic_hello(rig *r, uint32_t rank, uint32_t world, uint64_t nonce)
{
    return rig_hello(r, "job", rank, world, nonce, nonce, with, "* sgd lr=1");
}

int elastic_declare(rig *r, uint32_t rank, uint64_t nonce)
{
    return rig_declare(r, r->job, rank, nonce, names, &elastic_shape, NULL, 1, PD_F32);
}

void elastic_join(rig *r, uint32_t rank, uint32_t world, uint64_t nonce)
{
    if (elastic_hello(r, rank, world, nonce) != PD_OK || elastic_declare(r, r->rank, nonce) != PD_OK)
        fail_msg("rank %u: %s", rank, r->error.text);
}

void elastic_init(rig *r)
{
    static const float zeros[ELASTIC_N];

    assert_int_equal(rig_init(r, r->job, ELASTIC_CONN, 0, zeros, ELASTIC_N), PD_OK);
    rig_work(r);
}

void elastic_lose(rig *r, uint32_t rank, uint64_t conn)
{
    (void)rig_ask_as(r, PD_REQ_LOST, rank, conn, 0);
}

void elastic_fill(float g[ELASTIC_N], double value)
{
    for (int i = 0; i < ELASTIC_N; i++) g[i] = (float)value;
}

int elastic_push(rig *r, uint32_t rank, uint64_t conn, uint64_t step)
{
    float g[ELASTIC_N];
    int rc;

    elastic_fill(g, (double)(1 << rank));
    rc = rig_push(r, r->job, rank, conn, step, 0, g, ELASTIC_N);
    rig_work(r);
    return rc;
}

void elastic_push_half(rig *r, uint32_t rank, uint64_t conn, uint64_t step)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, conn, step);
    float g[ELASTIC_N];

    elastic_fill(g, (double)(1 << rank));
    rig_piece(frame, 0, PD_F32, 0, r->chunk, g);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
}

pd_job *elastic_job(const rig *r)
{
    return inside_job(r->store, r->job);
}

uint64_t elastic_step(rig *r)
{
    return rig_versions(r, r->job, 0)->step;
}

double elastic_weight(rig *r)
{
    return (double)rig_weights(r, r->job, 0)[ELASTIC_N - 1];
}

double elastic_moved(rig *r, double before)
{
    return before - elastic_weight(r);
}

void elastic_expect(const rig *r, int code, const char *part)
{
    if (r->error.code != code || strstr(r->error.text, part) == NULL)
        fail_msg("%d \"%s\" is not %d \"%s\"", r->error.code, r->error.text, code, part);
}

void elastic_check_image(rig *r)
{
    pd_store_config config = durable_config();
    uint8_t *image, *again;
    size_t n, m;
    pd_error err;
    rig next;

    rig_new(&next, &config);
    rig_work(r);
    assert_int_equal(pd_store_save_job(r->store, "job", &image, &n, &err), PD_OK);
    if (pd_store_load_job(next.store, image, n, next.now, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(pd_store_save_job(next.store, "job", &again, &m, &err), PD_OK);
    assert_int_equal(m, n);
    assert_memory_equal(image, again, n);
    assert_memory_equal(&inside_find(next.store, "job")->steps.members, &elastic_job(r)->steps.members,
                        sizeof(pd_rank_set));
    free(image);
    free(again);
    rig_free(&next);
}
