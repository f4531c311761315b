/* log_entry.c - builds log entries from a message and the facts about it (job, rank, step, ...). */
#include "log_entry.h"

#include "text.h"

#include <stdio.h>
#include <string.h>

/* Returns the site of a log message: a hash (FNV-1a) of the address of its format text and of the job's name. The log
 * limits how often one site repeats. */
static uint64_t site_of(const char *format, const char *job)
{
    uint64_t site = 0xcbf29ce484222325u ^ (uintptr_t)format;

    for (; job != NULL && *job != '\0'; job++) site = (site ^ (unsigned char)*job) * 0x100000001b3u;
    return site;
}

/* Copies the name of the peer that an entry is about, and its hash. */
static void note_peer(pd_log_entry *entry, const pd_log_facts *facts)
{
    if (facts->peer == NULL) return;
    entry->peer_hash = site_of(NULL, facts->peer) | 1;
    entry->proven = facts->proven;
    snprintf(entry->peer, sizeof entry->peer, "%s", facts->peer);
    pd_text_mend(entry->peer);
}

/* Writes the beginning of a log entry's text, "job NAME: rank R: ". Writes nothing if the facts have no job: then
 * the message itself names the rank. */
static void begin_text(pd_log_entry *entry, const pd_log_facts *facts)
{
    size_t used;

    if (facts->job == NULL) return;
    used = (size_t)snprintf(entry->text, sizeof entry->text, "job %.256s: ", facts->job);
    entry->job_bytes = (uint16_t)(used - PD_LOG_JOB_AT - 2);
    if (facts->rank != NULL)
        used += (size_t)snprintf(entry->text + used, sizeof entry->text - used, "rank %u: ", *facts->rank);
    entry->message = (uint16_t)used;
}

/* Appends ", by AUTHOR" to a log entry's text, which has `used` characters so far. If there is no room for the
 * author, the author is left out. */
static void end_text(pd_log_entry *entry, size_t used, const char *author)
{
    if (used + sizeof PD_LOG_BY >= sizeof entry->text) return;
    snprintf(entry->text + used, sizeof entry->text - used, PD_LOG_BY "%s", author);
    entry->author = (uint16_t)(used + sizeof PD_LOG_BY - 1);
}

void pd_log_entry_make(pd_log_entry *entry, int level, pd_log_facts facts, const char *format, va_list args)
{
    *entry = (pd_log_entry){ .site = site_of(format, facts.job),
                             .place = site_of(format, NULL),
                             .level = level,
                             .code = facts.code,
                             .has_rank = facts.rank != NULL,
                             .has_step = facts.step != NULL };
    if (facts.rank != NULL) entry->rank = *facts.rank;
    if (facts.step != NULL) entry->step = *facts.step;
    note_peer(entry, &facts);
    begin_text(entry, &facts);
    vsnprintf(entry->text + entry->message, sizeof entry->text - entry->message, format, args);
    if (facts.author != NULL) end_text(entry, strlen(entry->text), facts.author);
    pd_text_mend(entry->text);
}
