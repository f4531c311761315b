/* adafactor_walk.h - how the phases of adafactor go over a block: in runs, the elements of the last dimension,
 * which lie together, and of which each moment has either one element or as many, side by side. Pure. */
#ifndef PD_ADAFACTOR_WALK_H
#define PD_ADAFACTOR_WALK_H

#include "adafactor_plan.h"
#include "convert.h"
#include "clones.h"

enum { TILE = 1024, TOGETHER = 4 };
enum { OF_WEIGHTS, OF_UPDATE };             /* sums of squares; where a group's limits are, its rate and its clip */
enum { ROW, COL, GROUP, BOTH, TENSORS };

PD_INLINE float pd_rounded(float x) { return pd_f32_from_bf16(pd_bf16_from_f32(x)); }

/* x^(-1/2), rounded once: a power, as upstream has it, and not two operations. */
PD_INLINE float pd_inverse_root(float x) { return (float)(1 / sqrt((double)x)); }

static inline float *pd_slot_floats(const pd_unit *unit, int slot)   { return unit->slot[slot]; }
static inline double *pd_slot_doubles(const pd_unit *unit, int slot) { return (double *)unit->slot[slot]; }
static inline const pd_adafactor_own *pd_adafactor_own_of(const pd_unit *unit) { return unit->plan->own; }
static inline bool pd_adafactor_is_factored(const pd_unit *unit) { return pd_adafactor_own_of(unit)->factored; }
static inline bool pd_adafactor_is_scaled(const pd_unit *unit)   { return pd_adafactor_own_of(unit)->by_scale; }

/* Where the sums of a block (this unit's) for its groups are. */
static inline double *pd_squares_of(const pd_unit *unit, int which)
{
    const pd_adafactor_own *own = unit->plan->own;
    return pd_slot_doubles(unit, own->squares) + (2 * unit->index + which) * own->groups;
}

typedef struct pd_walk {
    const pd_block *block;
    int     rank;
    pd_over over[TENSORS];
    int64_t stride[PD_MAX_RANK];            /* in the parameter */
    int64_t index[PD_MAX_RANK];             /* in the block; of the last dimension always 0 */
    int64_t element, at[TENSORS];           /* where the run begins */
    int64_t n, tile;                        /* elements of a run; how many of them at most have all one group */
    int64_t step[TENSORS];                  /* from one element of the run to the next: 0 or 1 */
    bool    still;                          /* nothing of this step's squares gets into the moments */
} pd_walk;

/* The share of the moments that a step keeps. */
float pd_adafactor_keep(const pd_unit *unit);

/* At the first run of a block. */
pd_walk pd_walk_of(const pd_plan *plan, const pd_block *block);
/* To the next run. False: there is none. */
bool pd_walk_on(pd_walk *w);

/* A dimension that both moments have comes last: nothing of a run is shared. */
static inline bool pd_walk_is_single(const pd_walk *w) { return w->step[ROW] != 0 && w->step[COL] != 0; }

/* ---- several runs at once: more of memory is under way than with one ---- */

/* Runs side by side that share what one moment has for each of their elements. */
typedef struct pd_runs {
    int     k;
    int64_t n;
    int64_t element[TOGETHER], group[TOGETHER];
    int64_t along[TOGETHER];                /* the other moment's element for the whole run */
    int64_t across;                         /* where theirs begin */
    int     along_is, across_is;            /* ROW and COL, or the reverse */
} pd_runs;

/* The next ones, of a walk whose runs have one element of some moment. False: these were the last. */
bool pd_walk_gather(pd_walk *w, pd_runs *r);

static inline void pd_runs_of(const float **to, const pd_runs *r, const float *base)
{
    for (int j = 0; j < r->k; j++) to[j] = base + r->element[j];
}

typedef float  floats  __attribute__((vector_size(32), aligned(4)));
typedef double doubles __attribute__((vector_size(64)));

#define LOAD(at) (*(const floats *)(at))

PD_INLINE double sum_of(const doubles *x)
{
    double sum = 0;

    for (int lane = 0; lane < 8; lane++) sum += (*x)[lane];
    return sum;
}

/* ---- a part of a run ---- */

/* Which moments have an element for each of a run's: column, row, both, or the full one; STILL is WHOLE in a step
 * of which nothing gets into it. */
typedef enum pd_layout { ACROSS, ALONG, SINGLE, WHOLE, STILL } pd_layout;

/* Factors of the update of n elements of a run. */
typedef struct pd_stretch {
    pd_layout    layout;
    int64_t      n;
    const float *gradient, *before, *row, *col, *v;
    float       *after, *m;                 /* m NULL: no momentum */
} pd_stretch;

/* n elements of a run, from its element i on. */
pd_stretch pd_stretch_of(const pd_unit *unit, const pd_walk *w, int64_t i, int64_t n);
/* Sum of the squares of its update before the clip. At most TILE elements, of a layout SINGLE, WHOLE or STILL. */
double pd_stretch_squares(const pd_stretch *s);

/* The update before the clip, of element i. A square that is infinite makes NaN of a moment of which it is 0
 * parts, also where state keeps the old one. */
PD_INLINE float pd_update_of(const pd_stretch *s, pd_layout layout, int64_t i)
{
    if (layout == STILL) return s->gradient[i] * (1.0f / sqrtf(s->v[i] + 0.0f * (s->gradient[i] * s->gradient[i])));
    if (layout == WHOLE) return s->gradient[i] * (1.0f / sqrtf(s->v[i]));
    return s->gradient[i] * s->row[layout == ACROSS ? 0 : i] * s->col[layout == ALONG ? 0 : i];
}

#endif
