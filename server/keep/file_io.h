/* file_io.h - writes one file of a checkpoint or WAL in large aligned blocks, and computes its XXH3 meanwhile; reads
 * one file of a checkpoint from its beginning to its end, and compares its size and XXH3 with those in the manifest.
 *
 * Bytes that were read are known to be intact only when pd_file_reader_close has returned PD_OK. Until then the caller
 * must check every number that it reads. */
#ifndef PD_FILE_IO_H
#define PD_FILE_IO_H

#include "disk.h"
#include "hash.h"
#include "state_dir.h"

/* Size and hash of a file, as in the manifest of a checkpoint. */
typedef struct pd_file_sum {
    uint64_t bytes, xxh3;
} pd_file_sum;

/* Writes one file after the other. The caller owns it. */
typedef struct pd_file_writer {
    const pd_disk *disk;
    uint8_t *buffer; /* its first `used` bytes are data that are not written yet */
    size_t used;
    uint64_t bytes;      /* bytes that were put into the file so far, including those in the buffer */
    XXH3_state_t *whole; /* hash of the file so far */
    XXH3_state_t *block; /* hash of the bytes since pd_file_writer_begin_block */
    bool in_block;       /* pd_file_writer_end_block is still to be called */
    int file;
    bool open;       /* the writer has opened `file`, and must close it */
    bool in_place;   /* the caller has opened `file` (pd_file_writer_resume), and the writer fills it from `offset` */
    uint64_t offset; /* offset of the next byte that is written, if in_place */
    char path[PD_KEEP_PATH]; /* path of the file, for errors */
} pd_file_writer;

/* Allocates the memory of a writer. PD_NO_MEMORY. */
int pd_file_writer_init(pd_file_writer *writer, const pd_disk *disk, pd_error *err);
/* Frees the memory of a writer, and closes a file that an error has left open. Accepts a writer that is all zeros. */
void pd_file_writer_free(pd_file_writer *writer);

/* Creates a file that must not exist. `expected` is its approximate size, a hint for the disk. */
int pd_file_writer_open(pd_file_writer *writer, const char *dir, const char *name, uint64_t expected, pd_error *err);
/* Adds bytes to the file. The memory is not used after the call. */
int pd_file_writer_put(pd_file_writer *writer, const void *at, size_t bytes, pd_error *err);
/* Begins a section of the file that has a hash of its own. pd_file_writer_end_block ends the section, and returns the
 * hash of its bytes. */
void pd_file_writer_begin_block(pd_file_writer *writer);
uint64_t pd_file_writer_end_block(pd_file_writer *writer);
/* Writes the buffered bytes, waits until the disk has the whole file, closes it, and sets *sum to its size and hash. */
int pd_file_writer_close(pd_file_writer *writer, pd_file_sum *sum, pd_error *err);

/* Continues at `offset` in a file that the caller has opened with pd_disk.create or pd_disk.reopen. The caller also
 * closes it: pd_file_writer_open and _close are not used. Only sections (pd_file_writer_begin_block) are hashed, not
 * the file. `path` is for errors. */
void pd_file_writer_resume(pd_file_writer *writer, int file, const char *path, uint64_t offset);
/* Writes the buffered bytes. Does not wait until the disk has them. */
int pd_file_writer_flush(pd_file_writer *writer, pd_error *err);

/* A file of a checkpoint that is being read. */
typedef struct pd_file_reader {
    const pd_disk *disk;
    uint64_t bytes, at;   /* size of the file, and how many of its bytes were read */
    pd_file_sum expected; /* size and hash according to the manifest */
    XXH3_state_t *whole; /* hash of the bytes that were read; NULL: the file is the manifest, which contains its hash */
    int file;
    const char *name; /* name of the file in its directory */
    char path[PD_KEEP_PATH];
} pd_file_reader;

/* Opens a file. `expected`: its size and hash according to the manifest; NULL: the file is the manifest. PD_DATA_LOSS:
 * the file has another size. Other errors are PD_NO_MEMORY and those of the disk. After an error there is nothing to
 * close. */
int pd_file_reader_open(pd_file_reader *reader, const pd_disk *disk, const char *dir, const char *name,
                        const pd_file_sum *expected, pd_error *err);
/* Reads the next `bytes` bytes. PD_DATA_LOSS: the file has fewer. */
int pd_file_reader_take(pd_file_reader *reader, void *at, size_t bytes, pd_error *err);
/* Reads bytes at any offset, without changing where pd_file_reader_take reads next, and without hashing them. */
int pd_file_reader_peek(pd_file_reader *reader, uint64_t offset, void *at, size_t bytes, pd_error *err);
/* Reads the rest of the file only to hash it. */
int pd_file_reader_skip(pd_file_reader *reader, pd_error *err);
/* Closes the file. `rc` is the result of the reads before. Returns rc if it is an error. Otherwise checks that the
 * whole file was read and has the hash in the manifest, and returns PD_DATA_LOSS if not. */
int pd_file_reader_close(pd_file_reader *reader, int rc, pd_error *err);
/* Fills *err with PD_DATA_LOSS, the path of the file, and `what`: what is wrong with it. Returns PD_DATA_LOSS. */
int pd_file_reader_damaged(const pd_file_reader *reader, pd_error *err, const char *what);

#endif
