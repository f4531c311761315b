/* wal_stream_writer.h - writes the log of one job: segments, one entry after the other. */
#ifndef PD_WAL_STREAM_WRITER_H
#define PD_WAL_STREAM_WRITER_H

#include "file_writer.h"
#include "wal_index.h"
#include "wal_record.h"

typedef struct pd_wal_stream_writer {
    const pd_disk *disk;
    pd_file_writer *writer; /* borrowed; between the first entry and the sync it belongs to this log alone */
    char job_dir[PD_KEEP_PATH], dir[PD_KEEP_PATH];
    bool control;           /* it is a control log */
    pd_wal_segment segment; /* header of the segment that is written, or was written last */
    uint64_t segment_bytes; /* least bytes of a segment */
    pd_wal_file *files;     /* the other files of the log */
    size_t n_files, files_room;
    bool open; /* a segment is being written */
    int file;
    char path[PD_KEEP_PATH];
    uint64_t bytes;        /* size of the file */
    uint64_t offset, most; /* where the next entry begins, and where the last has to end */
    bool resumed;          /* the writer writes to this segment */
    bool new_name;         /* the directory was not synced since the segment has its name */
    uint64_t last, link;   /* step and link of the last entry; link 0: there is none, a chain has to begin */
    uint64_t base;         /* of the last entry */
    /* Files whose last entry is not above this one may be written anew. That is the base; of a control log, which says
     * itself which of its entries are needed, the base that an entry on the disk has. */
    uint64_t given_up;
    uint64_t durable; /* the last step that is on the disk */
} pd_wal_stream_writer;

/* Opens the log of the job that an entry belongs to, so that the entry can be appended. The directory of the job must
 * be there. After an error there is nothing to close. */
int pd_wal_stream_writer_open(pd_wal_stream_writer *log, const pd_disk *disk, const char *root, uint64_t segment_bytes,
                              pd_file_writer *writer, const pd_wal_record *first, pd_error *err);
/* Appends an entry, and sets logged->bytes. The disk may have it only after pd_wal_stream_writer_sync.
 * PD_FAILED_PRECONDITION: it does not follow the last one. After any other error what was not synced is lost, and
 * entries are refused until one begins a chain. */
int pd_wal_stream_writer_append(pd_wal_stream_writer *log, pd_wal_record *record, pd_error *err);
/* Waits until the disk has all entries that were appended: log->durable is the step of the last one. After an error
 * they do not count. */
int pd_wal_stream_writer_sync(pd_wal_stream_writer *log, pd_error *err);
void pd_wal_stream_writer_close(pd_wal_stream_writer *log);

#endif
