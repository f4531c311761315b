/* paramctl_optimizers.c - the program behind `paramctl optimizers`. It is linked with the optimizers, so it needs no
 * daemon. */
#include "optimizer_list.h"
#include "programs.h"

int main(int argc, char **argv)
{
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_OPTIMIZERS], argc, argv);

    pd_line_parse(&line);
    return pd_run_optimizers(&line);
}
