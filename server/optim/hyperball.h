/* hyperball.h - an option of optimizers for matrices: the norm of a matrix stays what it was before its first step, and
 * each step turns the matrix by about lr (arXiv:2606.16899). It takes the place of weight decay.
 *
 * Let R be the norm, U what the optimizer would multiply by -lr without weight decay, and s(X) = R / |X|, or 0 if X is
 * 0:
 *
 *     W <- W - lr s(U) U;   W <- s(W) W
 *
 * The optimizer needs to know nothing of it. It lists the hyperparameter (PD_HYPER_HYPERBALL), and
 * ends its function `plan` with pd_hyperball_plan. The caller of the phases (batch.c) then runs them with weights of 0
 * and lr = 1, so that the weights after them are -U, and runs the phases of hyperball before and after them. */
#ifndef PD_HYPERBALL_H
#define PD_HYPERBALL_H

#include "optimizer_ops.h"

#define PD_HYPER_HYPERBALL                                                                                             \
    {                                                                                                                  \
        "hyperball", PD_FLAG, 0, 0, 1, NULL,                                                                           \
            "matrices keep their norm, and turn by lr in each step; in place of weight decay", false, false            \
    }

/* The phases of hyperball: those before the optimizer's phases, and those after them. */
enum { PD_HYPERBALL_BEFORE = 1, PD_HYPERBALL_AFTER = 3 };
extern const pd_phase pd_hyperball_phases[PD_HYPERBALL_BEFORE + PD_HYPERBALL_AFTER];

/* Indices of an optimizer's hyperparameters that hyperball needs. */
typedef struct pd_hyperball_use {
    int hyperball, lr, decay;
} pd_hyperball_use;

/* Adds the state of hyperball to a plan that is otherwise complete, if the option is set and the parameter has at least
 * 2 dimensions. Returns PD_OK or PD_NO_MEMORY. */
int pd_hyperball_plan(pd_plan *plan, const pd_declaration *declaration, pd_hyperball_use use);

#endif
