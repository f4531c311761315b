/* adasum.h - computes the Adasum of k vectors: gradients that agree are averaged, gradients that are orthogonal are
 * added; and their radial mean. Pure functions; any thread.
 *
 * Adasum: Maleki, Musuvathi, Mytkowicz, Saarikivi, Xu, Eksarevskiy, Ekanayake, Barsoum: Scaling distributed training
 * with adaptive summation (arXiv:2006.02924). Both forms of the library Trax (trainer.py,
 * _average_multidevice_gradients) are here. `ab` is the dot product of vectors a and b, and g_r is vector r of k:
 *
 *     tree  merge(a, b) = (1 - ab / (2 aa + 1e-30)) a + (1 - ab / (2 bb + 1e-30)) b
 *           It is applied to vectors 0 and 1, 2 and 3, ...; then to the results of 0 and 1, and so on.
 *     vdot  sum over r of g_r (1 - (g_r s - g_r g_r) / (k g_r g_r)), s is the sum of all vectors
 *           There is no epsilon: one vector of zeros makes the result NaN (0/0).
 *
 * In Trax each replica merges its vector with its partner's (a butterfly exchange). merge(a, b) and merge(b, a) have
 * the same bits, so all replicas get the same result, and computing one tree is enough. At the end Trax takes the mean
 * of the replicas' equal results. The mean differs from a result at most in the last bit.
 *
 * Trax refuses a number of vectors that is not a power of two (pd_adasum_is_exact). Here the surplus vectors are merged
 * first: vector 2^L + r is merged into vector r, where 2^L is the largest power of two below k.
 *
 * The radial mean (RDA) has the mean norm of the vectors and the direction of the mean of their directions. w_r is the
 * weight of vector r:
 *
 *     radial  (sum of w_r |g_r|) / (sum of w_r)  times  phi(sum of w_r phi(g_r)),  phi(g) = g / |g|,  phi(0) = 0
 *
 * How it is computed: every result is a linear combination of the vectors. The dot products of merged vectors follow
 * from the dot products of the vectors themselves. So eight vectors at a time are read twice: once for their dot
 * products, once to combine them. Only the combination of the eight is written to memory. Dot products and the
 * combination are computed in float64; the combination is rounded to float32 once. The radial mean reads the vectors
 * three times: for their norms, for the norm of the sum of their directions, and to combine them.
 *
 * Special cases:
 *
 *   - If two vectors nearly cancel (the norm of the merged vector is below 1e-7 of their norms), the merged vector
 *     counts as zero in later dot products: in float32 its direction would be nothing but rounding errors. So does
 *     the sum of directions in the radial mean: the result is then 0.
 *   - The Adasum tree of a single vector is that vector, bit for bit; and so is its radial mean, unless it is damped or
 *     presummed (pd_adasum_weigh).
 *   - NaN or infinity in one of several vectors makes the whole result NaN, because it enters the dot products.
 *
 * The computation consists of passes, one after the other. Each pass is cut into units, which are fixed ranges of
 * elements. The bits of the result depend on the values alone: not on which thread runs which unit and when, nor on how
 * the vectors are cut into runs (vector_runs.h).
 *
 *     pd_adasum_begin(&a, PD_ADASUM_TREE, &vectors, n, to, scratch)
 *     while (pd_adasum_units(a) > 0) {
 *         each unit of [0, pd_adasum_units(a)), once, on any thread, in any order:  pd_adasum_unit(a, i)
 *         pd_adasum_turn(a)                                   the next pass
 *     }
 *     pd_adasum_end(a) */
#ifndef PD_ADASUM_H
#define PD_ADASUM_H

#include "vector_runs.h"

typedef enum pd_adasum_form { PD_ADASUM_TREE, PD_ADASUM_VDOT, PD_RADIAL_MEAN_FORM } pd_adasum_form;
typedef struct pd_adasum pd_adasum;

/* Returns whether Trax accepts k vectors in the tree form, so that the results can be compared: k is a power of two. */
bool pd_adasum_is_exact(int k);
/* Returns the number of scratch vectors, each as long as the vectors, that the Adasum of k vectors needs besides the
 * result `to`. The tree form needs none for up to eight vectors. The other forms never need any. */
int64_t pd_adasum_scratch_vectors(pd_adasum_form form, int k);

/* Prepares the Adasum of v->k >= 1 vectors of n elements. The result will be in to[0, n). PD_NO_MEMORY: nothing is
 * prepared.
 *
 * `scratch` has pd_adasum_scratch_vectors elements, each a pointer to n floats; NULL if that number is 0. Neither `to`
 * nor the scratch vectors may overlap the vectors. *v and the array `scratch` are copied. The memory that they point to
 * must stay in place until pd_adasum_end. Allocates a few bytes per thousand elements of the vectors. */
int pd_adasum_begin(pd_adasum **out, pd_adasum_form form, const pd_vectors *v, int64_t n, float *to,
                    float *const *scratch);
/* The weight of a vector in the radial mean. */
typedef struct pd_vector_weight {
    double weight;  /* a number of examples, more than 0 */
    double damping; /* the weight is multiplied by this, because the vector is old: more than 0; 1: it is not old */
    bool presummed; /* the vector is a sum over its examples, and stands for this sum divided by `weight` */
} pd_vector_weight;
/* Sets the weight of vector r in the radial mean, before the first pass; without a call it is 1, not damped and not
 * presummed. A single vector is multiplied by its damping, as float32, because a mean would undo it. */
void pd_adasum_weigh(pd_adasum *a, int r, pd_vector_weight weight);
void pd_adasum_end(pd_adasum *a); /* frees the computation, but neither `to` nor scratch vectors; accepts NULL */

/* Returns the number of units of this pass over the vectors. 0: the result is complete. */
int64_t pd_adasum_units(const pd_adasum *a);
/* Returns the estimated time in ns of one unit of this pass on one core. */
double pd_adasum_unit_ns(const pd_adasum *a);
/* Computes unit i of this pass. Any thread. */
void pd_adasum_unit(pd_adasum *a, int64_t i);
/* Begins the next pass over the vectors. Call it on one thread, after all units of the pass. */
void pd_adasum_turn(pd_adasum *a);
/* Returns the largest magnitude of an element of the result (pd_largest). Call it after the last pass. */
float pd_adasum_largest(const pd_adasum *a);

#endif
