/* new_file.h - writes a file that appears under its name only when it is complete. */
#ifndef PD_NEW_FILE_H
#define PD_NEW_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "paramd/error.h"

/* A file that is being written. It has no name until it is complete, so that nothing is left if the program is
 * killed. On a file system without nameless files it has a temporary name in the same folder. */
typedef struct pd_new_file {
    int fd;           /* descriptor of the file; -1: no file is open */
    const char *path; /* borrowed */
    char *part;       /* temporary name of the file; NULL: the output is standard output */
    bool nameless;    /* the file has no name yet, not even its temporary name */
    bool force;
} pd_new_file;

/* Opens a new file; the path "-" is standard output. PD_ALREADY_EXISTS: the file exists and `force` is false.
 * PD_FAILED_PRECONDITION: the file cannot be made in that folder, or standard output is a terminal. PD_NO_MEMORY:
 * out of memory. */
int pd_new_file_open(pd_new_file *out, const char *path, bool force, pd_error *err);
/* Appends bytes to the new file. PD_FAILED_PRECONDITION: they cannot be written, for example because the disk is
 * full. */
int pd_new_file_write(pd_new_file *file, const void *at, size_t bytes, pd_error *err);
/* Syncs the complete file to disk and gives it its name. PD_ALREADY_EXISTS: without `force`, another program has
 * made a file of that name in the meantime; that file stays. */
int pd_new_file_commit(pd_new_file *file, pd_error *err);
/* Removes a new file that was not completed by pd_new_file_commit. Does nothing after pd_new_file_commit, or if no
 * file is open. */
void pd_new_file_drop(pd_new_file *file);

#endif
