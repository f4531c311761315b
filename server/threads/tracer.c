/* tracer.c - keeps trace events in a ring, from which a separate thread writes them to the trace file as JSON.
 *
 * Each parameter has a track of its own ("tid"), and the step thread has one for its batches of work. Preconditioner
 * tasks of a parameter overlap, so they are asynchronous spans. Each span has a number that is local to this process
 * ("id2"); viewers would show spans with global numbers ("id") in another place. */
#include "tracer.h"

#include "log.h"
#include "paramd/error.h"
#include "request.h"
#include "stats.h"
#include "text.h"
#include "thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An event that waits in the ring, with a copy of the parameter's name. */
typedef struct trace_entry {
    pd_traced event; /* its pointers `job` and `param` are not used here, because they were only borrowed */
    char param[PD_NAME_MAX + 1];
} trace_entry;

/* The tracks that already have a name in the file: that of the step thread, and those of parameters by index. */
typedef struct trace_tracks {
    uint64_t begin_ns;  /* monotonic time (ns) that is 0 in the trace */
    bool work, *params; /* whether the track of the step thread has a name; and that of each parameter, by index */
    uint32_t n_params;  /* length of the array `params` */
    uint64_t roots;     /* number of preconditioner tasks so far */
} trace_tracks;

enum { WORK_TRACK = 1, FIRST_PARAM_TRACK = 100 };

static void write_characters(FILE *out, const char *text)
{
    char json[PD_ESCAPE];

    for (size_t left = strlen(text), used; left > 0; text += used, left -= used)
        fwrite(json, 1, pd_json_next(json, text, left, &used), out);
}

static void write_text(FILE *out, const char *text)
{
    fputc('"', out);
    write_characters(out, text);
    fputc('"', out);
}

/* Writes a time in microseconds, with three exact decimals. */
static void write_us(FILE *out, const char *key, uint64_t ns)
{
    fprintf(out, ",\"%s\":%llu.%03llu", key, (unsigned long long)(ns / 1000), (unsigned long long)(ns % 1000));
}

static uint64_t since(const trace_tracks *tracks, uint64_t ns)
{
    return ns > tracks->begin_ns ? ns - tracks->begin_ns : 0;
}

static void begin_span(FILE *out, const trace_tracks *tracks, uint32_t track, const char *name, uint64_t begin,
                       uint64_t end)
{
    fprintf(out, "{\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"name\":", track);
    write_text(out, name);
    write_us(out, "ts", since(tracks, begin));
    write_us(out, "dur", since(tracks, end) - since(tracks, begin));
}

static void span(FILE *out, const trace_tracks *tracks, uint32_t track, const char *name, uint64_t begin, uint64_t end)
{
    if (begin == 0 || end < begin) return;
    begin_span(out, tracks, track, name, begin, end);
    fputs("},\n", out);
}

static void name_track(FILE *out, uint32_t track, const char *name)
{
    fprintf(out, "{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":", track);
    write_text(out, name);
    fputs("}},\n", out);
}

static int grow_tracks(trace_tracks *tracks, uint32_t index)
{
    uint32_t n = index + 1 > 2 * tracks->n_params ? index + 1 : 2 * tracks->n_params;
    bool *more;

    if (index < tracks->n_params) return PD_OK;
    if ((more = realloc(tracks->params, n * sizeof *more)) == NULL) return PD_NO_MEMORY;
    memset(more + tracks->n_params, 0, (n - tracks->n_params) * sizeof *more);
    tracks->params = more;
    tracks->n_params = n;
    return PD_OK;
}

static const char *outcome_text(int outcome)
{
    static const char *const texts[] = {
        [0] = "initial weights",          [PD_STEPPED] = "stepped", [PD_SKIPPED] = "skipped",
        [PD_NO_GRADIENT] = "no gradient", [PD_REFUSED] = "refused",
    };

    return outcome >= 0 && (size_t)outcome < sizeof texts / sizeof *texts ? texts[outcome] : "unknown";
}

static int write_round(FILE *out, trace_tracks *tracks, const trace_entry *entry)
{
    const pd_traced_round *round = &entry->event.round;
    uint32_t track = FIRST_PARAM_TRACK + entry->event.index;
    char name[32];

    if (grow_tracks(tracks, entry->event.index) != PD_OK) return PD_NO_MEMORY;
    if (!tracks->params[entry->event.index]) name_track(out, track, entry->param);
    tracks->params[entry->event.index] = true;
    snprintf(name, sizeof name, "round %llu", (unsigned long long)entry->event.step);
    begin_span(out, tracks, track, name, round->first, round->published);
    fprintf(out, ",\"args\":{\"outcome\":\"%s\"}},\n", outcome_text(entry->event.outcome));
    span(out, tracks, track, "receive", round->first, round->last);
    span(out, tracks, track, "sum", round->summing, round->summed);
    span(out, tracks, track, "step", round->begun, round->stepped);
    span(out, tracks, track, "publish", round->stepped, round->published);
    return PD_OK;
}

static void write_root_end(FILE *out, const trace_tracks *tracks, const char *phase, const char *param, uint64_t ns)
{
    fprintf(out,
            "{\"ph\":\"%s\",\"cat\":\"roots\",\"pid\":1,\"tid\":%d,\"id2\":{\"local\":\"%llu\"},\"name\":\"roots of ",
            phase, WORK_TRACK, (unsigned long long)tracks->roots);
    write_characters(out, param);
    fputc('"', out);
    write_us(out, "ts", since(tracks, ns));
    fputs("},\n", out);
}

/* Writes an event as one or more lines, each of which ends with a comma and a newline. A round is a span in the track
 * of its parameter, which contains shorter spans (receive, sum, step, publish). PD_NO_MEMORY: the event is not
 * written. */
static int write_event(FILE *out, trace_tracks *tracks, const trace_entry *entry)
{
    const pd_traced *event = &entry->event;

    switch (event->kind) {
    case PD_TRACED_WORK:
        if (!tracks->work) name_track(out, WORK_TRACK, "step thread");
        tracks->work = true;
        span(out, tracks, WORK_TRACK, pd_step_phase_name(event->phase), event->begin, event->end);
        break;
    case PD_TRACED_ROUND: return write_round(out, tracks, entry);
    case PD_TRACED_ROOT:
        tracks->roots++;
        write_root_end(out, tracks, "b", entry->param, event->begin);
        write_root_end(out, tracks, "e", entry->param, event->end);
        break;
    }
    return PD_OK;
}

enum { RING = 16384, TAKE = 256, NOTICE_BYTES = 256 };
#define PROCESS_NAME "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"paramd\"}}"
#define BEGIN "[\n" PROCESS_NAME ",\n" /* the name comes first, so that it is there if the daemon is killed */

/* A trace: the file, the helper thread that writes it, and the ring between the step thread and the helper thread. */
struct pd_tracer {
    FILE *file;
    uint64_t most_bytes, bytes; /* largest allowed size of the file, and its size so far, in bytes */
    char job[PD_NAME_MAX + 1];  /* name of the traced job; "": the first job that has an event will be traced. Step
                                 * thread */

    pd_side_thread side; /* the helper thread; when it has to end, it writes all waiting events first */

    /* The ring: the events with numbers from `taken` up to, not including, `put` wait to be written. The lock of `side`
     * protects it. */
    trace_entry *ring;
    uint64_t put, taken;
    uint64_t lost; /* number of events that did not fit and are not reported yet */

    /* used by the helper thread alone */
    trace_entry batch[TAKE];
    trace_tracks tracks;
    bool full; /* the file would become larger than most_bytes, or a write has failed: no more events are written */
};

/* Waits for events, and moves as many as fit into `batch`. Returns their number; 0: no events are left and the thread
 * has to end. Sets *lost to the number of events that were lost since the last call. */
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

/* Writes text to the file. If the file would become too large, or if writing fails, sets `full` and logs that. */
static void append(pd_tracer *t, const char *text, size_t n)
{
    t->full = t->bytes + n + NOTICE_BYTES > t->most_bytes;
    if (t->full) {
        pd_log(LOG_NOTICE, "trace full: no more steps are traced (server.trace_bytes = %llu)",
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
    for (size_t i = 0; i < n; i++) (void)write_event(out, &t->tracks, &t->batch[i]);
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

/* Returns whether `job` is the traced job. If no job is traced yet, this one is traced from now on. */
static bool is_ours(pd_tracer *t, const char *job)
{
    if (t->job[0] == '\0') snprintf(t->job, sizeof t->job, "%s", job);
    return strcmp(t->job, job) == 0;
}

void pd_tracer_put(void *arg, const pd_traced *event)
{
    pd_tracer *t = arg;

    if (!is_ours(t, event->job)) return;
    pd_side_lock(&t->side);
    if (t->put - t->taken == RING)
        t->lost++;
    else {
        trace_entry *entry = &t->ring[t->put++ % RING];
        entry->event = *event;
        snprintf(entry->param, sizeof entry->param, "%s", event->param != NULL ? event->param : "");
    }
    pd_side_unlock(&t->side);
}

/* Splits `to` into FILE and JOB at the last colon, opens the file, and stores the name of the job. A colon before a
 * slash belongs to the path. */
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
    /* Every event ends with a comma, so a last event without a comma is added: the process name again. */
    fputs(PROCESS_NAME "\n]\n", t->file);
    free_tracer(t);
}
