/* wal_files.h - the WALs of jobs on a disk: writes records, reads them when the daemon starts, and truncates.
 *
 * A job's WAL has two streams (base/wal_record.h), in the directories log/ and control/ (state_dir.h). Both have the
 * same format (wal_format.h): files named segments, records one after the other. Segments whose records a checkpoint
 * has made obsolete are written anew: that takes half the time of writing new files.
 *
 * Records of a stream are numbered without a gap. The record of a step has the step's number; its base is a durable
 * checkpoint. Records of decisions are counted from 1; the base of a record is the number up to which records are not
 * needed any more. A record of number base + 1 begins a chain: nothing before it counts.
 *
 * No byte is trusted. Each record has the hash of the record before it and its own hash, which covers both. So bytes
 * that an earlier use has left in a segment, or records of another job, order or past, never count. What a crash has
 * cut off at the end is dropped without a word. Where a record is damaged that was durable, the stream ends before it,
 * and the damage is reported.
 *
 * One thread writes the WALs of a state directory. Errors that are not named: PD_NO_MEMORY, and those of the disk,
 * PD_UNAVAILABLE and PD_RESOURCE_EXHAUSTED. */
#ifndef PD_WAL_FILES_H
#define PD_WAL_FILES_H

#include "disk.h"
#include "state_dir.h"
#include "wal_record.h"

typedef struct pd_wal_writer pd_wal_writer; /* writes the WALs of all jobs of a daemon */

/* Least bytes of a segment in a daemon. A segment that two records would not fit into is made larger. */
#define PD_WAL_SEGMENT_BYTES (64u << 20)

/* Makes the writer of a state directory, of which pd_keep_check_root has accepted the path. Touches no file: a stream
 * is opened with its first record. `disk` is borrowed. PD_NO_MEMORY. */
int pd_wal_writer_new(pd_wal_writer **out, const pd_disk *disk, const char *root, uint64_t segment_bytes,
                      pd_error *err);
/* Writes records, in their order, and waits for the disk once for each stream: the more records there are, the less
 * each costs. Fills in `error` and `bytes` of each record.
 *
 * If a record cannot be written, its `error` says why, and all later records of the stream are refused with
 * PD_FAILED_PRECONDITION until one begins a chain. Files whose sync has failed are not used again, and nothing is read
 * from them but what was durable before. */
void pd_wal_write(pd_wal_writer *writer, pd_wal_record *const *records, size_t n);
/* Closes all files. Accepts NULL. */
void pd_wal_writer_free(pd_wal_writer *writer);

/* A stream to read. */
typedef struct pd_wal_source {
    const pd_disk *disk;
    const char *job_dir;
    uint64_t creator;
    pd_wal_stream stream;
    uint64_t base; /* step of the checkpoint that records must follow; not used for decisions */
} pd_wal_source;

/* What was found in a stream. */
typedef struct pd_wal_about {
    uint64_t files, file_bytes; /* files in its directory, and their bytes */
    uint64_t entries, bytes;    /* records that follow the base without a gap, and their bytes */
    uint64_t last;              /* number of the last of these; without any, the base */
    pd_error damage; /* PD_DATA_LOSS: records that were durable are lost, or may be; PD_OK: none are known to be */
} pd_wal_about;

typedef int pd_wal_each(void *arg, const pd_wal_record *record, pd_error *err);

/* Reads the records of a stream that follow its base without a gap, in their order, and calls `each` with each of them;
 * NULL: they are only checked. The record is borrowed for the call. If `each` returns an error, reading ends with it:
 * *about then describes the records before. A job without a WAL has no records. PD_UNIMPLEMENTED: a newer version has
 * written it. */
int pd_wal_read(const pd_wal_source *from, pd_wal_each *each, void *arg, pd_wal_about *about, pd_error *err);
/* Fills in *about by the headers of the records alone, without reading them: quick, and proves nothing. */
int pd_wal_survey(const pd_wal_source *from, pd_wal_about *about, pd_error *err);
/* Makes a stream end with the record of a number, 0: with none, after which the job continues: nothing else in the
 * stream counts any more. Otherwise records of steps that the job takes another time could be read one day. Waits until
 * the disk has the records up to it, which a daemon that was killed may not have done. Nobody may be writing. */
int pd_wal_truncate(const pd_wal_source *from, uint64_t last, pd_error *err);
/* Gives both streams of a job another name (log-aside[.N], control-aside[.N]), under which no start of the daemon looks
 * for them. *was_there: the job had records of steps. */
int pd_wal_set_aside(const pd_disk *disk, const char *job_dir, bool *was_there, pd_error *err);
/* Removes a stream of a job. */
int pd_wal_remove(const pd_disk *disk, const char *job_dir, pd_wal_stream stream, pd_error *err);

#endif
