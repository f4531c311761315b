/* log_index.h - finds the entries of a log by their headers, without reading what they have. */
#ifndef PD_LOG_INDEX_H
#define PD_LOG_INDEX_H

#include "keep_names.h"
#include "log_frame.h"

#define PD_LOG_NOWHERE SIZE_MAX

/* A file in the directory of a log. */
typedef struct pd_log_file {
    pd_segment_kind kind; /* not PD_SEGMENT_NONE */
    uint64_t number, up_to;
    uint64_t bytes;
    uint64_t last; /* step of its last entry; 0: it has none */
    char name[64];
    char job[PD_LOG_NAME]; /* the job's name according to its header */
} pd_log_file;

/* Where an entry lies. */
typedef struct pd_log_spot {
    size_t file; /* index of its file */
    uint64_t offset;
    pd_log_entry_header header;
    uint64_t parent; /* link of the entry of step - 1; 0: it begins a chain */
    uint64_t link;
    size_t next; /* index of the entry that was written last of those that follow this one; PD_LOG_NOWHERE: none */
} pd_log_spot;

typedef struct pd_log_index {
    const pd_disk *disk;
    char dir[PD_KEEP_PATH]; /* path of the log's directory */
    uint64_t creator;
    pd_log_file *files; /* in the order of their numbers, that in which they were written */
    size_t n_files, files_room;
    pd_log_spot *spots; /* entries in the order in which they were written */
    size_t n_spots, spots_room;
    uint64_t durable; /* the last step of which an entry or segment says that it was on the disk; 0: none does */
    bool no_memory;
    pd_error
        unreadable; /* the first file that a newer version has written, or the disk cannot read; code PD_OK: none */
} pd_log_index;

/* Reads the headers of all segments and entries of a log. The log is the directory `name` (PD_KEEP_LOG or
 * PD_KEEP_CONTROL) in the directory of its job; without such a directory the index is empty. If `claims` is set, also
 * looks for headers behind an entry that cannot be read, so that index->durable is the largest step that any header
 * claims. Errors are those of the disk when it lists the directory, and PD_NO_MEMORY. After an error there is nothing
 * to free. */
int pd_log_index_read(pd_log_index *index, const pd_disk *disk, const char *job_dir, const char *name, uint64_t creator,
                      bool claims, pd_error *err);
void pd_log_index_free(pd_log_index *index);

/* Returns the entry of a step that was written last; PD_LOG_NOWHERE: there is none. */
size_t pd_log_index_find(const pd_log_index *index, uint64_t step);
/* Returns the number up to which the entries of a control log are not needed any more, as the last entry says; 0: there
 * is no entry. */
uint64_t pd_log_index_base(const pd_log_index *index);
/* Writes the path of a file. */
void pd_log_index_path(char out[PD_KEEP_PATH], const pd_log_index *index, size_t file);

#endif
