/* tracefile.c - builds recorded runs for tests of replay. */
#include "tracefile.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tracefile_add_typed(tracefile *file, const char *name, pd_st_dtype dtype, const void *values, int64_t n)
{
    size_t i = file->n++;

    assert(i < TRACEFILE_MAX);
    snprintf(file->entry[i].name, sizeof file->entry[i].name, "%s", name);
    file->entry[i].dtype = dtype;
    if (n > 0) file->entry[i].shape = (pd_shape){ .rank = 1, .dim = { n } };
    file->entry[i].at = values;
    file->entry[i].bytes = (size_t)(n > 0 ? n : 1) * pd_st_dtype_size(dtype);
}

void tracefile_add(tracefile *file, const char *name, const float *values, int64_t n)
{
    tracefile_add_typed(file, name, PD_ST_F32, values, n);
}

void tracefile_add_all(tracefile *file, const tracefile_values *all, size_t n)
{
    for (size_t i = 0; i < n; i++) tracefile_add(file, all[i].name, all[i].values, all[i].n);
}

void tracefile_add_matrix(tracefile *file, const char *name, const float *values, int64_t rows, int64_t cols)
{
    tracefile_add(file, name, values, rows * cols);
    file->entry[file->n - 1].shape = (pd_shape){ .rank = 2, .dim = { rows, cols } };
}

void tracefile_meta(tracefile *file, const char *key, const char *value)
{
    size_t i = 0;

    while (i < file->n_meta && strcmp(file->meta[i].key, key) != 0) i++;
    if (i == file->n_meta) file->n_meta++;
    assert(file->n_meta <= 16);
    file->meta[i] = (pd_st_meta){ key, value };
}

tracefile tracefile_of(const char *system, const char *name, const char *steps, const char *config)
{
    tracefile file = { 0 };

    tracefile_meta(&file, "system", system);
    tracefile_meta(&file, "case", name);
    tracefile_meta(&file, "steps", steps);
    tracefile_meta(&file, "config", config);
    return file;
}

static const void *data_of(const tracefile *file, const char *name, size_t *bytes)
{
    for (size_t i = 0; i < file->n; i++) {
        if (strcmp(file->entry[i].name, name) != 0) continue;
        *bytes = file->entry[i].bytes;
        return file->entry[i].at;
    }
    abort();
}

void tracefile_write(const tracefile *file, char path[64])
{
    pd_st_tensor tensors[TRACEFILE_MAX];
    uint8_t *header;
    size_t bytes;
    FILE *out;

    for (size_t i = 0; i < file->n; i++) {
        tensors[i] =
            (pd_st_tensor){ .name = file->entry[i].name, .dtype = file->entry[i].dtype, .shape = file->entry[i].shape };
    }
    if (pd_safetensors_header(&header, &bytes, tensors, file->n, file->meta, file->n_meta, NULL) != PD_OK) abort();
    strcpy(path, "/tmp/paramd_trace_XXXXXX");
    out = fdopen(mkstemp(path), "wb");
    fwrite(header, 1, bytes, out);
    for (size_t i = 0; i < file->n; i++) {
        const void *at = data_of(file, tensors[i].name, &bytes);
        fwrite(at, 1, bytes, out);
    }
    if (fclose(out) != 0) abort();
    free(header);
}

pd_trace *tracefile_open(const tracefile *file)
{
    pd_trace *trace;
    char path[64];

    tracefile_write(file, path);
    if (pd_trace_open(&trace, path, NULL) != PD_OK || pd_trace_check(trace, NULL) != PD_OK) abort();
    unlink(path);
    return trace;
}
