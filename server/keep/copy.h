/* copy.h - copies checkpoints and WAL streams of a job from one state directory to another, and checks every byte
 * meanwhile: for a mirror (mirror.h), and back from it.
 *
 * The target needs only files that are created, written from the beginning to the end, synced and removed. Appending,
 * overwriting and renaming are used where the file system has them. One thread. */
#ifndef PD_COPY_H
#define PD_COPY_H

#include "file_io.h"
#include "manifest.h"
#include "wal_record.h"

#define PD_COPY_SLICE (4u << 20) /* bytes that are read and written at a time */

/* Copies from one disk to another. */
typedef struct pd_copier {
    const pd_disk *from, *to;
    uint8_t *slice; /* PD_COPY_SLICE bytes */
    pd_file_writer writer;
    XXH3_state_t *hash;
    /* called now and then while a checkpoint is copied, which may take long; may copy WAL streams with this copier, but
     * no other checkpoint. NULL: nothing is called */
    void (*between)(void *arg);
    void *arg;
    /* the file system of `to` can neither append nor overwrite: a segment is copied once a later one has been begun */
    bool whole_segments;
    bool of_source; /* the last error of pd_copy_checkpoint is about the files that are read */
} pd_copier;

/* Fills in a copier. The disks are borrowed. PD_NO_MEMORY. */
int pd_copier_init(pd_copier *copier, const pd_disk *from, const pd_disk *to, pd_error *err);
/* Frees the memory of a copier. Accepts one that is all zeros. */
void pd_copier_free(pd_copier *copier);

/* Copies the checkpoint in the directory `from_dir`, whose manifest was read, to the directory `to_dir`, which must not
 * exist or have no files. Its manifest is written last, when the hashes of all files were the right ones. So a crash
 * leaves a whole checkpoint, or a directory without an intact manifest. After an error the caller removes to_dir.
 * PD_DATA_LOSS: a file that was read is damaged. */
int pd_copy_checkpoint(pd_copier *copier, const char *from_dir, const char *to_dir, const pd_manifest *manifest,
                       pd_error *err);
/* Returns whether two manifests are of the same checkpoint. */
bool pd_copy_is_same(const pd_manifest *a, const pd_manifest *b);
/* Waits until the disk has the names in a directory, if its file system can do that. */
int pd_copy_sync_dir(const pd_disk *disk, const char *path, pd_error *err);

/* How far a stream was copied. Zeros: not known yet, so the first call compares the streams by their headers, and
 * copies the last segment again. Set it to zeros after an error. */
typedef struct pd_wal_copied {
    char name[64];     /* segment that was copied last; "": not known */
    uint64_t of;       /* pd_wal_segment.link of this segment */
    uint64_t offset;   /* end of its last record that was copied */
    uint64_t previous; /* pd_wal_header.previous that the next record must have */
    uint64_t number;   /* number that the next record must have */
    /* The records after `before` up to `last` follow each other without a gap. `link` is that of record `last`. */
    uint64_t before, last, link;
    uint64_t base; /* pd_wal_record.base of record `last` */
} pd_wal_copied;

/* A stream that is copied. */
typedef struct pd_wal_copy {
    const char *from_dir, *to_dir; /* paths of the job's directories */
    uint64_t creator;
    pd_wal_stream stream;
    /* Returns whether a record with a base that none had before may be copied: whether the target has the checkpoint
     * that made earlier records obsolete. Called after the record was found. NULL: it may. */
    bool (*may_pass)(void *arg);
    void *arg;
} pd_wal_copy;

/* Copies the records that the target lacks: whole records whose link is right, in their order. Segments that the source
 * has removed stay in the target (pd_wal_copy_tidy). The source may be written meanwhile, and its segments may be
 * renamed and overwritten: a record that is not whole yet is copied by a later call. Waits until the target's disk has
 * all of it. Does nothing if the source has no such stream. */
int pd_wal_copy_new(pd_copier *copier, const pd_wal_copy *what, pd_wal_copied *copied, pd_error *err);
/* Removes the segments of the target that the source does not have, if what->may_pass returns true after the source was
 * listed. */
int pd_wal_copy_tidy(pd_copier *copier, const pd_wal_copy *what, pd_error *err);

#endif
