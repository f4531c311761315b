/* wal_format.h - the bytes of a WAL segment and of its records on the disk. All numbers are little-endian.
 *
 *     a segment:  its header, in a disk block of its own; then records, each at the beginning of a disk block
 *     a record:   its header; for each parameter the number of elements of its aggregate (uint64, 0: no aggregate);
 *                 the archive pd_wal_record.head; zeros up to a multiple of 64; the aggregates, each with zeros up to a
 *                 multiple of 64; the record's link (uint64); zeros up to the end of the disk block
 *
 * The link of a record is the XXH3 of all bytes of the record before the link. The header of a record contains the link
 * of the record before it. The first record of a segment contains the XXH3 of the segment's header instead. The header
 * of a segment contains the link of the last record of the segment before it, or 0 if the segment begins a chain. So
 * each link covers all earlier bytes of its chain. */
#ifndef PD_WAL_FORMAT_H
#define PD_WAL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "disk.h"

#define PD_WAL_VERSION 1
#define PD_WAL_NAME 512 /* most bytes of a job's name, including the final '\0' */
enum { PD_WAL_HEADER = 80, PD_WAL_ALIGN = 64 };

/* The header of a segment, in memory. */
typedef struct pd_wal_segment {
    uint64_t number;        /* number of the segment; if the file's name differs, an earlier use has left this header */
    uint64_t creator, base; /* creator of the job; base of the first record (wal_files.h) */
    uint64_t first;         /* pd_wal_header.step of the first record */
    uint64_t previous;      /* link of the last record of the segment before; 0: this segment begins a chain */
    uint64_t durable;       /* step of the last record that was durable when the segment was begun */
    uint64_t link;          /* XXH3 of this header; the first record contains it as `previous` */
    char job[PD_WAL_NAME];  /* name of the job */
} pd_wal_segment;

/* The header of a record, in memory. */
typedef struct pd_wal_header {
    uint32_t n_parts;                /* number of parameters in the table of aggregates; 0: a record of decisions */
    uint64_t segment;                /* number of the segment in which the record lies */
    uint64_t creator, base, step;    /* creator of the job; base and number of the record (wal_files.h) */
    uint64_t durable;                /* step of the last record that was durable when this record was written */
    uint64_t head_bytes, data_bytes; /* bytes of the archive; of all aggregates with the zeros after them */
    uint64_t previous;               /* link of the record before, or of the segment's header (pd_wal_segment.link) */
} pd_wal_header;

/* Writes the header of a segment into a disk block, and sets segment->link. */
void pd_wal_segment_write(pd_wal_segment *segment, uint8_t block[PD_DISK_BLOCK]);
/* Reads the header of a segment from a disk block. PD_DATA_LOSS: the block has no header, or a damaged one.
 * PD_UNIMPLEMENTED: a newer version of paramd has written the segment. */
int pd_wal_segment_read(pd_wal_segment *segment, const uint8_t block[PD_DISK_BLOCK], pd_error *err);

void pd_wal_header_write(const pd_wal_header *header, uint8_t out[PD_WAL_HEADER]);
/* Reads the header of a record. Returns false if the bytes are not an intact header. The caller must compare the sizes
 * in the header with the size of the file. They are so small that sums of them do not overflow. */
bool pd_wal_header_read(pd_wal_header *header, const uint8_t in[PD_WAL_HEADER]);

/* Return the offset in a record at which the aggregates begin, the offset of its link, and the bytes of the record. */
uint64_t pd_wal_header_data(const pd_wal_header *header);
uint64_t pd_wal_header_link(const pd_wal_header *header);
uint64_t pd_wal_header_bytes(const pd_wal_header *header);
/* Returns the bytes that an aggregate of `elements` elements takes in a record, including the zeros after it. */
uint64_t pd_wal_part_bytes(uint64_t elements);

#endif
