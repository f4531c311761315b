/* cursor.h - reads and writes little-endian numbers in memory, one after the other. A read beyond the end returns 0. */
#ifndef PD_CURSOR_H
#define PD_CURSOR_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct pd_cursor {
    uint8_t *at; /* next byte to read or write */
    size_t left; /* number of bytes from `at` to the end */
    bool ended;  /* a read or write has gone beyond the end */
} pd_cursor;

/* Returns the next `bytes` bytes, and moves the cursor after them. Returns NULL if fewer are left. */
static inline uint8_t *pd_cursor_bytes(pd_cursor *cursor, size_t bytes)
{
    uint8_t *at = cursor->at;

    if (bytes > cursor->left) {
        cursor->ended = true;
        return NULL;
    }
    cursor->at += bytes;
    cursor->left -= bytes;
    return at;
}

static inline uint64_t pd_cursor_u64(pd_cursor *cursor)
{
    const uint8_t *at = pd_cursor_bytes(cursor, sizeof(uint64_t));
    uint64_t value = 0;

    if (at != NULL) memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static inline uint32_t pd_cursor_u32(pd_cursor *cursor)
{
    const uint8_t *at = pd_cursor_bytes(cursor, sizeof(uint32_t));
    uint32_t value = 0;

    if (at != NULL) memcpy(&value, at, sizeof value);
    return le32toh(value);
}

/* Writes bytes at the cursor, and moves it after them. Without enough room writes nothing and sets cursor->ended. */
static inline void pd_cursor_put(pd_cursor *cursor, const void *from, size_t bytes)
{
    uint8_t *at = pd_cursor_bytes(cursor, bytes);

    if (at != NULL && bytes > 0) memcpy(at, from, bytes);
}

static inline void pd_cursor_put_u64(pd_cursor *cursor, uint64_t value)
{
    value = htole64(value);
    pd_cursor_put(cursor, &value, sizeof value);
}

static inline void pd_cursor_put_u32(pd_cursor *cursor, uint32_t value)
{
    value = htole32(value);
    pd_cursor_put(cursor, &value, sizeof value);
}

#endif
