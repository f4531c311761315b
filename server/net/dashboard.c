/* dashboard.c - writes the hashes of the dashboard's script and style as a content security policy has them. */
#include "dashboard.h"

#include <stdint.h>
#include <string.h>

enum { HASH_BYTES = 32 };

static unsigned value_of(char hex)
{
    return hex <= '9' ? (unsigned)(hex - '0') : (unsigned)(hex - 'a' + 10);
}

/* Returns a byte of a hash in hexadecimal; 0 behind its end. */
static uint32_t byte_of(const char *sha256, size_t i)
{
    return i < HASH_BYTES ? value_of(sha256[2 * i]) << 4 | value_of(sha256[2 * i + 1]) : 0;
}

void pd_dashboard_hash(char out[PD_DASHBOARD_HASH], const char *sha256)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0, n = 0; i < HASH_BYTES; i += 3, n += 4) {
        uint32_t bits = byte_of(sha256, i) << 16 | byte_of(sha256, i + 1) << 8 | byte_of(sha256, i + 2);
        for (size_t k = 0; k < 4; k++) out[n + k] = digits[bits >> (18 - 6 * k) & 63];
    }
    memcpy(out + PD_DASHBOARD_HASH - 2, "=", 2); /* 32 bytes leave one byte of the last three empty */
}
