/* safetensors.h - reads and writes the header of a safetensors file in memory: its tensors, and where their data is.
 *
 * A file is: header length (8 bytes, little-endian), header (JSON), data (row-major, little-endian). The caller maps,
 * reads and writes files. Files are treated as hostile: the rules are those of Hugging Face's library, and a file that
 * breaks one is refused as a whole. Any thread may call these functions. */
#ifndef PD_SAFETENSORS_H
#define PD_SAFETENSORS_H

#include "paramd/tensor.h"

/* Most bytes of the header of a safetensors file. They suffice for 1,000,000 parameters, the most that
 * limits.max_params may be: about 640 bytes for each, if its name has 256 characters that are all escaped. */
#define PD_ST_MAX_HEADER (1024 * 1024 * 1024)

/* Element types of safetensors files, narrow ones first. Hugging Face's library writes the tensors of the last type
 * first. */
typedef enum pd_st_dtype {
    PD_ST_BOOL,
    PD_ST_U8,
    PD_ST_I8,
    PD_ST_F8_E5M2,
    PD_ST_F8_E4M3,
    PD_ST_I16,
    PD_ST_U16,
    PD_ST_F16,
    PD_ST_BF16,
    PD_ST_I32,
    PD_ST_U32,
    PD_ST_F32,
    PD_ST_F64,
    PD_ST_I64,
    PD_ST_U64,
    PD_ST_DTYPES
} pd_st_dtype;

size_t pd_st_dtype_size(pd_st_dtype dtype);      /* bytes of one element of a type; 0: there is no such type */
const char *pd_st_dtype_name(pd_st_dtype dtype); /* name of an element type in the file, such as "F32"; "?": there is no
                                                  * such type */

/* One tensor of a safetensors file, as its header describes it. */
typedef struct pd_st_tensor {
    const char *name; /* UTF-8 */
    pd_st_dtype dtype;
    pd_shape shape;
    uint64_t offset, bytes; /* where the tensor's data begins, counted from the first tensor's data, and its length */
} pd_st_tensor;

typedef struct pd_safetensors pd_safetensors;

/* Reads the header of a safetensors file that is in memory, `bytes` bytes at `at`, and borrows them until
 * pd_safetensors_free.
 *
 * PD_INVALID_ARGUMENT: the bytes are not a valid safetensors file; the error names the tensor and what is wrong.
 * Examples: a duplicate name, an unknown dtype, more than PD_MAX_RANK dimensions, data whose size does not fit the
 * shape, or data that overlap, leave a hole or do not end where the file ends.
 *
 * PD_RESOURCE_EXHAUSTED: the header exceeds PD_ST_MAX_HEADER. PD_NO_MEMORY: out of memory. */
int pd_safetensors_read(pd_safetensors **out, const void *at, size_t bytes, pd_error *err);
/* Works as pd_safetensors_read if only the first `bytes` of the file's `whole` bytes are in memory. They must contain
 * the whole header. pd_safetensors_data then returns no valid pointers. */
int pd_safetensors_read_part(pd_safetensors **out, const void *at, size_t bytes, uint64_t whole, pd_error *err);
void pd_safetensors_free(pd_safetensors *file); /* accepts NULL */

/* Returns all tensors of a safetensors file in the order of their data. They belong to `file`, as does everything that
 * the functions below return. */
const pd_st_tensor *pd_safetensors_tensors(const pd_safetensors *file, size_t *n);
/* Returns the tensor of a safetensors file with that name; NULL: there is none. */
const pd_st_tensor *pd_safetensors_find(const pd_safetensors *file, const char *name);
/* Returns a pointer to the first element of a tensor, in the memory that the caller passed to pd_safetensors_read.
 * Other programs may have written the data unaligned, so use memcpy to read it. */
const void *pd_safetensors_data(const pd_safetensors *file, const pd_st_tensor *tensor);
/* Returns the value of a key in the metadata of a safetensors file; NULL: no such key. */
const char *pd_safetensors_meta(const pd_safetensors *file, const char *key);

/* One entry of the metadata of a safetensors file. Both texts are UTF-8. */
typedef struct pd_st_meta {
    const char *key, *value;
} pd_st_meta;

/* Makes the beginning of a safetensors file: the header's length and the header, padded so that the data begins at a
 * multiple of 8. Sorts `tensors` as Hugging Face's library does, and fills their offset and bytes. The data of
 * tensors[0], tensors[1] ... must follow in the file without gaps. *out gets the bytes, which the caller frees with
 * free(), and *bytes their number.
 *
 * PD_INVALID_ARGUMENT: a name comes twice, is "__metadata__" or is not UTF-8; a shape or dtype is invalid; or a
 * metadata key comes twice. PD_RESOURCE_EXHAUSTED: the header exceeds PD_ST_MAX_HEADER. PD_NO_MEMORY. After an error
 * the order of `tensors` is not defined. */
int pd_safetensors_header(uint8_t **out, size_t *bytes, pd_st_tensor *tensors, size_t n, const pd_st_meta *meta,
                          size_t n_meta, pd_error *err);

#endif
