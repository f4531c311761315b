/* safetensors.h - reads and writes the header of a safetensors file in memory: its tensors, and where they are.
 *
 * A file is: header length (8 bytes, little-endian), header (JSON), data (row-major, little-endian). The caller maps,
 * reads and writes files. Files are treated as hostile: the rules are those of the reference implementation, and a file
 * that breaks one is refused as a whole. Any thread. */
#ifndef PD_SAFETENSORS_H
#define PD_SAFETENSORS_H

#include "paramd/tensor.h"

/* Most bytes of a header: enough for more than 100,000 tensors. */
#define PD_ST_MAX_HEADER (16 * 1024 * 1024)

/* Element types in the order in which the reference writer lays tensors out (the last first). */
typedef enum pd_st_dtype {
    PD_ST_BOOL, PD_ST_U8, PD_ST_I8, PD_ST_F8_E5M2, PD_ST_F8_E4M3, PD_ST_I16, PD_ST_U16, PD_ST_F16, PD_ST_BF16,
    PD_ST_I32, PD_ST_U32, PD_ST_F32, PD_ST_F64, PD_ST_I64, PD_ST_U64, PD_ST_DTYPES
} pd_st_dtype;

size_t      pd_st_dtype_size(pd_st_dtype dtype);    /* bytes of one element; 0: no such type */
const char *pd_st_dtype_name(pd_st_dtype dtype);    /* "F32"; "?": no such type */

typedef struct pd_st_tensor {
    const char *name;               /* UTF-8 */
    pd_st_dtype dtype;
    pd_shape    shape;
    uint64_t    offset, bytes;      /* of its data, relative to the beginning of all data */
} pd_st_tensor;

/* ---- reading ---- */

typedef struct pd_safetensors pd_safetensors;

/* Reads a file, which it borrows (`bytes` at `at`) until pd_safetensors_free. PD_INVALID_ARGUMENT: not such a file; the
 * error names the tensor and what is wrong with it: a duplicate name, an unknown dtype, more than PD_MAX_RANK
 * dimensions, or data that does not have its shape's size, overlaps, leaves a hole, or does not end where the file
 * does. PD_RESOURCE_EXHAUSTED: the header exceeds PD_ST_MAX_HEADER. PD_NO_MEMORY. */
int  pd_safetensors_read(pd_safetensors **out, const void *at, size_t bytes, pd_error *err);
void pd_safetensors_free(pd_safetensors *file);                     /* accepts NULL */

/* Returns all tensors in the order of their data. Borrowed, as everything below. */
const pd_st_tensor *pd_safetensors_tensors(const pd_safetensors *file, size_t *n);
/* Returns the tensor of that name; NULL: none. */
const pd_st_tensor *pd_safetensors_find(const pd_safetensors *file, const char *name);
/* Returns the first element of a tensor, in the caller's memory. Other writers may leave it unaligned: memcpy from
 * it. */
const void *pd_safetensors_data(const pd_safetensors *file, const pd_st_tensor *tensor);
/* Returns a value of the file's __metadata__; NULL: no such key. */
const char *pd_safetensors_meta(const pd_safetensors *file, const char *key);

/* ---- writing ---- */

typedef struct pd_st_meta { const char *key, *value; } pd_st_meta;

/* Sorts `tensors` as the reference writer does, fills their offset and bytes, and gives the beginning of the file:
 * length and header, padded so that the data begins at a multiple of 8. The data of tensors[0], tensors[1] ... follows
 * without gaps. Gives *out (free() it), and its length *bytes. PD_INVALID_ARGUMENT: a name that comes twice, is
 * "__metadata__" or is not UTF-8; an invalid shape or dtype; a metadata key that comes twice. PD_RESOURCE_EXHAUSTED:
 * the header exceeds PD_ST_MAX_HEADER. PD_NO_MEMORY. After an error the order of `tensors` is not defined. */
int pd_safetensors_header(uint8_t **out, size_t *bytes, pd_st_tensor *tensors, size_t n, const pd_st_meta *meta,
                          size_t n_meta, pd_error *err);

#endif
