/* pieces.c - checks the lists in the headers of pushes and pulls: pieces, wants and scalars. */
#include "pieces.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "paramd/tensor.h"
#include "text.h"

/* State of the check of a push's pieces, one after the other. */
typedef struct check {
    const pd_handle_facts *handles;
    size_t n_handles;
    uint64_t chunk_elements, payload_bytes;
    uint64_t end;  /* offset in the payload at which the data of the next piece must begin */
    uint64_t last; /* offset in the payload at which the data of the last piece checked so far ends */
    pd_error *err;
} check;

static int refuse_absent(const check *c, size_t i, const Paramd__Piece *piece)
{
    return pd_fail(c->err, PD_INVALID_ARGUMENT,
                   "piece %zu (%s): an absent piece has first, count and offset 0, got "
                   "%" PRIu64 ", %" PRIu64 ", %" PRIu64,
                   i, c->handles[piece->handle].name, piece->first, piece->count, piece->offset);
}

/* Checks that a piece of a push is exactly one chunk of its parameter, or those elements of a chunk that lie in the
 * range that the connection pushes. */
static int check_chunk(const check *c, size_t i, const Paramd__Piece *piece)
{
    const pd_handle_facts *facts = &c->handles[piece->handle];
    int64_t count = pd_range_piece(facts->start, facts->end, c->chunk_elements, piece->first);

    if (count < 0)
        return pd_fail(c->err, PD_INVALID_ARGUMENT,
                       "piece %zu (%s): first element "
                       "%" PRIu64 ": expected %" PRId64 ", or a multiple of %" PRIu64 " between that and %" PRId64,
                       i, facts->name, piece->first, facts->start, c->chunk_elements, facts->end);
    if (piece->count != (uint64_t)count)
        return pd_fail(c->err, PD_INVALID_ARGUMENT,
                       "piece %zu (%s): %" PRIu64 " elements from "
                       "%" PRIu64 ": expected %" PRId64 ", to the end of the chunk or of elements "
                       "%" PRId64 " to %" PRId64,
                       i, facts->name, piece->count, piece->first, count, facts->start, facts->end);
    return PD_OK;
}

static int check_data(check *c, size_t i, const Paramd__Piece *piece)
{
    const char *name = c->handles[piece->handle].name;
    pd_dtype dtype = (pd_dtype)piece->dtype;
    uint64_t bytes = pd_dtype_bytes(dtype, piece->count);

    if (pd_dtype_size(dtype) == 0 && !pd_dtype_is_quantized(dtype))
        return pd_fail(c->err, PD_INVALID_ARGUMENT,
                       "piece %zu (%s): dtype %" PRIu32 ": expected 1 float32, 2 float16, 3 bfloat16, 4 int8 or 5 int4",
                       i, name, piece->dtype);
    if (piece->offset != c->end)
        return pd_fail(c->err, PD_INVALID_ARGUMENT,
                       "piece %zu (%s): data at offset "
                       "%" PRIu64 ": expected %" PRIu64 ", the next multiple of %d after the piece before it",
                       i, name, piece->offset, c->end, PD_PAYLOAD_ALIGN);
    if (bytes > c->payload_bytes || piece->offset > c->payload_bytes - bytes)
        return pd_fail(c->err, PD_INVALID_ARGUMENT,
                       "piece %zu (%s): %" PRIu64 " elements of %s, which take %" PRIu64 " bytes, at offset %" PRIu64
                       ": the payload ends at %" PRIu64,
                       i, name, piece->count, pd_dtype_name(dtype), bytes, piece->offset, c->payload_bytes);
    c->last = piece->offset + bytes;
    c->end = pd_piece_end(piece->offset, bytes);
    return PD_OK;
}

static int check_piece(check *c, size_t i, const Paramd__Piece *piece)
{
    if (piece->handle >= c->n_handles)
        return pd_fail(c->err, PD_INVALID_ARGUMENT,
                       "piece %zu: handle %" PRIu32 ": %zu parameters are declared on "
                       "this connection",
                       i, piece->handle, c->n_handles);
    if (piece->sparse)
        return pd_fail(c->err, PD_INVALID_ARGUMENT, "piece %zu (%s): " PD_SPARSE_ADVICE, i,
                       c->handles[piece->handle].name);
    if (piece->absent) return (piece->first | piece->count | piece->offset) == 0 ? PD_OK : refuse_absent(c, i, piece);
    int rc = check_chunk(c, i, piece);
    return rc != PD_OK ? rc : check_data(c, i, piece);
}

typedef struct place {
    uint64_t first;
    uint32_t handle, index;
    bool absent;
} place;

static int order(const void *left, const void *right)
{
    const place *a = left, *b = right;

    if (a->handle != b->handle) return a->handle < b->handle ? -1 : 1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Checks two entries (pieces of a push or wants of a pull) that are neighbours in sorted order. They must not be the
 * same chunk. If one says that its parameter has no gradient (is absent), the other must not belong to this
 * parameter. */
static int check_neighbours(const place *a, const place *b, const char *what, const pd_handle_facts *handles,
                            pd_error *err)
{
    if (a->handle != b->handle) return PD_OK;
    if (a->absent != b->absent)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s %" PRIu32 " and %" PRIu32 " (%s): one has data, the other is absent", what, a->index,
                       b->index, handles[a->handle].name);
    if (a->first == b->first)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s %" PRIu32 " and %" PRIu32 " (%s): duplicate chunk at element %" PRIu64, what, a->index,
                       b->index, handles[a->handle].name, a->first);
    return PD_OK;
}

/* Sorts the entries of a push or pull, checks each with its neighbour (check_neighbours), and frees the array `places`.
 * `what` is the word for the entries in the error, "pieces" or "wants". */
static int check_places(place *places, size_t n, const char *what, const pd_handle_facts *handles, pd_error *err)
{
    int rc = PD_OK;

    qsort(places, n, sizeof *places, order);
    for (size_t i = 1; i < n && rc == PD_OK; i++) rc = check_neighbours(&places[i - 1], &places[i], what, handles, err);
    free(places);
    return rc;
}

static bool pieces_ascend(Paramd__Piece *const *pieces, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const Paramd__Piece *a = pieces[i - 1], *b = pieces[i];
        if (a->handle > b->handle || (a->handle == b->handle && (a->first >= b->first || a->absent || b->absent)))
            return false;
    }
    return true;
}

static int check_distinct(Paramd__Piece *const *pieces, size_t n, const pd_handle_facts *handles, pd_error *err)
{
    place *places;

    if (pieces_ascend(pieces, n)) return PD_OK;
    if ((places = malloc(n * sizeof *places)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++)
        places[i] = (place){ pieces[i]->first, pieces[i]->handle, (uint32_t)i, pieces[i]->absent };
    return check_places(places, n, "pieces", handles, err);
}

static bool wants_ascend(Paramd__Want *const *wants, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const Paramd__Want *a = wants[i - 1], *b = wants[i];
        if (a->handle > b->handle || (a->handle == b->handle && a->first >= b->first)) return false;
    }
    return true;
}

int pd_wants_check_distinct(Paramd__Want *const *wants, size_t n, const pd_handle_facts *handles, pd_error *err)
{
    place *places;

    assert(n <= UINT32_MAX);
    if (wants_ascend(wants, n)) return PD_OK;
    if ((places = malloc(n * sizeof *places)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) places[i] = (place){ wants[i]->first, wants[i]->handle, (uint32_t)i, false };
    return check_places(places, n, "wants", handles, err);
}

int pd_pieces_check(Paramd__Piece *const *pieces, size_t n, const pd_handle_facts *handles, size_t n_handles,
                    uint64_t chunk_elements, uint64_t payload_bytes, pd_error *err)
{
    check c = { .handles = handles,
                .n_handles = n_handles,
                .chunk_elements = chunk_elements,
                .payload_bytes = payload_bytes,
                .err = err };

    assert(chunk_elements >= 1 && n <= UINT32_MAX);
    for (size_t i = 0; i < n; i++) {
        int rc = check_piece(&c, i, pieces[i]);
        if (rc != PD_OK) return rc;
    }
    if (payload_bytes != c.last && payload_bytes != c.end)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "payload of %" PRIu64 " bytes: expected %" PRIu64 ", where the data "
                       "of its %zu pieces ends",
                       payload_bytes, c.last, n);
    return check_distinct(pieces, n, handles, err);
}

static int check_name(const char *name, size_t i, pd_error *err)
{
    size_t n = strlen(name);
    char what[48];

    if (n == 0 || n > PD_PUSH_SCALAR_NAME)
        return pd_fail(err, PD_INVALID_ARGUMENT, "scalar %zu has a name of %zu bytes: expected 1 to %d", i, n,
                       PD_PUSH_SCALAR_NAME);
    snprintf(what, sizeof what, "the name of scalar %zu", i);
    return pd_text_check(what, name, err);
}

static int check_one(Paramd__Scalar *const *scalars, size_t i, pd_error *err)
{
    if (check_name(scalars[i]->name, i, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (!isfinite(scalars[i]->value))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "scalar %s is %g: expected a finite number; leave it out of this "
                       "push",
                       scalars[i]->name, scalars[i]->value);
    for (size_t k = 0; k < i; k++)
        if (strcmp(scalars[k]->name, scalars[i]->name) == 0)
            return pd_fail(err, PD_INVALID_ARGUMENT, "duplicate scalar %s", scalars[i]->name);
    return PD_OK;
}

int pd_scalars_check(Paramd__Scalar *const *scalars, size_t n, pd_error *err)
{
    if (n > PD_PUSH_SCALARS)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%zu scalars in a push: at most %d", n, PD_PUSH_SCALARS);
    for (size_t i = 0; i < n; i++) {
        int rc = check_one(scalars, i, err);
        if (rc != PD_OK) return rc;
    }
    return PD_OK;
}
