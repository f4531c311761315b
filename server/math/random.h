/* random.h - random numbers as a function of a seed, a name, a key and an index, without a state that would have to be
 * saved. Pure functions; any thread.
 *
 * The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2,
 * 3; 2011). A stream belongs to a seed and a name, and has a sequence of numbers (a draw) for each key. Number i of a
 * draw depends on the stream, the key and i alone. So any part of a draw can be computed on its own, and the bits are
 * the same on every machine and however the work is divided. */
#ifndef PD_RANDOM_H
#define PD_RANDOM_H

#include <stdint.h>

/* A stream of random numbers. It is plain data: copy it freely. */
typedef struct pd_random {
    uint32_t key[2];
} pd_random;

/* Returns the stream of random numbers that belongs to a seed and a name. The name is that of a parameter, or "" for
 * the stream of the whole job. */
pd_random pd_random_stream(uint64_t seed, const char *name);
/* Returns stream number `number` of the many streams that are derived from `stream`: one for each rank, or for each
 * step. */
pd_random pd_random_fold(pd_random stream, uint64_t number);

/* These functions write n random numbers of the draw `key` (the sequence of numbers that belongs to this key), from
 * number `first` on.
 *
 * Number i is made from a random word: word i % 2 of the two words to which the cipher encrypts the counter i / 2. The
 * cipher's key is derived from the stream and `key`. Let k be the upper 24 bits of the word.
 *
 *   - Uniform numbers are k 2^-24, in [0, 1).
 *   - Standard normal numbers are sqrt(2) erfinv(u) with u = (2 k + 1) 2^-24 - 1, which lies within (-1, 1). They are
 *     at most 5.42 in size. */
void pd_random_uniform(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n);
void pd_random_normal(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n);

/* Turns uniform numbers into normally distributed ones: writes out[i] = sqrt(2) erfinv(u[i]) for -1 < u[i] < 1, exact
 * to a few units in the last place. Uses only arithmetic and a square root, so the bits are the same on every
 * machine. */
void pd_random_normal_of(const float *u, float *out, int64_t n);

/* Computes the block cipher Threefry: encrypts a counter of two words to two random words. */
void pd_threefry(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2]);

#endif
