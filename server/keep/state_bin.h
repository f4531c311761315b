/* state_bin.h - the file state.bin of a checkpoint: what belongs to the job as a whole, and the state of each parameter
 * but its weights.
 *
 * Little-endian: "pdstate\n", version (4 bytes), 0 (4); the head; the state of each parameter; the index; the length of
 * the index (8), its XXH3 (8), "pdstate\n". The index: creator (8), step (8), number of parameters (4), length of the
 * job's name (4), the name; offset, length and XXH3 of the head (8 each); and for each parameter the length of its name
 * (4), rank (4), dimensions, step, offset, length and XXH3 of its state (8 each), its name. Head and states follow each
 * other without gaps. */
#ifndef PD_STATE_BIN_H
#define PD_STATE_BIN_H

#include "checkpoint_image.h"
#include "file_io.h"

/* Writes state.bin, and tells its size and hash. */
int pd_state_bin_write(pd_file_writer *writer, const char *dir, const pd_checkpoint_image *kept, pd_file_sum *sum,
                       pd_error *err);
/* Reads state.bin into `kept`, which has nothing yet: job, creator, step, head, and all of the parameters but their
 * weights. PD_DATA_LOSS: it is damaged. After an error pd_checkpoint_image_free frees what was read. */
int pd_state_bin_read(const pd_disk *disk, const char *dir, const pd_file_sum *sum, pd_checkpoint_image *kept,
                      pd_error *err);
/* A state.bin that is being read. */
typedef struct pd_state_bin pd_state_bin;
/* Opens state.bin, and reads into `kept`, which has nothing yet, all but the states of parameters. */
int pd_state_bin_open(pd_state_bin **out, const pd_disk *disk, const char *dir, const pd_file_sum *sum,
                      pd_checkpoint_image *kept, pd_error *err);
/* Reads the state of parameter i into memory that the next call uses again. Parameters are read in their order.
 * PD_DATA_LOSS: the state is damaged. */
int pd_state_bin_next(pd_state_bin *r, uint32_t i, pd_error *err);
/* Closes the file. If rc is PD_OK, checks that all of it is as the manifest tells. Returns rc or the error of that
 * check. Accepts NULL. */
int pd_state_bin_close(pd_state_bin *r, int rc, pd_error *err);
/* Returns the bytes that state.bin of a checkpoint takes. */
uint64_t pd_state_bin_bytes(const pd_checkpoint_image *kept);

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
