/* statefile.h - builds a file of saved optimizer state, tensor by tensor, for tests. Any error fails the test. */
#ifndef STATEFILE_H
#define STATEFILE_H

#include "safetensors.h"

typedef struct saved {
    pd_st_tensor tensor[512];
    char name[512][256];
    void *data[512]; /* data of each tensor, by the tensor's index in `name` */
    size_t n;
} saved;

/* Adds a tensor of the given type to the file. The file owns `data` from now on. */
void save_tensor(saved *s, pd_st_dtype dtype, const pd_shape *shape, void *data, const char *name);
/* Adds a copy of `data`. The tensor's name is `stem` followed by `word`. */
void save_as(saved *s, pd_st_dtype dtype, const pd_shape *shape, const void *data, const char *stem, const char *word);
/* Writes the file, and frees all tensors. */
void write_saved(saved *s, const char *path);

#endif
