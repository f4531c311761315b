/* wal_index.h - finds the records of a WAL stream by their headers alone, without reading the aggregates. */
#ifndef PD_WAL_INDEX_H
#define PD_WAL_INDEX_H

#include "state_dir.h"
#include "wal_format.h"
#include "wal_record.h"

#define PD_WAL_NOWHERE SIZE_MAX /* an index that says: there is no such record or file */

/* A segment's file in the directory of a stream. */
typedef struct pd_wal_file {
    pd_segment_kind kind; /* not PD_SEGMENT_NONE */
    /* number of the segment; step after which its records do not count (UINT64_MAX: all count) */
    uint64_t number, up_to;
    uint64_t bytes; /* size of the file */
    uint64_t last;  /* step of its last record; 0: it has no record */
    bool used;      /* pd_wal_index_chain: it contains a record of the chain */
    char name[64];
    char job[PD_WAL_NAME]; /* name of the job, from the segment's header */
} pd_wal_file;

/* A record that was found: its place and its header. */
typedef struct pd_wal_place {
    size_t file;     /* index in pd_wal_index.files of the file that contains the record */
    uint64_t offset; /* offset of the record in the file */
    pd_wal_header header;
    uint64_t parent; /* link of the record before; 0: this record begins a chain */
    uint64_t link;   /* link of this record */
    /* index in pd_wal_index.places of the record that follows this one, the newest if several do; PD_WAL_NOWHERE:
     * none */
    size_t next;
} pd_wal_place;

/* All files and records of one stream of a job's WAL. */
typedef struct pd_wal_index {
    const pd_disk *disk;
    char dir[PD_KEEP_PATH]; /* path of the stream's directory */
    uint64_t creator;       /* records of jobs with another creator do not count */
    pd_wal_file *files;     /* in the order of their numbers, which is the order in which they were written */
    size_t n_files, files_room;
    pd_wal_place *places; /* records in the order in which they were written */
    size_t n_places, places_room;
    uint64_t durable; /* the largest step that a header says was durable; 0: no header says so */
    bool no_memory;   /* memory for a list was missing, so the index is incomplete */
    /* why the first unreadable file cannot be read: a newer version has written it, or the disk failed; PD_OK: all
     * files were read */
    pd_error unreadable;
} pd_wal_index;

/* Returns the name of a stream's directory in the directory of its job. */
const char *pd_wal_stream_dir(pd_wal_stream stream);
/* Reads the headers of all segments and records of a stream. If the stream has no directory, the index is empty. With
 * `claims` also looks for headers after a record that cannot be read, so that index->durable is the largest step that
 * any header claims to be durable. Returns PD_NO_MEMORY, or the error of the disk if the directory cannot be listed;
 * there is nothing to free then. */
int pd_wal_index_read(pd_wal_index *index, const pd_disk *disk, const char *job_dir, pd_wal_stream stream,
                      uint64_t creator, bool claims, pd_error *err);
void pd_wal_index_free(pd_wal_index *index);

/* Returns the index in index->places of the newest record of a step; PD_WAL_NOWHERE: there is none. */
size_t pd_wal_index_find(const pd_wal_index *index, uint64_t step);
/* Finds the chain that contains the record `last`, which follows the records from base + 1 on; with last = base the one
 * that leads to the base. Sets pd_wal_file.used of the files that contain a record of this chain up to `last`. Returns
 * the number before the first record of the chain; `base` if there is no record of it. */
uint64_t pd_wal_index_chain(pd_wal_index *index, uint64_t base, uint64_t last);
/* Finds the chain of a stream that has ended before `place`, and not begun anew. Returns false if there is none: the
 * stream has no record, or has records of `place` or later steps. Otherwise *last is the number of its last record, and
 * *oldest the number before its first one. Sets pd_wal_file.used of the files that contain one of them. */
bool pd_wal_index_ended(pd_wal_index *index, uint64_t place, uint64_t *oldest, uint64_t *last);
/* For a stream of decisions: returns the base of the last record. Records up to this number are no longer needed.
 * Returns 0 if there is no record. */
uint64_t pd_wal_index_base(const pd_wal_index *index);
/* Writes the path of index->files[file] to `out`. */
void pd_wal_index_path(char out[PD_KEEP_PATH], const pd_wal_index *index, size_t file);

#endif
