/* wal_files.h - the logs and control logs of jobs on a disk: writes entries, and reads them when the daemon starts.
 *
 * The log of a job is in STATE_DIR/JOB-CREATOR/log/ (keep_names.h), in files named segments. Entries are written one
 * after the other, and the segments whose entries a checkpoint has made obsolete are written anew: that takes half the
 * time of writing new files.
 *
 * No byte is trusted. Each entry has the hash of the entry before it and its own hash, which covers both. So bytes that
 * an earlier use has left in a segment, or entries of another job, order or past, never count. What a crash has cut off
 * at the end is dropped without a word. Where an entry is damaged that was durable, the log ends before it, and the
 * damage is reported.
 *
 * One thread writes the logs of a state directory. Errors that are not named: PD_NO_MEMORY, and those of the disk,
 * PD_UNAVAILABLE and PD_RESOURCE_EXHAUSTED. */
#ifndef PD_WAL_FILES_H
#define PD_WAL_FILES_H

#include "disk.h"
#include "keep_names.h"
#include "wal_record.h"

/* ---- writing ---- */

typedef struct pd_wal_writer pd_wal_writer; /* the logs of all jobs of a daemon */

/* Least bytes of a segment in a daemon. A segment that two entries would not fit into is made larger. */
#define PD_WAL_SEGMENT_BYTES (64u << 20)

/* Makes the logs of a state directory, of which pd_keep_check_root has accepted the path. Touches no file: the log of a
 * job is opened with its first entry. `disk` is borrowed. PD_NO_MEMORY. */
int pd_wal_writer_new(pd_wal_writer **out, const pd_disk *disk, const char *root, uint64_t segment_bytes,
                      pd_error *err);
/* Writes entries, in their order, and waits for the disk once for each job: the more entries there are, the less each
 * costs. Fills in `error` and `bytes` of each entry.
 *
 * If an entry of a job cannot be written, its `error` says why, and all later entries of the job are refused with
 * PD_FAILED_PRECONDITION until one begins a chain (wal_record.h). Files whose sync has failed are not used again, and
 * nothing is read from them but what was durable before. */
void pd_wal_write(pd_wal_writer *logs, pd_wal_record *const *entries, size_t n);
/* Closes all files. Accepts NULL. */
void pd_wal_writer_free(pd_wal_writer *logs);

/* ---- reading ---- */

/* What was found in a log. */
typedef struct pd_wal_about {
    uint64_t files, file_bytes; /* files in the directory of the log, and their bytes */
    uint64_t entries, bytes;    /* entries that follow the checkpoint without a gap, and their bytes */
    uint64_t last;              /* step of the last of these; without any, step of the checkpoint */
    pd_error damage; /* PD_DATA_LOSS: steps that were durable are lost, or may be; PD_OK: none are known to be */
} pd_wal_about;

/* Reads the entries of a job that follow the checkpoint of a step without a gap, in their order, and calls `each` with
 * each of them; NULL: they are only checked. The entry is borrowed for the call. If `each` returns an error, reading
 * ends with it: *about then tells of the entries before. A job without a log has no entries. PD_UNIMPLEMENTED: a newer
 * version has written the log. */
int pd_wal_read(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t step,
                int (*each)(void *arg, const pd_wal_record *record, pd_error *err), void *arg, pd_wal_about *about,
                pd_error *err);
/* Tells the same by the headers of the entries alone, without reading them: quick, and proves nothing. */
int pd_wal_survey(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t step, pd_wal_about *about,
                  pd_error *err);
/* Makes the log of a job end with a step, to which the job has come back from the checkpoint of step `base`: nothing
 * else in the log counts any more. Otherwise entries of steps that the job takes another time could be read one day.
 * Waits until the disk has the entries up to the step, which a daemon that was killed may not have done. Nobody may be
 * writing. */
int pd_wal_truncate(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t base, uint64_t step,
                    pd_error *err);
/* Gives the log of a job another name (log-aside[.N]), under which no start of the daemon looks for it. */
int pd_wal_set_aside(const pd_disk *disk, const char *job_dir, bool *was_there, pd_error *err);
/* Removes the log of a job. */
int pd_wal_remove(const pd_disk *disk, const char *job_dir, pd_error *err);

/* ---- control logs ---- */

/* The control log of a job (wal_record.h: control) is another log of the same format, in another directory. Its entries
 * have numbers in place of steps: each is 1 more than the one before. The base of an entry is the number up to which
 * entries are not needed any more; an entry of number base + 1 begins a chain. pd_wal_set_aside sets the control log
 * aside, too. */

/* Reads the entries that are needed, in their order, as pd_wal_read does. about->last is the number of the last one. */
int pd_control_read(const pd_disk *disk, const char *job_dir, uint64_t creator,
                    int (*each)(void *arg, const pd_wal_record *record, pd_error *err), void *arg, pd_wal_about *about,
                    pd_error *err);
/* Makes the control log end with the entry of a number, and waits until the disk has it; 0: no entry counts. */
int pd_control_cut(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t number, pd_error *err);
/* Removes the control log of a job. */
int pd_control_remove(const pd_disk *disk, const char *job_dir, pd_error *err);

#endif
