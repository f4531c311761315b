/* programs.h - the commands of paramctl that are programs of their own, because they need more than a connection. */
#ifndef PD_PROGRAMS_H
#define PD_PROGRAMS_H

#include "command_line.h"

enum { PD_PROGRAM_REPLAY, PD_PROGRAM_PLAN, PD_PROGRAM_BENCH };

/* A row for each program paramctl-NAME, in that order, then an empty row. Used by paramctl's help and by the
 * program. */
extern const pd_command pd_programs[];

#endif
