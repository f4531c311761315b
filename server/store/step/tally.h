/* tally.h - the bytes of a tally: what one shard knows of a step and the other shards of the job need. Pure functions.
 *
 * A step of a job on several shards is decided in phases. In each phase every shard makes a tally. Workers carry the
 * tallies: they ask all shards for theirs, and give all of them, in the order of the shards, to each shard (settle.h).
 *
 * A tally is little-endian and has no alignment:
 *
 *     bytes                     content
 *     1                         version of this format: 1
 *     1                         kind (pd_tally_kind)
 *     1                         flags: 1 skipped, 2 seen, 4 a square is infinite, 8 a square is NaN
 *     1                         0
 *     2, 2                      number of the shard; number of shards
 *     4, 8                      phase; step
 *     1, 1                      first word of the sum of squares that is not 0; number of words from there on
 *     2, 2, 2                   number of rules; of largest elements; of refusals
 *     2, 2                      number of bytes of the reason; of cut parameters, on all shards
 *     8 each                    words of the sum, the least significant first
 *     1 for 8 rules             bit r: a parameter of rule r steps
 *     2, 4 each                 largest absolute elements of gradients (pd_tally_largest), ascending by rule
 *     3 for 8 cut parameters    three sets of bits (pd_tally_cuts)
 *     2, 4, 8 each              refusals (pd_tally_refusal), ascending by rule
 *     1 each                    reason, as printable UTF-8
 *
 * The format has one form for each content: what pd_tally_open takes, pd_tally_write writes with the same bytes. */
#ifndef PD_TALLY_H
#define PD_TALLY_H

#include "exact_sum.h"
#include "paramd/error.h"

enum {
    PD_TALLY_RULES_MOST = 512, /* most rules of a job, with the built-in one */
    PD_TALLY_REASON = 300,     /* most bytes of a reason */
    PD_TALLY_HEAD = 32,        /* bytes before the lists */
    PD_TALLY_LARGEST = 6,      /* bytes of a largest element */
    PD_TALLY_CUT_SETS = 3,     /* number of sets of cut parameters */
    PD_TALLY_REFUSAL = 14      /* bytes of a refusal */
};

typedef enum pd_tally_kind {
    PD_TALLY_OUTCOMES, /* how the rounds have ended, and the sum of squares of the first scope, if there is one */
    PD_TALLY_NORM,     /* the sum of squares of a further scope */
    PD_TALLY_REFUSALS  /* which optimizers have refused their steps */
} pd_tally_kind;

/* The largest absolute element of the gradients of a rule's parameters on this shard, if their optimizer has a limit
 * for it. More than 0. */
typedef struct pd_tally_largest {
    uint16_t rule;
    float value;
} pd_tally_largest;

/* The sets of cut parameters, which are numbered in the order of the declaration. */
typedef enum pd_tally_cuts {
    PD_CUTS_HAVE, /* some portion on this shard has a whole gradient */
    PD_CUTS_LACK, /* some portion on this shard has none */
    PD_CUTS_SKIP  /* some portion on this shard has a whole gradient, and makes all parameters skip the step */
} pd_tally_cuts;

/* The first parameter of a rule, in the order of the declaration, whose optimizer refuses the step on this shard. */
typedef struct pd_tally_refusal {
    uint16_t rule;
    uint32_t declared; /* index of the parameter in the declaration */
    uint64_t origin;   /* first element of the portion in its parameter */
} pd_tally_refusal;

/* A tally. The lists are borrowed: from the caller of pd_tally_write, or from the bytes that pd_tally_open has read. */
typedef struct pd_tally {
    uint64_t step;
    uint32_t phase;
    uint16_t shard, shards;
    pd_tally_kind kind;
    bool skipped;     /* OUTCOMES: the gradient of a parameter that is not cut makes all parameters skip the step */
    bool seen;        /* some parameter of the scope has a gradient */
    pd_exact_sum sum; /* of the squares of the scope's gradients */
    uint16_t n_rules, n_largest, n_cuts; /* 0 unless OUTCOMES. n_cuts: number of cut parameters of the declaration */
    uint16_t n_refusals;                 /* 0 unless REFUSALS */
    uint16_t reason_bytes;
    const uint8_t *stepping, *largest, *cuts, *refusals;
    const char *reason; /* why the step is skipped or refused; not terminated by 0 */
} pd_tally;

/* Returns the number of bytes that pd_tally_write writes. */
size_t pd_tally_bytes(const pd_tally *tally);
/* Writes a tally to `out`, which has room for pd_tally_bytes. Returns the number of bytes. */
size_t pd_tally_write(const pd_tally *tally, uint8_t *out);
/* Reads a tally of n bytes. PD_INVALID_ARGUMENT: the bytes are no tally. */
int pd_tally_open(pd_tally *out, const uint8_t *at, size_t n, pd_error *err);

/* Write and read an entry of a list. */
void pd_tally_put_largest(uint8_t *list, size_t i, pd_tally_largest largest);
pd_tally_largest pd_tally_largest_at(const uint8_t *list, size_t i);
void pd_tally_put_refusal(uint8_t *refusals, size_t i, pd_tally_refusal refusal);
pd_tally_refusal pd_tally_refusal_at(const uint8_t *refusals, size_t i);

/* Returns the bytes of n bits. */
static inline size_t pd_tally_bits(size_t n)
{
    return (n + 7) / 8;
}

static inline bool pd_tally_has_bit(const uint8_t *bits, size_t i)
{
    return (bits[i / 8] >> i % 8 & 1) != 0;
}

static inline void pd_tally_set_bit(uint8_t *bits, size_t i)
{
    bits[i / 8] |= (uint8_t)(1 << i % 8);
}

/* Returns one of the sets of a tally's cut parameters. */
static inline const uint8_t *pd_tally_cut_set(const uint8_t *cuts, size_t n_cuts, pd_tally_cuts set)
{
    return cuts + set * pd_tally_bits(n_cuts);
}

#endif
