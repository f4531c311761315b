/* log.c - makes lines of the log, limits call sites that repeat themselves, and hands the lines on. */
#include "log.h"
#include "logring.h"

#include "printable.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 2048, SITE_BITS = 9, SITES = 1 << SITE_BITS };

static int          threshold = LOG_INFO;       /* set once, before the first thread starts */
static pd_log_style chosen;

static const char *const level_names[] = { "emerg", "alert", "crit", "error", "warning", "notice", "info", "debug" };

void pd_log_open(int level, pd_log_format format)
{
    bool journal = getenv("JOURNAL_STREAM") != NULL, terminal = isatty(STDERR_FILENO) == 1;

    threshold = level;
    chosen = (pd_log_style){ .format = format, .prefix = journal || (!terminal && format == PD_LOG_TEXT),
                             .time = !journal };
}

/* ---- one line ---- */

typedef struct text { char *at; size_t used, size; } text;

static void add(text *t, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(t->at + t->used, t->size - t->used, format, args);
    va_end(args);
    if (n > 0) t->used += (size_t)n < t->size - t->used ? (size_t)n : t->size - t->used - 1;
}

static void add_time(text *t, uint64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm utc;
    char date[32];

    gmtime_r(&seconds, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
    add(t, "%s.%03uZ", date, (unsigned)(ms % 1000));
}

/* Adds the whole piece, or nothing: then the line is full. */
static void add_whole(text *t, const char *piece, size_t n)
{
    if (t->used + n >= t->size) {
        t->size = t->used + 1;
        return;
    }
    memcpy(t->at + t->used, piece, n);
    t->used += n;
    t->at[t->used] = '\0';
}

static void add_plain(text *t, const char *message)
{
    pd_text_print(t->at + t->used, t->size - t->used, message);
    t->used += strlen(t->at + t->used);
}

static void add_quoted(text *t, const char *message)
{
    size_t left = strlen(message), n;
    char escape[PD_ESCAPE];
    uint32_t point;

    add(t, "\"");
    for (; left > 0; message += n, left -= n) {
        n = pd_utf8_next(message, left, &point);
        if (*message == '"' || *message == '\\') add_whole(t, *message == '"' ? "\\\"" : "\\\\", 2);
        else if (n == 0) add_whole(t, "?", n = 1);
        else if (pd_point_printable(point)) add_whole(t, message, n);
        else add_whole(t, escape, pd_point_escape(escape, point));
    }
    add(t, "\"");
}

static void add_text(text *t, pd_log_style style, int level, uint64_t ms, const char *message)
{
    if (style.time) add_time(t, ms);
    if (style.time) add(t, " ");
    if (level <= LOG_WARNING) add(t, "%s: ", level_names[level]);
    add_plain(t, message);
}

static void add_logfmt(text *t, pd_log_style style, int level, uint64_t ms, const char *message)
{
    if (style.time) add(t, "time=");
    if (style.time) add_time(t, ms);
    add(t, "%slevel=%s msg=", style.time ? " " : "", level_names[level]);
    add_quoted(t, message);
}

static void add_json(text *t, pd_log_style style, int level, uint64_t ms, const char *message)
{
    add(t, "{");
    if (style.time) add(t, "\"time\":\"");
    if (style.time) add_time(t, ms);
    add(t, "%s\"level\":\"%s\",\"message\":", style.time ? "\"," : "", level_names[level]);
    add_quoted(t, message);
    add(t, "}");
}

size_t pd_log_line(char *out, size_t size, pd_log_style style, int level, uint64_t ms, const char *message)
{
    text t = { .at = out, .size = size - 4 };       /* room to close a text that is cut */
    bool cut;

    if (style.prefix) add(&t, "<%d>", level);
    switch (style.format) {
    case PD_LOG_TEXT:   add_text(&t, style, level, ms, message); break;
    case PD_LOG_LOGFMT: add_logfmt(&t, style, level, ms, message); break;
    case PD_LOG_JSON:   add_json(&t, style, level, ms, message); break;
    }
    cut = t.used + 1 >= t.size;
    t.size = size;
    if (cut && style.format != PD_LOG_TEXT) {
        add(&t, style.format == PD_LOG_JSON ? "\"}" : "\"");
    }
    add(&t, "\n");
    return t.used;
}

/* ---- call sites that repeat themselves ---- */

/* Shared by all threads. Two sites with the same slot share its budget. */
static struct site { _Atomic uint64_t window; atomic_uint spoken, missed; } sites[SITES];

bool pd_log_may_speak(uint64_t at, uint64_t now_s, unsigned *missed)
{
    struct site *site = &sites[(at * 0x9e3779b97f4a7c15u) >> (64 - SITE_BITS)];
    uint64_t window = now_s / PD_LOG_WINDOW_S, seen = atomic_load(&site->window);

    *missed = 0;
    if (seen != window && atomic_compare_exchange_strong(&site->window, &seen, window)) {
        atomic_store(&site->spoken, 0);
        *missed = atomic_exchange(&site->missed, 0);
    }
    if (atomic_fetch_add(&site->spoken, 1) < PD_LOG_BURST) return true;
    atomic_fetch_add(&site->missed, 1);
    return false;
}

/* ---- lines on their way ---- */

/* Hands a line to the writer thread, or writes it if there is no such thread. */
static void put_line(int level, uint64_t ms, const char *message)
{
    char line[LINE_BYTES];
    size_t n = pd_log_line(line, sizeof line, chosen, level, ms, message);

    if (!pd_log_ring_put(line, n)) pd_log_write(line, n);
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Returns whether the site may write a line. Reports before it how many lines of the site were left out. */
static bool begin_line(uint64_t site, uint64_t ms)
{
    char message[128];
    unsigned missed;

    if (!pd_log_may_speak(site, ms / 1000, &missed)) return false;
    if (missed == 0) return true;
    snprintf(message, sizeof message, "%u more lines like the next one were left out", missed);
    put_line(LOG_WARNING, ms, message);
    return true;
}

void pd_log(int level, const char *format, ...)
{
    char message[LINE_BYTES - 128];
    uint64_t ms = now_ms();
    va_list args;

    if (level > threshold || !begin_line((uintptr_t)format, ms)) return;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    put_line(level, ms, message);
}

void pd_log_text(int level, uint64_t site, const char *message)
{
    uint64_t ms = now_ms();

    if (level <= threshold && begin_line(site, ms)) put_line(level, ms, message);
}

/* Makes the line that reports lost lines. Returns its length. */
static size_t lost_line(char *out, size_t size, uint64_t lost)
{
    char message[128];

    snprintf(message, sizeof message, "%llu lines of the log were lost: nobody read the standard error fast enough",
             (unsigned long long)lost);
    return pd_log_line(out, size, chosen, LOG_WARNING, now_ms(), message);
}

int  pd_log_start(pd_error *err) { return pd_log_ring_start(lost_line, err); }
void pd_log_stop(void)           { pd_log_ring_stop(); }
