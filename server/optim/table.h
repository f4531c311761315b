/* table.h - lists every optimizer that the server knows. */
#ifndef PD_TABLE_H
#define PD_TABLE_H

#include "paramd/optim.h"

extern const pd_optimizer_ops *const pd_rows[]; /* the known optimizers; NULL after the last one */
/* The optimizer of parameters that a worker declares as model state (averaged, not trained). The job's rules do not
 * apply to them. */
extern const pd_optimizer_ops pd_model_state;

#endif
