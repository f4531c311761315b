/* tracefile.h - writes small recorded runs for the tests of traces and replays. */
#ifndef PD_TRACEFILE_H
#define PD_TRACEFILE_H

#include "safetensors.h"
#include "trace.h"

#define TRACEFILE_MAX 64

typedef struct tracefile {
    struct { char name[80]; pd_st_dtype dtype; pd_shape shape; const void *at; size_t bytes; } entry[TRACEFILE_MAX];
    size_t     n;
    pd_st_meta meta[16];
    size_t     n_meta;
} tracefile;

/* Without tensors yet; the texts are borrowed until the file is written. It says nothing of noise, so there is none. */
tracefile tracefile_of(const char *system, const char *name, const char *steps, const char *config);
/* `values` is borrowed until the file is written; `n` elements in one dimension, or a scalar where n is 0. */
void tracefile_add(tracefile *file, const char *name, const float *values, int64_t n);
/* Several. */
typedef struct tracefile_values { const char *name; const float *values; int64_t n; } tracefile_values;
void tracefile_add_all(tracefile *file, const tracefile_values *all, size_t n);
void tracefile_add_typed(tracefile *file, const char *name, pd_st_dtype dtype, const void *values, int64_t n);
void tracefile_add_matrix(tracefile *file, const char *name, const float *values, int64_t rows, int64_t cols);
/* Replaces the value of a key that is there. */
void tracefile_meta(tracefile *file, const char *key, const char *value);
/* Writes it to a new file under /tmp whose name goes to path. */
void tracefile_write(const tracefile *file, char path[64]);
/* Written, opened, checked and removed: a trace, which must be good. The caller closes it. */
pd_trace *tracefile_open(const tracefile *file);

#endif
