/* outer.h - what a pd_diloco (paramd/diloco.h) consists of, and its schedule: which fragment is due after which inner
 * step. One thread at a time uses it; it uses its client by the public calls. */
#ifndef PD_OUTER_H
#define PD_OUTER_H

#include "handle.h"
#include "paramd/diloco.h"

/* What a pd_diloco knows of a parameter. */
typedef struct pd_outer_param {
    size_t n; /* number of elements that this rank has */
    pd_dtype push, pull;
    bool model_state;
    uint32_t fragment;
    float *global; /* the global weights, n elements of pd_diloco.globals; NULL: n is 0 */
} pd_outer_param;

/* What a pd_diloco knows of a fragment. */
typedef struct pd_outer_fragment {
    size_t first, n; /* its parameters are order[first] to order[first + n - 1] */
    uint64_t step;   /* number of its closed rounds, as of the last answer that was taken */
    /* Tokens and inner steps since its answer was last taken, or since the last one that was not late. */
    double tokens;
    uint64_t steps;
    bool carries; /* its next contribution has the data of the last one, which was late */
} pd_outer_fragment;

/* Memory of the fragment that is under way, which the client borrows until the ticket is done: one block. */
typedef struct pd_outer_flight {
    pd_kept kept;   /* makes the client's handle the owner, if the pd_diloco is freed before the ticket is done */
    size_t n;       /* number of items */
    pd_item *items; /* the fragment's parameters; room for those of the largest fragment */
    pd_item_count *counts;
    uint8_t *sent, *received; /* contributions; weights in pull_dtype; each item's begins at a multiple of 64 bytes */
    pd_push_options push;     /* options of the push */
    bool lost;                /* result of the push: pd_push_options.lost */
} pd_outer_flight;

struct pd_diloco {
    pd_client *client;
    pd_diloco_options options;
    size_t n_params, n_fragments;
    pd_outer_param *params;
    pd_outer_fragment *fragments;
    size_t *order;  /* indices of all parameters, by fragment */
    float *globals; /* the global weights of all parameters */

    pd_outer_flight *flight;
    int64_t flying;      /* the fragment that is under way; -1: none */
    pd_ticket_id ticket; /* of its push; 0: the push has failed and must be sent again */
    size_t settled;      /* items before this one have their answers, and are not sent again */
    bool restarting;     /* pd_diloco_resume begins the job anew, and does not go back to a checkpoint */
    bool apart;          /* fragments lie on several shards, which lose steps each by itself: pd_outer_realign */
    void **buffers;      /* of each parameter, through which it receives the weights; NULL: it is not under way */

    /* The place in the schedule. inner_steps: in all. at: in the present cycle. every: inner steps of the cycle. */
    uint64_t inner_steps, at, every;
    /* mark: when the last call ended, in seconds; 0: none has. busy: seconds of the present cycle between calls.
     * speed: inner steps a second; 0: not known yet. */
    double mark, busy, speed;

    uint64_t pushes, counted, late, age; /* see pd_diloco_status */
    uint32_t counted_ranks;
    unsigned late_in_row;
};

/* Begins a stretch of the program's own work, at the end of a call; or ends it, at the beginning of the next call, and
 * adds it to the busy time of the cycle. */
void pd_outer_leave(pd_diloco *d);
void pd_outer_enter(pd_diloco *d);
/* Takes the steps of the fragments from the client, and sets the place by them: the next fragment is the first of those
 * that are behind. */
void pd_outer_place(pd_diloco *d);
/* Lets the fragment be sent next that is the first of those furthest behind, where `apart` is set. All workers send
 * their fragments in this order, also those that begin in the middle: else they would wait for each other in different
 * fragments. As long as no shard has lost steps, it is the order of the schedule. */
void pd_outer_realign(pd_diloco *d);
/* Returns the lowest step of a fragment's parameters that the client knows, among those of which this rank has elements
 * if there are any. */
uint64_t pd_outer_step(const pd_diloco *d, const pd_outer_fragment *fragment);
/* Returns this worker's inner steps per second; 0: not known yet. */
double pd_outer_speed(const pd_diloco *d);
/* Allocates d->flight for the largest fragment. Returns PD_NO_MEMORY if out of memory. */
int pd_outer_make_flight(pd_diloco *d);
/* Frees d->buffers. */
void pd_outer_free_buffers(pd_diloco *d);
/* Returns the inner steps of one fragment in the present cycle. */
static inline uint64_t pd_outer_part(const pd_diloco *d)
{
    return d->every / d->n_fragments;
}

#endif
