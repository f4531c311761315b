/* mem_disk.h - a disk in memory, for tests of checkpoints: it fails when asked, and forgets at a crash what was not
 * synced.
 *
 *     mem_disk *memory = mem_disk_new();
 *     pd_disk disk = mem_disk_table(memory);
 *     disk.make_dir(disk.arg, "/state");
 *     mem_disk_power_off_at(memory, 7);        every call from the 8th on fails and changes nothing
 *     rc = pd_checkpoint_write(&disk, "/state", ...);
 *     mem_disk_crash(memory, MEM_DISK_TEAR, seed);
 *
 * A file keeps its data up to the last sync_file or sync_data, and a directory its names up to the last sync_dir. What
 * came later is kept or lost as the kind of crash says. After a sync of a file that was made to fail, what the file has
 * not synced never reaches the disk, though later calls report success, as on a real system. One thread. */
#ifndef MEM_DISK_H
#define MEM_DISK_H

#include "disk.h"

typedef struct mem_disk mem_disk;

/* Returns an empty disk with the directory "/". NULL: out of memory. */
mem_disk *mem_disk_new(void);
void mem_disk_free(mem_disk *disk); /* accepts NULL */
/* Returns the functions of the disk. */
pd_disk mem_disk_table(mem_disk *disk);

/* Makes the n-th call fail with an error number. A write that fails has written half of its bytes. -1: none. */
void mem_disk_fail_at(mem_disk *disk, int64_t n, int number);
/* Makes the n-th call and all later ones fail with EIO, and change nothing, until mem_disk_crash. -1: none. */
void mem_disk_power_off_at(mem_disk *disk, int64_t n);
/* Limits the bytes of all files together: beyond it, calls fail with ENOSPC. */
void mem_disk_limit(mem_disk *disk, uint64_t bytes);

typedef enum mem_disk_crash_kind {
    MEM_DISK_LOSE, /* all changes since the last sync are lost */
    MEM_DISK_KEEP, /* nothing is lost */
    /* Some changes of directories since the last sync are kept, and some are lost. Files end somewhere, or have other
     * bytes where data is lost. */
    MEM_DISK_TEAR
} mem_disk_crash_kind;
/* Crashes the machine, and starts it anew: open files are closed, and faults are over. `seed` chooses what is kept. */
void mem_disk_crash(mem_disk *disk, mem_disk_crash_kind kind, uint64_t seed);

typedef struct mem_disk_call {
    const char *what; /* name of the function, as in pd_disk */
    char path[200];   /* the path that was given, or the path of the open file */
    uint64_t bytes;   /* number of bytes that were written or read */
    int number;       /* the returned error number; 0: none */
} mem_disk_call;

/* Returns the calls so far, in their order. */
const mem_disk_call *mem_disk_calls(const mem_disk *disk, size_t *n);
void mem_disk_forget_calls(mem_disk *disk);
/* Returns the data of a file, which a test may change, and its length. NULL: there is no such file. */
uint8_t *mem_disk_file(mem_disk *disk, const char *path, size_t *bytes);
/* Returns whether there is a file or directory of this path. */
bool mem_disk_has(mem_disk *disk, const char *path);
/* Makes a file shorter or longer, as damage does. */
void mem_disk_resize(mem_disk *disk, const char *path, size_t bytes);

#endif
