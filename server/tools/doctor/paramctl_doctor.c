/* paramctl_doctor.c - the program behind `paramctl doctor'. It runs the daemon's program, and needs no daemon. */
#include "doctor.h"
#include "programs.h"

int main(int argc, char **argv)
{
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_DOCTOR], argc, argv);

    pd_line_parse(&line);
    return pd_run_doctor(&line);
}
