/* name_hash.c - the hash function SipHash-1-3, for names that peers choose. */
#include "name_hash.h"

#include <string.h>

static uint64_t rotated(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static void sip_rounds(uint64_t v[4], int n)
{
    while (n-- > 0) {
        v[0] += v[1];
        v[1] = rotated(v[1], 13) ^ v[0];
        v[0] = rotated(v[0], 32);
        v[2] += v[3];
        v[3] = rotated(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotated(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotated(v[1], 17) ^ v[2];
        v[2] = rotated(v[2], 32);
    }
}

/* Computes SipHash-1-3 (Aumasson, Bernstein 2012), a hash with a secret key. A peer that does not know the key cannot
 * choose names that collide in a hash table. */
unsigned pd_name_hash(const uint64_t key[2], const char *name, size_t n)
{
    uint64_t k0 = key[0], k1 = key[1], word;
    uint64_t v[4] = { k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u,
                      k1 ^ 0x7465646279746573u };
    size_t left = n;

    for (;; name += 8, left -= 8) {
        word = left >= 8 ? 0 : (uint64_t)n << 56;
        memcpy(&word, name, left >= 8 ? 8 : left);
        v[3] ^= word;
        sip_rounds(v, 1);
        v[0] ^= word;
        if (left < 8) break;
    }
    v[2] ^= 0xff;
    sip_rounds(v, 3);
    return (unsigned)(v[0] ^ v[1] ^ v[2] ^ v[3]);
}
