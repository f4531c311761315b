/* random.h - random numbers as a function of where they are used: seed, name, key, index. Pure; any thread; no
 * state to save.
 *
 * Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011).
 * Number i of a draw depends on the stream, the draw's key and i alone, so whoever needs a part of a draw makes
 * that part, and the bits are the same on every machine and however the work is cut. */
#ifndef PD_RANDOM_H
#define PD_RANDOM_H

#include <stdint.h>

/* A stream: plain data. */
typedef struct pd_random { uint32_t key[2]; } pd_random;

/* The stream of that name (a parameter's, "" of the job) under a seed. */
pd_random pd_random_stream(uint64_t seed, const char *name);
/* One of many streams that belong to another: of a rank, of a step. */
pd_random pd_random_fold(pd_random stream, uint64_t number);

/* Numbers `first` … of the draw `key`: word i % 2 that the cipher makes of counter i / 2 under the stream folded
 * with `key` is number i's. Uniform in [0, 1): its upper 24 bits k as k 2^-24. Of the standard normal
 * distribution: sqrt(2) erfinv(u) of u = (2 k + 1) 2^-24 - 1, which lies within (-1, 1); at most 5.42 in size. */
void pd_random_uniform(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n);
void pd_random_normal(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n);

/* out[i] = sqrt(2) erfinv(u[i]), -1 < u[i] < 1, to a few units in the last place; arithmetic and a square root
 * alone, so the same bits on every machine. */
void pd_random_normal_of(const float *u, float *out, int64_t n);

/* The block cipher itself: two words of counter to two words of output. */
void pd_threefry(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2]);

#endif
