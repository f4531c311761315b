/* round.h - collects the contributions to one step of one parameter: which rank has contributed what, which chunks can
 * be summed, and when the round is complete.
 *
 * Step thread. Pure bookkeeping: no arithmetic, no clock, no memory of its own. Chunks and contributions lie in arrays
 * of the job, which are allocated when the parameters are declared. Contributions are summed in rank order, so a chunk
 * can be summed up to its lowest missing rank.
 *
 * A rank contributes every element of a parameter, or, if the parameter is ranged, the range of elements that the rank
 * has declared. A chunk waits only for ranks that contribute elements of it. In most jobs every rank counts in every
 * round, so a chunk can be summed as soon as all have contributed to it. In the others (`together`) the fragment of the
 * parameter fixes which ranks count (step/fragment.h), and nothing is summed before. */
#ifndef PD_ROUND_H
#define PD_ROUND_H

#include "mutant.h"
#include "request.h"
#include "store_config.h"

struct pd_round;
struct pd_chunk;

/* Some of the ranks of a job. */
typedef struct pd_rank_set {
    uint32_t ranks;                 /* number of ranks of the job: slots that workers can have */
    uint32_t n;                     /* number of ranks in the set */
    uint64_t at[PD_MAX_WORLD / 64]; /* bit r: rank r is in the set */
} pd_rank_set;

/* Makes the set of all ranks of a job (pd_rank_set_all), or the empty set (pd_rank_set_none). */
void pd_rank_set_all(pd_rank_set *set, uint32_t ranks);
void pd_rank_set_none(pd_rank_set *set, uint32_t ranks);
/* Adds or removes a rank; does nothing if the set has it, or lacks it, already. */
void pd_rank_set_add(pd_rank_set *set, uint32_t rank);
void pd_rank_set_remove(pd_rank_set *set, uint32_t rank);
static inline bool pd_rank_set_has(const pd_rank_set *set, uint32_t rank)
{
    return (set->at[rank / 64] >> rank % 64 & 1) != 0;
}

/* What happens to a contribution to a step of a parameter. */
typedef enum pd_admit {
    PD_ADMIT_NEW,       /* the step's round is open: the contribution is filed, unless the rank has given it before */
    PD_ADMIT_DUPLICATE, /* the round has closed with a contribution of the rank: the push is answered */
    /* the round has closed without the rank: the push is answered with that, and its data are dropped */
    PD_ADMIT_LATE,
    /* the round is not open yet, or an earlier push of the rank has not counted yet: the push is refused */
    PD_ADMIT_EARLY,
} pd_admit;

/* Consecutive elements of a parameter: `n` from element `first` on. */
typedef struct pd_range {
    int64_t first, n;
} pd_range;

/* The elements [start, end) of a ranged parameter that a rank has declared; none if start == end. */
typedef struct pd_rank_range {
    int64_t start, end;
    bool known;           /* until the rank has declared its range, it may contribute any elements */
    uint64_t initialiser; /* nonce of the process that last sent initial weights for this range */
    /* These members belong to the array pd_ranges.at, not to this rank: at[i].by_start is the rank whose range has the
     * i-th smallest start, at[i].by_end the rank with the i-th smallest end (among ranges that are known and not
     * empty). at[i].swept is the i-th rank of a sweep (round_ranges.h). */
    uint32_t by_start, by_end, swept;
} pd_rank_range;

/* The ranges that all ranks have declared of one parameter. */
typedef struct pd_ranges {
    pd_rank_range *at;  /* by rank; NULL: the parameter is not ranged */
    uint32_t n_known;   /* number of ranks whose range is known */
    uint32_t n_ordered; /* number of ranks whose range is known and not empty */
} pd_ranges;

/* Return the number of known, not empty ranges whose start (pd_ranges_starting) or end (pd_ranges_ending) is at most
 * `most`. */
uint32_t pd_ranges_starting(const pd_ranges *ranges, int64_t most);
uint32_t pd_ranges_ending(const pd_ranges *ranges, int64_t most);
/* Return the i-th smallest start (pd_ranges_start) or end (pd_ranges_end) of these ranges; i is less than n_ordered. */
static inline int64_t pd_ranges_start(const pd_ranges *ranges, uint32_t i)
{
    return ranges->at[ranges->at[i].by_start].start;
}
static inline int64_t pd_ranges_end(const pd_ranges *ranges, uint32_t i)
{
    return ranges->at[ranges->at[i].by_end].end;
}

typedef enum pd_contribution_state {
    PD_CONTRIBUTION_EMPTY, /* the rank has sent nothing for this chunk in this round */
    PD_CONTRIBUTION_HELD,  /* the rank's gradient lies in the buffer of the frame that brought it */
    /* the gradient was copied from its frame to separate memory, so that the frame could be released: step/collect.h */
    PD_CONTRIBUTION_SPILLED,
    /* the gradient is in the aggregate, or was left out because its weight is 0; its memory is released */
    PD_CONTRIBUTION_SUMMED,
    PD_CONTRIBUTION_ABSENT, /* the rank has reported that it has no gradient of this parameter in this round */
    /* the rank contributes no element of this chunk, because its range has none */
    PD_CONTRIBUTION_OUTSIDE,
} pd_contribution_state;

typedef struct pd_contribution {
    union {
        /* in state HELD: the rank's elements of this chunk, in the buffer of the frame that brought them */
        const void *at;
        void *spill;   /* in state SPILLED: copy of the rank's elements, in memory of the pool pd_param.spills */
        double weight; /* in state SUMMED: the contribution's weight in the sum */
    } u;
    union {
        /* in state HELD: the push that brought the gradient; it has the gradient's weight and owns the buffer. NULL in
         * the other states but SPILLED */
        pd_request *frame;
        double share; /* in state SPILLED: the contribution's weight in the sum */
    };
    uint8_t state, dtype; /* pd_contribution_state, pd_dtype */
    /* in state EMPTY: a push of this chunk was refused, and the rank has not sent the chunk again */
    bool refused : 1;
    bool counted : 1;   /* in state SUMMED: the sum contains the contribution */
    bool presummed : 1; /* in states SPILLED and SUMMED: the contribution is a sum over examples, not a mean */
    /* the initial weights that the rank sends of this chunk have come: job/initial_weights.h */
    bool landed : 1;
    /* `weighed`, `as_sum`, `process` and `weight` below belong to the rank, not to the chunk: they tell the weight of
     * all that the rank contributes to this parameter in this round. They are stored with the first chunk that the rank
     * contributes to, in any state. */
    bool weighed : 1; /* the rank's weight is known: `as_sum`, `process` and `weight` are set */
    bool as_sum : 1;  /* the rank's contributions are sums over examples, not means */
    uint16_t process; /* number of the process at the rank that gave this weight: pd_rank_saved.process */
    double weight;    /* the weight: a number of examples */
} pd_contribution;

/* Returns whether the rank's gradient lies in memory of its own. */
static inline bool pd_contribution_is_there(const pd_contribution *given)
{
    return given->state == PD_CONTRIBUTION_HELD || given->state == PD_CONTRIBUTION_SPILLED;
}

/* The queue that a chunk is in: a member of pd_chunk_queues (step/steps.h); NOWHERE: in none. */
typedef enum pd_chunk_list { PD_CHUNK_NOWHERE, PD_CHUNK_WAITING, PD_CHUNK_READY } pd_chunk_list;

/* One chunk of a parameter, with what the ranks have contributed to it in the present round. */
typedef struct pd_chunk {
    struct pd_chunk *prev, *next; /* links in the queue `list` */
    struct pd_param *param;
    pd_contribution *contributions; /* one for each rank */
    int64_t first, n;               /* first element of the chunk, and its number of elements */
    /* number of ranks that have contributed to the chunk, have reported no gradient, or have no element of the chunk */
    uint32_t came;
    /* Each of the ranks 0 to prefix - 1 has contributed to the chunk, has reported no gradient, or has no element of
     * the chunk. So their contributions can be summed, in rank order. */
    uint32_t prefix;
    uint32_t summed; /* the sum has the contributions of the ranks 0 to summed - 1 */
    /* number of elements of the chunk, from its first one on, whose median or trimmed mean is computed */
    int64_t collected;
    uint64_t seen; /* number of the last frame that brought elements of this chunk (pd_job_counts.frames) */
    uint8_t list;  /* queue that the chunk is in (pd_chunk_list) */
} pd_chunk;

/* The round of one parameter that collects contributions to its next step. It is reset when that step is closed. */
typedef struct pd_round {
    const pd_rank_set *expected; /* the ranks that the round waits for; it may change while the round is open */
    /* the chunks of the parameter, in order; their contributions lie in one array, chunk after chunk */
    pd_chunk *chunks;
    pd_ranges ranges;
    int64_t elements, chunk_elements;
    uint32_t n_chunks;
    uint32_t missing;  /* number of chunks that wait for some rank; not used if `together` */
    uint32_t unsummed; /* number of chunks whose sum (or other aggregate) is not finished */
    bool open;         /* the round is open: its first contribution has come */
    bool together;     /* the parameter's fragment fixes which ranks count; false: all do */
    bool fixed;        /* if `together`: the ranks that count are fixed, so every chunk is complete */
    /* if `fixed`: the ranks that count, and what each weight is multiplied by because a contribution is old, by rank;
     * borrowed from the fragment. `damped` NULL: weights stay as they are */
    const pd_counted *set;
    const double *damped;
    bool finite; /* no finished sum of the round has an infinity or NaN */
    /* largest magnitude of the aggregate, as far as it is finished (pd_largest); clipping scales it, too */
    float largest;
    /* some element of a finished sum has no contribution that takes part in it: in a weighted mean all weights are 0,
     * or no rank has given a gradient */
    bool weightless;
    uint64_t started_ns; /* time at which the round's first contribution came */
    uint64_t last_ns;    /* time at which the last contribution so far came */
} pd_round;

/* The memory that a round uses, and the lengths of its arrays. The arrays are borrowed and zeroed. `chunks` has one
 * entry for each chunk_elements elements (the last chunk may be shorter), `contributions` one for each chunk and rank,
 * `ranges` one for each rank. `ranges` is NULL if every rank contributes every element. */
typedef struct pd_round_layout {
    const pd_rank_set *expected;
    bool together;
    struct pd_param *param;
    int64_t elements, chunk_elements;
    pd_chunk *chunks;
    pd_contribution *contributions;
    pd_rank_range *ranges;
} pd_round_layout;

/* Makes an empty round. Leaves the contributions as the caller has zeroed them, since a job may have many millions. */
void pd_round_init(pd_round *round, const pd_round_layout *layout);
/* Empties the round for the next step. The caller must have released all contributions in state HELD. If the ranks that
 * count were fixed, the contributions of other ranks stay, for the next step: pd_round_has_any tells whether there are
 * any. */
void pd_round_reset(pd_round *round);
bool pd_round_has_any(const pd_round *round);

static inline uint32_t pd_round_ranks(const pd_round *round)
{
    return round->expected->ranks;
}
/* Returns whether the rank's contributions count in the round, as far as that is known. */
static inline bool pd_round_counts(const pd_round *round, uint32_t rank)
{
    if (PD_MUTANT(set_per_parameter) && round->fixed && round->n_chunks == 1 &&
        round->chunks[0].contributions[rank].state == PD_CONTRIBUTION_HELD)
        return true;
    return round->set == NULL || pd_counted_has(round->set, rank);
}

/* Set or forget the range of elements that a rank contributes of a ranged parameter. Call them only before the rank's
 * first contribution. If the round is open, setting a range may complete chunks that need not wait for the rank any
 * more. */
void pd_round_set_range(pd_round *round, uint32_t rank, int64_t start, int64_t end);
void pd_round_unset_range(pd_round *round, uint32_t rank);
/* Returns the elements [start, end) of the parameter that the rank contributes: all, as long as its range is not
 * known. */
pd_rank_range pd_round_range(const pd_round *round, uint32_t rank);
/* Returns the elements of the chunk that the rank contributes; the result's `n` is 0 if there are none. */
pd_range pd_round_chunk_range(const pd_round *round, const pd_chunk *chunk, uint32_t rank);
/* Returns the number of chunks into which a parameter of `elements` elements is cut. */
static inline uint64_t pd_count_chunks(int64_t elements, uint64_t chunk_elements)
{
    return ((uint64_t)elements + chunk_elements - 1) / chunk_elements;
}
/* Returns the number of chunks of which the rank contributes elements. */
uint32_t pd_round_count_chunks(const pd_round *round, uint32_t rank);
/* Returns the number of ranks that have declared their range and contribute elements of the chunk. */
uint32_t pd_round_count_ranks(const pd_round *round, const pd_chunk *chunk);

static inline pd_contribution_state pd_chunk_state(const pd_chunk *chunk, uint32_t rank)
{
    return (pd_contribution_state)chunk->contributions[rank].state;
}
/* Return whether the rank has reported that it has no gradient of the parameter in this round (pd_round_is_absent),
 * and whether it has given a gradient of at least one chunk (pd_round_has_given). */
bool pd_round_is_absent(const pd_round *round, uint32_t rank);
bool pd_round_has_given(const pd_round *round, uint32_t rank);

/* Stores what a rank has given to a chunk: `given` is in state HELD, or ABSENT with `frame` NULL. The rank's
 * contribution must be EMPTY before. Returns whether the chunk became complete. */
bool pd_round_add(pd_round *round, pd_chunk *chunk, uint32_t rank, pd_contribution given);
/* Sets a rank's contribution back to EMPTY. The caller has released its memory. */
void pd_round_take_back(pd_round *round, pd_chunk *chunk, uint32_t rank);

/* Return whether all contributions have come that the chunk (pd_chunk_is_complete) or the whole round
 * (pd_round_is_complete) waits for. */
static inline bool pd_chunk_is_complete(const pd_round *round, const pd_chunk *chunk)
{
    return round->together ? round->fixed : chunk->came == round->expected->ranks;
}
static inline bool pd_round_is_complete(const pd_round *round)
{
    return round->together ? round->fixed : round->missing == 0;
}
/* Returns whether the sum over the ranks 0 to upto - 1 is the whole sum of a chunk, so that it can be divided. */
static inline bool pd_chunk_ends_at(const pd_round *round, uint32_t upto)
{
    return upto == pd_round_ranks(round);
}

/* Returns the rank's contribution to the first chunk of which it has elements. NULL: it contributes no element of the
 * parameter. */
pd_contribution *pd_round_first_contribution(pd_round *round, uint32_t rank);

/* Writes the numbers of the ranks that the open round still waits for, as "1,3". The text is empty if the round waits
 * for none or is not open, and ends in "..." if `size` is too short. Returns `text`. */
char *pd_round_missing(const pd_round *round, char *text, size_t size);
/* pd_round_is_silent returns whether the rank has sent neither a gradient of the parameter in this round, nor a report
 * that it has none. A rank that contributes no element of the parameter is never silent. pd_round_was_refused returns
 * whether a push of the rank to this round was refused and not sent again. */
bool pd_round_is_silent(const pd_round *round, uint32_t rank);
bool pd_round_was_refused(const pd_round *round, uint32_t rank);
/* Returns whether the round waits for the rank: the rank is expected, and has not sent some chunk of its elements. */
bool pd_round_misses(const pd_round *round, uint32_t rank);

#endif
