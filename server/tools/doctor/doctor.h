/* doctor.h - the command doctor: examines a machine, and says what to do. */
#ifndef PD_DOCTOR_H
#define PD_DOCTOR_H

#include "checks.h"
#include "command_line.h"

/* One check: its name, and the function that does it. */
typedef struct pd_check {
    const char *name;
    void (*run)(const pd_machine *machine, pd_finding *out);
} pd_check;

/* All checks, in the order of the report. The last row is empty. */
extern const pd_check pd_checks[];

/* Runs the checks and prints a report, as text or JSON. Returns PD_EXIT_FAILED if a check failed. */
int pd_run_doctor(pd_line *line);

#endif
