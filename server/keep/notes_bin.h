/* notes_bin.h - the file notes.bin of a checkpoint: the workers' notes.
 *
 * Little-endian: "pdnotes\n", version (4 bytes), number of notes (4); each note: rank (4), 0 (4), step (8), length (8),
 * its bytes. */
#ifndef PD_NOTES_BIN_H
#define PD_NOTES_BIN_H

#include "file_reader.h"
#include "checkpoint_image.h"

/* Writes notes.bin, and tells its size and hash. */
int pd_notes_bin_write(pd_file_writer *writer, const char *dir, const pd_checkpoint_image *kept, pd_file_sum *sum,
                       pd_error *err);
/* Reads notes.bin into `kept`. PD_DATA_LOSS: it is damaged. After an error pd_checkpoint_image_free frees what was
 * read. */
int pd_notes_bin_read(const pd_disk *disk, const char *dir, const pd_file_sum *sum, pd_checkpoint_image *kept,
                      pd_error *err);
/* Returns the bytes that notes.bin of a checkpoint takes. */
uint64_t pd_notes_bin_bytes(const pd_checkpoint_image *kept);

#endif
