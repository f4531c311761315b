/* schedule.h - schedules: a hyperparameter's value as a function of the step. Pure functions.
 *
 * Schedules are written without blanks, because rules are split at blanks:
 *
 *     linear_warmup(peak=0.1,warmup_steps=2000)
 *     cosine(peak=0.1,steps=100000,warmup_steps=2000,end=0.001)
 *     piecewise(0.1,1000:0.01,2000:0.001)
 *     table(0.1,0.05,0.01)
 *     precond_update_prob_schedule(min_prob=0.05,flat_start=1000)
 *
 * The functions take the number of steps before the current one: `count` is 0 in the first step. Values are computed in
 * double. All kinds of schedules are in one table in schedule.c. Where optax has a schedule of the same name, formula
 * and arguments are those of optax. */
#ifndef PD_SCHEDULE_H
#define PD_SCHEDULE_H

#include "paramd/optim.h"

#define PD_SCHEDULE_ARGS 6 /* largest number of arguments of a kind of schedule */

typedef struct pd_schedule_kind pd_schedule_kind;

/* A schedule. It is a node of the list `schedules` of a pd_hypers. It does not change once it is in the list, so that
 * copies may share it. */
struct pd_schedule {
    const pd_schedule_kind *kind;
    double arg[PD_SCHEDULE_ARGS]; /* values of the arguments, in the order in which the kind's table lists them */
    size_t n;                     /* number of values in a `piecewise` or `table` schedule */
    double *value;                /* the values of a `piecewise` or `table` schedule */
    /* Only for `piecewise`: value[i] is used from the step count from[i] on. The counts ascend; from[0] is 0. */
    int64_t *from;
    char *text; /* the text of the schedule, as the user wrote it */

    const pd_schedule *next; /* The next schedule in the list of a pd_hypers. Set by hypers.c. */
    const pd_hypers *owner;  /* the struct of hyperparameters in which the schedule was set, and which frees it */
    int index;               /* index of the hyperparameter whose value the schedule gives */
};

/* Returns whether the text of a hyperparameter's value is a schedule, not a number, a flag or a word: only schedules
 * have parentheses. */
bool pd_schedule_is_text(const char *text);
/* Reads a schedule from text and stores it in *out. PD_INVALID_ARGUMENT: the text is not a schedule; the error lists
 * the kinds of schedules, or the arguments of this kind. PD_OUT_OF_RANGE: an argument is outside its range.
 * PD_NO_MEMORY: out of memory. */
int pd_schedule_read(pd_schedule **out, const char *text, pd_error *err);
void pd_schedule_free(pd_schedule *schedule); /* accepts NULL */

/* Returns the value of a schedule in the step before which `count` steps were taken. */
double pd_schedule_at(const pd_schedule *schedule, int64_t count);
/* Returns distributed_kron's default precond_update_prob_schedule: a probability that falls from 1 to 0.03. */
double pd_schedule_anneal(int64_t count);
/* Returns whether the schedule is a list of values (`piecewise` or `table`), not a formula. */
bool pd_schedule_is_list(const pd_schedule *schedule);
/* Stores corner number i of a schedule in *count. Returns false if there are fewer corners. Corners are counts of
 * steps: between two neighbouring corners the schedule's value only rises or only falls. So the least and the largest
 * value of the schedule are at corners. In a list of values, every value is a corner. */
bool pd_schedule_corner(const pd_schedule *schedule, size_t i, int64_t *count);

#endif
