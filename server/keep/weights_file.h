/* weights_file.h - the file weights.safetensors of a checkpoint: the weights of all parameters in float32, under their
 * names, for any reader of safetensors. Its metadata has the job and the step. */
#ifndef PD_WEIGHTS_FILE_H
#define PD_WEIGHTS_FILE_H

#include "file_io.h"
#include "checkpoint_image.h"

/* Writes weights.safetensors, and tells its size and hash. */
int pd_weights_file_write(pd_file_writer *writer, const char *dir, const pd_checkpoint_image *kept, pd_file_sum *sum,
                          pd_error *err);
/* Reads the weights of all parameters of `kept`, which has their names and shapes, into memory that `kept` owns.
 * PD_DATA_LOSS: the file is damaged, or has other parameters. */
int pd_weights_file_read(const pd_disk *disk, const char *dir, const pd_file_sum *sum, pd_checkpoint_image *kept,
                         pd_error *err);
/* Does the same, but reads the weights of each parameter i to `to[i]`. */
int pd_weights_file_read_to(const pd_disk *disk, const char *dir, const pd_file_sum *sum,
                            const pd_checkpoint_image *kept, float *const *to, pd_error *err);
/* Returns the bytes that weights.safetensors of a checkpoint takes at most. */
uint64_t pd_weights_file_bytes(const pd_checkpoint_image *kept);

#endif
