/* tracer.c - the ring of trace events, and the thread that writes them to the trace file. */
#include "tracer.h"

#include "log.h"
#include "thread.h"
#include "tracer_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RING = 16384, TAKE = 256, NOTICE_BYTES = 256 };
#define PROCESS_NAME "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"paramd\"}}"
#define BEGIN "[\n" PROCESS_NAME ",\n" /* the file of a daemon that was killed has the name, too */

struct pd_tracer {
    FILE *file;
    uint64_t most_bytes, bytes; /* largest size of the file; bytes written so far */
    char job[PD_NAME_MAX + 1];  /* the traced job; "": the first job that has a step will be. Step thread */

    pd_side_thread side; /* the thread ends when all events are written */

    /* The ring: entries `taken` to `put` wait to be written. Both numbers only grow. They change with the lock of
     * `side` held. */
    pd_trace_entry *ring;
    uint64_t put, taken;
    uint64_t lost; /* number of events that found no room */

    /* members of the writing thread */
    pd_trace_entry batch[TAKE];
    pd_trace_tracks tracks;
    bool full; /* the file has its largest size, or writing has failed: nothing is written any more */
};

/* ---- the writing thread ---- */

/* Waits for events, and takes as many as fit into the batch. Returns their number; 0: there are none, and the thread
 * has to end. */
static size_t take(pd_tracer *t, uint64_t *lost)
{
    size_t n = 0;

    pd_side_lock(&t->side);
    while (t->put == t->taken && !t->side.stop) pd_side_wait(&t->side);
    for (; n < TAKE && t->taken < t->put; n++) t->batch[n] = t->ring[t->taken++ % RING];
    *lost = t->lost;
    t->lost = 0;
    pd_side_unlock(&t->side);
    return n;
}

/* Writes text to the file. If the file would become too large, or if writing fails, nothing is written from now on. */
static void append(pd_tracer *t, const char *text, size_t n)
{
    t->full = t->bytes + n + NOTICE_BYTES > t->most_bytes;
    if (t->full) {
        pd_log(LOG_NOTICE, "the trace is full: no more steps are traced (server.trace_bytes = %llu)",
               (unsigned long long)t->most_bytes);
    } else if (fwrite(text, 1, n, t->file) != n || fflush(t->file) != 0) {
        pd_log(LOG_WARNING, "server.trace_file: no more steps are traced: %s", strerror(errno));
        t->full = true;
    }
    t->bytes += n;
}

static void note_lost(pd_tracer *t, uint64_t lost, uint64_t at_ns)
{
    char line[NOTICE_BYTES];
    uint64_t us = at_ns > t->tracks.begin_ns ? (at_ns - t->tracks.begin_ns) / 1000 : 0;
    int n = snprintf(line, sizeof line,
                     "{\"ph\":\"i\",\"s\":\"g\",\"pid\":1,\"tid\":1,\"name\":\"%llu events lost\",\"ts\":%llu},\n",
                     (unsigned long long)lost, (unsigned long long)us);

    append(t, line, (size_t)n);
}

static uint64_t begin_of(const pd_traced *event)
{
    return event->kind == PD_TRACED_ROUND ? event->round.first : event->begin;
}

static uint64_t end_of(const pd_traced *event)
{
    return event->kind == PD_TRACED_ROUND ? event->round.published : event->end;
}

/* Returns when the first of the n events in the batch began. */
static uint64_t first_begin(const pd_tracer *t, size_t n)
{
    uint64_t first = UINT64_MAX;

    for (size_t i = 0; i < n; i++)
        if (begin_of(&t->batch[i].event) < first) first = begin_of(&t->batch[i].event);
    return first;
}

static void write_batch(pd_tracer *t, size_t n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) return;
    if (t->tracks.begin_ns == 0) t->tracks.begin_ns = first_begin(t, n);
    for (size_t i = 0; i < n; i++) (void)pd_tracer_json(out, &t->tracks, &t->batch[i]);
    if (fclose(out) == 0) append(t, text, size);
    free(text);
}

static void *write_events(void *arg)
{
    pd_tracer *t = arg;
    uint64_t lost;
    size_t n;

    while ((n = take(t, &lost)) > 0) {
        if (t->full) continue;
        write_batch(t, n);
        if (lost > 0 && !t->full) note_lost(t, lost, end_of(&t->batch[n - 1].event));
    }
    return NULL;
}

/* ---- the step thread ---- */

/* Returns whether the event is one of the traced job. If no job is traced yet, this one is from now on. */
static bool is_ours(pd_tracer *t, const char *job)
{
    if (t->job[0] == '\0') snprintf(t->job, sizeof t->job, "%s", job);
    return strcmp(t->job, job) == 0;
}

static void copy_in(pd_trace_entry *entry, const pd_traced *event)
{
    entry->event = *event;
    snprintf(entry->param, sizeof entry->param, "%s", event->param != NULL ? event->param : "");
}

void pd_tracer_put(void *arg, const pd_traced *event)
{
    pd_tracer *t = arg;

    if (!is_ours(t, event->job)) return;
    pd_side_lock(&t->side);
    if (t->put - t->taken == RING)
        t->lost++;
    else
        copy_in(&t->ring[t->put++ % RING], event);
    pd_side_unlock(&t->side);
}

/* ---- start and end ---- */

/* Opens the file of the key's value, and stores the name of the job behind the last colon. A colon before a slash
 * belongs to the path. */
static int open_file(pd_tracer *t, const char *to, pd_error *err)
{
    char *path = strdup(to), *colon = path != NULL ? strrchr(path, ':') : NULL;
    int rc = PD_OK;

    if (path == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (colon != NULL && strchr(colon, '/') == NULL) {
        snprintf(t->job, sizeof t->job, "%s", colon + 1);
        *colon = '\0';
    }
    if ((t->file = fopen(path, "we")) == NULL)
        rc = pd_fail(err, PD_UNAVAILABLE, "server.trace_file: %.400s: %s", path, strerror(errno));
    free(path);
    return rc;
}

static void free_tracer(pd_tracer *t)
{
    if (t->file != NULL) fclose(t->file);
    free(t->tracks.params);
    free(t->ring);
    free(t);
}

int pd_tracer_start(pd_tracer **out, const char *to, uint64_t most_bytes, pd_error *err)
{
    pd_tracer *t = calloc(1, sizeof *t);
    int rc;

    if (t == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for the trace");
    t->most_bytes = most_bytes;
    t->ring = calloc(RING, sizeof *t->ring);
    rc = t->ring != NULL ? open_file(t, to, err) : pd_fail(err, PD_NO_MEMORY, "out of memory for the trace");
    if (rc == PD_OK) append(t, BEGIN, strlen(BEGIN));
    if (rc == PD_OK) rc = pd_side_start(&t->side, write_events, t, "thread that writes the trace", err);
    if (rc == PD_OK)
        *out = t;
    else
        free_tracer(t);
    return rc;
}

void pd_tracer_stop(pd_tracer *t)
{
    if (t == NULL) return;
    pd_side_stop(&t->side);
    /* Every event ends with a comma, so the array ends with an event that says nothing new. */
    fputs(PROCESS_NAME "\n]\n", t->file);
    free_tracer(t);
}
