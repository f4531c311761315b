/* quantize.c - converts tensors to int8, int16, bfloat16 or float16 and back, as Google's Distributed Shampoo
 * ("upstream", quantization_utils.py) does. The bucket size of a column is the difference between the values of two
 * neighbouring codes.
 *
 * NaN and infinity: in upstream's arithmetic a column with an infinity gets an infinite bucket size. A column with a
 * NaN gets the bucket size NaN. So does a column whose diagonal element is kept apart and not finite, because upstream
 * subtracts the diagonal from the matrix (inf - inf). All elements of such a column are dequantized to NaN, whatever
 * its codes are. Other columns are not affected. The codes of such a column are 0 here; upstream's are undefined,
 * because they are conversions of NaN to integers.
 *
 * Tiny values: a bucket size that is a subnormal number may be rounded down by as much as a third. Codes that exceed
 * the largest code for this reason become the largest code.
 *
 * A tensor is processed in tiles, which are groups of columns. All rows of a tile are read twice: once for the maxima
 * of its columns, once for the codes. So the bucket sizes of a tile stay in the first-level cache. If a row of the
 * tensor is narrower than TILE, a loop processes several rows at once (a run), so that loops are long for narrow
 * tensors, too. */
#include "quantize.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

#include "convert.h"
#include "cpu.h"
#include "pages.h"

enum { TILE = 1024, ALIGN = 64 };

static const struct {
    const char *name;
    int64_t bytes, buckets;
} storages[] = {
    [PD_STORE_F32] = { "float32", 4, 0 },      [PD_STORE_BF16] = { "bfloat16", 2, 0 },
    [PD_STORE_INT8] = { "int8", 1, INT8_MAX }, [PD_STORE_INT16] = { "int16", 2, INT16_MAX },
    [PD_STORE_F16] = { "float16", 2, 0 },      [PD_STORE_F64] = { "float64", 8, 0 },
};

const char *pd_storage_name(pd_storage storage)
{
    return storages[storage].name;
}

static bool has_buckets(pd_storage storage)
{
    return storages[storage].buckets > 0;
}

/* Returns the element type of a tensor that is stored in float16 or bfloat16 (a cast, which has no buckets). */
static pd_dtype cast_of(const pd_quantized *q)
{
    return q->storage == PD_STORE_F16 ? PD_F16 : PD_BF16;
}

/* Offsets in bytes in the memory of a quantized tensor: where the bucket sizes begin (after the codes), where the
 * diagonal begins, and where the memory ends. Each is rounded up to an alignment. An offset that overflows is
 * INT64_MAX, and so are those after it. */
typedef struct layout {
    int64_t bucket, diagonal, end;
} layout;

static int64_t padded(int64_t at, int64_t align)
{
    int64_t gap = (align - at % align) % align;

    return at > INT64_MAX - gap ? INT64_MAX : at + gap;
}

static int64_t behind(int64_t at, int64_t n, int64_t size)
{
    int64_t bytes, end;

    if (__builtin_mul_overflow(n, size, &bytes) || __builtin_add_overflow(at, bytes, &end)) return INT64_MAX;
    return end;
}

static layout lay_out(pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols, int64_t align)
{
    int64_t n;
    layout l = { .bucket = INT64_MAX };

    assert(rows >= 0 && cols >= 0 && (rows == cols || !diagonal_apart));
    if (!__builtin_mul_overflow(rows, cols, &n)) l.bucket = padded(behind(0, n, storages[storage].bytes), align);
    l.diagonal = l.end = l.bucket;
    if (!has_buckets(storage)) return l;
    l.diagonal = l.end = padded(behind(l.bucket, cols, sizeof(float)), align);
    if (diagonal_apart) l.end = padded(behind(l.diagonal, rows, sizeof(float)), align);
    return l;
}

int64_t pd_quantized_bytes(pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols)
{
    return lay_out(storage, diagonal_apart, rows, cols, 1).end;
}

int64_t pd_quantized_room(pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols)
{
    return lay_out(storage, diagonal_apart, rows, cols, ALIGN).end;
}

pd_quantized pd_quantized_at(void *memory, pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols)
{
    layout l = lay_out(storage, diagonal_apart, rows, cols, ALIGN);
    pd_quantized q = { .storage = storage, .rows = rows, .cols = cols, .codes = memory };

    assert(storage != PD_STORE_F32 && storage != PD_STORE_F64 && l.end < INT64_MAX && (uintptr_t)memory % ALIGN == 0);
    if (!has_buckets(storage)) return q;
    q.bucket = (float *)((char *)memory + l.bucket);
    q.diagonal_apart = diagonal_apart;
    if (diagonal_apart) q.diagonal = (float *)((char *)memory + l.diagonal);
    return q;
}

/* Computes the maxima top[j] <- max(top[j], |x[j]|), where top[j] is the bits of a float32. Read as integers, the bits
 * of magnitudes have the order of the numbers, with infinity above all numbers and NaN above infinity. */
PD_CLONES(void, raise, (int32_t *restrict top, const float *restrict x, int64_t n), (top, x, n))
{
    for (int64_t j = 0; j < n; j++) {
        int32_t magnitude = (int32_t)(pd_f32_bits(x[j]) & 0x7fffffffu);
        top[j] = magnitude > top[j] ? magnitude : top[j];
    }
}

#define CODES(type, encode, decode, most)                                                                              \
    PD_CLONES(void, encode, (type *restrict code, const float *restrict x, const float *restrict divisor, int64_t n),  \
              (code, x, divisor, n))                                                                                   \
    {                                                                                                                  \
        for (int64_t j = 0; j < n; j++) code[j] = (type)pd_code_from_f32(x[j], divisor[j], most);                      \
    }                                                                                                                  \
    PD_CLONES(void, decode, (float *restrict x, const type *restrict code, const float *restrict bucket, int64_t n),   \
              (x, code, bucket, n))                                                                                    \
    {                                                                                                                  \
        for (int64_t j = 0; j < n; j++) x[j] = (float)code[j] * bucket[j];                                             \
    }
CODES(int8_t, encode_8, decode_8, INT8_MAX)
CODES(int16_t, encode_16, decode_16, INT16_MAX)

/* A tile: columns [col, col + cols) of the tensor. `rows` is the number of rows in a run: several if the tile has all
 * columns of the tensor, otherwise 1. */
typedef struct tile {
    int64_t col, cols, rows;
} tile;

/* Returns the tile that begins at column `col`. Wide tensors are cut into tiles of about the same width. */
static tile tile_at(const pd_quantized *q, int64_t col)
{
    int64_t tiles = (q->cols - 1) / TILE + 1, width = padded((q->cols - 1) / tiles + 1, 16);

    if (q->cols <= TILE) return (tile){ col, q->cols, TILE / q->cols };
    return (tile){ col, q->cols - col < width ? q->cols - col : width, 1 };
}

/* A run: n elements in rows [row, row + rows) of a tile. `offset` is the index of its first element in the tensor. */
typedef struct run {
    int64_t row, rows, offset, n;
} run;

static run run_at(const pd_quantized *q, const tile *t, int64_t row)
{
    int64_t rows = q->rows - row < t->rows ? q->rows - row : t->rows;

    return (run){ row, rows, row * q->cols + t->col, rows * t->cols };
}

/* Returns a pointer to the element in row i of a run that lies on the tensor's diagonal; NULL if the run does not
 * contain it. `at` points to the elements of the run. */
static float *diagonal_entry(float *at, const tile *t, const run *r, int64_t i)
{
    int64_t j = r->row + i - t->col;

    return j >= 0 && j < t->cols ? at + i * t->cols + j : NULL;
}

/* Returns the elements of a run. If the tensor's diagonal is kept apart, copies them and replaces the elements on the
 * diagonal: a finite element by 0, any other by NaN. */
static const float *without_diagonal(const pd_quantized *q, const float *x, const tile *t, const run *r,
                                     float copy[TILE])
{
    if (!q->diagonal_apart) return x + r->offset;
    memcpy(copy, x + r->offset, (size_t)r->n * sizeof *copy);
    for (int64_t i = 0; i < r->rows; i++) {
        float *d = diagonal_entry(copy, t, r, i);
        if (d != NULL) *d -= *d;
    }
    return copy;
}

/* Copies the bucket sizes of a tile's columns, once for each row of a run, so that a loop over the run reads them in
 * step with the elements. */
static void spread(const pd_quantized *q, const tile *t, float bucket[TILE])
{
    for (int64_t i = 0; i < t->rows; i++)
        memcpy(bucket + i * t->cols, q->bucket + t->col, (size_t)t->cols * sizeof *bucket);
}

static void find_buckets(const pd_quantized *q, const float *x, const tile *t)
{
    float buckets = (float)storages[q->storage].buckets;
    alignas(ALIGN) float copy[TILE];
    alignas(ALIGN) int32_t top[TILE] = { 0 };

    for (int64_t row = 0; row < q->rows; row += t->rows) {
        run r = run_at(q, t, row);
        raise(top, without_diagonal(q, x, t, &r, copy), r.n);
    }
    for (int64_t i = t->cols; i < t->rows * t->cols; i++) {
        if (top[i] > top[i % t->cols]) top[i % t->cols] = top[i];
    }
    for (int64_t j = 0; j < t->cols; j++) q->bucket[t->col + j] = pd_f32_from_bits((uint32_t)top[j]) / buckets;
}

static void quantize_tile(const pd_quantized *q, const float *x, const tile *t)
{
    alignas(ALIGN) float divisor[TILE], copy[TILE];

    find_buckets(q, x, t);
    spread(q, t, divisor);
    for (int64_t j = 0; j < t->rows * t->cols; j++) divisor[j] = divisor[j] == 0 ? 1 : divisor[j];
    for (int64_t row = 0; row < q->rows; row += t->rows) {
        run r = run_at(q, t, row);
        const float *at = without_diagonal(q, x, t, &r, copy);
        if (q->storage == PD_STORE_INT8)
            encode_8((int8_t *)q->codes + r.offset, at, divisor, r.n);
        else
            encode_16((int16_t *)q->codes + r.offset, at, divisor, r.n);
    }
}

void pd_quantize(const pd_quantized *q, const float *x)
{
    int mode;

    if (!has_buckets(q->storage)) {
        pd_convert(q->codes, cast_of(q), x, PD_F32, q->rows * q->cols);
        return;
    }
    for (int64_t i = 0; q->diagonal_apart && i < q->rows; i++) q->diagonal[i] = x[i * q->cols + i];
    mode = pd_round_to_nearest();
    for (int64_t col = 0; col < q->cols;) {
        tile t = tile_at(q, col);
        quantize_tile(q, x, &t);
        col += t.cols;
    }
    pd_round_by(mode);
}

/* Writes the dequantized values of a run to `at`. */
static void decode_run(float *at, const pd_quantized *q, const tile *t, const run *r, const float *bucket)
{
    if (q->storage == PD_STORE_INT8)
        decode_8(at, (const int8_t *)q->codes + r->offset, bucket, r->n);
    else
        decode_16(at, (const int16_t *)q->codes + r->offset, bucket, r->n);
    for (int64_t i = 0; q->diagonal_apart && i < r->rows; i++) {
        float *d = diagonal_entry(at, t, r, i);
        if (d != NULL) *d += q->diagonal[r->row + i];
    }
}

static void dequantize(float *x, const pd_quantized *q, bool past_cache)
{
    alignas(ALIGN) float bucket[TILE], values[TILE];

    for (int64_t col = 0; col < q->cols;) {
        tile t = tile_at(q, col);
        spread(q, &t, bucket);
        for (int64_t row = 0; row < q->rows; row += t.rows) {
            run r = run_at(q, &t, row);
            decode_run(past_cache ? values : x + r.offset, q, &t, &r, bucket);
            if (past_cache) pd_past_cache(x + r.offset, values, (size_t)r.n * sizeof *x);
        }
        col += t.cols;
    }
    if (past_cache) pd_past_cache_end();
}

void pd_dequantize(float *x, const pd_quantized *q)
{
    if (has_buckets(q->storage))
        dequantize(x, q, false);
    else
        pd_convert(x, PD_F32, q->codes, cast_of(q), q->rows * q->cols);
}

void pd_dequantize_past_cache(float *x, const pd_quantized *q)
{
    if (has_buckets(q->storage))
        dequantize(x, q, true);
    else
        pd_widen_past_cache(x, q->codes, cast_of(q), q->rows * q->cols);
}

void pd_dequantize_run(float *x, const pd_quantized *q, int64_t first, int64_t n)
{
    if (!has_buckets(q->storage)) {
        pd_convert(x, PD_F32, (const uint16_t *)q->codes + first, cast_of(q), n);
        return;
    }
    for (int64_t some; n > 0; first += some, x += some, n -= some) {
        int64_t row = first / q->cols, col = first % q->cols;
        tile t = { col, some = n < q->cols - col ? n : q->cols - col, 1 };
        decode_run(x, q, &t, &(run){ row, 1, first, some }, q->bucket + col);
    }
}

static bool holds_cast(const pd_quantized *q, const float *x)
{
    float values[TILE];

    for (int64_t i = 0, n = q->rows * q->cols; i < n; i += TILE) {
        int64_t some = n - i < TILE ? n - i : TILE;
        pd_convert(values, PD_F32, (const uint16_t *)q->codes + i, cast_of(q), some);
        if (memcmp(values, x + i, (size_t)some * sizeof *x) != 0) return false;
    }
    return true;
}

bool pd_quantized_holds(const pd_quantized *q, const float *x)
{
    alignas(ALIGN) float bucket[TILE], values[TILE];

    if (!has_buckets(q->storage)) return holds_cast(q, x);
    for (int64_t col = 0; col < q->cols;) {
        tile t = tile_at(q, col);
        spread(q, &t, bucket);
        for (int64_t row = 0; row < q->rows; row += t.rows) {
            run r = run_at(q, &t, row);
            decode_run(values, q, &t, &r, bucket);
            if (memcmp(values, x + r.offset, (size_t)r.n * sizeof *x) != 0) return false;
        }
        col += t.cols;
    }
    return true;
}
