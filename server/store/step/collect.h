/* collect.h - aggregates that need all contributions at once: collects them, makes the aggregate, and frees their
 * memory.
 *
 * Step thread. Median and trimmed mean need all contributions to an element, Adasum all to a parameter
 * (adasum_tree.h). So contributions wait, as long as memory allows in the frames they came in. Where a rank is over
 * its ingest quota (ingest.h), what it holds of chunks that still miss somebody is *spilled*: converted to float32
 * memory of its own, after which the frame goes home. So no order of parameters or arrivals can lock up. Every
 * element type converts to float32 exactly: both ways give the same bits. Spilled memory is given back when the
 * aggregate is made; the bytes that all ranks could spill were counted at Declare. Weights of pushes do not matter
 * here, nor whether a gradient is a sum.
 *
 * A robust aggregate is for workers that nobody trusts: whether a round is finite is judged by the result alone. */
#ifndef PD_COLLECT_H
#define PD_COLLECT_H

#include "adasum_tree.h"
#include "steps.h"

/* A piece of work for one thread. */
typedef struct pd_collect_unit {
    pd_adasum *adasum;          /* unit i of this; NULL: a mean, or a copy where k is 1 */
    int64_t    i;
    float     *to;              /* n elements: the mean without the `trim` smallest and largest of k sources */
    int64_t    n;
    size_t     first_source;
    int        k, trim;
    bool       finite;          /* out, of this */
} pd_collect_unit;

/* The effect of some units on one chunk. */
typedef struct pd_collect_pass {
    pd_chunk *chunk;
    float    *spill;            /* gets the contribution of `rank`; NULL: the chunk is aggregated */
    uint32_t  rank;
    int64_t   collected;        /* so many elements from the first have their aggregate afterwards */
    size_t    first_unit, n_units;
} pd_collect_pass;

/* The work of one batch; its memory is kept from batch to batch. Begins zeroed. */
typedef struct pd_collect_batch {
    pd_collect_pass *passes;  size_t n_passes, passes_room;
    pd_collect_unit *units;   size_t n_units, units_room;
    pd_source       *sources; size_t n_sources, sources_room;
    char            *scratch; size_t scratch_room, scratch_each;       /* each: of one thread */
    double           cost_ns;    /* estimate, of one core */
} pd_collect_batch;
void pd_collect_batch_free(pd_collect_batch *batch);      /* frees the arrays, not the struct */

/* Notes that a contribution to a chunk of a collected parameter was filed. */
void pd_collect_file(pd_steps *steps, pd_chunk *chunk);
/* Returns whether there is something to spill, or a chunk or parameter is complete. */
bool pd_collect_has_work(const pd_steps *steps);
/* Does some of that, as much as the budget allows but at least something; returns its cost. *starved: the parameter for
 * which memory was short, else NULL. */
double pd_collect_work(pd_steps *steps, double budget_ns, pd_param **starved);
/* Gives spilled memory back: nothing is collected any more. Frames are the caller's. */
void pd_collect_release(pd_param *param);

#endif
