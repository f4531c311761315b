/* recovery.c - cuts a flat range of a tensor's elements, such as FSDP gives to a rank, into blocks that are tensors
 * again. */
#include "recovery.h"

#include <assert.h>

static void add(pd_recovered *out, pd_shape shape, int64_t offset)
{
    assert(out->n < PD_MAX_RECOVERED);
    out->at[out->n].shape = shape;
    out->at[out->n].offset = offset;
    out->n++;
}

/* Returns the shape of a block that has `count` indices of dimension d and all indices of the later dimensions. */
static pd_shape box_of(const pd_shape *shape, int d, int64_t count)
{
    pd_shape box = { .rank = shape->rank - d, .dim = { count } };

    for (int k = d + 1; k < shape->rank; k++) box.dim[k - d] = shape->dim[k];
    return box;
}

/* Cuts elements [start, end) of the flat tensor into blocks, beginning with dimension d, and adds the blocks to `out`.
 * If d > 0, all elements of the range have the same index in dimension d - 1. */
static void recover(pd_recovered *out, const pd_shape *shape, int d, int64_t start, int64_t end)
{
    int64_t each = 1, low, high;

    if (start == end) return;
    if (d >= shape->rank - 1) {
        add(out, (pd_shape){ .rank = 1, .dim = { end - start } }, start);
        return;
    }
    for (int k = d + 1; k < shape->rank; k++) each *= shape->dim[k];
    low = start + (each - start % each) % each;
    high = end - end % each;
    if (low > high) {
        recover(out, shape, d + 1, start, end);
        return;
    }
    recover(out, shape, d + 1, start, low);
    if (low < high) add(out, box_of(shape, d, (high - low) / each), low);
    recover(out, shape, d + 1, high, end);
}

int pd_recover_blocks(pd_recovered *out, const pd_shape *shape, int64_t start, int64_t end, pd_error *err)
{
    int64_t elements;
    char text[192];

    *out = (pd_recovered){ 0 };
    if (pd_shape_elements(shape, &elements) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "expected a shape of at most 8 dimensions, none negative, whose elements fit 64 bits");
    if (start < 0 || start > end || end > elements)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "elements %lld to %lld are not a range of shape %s, which has %lld elements: expected 0 <= "
                       "start <= end <= %lld",
                       (long long)start, (long long)end, pd_shape_text(shape, text, sizeof text), (long long)elements,
                       (long long)elements);
    recover(out, shape, 0, start, end);
    return PD_OK;
}
