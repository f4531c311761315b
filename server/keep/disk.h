/* disk.h - pd_disk, the table of functions through which server/keep reads, writes and removes files.
 *
 * The daemon and paramctl use pd_disk_posix. Tests and the simulator use tables of their own, whose functions lose data
 * that was not synced, write only part of it, or fail. So server/keep may rely only on what POSIX guarantees: after a
 * crash a file has the data that it had at its last sync_file or sync_data, and a directory has the names that it had
 * at its last sync_dir. Later changes may be there completely, in part, or not at all.
 *
 * Every function returns 0 or the number of an error (errno.h). Paths are absolute, or relative to the working
 * directory. Functions may be called from any thread, but a file is used by one thread at a time. */
#ifndef PD_DISK_H
#define PD_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

/* Writes are fastest if the address, the length and the offset in the file are multiples of this number of bytes. */
#define PD_DISK_BLOCK 4096

/* The functions of one disk. */
typedef struct pd_disk {
    void *arg;       /* first argument of all functions */
    bool any_memory; /* writes are fast at any address, if the length and the offset are multiples of PD_DISK_BLOCK */
    /* Makes a directory that only its owner may enter. EEXIST: the name is in use. */
    int (*make_dir)(void *arg, const char *path);
    /* Creates a file for writing, which must not exist. `bytes` is its approximate size, a hint. */
    int (*create)(void *arg, const char *path, uint64_t bytes, int *file);
    /* Adds bytes to the end of a file. After an error the contents of the file are undefined. */
    int (*write)(void *arg, int file, const void *at, size_t bytes);
    /* Opens an existing file for writing, without changing its contents. `bytes` is a hint, as in `create`. */
    int (*reopen)(void *arg, const char *path, uint64_t bytes, int *file);
    /* Writes bytes at an offset that is at most the size of the file. After an error these bytes are undefined. */
    int (*write_at)(void *arg, int file, uint64_t offset, const void *at, size_t bytes);
    /* Waits until the disk has all data of a file. After an error it is unknown which data the disk has, even if a
     * second call succeeds: the caller must write a new file. */
    int (*sync_file)(void *arg, int file);
    /* Does the same as sync_file, but may leave out the file's time of modification: faster after overwriting. */
    int (*sync_data)(void *arg, int file);
    /* Opens a file for reading. */
    int (*open)(void *arg, const char *path, int *file);
    /* Sets *bytes to the size of a file. */
    int (*size)(void *arg, int file, uint64_t *bytes);
    /* Reads exactly `bytes` bytes at an offset. ENODATA: the file has fewer. */
    int (*read)(void *arg, int file, uint64_t offset, void *at, size_t bytes);
    int (*close)(void *arg, int file);
    /* Waits until the disk has the names in a directory. */
    int (*sync_dir)(void *arg, const char *path);
    /* Renames a file or directory within its directory. ENOTEMPTY or EEXIST: a directory has the new name. */
    int (*rename)(void *arg, const char *from, const char *to);
    /* Removes a file or an empty directory. */
    int (*remove)(void *arg, const char *path);
    /* Calls `each` with `what` and every name in a directory except . and .., in any order. ENOENT: there is no such
     * directory. */
    int (*list)(void *arg, const char *path, void (*each)(void *what, const char *name), void *what);
    /* Sets *bytes to the free space on the disk of a directory. */
    int (*space)(void *arg, const char *path, uint64_t *bytes);
} pd_disk;

/* The real file system. */
extern const pd_disk pd_disk_posix;

/* Fills *err for the error number `number` of a disk, and returns the code: PD_RESOURCE_EXHAUSTED if the disk is full,
 * PD_NO_MEMORY, PD_NOT_FOUND if there is no such file, else PD_UNAVAILABLE. `action` is a verb, such as "write". */
int pd_disk_fail(pd_error *err, int number, const char *action, const char *path);

/* Calls disk->sync_dir, and turns its error number into an error (pd_disk_fail). */
int pd_disk_sync_dir(const pd_disk *disk, const char *path, pd_error *err);

/* A disk that passes all calls on to another disk. To change some functions, make this struct the first member of your
 * own struct, and replace the functions in the table: their `arg` then points to your struct. */
typedef struct pd_disk_pass {
    pd_disk functions;    /* arg is this struct */
    const pd_disk *below; /* the disk that gets the calls */
} pd_disk_pass;

/* Fills the table. All its functions call those of `below`, which must outlive the table. */
void pd_disk_pass_init(pd_disk_pass *disk, const pd_disk *below);

#endif
