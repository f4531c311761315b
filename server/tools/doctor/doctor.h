/* doctor.h - the checks of `paramctl doctor', what they examine, and what they find. */
#ifndef PD_DOCTOR_H
#define PD_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The result of a check: what was found, whether it is well, and what to do. */
typedef enum pd_health { PD_HEALTH_OK, PD_HEALTH_WARN, PD_HEALTH_FAIL } pd_health;

typedef struct pd_finding {
    pd_health health;
    char found[400];
    char advice[600]; /* sentences that say what to do; "": nothing */
} pd_finding;

/* Returns the word for a health: "ok", "warn" or "fail". */
const char *pd_health_name(pd_health health);
/* Adds to the text that says what was found. */
void pd_found(pd_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a sentence of advice. The finding becomes at least as bad as `health`. */
void pd_advise(pd_finding *finding, pd_health health, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The machine and the installation that are examined. */
typedef struct pd_machine {
    const char *root;    /* path prefix of /proc and /sys: "" normally, a fixture directory in tests */
    const char *program; /* path of the daemon's program; NULL: none was found */
    const char *config;  /* the daemon's configuration file; NULL: its defaults hold */
    const char *state;   /* directory for checkpoints that the user named; NULL: the configuration names it */
    const char *server;  /* daemon to ask; NULL: none */
    double timeout;      /* seconds within which that daemon must answer */
    char *settings;      /* what the daemon's program prints as its configuration; "": it prints none. Owned. */
    char *asked;         /* configuration of the daemon that was asked, as flags in lines; NULL: not known. Owned. */
    bool here;           /* the daemon that was asked runs on this machine, so its settings are those that count */
} pd_machine;

/* Reads a file below the root, such as "/proc/meminfo", cut to size - 1 bytes. Returns false if it cannot be read. */
bool pd_machine_text(const pd_machine *machine, const char *path, char *text, size_t size);
/* Returns the number that begins a file below the root; `otherwise` if the file cannot be read. */
int64_t pd_machine_number(const pd_machine *machine, const char *path, int64_t otherwise);
/* Copies the word in brackets of a file such as "always [madvise] never" below the root. Returns false if there is
 * none. */
bool pd_machine_choice(const pd_machine *machine, const char *path, char *word, size_t size);
/* Returns the number that follows a name and blanks in a text such as /proc/meminfo, where a name is at the beginning
 * of a line; `otherwise` if there is none. */
int64_t pd_number_after(const char *text, const char *name, int64_t otherwise);
/* Copies the value of a key of the daemon's configuration, such as "state_dir". Returns false if the configuration is
 * not known, or the value does not fit. */
bool pd_machine_setting(const pd_machine *machine, const char *key, char *value, size_t size);

enum { PD_RUN_FAILED = -1, PD_RUN_LATE = -2 };
enum { PD_RUN_MS = 10 * 1000 }; /* more than any program that we run takes */

/* Runs argv[0], with one more environment variable ("NAME=VALUE"; NULL: none), and stores its standard output and
 * standard error in `text`, cut to size - 1 bytes. Kills the program after limit_ms. Call it before other threads
 * start. Returns its exit status. PD_RUN_FAILED: it could not be started, or a signal ended it. PD_RUN_LATE: it did not
 * end in time. */
int pd_run_program(char *const *argv, const char *variable, int limit_ms, char *text, size_t size);

/* The checks. Each examines one thing of a machine and fills in a finding, which is empty and well before. */

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
/* Checks that connections do not run out of file descriptors. The limits are those of this process: those of a service
 * may differ. */
void pd_check_descriptors(const pd_machine *machine, pd_finding *out);
/* Checks the limits of address space and of locked memory. */
void pd_check_address_space(const pd_machine *machine, pd_finding *out);
/* Checks that clocks are fine, cheap to read, and set by the network. */
void pd_check_clock(const pd_machine *machine, pd_finding *out);
/* Measures for 0.2 s how fast the directory for checkpoints takes data that must survive a loss of power. */
void pd_check_disk(const pd_machine *machine, pd_finding *out);

/* Measures for 0.2 s how fast TCP is on the loopback interface, which bounds what workers on this machine exchange. */
void pd_check_loopback(const pd_machine *machine, pd_finding *out);
/* Checks that the kernel's buffers let one TCP connection use the network to the daemon that the user has named, whose
 * round trip is measured. If it names none on another machine, computes what they let it carry over a long distance. */
void pd_check_network(const pd_machine *machine, pd_finding *out);
/* Judges the sizes of the buffers for a round trip in seconds, for pd_check_network. 0: it is not known. */
void pd_judge_network(const pd_machine *machine, double trip_s, pd_finding *out);
/* Returns whether all of these addresses lead to this machine. */
bool pd_leads_here(const char *addresses);
/* Asks the daemon that the user has named, if any, for its configuration: sets `asked` and `here`. */
void pd_ask_settings(pd_machine *machine);
/* Asks a running daemon whether it is well, if the user has named one. */
void pd_check_daemon(const pd_machine *machine, pd_finding *out);

#endif
