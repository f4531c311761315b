/* paramd/tensor.h - shapes, element types and borrowed views of tensors.
 *
 * All tensors are dense and row-major (the last dimension runs fastest), as numpy, PyTorch and JAX store
 * them. Sizes are 64-bit: a parameter may have more than 2^31 elements. */
#ifndef PARAMD_TENSOR_H
#define PARAMD_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PD_MAX_RANK 8

/* Element types on the wire and in files. The values are the protocol's: never renumber. */
typedef enum pd_dtype {
    PD_F32  = 1,
    PD_F16  = 2,        /* IEEE half */
    PD_BF16 = 3,        /* upper half of a float32, rounded to nearest even */
} pd_dtype;

/* Bytes of one element; 0 for a value that is none of the above. */
PD_API size_t pd_dtype_size(pd_dtype dtype);
/* "float32", "float16", "bfloat16"; "?" for a value that is none of them. */
PD_API const char *pd_dtype_name(pd_dtype dtype);
/* The reverse; also takes the short forms f32, f16, bf16. PD_INVALID_ARGUMENT: no such type. */
PD_API int pd_dtype_parse(pd_dtype *out, const char *name);

typedef struct pd_shape {
    int     rank;               /* 0 (a scalar, one element) to PD_MAX_RANK */
    int64_t dim[PD_MAX_RANK];   /* each >= 0; those past `rank` are 0 */
} pd_shape;

/* Product of the dimensions. PD_INVALID_ARGUMENT: rank or a dimension out of range, or the product times
 * 8 bytes does not fit an int64_t. */
PD_API int pd_shape_elements(const pd_shape *shape, int64_t *elements);
PD_API bool pd_shape_equal(const pd_shape *a, const pd_shape *b);
/* "(128, 784)" into `text` (at least 192 bytes are enough for any shape); returns `text`. */
PD_API char *pd_shape_text(const pd_shape *shape, char *text, size_t size);

/* Where elements [start, end) of a tensor are cut to travel in pieces: at the multiples of `chunk` (>= 1) between them. Elements of the piece that
 * begins at `first`; -1: none does. An empty range has one piece, of 0 elements, at its start. */
PD_API int64_t pd_range_piece(int64_t start, int64_t end, uint64_t chunk, uint64_t first);

/* Logical names of a tensor's dimensions: "layers,embed,mlp". As many as it has dimensions, each empty or of letters, digits and _ without a digit
 * in front. "": no names, whatever the rank. */
#define PD_AXIS_BYTES 64                                    /* of one name, at most */
#define PD_AXES_BYTES (PD_MAX_RANK * (PD_AXIS_BYTES + 1))   /* room for all of them, with commas and the end */
/* PD_INVALID_ARGUMENT: they are no such names; the text says what was expected and what came. */
PD_API int pd_axes_check(const char *axes, int rank, pd_error *err);

/* A borrowed view: whoever made it owns the memory. */
typedef struct pd_tensor {
    float   *at;
    pd_shape shape;
} pd_tensor;

#ifdef __cplusplus
}
#endif
#endif
