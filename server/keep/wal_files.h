/* wal_files.h - the WALs of jobs on a disk: writes records, reads them when the daemon starts, and truncates.
 *
 * A job's WAL has two streams (base/wal_record.h), in the directories log/ and control/ (state_dir.h). Both have the
 * same format (wal_format.h): segments with records one after the other. When a checkpoint has made all records of a
 * segment obsolete, a new segment overwrites its file: that takes half the time of writing a new file.
 *
 * Records of a stream are numbered without a gap. The record of a step has the step's number; its base is the step of a
 * durable checkpoint. Records of decisions are numbered from 1; the base of such a record is the number of the last
 * record that is no longer needed. A record with number base + 1 begins a chain: no record before it counts.
 *
 * No byte is trusted. Each record contains the link of the record before it, and its own link. So bytes that an
 * earlier use of the file has left, and records of another job or chain, never count. If a crash has cut off the last
 * record before it was durable, the record is dropped without a report. If a durable record is damaged, the stream ends
 * before it, and the damage is reported.
 *
 * Only one thread may write the WALs of a state directory. Functions also return errors that their comments do not
 * name: PD_NO_MEMORY, and PD_UNAVAILABLE or PD_RESOURCE_EXHAUSTED if the disk failed. */
#ifndef PD_WAL_FILES_H
#define PD_WAL_FILES_H

#include "disk.h"
#include "state_dir.h"
#include "wal_record.h"

typedef struct pd_wal_writer pd_wal_writer; /* writes the WALs of all jobs of a daemon */

/* Least bytes of a segment. A segment is made larger if two records of the size of its first one would not fit. */
#define PD_WAL_SEGMENT_BYTES (64u << 20)

/* Makes the writer of a state directory. pd_keep_check_root must have accepted its path. Opens no file: a stream is
 * opened when its first record is written. `disk` is borrowed. PD_NO_MEMORY. */
int pd_wal_writer_new(pd_wal_writer **out, const pd_disk *disk, const char *root, uint64_t segment_bytes,
                      pd_error *err);
/* Writes records in their order, and waits for the disk once for each stream, so a record costs less time if there are
 * many. Fills in `error` and `bytes` of each record.
 *
 * If a record cannot be written, its `error` says why, and all later records of the stream are refused with
 * PD_FAILED_PRECONDITION until a record begins a chain. A file whose sync has failed is not written again. Only its
 * records that were durable before are read.
 *
 * Orders to drop the streams of a job (pd_wal_act) are carried out after the records, so no record that follows such an
 * order may be among them. */
void pd_wal_write(pd_wal_writer *writer, pd_wal_record *const *records, size_t n);
/* Closes all files, and frees the writer. Accepts NULL. */
void pd_wal_writer_free(pd_wal_writer *writer);

/* A stream to read. */
typedef struct pd_wal_source {
    const pd_disk *disk;
    const char *job_dir; /* path of the job's directory */
    uint64_t creator;    /* records of jobs with another creator do not count */
    pd_wal_stream stream;
    uint64_t base; /* step of the checkpoint that the records must follow; not used for decisions */
} pd_wal_source;

/* What pd_wal_read or pd_wal_survey has found in a stream. */
typedef struct pd_wal_about {
    uint64_t files, file_bytes; /* number of files in the stream's directory, and their bytes */
    uint64_t entries, bytes;    /* number of records that follow the base without a gap, and their bytes */
    uint64_t last;              /* number of the last record of `entries`; the base if there is none */
    pd_error damage;            /* PD_DATA_LOSS: durable records are lost, or may be; PD_OK: no loss is known */
} pd_wal_about;

/* Takes one record that was read. The record is borrowed for the call. An error ends the reading. */
typedef int pd_wal_each(void *arg, const pd_wal_record *record, pd_error *err);

/* Reads the records of a stream that follow its base without a gap, in their order, and calls `each` with each record.
 * If `each` is NULL, the records are only checked. If `each` returns an error, pd_wal_read returns this error, and
 * *about describes the records before. A job without a WAL has no records. PD_UNIMPLEMENTED: a newer version of paramd
 * has written the stream. */
int pd_wal_read(const pd_wal_source *from, pd_wal_each *each, void *arg, pd_wal_about *about, pd_error *err);
/* Fills in *about from the headers of the records alone. This is fast, but does not find damage in the rest of a
 * record. */
int pd_wal_survey(const pd_wal_source *from, pd_wal_about *about, pd_error *err);
/* Reads records of steps after place from->base, up to the record `until`: as many as have about 64 MiB, but at least
 * one, unless there is none. The caller frees the records of *list, also after an error: one of them cannot be read. */
int pd_wal_read_some(const pd_wal_source *from, uint64_t until, pd_wal_record **list, pd_error *err);
/* Returns the place from which on records of steps lead to `place` without a gap. Returns `place` if none do, or if the
 * stream cannot be read. */
uint64_t pd_wal_oldest(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t place);
/* Returns the place of the last record of steps, if the stream has ended before `place` and not begun anew. Records
 * then lead to it from place *oldest on. Returns 0 if it has not, or if it cannot be read. */
uint64_t pd_wal_ended(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t place, uint64_t *oldest);
/* Truncates a stream after record `last`; if `last` is 0, no record counts any more. Records of steps that have ended
 * before the base, and have not begun anew, stay: all shards may have to go back to one. Call it before a restored job
 * continues: otherwise a later restart could read old records of steps that the job takes again. Waits until the
 * records up to `last` are on the disk, since a daemon that was killed may have left them unsynced. No writer may have
 * the stream open. */
int pd_wal_truncate(const pd_wal_source *from, uint64_t last, pd_error *err);
/* Renames the directories of both streams of a job to log-aside[.N] and control-aside[.N], which a daemon does not
 * read when it starts. *was_there: the job had a stream of steps. */
int pd_wal_set_aside(const pd_disk *disk, const char *job_dir, bool *was_there, pd_error *err);
/* Removes the directory of a stream. */
int pd_wal_remove(const pd_disk *disk, const char *job_dir, pd_wal_stream stream, pd_error *err);

#endif
