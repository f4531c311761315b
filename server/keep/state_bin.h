/* state_bin.h - writes and reads two files of a checkpoint: state.bin, with the header of the image and the state of
 * each parameter but its weights, and notes.bin, with the worker states.
 *
 * Numbers in state.bin are little-endian. In parentheses are their bytes:
 *
 *     prefix:       "pdstate\n", version (4), 0 (4)
 *     sections:     the header of the image, then the state of each parameter, without gaps
 *     index:        creator (8), step (8), number of parameters (4), length of the job's name (4), offset, length and
 *                   XXH3 of the header (8 each), the job's name; then for each parameter: length of its name (4),
 *                   number of dimensions (4), the dimensions, step, offset, length and XXH3 of its state (8 each), its
 *                   name
 *     end:          length of the index (8), its XXH3 (8), "pdstate\n" */
#ifndef PD_STATE_BIN_H
#define PD_STATE_BIN_H

#include "checkpoint_image.h"
#include "file_io.h"

/* Writes state.bin into the directory `dir`, and sets *sum to its size and hash. */
int pd_state_bin_write(pd_file_writer *writer, const char *dir, const pd_checkpoint_image *kept, pd_file_sum *sum,
                       pd_error *err);
/* Reads state.bin into `kept`, which must be all zeros: job, creator, step, the header of the image, and the parameters
 * without their weights. `sum`: size and hash of the file according to the manifest. PD_DATA_LOSS: the file is damaged.
 * PD_UNIMPLEMENTED: it has another version. After an error the caller frees `kept` (pd_checkpoint_image_free). */
int pd_state_bin_read(const pd_disk *disk, const char *dir, const pd_file_sum *sum, pd_checkpoint_image *kept,
                      pd_error *err);
/* A state.bin that is being read, one parameter after the other. */
typedef struct pd_state_bin pd_state_bin;
/* Opens state.bin, and reads everything but the states of the parameters into `kept`, which must be all zeros. After an
 * error there is nothing to close, and the caller frees `kept`. */
int pd_state_bin_open(pd_state_bin **out, const pd_disk *disk, const char *dir, const pd_file_sum *sum,
                      pd_checkpoint_image *kept, pd_error *err);
/* Reads the state of parameter i, and lets kept->params[i].state point to it until the next call. Call it for all
 * parameters in their order. PD_DATA_LOSS: the state is damaged. */
int pd_state_bin_next(pd_state_bin *r, uint32_t i, pd_error *err);
/* Does the same for any parameter, in any order. Then pd_state_bin_next must not be called. */
int pd_state_bin_pick(pd_state_bin *r, uint32_t i, pd_error *err);
/* Frees the memory of the state that pd_state_bin_pick has read last. It allocates it again. */
void pd_state_bin_release(pd_state_bin *r);
/* Closes the file. `rc` is the result of the reads before. If it is PD_OK, reads the rest of the file and compares its
 * hash with the manifest. Returns rc or the error of this check. Accepts NULL. */
int pd_state_bin_close(pd_state_bin *r, int rc, pd_error *err);
/* Returns the size of state.bin of a checkpoint. */
uint64_t pd_state_bin_bytes(const pd_checkpoint_image *kept);

/* Writes notes.bin into the directory `dir`, and sets *sum to its size and hash. */
int pd_notes_bin_write(pd_file_writer *writer, const char *dir, const pd_checkpoint_image *kept, pd_file_sum *sum,
                       pd_error *err);
/* Reads the worker states of notes.bin into `kept`. `sum`: size and hash of the file according to the manifest.
 * PD_DATA_LOSS: the file is damaged. After an error the caller frees `kept` (pd_checkpoint_image_free). */
int pd_notes_bin_read(const pd_disk *disk, const char *dir, const pd_file_sum *sum, pd_checkpoint_image *kept,
                      pd_error *err);
/* Returns the size of notes.bin of a checkpoint. */
uint64_t pd_notes_bin_bytes(const pd_checkpoint_image *kept);

#endif
