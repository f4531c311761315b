/* tracefile.h - writes small recorded runs for the tests of traces and replays. */
#ifndef PD_TRACEFILE_H
#define PD_TRACEFILE_H

#include "safetensors.h"
#include "trace.h"

#define TRACEFILE_MAX 64

typedef struct tracefile {
    struct {
        char name[80];
        pd_st_dtype dtype;
        pd_shape shape;
        const void *at;
        size_t bytes;
    } entry[TRACEFILE_MAX];
    size_t n;
    pd_st_meta meta[16];
    size_t n_meta;
} tracefile;

/* Returns a trace without tensors. The texts are borrowed until the file is written. Its metadata states no noise, so
 * the replay expects none. */
tracefile tracefile_of(const char *system, const char *name, const char *steps, const char *config);
/* Adds a float32 tensor of `n` elements in one dimension, or a scalar where n is 0. `values` is borrowed until the file
 * is written. */
void tracefile_add(tracefile *file, const char *name, const float *values, int64_t n);
/* Arguments with which tracefile_add_all calls tracefile_add for one tensor. */
typedef struct tracefile_values {
    const char *name;
    const float *values;
    int64_t n;
} tracefile_values;
void tracefile_add_all(tracefile *file, const tracefile_values *all, size_t n);
void tracefile_add_typed(tracefile *file, const char *name, pd_st_dtype dtype, const void *values, int64_t n);
void tracefile_add_matrix(tracefile *file, const char *name, const float *values, int64_t rows, int64_t cols);
/* Sets a metadata key: replaces its value, or adds the key. */
void tracefile_meta(tracefile *file, const char *key, const char *value);
/* Writes the trace to a new file under /tmp. `path` receives its name. */
void tracefile_write(const tracefile *file, char path[64]);
/* Writes the trace, opens it, checks that it is valid, and removes the file. The caller closes the trace. */
pd_trace *tracefile_open(const tracefile *file);

#endif
