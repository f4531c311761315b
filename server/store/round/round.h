/* round.h - collects the contributions to one step of one parameter: records which rank has contributed, and tells
 * which chunks can be summed.
 *
 * Step thread. Pure bookkeeping: no arithmetic, no clock, no memory of its own. Slots and chunks lie in arrays of
 * the job, whose size is known when the parameters are declared. Contributions are summed in rank order, so a chunk
 * can be summed up to its lowest missing rank.
 *
 * A rank contributes every element, or if the parameter is ranged the elements of its range. It contributes those
 * elements of a chunk that lie in its range. A chunk that has no element of a rank's range does not wait for that
 * rank. The policy decides which other ranks a chunk waits for. */
#ifndef PD_ROUND_H
#define PD_ROUND_H

#include "membership.h"
#include "policy.h"
#include "ranges.h"
#include "request.h"

typedef enum pd_slot_state {
    PD_SLOT_EMPTY,   /* the rank has sent nothing for this chunk in this round */
    PD_SLOT_HELD,    /* the rank's gradient lies in the buffer of the frame that brought it */
    PD_SLOT_SPILLED, /* the gradient was copied from its frame to separate memory, and the frame released:
                      * step/collect.h */
    PD_SLOT_SUMMED,  /* the gradient is in the aggregate, or was left out because of its weight; its memory is
                      * released */
    PD_SLOT_ABSENT,  /* the rank has reported that it has no gradient in this round */
    PD_SLOT_OUTSIDE, /* the rank's range has no element of this chunk */
} pd_slot_state;

/* One rank's contribution to one chunk. */
typedef struct pd_slot {
    union {
        const void *at; /* HELD: the rank's first element of this chunk, in the frame's buffer */
        float *spill;   /* SPILLED: copy of the rank's elements, in memory of the pool param->spills */
        double weight;  /* SUMMED: the contribution's weight in the sum */
    } u;
    pd_request *frame;    /* HELD: the push that brought the gradient; has its weight and the buffer */
    uint8_t state, dtype; /* pd_slot_state, pd_dtype */
    bool refused : 1;     /* EMPTY: a push of this chunk came and was refused */
    bool counted : 1;     /* SUMMED: the sum contains the contribution */
    bool presummed : 1;   /* SUMMED: the contribution was a sum over examples, not a mean */
    bool landed : 1;      /* the rank's initial weights of this chunk have come: job/initial_weights.h */
    /* The weight that the rank gives all its contributions to this round of the parameter. Stored in the rank's slot
     * of the first chunk that it contributes to, whatever the state of that slot is. */
    bool weighed : 1; /* the rank's weight is known: the next three members are set */
    bool as_sum : 1;  /* the rank's contributions are sums over examples, not means */
    uint16_t process; /* number of the process at the rank that gave this weight: pd_rank_saved.process */
    double weight;    /* the weight: a number of examples */
} pd_slot;

/* Consecutive elements of a parameter. */
typedef struct pd_run {
    int64_t first, n;
} pd_run;

/* The queue of pd_steps that a chunk is in. */
typedef enum pd_chunk_list {
    PD_CHUNK_NOWHERE,
    PD_CHUNK_PARTIAL,
    PD_CHUNK_COMPLETE,
    PD_CHUNK_LOOSE,
    PD_CHUNK_FULL
} pd_chunk_list;

typedef struct pd_chunk {
    struct pd_chunk *prev, *next;
    struct pd_param *param;
    pd_slot *slots;    /* one slot for each rank */
    int64_t first, n;  /* the chunk's first element, and its number of elements */
    uint32_t came;     /* number of ranks that have contributed, are absent, or whose range is outside of the chunk */
    uint32_t prefix;   /* the ranks 0 to prefix - 1 have all contributed, are absent or outside: these can be summed */
    uint32_t summed;   /* the ranks 0 to summed - 1 are all in the sum, absent or outside */
    int64_t collected; /* number of elements, from the chunk's first, whose median or trimmed mean is computed */
    uint64_t seen;     /* number of the last frame that brought elements of this chunk */
    uint8_t list;      /* queue that the chunk is in (pd_chunk_list) */
} pd_chunk;

typedef struct pd_round {
    const pd_policy *policy;
    const pd_membership *members; /* the ranks of the job */
    pd_chunk *chunks;             /* array of the parameter's chunks; their slots are one array, too */
    pd_ranges ranges;
    int64_t elements, chunk_elements;
    uint32_t n_chunks;
    uint32_t missing;  /* number of chunks that wait for some rank */
    uint32_t unsummed; /* number of chunks whose sum is not finished */
    bool open;         /* the round is open: its first contribution has come */
    /* the deadline has passed, and the policy closes the round with the contributions that have come */
    bool closing;
    bool finite;         /* none of the finished sums holds an infinity or NaN */
    bool weightless;     /* some element of a finished sum has no weight: all its weights were 0, or no rank gave it */
    uint64_t started_ns; /* time at which the round's first contribution came */
} pd_round;

/* The memory of a round. The arrays are borrowed and zeroed. `chunks` has an entry for each chunk_elements elements
 * (the last chunk may be shorter), `slots` one for each chunk and rank, `ranges` one for each rank. `ranges` NULL:
 * every rank contributes every element. */
typedef struct pd_round_layout {
    const pd_policy *policy;
    const pd_membership *members;
    struct pd_param *param;
    int64_t elements, chunk_elements;
    pd_chunk *chunks;
    pd_slot *slots;
    pd_range *ranges;
} pd_round_layout;

/* Begins with an empty round. Does not touch the slots, which the caller has zeroed: a job may have many millions. */
void pd_round_init(pd_round *round, const pd_round_layout *layout);
/* Empties the round for the next step. No slot may be HELD. */
void pd_round_reset(pd_round *round);

/* Returns the number of ranks that have a slot in each chunk. */
static inline uint32_t pd_round_ranks(const pd_round *round)
{
    return round->members->ranks;
}

/* Set or forget the range that a rank contributes of a ranged parameter. Call them only before the rank's first
 * contribution. If the round is open, chunks may become complete, because they need not wait for the rank any more. */
void pd_round_set_range(pd_round *round, uint32_t rank, int64_t start, int64_t end);
void pd_round_unset_range(pd_round *round, uint32_t rank);
/* Returns the elements [start, end) that the rank contributes. While its range is not known these are all elements. */
pd_range pd_round_range(const pd_round *round, uint32_t rank);
/* Returns the elements of the chunk that the rank contributes; n is 0 if there are none. */
pd_run pd_round_run(const pd_round *round, const pd_chunk *chunk, uint32_t rank);
/* Returns the number of chunks into which `elements` elements are cut. */
static inline uint64_t pd_count_chunks(int64_t elements, uint64_t chunk_elements)
{
    return ((uint64_t)elements + chunk_elements - 1) / chunk_elements;
}
/* Returns the number of chunks that the rank's range touches. */
uint32_t pd_round_count_chunks(const pd_round *round, uint32_t rank);
/* Returns the number of ranks whose known ranges touch the chunk. */
uint32_t pd_round_count_ranks(const pd_round *round, const pd_chunk *chunk);

/* Returns the state of the rank's slot. PD_SLOT_EMPTY: the rank may contribute this chunk. */
static inline pd_slot_state pd_chunk_state(const pd_chunk *chunk, uint32_t rank)
{
    return (pd_slot_state)chunk->slots[rank].state;
}
/* Return whether the rank has reported the parameter absent in this round, and whether it has given a gradient of
 * some of its chunks. */
bool pd_round_is_absent(const pd_round *round, uint32_t rank);
bool pd_round_has_given(const pd_round *round, uint32_t rank);

/* Files a contribution into an empty slot (HELD, or ABSENT with `frame` NULL). Returns whether the chunk became
 * complete. */
bool pd_round_add(pd_round *round, pd_chunk *chunk, uint32_t rank, pd_slot slot);
/* Empties the slot of a HELD contribution. The caller has released the frame. */
void pd_round_take_back(pd_round *round, pd_chunk *chunk, uint32_t rank);

/* Return whether the chunk, or the whole round, waits for no further rank. */
static inline bool pd_chunk_is_complete(const pd_round *round, const pd_chunk *chunk)
{
    return round->policy->chunk_is_complete(round, chunk);
}
static inline bool pd_round_is_complete(const pd_round *round)
{
    return round->policy->round_is_complete(round);
}
/* Returns whether the sum over the ranks 0 to upto - 1 is the chunk's whole sum. */
static inline bool pd_chunk_ends_at(const pd_round *round, uint32_t upto)
{
    return upto == pd_round_ranks(round);
}

/* Gives the ranks whose contributions count in a complete round, for pd_closed. *out is NULL if every expected rank
 * counts. PD_NO_MEMORY. */
int pd_round_counted(const pd_round *round, pd_counted **out);

/* Returns the rank's slot in the first chunk that it contributes to. NULL: its range is empty. */
pd_slot *pd_round_first_slot(pd_round *round, uint32_t rank);

/* Writes the ranks that the round still waits for as "1,3". The text is empty if the round is complete or not open,
 * and ends in "..." if `size` is too short. Returns `text`. */
char *pd_round_missing(const pd_round *round, char *text, size_t size);
/* pd_round_is_silent returns whether the rank has sent nothing for this parameter in this round, neither a gradient
 * nor a report that it has none. A rank without elements of the parameter is not silent.
 *
 * pd_round_was_refused returns whether a push of the rank to this round was refused and not sent again. */
bool pd_round_is_silent(const pd_round *round, uint32_t rank);
bool pd_round_was_refused(const pd_round *round, uint32_t rank);
/* Returns whether the rank is expected, and some chunk of its range still waits for it. */
bool pd_round_misses(const pd_round *round, uint32_t rank);

#endif
