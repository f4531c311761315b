/* cursor.h - reads and writes numbers in a block of bytes, little-endian. A read beyond the end gives 0. */
#ifndef PD_CURSOR_H
#define PD_CURSOR_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct pd_cursor {
    uint8_t *at;
    size_t left;
    bool ended; /* something was read beyond the end */
} pd_cursor;

/* Returns the next bytes, and goes on behind them; NULL: there are not so many. */
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

/* Write what comes next into memory that has room for it. */
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
