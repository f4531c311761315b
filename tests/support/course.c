/* course.c - trains a job of three parameters and three ranks over a number of steps, always with the same numbers. */
#include "course.h"

#include "rig.h"
#include "store_inside.h"
#include "test.h"

static const char *const names[COURSE_PARAMS] = { "layer.weight", "layer.bias", "head.bias" };
static const pd_shape shapes[COURSE_PARAMS] = { { 2, { 24, 20 } }, { 1, { 150 } }, { 1, { 96 } } };
static const int64_t sizes[COURSE_PARAMS] = { 480, 150, 96 };
static const rig_range ranges[COURSE_WORLD][COURSE_PARAMS] = { { { -1, 0 }, { -1, 0 }, { 0, 40 } },
                                                               { { -1, 0 }, { -1, 0 }, { 40, 96 } },
                                                               { { -1, 0 }, { -1, 0 }, { 30, 70 } } };

static void values_of(uint64_t seed, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)(int)(rig_random(&seed) % 2001 - 1000) / 1000;
}

void course_join(rig *r, const course *p)
{
    for (uint32_t rank = 0; rank < COURSE_WORLD; rank++) {
        if (rig_hello(r, "job", rank, COURSE_WORLD, COURSE_CONN + rank, COURSE_CONN + rank, p->options, p->rules) !=
            PD_OK)
            fail_msg("%s", r->error.text);
        r->ranges = p->ranged ? ranges[rank] : NULL;
        if (rig_declare(r, r->job, rank, COURSE_CONN + rank, names, shapes, NULL, COURSE_PARAMS,
                        rank == 1 ? PD_BF16 : PD_F32) != PD_OK)
            fail_msg("%s", r->error.text);
        r->ranges = NULL;
    }
}

/* Sends the rank's part of a parameter in frames, one for each chunk. */
static void course_send(rig *r, const course *p, pd_request_kind kind, uint32_t rank, uint32_t param, uint64_t step,
                        const float *values)
{
    bool part = p->ranged && ranges[rank][param].start >= 0;
    int64_t start = part ? ranges[rank][param].start : 0, end = part ? ranges[rank][param].end : sizes[param], stop;

    for (int64_t first = start; first < end; first = stop) {
        rig_frame *frame = rig_frame_new(r, kind, r->job, rank, COURSE_CONN + rank, step);
        stop = (first / r->chunk + 1) * r->chunk < end ? (first / r->chunk + 1) * r->chunk : end;
        rig_piece(frame, param, PD_F32, first, stop - first, values + first);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
}

void course_initialise(rig *r, const course *p)
{
    float values[COURSE_MOST];

    for (uint32_t param = 0; param < COURSE_PARAMS; param++) {
        bool all = p->ranged && ranges[0][param].start >= 0;
        values_of(param + 1, values, sizes[param]);
        for (uint32_t rank = 0; rank < (all ? COURSE_WORLD : 1); rank++)
            course_send(r, p, PD_REQ_INIT, rank, param, 0, values);
    }
    rig_work(r);
}

void course_push(rig *r, const course *p, uint32_t rank, uint32_t param, uint64_t step)
{
    float values[COURSE_MOST];
    uint64_t seed = step * 1000 + param * 10 + rank, drawn = seed;
    rig_frame *frame;

    if (p->absent && rig_random(&drawn) % 3 == 0) {
        frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, COURSE_CONN + rank, step);
        rig_absent(frame, param);
        assert_int_equal(rig_send(r, frame), PD_OK);
        return;
    }
    values_of(seed, values, sizes[param]);
    course_send(r, p, PD_REQ_PUSH, rank, param, step, values);
}

/* Sends push number k of the COURSE_WORLD * COURSE_PARAMS pushes of a step. The push is left out if its round has
 * closed, since the server has then answered it. */
void course_push_one(rig *r, const course *p, uint64_t step, uint32_t k)
{
    if (inside_job(r->store, r->job)->steps.params[k % COURSE_PARAMS].saved.step < step)
        course_push(r, p, k / COURSE_PARAMS, k % COURSE_PARAMS, step);
}

void course_operate(rig *r, const course *p, uint64_t step)
{
    if (!p->overrides || step != 5) return;
    assert_int_equal(rig_set(r, "job", "*", "lr=0.03", 0), PD_OK);
    assert_int_equal(rig_set(r, "job", "layer*", "lr=linear_warmup(peak=0.02,warmup_steps=50)", 20), PD_OK);
}

void course_step_to(rig *r, const course *p, uint64_t step, uint32_t pushes)
{
    for (uint32_t k = 0; k < pushes; k++) course_push_one(r, p, step, k);
    rig_work(r);
}

void course_compare_slots(const pd_optim *a, const pd_optim *b)
{
    const pd_plan *plan = pd_optim_plan(a);

    assert_int_equal(pd_optim_count(a), pd_optim_count(b));
    for (size_t i = 0; i < plan->n_slots; i++) {
        int64_t n;
        float *x, *y;
        if (plan->slots[i].temporary) continue;
        assert_int_equal(pd_shape_elements(&plan->slots[i].shape, &n), PD_OK);
        x = calloc((size_t)n, sizeof *x);
        y = calloc((size_t)n, sizeof *y);
        pd_optim_read_slot(a, i, x);
        pd_optim_read_slot(b, i, y);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
        free(x);
        free(y);
    }
}

void course_compare(rig *a, rig *b)
{
    for (uint32_t i = 0; i < COURSE_PARAMS; i++) {
        const pd_param *x = &inside_job(a->store, a->job)->steps.params[i],
                       *y = &inside_job(b->store, b->job)->steps.params[i];
        assert_int_equal(x->saved.step, COURSE_STEPS);
        assert_int_equal(y->saved.step, COURSE_STEPS);
        assert_int_equal(x->saved.skipped, y->saved.skipped);
        assert_memory_equal(x->current->at[PD_F32], y->current->at[PD_F32], (size_t)sizes[i] * sizeof(float));
        assert_memory_equal(x->current->at[PD_BF16], y->current->at[PD_BF16], (size_t)sizes[i] * 2);
        course_compare_slots(x->optim, y->optim);
    }
}
