/* quantize.h - tensors stored in fewer bits: bfloat16 and float16, or int8 and int16 with a bucket size per
 * column. Pure; any thread.
 *
 * A tensor counts as a matrix of `rows` = its first dimension and `cols` = the product of the others (a vector has
 * one column). With int8 (127 buckets on each side) and int16 (32767): bucket[j] = max |x[:, j]| / buckets; code =
 * x / bucket rounded to nearest even, dividing by 1 where the bucket is 0; value = code * bucket. With
 * `diagonal_apart` (square) the diagonal is kept in float32 and counts as 0 in the columns. bfloat16 and float16
 * are casts, rounded to nearest even (convert.h); they have neither buckets nor a diagonal apart. Source:
 * google_shampoo's page, section 7. The lowest code (-128, -32768) is never used. |value - x| is at most half a
 * bucket and a rounding, as long as the bucket is a normal number (max |x| above about 1e-33). What is not finite:
 * a column with an infinity or a NaN (also on a diagonal taken apart) comes back as NaN, whole, as from upstream's
 * arithmetic; its bucket is infinite or NaN, its codes are 0. Other columns do not notice. Casts keep infinities
 * and NaN where they are, and what float16 cannot hold becomes infinite. */
#ifndef PD_QUANTIZE_H
#define PD_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum pd_storage { PD_STORE_F32, PD_STORE_BF16, PD_STORE_INT8, PD_STORE_INT16, PD_STORE_F16, PD_STORE_F64 } pd_storage;

typedef struct pd_quantized {
    pd_storage storage;             /* neither PD_STORE_F32 nor PD_STORE_F64: fewer bits than float32 */
    bool       diagonal_apart;      /* of a cast: false, whatever was asked for */
    int64_t    rows, cols;
    void      *codes;               /* rows * cols of uint16_t (a cast), int8_t or int16_t */
    float     *bucket;              /* cols; NULL for a cast */
    float     *diagonal;            /* rows; NULL unless diagonal_apart, and for a cast */
} pd_quantized;

/* Bytes that a tensor takes in this form, without gaps: codes, buckets, diagonal. INT64_MAX where that does not
 * fit. Of PD_STORE_F32: 4 bytes an element, of PD_STORE_F64 8. */
int64_t pd_quantized_bytes(pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols);
/* Bytes of memory for it: each part begins at a multiple of 64. Same overflow. */
int64_t pd_quantized_room(pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols);
/* Lays the parts out in `memory` (64-byte aligned, pd_quantized_room bytes); borrows it, and reads and writes
 * nothing. All zero bytes are zeros quantized. */
pd_quantized pd_quantized_at(void *memory, pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols);

/* x (rows, cols) to codes, buckets and diagonal, and back; x lies outside q's memory. The same bits on every CPU. */
void pd_quantize(const pd_quantized *q, const float *x);
void pd_dequantize(float *x, const pd_quantized *q);
/* Elements [first, first + n), row-major, as pd_dequantize gives them. */
void pd_dequantize_run(float *x, const pd_quantized *q, int64_t first, int64_t n);
/* x is, bit for bit, what pd_dequantize gives: nobody has changed it. One pass that writes nothing, where
 * quantizing it again takes two, and stops at the first difference. */
bool pd_quantized_holds(const pd_quantized *q, const float *x);

const char *pd_storage_name(pd_storage storage);    /* "float32", "bfloat16", "int8", "int16", "float16", "float64" */

#endif
