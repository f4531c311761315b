/* pieces.h - checks the pieces of a payload, and the wants of a Pull. */
#ifndef PD_PIECES_H
#define PD_PIECES_H

#include "message.h"

/* The facts about a handle: the name of the parameter, and its elements [start, end) that travel on this connection. */
typedef struct pd_handle_facts { int64_t start, end; const char *name; } pd_handle_facts;

/* Checks every piece against the handles, the chunk grid, its dtype and the payload. The handle and the dtype must be
 * known, and the piece must be exactly one piece of the handle's range (pd_range_piece). Its data must begin where the
 * data of the piece before ends (pd_piece_end; the first at 0), and the payload must end with the last piece, with or
 * without its padding to 64. An absent piece has first, count and offset 0. No piece may come twice, and none may come
 * of a parameter that is also absent. The handles may come in any order.
 * PD_INVALID_ARGUMENT: the error names piece, parameter, the expected value and the actual one. PD_NO_MEMORY.
 * Costs O(n) for pieces that ascend by (handle, first), O(n log n) otherwise. chunk_elements >= 1. */
int pd_pieces_check(Paramd__Piece *const *pieces, size_t n, const pd_handle_facts *handles, size_t n_handles,
                    uint64_t chunk_elements, uint64_t payload_bytes, pd_error *err);
/* Checks that no chunk comes twice among the wants of a Pull. Every handle must be known. PD_INVALID_ARGUMENT: the
 * error names the wants and their parameter. PD_NO_MEMORY. Costs as pd_pieces_check. */
int pd_wants_check_distinct(Paramd__Want *const *wants, size_t n, const pd_handle_facts *handles, pd_error *err);
/* Returns the offset of the next piece after one of `bytes` at `offset`: rounded up to 64. UINT64_MAX: too large. */
uint64_t pd_piece_end(uint64_t offset, uint64_t bytes);

#endif
