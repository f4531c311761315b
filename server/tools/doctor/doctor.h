/* doctor.h - declares the checks of `paramctl doctor', the machine that they examine, and their findings. */
#ifndef PD_DOCTOR_H
#define PD_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "message.h"
#include "tls_context.h"

/* How serious a finding is. */
typedef enum pd_health { PD_HEALTH_OK, PD_HEALTH_WARN, PD_HEALTH_FAIL } pd_health;

/* The result of a check. */
typedef struct pd_finding {
    pd_health health;
    char found[400];  /* text that says what was found */
    char advice[600]; /* sentences that say what to do; "": nothing needs to be done */
} pd_finding;

/* Returns the word for a health in reports: "ok", "warn" or "fail". */
const char *pd_health_name(pd_health health);
/* Appends text to finding->found. */
void pd_found(pd_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a sentence to finding->advice. finding->health becomes at least as bad as `health`. */
void pd_advise(pd_finding *finding, pd_health health, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The machine and the installation that are examined. */
typedef struct pd_machine {
    const char *root;    /* path prefix of /proc and /sys: "" normally, a fixture directory in tests */
    const char *program; /* path of the daemon's program; NULL: none was found */
    const char *config;  /* path of the daemon's configuration file; NULL: the daemon's defaults apply */
    const char *state;   /* directory for checkpoints that the user named; NULL: the configuration or the system names
                          * it */
    const char *server;  /* address of a running daemon, which the user named; NULL: none */
    double timeout;      /* seconds within which the running daemon must answer */
    const struct pd_line *line; /* the command line, whose addresses may name a cluster; NULL: it names no daemon */
    char *settings; /* the settings that the checks use, as `paramd --print-config` prints them; "": not known.
                          * Owned. */
    char *asked;    /* settings of the running daemon: one --SECTION-KEY=VALUE in each line; NULL: not known.
                          * Owned. */
    bool here;      /* the running daemon is on this machine, so `settings` are those of `asked` */
} pd_machine;

/* Reads the file machine->root + path, such as "/proc/meminfo", cut to size - 1 bytes. Returns false if it cannot be
 * read. */
bool pd_machine_text(const pd_machine *machine, const char *path, char *text, size_t size);
/* Returns the number at the beginning of the file machine->root + path; `otherwise` if the file cannot be read. */
int64_t pd_machine_number(const pd_machine *machine, const char *path, int64_t otherwise);
/* Copies the word in brackets from the file machine->root + path, such as "madvise" from "always [madvise] never".
 * Returns false if there is none. */
bool pd_machine_choice(const pd_machine *machine, const char *path, char *word, size_t size);
/* Finds a line of the text that begins with `name`, such as "MemTotal:" in /proc/meminfo, and returns the number that
 * follows; `otherwise` if there is none. */
int64_t pd_number_after(const char *text, const char *name, int64_t otherwise);
/* Copies the value of a key of the daemon's configuration, such as "state_dir". Returns false if the configuration is
 * not known, or the value does not fit. */
bool pd_machine_setting(const pd_machine *machine, const char *key, char *value, size_t size);

enum { PD_RUN_FAILED = -1, PD_RUN_LATE = -2 };
enum { PD_RUN_MS = 10 * 1000 }; /* time limit (ms) for a program: more than any program here takes */

/* Runs argv[0] and stores its standard output and standard error in `text`, cut to size - 1 bytes. `variable`: one more
 * environment variable, "NAME=VALUE"; NULL: none. Kills the program after limit_ms. Call it before other threads start.
 * Returns its exit status. PD_RUN_FAILED: it could not be started, or a signal ended it. PD_RUN_LATE: it did not end in
 * time. */
int pd_run_program(char *const *argv, const char *variable, int limit_ms, char *text, size_t size);

/* What is compared between the daemons of a cluster. */
typedef struct pd_shard_facts {
    uint32_t number;
    char server[64], cpu[16], blas_core[32], chunk[32]; /* version; instruction set; kernels; size of a chunk */
    double clock_s; /* seconds by which the daemon's clock is ahead of this machine's; NAN: not known */
} pd_shard_facts;

/* Compares the facts of n daemons, for pd_check_cluster. */
void pd_compare_shards(const pd_shard_facts *at, size_t n, pd_finding *out);
/* Warns of shards without an owner, for pd_check_cluster. */
void pd_check_owners(const Paramd__ShardsReply *table, pd_finding *out);

/* The checks. Each examines one thing and fills in *out, which is zeroed before. */

/* Checks that the daemon's program runs and has the version of paramctl. */
void pd_check_program(const pd_machine *machine, pd_finding *out);
/* Checks that BLAS is OpenBLAS for OpenMP, with kernels that suit the processor. */
void pd_check_blas(const pd_machine *machine, pd_finding *out);
/* Checks that the libraries of the daemon's program are installed. The finding lists the names of their files, which
 * tell the versions. */
void pd_check_libraries(const pd_machine *machine, pd_finding *out);
/* Reads `text`, the dynamic linker's list of a program's libraries, and fills in *out: the names of their files, and
 * which of them are missing. Changes `text`. For pd_check_libraries. */
void pd_libraries_read(char *text, pd_finding *out);
/* Names the version of OpenSSL, which tls:// addresses need, and says if a newer one encrypts faster. */
void pd_check_tls(const pd_machine *machine, pd_finding *out);
/* Judges a version of OpenSSL, for pd_check_tls. */
void pd_judge_tls(const pd_tls_version *version, pd_finding *out);
/* Checks that the daemon would start with its configuration. */
void pd_check_configuration(const pd_machine *machine, pd_finding *out);

/* Checks how many processors this process may use, and whether a control group slows them down. */
void pd_check_processors(const pd_machine *machine, pd_finding *out);
/* Checks whether the machine has several NUMA nodes, and which one the daemon would choose. */
void pd_check_numa(const pd_machine *machine, pd_finding *out);
/* Checks how much memory there is, how much the control groups allow, and whether the kernel overcommits memory. */
void pd_check_memory(const pd_machine *machine, pd_finding *out);
/* Checks whether large tensors get huge pages. */
void pd_check_huge_pages(const pd_machine *machine, pd_finding *out);
/* Checks that connections do not run out of file descriptors. The limits are those of this process: those of a service
 * may differ. */
void pd_check_descriptors(const pd_machine *machine, pd_finding *out);
/* Checks the limits of address space and of locked memory. */
void pd_check_address_space(const pd_machine *machine, pd_finding *out);
/* Checks that the monotonic clock has a fine resolution and is cheap to read, and that the time of day is
 * synchronized. */
void pd_check_clock(const pd_machine *machine, pd_finding *out);
/* Measures for 0.2 s how fast the directory for checkpoints takes data that must survive a loss of power. */
void pd_check_disk(const pd_machine *machine, pd_finding *out);

/* Measures for 0.2 s how fast TCP is on the loopback interface, which bounds what workers on this machine exchange. */
void pd_check_loopback(const pd_machine *machine, pd_finding *out);
/* Checks that the kernel's TCP buffers are large enough for one connection to the daemon that the user has named.
 * Connects to it to measure the round trip. If that daemon is on this machine, or none is named, only computes how much
 * the buffers let a connection carry over a long distance. */
void pd_check_network(const pd_machine *machine, pd_finding *out);
/* Checks that the kernel's TCP buffers are large enough for a round trip of `trip_s` seconds (0: not known). For
 * pd_check_network. */
void pd_judge_network(const pd_machine *machine, double trip_s, pd_finding *out);
/* Returns whether all of these addresses lead to this machine. */
bool pd_leads_here(const char *addresses);
/* Asks the daemon that the user has named, if any, for its configuration: sets `asked` and `here`. */
void pd_ask_settings(pd_machine *machine);
/* Asks the daemon that the user has named, if any, for its status, and checks the status. */
void pd_check_daemon(const pd_machine *machine, pd_finding *out);
/* Checks that the daemons of a cluster have the same version, kernels and chunks, that their clocks agree, and that
 * each shard has an owner, as far as they have a table of shards. */
void pd_check_cluster(const pd_machine *machine, pd_finding *out);

#endif
