/* programs.h - the paramctl commands that are programs of their own, because they need more than a connection to a
 * daemon. */
#ifndef PD_PROGRAMS_H
#define PD_PROGRAMS_H

#include "command_line.h"

enum { PD_PROGRAM_OPTIMIZERS, PD_PROGRAM_PLAN, PD_PROGRAM_REPLAY, PD_PROGRAM_BENCH, PD_PROGRAM_DOCTOR };

/* One row for each program paramctl-NAME, in the order of the enum, then an empty row. paramctl's help and the
 * programs themselves read the row. */
extern const pd_command pd_programs[];

#endif
