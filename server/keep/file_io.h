/* file_io.h - writes one file of a checkpoint or WAL in large aligned blocks, and computes its XXH3 on the way; reads
 * one file of a checkpoint from its beginning to its end, and compares its size and XXH3 with those of the manifest.
 *
 * What has been read is proved only when pd_file_reader_close returns PD_OK. Until then it may be anything, so the
 * caller checks every number. */
#ifndef PD_FILE_IO_H
#define PD_FILE_IO_H

#include "disk.h"
#include "hash.h"
#include "state_dir.h"

/* Size and hash of a file, as the manifest has them. */
typedef struct pd_file_sum {
    uint64_t bytes, xxh3;
} pd_file_sum;

typedef struct pd_file_writer {
    const pd_disk *disk;
    uint8_t *buffer; /* data that is not written yet: `used` bytes */
    size_t used;
    uint64_t bytes;      /* bytes of the file so far, with those in the buffer */
    XXH3_state_t *whole; /* hash of the file so far */
    XXH3_state_t *block; /* hash of what came since pd_file_writer_begin_block */
    bool in_block;
    int file;
    bool open;
    bool in_place;   /* the file is another's, who has it open, and is written from `offset` on */
    uint64_t offset; /* of the next byte that is written */
    char path[PD_KEEP_PATH];
} pd_file_writer;

/* Allocates the memory of a writer, which can write one file after the other. PD_NO_MEMORY. */
int pd_file_writer_init(pd_file_writer *writer, const pd_disk *disk, pd_error *err);
/* Frees the memory of a writer, and closes the file that is open after an error. Accepts zeros. */
void pd_file_writer_free(pd_file_writer *writer);

/* Creates a file that must not exist. `expected` is its size, as far as it is known. */
int pd_file_writer_open(pd_file_writer *writer, const char *dir, const char *name, uint64_t expected, pd_error *err);
/* Adds bytes to the file. The memory is read at once, never later. */
int pd_file_writer_put(pd_file_writer *writer, const void *at, size_t bytes, pd_error *err);
/* Begins a block. The function pd_file_writer_end_block ends it, and returns the hash of its bytes. */
void pd_file_writer_begin_block(pd_file_writer *writer);
uint64_t pd_file_writer_end_block(pd_file_writer *writer);
/* Writes what is left, waits until the disk has it, closes the file, and tells its size and hash. */
int pd_file_writer_close(pd_file_writer *writer, pd_file_sum *sum, pd_error *err);

/* Writes on in a file that the caller has open for writing at places, instead of pd_file_writer_open and _close: only
 * blocks are hashed. `path` is for errors. */
void pd_file_writer_resume(pd_file_writer *writer, int file, const char *path, uint64_t offset);
/* Writes all that was put. Does not wait for the disk. */
int pd_file_writer_flush(pd_file_writer *writer, pd_error *err);

typedef struct pd_file_reader {
    const pd_disk *disk;
    uint64_t bytes, at; /* size of the file, and how much of it was read */
    pd_file_sum expected;
    XXH3_state_t *whole;
    int file;
    const char *name; /* of the file in its directory, for errors */
    char path[PD_KEEP_PATH];
} pd_file_reader;

/* Opens a file. `expected`: its size and hash according to the manifest; NULL: the file is the manifest. PD_DATA_LOSS:
 * its size is another. The other errors are those of the disk. After an error there is nothing to close. */
int pd_file_reader_open(pd_file_reader *reader, const pd_disk *disk, const char *dir, const char *name,
                        const pd_file_sum *expected, pd_error *err);
/* Reads the next bytes. PD_DATA_LOSS: the file ends before. */
int pd_file_reader_take(pd_file_reader *reader, void *at, size_t bytes, pd_error *err);
/* Reads bytes from anywhere, ahead of the others: they are not counted as read. */
int pd_file_reader_peek(pd_file_reader *reader, uint64_t offset, void *at, size_t bytes, pd_error *err);
/* Reads the rest of the file, and drops it. */
int pd_file_reader_skip(pd_file_reader *reader, pd_error *err);
/* Closes the file. If rc is PD_OK, checks that all of it was read and has the hash that the manifest tells. Returns rc
 * if it is an error, else PD_DATA_LOSS if the file differs. */
int pd_file_reader_close(pd_file_reader *reader, int rc, pd_error *err);
/* Fills *err with PD_DATA_LOSS and what is wrong with the file. */
int pd_file_reader_damaged(const pd_file_reader *reader, pd_error *err, const char *what);

#endif
