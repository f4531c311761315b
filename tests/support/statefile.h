/* statefile.h - a file of saved optimizer state, made tensor by tensor: for tests. Whatever goes wrong here fails the test. */
#ifndef STATEFILE_H
#define STATEFILE_H

#include "safetensors.h"

typedef struct saved {
    pd_st_tensor tensor[512];
    char         name[512][256];
    void        *data[512];             /* by the index that the name has */
    size_t       n;
} saved;

/* Takes `data`, of that type. */
void save_tensor(saved *s, pd_st_dtype dtype, const pd_shape *shape, void *data, const char *name);
/* Copies it; the name is stem and word. */
void save_as(saved *s, pd_st_dtype dtype, const pd_shape *shape, const void *data, const char *stem, const char *word);
/* Writes the file, and frees what was saved. */
void write_saved(saved *s, const char *path);

#endif
