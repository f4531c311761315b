#include "random.h"

#include <string.h>

static uint32_t turned(uint32_t x, int bits) { return x << bits | x >> (32 - bits); }

void pd_threefry(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2])
{
    static const int turn[2][4] = { { 13, 15, 26, 6 }, { 17, 29, 16, 24 } };
    const uint32_t parity = 0x1bd11bda, k[3] = { key[0], key[1], parity ^ key[0] ^ key[1] };
    uint32_t x = counter[0] + k[0], y = counter[1] + k[1];

    for (int group = 0; group < 5; group++) {
        for (int i = 0; i < 4; i++) {
            x += y;
            y = turned(y, turn[group % 2][i]) ^ x;
        }
        x += k[(group + 1) % 3];
        y += k[(group + 2) % 3] + (uint32_t)group + 1;
    }
    out[0] = x;
    out[1] = y;
}

pd_random pd_random_fold(pd_random stream, uint64_t number)
{
    const uint32_t counter[2] = { (uint32_t)number, (uint32_t)(number >> 32) };
    pd_random folded;

    pd_threefry(stream.key, counter, folded.key);
    return folded;
}

pd_random pd_random_stream(uint64_t seed, const char *name)
{
    pd_random stream = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    size_t n = strlen(name);

    for (size_t at = 0; at < n; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        for (size_t i = 0; i < sizeof word && at + i < n; i++) word |= (uint64_t)(unsigned char)name[at + i] << (8 * i);
        stream = pd_random_fold(stream, word);
    }
    return pd_random_fold(stream, n);               /* "a" is not "a\0" */
}
