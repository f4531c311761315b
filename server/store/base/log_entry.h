/* log_entry.h - an entry of the log: its text, and the facts (job, rank, step, ...) by which programs filter entries.
 * Any thread. */
#ifndef PD_LOG_ENTRY_H
#define PD_LOG_ENTRY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

/* What a log entry is about. Programs filter entries by these values. Pointers are borrowed for the call. A pointer
 * that is NULL, or the code PD_OK, means that the entry does not have the value. */
typedef struct pd_log_facts {
    const char *job;      /* name of the job */
    const uint32_t *rank; /* rank of the worker */
    const uint64_t *step;
    int code;           /* the error that the entry reports, an enum pd_code */
    const char *author; /* label of the operator whose command the entry reports */
    const char *peer; /* identity or address of the peer that the entry is about: the log limits the entries of each */
    bool proven;      /* `peer` is an identity that the peer has proven */
} pd_log_facts;

/* A log entry. Its text is "job NAME: rank R: MESSAGE, by AUTHOR"; job, rank and author are left out if the facts lack
 * them. For people the log prints the whole text. For programs it prints the message, the job, the rank and so on as
 * separate fields. */
#define PD_LOG_PEER 64 /* bytes of a peer's name in an entry, with its terminating zero */
typedef struct pd_log_entry {
    /* `site` is a hash of the address of the message's format text and of the job's name. The log limits how often one
     * site repeats, so that one job's messages cannot suppress those of another. */
    uint64_t site, step;
    uint64_t place;         /* hash of the address of the message's format text alone */
    uint64_t peer_hash;     /* hash of the name of the peer that the entry is about; 0: the entry has no peer */
    bool proven;            /* the peer's name is an identity that the peer has proven */
    char peer[PD_LOG_PEER]; /* name of the peer, which may be cut */
    int level, code; /* `level` is the severity as in syslog (3: error), `code` the reported error (enum pd_code) */
    uint32_t rank;
    bool has_rank, has_step;
    uint16_t job_bytes; /* length of the job's name, which begins at text[PD_LOG_JOB_AT]; 0: the entry has no job */
    uint16_t message;   /* offset in `text` at which the message begins */
    uint16_t author;    /* offset in `text` of the author's name, after ", by "; 0: no author */
    char text[480];
} pd_log_entry;
#define PD_LOG_JOB_AT 4 /* offset of the job's name in a log text, after "job " */
#define PD_LOG_BY ", by "

/* Builds a log entry from a message and its facts. In its text, characters that cannot be printed become '?',
 * and a text that is too long is cut. */
void pd_log_entry_make(pd_log_entry *entry, int level, pd_log_facts facts, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));

#endif
