/* tally.h - the bytes of a tally: what one shard of a cluster knows of a step and the other shards need. Pure
 * functions.
 *
 * A step of a job on several shards is decided in phases. In each phase every shard makes a tally. Workers carry the
 * tallies: they ask all shards for theirs, and give all of them, in the order of the shards, to each shard (settle.h).
 *
 * A tally is little-endian and has no alignment:
 *
 * bytes                     content
 * 1                         version of this format: 1
 * 1                         kind (pd_tally_kind)
 * 1                         flags: 1 skipped, 2 seen, 4 a square is infinite, 8 a square is NaN
 * 1                         0
 * 2, 2                      number of the shard; number of shards
 * 4, 8                      phase; step
 * 1, 1                      first word of the sum of squares that is not 0; number of words from there on
 * 2, 2, 2, 4                number of rules; of refusals; of bytes of the reason; of cut parameters
 * 8 each                    words of the sum, the least significant first
 * 1 for 8 rules             bit r: a parameter of rule r steps
 * 4 each                    for each rule: largest absolute element of its gradients, as float32
 * 4, 4, 4, 1 each           cut parameters (pd_tally_cut), ascending
 * 2, 4, 8 each              refusals (pd_tally_refusal), ascending by rule
 * 1 each                    reason, as printable UTF-8
 *
 * The format has one form for each content: what pd_tally_open takes, pd_tally_write writes with the same bytes. */
#ifndef PD_TALLY_H
#define PD_TALLY_H

#include "exact_sum.h"
#include "paramd/error.h"

enum {
    PD_SHARDS_MOST = 64,       /* most shards of a cluster */
    PD_TALLY_RULES_MOST = 512, /* most rules of a job, with the built-in one */
    PD_TALLY_REASON = 300,     /* most bytes of a reason */
    PD_TALLY_HEAD = 32,        /* bytes before the lists */
    PD_TALLY_CUT = 13,         /* bytes of a cut parameter */
    PD_TALLY_REFUSAL = 14      /* bytes of a refusal */
};

typedef enum pd_tally_kind {
    PD_TALLY_OUTCOMES, /* how the rounds have ended, and the sum of squares of the first scope, if there is one */
    PD_TALLY_NORM,     /* the sum of squares of a further scope */
    PD_TALLY_REFUSALS  /* which optimizers have refused their steps */
} pd_tally_kind;

/* A cut parameter of which some portion on this shard has no whole gradient, or makes the step be skipped. */
typedef struct pd_tally_cut {
    uint32_t declared; /* index of the parameter in the declaration */
    uint32_t portions; /* number of portions of the parameter, on all shards */
    uint32_t missing;  /* number of portions on this shard that have no whole gradient */
    bool skipped;      /* a portion on this shard has a gradient that makes the step be skipped */
} pd_tally_cut;

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
    bool skipped;        /* OUTCOMES: the gradient of a parameter that is not cut makes all parameters skip the step */
    bool seen;           /* some parameter of the scope has a gradient */
    pd_exact_sum sum;    /* of the squares of the scope's gradients */
    uint16_t n_rules;    /* number of rules; 0 unless OUTCOMES */
    uint16_t n_refusals; /* 0 unless REFUSALS */
    uint32_t n_cuts;     /* 0 unless OUTCOMES */
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
void pd_tally_put_cut(uint8_t *cuts, size_t i, pd_tally_cut cut);
pd_tally_cut pd_tally_cut_at(const uint8_t *cuts, size_t i);
void pd_tally_put_refusal(uint8_t *refusals, size_t i, pd_tally_refusal refusal);
pd_tally_refusal pd_tally_refusal_at(const uint8_t *refusals, size_t i);
void pd_tally_put_largest(uint8_t *largest, size_t rule, float value);
float pd_tally_largest_at(const uint8_t *largest, size_t rule);

/* Returns the bytes of n_rules bits. */
static inline size_t pd_tally_bits(size_t n_rules)
{
    return (n_rules + 7) / 8;
}

#endif
