/* disk.h - a table of functions through which the keeper does all that it does with files.
 *
 * The daemon and paramctl use the functions of pd_disk_posix. Tests and the simulator bring their own, which forget
 * data that was not synced, tear writes, or fail. So the code of this folder may rely on no more than POSIX promises:
 * after a crash a file has the data that it had at its last sync_file or sync_data, and a directory the names that it
 * had at its last sync_dir. Anything since then may be there, in part, or not at all.
 *
 * Every function returns 0 or the number of an error (errno.h). Paths are absolute, or relative to the working
 * directory. Functions may be called from any thread, but a file is used by one thread at a time. */
#ifndef PD_DISK_H
#define PD_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

/* Writes are fastest if the memory, the length and the place in the file are multiples of this number of bytes. */
#define PD_DISK_BLOCK 4096

typedef struct pd_disk {
    void *arg;       /* first argument of all functions */
    bool any_memory; /* writes are fast wherever the memory lies, if length and place are multiples of the block */
    /* Makes a directory that only its owner may enter. EEXIST: there is something of this name. */
    int (*make_dir)(void *arg, const char *path);
    /* Creates a file for writing, which must not exist. `bytes` is its size, as far as it is known: a hint. */
    int (*create)(void *arg, const char *path, uint64_t bytes, int *file);
    /* Adds bytes to the end of a file. After an error the file is of no use. */
    int (*write)(void *arg, int file, const void *at, size_t bytes);
    /* Opens a file that is there, to write over it and to add to it. `bytes` is a hint, as in `create`. */
    int (*reopen)(void *arg, const char *path, uint64_t bytes, int *file);
    /* Writes bytes at a place in a file, which may end there but not before. After an error these bytes may be any. */
    int (*write_at)(void *arg, int file, uint64_t offset, const void *at, size_t bytes);
    /* Waits until the disk has all data of a file. After an error nobody knows which data the disk has, and a second
     * call that succeeds proves nothing: the file must be written anew. */
    int (*sync_file)(void *arg, int file);
    /* Does the same, but the time of the last change need not be on the disk: faster where bytes were written over. */
    int (*sync_data)(void *arg, int file);
    /* Opens a file for reading. */
    int (*open)(void *arg, const char *path, int *file);
    int (*size)(void *arg, int file, uint64_t *bytes);
    /* Reads exactly `bytes` bytes. ENODATA: the file ends before. */
    int (*read)(void *arg, int file, uint64_t offset, void *at, size_t bytes);
    int (*close)(void *arg, int file);
    /* Waits until the disk has the names in a directory. */
    int (*sync_dir)(void *arg, const char *path);
    /* Renames a file or directory within its directory. ENOTEMPTY or EEXIST: the new name is that of a directory. */
    int (*rename)(void *arg, const char *from, const char *to);
    /* Removes a file or an empty directory. */
    int (*remove)(void *arg, const char *path);
    /* Calls `each` with every name in a directory but . and .., in no order. ENOENT: there is no such directory. */
    int (*list)(void *arg, const char *path, void (*each)(void *what, const char *name), void *what);
    /* Tells how many bytes can still be written. */
    int (*space)(void *arg, const char *path, uint64_t *bytes);
} pd_disk;

/* The real file system. */
extern const pd_disk pd_disk_posix;

/* Fills *err for an error number of a disk and returns the code: PD_RESOURCE_EXHAUSTED if the disk is full,
 * PD_NO_MEMORY, PD_NOT_FOUND if there is no such file, else PD_UNAVAILABLE. `action` is a verb, such as "write". */
int pd_disk_fail(pd_error *err, int number, const char *action, const char *path);

/* Waits until the disk has the names in a directory. */
int pd_disk_sync_dir(const pd_disk *disk, const char *path, pd_error *err);

/* A disk that passes all calls on to another one. A disk that does something of its own puts it first in its struct,
 * and replaces functions of the table: `arg` points to both. */
typedef struct pd_disk_pass {
    pd_disk functions; /* arg is this struct */
    const pd_disk *below;
} pd_disk_pass;

/* Fills the table. `below` gets the calls, and must outlive it. */
void pd_disk_pass_init(pd_disk_pass *disk, const pd_disk *below);

#endif
