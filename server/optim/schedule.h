/* schedule.h - a hyperparameter's value as a function of the step. Pure.
 *
 * As text, without blanks, because rules are split at blanks:
 *
 *     linear_warmup(peak=0.1,warmup_steps=2000)
 *     cosine(peak=0.1,steps=100000,warmup_steps=2000,end=0.001)
 *     piecewise(0.1,1000:0.01,2000:0.001)
 *     table(0.1,0.05,0.01)
 *     precond_update_prob_schedule(min_prob=0.05,flat_start=1000)
 *
 * `count` is 0 in the first step. Values are computed in double. The kinds are one table in schedule.c; where
 * optax has the same schedule, so are its formula and its meaning of arguments. */
#ifndef PD_SCHEDULE_H
#define PD_SCHEDULE_H

#include "paramd/optim.h"

#define PD_SCHEDULE_ARGS 6

typedef struct pd_schedule_kind pd_schedule_kind;

/* Written by pd_schedule_read, then by hypers.c before anyone else sees it; never after. */
struct pd_schedule {
    const pd_schedule_kind *kind;
    double   arg[PD_SCHEDULE_ARGS];     /* in the order of the kind's arguments */
    size_t   n;                         /* of a list: how many values */
    double  *value;
    /* of a piecewise one: value[i] holds from this count on; ascending, the first is 0 */
    int64_t *from;
    char    *text;                      /* as it was given */

    /* its place in a pd_hypers: hypers.c */
    const pd_schedule *next;
    const pd_hypers   *owner;           /* where it was set */
    int                index;           /* of the hyperparameter */
};

/* What a value is that is not a plain number, flag or word: something in parentheses. */
bool pd_schedule_is_text(const char *text);
/* Gives *out. PD_INVALID_ARGUMENT: not a schedule; the text lists the kinds, or the arguments of the kind.
 * PD_OUT_OF_RANGE: an argument outside its range. PD_NO_MEMORY. */
int  pd_schedule_read(pd_schedule **out, const char *text, pd_error *err);
void pd_schedule_free(pd_schedule *schedule);               /* accepts NULL */

double pd_schedule_at(const pd_schedule *schedule, int64_t count);
/* distributed_kron's precond_update_prob_schedule, as it is by default: a probability from 1 down to 0.03. */
double pd_schedule_anneal(int64_t count);
/* Its values are those of a list, and no others. */
bool   pd_schedule_is_list(const pd_schedule *schedule);
/* The i-th of the counts whose values are the schedule's least and largest, among others; each value of a list is
 * at one of them. False: there are not so many. */
bool   pd_schedule_corner(const pd_schedule *schedule, size_t i, int64_t *count);

#endif
