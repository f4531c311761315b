/* round.h - the gathering of the contributions to one step of one parameter: who has contributed what, and what can be summed?
 *
 * Step thread. Pure bookkeeping: no arithmetic, no clock, no memory of its own; slots and chunks live in arrays of the job that
 * are sized at Declare. Contributions are summed in rank order, so a chunk can be summed as far as its lowest missing rank.
 *
 * A rank contributes every element, or where the parameter is ranged those of its range: of a chunk, what chunk and range share. A chunk that
 * a rank's range does not touch does not wait for that rank. */
#ifndef PD_ROUND_H
#define PD_ROUND_H

#include "request.h"

typedef enum pd_slot_state {
    PD_SLOT_EMPTY,              /* not heard of in this round */
    PD_SLOT_HELD,               /* the gradient lies in a frame */
    PD_SLOT_SPILLED,            /* the gradient lies in memory of its own, the frame has gone: gather.h */
    PD_SLOT_SUMMED,             /* it is part of the aggregate, or was left out of it by its weight; frame or memory have gone */
    PD_SLOT_ABSENT,             /* the rank has no gradient in this round */
    PD_SLOT_OUTSIDE,            /* the rank's range has nothing of this chunk */
} pd_slot_state;

/* One rank's contribution to one chunk. */
typedef struct pd_slot {
    union {
        const void *at;         /* HELD: elements inside the frame's buffer, from the first that the rank gives of this chunk */
        float      *spill;      /* SPILLED: the same elements, of the shelf param->spills */
        double      weight;     /* SUMMED: what it weighs in the sum */
    } u;
    pd_request *frame;          /* HELD: the push that brought it, with weight and buffer */
    uint8_t     state, dtype;   /* pd_slot_state, pd_dtype */
    bool        refused : 1;    /* EMPTY: a push of it came and was refused */
    bool        counted : 1;    /* SUMMED: it is part of the sum */
    bool        presummed : 1;  /* SUMMED: it was a sum over examples, not a mean */
    bool        landed : 1;     /* the rank's initial weights have come: init.c */
    /* How the rank weighs all of its contributions to this round. Stored in the slot of the first chunk that the rank contributes to, whatever the state
     * of that slot is. */
    bool        weighed : 1;    /* a contribution has come, and the following holds */
    bool        as_sum : 1;     /* contributions are sums over examples (presummed), not means */
    uint16_t    process;        /* the process at the rank that gave them: pd_rank.process */
    double      weight;         /* number of examples */
} pd_slot;

/* Which elements of a parameter a rank contributes: [start, end), nothing where these are the same. */
typedef struct pd_range {
    int64_t  start, end;
    bool     known;             /* it has been declared; until then the rank may have any of them */
    uint64_t initialiser;       /* nonce of the process whose initial weights of it came last */
    /* Three lists of ranks that belong to the round: entry i of each list is stored in ranges[i]. The first two hold the ranks whose range is known and
     * not empty, in the order of their starts and of their ends. The third holds the ranks of the sweep under way, in ascending order. */
    uint32_t by_start, by_end, swept;
} pd_range;

/* A run of a parameter's elements. */
typedef struct pd_run { int64_t first, n; } pd_run;

/* In which of the job's lists a chunk stands. */
typedef enum pd_chunk_list { PD_CHUNK_NOWHERE, PD_CHUNK_PARTIAL, PD_CHUNK_COMPLETE, PD_CHUNK_LOOSE, PD_CHUNK_FULL } pd_chunk_list;

typedef struct pd_chunk {
    struct pd_chunk *prev, *next;
    struct pd_param *param;
    pd_slot  *slots;            /* by rank */
    int64_t   first, n;         /* elements */
    uint32_t  came;             /* ranks heard of, or outside */
    uint32_t  prefix;           /* ranks 0 … prefix-1 all are */
    uint32_t  summed;           /* ranks 0 … summed-1 are in the sum, absent or outside */
    int64_t   gathered;         /* so many elements from the first have their median or trimmed mean */
    uint64_t  mark;             /* number of the last frame that named this chunk */
    uint8_t   list;             /* pd_chunk_list */
} pd_chunk;

typedef struct pd_round {
    pd_chunk *chunks;           /* one behind the other, and their slots too */
    pd_range *ranges;           /* by rank; NULL: every rank contributes every element */
    int64_t   elements, chunk_elements;
    uint32_t  n_chunks, world;
    uint32_t  n_known, n_ranges;        /* ranges that are known; of them those that are not empty */
    uint32_t  missing;          /* chunks that somebody has not contributed to */
    uint32_t  unsummed;         /* chunks whose sum is not finished */
    bool      open;             /* somebody has been heard of */
    bool      finite;           /* no finished sum holds an infinity or NaN */
    bool      weightless;       /* some element of a finished sum had no weight: all weights were 0, or nobody gave it */
    uint64_t  started_ns;       /* of the first contribution */
} pd_round;

/* Lays chunks over `elements` and ends with an empty round. Borrows the arrays: a chunk for every chunk_elements begun, `world` slots for
 * each, zeroed, and `ranges`, one for each rank and zeroed; NULL: every rank contributes everything. Touches no slot: a job may have many millions. */
void pd_round_init(pd_round *round, struct pd_param *param, int64_t elements, int64_t chunk_elements, uint32_t world,
                   pd_chunk *chunks, pd_slot *slots, pd_range *ranges);
/* Forgets everything, for the next step. No slot may be held. */
void pd_round_reset(pd_round *round);

/* Of a ranged parameter: what a rank contributes; and that it is not known any more. The rank has not been heard of. Where the round is open chunks
 * may be complete then that were not before. */
void pd_round_set_range(pd_round *round, uint32_t rank, int64_t start, int64_t end);
void pd_round_unset_range(pd_round *round, uint32_t rank);
/* Elements [start, end) that the rank contributes; all of them while its range is not known. */
pd_range pd_round_range(const pd_round *round, uint32_t rank);
/* What the rank contributes of a chunk; n is 0 where nothing. */
pd_run pd_round_run(const pd_round *round, const pd_chunk *chunk, uint32_t rank);
/* How many chunks so many elements are cut into. */
static inline uint64_t pd_count_chunks(int64_t elements, uint64_t chunk_elements) { return ((uint64_t)elements + chunk_elements - 1) / chunk_elements; }
/* How many chunks the rank's range touches. */
uint32_t pd_round_count_chunks(const pd_round *round, uint32_t rank);
/* How many ranks' known ranges touch the chunk. */
uint32_t pd_round_count_ranks(const pd_round *round, const pd_chunk *chunk);
/* Elements from `first` on, at most up to `end`, that the same ranks contribute: up to where the next range begins or ends; and whether the rank does. */
pd_run pd_round_stretch(const pd_round *round, int64_t first, int64_t end);
bool pd_round_covers(const pd_round *round, uint32_t rank, pd_run stretch);
/* How many ranks contribute a stretch. */
uint32_t pd_round_count_covering(const pd_round *round, pd_run stretch);
/* The first elements [gap->start, gap->end) that are in no known range, or with `given` in none of a rank that is not absent. False: there are none. */
bool pd_round_gap(const pd_round *round, bool given, pd_range *gap);

/* The stretches of a run of elements from the first to the last, each with the ranks that contribute it. One sweep of a round at a time. */
typedef struct pd_sweep {
    pd_round *round;
    pd_run    run;              /* the stretch */
    int64_t   end;              /* of the run of elements */
    uint32_t  n;                /* ranks that contribute the stretch: pd_sweep_rank */
    uint32_t  starts, ends;     /* ranges that begin, resp. end, before the next stretch */
} pd_sweep;
/* The stretches of elements [first, end). The first is reached with pd_sweep_next. */
pd_sweep pd_sweep_begin(pd_round *round, int64_t first, int64_t end);
/* Moves to the next stretch. False: there is none. */
bool pd_sweep_next(pd_sweep *sweep);
/* The ranks that contribute the stretch, in ascending order: i is from 0 to n - 1. */
static inline uint32_t pd_sweep_rank(const pd_sweep *sweep, uint32_t i) { return sweep->round->ranges != NULL ? sweep->round->ranges[i].swept : i; }

/* PD_SLOT_EMPTY: the rank may contribute this chunk. Anything else: what it said before. */
static inline pd_slot_state pd_chunk_heard(const pd_chunk *chunk, uint32_t rank) { return (pd_slot_state)chunk->slots[rank].state; }
/* The rank has marked itself absent in this round, resp. has given some of its chunks. */
bool pd_round_is_absent(const pd_round *round, uint32_t rank);
bool pd_round_has_given(const pd_round *round, uint32_t rank);

/* Files a contribution into an empty slot (HELD, or ABSENT with `frame` NULL). True: that was the last, the chunk is complete. */
bool pd_round_add(pd_round *round, pd_chunk *chunk, uint32_t rank, pd_slot slot);

/* Takes a held contribution back: the slot is empty again. The caller has let go of the frame. */
void pd_round_take_back(pd_round *round, pd_chunk *chunk, uint32_t rank);

/* Of a complete round. NOTHING: every rank is absent. PART: some elements lie in ranges of absent ranks alone. */
typedef enum pd_given { PD_GIVEN_NOTHING, PD_GIVEN_PART, PD_GIVEN_ALL } pd_given;
pd_given pd_round_given(const pd_round *round);

/* The slot of the first chunk that the rank contributes to. NULL: it contributes to none. */
pd_slot *pd_round_first_slot(pd_round *round, uint32_t rank);

/* Ranks that the round still waits for, as "1,3"; "" when it is complete or not open. Cut with "..." where `size` is short. */
char *pd_round_missing(const pd_round *round, char *text, size_t size);
/* Nothing of the rank's part, where it has one, has come: neither gradient nor absence; a push of some of it was refused. */
bool pd_round_is_silent(const pd_round *round, uint32_t rank);
bool pd_round_was_refused(const pd_round *round, uint32_t rank);
/* The rank has not said all of its part. */
bool pd_round_misses(const pd_round *round, uint32_t rank);

#endif
