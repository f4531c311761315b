/* adasum.h - Adasum of k vectors: gradients that agree are averaged, gradients that are orthogonal are added.
 * Pure; any thread.
 *
 * Adasum: Maleki, Musuvathi, Mytkowicz, Saarikivi, Xu, Eksarevskiy, Ekanayake, Barsoum: Scaling distributed
 * training with adaptive summation (arXiv:2006.02924); in the two forms that Trax has had (trainer.py,
 * _average_multidevice_gradients):
 *
 *     tree    merge(a, b) = (1 - ab / (2 aa + 1e-30)) a + (1 - ab / (2 bb + 1e-30)) b, applied to vectors 0 and 1, 2 and 3, ...; then to the results of
 *             0 and 1, and so on. Trax exchanges in a butterfly: each replica merges with its partner. As merge(a, b) and merge(b, a) have the
 *             same bits, all replicas of a subtree hold the same, so one tree tells what all of them get, and the mean that Trax takes at the end is one of
 *             equal values: it changes nothing but, where their number times the value rounds, a last place. (In every recorded run of the butterfly, up to
 *             eight replicas, all replicas do hold equal values.) A number of vectors
 *             that is not a power of two, which Trax refuses (pd_adasum_is_exact), has the surplus folded in first: vector 2^L + r into vector r.
 *     vdot    sum over r of g_r (1 - (g_r s - g_r g_r) / (k g_r g_r)), s the sum of all. No epsilon: one vector of zeros makes the result NaN (0/0).
 *
 * Every result is a linear combination of the vectors, and the dot products that the upper merges need follow from
 * those of the vectors themselves. So eight vectors at a time are read twice: once for their dot products, once to
 * be combined. What is merged is never written down but once for every eight. Dot products and the combination are
 * in float64, rounded to float32 once. A merged vector that has cancelled to less than 1e-7 of its parts is taken
 * as orthogonal to everything, as a zero is: in float32 its direction is rounding. One vector is its own tree, to
 * the bit. NaN or infinity anywhere in one of several vectors makes the whole result NaN, by way of the dot
 * products.
 *
 * The work is cut into units of fixed ranges of elements, in passes that must follow each other. Bits depend on
 * the values alone: not on who runs which unit when, nor on how the vectors are cut into runs.
 *
 *     pd_adasum_begin(&a, PD_ADASUM_TREE, &vectors, n, to, scratch)
 *     while (pd_adasum_units(a) > 0) {
 *         each unit of [0, pd_adasum_units(a)), once, on any thread, in any order:  pd_adasum_unit(a, i)
 *         pd_adasum_turn(a)                                   the next pass
 *     }
 *     pd_adasum_end(a) */
#ifndef PD_ADASUM_H
#define PD_ADASUM_H

#include "sources.h"

typedef enum pd_adasum_form { PD_ADASUM_TREE, PD_ADASUM_VDOT } pd_adasum_form;
typedef struct pd_adasum pd_adasum;

/* The tree of k vectors is what Trax computes: k is a power of two. Others it refuses. */
bool pd_adasum_is_exact(int k);
/* Vectors of n float32 that the tree of k needs beside `to`: none up to eight (up to four where k is not a power
 * of two). */
int64_t pd_adasum_scratch_vectors(pd_adasum_form form, int k);

/* Plans the Adasum of v->k >= 1 vectors of n elements into to[0, n). scratch[i], i < pd_adasum_scratch_vectors,
 * are n floats each (NULL where there are none). Neither may overlap the vectors. Everything but *v and the array
 * `scratch`, which are copied, stays the caller's and in place until the end. PD_NO_MEMORY: nothing is planned.
 * The one allocation: a few bytes per thousand elements of the vectors. */
int  pd_adasum_begin(pd_adasum **out, pd_adasum_form form, const pd_vectors *v, int64_t n, float *to, float *const *scratch);
void pd_adasum_end(pd_adasum *a);                       /* NULL is fine */

/* Units of this pass; 0: `to` is finished. */
int64_t pd_adasum_units(const pd_adasum *a);
/* An estimate for one unit of this pass, on one core. */
double  pd_adasum_unit_ns(const pd_adasum *a);
void    pd_adasum_unit(pd_adasum *a, int64_t i);
/* One thread, after all units of the pass. */
void    pd_adasum_turn(pd_adasum *a);
/* After the last pass: every element of `to` is finite. */
bool    pd_adasum_finite(const pd_adasum *a);

#endif
