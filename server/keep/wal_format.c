/* wal_format.c - writes and reads the headers of WAL segments and of their records. */
#include "wal_format.h"

#include "cursor.h"
#include "hash.h"

#include <inttypes.h>
#include <stdio.h>

static const char segment_magic[16] = "paramd log\n";
static const uint32_t entry_magic = 0x454c4450; /* "PDLE" */

enum { SEGMENT_FIXED = sizeof segment_magic + 2 * 4 + 6 * 8 };

/* Sizes in a header must be below this number of bytes, so that a sum of a few sizes does not overflow. */
#define MOST ((uint64_t)1 << 56)

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- segments ---- */

void pd_wal_segment_write(pd_wal_segment *segment, uint8_t block[PD_DISK_BLOCK])
{
    pd_cursor to = { .at = block, .left = PD_DISK_BLOCK };
    uint32_t name = (uint32_t)strnlen(segment->job, sizeof segment->job - 1);

    memset(block, 0, PD_DISK_BLOCK);
    pd_cursor_put(&to, segment_magic, sizeof segment_magic);
    pd_cursor_put_u32(&to, PD_WAL_VERSION);
    pd_cursor_put_u32(&to, name);
    pd_cursor_put_u64(&to, segment->number);
    pd_cursor_put_u64(&to, segment->creator);
    pd_cursor_put_u64(&to, segment->base);
    pd_cursor_put_u64(&to, segment->first);
    pd_cursor_put_u64(&to, segment->previous);
    pd_cursor_put_u64(&to, segment->durable);
    pd_cursor_put(&to, segment->job, name);
    segment->link = XXH3_64bits(block, SEGMENT_FIXED + name);
    pd_cursor_put_u64(&to, segment->link);
}

static void read_segment(pd_wal_segment *segment, pd_cursor *from, uint32_t name)
{
    const uint8_t *text;

    segment->number = pd_cursor_u64(from);
    segment->creator = pd_cursor_u64(from);
    segment->base = pd_cursor_u64(from);
    segment->first = pd_cursor_u64(from);
    segment->previous = pd_cursor_u64(from);
    segment->durable = pd_cursor_u64(from);
    text = pd_cursor_bytes(from, name);
    memcpy(segment->job, text, name);
    segment->link = pd_cursor_u64(from);
}

int pd_wal_segment_read(pd_wal_segment *segment, const uint8_t block[PD_DISK_BLOCK], pd_error *err)
{
    uint8_t copy[PD_DISK_BLOCK];
    pd_cursor from = { .at = copy, .left = sizeof copy };
    uint32_t version, name; /* later versions begin with the same fields */

    *segment = (pd_wal_segment){ 0 };
    memcpy(copy, block, sizeof copy);
    if (memcmp(pd_cursor_bytes(&from, sizeof segment_magic), segment_magic, sizeof segment_magic) != 0)
        return pd_fail(err, PD_DATA_LOSS, "it does not begin as a segment of a WAL does");
    version = pd_cursor_u32(&from);
    name = pd_cursor_u32(&from);
    if (name >= PD_WAL_NAME) return pd_fail(err, PD_DATA_LOSS, "its header is damaged");
    read_segment(segment, &from, name);
    if (segment->link != XXH3_64bits(copy, SEGMENT_FIXED + name))
        return pd_fail(err, PD_DATA_LOSS, "its header has another XXH3 than its own");
    if (version <= PD_WAL_VERSION) return PD_OK;
    return pd_fail(err, PD_UNIMPLEMENTED, "it has the format %u, this version of paramd reads up to %d", version,
                   PD_WAL_VERSION);
}

/* ---- records ---- */

void pd_wal_header_write(const pd_wal_header *header, uint8_t out[PD_WAL_HEADER])
{
    pd_cursor to = { .at = out, .left = PD_WAL_HEADER };

    pd_cursor_put_u32(&to, entry_magic);
    pd_cursor_put_u32(&to, header->n_parts);
    pd_cursor_put_u64(&to, header->segment);
    pd_cursor_put_u64(&to, header->creator);
    pd_cursor_put_u64(&to, header->base);
    pd_cursor_put_u64(&to, header->step);
    pd_cursor_put_u64(&to, header->durable);
    pd_cursor_put_u64(&to, header->head_bytes);
    pd_cursor_put_u64(&to, header->data_bytes);
    pd_cursor_put_u64(&to, header->previous);
    pd_cursor_put_u64(&to, XXH3_64bits(out, PD_WAL_HEADER - 8));
}

bool pd_wal_header_read(pd_wal_header *header, const uint8_t in[PD_WAL_HEADER])
{
    uint8_t copy[PD_WAL_HEADER];
    pd_cursor from = { .at = copy, .left = sizeof copy };

    memcpy(copy, in, sizeof copy);
    if (pd_cursor_u32(&from) != entry_magic) return false;
    header->n_parts = pd_cursor_u32(&from);
    header->segment = pd_cursor_u64(&from);
    header->creator = pd_cursor_u64(&from);
    header->base = pd_cursor_u64(&from);
    header->step = pd_cursor_u64(&from);
    header->durable = pd_cursor_u64(&from);
    header->head_bytes = pd_cursor_u64(&from);
    header->data_bytes = pd_cursor_u64(&from);
    header->previous = pd_cursor_u64(&from);
    return pd_cursor_u64(&from) == XXH3_64bits(copy, PD_WAL_HEADER - 8) && header->head_bytes < MOST &&
           header->data_bytes < MOST && header->base < header->step && header->data_bytes % PD_WAL_ALIGN == 0;
}

uint64_t pd_wal_header_data(const pd_wal_header *header)
{
    return round_up(PD_WAL_HEADER + 8 * (uint64_t)header->n_parts + header->head_bytes, PD_WAL_ALIGN);
}

uint64_t pd_wal_header_link(const pd_wal_header *header)
{
    return pd_wal_header_data(header) + header->data_bytes;
}

uint64_t pd_wal_header_bytes(const pd_wal_header *header)
{
    return round_up(pd_wal_header_link(header) + 8, PD_DISK_BLOCK);
}

uint64_t pd_wal_part_bytes(uint64_t elements)
{
    return round_up(elements * sizeof(float), PD_WAL_ALIGN);
}
