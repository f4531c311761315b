/* lists.h - the commands that print a list as it comes: jobs, workers, roots. */
#ifndef PD_LISTS_H
#define PD_LISTS_H

#include "list_table.h"

extern const pd_list pd_jobs_list;      /* `status` prints it, too */

int pd_run_jobs(pd_line *line);
int pd_run_workers(pd_line *line);
int pd_run_roots(pd_line *line);

#endif
