/* machine.h - the machine and the installation that the doctor examines. */
#ifndef PD_MACHINE_H
#define PD_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pd_machine {
    const char *root;    /* stands before /proc and /sys: "" for this machine; tests have folders of their own */
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

#endif
