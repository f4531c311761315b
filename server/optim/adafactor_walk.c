/* adafactor_walk.c - visits the elements of a block of adafactor run by run; a run is a row of contiguous elements
 * along the last dimension. */
#include "adafactor_walk.h"

#include "kernels.h"

/* Returns the factor b = 1 - t^(-decay_rate) by which a step multiplies the old second moments, where t = step -
 * step_offset + 1 and `step` counts from 0. t, the power and the difference are each rounded to float32. */
float pd_adafactor_keep(const pd_unit *unit)
{
    float t = (float)(unit->count - 1 - (int64_t)unit->hyper[STEP_OFFSET]) + 1.0f;

    return 1.0f - (float)pow((double)t, -(double)(float)unit->hyper[DECAY_RATE]);
}

pd_walk pd_walk_of(const pd_plan *plan, const pd_block *block)
{
    int last = plan->shape.rank - 1;
    pd_walk w = { .block = block, .rank = plan->shape.rank, .n = block->size[last] };
    int64_t stride = 1;

    w.over[ROW] = pd_over_all_but(plan, PD_DIM_COLUMN);
    w.over[COL] = pd_over_all_but(plan, PD_DIM_ROW);
    w.over[GROUP] = pd_over_groups(plan);
    w.over[BOTH] = pd_over_both(plan);
    for (int d = last; d >= 0; d--) {
        w.stride[d] = stride;
        w.element += stride * block->start[d];
        stride *= plan->shape.dim[d];
    }
    for (int i = 0; i < TENSORS; i++) {
        w.at[i] = pd_over_first(&w.over[i], block, w.rank);
        w.step[i] = w.over[i].stride[last];
    }
    w.tile = w.step[GROUP] != 0 ? 1 : TILE;
    return w;
}

static void advance(pd_walk *w, int d, int64_t by)
{
    w->element += by * w->stride[d];
    for (int i = 0; i < TENSORS; i++) w->at[i] += by * w->over[i].stride[d];
}

/* Moves a walk to the next run of its block. Returns false after the last run. */
bool pd_walk_on(pd_walk *w)
{
    for (int d = w->rank - 2; d >= 0; d--) {
        advance(w, d, 1);
        if (++w->index[d] < w->block->size[d]) return true;
        advance(w, d, -w->block->size[d]);
        w->index[d] = 0;
    }
    return false;
}

/* Collects the next runs of a walk, at most TOGETHER, that use the same elements of one moment. This moment must have
 * an element for each element of a run, and the other moment a single element for the whole run. Returns false if no
 * run is left after these. */
bool pd_walk_gather(pd_walk *w, pd_runs *r)
{
    bool more;

    r->along_is = w->step[ROW] == 0 ? ROW : COL;
    r->across_is = r->along_is == ROW ? COL : ROW;
    r->k = 0;
    r->n = w->n;
    r->across = w->at[r->across_is];
    do {
        r->element[r->k] = w->element;
        r->group[r->k] = w->at[GROUP];
        r->along[r->k++] = w->at[r->along_is];
        more = pd_walk_on(w);
    } while (more && r->k < TOGETHER && w->at[r->across_is] == r->across);
    return more;
}

/* Returns n elements of a run, from its element i on, as a stretch: pointers to their gradients, weights and
 * moments. */
pd_stretch pd_stretch_of(const pd_unit *unit, const pd_walk *w, int64_t i, int64_t n)
{
    const pd_adafactor_own *own = unit->plan->own;
    const int64_t at = w->element + i;
    pd_stretch s = { .layout = w->still ? STILL : WHOLE,
                     .n = n,
                     .gradient = unit->gradient + at,
                     .before = unit->before + at,
                     .after = unit->after + at };

    if (own->m >= 0) s.m = pd_slot_floats(unit, own->m) + at;
    if (!pd_adafactor_is_factored(unit)) {
        s.v = pd_slot_floats(unit, own->v) + at;
        return s;
    }
    s.layout = pd_walk_is_single(w) ? SINGLE : w->step[ROW] == 0 ? ACROSS : ALONG;
    s.row = pd_slot_floats(unit, own->row_factors) + w->at[ROW] + i * w->step[ROW];
    s.col = pd_slot_floats(unit, own->col_factors) + w->at[COL] + i * w->step[COL];
    return s;
}

PD_INLINE void find_updates_as(const pd_stretch *s, pd_layout layout, float *restrict y)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < s->n; i++) y[i] = pd_update_of(s, layout, i);
}

/* Returns the sum of the squared updates of a stretch. The updates go to a
 * buffer of TILE elements first, so s->n must not exceed TILE. */
PD_CLONES(double, squares, (const pd_stretch *s), (s))
{
    float y[TILE];

    if (s->layout == WHOLE)
        find_updates_as(s, WHOLE, y);
    else if (s->layout == STILL)
        find_updates_as(s, STILL, y);
    else
        find_updates_as(s, SINGLE, y);
    return pd_sum_squares(y, s->n);
}

double pd_stretch_squares(const pd_stretch *s)
{
    return squares(s);
}
