/* kron_move.h - passes of kron over runs of elements: the momentum, and the move. Pure; any thread. */
#ifndef PD_KRON_MOVE_H
#define PD_KRON_MOVE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_kron_momentum {
    /* out: the momentum without bias; in and out, NULL: there is none, and X is the gradient */
    float *X, *mu;
    const float *gradient;
    int64_t n;
    float   keep, gain, divisor;        /* b1, 1 - b1, 1 - b1^t */
    bool    bfloat16;                   /* of mu: `keep` is, and its product with mu becomes, a bfloat16 number */
} pd_kron_momentum;

/* Gives the sum of |X|. */
double pd_kron_follow(const pd_kron_momentum *m);
/* after = before + rate (u / clip + decay before); `after` may be `before` or `u`; `update`, where not NULL, gets
 * what is added. */
typedef struct pd_kron_step {
    float *after, *update;
    const float *before, *u;
    int64_t n;
    float   clip, decay, rate;
} pd_kron_step;
void pd_kron_move(const pd_kron_step *s);

#endif
