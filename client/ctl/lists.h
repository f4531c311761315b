/* lists.h - the commands that print a list as it comes: jobs, workers, roots. */
#ifndef PD_LISTS_H
#define PD_LISTS_H

#include "list_table.h"

/* Returns one of these lists. */
const pd_list *pd_list_named(const char *name);
/* Prints the list that has the command's name. */
int pd_run_list(pd_line *line);

#endif
