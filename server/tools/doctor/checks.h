/* checks.h - the checks of the doctor. Each examines one thing of a machine and fills in a finding, which is empty and
 * well before. */
#ifndef PD_CHECKS_H
#define PD_CHECKS_H

#include "finding.h"
#include "machine.h"

/* Checks that the daemon's program runs and has the version of paramctl. */
void pd_check_program(const pd_machine *machine, pd_finding *out);
/* Checks that BLAS is OpenBLAS for OpenMP, with kernels that suit the processor. */
void pd_check_blas(const pd_machine *machine, pd_finding *out);
/* Checks that the libraries of the daemon's program are there. Their files' names have their versions. */
void pd_check_libraries(const pd_machine *machine, pd_finding *out);
/* Reads the dynamic linker's list of a program's libraries, for pd_check_libraries. Changes the text. */
void pd_libraries_read(char *text, pd_finding *out);
/* Checks that the daemon would start with its configuration. */
void pd_check_configuration(const pd_machine *machine, pd_finding *out);

/* Checks how many processors this process may use, and whether a control group slows them down. */
void pd_check_processors(const pd_machine *machine, pd_finding *out);
/* Checks whether the machine has several NUMA nodes, and which one the daemon would choose. */
void pd_check_numa(const pd_machine *machine, pd_finding *out);
/* Checks memory, limits of control groups, and the kernel's rule for promised memory. */
void pd_check_memory(const pd_machine *machine, pd_finding *out);
/* Checks whether large tensors get huge pages. */
void pd_check_huge_pages(const pd_machine *machine, pd_finding *out);

/* Checks that connections do not run out of file descriptors. */
void pd_check_descriptors(const pd_machine *machine, pd_finding *out);
/* Checks the limits of address space and of locked memory. */
void pd_check_address_space(const pd_machine *machine, pd_finding *out);

/* Checks that clocks are fine, cheap to read, and set by the network. */
void pd_check_clock(const pd_machine *machine, pd_finding *out);
/* Measures for 0.2 s how fast the directory for checkpoints takes data that must survive a loss of power. */
void pd_check_disk(const pd_machine *machine, pd_finding *out);
/* Measures for 0.2 s how fast TCP is on the loopback interface. */
void pd_check_loopback(const pd_machine *machine, pd_finding *out);

/* Checks that the kernel's buffers let one TCP connection use the network to the daemon that the user has named, whose
 * round trip is measured. If it names none on another machine, computes what they let it carry over a long distance. */
void pd_check_network(const pd_machine *machine, pd_finding *out);
/* Judges the sizes of the buffers for a round trip in seconds, for pd_check_network. 0: it is not known. */
void pd_judge_network(const pd_machine *machine, double trip_s, pd_finding *out);

/* Returns whether all of these addresses lead to this machine (check_daemon.c). */
bool pd_leads_here(const char *addresses);
/* Asks the daemon that the user has named, if any, for its configuration: sets `asked` and `here` (check_daemon.c). */
void pd_ask_settings(pd_machine *machine);
/* Asks a running daemon, if the user has named one (check_daemon.c). */
void pd_check_daemon(const pd_machine *machine, pd_finding *out);

#endif
