/* foe_job.h - a hostile client's job: its Hello, a large set of parameters, and the frames that touch all of them. */
#ifndef FOE_JOB_H
#define FOE_JOB_H

#include "foe.h"

enum { FOE_NAME_BYTES = 256, FOE_IN_A_FRAME = 1024, FOE_MOST_RULES = 256, FOE_MOST_OPTIONS = 64 };

/* What a Hello names. Fields that are 0 or NULL are not sent; `rules` has "* sgd lr=0.1" at least. */
typedef struct foe_hello {
    const char *job; /* "": an operator */
    uint32_t rank, world;
    uint64_t nonce;
    uint32_t shards;            /* the daemon is shard 0 of so many */
    const char *const *rules;   /* NULL at the end */
    const char *const *options; /* NAME, VALUE, NAME, VALUE ... NULL */
    bool shares, anew;
} foe_hello;

foe_frame foe_pack_hello(const foe_hello *hello);
/* Connects, and sends Hello. Returns whether the daemon welcomes the client. */
bool foe_join(foe *f, foe_side *side, const foe_hello *hello);

/* A set of `n` parameters of `elements` elements each. Their names have 256 bytes, which differ in the last ones. */
typedef struct foe_set {
    uint32_t n;
    uint64_t elements;
    foe_frame *declares; /* the requests that declare them */
    size_t n_declares;
} foe_set;

/* Writes the name of parameter i. */
void foe_name(char out[FOE_NAME_BYTES + 1], uint32_t i);
void foe_set_make(foe_set *set, uint32_t n, uint64_t elements);
void foe_set_free(foe_set *set);
/* Declares the set. Returns the code of the answer to the last request. */
int foe_declare(foe *f, const foe_set *set);
/* Joins, declares, and as rank 0 sends initial weights. Returns whether all of that was accepted. */
bool foe_begin(foe *f, foe_side *side, const foe_hello *hello, const foe_set *set);

/* Makes the frames that touch all parameters of a set, 1,024 of them in each: Initialise, a Push or PushPull for a step
 * (`absent`: without gradients; `last`: the last frame ends the step), or a Pull. Returns their number. */
size_t foe_init_frames(foe_frame **out, const foe_set *set);
size_t foe_push_frames(foe_frame **out, const foe_set *set, unsigned method, uint64_t step, bool absent, bool last);
size_t foe_pull_frames(foe_frame **out, const foe_set *set, uint64_t min_step);
/* A Push that only ends a step. */
foe_frame foe_pack_last(uint64_t step);

#endif
