/* Tests copies of tensors: every byte arrives, and none beside it changes. */
#include "test.h"
#include "pages.h"

enum { MOST = 700, LARGE = (1 << 18) + 77, ROOM = LARGE + 257, AROUND = 0xa5 };

static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 31 + i / 256 + 1);
}

static void copy_and_compare(size_t n, size_t to_at, size_t from_at)
{
    static uint8_t from[ROOM], to[ROOM];
    size_t room = n + 256;

    for (size_t i = 0; i < room; i++) from[i] = pattern(i), to[i] = AROUND;
    pd_copy_bytes(to + to_at, from + from_at, n);
    for (size_t i = 0; i < room; i++)
        if (to[i] != (i < to_at || i >= to_at + n ? AROUND : pattern(i - to_at + from_at))) fail_msg("byte %zu", i);
}

TEST(copies_every_number_of_bytes)
{
    for (size_t n = 0; n <= MOST; n++) copy_and_compare(n, 64, 64);
}

TEST(copies_between_addresses_of_any_alignment)
{
    for (size_t to = 0; to < 64; to += 3)
        for (size_t from = 0; from < 64; from += 5) copy_and_compare(513, to, from);
}

TEST(copies_large_tensors_between_addresses_of_any_alignment)
{
    for (size_t at = 0; at < 64; at += 9) copy_and_compare(LARGE + at % 2, at, 63 - at);
}
