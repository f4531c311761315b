/* wal_index.h - finds the entries of a log by their headers, without reading what they have. */
#ifndef PD_WAL_INDEX_H
#define PD_WAL_INDEX_H

#include "state_dir.h"
#include "wal_format.h"
#include "wal_record.h"

#define PD_WAL_NOWHERE SIZE_MAX

/* A file in the directory of a log. */
typedef struct pd_wal_file {
    pd_segment_kind kind; /* not PD_SEGMENT_NONE */
    uint64_t number, up_to;
    uint64_t bytes;
    uint64_t last; /* step of its last entry; 0: it has none */
    char name[64];
    char job[PD_WAL_NAME]; /* the job's name according to its header */
} pd_wal_file;

/* Where an entry lies. */
typedef struct pd_wal_place {
    size_t file; /* index of its file */
    uint64_t offset;
    pd_wal_header header;
    uint64_t parent; /* link of the entry of step - 1; 0: it begins a chain */
    uint64_t link;
    size_t next; /* index of the entry that was written last of those that follow this one; PD_WAL_NOWHERE: none */
} pd_wal_place;

typedef struct pd_wal_index {
    const pd_disk *disk;
    char dir[PD_KEEP_PATH]; /* path of the log's directory */
    uint64_t creator;
    pd_wal_file *files; /* in the order of their numbers, that in which they were written */
    size_t n_files, files_room;
    pd_wal_place *places; /* entries in the order in which they were written */
    size_t n_places, places_room;
    uint64_t durable; /* the last step of which an entry or segment says that it was on the disk; 0: none does */
    bool no_memory;
    pd_error
        unreadable; /* the first file that a newer version has written, or the disk cannot read; code PD_OK: none */
} pd_wal_index;

/* Returns the name of a stream's directory in the directory of its job. */
const char *pd_wal_stream_dir(pd_wal_stream stream);
/* Reads the headers of all segments and records of a stream; without its directory the index is empty. If `claims` is
 * set, also looks for headers after a record that cannot be read, so that index->durable is the largest step that any
 * header claims. Errors are those of the disk when it lists the directory, and PD_NO_MEMORY. After an error there is
 * nothing to free. */
int pd_wal_index_read(pd_wal_index *index, const pd_disk *disk, const char *job_dir, pd_wal_stream stream,
                      uint64_t creator, bool claims, pd_error *err);
void pd_wal_index_free(pd_wal_index *index);

/* Returns the entry of a step that was written last; PD_WAL_NOWHERE: there is none. */
size_t pd_wal_index_find(const pd_wal_index *index, uint64_t step);
/* Returns the number up to which the entries of a control log are not needed any more, as the last entry says; 0: there
 * is no entry. */
uint64_t pd_wal_index_base(const pd_wal_index *index);
/* Writes the path of a file. */
void pd_wal_index_path(char out[PD_KEEP_PATH], const pd_wal_index *index, size_t file);

#endif
