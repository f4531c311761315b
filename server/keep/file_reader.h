/* file_reader.h - reads one file of a checkpoint from its beginning to its end, and compares its size and XXH3 with
 * those that the manifest has.
 *
 * What has been read is proved only when pd_file_reader_close returns PD_OK. Until then it may be anything, so whoever
 * uses it checks every number. */
#ifndef PD_FILE_READER_H
#define PD_FILE_READER_H

#include "file_writer.h"

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
