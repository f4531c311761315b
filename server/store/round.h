/* round.h - the gathering of the contributions to one step of one parameter: who has contributed what, and what can be summed?
 *
 * Step thread. Pure bookkeeping: no arithmetic, no clock, no memory of its own; slots and chunks live in arrays of the job that
 * are sized at Declare. Contributions are summed in rank order, so a chunk can be summed as far as its lowest missing rank. */
#ifndef PD_ROUND_H
#define PD_ROUND_H

#include "request.h"

typedef enum pd_slot_state {
    PD_SLOT_EMPTY,              /* not heard of in this round */
    PD_SLOT_HELD,               /* the gradient lies in a frame */
    PD_SLOT_SUMMED,             /* it is part of the sum, or was left out of it by its weight; the frame has gone */
    PD_SLOT_ABSENT,             /* the rank has no gradient in this round */
} pd_slot_state;

/* One rank's contribution to one chunk. */
typedef struct pd_slot {
    const void *at;             /* HELD: elements inside the frame's buffer */
    pd_request *frame;          /* HELD: the push that brought it, with weight and buffer */
    uint8_t     state, dtype;   /* pd_slot_state, pd_dtype */
    bool        refused;        /* EMPTY: a push of it came and was refused */
} pd_slot;

/* In which of the job's lists a chunk stands. */
typedef enum pd_chunk_list { PD_CHUNK_NOWHERE, PD_CHUNK_PARTIAL, PD_CHUNK_COMPLETE } pd_chunk_list;

typedef struct pd_chunk {
    struct pd_chunk *prev, *next;
    struct pd_param *param;
    pd_slot  *slots;            /* by rank */
    int64_t   first, n;         /* elements */
    uint32_t  came;             /* ranks heard of */
    uint32_t  prefix;           /* ranks 0 … prefix-1 have all been heard of */
    uint32_t  summed;           /* ranks 0 … summed-1 are in the sum, or absent */
    uint32_t  given;            /* gradients in the sum */
    double    weight;           /* sum of their weights */
    uint64_t  mark;             /* number of the last frame that named this chunk */
    uint8_t   list;             /* pd_chunk_list */
    bool      landed;           /* the initial weights have come: param.c */
} pd_chunk;

typedef struct pd_round {
    pd_chunk *chunks;
    uint32_t  n_chunks, world;
    uint32_t  missing;          /* chunks that somebody has not contributed to */
    uint32_t  unsummed;         /* chunks whose sum is not finished */
    bool      open;             /* somebody has been heard of */
    bool      finite;           /* no finished sum holds an infinity or NaN */
    bool      weightless;       /* some finished sum had no weight: all weights were 0 */
    uint64_t  started_ns;       /* of the first contribution */
} pd_round;

/* Lays `n_chunks` chunks over `elements` and ends with an empty round. Borrows both arrays: n_chunks chunks and n_chunks x world slots. */
void pd_round_init(pd_round *round, struct pd_param *param, int64_t elements, int64_t chunk_elements, uint32_t world,
                   pd_chunk *chunks, pd_slot *slots);
/* Forgets everything, for the next step. No slot may be held. */
void pd_round_reset(pd_round *round);

/* PD_SLOT_EMPTY: the rank may contribute this chunk. Anything else: what it said before. */
static inline pd_slot_state pd_chunk_heard(const pd_chunk *chunk, uint32_t rank) { return (pd_slot_state)chunk->slots[rank].state; }
/* The rank has marked itself absent in this round, resp. has given some of its chunks. */
bool pd_round_is_absent(const pd_round *round, uint32_t rank);
bool pd_round_has_given(const pd_round *round, uint32_t rank);

/* Files a contribution into an empty slot (HELD, or ABSENT with `frame` NULL). True: that was the last, the chunk is complete. */
bool pd_round_add(pd_round *round, pd_chunk *chunk, uint32_t rank, pd_slot slot);
/* Some rank has given a gradient: else the complete round closes without one. */
bool pd_round_any_given(const pd_round *round);

/* Ranks that the round still waits for, as "1,3"; "" when it is complete or not open. Cut with "..." where `size` is short. */
char *pd_round_missing(const pd_round *round, char *text, size_t size);
/* Nothing of the rank's part has come, neither gradient nor absence; a push of some of it was refused. */
bool pd_round_is_silent(const pd_round *round, uint32_t rank);
bool pd_round_was_refused(const pd_round *round, uint32_t rank);
/* The rank has not said all of its part. */
bool pd_round_misses(const pd_round *round, uint32_t rank);

#endif
