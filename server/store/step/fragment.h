/* fragment.h - a fragment: parameters whose steps have one set of ranks. It decides, once for each step, which ranks'
 * contributions count in it.
 *
 * Step thread. All parameters of a job are in fragment 0. If the sets of the job are not open (pd_set_rule.open), every
 * rank counts in every step, rounds are complete by themselves, and a fragment only says so. Otherwise nothing of a step
 * is summed before its set is fixed:
 *
 *     open   the first contribution to a step opens it: the ranks that are members then are expected
 *     whole  a rank is whole when each chunk that it owes has come, or was reported absent. A group of ranks (a unit)
 *            is whole when all its ranks are
 *     fix    when all expected units are whole; or `grace` after a quorum of them was. All whole ranks count then.
 *            Contributions of other ranks are kept for the next step if they will not be too old then; the rank is late
 *            otherwise, and its memory is released before it is told so
 *     close  all parameters take the step, each as if it were in a job of its own
 *
 * A rank has the contributions of one push at a time: that of step t, which counts in a step u >= t with age u - t. No
 * set is fixed while parameters still take the step before, since no rank can be whole then.
 *
 * After a restart of the daemon, sets that were decided before are repeated (wal.h): each is fixed as soon as its ranks
 * are whole. */
#ifndef PD_FRAGMENT_H
#define PD_FRAGMENT_H

#include "set_rule.h"
#include "steps.h"

/* What an image keeps of a rank in a fragment. */
typedef struct pd_fragment_rank_saved {
    uint64_t last;    /* step of the rank's last push that counted; 0: none has */
    uint64_t counted; /* the step in which it counted */
} pd_fragment_rank_saved;

/* For operators: what has become of the pushes of a rank, since the server started. */
typedef struct pd_fragment_counts {
    uint64_t counted, late; /* number of steps in which the rank counted; number of its pushes that were too late */
    uint64_t ages;          /* sum of the ages of those that counted */
} pd_fragment_counts;

typedef struct pd_fragment_rank {
    pd_fragment_rank_saved saved;
    pd_fragment_rank_saved before; /* `saved` as it was before the set of step `fixed` */
    uint64_t step;        /* step of the push that the rank's contributions belong to; 0: it has given nothing */
    uint32_t missing;     /* if step > 0: number of chunks of this push that have not come */
    uint32_t owed;        /* number of chunks of which the rank has elements; UINT32_MAX until it has declared them */
    uint32_t unit;        /* lowest rank of the group that the rank belongs to: the rank itself if it has no group */
    uint64_t whole_ns;    /* time at which the rank became whole; 0: it is not */
    uint64_t patience_ns; /* how long the rank can do without the answer to its push */
    uint64_t next;        /* step of the rank's next push, as far as it follows from the last answer */
    bool leaver; /* the rank was removed when its unit was whole: it still counts in the step that is collected */
    pd_fragment_counts counts;
} pd_fragment_rank;

/* How far the step is that a fragment collects. */
typedef enum pd_fragment_state {
    PD_FRAGMENT_IDLE, /* no rank has contributed */
    PD_FRAGMENT_OPEN, /* it waits for a quorum */
    PD_FRAGMENT_GRACE /* a quorum is whole, and the step waits for others until `deadline_ns` */
} pd_fragment_state;

enum { PD_MAX_FRAGMENTS = 1 }; /* most fragments of a job */

typedef struct pd_fragment {
    uint32_t number; /* its index in pd_steps.fragments */
    uint32_t n_params;   /* number of its parameters */
    uint64_t fixed;      /* the last step whose set is fixed; the step that is collected is the next one */
    uint32_t n_closed;   /* number of parameters that have closed step `fixed` */
    pd_counted *set;     /* the set of step `fixed`, until all parameters have closed it; then NULL */
    pd_counted *next;    /* memory for the next set; NULL: none is allocated */
    double *damped;      /* by rank: factor of its weight in step `fixed` */
    bool damps;          /* some factor is not 1 */
    pd_rank_set expected; /* ranks that the step that is collected waits for; all ranks if the sets are not open */
    pd_fragment_state state;
    bool look;            /* it must be looked whether a set can be fixed */
    uint64_t opened_ns;   /* time at which the step was opened; 0: it is not */
    uint64_t deadline_ns; /* in state GRACE: time at which the set is fixed */
    uint64_t work_ns;     /* moving average of the time from fixing a set to the last new weights */
    uint64_t fixed_ns;    /* time at which the last set was fixed */
    uint32_t hasty;       /* in state GRACE with grace = auto: the rank whose patience ends first */
    pd_fragment_rank *ranks; /* by rank */
} pd_fragment;

/* Makes the fragments of a job whose parameters are known, and whose slots, rule and members are set (pd_steps). Sets
 * pd_param.fragment of each parameter. PD_NO_MEMORY: the caller calls pd_fragments_free. */
int pd_fragments_make(pd_steps *steps);
void pd_fragments_free(pd_steps *steps);
/* Returns the bytes that fragments take in memory, for a job with so many slots. */
uint64_t pd_fragments_bytes(uint32_t ranks);
/* Sets the step of a fragment from those of its parameters, after a job was read from an image or from records. No
 * round may be open. */
void pd_fragments_resume(pd_steps *steps);

/* ---- contributions ---- */

/* Says what becomes of a push of the rank for step `step`. *decided becomes the step that pd_effect.u.filed names. */
pd_filed pd_fragment_judge(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank, uint64_t step,
                           uint64_t *decided);
/* Returns what happens to a contribution of the rank to step `step` of the parameter. */
pd_admit pd_param_admit(const pd_steps *steps, const pd_param *param, uint32_t rank, uint64_t step);
/* Notes that the contribution of the rank's push for step `step` to one more chunk of the parameter has come, or that
 * the rank has none. Call it only if the sets are open. */
void pd_fragment_came(pd_steps *steps, pd_param *param, uint32_t rank, uint64_t step, uint64_t now_ns);
/* Notes the patience of the rank's push. */
void pd_fragment_patience(pd_fragment *fragment, uint32_t rank, uint64_t patience_ns);

/* ---- members ---- */

/* Notes that the elements which the rank contributes are known: it has declared its parameters. */
void pd_fragments_declared(pd_steps *steps, uint32_t rank);
/* Makes the rank a member: steps that are opened from now on wait for it; an open one takes it if it is whole in time.
 * `unit`: lowest rank of its group. Contributions of a rank that is not a member do not count. */
void pd_fragments_join(pd_steps *steps, uint32_t rank, uint32_t unit);
/* Sets the unit of a rank: lowest rank of its group. */
void pd_fragments_set_unit(pd_steps *steps, uint32_t rank, uint32_t unit);
/* Removes all ranks of a unit: they are members no more, and no step waits for them. Where all of them are whole, they
 * still count in the step that is collected if `stay` is true. Otherwise their contributions are released. */
void pd_fragments_remove(pd_steps *steps, uint32_t unit, bool stay);
/* Returns whether the rank has given something to a step that is not closed. */
bool pd_fragments_need(const pd_steps *steps, uint32_t rank);

/* ---- sets ---- */

/* Fixes the sets that can be fixed. PD_NO_MEMORY: it must be called again later. */
int pd_fragments_look(pd_steps *steps, uint64_t now_ns);
bool pd_fragments_have_work(const pd_steps *steps);
/* Returns the time at which pd_fragments_tick must be called; UINT64_MAX: at none. */
uint64_t pd_fragments_next(const pd_steps *steps);
void pd_fragments_tick(pd_steps *steps, uint64_t now_ns);
/* Notes that the parameter has closed step param->saved.step and that its round is empty. */
void pd_fragment_closed(pd_steps *steps, pd_param *param, uint64_t now_ns);

/* ---- for lists ---- */

/* Returns how many units are expected, and how many of them are whole. */
uint32_t pd_fragment_expected(const pd_fragment *fragment, uint32_t *whole);
/* Returns the number of whole units that a set needs now. */
uint32_t pd_fragment_quorum(const pd_steps *steps, const pd_fragment *fragment);
/* Writes the ranks that the step waits for, as "1,3", cut with "..." if `size` is too short. Returns `text`. */
char *pd_fragment_missing(const pd_fragment *fragment, char *text, size_t size);
static inline bool pd_fragment_is_whole(const pd_fragment *fragment, uint32_t rank)
{
    return fragment->ranks[rank].step > 0 && fragment->ranks[rank].missing == 0;
}

#endif
