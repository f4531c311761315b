/* exporting.c - makes the requests of an export and applies them to the rig. */
#include "exporting.h"

#include "rig.h"
#include "store_inside.h"
#include "test.h"

enum { MOST = 1 << 20 };

static const int64_t sizes[EXPORTING_PARAMS] = { 100, 70 };
static const char *const names[EXPORTING_PARAMS] = { "p0", "p1" };

pd_request *export_request(rig *r, const char *job, uint64_t conn, pd_export_act act)
{
    pd_request *request = pd_request_new(PD_REQ_EXPORT, rig_ticket(r, conn));

    request->u.export.act = act;
    request->u.export.job_name = strdup(job);
    request->u.export.by = strdup("admin@host:9");
    request->u.export.param = strdup("");
    request->u.export.slot = strdup("");
    request->u.export.number = request->u.export.block = -1;
    request->u.export.most = MOST;
    return request;
}

int export_begin(rig *r, const char *job, uint64_t conn, bool state, double wait_seconds)
{
    pd_request *request = export_request(r, job, conn, PD_EXPORT_BEGIN);

    request->u.export.state = state;
    request->u.export.wait_ns = (uint64_t)(wait_seconds * 1e9);
    return rig_apply(r, request);
}

int export_state(rig *r, const char *job, uint64_t conn, const char *param, const char *slot, int number, int block,
                 int64_t first, int64_t count)
{
    pd_request *request = export_request(r, job, conn, PD_EXPORT_PIECE);

    free(request->u.export.param);
    free(request->u.export.slot);
    request->u.export.param = strdup(param);
    request->u.export.slot = strdup(slot);
    request->u.export.number = number;
    request->u.export.block = block;
    request->u.export.first = first;
    request->u.export.count = count;
    return rig_apply(r, request);
}

int export_weights(rig *r, const char *job, uint64_t conn, const char *param, int64_t first, int64_t count)
{
    return export_state(r, job, conn, param, "", -1, -1, first, count);
}

int export_count(rig *r, const char *job, uint64_t conn, const char *param)
{
    pd_request *request = export_request(r, job, conn, PD_EXPORT_COUNT);

    free(request->u.export.param);
    request->u.export.param = strdup(param);
    return rig_apply(r, request);
}

int export_end(rig *r, const char *job, uint64_t conn)
{
    return rig_apply(r, export_request(r, job, conn, PD_EXPORT_END));
}

void export_lost(rig *r, uint64_t conn)
{
    pd_request *notice = pd_request_new(PD_REQ_LOST, (pd_ticket){ conn, 0 });

    snprintf(notice->u.lost.reason, sizeof notice->u.lost.reason, "test");
    rig_apply(r, notice);
}

exporting *exporting_start(const char *options, const char *rules)
{
    exporting *f = calloc(1, sizeof *f);
    pd_store_config config = rig_config();

    assert_non_null(f);
    rig_new(&f->r, &config);
    f->job = rig_start(&f->r, "j", EXPORTING_WORLD, EXPORTING_CONN, sizes, EXPORTING_PARAMS, options, rules);
    return f;
}

int exporting_set_up(void **state)
{
    *state = exporting_start(NULL, "* sgd lr=0.1 momentum=0.9");
    return 0;
}

int exporting_tear_down(void **state)
{
    exporting *f = *state;

    rig_free(&f->r);
    free(f);
    return 0;
}

pd_param *exporting_param_of(exporting *f, uint32_t param)
{
    return &inside_job(f->r.store, f->job)->steps.params[param];
}

uint64_t exporting_step_of(exporting *f, uint32_t param)
{
    return exporting_param_of(f, param)->saved.step;
}

void exporting_push(exporting *f, uint32_t rank, uint32_t param, uint64_t step)
{
    float gradient[EXPORTING_MOST];

    rig_noise(step * 100 + param * 10 + rank, gradient, sizes[param]);
    assert_int_equal(rig_push(&f->r, f->job, rank, EXPORTING_CONN + rank, step, param, gradient, sizes[param]), PD_OK);
}

void exporting_step_one(exporting *f, uint32_t param, uint64_t step)
{
    for (uint32_t rank = 0; rank < EXPORTING_WORLD; rank++) exporting_push(f, rank, param, step);
    rig_work(&f->r);
}

void exporting_step_all(exporting *f, uint64_t step)
{
    for (uint32_t param = 0; param < EXPORTING_PARAMS; param++) exporting_step_one(f, param, step);
}

void exporting_train(exporting *f, uint64_t steps)
{
    for (uint64_t step = 1; step <= steps; step++) exporting_step_all(f, step);
}

void exporting_copy_weights(exporting *f, uint32_t param, float *out)
{
    memcpy(out, exporting_param_of(f, param)->current->at[PD_F32], (size_t)sizes[param] * sizeof *out);
}

void exporting_assert_weights(exporting *f, uint32_t param, const float *expected)
{
    assert_int_equal(export_weights(&f->r, "j", EXPORTING_OPERATOR, names[param], 0, sizes[param]), PD_OK);
    assert_int_equal(f->r.exported.bytes, (size_t)sizes[param] * sizeof *expected);
    assert_memory_equal(f->r.exported.at, expected, f->r.exported.bytes);
}

bool exporting_is_answered(exporting *f, uint64_t before)
{
    return f->r.answered > before && f->r.answer == PD_EFF_EXPORT;
}

void exporting_begin(exporting *f, bool state)
{
    uint64_t before = f->r.answered;

    assert_int_equal(export_begin(&f->r, "j", EXPORTING_OPERATOR, state, 30), PD_OK);
    assert_true(exporting_is_answered(f, before));
}
