/* tracer_json.c - writes events of a job's steps as trace events in JSON.
 *
 * Each parameter has a track of its own ("tid"), and the step thread has one for its batches of work. Preconditioner
 * tasks of a parameter overlap, so they are asynchronous spans. Each has a number of this process ("id2"): viewers show
 * spans whose numbers belong to no process ("id") in another place. */
#include "tracer_json.h"

#include <stdlib.h>
#include <string.h>

#include "paramd/error.h"
#include "request.h"
#include "stats.h"

enum { WORK_TRACK = 1, FIRST_PARAM_TRACK = 100 };

/* ---- parts of a line ---- */

/* Writes characters of a text in quotes. They are printable; only quotes and backslashes need an escape. */
static void write_characters(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', out);
        fputc((unsigned char)*text < 0x20 ? '?' : *text, out);
    }
}

static void write_text(FILE *out, const char *text)
{
    fputc('"', out);
    write_characters(out, text);
    fputc('"', out);
}

/* Writes a time in microseconds, with three decimals, by integer arithmetic: the digits are exact. */
static void write_us(FILE *out, const char *key, uint64_t ns)
{
    fprintf(out, ",\"%s\":%llu.%03llu", key, (unsigned long long)(ns / 1000), (unsigned long long)(ns % 1000));
}

static uint64_t since(const pd_trace_tracks *tracks, uint64_t ns)
{
    return ns > tracks->begin_ns ? ns - tracks->begin_ns : 0;
}

static void begin_span(FILE *out, const pd_trace_tracks *tracks, uint32_t track, const char *name, uint64_t begin,
                       uint64_t end)
{
    fprintf(out, "{\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"name\":", track);
    write_text(out, name);
    write_us(out, "ts", since(tracks, begin));
    write_us(out, "dur", since(tracks, end) - since(tracks, begin));
}

static void span(FILE *out, const pd_trace_tracks *tracks, uint32_t track, const char *name, uint64_t begin,
                 uint64_t end)
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

/* ---- events ---- */

static void write_work(FILE *out, pd_trace_tracks *tracks, const pd_traced *event)
{
    if (!tracks->work) name_track(out, WORK_TRACK, "step thread");
    tracks->work = true;
    span(out, tracks, WORK_TRACK, pd_step_phase_name(event->phase), event->begin, event->end);
}

static int grow_tracks(pd_trace_tracks *tracks, uint32_t index)
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

static int write_round(FILE *out, pd_trace_tracks *tracks, const pd_trace_entry *entry)
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

static void write_root_end(FILE *out, const pd_trace_tracks *tracks, const char *phase, const char *param, uint64_t ns)
{
    fprintf(out,
            "{\"ph\":\"%s\",\"cat\":\"roots\",\"pid\":1,\"tid\":%d,\"id2\":{\"local\":\"%llu\"},\"name\":\"roots of ",
            phase, WORK_TRACK, (unsigned long long)tracks->roots);
    write_characters(out, param);
    fputc('"', out);
    write_us(out, "ts", since(tracks, ns));
    fputs("},\n", out);
}

static void write_root(FILE *out, pd_trace_tracks *tracks, const pd_trace_entry *entry)
{
    tracks->roots++;
    write_root_end(out, tracks, "b", entry->param, entry->event.begin);
    write_root_end(out, tracks, "e", entry->param, entry->event.end);
}

int pd_tracer_json(FILE *out, pd_trace_tracks *tracks, const pd_trace_entry *entry)
{
    switch (entry->event.kind) {
    case PD_TRACED_WORK: write_work(out, tracks, &entry->event); break;
    case PD_TRACED_ROUND: return write_round(out, tracks, entry);
    case PD_TRACED_ROOT: write_root(out, tracks, entry); break;
    }
    return PD_OK;
}
