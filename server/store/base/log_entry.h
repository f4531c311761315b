/* log_entry.h - a log entry: its text, and the facts (job, rank, step, ...) by which programs filter entries. Any
 * thread. */
#ifndef PD_LOG_ENTRY_H
#define PD_LOG_ENTRY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

/* The facts about an entry. Pointers are borrowed for the call. NULL, or code PD_OK, means that the entry has no
 * such fact. */
typedef struct pd_log_facts {
    const char *job;      /* name of the job */
    const uint32_t *rank; /* rank of the worker */
    const uint64_t *step;
    int code;           /* enum pd_code */
    const char *author; /* the operator whose command the entry reports */
} pd_log_facts;

/* A log entry. Its text is "job NAME: rank R: MESSAGE, by AUTHOR"; facts that the entry does not have are left out.
 * For people the log prints the whole text. For programs it prints the message and each fact separately. */
typedef struct pd_log_entry {
    /* site: hash of the message's format and the job. The log limits how often one site repeats, so that one job's
     * messages cannot suppress those of another */
    uint64_t site, step;
    int level, code; /* level as syslog's */
    uint32_t rank;
    bool has_rank, has_step;
    uint16_t job_bytes; /* length of the job's name, which begins at text[PD_LOG_JOB_AT]; 0: no job */
    uint16_t message;   /* offset in `text` of the message */
    uint16_t author;    /* offset in `text` of the author, behind ", by "; 0: no author */
    char text[480];
} pd_log_entry;
#define PD_LOG_JOB_AT 4 /* behind "job " */
#define PD_LOG_BY ", by "

/* Builds an entry. Characters that cannot be printed become '?'. A text that is too long is cut. */
void pd_log_entry_make(pd_log_entry *entry, int level, pd_log_facts facts, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));

#endif
