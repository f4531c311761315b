/* shard_rigs.h - one job on several shards, and the same job in one store beside it, for tests that compare them.
 *
 * The model has the vectors p0, p1 ...; p1 may be cut into two portions. Each shard is a rig of its own. The test plays
 * the worker that carries tallies from shard to shard. */
#ifndef SHARD_RIGS_H
#define SHARD_RIGS_H

#include "rig.h"
#include "param.h"

enum { SHARD_RIGS = 3, SHARD_PARAMS = 6, SHARD_PORTIONS = SHARD_PARAMS + 1, SHARD_CUT = 1 };

/* Sizes of the vectors. */
extern const int64_t shard_sizes[SHARD_PARAMS];

/* A portion of a vector, and the shard that has it. */
typedef struct shard_portion {
    uint32_t declared, shard;
    int64_t first, count;
    uint32_t index; /* of its parameter on the shard */
} shard_portion;

typedef struct shard_verdict shard_verdict;

typedef struct shard_rigs {
    uint32_t n, world; /* number of shards; number of ranks */
    rig *shard[SHARD_RIGS], *whole;
    shard_portion portion[SHARD_PORTIONS];
    uint32_t n_portions;
    uint64_t ask_step[SHARD_RIGS]; /* what the carrier asks each shard for next */
    uint32_t ask_phase[SHARD_RIGS];
    bool asks[SHARD_RIGS];           /* the shard has been asked for that */
    uint64_t seen[SHARD_RIGS];       /* number of its tallies that the carrier has taken */
    uint64_t verdicts;               /* number of verdicts that were carried */
    struct shard_verdict *log;       /* all of them, in order */
    uint32_t last_phase;             /* phase of the last one */
    pd_tally_view tally[SHARD_RIGS]; /* tallies of the next verdict; NULL: not there yet. In `bytes` */
    uint8_t bytes[SHARD_RIGS][4096];
} shard_rigs;

/* A verdict that was carried. */
struct shard_verdict {
    uint64_t step;
    uint32_t phase;
    pd_tally_view tally[SHARD_RIGS];
    uint8_t bytes[SHARD_RIGS][1024];
};

/* Starts the job on n shards, and on one store, with these options and rules. `config` is that of all stores. Vector p1
 * is cut, and the stores are told so by hand. */
void shard_rigs_start(shard_rigs *s, uint32_t n, uint32_t world, const pd_store_config *config, const char *options,
                      const char *rules);
/* Starts the same job by Declares of the whole model, as workers do. No vector is cut. */
void shard_rigs_declare(shard_rigs *s, uint32_t n, uint32_t world, const pd_store_config *config, const char *options,
                        const char *rules);
/* Lets all ranks join a shard that was started again, and declare the whole model. */
void shard_rigs_join(shard_rigs *s, uint32_t shard, const char *options, const char *rules);
void shard_rigs_free(shard_rigs *s);

/* Pushes the same gradients of a rank to the job on several shards and to the one on one store: of all vectors, `scale`
 * times numbers between -1 and 1. Bit p of `absent`: the rank has no gradient of vector p. */
void shard_rigs_push(shard_rigs *s, uint32_t rank, uint64_t step, float scale, unsigned absent);
/* Pushes one vector. If `at` is not negative, element `at` of the gradient becomes `value`. */
void shard_rigs_push_one(shard_rigs *s, uint32_t rank, uint64_t step, uint32_t param, float scale, int64_t at,
                         float value);
/* Pushes the same gradients as shard_rigs_push to one shard alone. */
void shard_rigs_push_again(shard_rigs *s, uint32_t shard, uint32_t rank, uint64_t step, float scale, unsigned absent);
/* Reports that the rank has no gradient of a portion of the cut vector, on the shards alone. */
void shard_rigs_push_cut_half(shard_rigs *s, uint32_t rank, uint64_t step, uint32_t half);

/* Lets all stores work, and carries tallies until nothing changes. */
void shard_rigs_settle(shard_rigs *s);
/* Asserts that all vectors have the same weights, steps and outcomes on the shards as in the one store. */
void shard_rigs_assert_same(shard_rigs *s, uint64_t step);

/* Returns the parameter of a portion inside its store. */
const pd_param *shard_rigs_param(const shard_rigs *s, uint32_t portion);

#endif
