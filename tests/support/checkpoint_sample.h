/* checkpoint_sample.h - small checkpoints for tests, whose content follows from their step. */
#ifndef CHECKPOINT_SAMPLE_H
#define CHECKPOINT_SAMPLE_H

#include "checkpoint_files.h"

#define SAMPLE_JOB "runs/gpt #1"
#define SAMPLE_CREATOR 0x0123456789abcdefu

extern const pd_checkpoint_about sample_about;

/* Makes a checkpoint of the job SAMPLE_JOB with a matrix, a vector of an odd length, a scalar and an empty tensor, and
 * notes of ranks 0 and 2. `keep`: how many checkpoints of the job are kept. NULL: out of memory. */
pd_checkpoint_image *sample_checkpoint(uint64_t step, uint64_t keep);
/* Makes a checkpoint of one large parameter and its state of as many bytes, in memory that is aligned as `aligned`
 * says. */
pd_checkpoint_image *sample_large(uint64_t step, size_t bytes, size_t aligned);
/* Makes a checkpoint of n parameters of one element. Their names have PD_NAME_MAX bytes, nearly all of which are
 * escaped in JSON. */
pd_checkpoint_image *sample_long_names(uint64_t step, uint32_t n);
/* Fails the test unless both have the same content. */
void assert_checkpoints_same(const pd_checkpoint_image *a, const pd_checkpoint_image *b);

#endif
