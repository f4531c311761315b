/* quantize.h - stores tensors in fewer bits: in bfloat16 and float16, or in int8 and int16 with a bucket size for each
 * column. Pure functions; any thread. Source: quantization_utils.py of Google's Distributed Shampoo, called upstream
 * here.
 *
 * A tensor counts as a matrix of `rows` = its first dimension and `cols` = the product of the others (a vector has one
 * column).
 *
 * Each column of the matrix has a bucket size: the difference between the values of two neighbouring codes. int8 has
 * 127 codes on each side of zero, int16 has 32767; `buckets` is this number. In column j of the matrix x:
 *
 *     bucket[j] = max |x[:, j]| / buckets
 *     code      = x / bucket[j], rounded to nearest even; x / 1 if the bucket is 0
 *     value     = code * bucket[j]
 *
 * |value - x| is at most half a bucket size plus a rounding error, if the bucket size is a normal number (max |x| above
 * about 1e-33). The lowest code (-128, -32768) is never used. With `diagonal_apart`, for square matrices, the diagonal
 * is kept in float32 and counts as 0 in the columns.
 *
 * bfloat16 and float16 are casts, rounded to nearest even (convert.h). They have no buckets, and their diagonal is not
 * kept apart.
 *
 * Values that are not finite: a column with an infinity or a NaN (also on a diagonal kept apart) is dequantized to NaN
 * in all its elements, as in upstream. Its bucket size is infinite or NaN, and its codes are 0. Other columns are not
 * affected. Casts keep infinities and NaN where they are. A cast to float16 makes a value beyond its range infinite. */
#ifndef PD_QUANTIZE_H
#define PD_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum pd_storage {
    PD_STORE_F32,
    PD_STORE_BF16,
    PD_STORE_INT8,
    PD_STORE_INT16,
    PD_STORE_F16,
    PD_STORE_F64
} pd_storage;

/* A tensor in fewer bits. Its memory is borrowed. */
typedef struct pd_quantized {
    pd_storage storage;  /* type in which the tensor is stored: any type except float32 and float64 */
    bool diagonal_apart; /* whether the diagonal is kept in float32; always false for bfloat16 and float16 */
    int64_t rows, cols;
    void *codes;     /* rows * cols elements: uint16_t for bfloat16 and float16, otherwise int8_t or int16_t */
    float *bucket;   /* one bucket size for each column; NULL for bfloat16 and float16 */
    float *diagonal; /* the diagonal, one value per row; NULL unless diagonal_apart */
} pd_quantized;

/* Returns the bytes of the codes, bucket sizes and diagonal of a tensor that is stored in type `storage`, without gaps;
 * INT64_MAX: the number does not fit. PD_STORE_F32 takes 4 bytes for each element, PD_STORE_F64 8. */
int64_t pd_quantized_bytes(pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols);
/* Returns the bytes of memory that a quantized tensor needs (pd_quantized_at), if its codes, bucket sizes and diagonal
 * each begin at a multiple of 64 bytes; INT64_MAX: the number does not fit. */
int64_t pd_quantized_room(pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols);
/* Returns a quantized tensor whose codes, bucket sizes and diagonal lie in `memory` (64-byte aligned, pd_quantized_room
 * bytes). The memory is borrowed; this function does not read or write it. If all its bytes are zero, all elements of
 * the tensor are zero. */
pd_quantized pd_quantized_at(void *memory, pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols);

/* pd_quantize converts a float32 tensor x (rows, cols) to the codes, bucket sizes and diagonal of q. pd_dequantize
 * converts them back. x must not overlap q's memory. The bits are the same on every CPU. */
void pd_quantize(const pd_quantized *q, const float *x);
void pd_dequantize(float *x, const pd_quantized *q);
/* Does what pd_dequantize does, but writes x past the cache (pages.h): for tensors that are part of PD_BEYOND_CACHE
 * bytes or more. */
void pd_dequantize_past_cache(float *x, const pd_quantized *q);
/* Dequantizes elements [first, first + n) of the tensor in row-major order. They have the same bits as from
 * pd_dequantize. */
void pd_dequantize_run(float *x, const pd_quantized *q, int64_t first, int64_t n);
/* Returns whether x equals the dequantized tensor bit for bit, so that x need not be quantized again. Takes one pass
 * that writes nothing and ends at the first difference; quantizing takes two passes. */
bool pd_quantized_holds(const pd_quantized *q, const float *x);

const char *pd_storage_name(pd_storage storage); /* returns "float32", "bfloat16", "int8", "int16", "float16" or
                                                  * "float64" */

#endif
