/* durable_job.c - a small job with checkpoints. */
#include "durable_job.h"

#include "rig.h"
#include "store_inside.h"
#include "test.h"

const int64_t durable_job_sizes[2] = { 200, 100 };

pd_store_config durable_config(void)
{
    pd_store_config config = rig_config();

    config.keeps = true;
    return config;
}

void durable_job_start(rig *r, const pd_store_config *config, const char *options)
{
    rig_new(r, config);
    rig_start(r, "job", 2, DURABLE_CONN, durable_job_sizes, 2, options, "* adam");
}

void durable_job_join(rig *r, const char *options)
{
    static const char *const names[] = { "p0", "p1" };
    const pd_shape shapes[] = { { 1, { durable_job_sizes[0] } }, { 1, { durable_job_sizes[1] } } };

    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig_hello(r, "job", rank, 2, DURABLE_CONN + rank, DURABLE_CONN + rank, options, "* adam"),
                         PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, DURABLE_CONN + rank, names, shapes, NULL, 2, PD_F32), PD_OK);
    }
}

void durable_job_push(rig *r, uint32_t rank, uint32_t param, uint64_t step)
{
    float values[256];

    rig_noise(step * 100 + rank * 10 + param, values, 256);
    assert_int_equal(rig_push(r, r->job, rank, DURABLE_CONN + rank, step, param, values, durable_job_sizes[param]),
                     PD_OK);
}

void durable_job_step_one(rig *r, uint32_t param, uint64_t step)
{
    for (uint32_t rank = 0; rank < 2; rank++) durable_job_push(r, rank, param, step);
    rig_work(r);
}

void durable_job_step(rig *r, uint64_t step)
{
    for (uint32_t param = 0; param < 2; param++)
        for (uint32_t rank = 0; rank < 2; rank++) durable_job_push(r, rank, param, step);
    rig_work(r);
}

/* Sends an import's request as an operator. */
static void import(rig *r, pd_import_act act, const char *param, int64_t value)
{
    pd_request *request = pd_request_new(PD_REQ_IMPORT, rig_ticket(r, DURABLE_CONN + 80));

    request->u.import.act = act;
    request->u.import.job_name = strdup("job");
    request->u.import.param = strdup(param);
    request->u.import.slot = strdup("");
    request->u.import.number = request->u.import.block = -1;
    request->u.import.value = value;
    request->u.import.partial = true;
    if (rig_apply(r, request) != PD_OK) fail_msg("%s", r->error.text);
}

void durable_job_import_count(rig *r)
{
    const char *name = inside_job(r->store, r->job)->steps.params[0].name;

    import(r, PD_IMPORT_BEGIN, "", 0);
    import(r, PD_IMPORT_COUNT, name, 100);
    import(r, PD_IMPORT_COMMIT, "", 0);
    rig_work(r);
}

uint64_t durable_job_step_of(const rig *r, uint32_t param)
{
    return inside_job(r->store, r->job)->steps.params[param].saved.step;
}
