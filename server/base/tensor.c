/* tensor.c - counts elements and bytes of tensors, prints their shapes, and checks the names of their dimensions. */
#include "paramd/tensor.h"

#include <stdio.h>
#include <string.h>

static const struct {
    pd_dtype dtype;
    size_t size;
    const char *name, *brief;
} dtypes[] = {
    { PD_F32, 4, "float32", "f32" }, { PD_F16, 2, "float16", "f16" }, { PD_BF16, 2, "bfloat16", "bf16" },
    { PD_INT8, 0, "int8", "int8" },  { PD_INT4, 0, "int4", "int4" },
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

size_t pd_dtype_size(pd_dtype dtype)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].size;
    return 0;
}

bool pd_dtype_is_quantized(pd_dtype dtype)
{
    return dtype == PD_INT8 || dtype == PD_INT4;
}

uint64_t pd_dtype_bytes(pd_dtype dtype, uint64_t n)
{
    size_t size = pd_dtype_size(dtype);
    uint64_t bytes, blocks;

    if (size > 0 || !pd_dtype_is_quantized(dtype)) return __builtin_mul_overflow(n, size, &bytes) ? UINT64_MAX : bytes;
    blocks = n / PD_BLOCK + (n % PD_BLOCK > 0);
    return __builtin_add_overflow(dtype == PD_INT8 ? n : n / 2 + n % 2, blocks * sizeof(float), &bytes) ? UINT64_MAX
                                                                                                        : bytes;
}

const char *pd_dtype_name(pd_dtype dtype)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    return "?";
}

int pd_dtype_parse(pd_dtype *out, const char *name)
{
    for (int i = 0; i < N_DTYPES; i++) {
        if (strcmp(name, dtypes[i].name) != 0 && strcmp(name, dtypes[i].brief) != 0) continue;
        *out = dtypes[i].dtype;
        return PD_OK;
    }
    return PD_INVALID_ARGUMENT;
}

int pd_shape_elements(const pd_shape *shape, int64_t *elements)
{
    int64_t n = 1, bytes;
    bool empty = false;

    if (shape->rank < 0 || shape->rank > PD_MAX_RANK) return PD_INVALID_ARGUMENT;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0) return PD_INVALID_ARGUMENT;
        if (shape->dim[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(n, shape->dim[i], &n))
            return PD_INVALID_ARGUMENT;
    }
    if (__builtin_mul_overflow(n, (int64_t)8, &bytes)) return PD_INVALID_ARGUMENT;
    *elements = empty ? 0 : n;
    return PD_OK;
}

bool pd_shape_equal(const pd_shape *a, const pd_shape *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

char *pd_shape_text(const pd_shape *shape, char *text, size_t size)
{
    int used = snprintf(text, size, "(");

    for (int i = 0; i < shape->rank && used > 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, i > 0 ? ", %lld" : "%lld", (long long)shape->dim[i]);
    if (used > 0 && (size_t)used < size) snprintf(text + used, size - (size_t)used, shape->rank == 1 ? ",)" : ")");
    return text;
}

int64_t pd_range_piece(int64_t start, int64_t end, uint64_t chunk, uint64_t first)
{
    uint64_t left = (uint64_t)end - first, to_grid = chunk - first % chunk;

    if (first != (uint64_t)start && (first < (uint64_t)start || first >= (uint64_t)end || to_grid != chunk)) return -1;
    return (int64_t)(left < to_grid ? left : to_grid);
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int check_axis(const char *axis, size_t n, int d, pd_error *err)
{
    int shown = n < PD_AXIS_BYTES ? (int)n : PD_AXIS_BYTES;
    bool good = n <= PD_AXIS_BYTES;

    for (size_t i = 0; i < n && good; i++) good = is_letter(axis[i]) || (i > 0 && axis[i] >= '0' && axis[i] <= '9');
    if (good) return PD_OK;
    return pd_fail(
        err, PD_INVALID_ARGUMENT,
        "axis %d: expected a name of at most %d letters, digits and _, no digit in front, or nothing; got \"%.*s\"", d,
        PD_AXIS_BYTES, shown, axis);
}

int pd_axes_check(const char *axes, int rank, pd_error *err)
{
    int n = 1;

    if (axes[0] == '\0') return PD_OK;
    for (const char *comma = axes; (comma = strchr(comma, ',')) != NULL; comma++) n++;
    if (n != rank)
        return pd_fail(err, PD_INVALID_ARGUMENT, "expected a name for each of %d dimensions, got %d in \"%.100s\"",
                       rank, n, axes);
    for (int d = 0; d < rank; d++) {
        size_t length = strcspn(axes, ",");
        if (check_axis(axes, length, d, err) != PD_OK) return PD_INVALID_ARGUMENT;
        axes += length + 1;
    }
    return PD_OK;
}
