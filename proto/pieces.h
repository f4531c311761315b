/* pieces.h - checks the lists in the headers of pushes and pulls: pieces, wants and scalars. Client and server apply
 * the same rules to scalars.
 *
 * A piece is an entry of a push: `count` elements of a parameter from element `first` on, one chunk, with the place of
 * their data in the payload. A want is an entry of a pull: the chunk that begins at element `first`. A handle is the
 * number of a parameter on a connection. */
#ifndef PD_PIECES_H
#define PD_PIECES_H

#include "message.h"

/* A parameter that a worker has declared on a connection: its name, and the elements [start, end) of it that are pushed
 * and pulled on this connection. */
typedef struct pd_handle_facts {
    int64_t start, end;
    const char *name;
} pd_handle_facts;

/* Checks every piece of a push:
 *
 *   - Its handle and its dtype are known.
 *   - It is one chunk, or those elements of a chunk that lie in the handle's range (pd_range_piece).
 *   - The first piece's data begins at offset 0, the data of every other piece at pd_piece_end of the piece before.
 *   - If a piece is `absent`, its parameter has no gradient: then first, count and offset are 0.
 *   - No piece comes twice, and an absent parameter has no other piece.
 *
 * The payload must end with the last piece, or at the next multiple of 64. The handles may come in any order.
 * chunk_elements >= 1.
 *
 * PD_INVALID_ARGUMENT: the error names piece, parameter, the expected value and the actual one. PD_NO_MEMORY: out of
 * memory. Takes O(n) time for pieces that ascend by (handle, first), O(n log n) otherwise. */
int pd_pieces_check(Paramd__Piece *const *pieces, size_t n, const pd_handle_facts *handles, size_t n_handles,
                    uint64_t chunk_elements, uint64_t payload_bytes, pd_error *err);
/* Checks that a pull asks for no chunk of a parameter twice. The caller has checked that the handles of all wants, the
 * entries of the pull, are known.
 *
 * PD_INVALID_ARGUMENT: the error names the wants and their parameter. PD_NO_MEMORY: out of memory. Takes O(n) time for
 * wants that ascend by (handle, first), O(n log n) otherwise. */
int pd_wants_check_distinct(Paramd__Want *const *wants, size_t n, const pd_handle_facts *handles, pd_error *err);
/* Returns the offset in a push's payload at which the data of the next piece begins: the end of a piece of `bytes`
 * bytes at `offset`, rounded up to 64. Returns UINT64_MAX if that offset is too large. */
static inline uint64_t pd_piece_end(uint64_t offset, uint64_t bytes)
{
    uint64_t end;

    if (__builtin_add_overflow(offset, bytes, &end) || __builtin_add_overflow(end, PD_PAYLOAD_ALIGN - 1, &end))
        return UINT64_MAX;
    return end / PD_PAYLOAD_ALIGN * PD_PAYLOAD_ALIGN;
}

/* PD_PUSH_SCALARS: most scalars of a push. PD_PUSH_SCALAR_NAME: most bytes of a scalar's name. */
enum { PD_PUSH_SCALARS = 16, PD_PUSH_SCALAR_NAME = 64 };

/* Checks the names and values of the scalars of a push. A name has 1 to 64 bytes and is UTF-8 without control
 * characters. No name comes twice. Values are finite. PD_INVALID_ARGUMENT: the error names the scalar and what is
 * wrong. PD_RESOURCE_EXHAUSTED: too many scalars. */
int pd_scalars_check(Paramd__Scalar *const *scalars, size_t n, pd_error *err);

#endif
