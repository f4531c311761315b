/* programs.h - the table of the paramctl commands that are programs of their own, because they need more than a
 * connection to a daemon; and finds programs in the running program's folder. */
#ifndef PD_PROGRAMS_H
#define PD_PROGRAMS_H

#include <stddef.h>

#include "command_line.h"
#include "paramd/error.h"

enum {
    PD_PROGRAM_OPTIMIZERS,
    PD_PROGRAM_PLAN,
    PD_PROGRAM_REPLAY,
    PD_PROGRAM_BENCH,
    PD_PROGRAM_DOCTOR,
    PD_PROGRAM_RESHARD
};

/* One row for each program paramctl-NAME, in the order of the enum, then an empty row. paramctl's help and the
 * programs themselves read the row. */
extern const pd_command pd_programs[];

/* Writes the path of the program `name` in the folder of the running program. PD_UNAVAILABLE: the folder has no such
 * program, or it may not be executed. */
int pd_sibling_path(char *path, size_t size, const char *name, pd_error *err);

#endif
