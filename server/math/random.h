/* random.h - computes random numbers from a seed, a name, a key and an index, without a state that would have to be
 * saved. Pure functions; any thread.
 *
 * The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2,
 * 3; 2011). A seed and a name give a stream of random numbers. A stream has a sequence of numbers (a draw) for each
 * key. Number i of a draw depends only on the stream, the key and i. So any range of a draw can be computed on its own,
 * with the same bits on every machine. */
#ifndef PD_RANDOM_H
#define PD_RANDOM_H

#include <stdint.h>

/* A stream of random numbers: the key of the cipher. It may be copied. */
typedef struct pd_random {
    uint32_t key[2];
} pd_random;

/* Returns the stream of random numbers that belongs to a seed and a name. The name is that of a parameter, or "" for
 * the stream of the whole job. */
pd_random pd_random_stream(uint64_t seed, const char *name);
/* Derives another stream from `stream` and a number, such as a rank or a step. */
pd_random pd_random_fold(pd_random stream, uint64_t number);
/* Returns a number other than 0 that follows from the stream. */
static inline uint64_t pd_random_number(pd_random stream)
{
    uint64_t number = (uint64_t)stream.key[1] << 32 | stream.key[0];

    return number != 0 ? number : 1;
}

/* Write n random numbers of the draw `key`, from number `first` on, to `out`.
 *
 * Number i is computed from a random word. The cipher encrypts the counter i / 2 to two words, of which word i % 2 is
 * taken. The cipher's key is derived from the stream and `key`. Let k be the upper 24 bits of the word.
 *
 *   - Uniform numbers are k 2^-24, in [0, 1).
 *   - Standard normal numbers are sqrt(2) erfinv(u) with u = (2 k + 1) 2^-24 - 1, which lies within (-1, 1). Their
 *     magnitude is at most 5.42. */
void pd_random_uniform(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n);
void pd_random_normal(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n);

/* Converts uniform numbers to normally distributed numbers: writes out[i] = sqrt(2) erfinv(u[i]) for -1 < u[i] < 1,
 * exact to a few units in the last place. Uses only arithmetic and a square root, so the bits are the same on every
 * machine. */
void pd_random_normal_of(const float *u, float *out, int64_t n);

/* Computes the block cipher Threefry: encrypts a counter of two words to two random words. */
void pd_threefry(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2]);

#endif
