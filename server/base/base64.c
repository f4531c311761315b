/* base64.c - encodes and decodes base64. */
#include "base64.h"

#include <stdint.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void pd_base64_encode(char *out, const void *from, size_t n)
{
    const uint8_t *at = from;

    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i < 3 ? n - i : 3;
        uint32_t bits = (uint32_t)at[i] << 16;
        if (left > 1) bits |= (uint32_t)at[i + 1] << 8;
        if (left > 2) bits |= at[i + 2];
        for (size_t k = 0; k < 4; k++) *out++ = k <= left ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
    *out = '\0';
}

static int digit_of(char c)
{
    const char *found = c != '\0' ? strchr(digits, c) : NULL;

    return found != NULL ? (int)(found - digits) : -1;
}

bool pd_base64_decode(char *out, size_t size, size_t *bytes, const char *text, size_t n)
{
    uint32_t bits = 0;
    size_t done = 0, used = 0;

    if (size == 0) return false;
    while (n > 0 && text[n - 1] == '=') n--;
    for (size_t i = 0; i < n; i++) {
        int digit = digit_of(text[i]);
        if (digit < 0 || done + 1 >= size) return false;
        bits = bits << 6 | (uint32_t)digit;
        used += 6;
        if (used < 8) continue;
        used -= 8;
        out[done++] = (char)(bits >> used & 0xff);
    }
    out[done] = '\0';
    if (bytes != NULL) *bytes = done;
    return true;
}
