/* fingerprint.c - hashes tensors, by which a program notices that their elements have changed. */
#include "paramd/client.h"

#include "hash.h"

#include <stdint.h>
#include <string.h>

enum { LINE = 64, LINES = 64, SMALL = 4096 };

/* Hashes one line in each `every` bytes of the n bytes at `at`: the line at offset `first`, and so on. Lines are
 * gathered, since the hash is fast on long pieces. */
static uint64_t sampled(const unsigned char *at, size_t n, size_t every, size_t first)
{
    unsigned char lines[LINES * LINE];
    uint64_t hash = 0;
    size_t filled = 0;

    for (size_t i = first; i + LINE <= n; i += every) {
        memcpy(lines + LINE * filled, at + i, LINE);
        if (++filled < LINES) continue;
        hash = XXH3_64bits_withSeed(lines, sizeof lines, hash);
        filled = 0;
    }
    return XXH3_64bits_withSeed(lines, LINE * filled, hash);
}

static uint64_t hash(const void *tensor, size_t n, size_t every, size_t first)
{
    size_t piece = every < n / 4 ? every : n / 4; /* a tensor has four lines at least */

    if (every < LINE || n <= SMALL) return XXH3_64bits(n > 0 ? tensor : "", n);
    return sampled(tensor, n, piece, first % (piece - LINE + 1));
}

void pd_client_fingerprint(const void *const *tensors, const size_t *bytes, size_t n, size_t every, size_t first,
                           uint64_t *hashes)
{
    for (size_t i = 0; i < n; i++) hashes[i] = hash(tensors[i], bytes[i], every, first);
}
