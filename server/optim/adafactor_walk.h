/* adafactor_walk.h - visits the elements of an adafactor block in runs. A run is a contiguous row along the last
 * dimension. Each moment has either one element for the whole run, or one for each element of the run. Pure. */
#ifndef PD_ADAFACTOR_WALK_H
#define PD_ADAFACTOR_WALK_H

#include "adafactor_plan.h"
#include "convert.h"
#include "lanes.h"

enum { TILE = 1024, TOGETHER = 4 };
enum {
    OF_WEIGHTS,
    OF_UPDATE
}; /* indices of the two sums of squares of a group: of its weights, of its update. In the slot `limits` they are the
    * indices of the group's learning rate and clip factor */
enum { ROW, COL, GROUP, BOTH, TENSORS };

PD_INLINE float pd_rounded(float x)
{
    return pd_f32_from_bf16(pd_bf16_from_f32(x));
}

/* Returns x^(-1/2), rounded once: upstream computes it as one power, not as a square root and a division. */
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

/* Returns the groups' sums of squares in the block that this call processes. `which`: OF_WEIGHTS or OF_UPDATE. */
static inline double *pd_squares_of(const pd_unit *unit, int which)
{
    const pd_adafactor_own *own = unit->plan->own;
    return pd_slot_doubles(unit, own->squares) + (2 * unit->index + which) * own->groups;
}

typedef struct pd_walk {
    const pd_block *block;
    int rank;
    pd_over over[TENSORS];
    int64_t stride[PD_MAX_RANK];  /* strides of the parameter */
    int64_t index[PD_MAX_RANK];   /* index of the run in the block; always 0 in the last dimension */
    int64_t element, at[TENSORS]; /* offset of the run's first element: in the parameter, and in each tensor */
    int64_t n, tile;              /* n: elements of a run. tile: elements to process at once, which belong to one
                                   * group */
    int64_t step[TENSORS];        /* stride in each tensor from one element of the run to the next: 0 or 1 */
    bool still;                   /* true: the squares of this step have the weight 0 in the moments */
} pd_walk;

/* Returns the factor by which a step multiplies the old moments: b in v <- b v + (1 - b) s. */
float pd_adafactor_keep(const pd_unit *unit);

/* Begins a walk at the first run of a block. */
pd_walk pd_walk_of(const pd_plan *plan, const pd_block *block);
/* Moves the walk to the next run of the block. Returns false if there is none. */
bool pd_walk_on(pd_walk *w);

/* Returns whether both moments have one element for each element of a run. This is so if the last dimension belongs
 * to both. */
static inline bool pd_walk_is_single(const pd_walk *w)
{
    return w->step[ROW] != 0 && w->step[COL] != 0;
}

/* ---- several runs at once, so that more memory accesses are under way ---- */

/* Neighbouring runs. The moment `across_is` has one element for each element of a run, the same ones for all these
 * runs. The moment `along_is` has one element for each run. */
typedef struct pd_runs {
    int k;
    int64_t n;
    int64_t element[TOGETHER], group[TOGETHER];
    int64_t along[TOGETHER]; /* each run's element of the moment `along_is` */
    int64_t across;          /* the first of the shared elements of the moment `across_is` */
    int along_is, across_is; /* one is ROW and the other is COL */
} pd_runs;

/* Collects the next neighbouring runs of a walk into *r. Returns false if no run is left after these. */
bool pd_walk_gather(pd_walk *w, pd_runs *r);

static inline void pd_runs_of(const float **to, const pd_runs *r, const float *base)
{
    for (int j = 0; j < r->k; j++) to[j] = base + r->element[j];
}

/* ---- a part of a run ---- */

/* The moments that have one element for each element of a run: the column moment (ACROSS), the row moment (ALONG),
 * both (SINGLE), or the full moment of a parameter that is not factored (WHOLE). STILL: like WHOLE, in a step whose
 * squares have the weight 0 in the moment. */
typedef enum pd_layout { ACROSS, ALONG, SINGLE, WHOLE, STILL } pd_layout;

/* A part of a run with n elements, and what their update is computed from. */
typedef struct pd_stretch {
    pd_layout layout;
    int64_t n;
    const float *gradient, *before, *row, *col, *v;
    float *after, *m; /* m is NULL without momentum */
} pd_stretch;

/* Returns n elements of a run from its element i on, as a stretch. */
pd_stretch pd_stretch_of(const pd_unit *unit, const pd_walk *w, int64_t i, int64_t n);
/* Returns the sum of squares of the update, not clipped yet. The stretch has at most TILE elements and the layout
 * SINGLE, WHOLE or STILL. */
double pd_stretch_squares(const pd_stretch *s);

/* Returns the update of element i, not clipped yet. In the layout STILL the square of the gradient is multiplied by
 * 0 and added. So an infinite square makes the update NaN, as in upstream, although the state keeps the old moment. */
PD_INLINE float pd_update_of(const pd_stretch *s, pd_layout layout, int64_t i)
{
    if (layout == STILL) return s->gradient[i] * (1.0f / sqrtf(s->v[i] + 0.0f * (s->gradient[i] * s->gradient[i])));
    if (layout == WHOLE) return s->gradient[i] * (1.0f / sqrtf(s->v[i]));
    return s->gradient[i] * s->row[layout == ACROSS ? 0 : i] * s->col[layout == ALONG ? 0 : i];
}

#endif
