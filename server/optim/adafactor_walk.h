/* adafactor_walk.h - visits the elements of a block of adafactor run by run. A run is a row of contiguous elements
 * along the last dimension. Each of the two moments (v_row and v_col) has either a single element for a whole run, or
 * one for each element of the run. Pure functions. */
#ifndef PD_ADAFACTOR_WALK_H
#define PD_ADAFACTOR_WALK_H

#include "adafactor_plan.h"
#include "convert.h"
#include "lanes.h"

enum { TILE = 1024, TOGETHER = 4 };
/* indices of the two numbers that a group (one of the independent tensors that a parameter may stack) has: in the slot
 * `squares`, the sums of squares of its weights and of its updates; in the slot `limits`, its learning rate and its
 * clip factor */
enum { OF_WEIGHTS, OF_UPDATE };
enum { ROW, COL, GROUP, BOTH, TENSORS };

PD_INLINE float pd_rounded(float x)
{
    return pd_f32_from_bf16(pd_bf16_from_f32(x));
}

/* Returns x^(-1/2), rounded to float32 only once, because T5X computes one power and not a root and a division. */
PD_INLINE float pd_inverse_root(float x)
{
    return (float)(1 / sqrt((double)x));
}

static inline float *pd_slot_floats(const pd_unit *unit, int slot)
{
    return unit->slot[slot];
}
static inline double *pd_slot_doubles(const pd_unit *unit, int slot)
{
    return (double *)unit->slot[slot];
}
static inline const pd_adafactor_own *pd_adafactor_own_of(const pd_unit *unit)
{
    return unit->plan->own;
}
static inline bool pd_adafactor_is_factored(const pd_unit *unit)
{
    return pd_adafactor_own_of(unit)->factored;
}
static inline bool pd_adafactor_is_scaled(const pd_unit *unit)
{
    return pd_adafactor_own_of(unit)->by_scale;
}

/* Returns the sums of squares of the block that this call processes: an array with one sum for each group. `which`:
 * OF_WEIGHTS for the squares of the weights, OF_UPDATE for those of the updates. */
static inline double *pd_squares_of(const pd_unit *unit, int which)
{
    const pd_adafactor_own *own = unit->plan->own;
    return pd_slot_doubles(unit, own->squares) + (2 * unit->index + which) * own->groups;
}

typedef struct pd_walk {
    const pd_block *block;
    int rank;
    pd_over over[TENSORS];
    /* distance in memory from one index to the next in each dimension of the parameter, in elements */
    int64_t stride[PD_MAX_RANK];
    /* index of the current run in each dimension of the block, from 0; always 0 in the
     * last dimension */
    int64_t index[PD_MAX_RANK];
    /* where the first element of the current run lies: `element` is its offset in the parameter, at[i] its offset in
     * tensor number i (ROW, COL, GROUP or BOTH) */
    int64_t element, at[TENSORS];
    /* n: number of elements in a run. tile: how many of them to process at once; they all belong to one group */
    int64_t n, tile;
    /* distance in each tensor from one element of a run to the next: 0 if the tensor has a single element for the whole
     * run, else 1 */
    int64_t step[TENSORS];
    /* whether this step's squared gradients have the weight 0 in the second moments */
    bool still;
} pd_walk;

/* Returns the factor by which a step multiplies the old second moments: b in v <- b v + (1 - b) s, where s is the
 * squared gradient plus epsilon1. */
float pd_adafactor_keep(const pd_unit *unit);

/* Begins a walk over a block: returns a position at the block's first run. */
pd_walk pd_walk_of(const pd_plan *plan, const pd_block *block);
/* Moves a walk to the next run of its block. Returns false after the last run. */
bool pd_walk_on(pd_walk *w);

/* Returns whether both moments (v_row and v_col) have one element for each element of a run. They do if both have the
 * last dimension. */
static inline bool pd_walk_is_single(const pd_walk *w)
{
    return w->step[ROW] != 0 && w->step[COL] != 0;
}

/* ---- several runs at once, so that more memory accesses are under way ---- */

/* Up to TOGETHER neighbouring runs that are processed together. The moment `across_is` has one element for each element
 * of a run, and all these runs use the same ones. The moment `along_is` has a single element for each run. */
typedef struct pd_runs {
    int k;
    int64_t n;
    int64_t element[TOGETHER], group[TOGETHER];
    /* for each run, the index of its single element in the moment `along_is` */
    int64_t along[TOGETHER];
    /* index in the moment `across_is` of the first element that all the runs use */
    int64_t across;
    /* `along_is`, `across_is`: one is the row moment (ROW), the other the column moment (COL) */
    int along_is, across_is;
} pd_runs;

/* Collects the next neighbouring runs from the position of a walk on, into *r. Returns false if no run is left after
 * these. */
bool pd_walk_gather(pd_walk *w, pd_runs *r);

static inline void pd_runs_of(const float **to, const pd_runs *r, const float *base)
{
    for (int j = 0; j < r->k; j++) to[j] = base + r->element[j];
}

/* ---- a part of a run ---- */

/* Which of a parameter's second moments have one element for each element of a run; the others have a single element
 * for the whole run:
 *
 * - ACROSS: only the column moment v_col has one for each element.
 * - ALONG: only the row moment v_row has.
 * - SINGLE: both have.
 * - WHOLE: the parameter is not factored, and has one full moment.
 * - STILL: like WHOLE, in a step whose squared gradients have the weight 0 in the moment. */
typedef enum pd_layout { ACROSS, ALONG, SINGLE, WHOLE, STILL } pd_layout;

/* A stretch: n contiguous elements of a run, with pointers to their gradients, old and new weights, momentum, and the
 * second moments from which their updates are computed. */
typedef struct pd_stretch {
    pd_layout layout;
    int64_t n;
    const float *gradient, *before, *row, *col, *v;
    float *after, *m; /* `after`: new weights; m: momentum, or NULL if there is none */
} pd_stretch;

/* Returns n elements of a run, from its element i on, as a stretch: pointers to their gradients, weights and
 * moments. */
pd_stretch pd_stretch_of(const pd_unit *unit, const pd_walk *w, int64_t i, int64_t n);
/* Returns the sum of the squared updates of a stretch, before clipping. The
 * stretch must have at most TILE elements and the layout SINGLE, WHOLE or STILL. */
double pd_stretch_squares(const pd_stretch *s);

/* Returns the update of element i of a stretch, before clipping.
 *
 * In the layout STILL the squared gradient has the weight 0 in the moment, but is multiplied by 0 and added here. So an
 * infinite square makes the update NaN, as in T5X, even if skip_nan_updates has kept the old moment in the state. */
PD_INLINE float pd_update_of(const pd_stretch *s, pd_layout layout, int64_t i)
{
    if (layout == STILL) return s->gradient[i] * (1.0f / sqrtf(s->v[i] + 0.0f * (s->gradient[i] * s->gradient[i])));
    if (layout == WHOLE) return s->gradient[i] * (1.0f / sqrtf(s->v[i]));
    return s->gradient[i] * s->row[layout == ACROSS ? 0 : i] * s->col[layout == ALONG ? 0 : i];
}

#endif
