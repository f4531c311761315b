/* round.h - collects the contributions to one step of one parameter: which rank has contributed what, and what can
 * be summed?
 *
 * Step thread. Pure bookkeeping: no arithmetic, no clock, no memory of its own; slots and chunks live in arrays of
 * the job that are sized at Declare. Contributions are summed in rank order, so a chunk can be summed as far as its
 * lowest missing rank.
 *
 * A rank contributes every element, or where the parameter is ranged those of its range: of a chunk, the elements
 * that chunk and range share. A chunk that a rank's range does not touch does not wait for that rank. Whom else a
 * chunk waits for is the policy's answer. */
#ifndef PD_ROUND_H
#define PD_ROUND_H

#include "membership.h"
#include "policy.h"
#include "ranges.h"
#include "request.h"

typedef enum pd_slot_state {
    PD_SLOT_EMPTY,              /* nothing has come in this round */
    PD_SLOT_HELD,               /* the gradient lies in a frame */
    PD_SLOT_SPILLED,            /* the gradient lies in memory of its own, the frame has gone: step/collect.h */
    PD_SLOT_SUMMED,             /* the gradient is part of the aggregate, or was left out of it by its weight; frame or memory have gone */
    PD_SLOT_ABSENT,             /* the rank has no gradient in this round */
    PD_SLOT_OUTSIDE,            /* the rank's range has nothing of this chunk */
} pd_slot_state;

/* One rank's contribution to one chunk. */
typedef struct pd_slot {
    union {
        const void *at;         /* HELD: elements inside the frame's buffer, from the first that the rank gives of this chunk */
        float      *spill;      /* SPILLED: the same elements, of the pool param->spills */
        double      weight;     /* SUMMED: what it weighs in the sum */
    } u;
    pd_request *frame;          /* HELD: the push that brought it, with weight and buffer */
    uint8_t     state, dtype;   /* pd_slot_state, pd_dtype */
    bool        refused : 1;    /* EMPTY: a push of it came and was refused */
    bool        counted : 1;    /* SUMMED: it is part of the sum */
    bool        presummed : 1;  /* SUMMED: it was a sum over examples, not a mean */
    bool        landed : 1;     /* the rank's initial weights have come: job/initial_weights.h */
    /* How the rank weighs all of its contributions to this round. Stored in the slot of the first chunk that the rank
     * contributes to, whatever the state of that slot is. */
    bool        weighed : 1;    /* a contribution has come, and the following holds */
    bool        as_sum : 1;     /* contributions are sums over examples (presummed), not means */
    uint16_t    process;        /* the process at the rank that gave them: pd_rank.process */
    double      weight;         /* number of examples */
} pd_slot;

/* A run of a parameter's elements. */
typedef struct pd_run { int64_t first, n; } pd_run;

/* The list of the step layer that a chunk is in. */
typedef enum pd_chunk_list { PD_CHUNK_NOWHERE, PD_CHUNK_PARTIAL, PD_CHUNK_COMPLETE, PD_CHUNK_LOOSE,
                             PD_CHUNK_FULL } pd_chunk_list;

typedef struct pd_chunk {
    struct pd_chunk *prev, *next;
    struct pd_param *param;
    pd_slot  *slots;            /* by rank */
    int64_t   first, n;         /* elements */
    uint32_t  came;             /* ranks that have contributed, are absent, or outside */
    uint32_t  prefix;           /* ranks 0 … prefix-1 all have or are */
    uint32_t  summed;           /* ranks 0 … summed-1 are in the sum, absent or outside */
    int64_t   collected;        /* so many elements from the first have their median or trimmed mean */
    uint64_t  seen;             /* number of the last frame that named this chunk */
    uint8_t   list;             /* pd_chunk_list */
} pd_chunk;

typedef struct pd_round {
    const pd_policy     *policy;
    const pd_membership *members;       /* the job's */
    pd_chunk *chunks;           /* one behind the other, and their slots too */
    pd_ranges ranges;
    int64_t   elements, chunk_elements;
    uint32_t  n_chunks;
    uint32_t  missing;          /* chunks that are not complete */
    uint32_t  unsummed;         /* chunks whose sum is not finished */
    bool      open;             /* something has come */
    bool      closing;          /* its deadline has passed, and its policy closes it with what has come */
    bool      finite;           /* no finished sum holds an infinity or NaN */
    bool      weightless;       /* some element of a finished sum had no weight: all weights were 0, or nobody gave it */
    uint64_t  started_ns;       /* of the first contribution */
} pd_round;

/* What a round is laid over. The arrays are borrowed: a chunk for every chunk_elements begun, a slot of each rank for
 * each chunk, zeroed, and `ranges`, one for each rank and zeroed; NULL: every rank contributes everything. */
typedef struct pd_round_layout {
    const pd_policy     *policy;
    const pd_membership *members;
    struct pd_param     *param;
    int64_t   elements, chunk_elements;
    pd_chunk *chunks;
    pd_slot  *slots;
    pd_range *ranges;
} pd_round_layout;

/* Begins with an empty round. Touches no slot: a job may have many millions. */
void pd_round_init(pd_round *round, const pd_round_layout *layout);
/* Forgets everything, for the next step. No slot may be held. */
void pd_round_reset(pd_round *round);

/* Ranks that have a slot in each chunk. */
static inline uint32_t pd_round_ranks(const pd_round *round) { return round->members->ranks; }

/* Sets what a rank contributes of a ranged parameter; or forgets it. Nothing of the rank has come. Where the round is
 * open, chunks may be complete afterwards that were not before. */
void pd_round_set_range(pd_round *round, uint32_t rank, int64_t start, int64_t end);
void pd_round_unset_range(pd_round *round, uint32_t rank);
/* Returns the elements [start, end) that the rank contributes; all of them while its range is not known. */
pd_range pd_round_range(const pd_round *round, uint32_t rank);
/* Returns what the rank contributes of a chunk; n is 0 where nothing. */
pd_run pd_round_run(const pd_round *round, const pd_chunk *chunk, uint32_t rank);
/* Counts the chunks that so many elements are cut into. */
static inline uint64_t pd_count_chunks(int64_t elements, uint64_t chunk_elements)
{
    return ((uint64_t)elements + chunk_elements - 1) / chunk_elements;
}
/* Counts the chunks that the rank's range touches. */
uint32_t pd_round_count_chunks(const pd_round *round, uint32_t rank);
/* Counts the ranks whose known ranges touch the chunk. */
uint32_t pd_round_count_ranks(const pd_round *round, const pd_chunk *chunk);

/* Returns the state of the rank's slot. PD_SLOT_EMPTY: the rank may contribute this chunk. */
static inline pd_slot_state pd_chunk_state(const pd_chunk *chunk, uint32_t rank)
{
    return (pd_slot_state)chunk->slots[rank].state;
}
/* The rank has reported itself absent in this round, resp. has given some of its chunks. */
bool pd_round_is_absent(const pd_round *round, uint32_t rank);
bool pd_round_has_given(const pd_round *round, uint32_t rank);

/* Files a contribution into an empty slot (HELD, or ABSENT with `frame` NULL). Returns whether the chunk became
 * complete. */
bool pd_round_add(pd_round *round, pd_chunk *chunk, uint32_t rank, pd_slot slot);
/* Takes a held contribution back: the slot is empty again. The caller has let go of the frame. */
void pd_round_take_back(pd_round *round, pd_chunk *chunk, uint32_t rank);

/* Returns whether nobody is waited for any more, of one chunk and of the whole round. */
static inline bool pd_chunk_is_complete(const pd_round *round, const pd_chunk *chunk)
{
    return round->policy->chunk_is_complete(round, chunk);
}
static inline bool pd_round_is_complete(const pd_round *round) { return round->policy->round_is_complete(round); }
/* Returns whether a sum that reaches up to this rank is the chunk's whole sum. */
static inline bool pd_chunk_ends_at(const pd_round *round, uint32_t upto) { return upto == pd_round_ranks(round); }

/* Gives the ranks whose contributions count in a complete round: *out for pd_closed, NULL where those of all expected
 * ranks do. PD_NO_MEMORY. */
int pd_round_counted(const pd_round *round, pd_counted **out);

/* Returns the slot of the first chunk that the rank contributes to. NULL: it contributes to none. */
pd_slot *pd_round_first_slot(pd_round *round, uint32_t rank);

/* Writes the ranks that the round still waits for as "1,3"; "" when it is complete or not open. Cut with "..." where
 * `size` is short. */
char *pd_round_missing(const pd_round *round, char *text, size_t size);
/* Nothing of the rank's part, where it has one, has come: neither gradient nor absence; a push of some of it was
 * refused. */
bool pd_round_is_silent(const pd_round *round, uint32_t rank);
bool pd_round_was_refused(const pd_round *round, uint32_t rank);
/* The rank is expected, and some of its part has not come. */
bool pd_round_misses(const pd_round *round, uint32_t rank);

#endif
