/* dataset.h - Fashion-MNIST, and which of its images a worker sees at which step.
 *
 * Image i belongs to worker i mod world for good: a worker keeps and reads only its own. Each epoch has a new order, in which
 * position p again holds an image of worker p mod world; a step takes the next `batch` positions and each worker computes on those
 * of them that are its own. The order depends on seed and epoch alone, so 1, 2, 4 … workers (any number that divides 240)
 * together see the very same batches. An object belongs to one thread. */
#ifndef DATASET_H
#define DATASET_H

#include <stdint.h>

#include "paramd/tensor.h"

enum { DATASET_PIXELS = 28 * 28, DATASET_CLASSES = 10 };

typedef struct dataset {
    int       in_file;          /* images in the file */
    int       total;            /* of these, all workers' */
    int       n;                /* of those, this worker's */
    int       rank, world;
    uint8_t  *pixels;           /* (n, 784) */
    uint8_t  *labels;           /* (n) */
    uint32_t *order;            /* (n) of this epoch */
} dataset;

/* Reads `folder`/`part`-images-idx3-ubyte.gz and …-labels-idx1-ubyte.gz (or the same without .gz); part: "train" or "t10k". 0 <= rank < world.
 * PD_NOT_FOUND: no such file. PD_DATA_LOSS: not what it should be. PD_NO_MEMORY. After an error there is nothing to free. */
int  dataset_load(dataset *set, const char *folder, const char *part, int rank, int world, pd_error *err);
/* The file's first `most` images (fewer where it has fewer), all of them for the one worker that asks. most >= 1. */
int  dataset_load_first(dataset *set, const char *folder, const char *part, int most, pd_error *err);
void dataset_free(dataset *set);                        /* accepts a zeroed one */

/* The order of an epoch. Before the first shuffle images stand as in the file. */
void dataset_shuffle(dataset *set, uint64_t seed, uint64_t epoch);

/* This worker's part of positions [first, first + batch) of all workers' common order; first + batch <= total. x (batch, 784) gets
 * pixels of mean 0 and variance 1, label their classes. Returns how many there are: about batch / world. */
int dataset_take(const dataset *set, int first, int batch, float *x, uint8_t *label);

#endif
