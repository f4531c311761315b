/* weights_file.h - writes and reads the file weights.safetensors of a checkpoint: the weights of all parameters in
 * float32, by name. Any reader of safetensors can read it. Its metadata contain the name of the job and the step. */
#ifndef PD_WEIGHTS_FILE_H
#define PD_WEIGHTS_FILE_H

#include "file_io.h"
#include "checkpoint_image.h"

/* Writes weights.safetensors into the directory `dir`, and sets *sum to its size and hash. */
int pd_weights_file_write(pd_file_writer *writer, const char *dir, const pd_checkpoint_image *kept, pd_file_sum *sum,
                          pd_error *err);
/* Reads the weights of all parameters of the checkpoint `kept`, which has their names and shapes already, into memory
 * that `kept` owns. `sum`: size and hash of the file according to the manifest. PD_DATA_LOSS: the file is damaged, or
 * has other parameters. */
int pd_weights_file_read(const pd_disk *disk, const char *dir, const pd_file_sum *sum, pd_checkpoint_image *kept,
                         pd_error *err);
/* Does the same as pd_weights_file_read, but reads the weights of each parameter i into the caller's memory to[i]. */
int pd_weights_file_read_to(const pd_disk *disk, const char *dir, const pd_file_sum *sum,
                            const pd_checkpoint_image *kept, float *const *to, pd_error *err);
/* A weights.safetensors of which ranges are read. */
typedef struct pd_weights_file pd_weights_file;
/* Opens the file, whose hash the caller has checked, to read some of it in any order. The errors are those of
 * pd_weights_file_read. */
int pd_weights_file_open(pd_weights_file **out, const pd_disk *disk, const char *dir, const pd_file_sum *sum,
                         const pd_checkpoint_image *kept, pd_error *err);
/* Reads elements [first, first + n) of the weights of parameter i. */
int pd_weights_file_pick(pd_weights_file *r, uint32_t i, int64_t first, int64_t n, float *to, pd_error *err);
void pd_weights_file_close(pd_weights_file *r); /* accepts NULL */
/* Returns the most bytes that weights.safetensors of a checkpoint can have. */
uint64_t pd_weights_file_bytes(const pd_checkpoint_image *kept);

#endif
