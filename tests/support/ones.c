/* ones.c - trains a job with gradients of ones, so that the change of a weight shows which lr the step used. */
#include "ones.h"

#include "test.h"

const int64_t ones_sizes[3] = { 1, 1, 1 };

void ones_begin(ones *f, const char *rules, size_t params)
{
    pd_store_config config = rig_config();

    memset(f, 0, sizeof *f);
    rig_new(&f->r, &config);
    f->job = rig_start(&f->r, "job", 1, ONES_CONN, ones_sizes, params, NULL, rules);
}

double ones_step_with(ones *f, uint32_t param, const char *name, const char *value)
{
    float one = 1, before = rig_weights(&f->r, f->job, param)[0];
    rig_frame *frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, 0, ONES_CONN, ++f->step[param]);

    rig_piece(frame, param, PD_F32, 0, 1, &one);
    if (name != NULL) rig_hyper(frame, name, value);
    assert_int_equal(rig_send(&f->r, frame), PD_OK);
    rig_work(&f->r);
    assert_int_equal(f->r.versions[f->job % RIG_JOBS][param].step, f->step[param]);
    return (double)before - (double)rig_weights(&f->r, f->job, param)[0];
}

double ones_step(ones *f, uint32_t param)
{
    return ones_step_with(f, param, NULL, NULL);
}

void ones_set(ones *f, const char *pattern, const char *options, uint64_t from)
{
    if (rig_set(&f->r, "job", pattern, options, from) != PD_OK) fail_msg("%s", f->r.error.text);
}

void assert_near(double got, double expected, int line)
{
    if (!(fabs(got - expected) < 1e-5 * (fabs(expected) + 1)))
        fail_msg("line %d: the step is %g, expected %g", line, got, expected);
}
