/* table.h - every optimizer the server knows. */
#ifndef PD_TABLE_H
#define PD_TABLE_H

#include "paramd/optim.h"

extern const pd_row *const pd_rows[];       /* ends with NULL */
extern const pd_row pd_model_state;         /* for what a worker declares to be model state, whatever the rules say */

#endif
