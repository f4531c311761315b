/* fragment_ranks.h - a fragment's records of its ranks: what each has given to the step that is collected, and what it
 * owes. Step thread. fragment.h says what a fragment is, and decides with these records. */
#ifndef PD_FRAGMENT_RANKS_H
#define PD_FRAGMENT_RANKS_H

#include "set_counts.h"
#include "set_rule.h"
#include "steps.h"

/* What an image keeps of a rank in a fragment. */
typedef struct pd_fragment_rank_saved {
    uint64_t last;    /* step of the rank's last push that counted; 0: none has */
    uint64_t counted; /* the step in which it counted */
} pd_fragment_rank_saved;

typedef struct pd_fragment_rank {
    pd_fragment_rank_saved saved;
    uint64_t step;        /* step of the push that the rank's contributions belong to; 0: it has given nothing */
    uint64_t late;        /* step of the rank's last push that came too late; 0: none did */
    uint64_t refused;     /* step of its last push of which a part was refused that could have been filed; 0: none */
    uint32_t missing;     /* if step > 0: number of chunks of this push that have not come */
    uint32_t owed;        /* number of chunks of which the rank has elements; UINT32_MAX until it has declared them */
    uint32_t unit;        /* lowest rank of the group that the rank belongs to: the rank itself if it has no group */
    bool known;           /* `unit` is what a process of the rank has said */
    uint64_t came_ns;     /* time at which the last chunk of a push has come */
    uint64_t whole_ns;    /* time at which the rank became whole; 0: it is not */
    uint32_t wants;       /* number of shares that the rank wants when it counts */
    bool gives;           /* if step > 0: some chunk of this push has come, and not only reports that there is none */
    bool carries;         /* its push has the data of its last one, which was late */
    bool revoked;         /* its push is of shares that are not leased to it any more */
    bool untold;          /* its leases have changed, and memory was short for the effect that says so */
    uint64_t patience_ns; /* how long the rank can do without the answer to its push */
    uint64_t next;        /* step of the rank's next push, as far as it follows from the last answer */
    uint64_t seen;        /* number of steps of the fragment that the rank's process had seen closed when it joined */
    uint64_t seen_before; /* the same, of the job's course, since the job was restored: job/repeats.h */
    bool leaver; /* the rank was removed when its unit was whole: it still counts in the step that is collected */
    uint32_t left_with;   /* if `leaver`: `unit` as it was then, since the rank may get another one */
    uint64_t joined;      /* pd_steps.epoch when the rank became a member; 0: it was one from the beginning */
    pd_set_counts counts; /* for operators */
} pd_fragment_rank;

/* How far the step is that a fragment collects. */
typedef enum pd_fragment_state {
    PD_FRAGMENT_IDLE, /* no rank has contributed */
    PD_FRAGMENT_OPEN, /* it waits for a quorum */
    PD_FRAGMENT_GRACE /* a quorum is whole, and the step waits for others until `deadline_ns` */
} pd_fragment_state;

enum {
    PD_MAX_FRAGMENTS = 256,     /* most fragments of a job */
    PD_PLACES = PD_WAL_MOST + 1 /* number of steps of a fragment whose place is known */
};

typedef struct pd_fragment {
    uint32_t number;    /* its index in pd_steps.fragments */
    uint32_t declared;  /* its number in the declaration; another one if other shards have some of the fragments */
    uint32_t n_params;  /* number of its parameters */
    uint32_t first;     /* index of the first of them in pd_steps.params */
    uint32_t n_stopped; /* number of them in stage PD_STOPPED */
    uint64_t fixed;     /* the last step whose set is fixed; the step that is collected is the next one */
    /* places[s % PD_PLACES]: number of step s among the fixed steps of all fragments (pd_steps.place), for the last
     * steps whose sets are fixed */
    uint64_t places[PD_PLACES];
    uint64_t durable;     /* last step that is on the disk */
    uint64_t kept;        /* step that the newest durable checkpoint has */
    uint32_t n_closed;    /* number of parameters that have closed step `fixed` */
    pd_counted *set;      /* the set of step `fixed`, until all parameters have closed it; then NULL */
    pd_counted *next;     /* memory for the next set; NULL: none is allocated */
    double *damped;       /* by rank: factor of its weight in step `fixed` */
    bool damps;           /* some factor is not 1 */
    pd_rank_set expected; /* ranks that the step that is collected waits for; all ranks if the sets are not open */
    pd_fragment_state state;
    bool look;            /* it must be looked whether a set can be fixed */
    bool empty;           /* in state GRACE: nobody who is whole has a gradient */
    uint64_t opened_ns;   /* time at which the step was opened; 0: it is not */
    uint64_t deadline_ns; /* in state GRACE: time at which the set is fixed */
    bool
        is_over; /* in state GRACE: that time is past, and the set is fixed as soon as nothing else stands against it */
    uint64_t work_ns;  /* moving average of the time from fixing a set to the last new weights */
    uint64_t fixed_ns; /* time at which the last set was fixed */
    uint64_t graces;   /* number of steps since the server started that waited for others in state GRACE */
    uint32_t hasty;    /* in state GRACE with grace = auto: the rank whose patience ends first */
    /* since the job was restored (job/repeats.h): the last step that a worker has seen closed; the first step whose set
     * was fixed by the job's rule and has not all ranks. 0: there is none */
    uint64_t seen, anew;
    uint64_t noticed; /* the last step that was logged as overdue */
    /* changing: 1 + the step whose weights are being replaced (job/replacement.h); 0: none are. n_changing: number of
     * its parameters whose new weights have all come */
    uint64_t changing;
    uint32_t n_changing;
    pd_fragment_rank *ranks; /* by rank */
} pd_fragment;

/* Returns how many different fragments the declared parameters have. */
uint32_t pd_fragments_count(const pd_param_decl *decls, size_t n);
/* Makes the fragments of a job whose parameters are known, and whose slots, rule and members are set (pd_steps).
 * decls[i] is the declaration of parameter i. Sets pd_param.fragment of each parameter. PD_NO_MEMORY: the caller calls
 * pd_fragments_free. */
int pd_fragments_make(pd_steps *steps, const pd_param_decl *decls);
void pd_fragments_free(pd_steps *steps);
/* Returns the bytes that so many fragments take in memory, for a job with so many slots. */
uint64_t pd_fragments_bytes(uint32_t ranks, uint32_t fragments);
/* Sets the step of a fragment from those of its parameters, after a job was read from an image or from records. No
 * round may be open. */
void pd_fragments_resume(pd_steps *steps);

/* Lets it be looked again whether sets can be fixed, because nothing stops the parameters any more. */
void pd_fragments_wake(pd_steps *steps);
/* Returns whether a set is fixed for a step that not all parameters have taken. */
bool pd_fragments_have_set(const pd_steps *steps);
/* Returns the highest step whose set is fixed; 0: there is none, or the sets are not open. */
uint64_t pd_fragments_fixed(const pd_steps *steps);
/* Returns the number of the last step of all fragments: the sum of the steps that they have taken or have fixed. */
uint64_t pd_fragments_place(const pd_steps *steps);
/* Returns the number of step `step` of the fragment (pd_steps.place): one of the last PD_PLACES steps whose set is
 * fixed. 0: the sets are not open. */
static inline uint64_t pd_fragment_place_of(const pd_fragment *fragment, uint64_t step)
{
    return fragment->places[step % PD_PLACES];
}
/* Returns the last step of the parameter of which workers may know: no report of it or of a step before is withheld. */
uint64_t pd_fragment_told(const pd_steps *steps, const pd_param *param);
/* Returns the lowest of these steps over all parameters. */
uint64_t pd_fragments_told(pd_steps *steps);

/* Returns the set of step `fixed`, the last one, from what an image keeps of the ranks: a reference. NULL: no rank is
 * known to have counted in it, or memory was short. */
pd_counted *pd_fragment_last_set(const pd_fragment *fragment);

/* ---- contributions ---- */

/* Says what becomes of a push of the rank for step `step`. *decided becomes the step that pd_effect.u.filed names. */
pd_filed pd_fragment_judge(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank, uint64_t step,
                           uint64_t *decided);
/* Returns whether nothing of the rank's push for step `step` is to come: it is whole, has counted, or is too late. */
bool pd_fragment_has_ended(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank, uint64_t step);
/* Returns whether what the rank has given, and does not count in the step whose set was just fixed, may still count in
 * the next one: it would not be too old then, and is made of shares that the rank still has. */
bool pd_fragment_keeps(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank);
/* Returns what happens to a contribution of the rank to step `step` of a parameter whose set is open. */
pd_admit pd_fragment_admit(const pd_steps *steps, const pd_param *param, uint32_t rank, uint64_t step);
/* Returns what happens to a contribution of the rank to step `step` of the parameter. */
static inline pd_admit pd_param_admit(const pd_steps *steps, const pd_param *param, uint32_t rank, uint64_t step)
{
    if (param->round.together) return pd_fragment_admit(steps, param, rank, step);
    if (step <= param->saved.step) return PD_ADMIT_DUPLICATE;
    return step == param->saved.step + 1 ? PD_ADMIT_NEW : PD_ADMIT_EARLY;
}
/* Notes that the contribution of the rank's push for step `step` to one more chunk of the parameter has come, or, if
 * `gives` is false, that the rank has none. Call it only if the sets are open. */
void pd_fragment_came(pd_steps *steps, pd_param *param, uint32_t rank, uint64_t step, bool gives, uint64_t now_ns);
/* Returns how many steps of a fragment the process has seen closed that says Hello. */
static inline uint64_t pd_hello_steps(const pd_request *hello, uint32_t fragment)
{
    if (fragment == 0) return hello->u.hello.steps;
    return fragment <= hello->u.hello.n_fragment_steps ? hello->u.hello.fragment_steps[fragment - 1] : 0;
}
/* Opens the step that is collected, unless it is open: the present members are expected. */
void pd_fragment_open(const pd_steps *steps, pd_fragment *fragment, uint64_t now_ns);
/* Notes what a frame of the rank's push says besides its data: patience, and shares. A frame without pieces, which
 * ends the step, says nothing of shares: what the rank has wanted last stays. */
void pd_fragment_note(pd_fragment *fragment, const pd_request *push);
/* Notes that the rank's push for step `step` came too late, also those parts of it that have not come yet, and that the
 * rank is told so: it works on the step that is collected next. */
void pd_fragment_late(pd_fragment *fragment, uint32_t rank, uint64_t step);
/* Notes that a part of the rank's push for step `step` is refused. Forgets what was refused of pushes for other steps
 * (pd_contribution.refused): the fragment's steps may be taken without the rank, so such a push need not come again. */
void pd_fragment_refuse(pd_steps *steps, pd_fragment *fragment, uint32_t rank, uint64_t step);
/* Returns whether a part of the rank's push for step `step` of the parameter was refused, and has not come again. */
bool pd_fragment_was_refused(const pd_param *param, uint32_t rank, uint64_t step);
/* Notes that the elements which the rank contributes are known: it has declared its parameters. */
void pd_fragments_declared(pd_steps *steps, uint32_t rank);
static inline bool pd_fragment_is_whole(const pd_fragment *fragment, uint32_t rank)
{
    return fragment->ranks[rank].step > 0 && fragment->ranks[rank].missing == 0;
}

#endif
