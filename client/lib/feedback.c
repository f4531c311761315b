/* feedback.c - quantizes gradients for the wire, and keeps what that rounds away. */
#include "feedback.h"

#include <stdlib.h>
#include <string.h>

#include "block_codec.h"
#include "cpu.h"
#include "mutant.h"
#include "pieces.h"

int pd_feedback_make(pd_core *core, pd_param_record *record)
{
    size_t n = (size_t)(record->end - record->start);
    pd_feedback *f = &record->feedback;

    if (core->setup.feedback == PD_FEEDBACK_OFF || n == 0) return PD_OK;
    f->rest = calloc(n, sizeof *f->rest);
    f->sent = malloc(n * sizeof *f->sent);
    if (f->rest != NULL && f->sent != NULL) return PD_OK;
    pd_feedback_free(record);
    return PD_NO_MEMORY;
}

void pd_feedback_free(pd_param_record *record)
{
    free(record->feedback.rest);
    free(record->feedback.sent);
    free(record->feedback.codes);
    record->feedback = (pd_feedback){ 0 };
}

/* A piece of a quantized parameter: its elements, and where its codes lie in pd_feedback.codes. */
typedef struct pd_coded {
    int64_t first, n;
    uint64_t at, bytes;
} pd_coded;

/* Moves to the next piece, from before_first to the first one. Returns false if there is none. */
static bool next_piece(const pd_param_record *record, uint64_t chunk, pd_coded *piece)
{
    int64_t first = piece->first + piece->n;

    if (first >= record->end) return false;
    piece->at = pd_piece_end(piece->at, piece->bytes);
    piece->first = first;
    piece->n = pd_range_piece(record->start, record->end, chunk, (uint64_t)first);
    piece->bytes = pd_dtype_bytes(record->push, (uint64_t)piece->n);
    return true;
}

static pd_coded before_first(const pd_param_record *record)
{
    return (pd_coded){ .first = record->start };
}

uint64_t pd_feedback_bytes(const pd_param_record *record, uint64_t chunk)
{
    pd_coded piece = before_first(record);

    while (next_piece(record, chunk, &piece)) continue;
    return pd_piece_end(piece.at, piece.bytes);
}

/* All pieces but the first and the last have as many elements as a chunk. */
const uint8_t *pd_feedback_piece(const pd_param_record *record, int64_t first)
{
    uint64_t chunk = record->feedback.chunk, each = pd_piece_end(0, pd_dtype_bytes(record->push, chunk));
    pd_coded piece = before_first(record);

    if (first == record->start) return record->feedback.codes;
    next_piece(record, chunk, &piece);
    return record->feedback.codes + pd_piece_end(0, piece.bytes) +
           ((uint64_t)(first - piece.first - piece.n) / chunk) * each;
}

/* Copies those elements that are finite. */
PD_CLONES(void, copy_finite, (float *restrict to, const float *restrict from, int64_t n), (to, from, n))
{
    for (int64_t i = 0; i < n; i++) to[i] = from[i] - from[i] == 0 ? from[i] : to[i];
}

/* Computes the rest that the last push has left. */
static void settle(pd_param_record *record)
{
    pd_feedback *f = &record->feedback;
    pd_coded piece = before_first(record);

    if (f->fate == PD_FATE_FORGOTTEN) memset(f->rest, 0, (size_t)(record->end - record->start) * sizeof *f->rest);
    if (f->fate == PD_FATE_CARRIED) copy_finite(f->rest, f->sent, record->end - record->start);
    while (f->fate == PD_FATE_COUNTED && next_piece(record, f->chunk, &piece)) {
        int64_t at = piece.first - record->start;
        pd_blocks_rest(f->rest + at, f->sent + at, record->push, f->codes + piece.at, piece.n);
    }
    f->fate = PD_FATE_KEPT;
}

int pd_feedback_begin(pd_core *core, pd_param_record *record)
{
    pd_feedback *f = &record->feedback;
    uint64_t chunk = core->welcome.chunk_elements;
    uint8_t *codes;

    if (f->forgotten) f->fate = PD_FATE_FORGOTTEN;
    f->forgotten = false;
    /* A server that gets a lost job again may have other chunks. */
    if (f->codes != NULL && f->chunk == chunk) return PD_OK;
    codes = aligned_alloc(PD_PAYLOAD_ALIGN, pd_feedback_bytes(record, chunk) + PD_PAYLOAD_ALIGN);
    if (codes == NULL) return PD_NO_MEMORY;
    if (f->rest != NULL) settle(record);
    free(f->codes);
    f->codes = codes;
    f->chunk = chunk;
    return PD_OK;
}

PD_CLONES(void, add, (float *restrict sum, const float *restrict a, const float *restrict b, int64_t n), (sum, a, b, n))
{
    for (int64_t i = 0; i < n; i++) sum[i] = a[i] + b[i];
}

void pd_feedback_quantize(pd_param_record *record, const float *gradient)
{
    pd_feedback *f = &record->feedback;
    pd_coded piece = before_first(record);

    if (f->rest != NULL) settle(record);
    while (next_piece(record, f->chunk, &piece)) {
        int64_t at = piece.first - record->start;
        if (f->rest != NULL) add(f->sent + at, gradient + at, f->rest + at, piece.n);
        pd_blocks_encode(f->codes + piece.at, record->push, (f->rest != NULL ? f->sent : gradient) + at, piece.n);
        if (PD_MUTANT(q4_short_block) && record->push == PD_INT4 && piece.n % PD_BLOCK != 0)
            f->codes[piece.at + piece.bytes - 1] = 0;
    }
}

void pd_feedback_end(pd_core *core, pd_param_record *record, int outcome, bool counts)
{
    pd_feedback *f = &record->feedback;
    bool counted = outcome == PD_OUTCOME_STEPPED || (outcome == PD_OUTCOME_LATE && PD_MUTANT(feedback_commits_on_late));

    if (f->rest == NULL) return;
    if (counted && counts)
        f->fate = PD_FATE_COUNTED;
    else if (outcome == PD_OUTCOME_LATE && core->setup.feedback == PD_FEEDBACK_CARRY)
        f->fate = PD_FATE_CARRIED;
}

bool pd_feedback_forget(pd_param_record *record)
{
    record->feedback.forgotten = record->feedback.rest != NULL;
    return record->feedback.forgotten;
}
