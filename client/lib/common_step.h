/* common_step.h - the step to which all shards of a cluster can go back (common_step.c). */
#ifndef PD_COMMON_STEP_H
#define PD_COMMON_STEP_H

#include "core.h"

/* The step of a shard, and the steps to which it can go back, as its last answer to Declare told. */
typedef struct pd_shard_state {
    uint64_t step;    /* lowest step of its parameters; without those of model state, if it has others */
    uint64_t top;     /* highest step of the same parameters: more than `step` in the midst of a step */
    bool free;        /* it has model state alone: it waits for no verdict, and may be a step ahead */
    uint64_t life;    /* HelloReply.life */
    uint64_t tenure;  /* HelloReply.tenure */
    uint64_t durable; /* its durable step */
    uint64_t kept[PD_KEPT_STEPS];
    size_t n_kept;
    bool replays; /* its WAL has the steps from `first` to `last`; last 0: to `step` */
    uint64_t first, last;
    bool fresh; /* it has taken no step since it has read the job from the disk */
} pd_shard_state;

/* Returns whether the shard can go back to this step. */
bool pd_shard_state_goes_to(const pd_shard_state *state, uint64_t step);
/* Returns whether the shard is at this step, or can go back to it. */
bool pd_shard_state_reaches(const pd_shard_state *state, uint64_t step);
/* Returns whether the shard is asked to go back before others are: its durable step is the lowest. */
bool pd_shard_goes_first(const pd_shard_state *states, size_t n, size_t number);
/* Returns whether the shards are at steps that differ by no more than `slack`. */
bool pd_shards_are_even(const pd_shard_state *states, size_t n, uint64_t slack);
/* Finds the newest step to which all `n` shards can go, and which none has yet to reach. Returns false if there is
 * none. */
bool pd_common_step(const pd_shard_state *states, size_t n, uint64_t *step);
/* Returns by how many steps the shards may differ when a new process joins. 1: a process that died between its pushes
 * to two shards leaves them one step apart, and the pushes of the new process bring them together. 0: the shards take
 * their steps together (`settles`), or a shard that is behind has just read the job from the disk, and may have lost
 * the step. */
uint64_t pd_shards_slack(const pd_shard_state *states, size_t n, bool settles);

#endif
