/* set_warning.h - warns of jobs whose steps count so few workers that their optimizer may diverge. Step thread. */
#ifndef PD_SET_WARNING_H
#define PD_SET_WARNING_H

#include "job.h"

/* Logs a warning, which workers get, too, if the quorum of the new job is at most half of its workers and a rule has an
 * optimizer with Nesterov momentum and a large learning rate. */
void pd_set_warning_look(const pd_job *job);

#endif
