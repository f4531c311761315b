/* table.h - lists every optimizer that the server knows. */
#ifndef PD_TABLE_H
#define PD_TABLE_H

#include "paramd/optim.h"

extern const pd_row *const pd_rows[]; /* ends with NULL */
/* The optimizer of parameters that a worker declares as model state, whatever the rules are. */
extern const pd_row pd_model_state;

#endif
