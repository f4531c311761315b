/* paramd/tensor.h - shapes, element types and borrowed views of tensors.
 *
 * All tensors are dense and row-major: the last dimension runs fastest, as in numpy, PyTorch and JAX. Sizes are 64-bit:
 * a parameter may have more than 2^31 elements. */
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
/* Most elements of a block of a quantized type: only the last block of a piece may have fewer. */
#define PD_BLOCK 64

/* Element types on the wire and in files. The protocol fixes their values. */
typedef enum pd_dtype {
    PD_F32 = 1,
    /* IEEE half precision. */
    PD_F16 = 2,
    /* bfloat16 is the upper half of a float32, rounded to nearest even. */
    PD_BF16 = 3,
    /* Quantized types, for pushed gradients alone: blocks of 64 elements, each with a scale in float32, and a code of 8
     * or 4 bits for each element. An element is its code times the scale of its block. */
    PD_INT8 = 4,
    PD_INT4 = 5
} pd_dtype;

/* Which weights a pull or an export gets. */
typedef enum pd_weights_form {
    /* Those that are trained: gradients belong to them. */
    PD_FORM_TRAIN = 0,
    /* Those to evaluate with and to save. They are others for optimizers that evaluate an average of the weights
     * (schedule_free, gpa), and the same for all others. */
    PD_FORM_EVAL = 1
} pd_weights_form;

/* Returns the bytes of one element of a type; 0 for an unknown type, and for the quantized types, whose elements have
 * no bytes of their own. */
PD_API size_t pd_dtype_size(pd_dtype dtype);
/* Returns the bytes of `n` elements that lie together in one piece of memory, as on the wire; UINT64_MAX: too many to
 * count. 0 for an unknown type. The bytes of a quantized type are first one scale for each block of 64 elements, then n
 * bytes (int8) or ceil(n / 2) bytes (int4). */
PD_API uint64_t pd_dtype_bytes(pd_dtype dtype, uint64_t n);
/* Returns whether a type is quantized: int8 or int4. */
PD_API bool pd_dtype_is_quantized(pd_dtype dtype);
/* Returns the name of an element type: "float32", "float16", "bfloat16", "int8" or "int4"; "?" for an unknown type. */
PD_API const char *pd_dtype_name(pd_dtype dtype);
/* Reads an element type from its name, or from the short form f32, f16 or bf16. PD_INVALID_ARGUMENT: the name is
 * unknown. */
PD_API int pd_dtype_parse(pd_dtype *out, const char *name);

typedef struct pd_shape {
    /* Number of dimensions, 0 to PD_MAX_RANK. A tensor of rank 0 has one element. */
    int rank;
    /* Sizes of the dimensions, each >= 0. Entries from `rank` on are 0. */
    int64_t dim[PD_MAX_RANK];
} pd_shape;

/* Computes the number of elements: the product of the dimensions. PD_INVALID_ARGUMENT: rank or a dimension is out of
 * range, or 8 times the product does not fit an int64_t. */
PD_API int pd_shape_elements(const pd_shape *shape, int64_t *elements);
/* Returns whether two shapes have the same rank and the same dimensions. */
PD_API bool pd_shape_equal(const pd_shape *a, const pd_shape *b);
/* Writes a shape as "(128, 784)" into `text` (192 bytes are enough for any shape), and returns `text`. */
PD_API char *pd_shape_text(const pd_shape *shape, char *text, size_t size);

/* Returns the number of elements of the piece that begins at element `first`; -1: no piece begins there. The elements
 * [start, end) of a tensor travel in pieces, which are cut at the multiples of `chunk` (>= 1). An empty range has one
 * piece of 0 elements, at its start. */
PD_API int64_t pd_range_piece(int64_t start, int64_t end, uint64_t chunk, uint64_t first);

/* Logical names of a tensor's dimensions are a text like "layers,embed,mlp": one name per dimension, separated by
 * commas. A name is empty, or made of letters, digits and _, and does not begin with a digit. "": no names, for any
 * rank. */
/* Most bytes of the logical name of one dimension. */
#define PD_AXIS_BYTES 64
/* Most bytes of the text with the logical names of all dimensions, with commas and the terminating zero. */
#define PD_AXES_BYTES (PD_MAX_RANK * (PD_AXIS_BYTES + 1))
/* Checks that `axes` is a valid text of logical names for a tensor of `rank` dimensions. PD_INVALID_ARGUMENT: the error
 * says why not. */
PD_API int pd_axes_check(const char *axes, int rank, pd_error *err);

/* A view of float32 elements. The memory belongs to the maker of the view. */
typedef struct pd_tensor {
    float *at;
    pd_shape shape;
} pd_tensor;

#ifdef __cplusplus
}
#endif
#endif
