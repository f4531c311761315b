/* lists.h - the commands that print a list as the daemon sends it: jobs, workers, roots. */
#ifndef PD_LISTS_H
#define PD_LISTS_H

#include "list_table.h"

/* Returns the description of a list: its kind and its columns. `name` is jobs, workers or roots. */
const pd_list *pd_list_named(const char *name);
/* Runs the command jobs, workers or roots, which prints the list of that name. */
int pd_run_list(pd_line *line);
/* Runs the command jobs: prints the jobs whose name matches the command's argument; without an argument, all jobs. */
int pd_run_jobs(pd_line *line);

#endif
