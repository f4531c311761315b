/* random.h - random numbers as a function of where they are used: seed, name, key, index. Pure; any thread; no state
 * to save.
 *
 * Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011).
 * Number i of a draw depends on the stream, the draw's key and i alone. So any part of a draw can be computed on its
 * own, and the bits are the same on every machine and however the work is divided. */
#ifndef PD_RANDOM_H
#define PD_RANDOM_H

#include <stdint.h>

/* A stream of random numbers. Plain data: copy it freely. */
typedef struct pd_random {
    uint32_t key[2];
} pd_random;

/* Returns the stream with this name under a seed. The name is that of a parameter, or "" for the stream of the job. */
pd_random pd_random_stream(uint64_t seed, const char *name);
/* Returns the stream number `number` of the many that are derived from `stream`: one for each rank, or for each
 * step. */
pd_random pd_random_fold(pd_random stream, uint64_t number);

/* Write the n numbers of the draw `key` from number `first` on. A draw is the sequence of numbers that belongs to
 * one key.
 *
 * Number i is made from a random word: word i % 2 of the two words to which the cipher encrypts the counter i / 2.
 * The cipher's key is derived from the stream and `key`. Let k be the upper 24 bits of the word.
 *
 *   - Uniform numbers are k 2^-24, in [0, 1).
 *   - Standard normal numbers are sqrt(2) erfinv(u) with u = (2 k + 1) 2^-24 - 1, which lies within (-1, 1). They are
 *     at most 5.42 in size. */
void pd_random_uniform(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n);
void pd_random_normal(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n);

/* Writes out[i] = sqrt(2) erfinv(u[i]) for -1 < u[i] < 1, to a few units in the last place. Uses only arithmetic and a
 * square root, so the bits are the same on every machine. */
void pd_random_normal_of(const float *u, float *out, int64_t n);

/* Computes the block cipher: encrypts a counter of two words to two random words. */
void pd_threefry(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2]);

#endif
