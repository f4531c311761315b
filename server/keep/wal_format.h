/* wal_format.h - how a segment of a log and its entries look on the disk. All numbers are little-endian.
 *
 *     a segment:  its header, in a block of its own; then entries, each at the beginning of a block
 *     an entry:   its header; for each parameter the number of elements of its aggregate (uint64, 0: none); the head;
 *                 zeros up to a multiple of 64; the aggregates, each with zeros up to a multiple of 64; its link
 *                 (uint64); zeros up to the end of the block
 *
 * The link of an entry is the XXH3 of all its bytes before the link. Its header has the link of the entry before it,
 * or, of the first in a segment, the XXH3 of the segment's header. That header has the link of the last entry in the
 * segment before it; 0: a chain begins. So every link covers all that comes before it in its chain. */
#ifndef PD_WAL_FORMAT_H
#define PD_WAL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "disk.h"

#define PD_WAL_VERSION 1
#define PD_WAL_NAME 512 /* most bytes of a job's name, with the final '\0' */
enum { PD_WAL_HEADER = 80, PD_WAL_ALIGN = 64 };

/* The header of a segment. */
typedef struct pd_wal_segment {
    uint64_t number;        /* as in the name of the file: else it is what an earlier use has left */
    uint64_t creator, base; /* as in the first entry */
    uint64_t first;         /* step of the first entry */
    uint64_t previous;      /* link of the entry of step first - 1; 0: the first entry begins a chain */
    uint64_t durable;       /* the last step that was on the disk when the segment was begun */
    uint64_t link;          /* XXH3 of the header, for the first entry */
    char job[PD_WAL_NAME];
} pd_wal_segment;

/* The header of an entry. */
typedef struct pd_wal_header {
    uint32_t n_parts;
    uint64_t segment; /* number of the segment in which the entry lies */
    uint64_t creator, base, step;
    uint64_t durable; /* the last step that was on the disk when the entry was written */
    uint64_t head_bytes, data_bytes;
    uint64_t previous; /* link of what comes before */
} pd_wal_header;

/* Writes the header of a segment into a block, and sets segment->link. */
void pd_wal_segment_write(pd_wal_segment *segment, uint8_t block[PD_DISK_BLOCK]);
/* Reads it. PD_DATA_LOSS: it is none, or damaged. PD_UNIMPLEMENTED: a newer version has written it. */
int pd_wal_segment_read(pd_wal_segment *segment, const uint8_t block[PD_DISK_BLOCK], pd_error *err);

void pd_wal_header_write(const pd_wal_header *header, uint8_t out[PD_WAL_HEADER]);
/* Reads the header of an entry. Returns false if it is none. Its numbers are not checked, but so small that they can be
 * added up. */
bool pd_wal_header_read(pd_wal_header *header, const uint8_t in[PD_WAL_HEADER]);

/* Return where in an entry the aggregates begin, where its link lies, and how many bytes it has in all. */
uint64_t pd_wal_header_data(const pd_wal_header *header);
uint64_t pd_wal_header_link(const pd_wal_header *header);
uint64_t pd_wal_header_bytes(const pd_wal_header *header);
/* Returns the bytes that an aggregate takes. */
uint64_t pd_wal_part_bytes(uint64_t elements);

#endif
