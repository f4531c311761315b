/* log.c - formats log entries as lines, leaves out lines beyond the limits, and hands the others to the thread that
 * writes the log. */
#include "log.h"

#include "logring.h"
#include "text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SITE_BITS = 9, SITES = 1 << SITE_BITS, PLACES = 32 };
static const uint64_t golden = 0x9e3779b97f4a7c15u; /* factor that spreads a hash over its upper bits */

/* Counts the lines that each place in the code has logged for a job, to silence places that log too often. Shared by
 * all threads. The index is computed from pd_log_entry.site, a hash of the place and the job, so a few places may share
 * a counter. */
static struct site {
    _Atomic uint64_t window;    /* number of the window whose lines are counted */
    atomic_uint spoken, missed; /* number of lines in the window; number of lines left out and not reported yet */
} sites[SITES];

bool pd_log_may_speak(uint64_t at, uint64_t now_s, unsigned *missed)
{
    struct site *site = &sites[(at * golden) >> (64 - SITE_BITS)];
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

/* Counts the lines about one peer in one window. */
typedef struct peer {
    uint64_t hash;   /* hash of the peer's whole name */
    uint64_t window; /* number of the window */
    /* Hashes of the places in the code that have logged the lines; 0: unused. Places that find no free element share
     * the last one. */
    uint64_t places[PLACES];
    unsigned spoken[PLACES]; /* number of lines that each element of `places` has logged */
    unsigned missed;         /* number of lines that were left out */
    char name[PD_LOG_PEER];
} peer;

/* Tables of counters for peers. Peers that find no free counter share the last one. Protected by `lock`. */
typedef peer peers[PD_LOG_PEERS + 1];
static peers proven, addresses;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void begin(peer *at, const pd_log_entry *entry, uint64_t window)
{
    *at = (peer){ .hash = entry->peer_hash, .window = window };
    memcpy(at->name, entry->peer, sizeof at->name);
}

/* Returns the counter of an entry's peer for this window. A counter of an earlier window is reused once its missed
 * lines are reported. */
static peer *find(peers table, const pd_log_entry *entry, uint64_t window)
{
    peer *vacant = NULL, *last = &table[PD_LOG_PEERS];

    for (peer *at = table; at < last; at++) {
        if (at->hash == entry->peer_hash && at->window == window) return at;
        if (vacant == NULL && at->window != window && at->missed == 0) vacant = at;
    }
    if (vacant != NULL) {
        begin(vacant, entry, window);
        return vacant;
    }
    if (last->window != window && last->missed == 0) {
        begin(last, entry, window);
        snprintf(last->name, sizeof last->name, "%s", "other peers");
    }
    return last;
}

static unsigned *count_of(peer *at, uint64_t place)
{
    int i = 0;

    while (i < PLACES - 1 && at->places[i] != place && at->places[i] != 0) i++;
    at->places[i] = place;
    return &at->spoken[i];
}

bool pd_log_may_report(const pd_log_entry *entry, uint64_t now_s)
{
    unsigned *spoken;
    peer *at;
    bool may;

    pthread_mutex_lock(&lock);
    at = find(entry->proven ? proven : addresses, entry, now_s / PD_LOG_WINDOW_S);
    spoken = count_of(at, entry->place);
    may = *spoken < PD_LOG_BURST;
    if (may)
        ++*spoken;
    else
        at->missed++;
    pthread_mutex_unlock(&lock);
    return may;
}

static bool take(peers table, pd_log_left_out *out, uint64_t window, bool all)
{
    for (peer *at = table; at <= &table[PD_LOG_PEERS]; at++) {
        if (at->missed == 0 || (at->window == window && !all)) continue;
        out->lines = at->missed;
        memcpy(out->peer, at->name, sizeof out->peer);
        at->missed = 0;
        return true;
    }
    return false;
}

bool pd_log_take_left_out(pd_log_left_out *out, uint64_t now_s, bool all)
{
    uint64_t window = now_s / PD_LOG_WINDOW_S;
    bool any;

    pthread_mutex_lock(&lock);
    any = take(proven, out, window, all) || take(addresses, out, window, all);
    pthread_mutex_unlock(&lock);
    return any;
}

enum { LINE_BYTES = 2048 };

static atomic_int threshold = LOG_INFO; /* lines less urgent than this level are not logged; every thread reads it,
                                         * and the loop thread changes it */
static pd_log_style chosen;             /* form of the log's lines; set before the first thread starts */

static const char *const level_names[] = { "emerg", "alert", "crit", "error", "warning", "notice", "info", "debug" };

/* Returns whether the standard error is the systemd journal. The variable JOURNAL_STREAM is "device:inode" of the
 * journal's socket. Its presence alone proves nothing: a child whose standard error was redirected inherits the
 * variable, too. */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat found;

    return stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &found) == 0 &&
           found.st_dev == device && found.st_ino == inode;
}

void pd_log_set_level(int level)
{
    threshold = level;
}

void pd_log_open(int level, pd_log_format format)
{
    bool journal = is_journal();

    threshold = level;
    chosen = (pd_log_style){ .format = format, .prefix = journal, .time = !journal };
    pd_log_journal_close();
}

void pd_log_to_journal(const char *path)
{
    if (chosen.prefix && chosen.format == PD_LOG_TEXT) chosen.fields = pd_log_journal_open(path);
}

/* A line that is being put together: `used` of `size` bytes at `at`. */
typedef struct text {
    char *at;
    size_t used, size;
} text;

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

/* Appends `piece` to the line. If the text does not fit as a whole, it is not added, and the line counts as full from
 * then on. */
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
    size_t left = strlen(message), used;
    char out[PD_ESCAPE];

    add(t, "\"");
    for (; left > 0; message += used, left -= used) {
        size_t n = pd_json_next(out, message, left, &used);
        add_whole(t, out, n);
    }
    add(t, "\"");
}

static void add_text(text *t, pd_log_style style, uint64_t ms, const pd_log_entry *entry)
{
    if (style.time) add_time(t, ms);
    if (style.time) add(t, " ");
    if (entry->level <= LOG_WARNING) add(t, "%s: ", level_names[entry->level]);
    add_plain(t, entry->text);
}

/* Adds the key of a field (such as job or rank) in the line's format: ` key=` or `,"key":`. */
static void add_key(text *t, pd_log_style style, const char *key)
{
    add(t, style.format == PD_LOG_JSON ? ",\"%s\":" : " %s=", key);
}

/* Adds `n` characters of a log entry's text, from index `at` on, to the line, in quotes. */
static void add_part(text *t, const pd_log_entry *entry, size_t at, int n)
{
    char part[sizeof entry->text];

    snprintf(part, sizeof part, "%.*s", n, entry->text + at);
    add_quoted(t, part);
}

static void add_message(text *t, const pd_log_entry *entry)
{
    size_t end = entry->author > 0 ? entry->author - (sizeof PD_LOG_BY - 1) : strlen(entry->text);

    add_part(t, entry, entry->message, (int)(end - entry->message));
}

static void add_facts(text *t, pd_log_style style, const pd_log_entry *entry)
{
    if (entry->job_bytes > 0) add_key(t, style, "job");
    if (entry->job_bytes > 0) add_part(t, entry, PD_LOG_JOB_AT, entry->job_bytes);
    if (entry->has_rank) add_key(t, style, "rank");
    if (entry->has_rank) add(t, "%u", entry->rank);
    if (entry->has_step) add_key(t, style, "step");
    if (entry->has_step) add(t, "%llu", (unsigned long long)entry->step);
    if (entry->code != PD_OK) add_key(t, style, "code");
    if (entry->code != PD_OK) add_quoted(t, pd_code_name(entry->code));
    if (entry->author > 0) add_key(t, style, "author");
    if (entry->author > 0) add_quoted(t, entry->text + entry->author);
}

static void add_logfmt(text *t, pd_log_style style, uint64_t ms, const pd_log_entry *entry)
{
    if (style.time) add(t, "time=");
    if (style.time) add_time(t, ms);
    add(t, "%slevel=%s", style.time ? " " : "", level_names[entry->level]);
    add_facts(t, style, entry);
    add(t, " msg=");
    add_message(t, entry);
}

static void add_json(text *t, pd_log_style style, uint64_t ms, const pd_log_entry *entry)
{
    add(t, "{");
    if (style.time) add(t, "\"time\":\"");
    if (style.time) add_time(t, ms);
    add(t, "%s\"level\":\"%s\"", style.time ? "\"," : "", level_names[entry->level]);
    add_facts(t, style, entry);
    add(t, ",\"message\":");
    add_message(t, entry);
    add(t, "}");
}

/* Adds a field of a datagram for the journal. Characters that cannot be printed become '?'. */
static void add_field(text *t, const char *key, const char *value)
{
    add(t, "%c%s=", PD_LOG_JOURNAL_NEXT, key);
    add_plain(t, value);
}

static void add_fields(text *t, const pd_log_entry *entry)
{
    char job[sizeof entry->text];

    add(t, "PRIORITY=%d", entry->level);
    add_field(t, "MESSAGE", entry->text);
    add_field(t, "SYSLOG_IDENTIFIER", "paramd");
    snprintf(job, sizeof job, "%.*s", entry->job_bytes, entry->text + PD_LOG_JOB_AT);
    if (entry->job_bytes > 0) add_field(t, "JOB", job);
    if (entry->has_rank) add(t, "%cRANK=%u", PD_LOG_JOURNAL_NEXT, entry->rank);
    if (entry->has_step) add(t, "%cSTEP=%llu", PD_LOG_JOURNAL_NEXT, (unsigned long long)entry->step);
    if (entry->code != PD_OK) add_field(t, "CODE_NAME", pd_code_name(entry->code));
    if (entry->author > 0) add_field(t, "AUTHOR", entry->text + entry->author);
}

static size_t fields_line(char *out, size_t size, const pd_log_entry *entry)
{
    text t = { .at = out, .size = size - 1 }; /* one byte at the end is kept free for the newline */

    add_fields(&t, entry);
    t.size = size;
    add(&t, "\n");
    return t.used;
}

size_t pd_log_line(char *out, size_t size, pd_log_style style, uint64_t ms, const pd_log_entry *entry)
{
    text t = { .at = out, .size = size - 4 }; /* 4 bytes at the end of the line are kept free, to close the quotes of a
                                               * text that is cut */
    bool cut;

    if (style.fields) return fields_line(out, size, entry);
    if (style.prefix) add(&t, "<%d>", entry->level);
    switch (style.format) {
    case PD_LOG_TEXT: add_text(&t, style, ms, entry); break;
    case PD_LOG_LOGFMT: add_logfmt(&t, style, ms, entry); break;
    case PD_LOG_JSON: add_json(&t, style, ms, entry); break;
    }
    cut = t.used + 1 >= t.size;
    t.size = size;
    if (cut && style.format != PD_LOG_TEXT) { add(&t, style.format == PD_LOG_JSON ? "\"}" : "\""); }
    add(&t, "\n");
    return t.used;
}

/* Formats an entry as a line. Hands the line to the thread that writes the log, or writes it at once if that thread
 * does not run. */
static void put_line(const pd_log_entry *entry, uint64_t ms)
{
    char line[LINE_BYTES];
    size_t n = pd_log_line(line, sizeof line, chosen, ms, entry);

    if (!pd_log_ring_put(line, n)) pd_log_write(line, n);
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void make_entry(pd_log_entry *entry, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void make_entry(pd_log_entry *entry, int level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    pd_log_entry_make(entry, level, (pd_log_facts){ 0 }, format, args);
    va_end(args);
}

void pd_log_put(const pd_log_entry *entry)
{
    uint64_t ms = now_ms();
    pd_log_entry report;
    unsigned missed = 0;

    if (entry->level > threshold) return;
    if (entry->peer_hash != 0 ? !pd_log_may_report(entry, ms / 1000)
                              : !pd_log_may_speak(entry->site, ms / 1000, &missed))
        return;
    if (missed > 0) {
        make_entry(&report, LOG_WARNING, "left out %u more lines like the next one", missed);
        put_line(&report, ms);
    }
    put_line(entry, ms);
}

void pd_log(int level, const char *format, ...)
{
    pd_log_entry entry;
    va_list args;

    if (level > threshold) return;
    va_start(args, format);
    pd_log_entry_make(&entry, level, (pd_log_facts){ 0 }, format, args);
    va_end(args);
    pd_log_put(&entry);
}

/* Makes the line that reports how many lines of the log were lost. Returns its length. */
static size_t lost_line(char *out, size_t size, uint64_t lost)
{
    pd_log_entry entry;

    make_entry(&entry, LOG_WARNING, "lost %llu lines of the log: the standard error was not read fast enough",
               (unsigned long long)lost);
    return pd_log_line(out, size, chosen, now_ms(), &entry);
}

static void report_left_out(bool all)
{
    uint64_t ms = now_ms();
    pd_log_left_out left_out;
    pd_log_entry report;

    while (pd_log_take_left_out(&left_out, ms / 1000, all)) {
        make_entry(&report, LOG_WARNING, "%u lines about %s were left out: more than %d within %d s", left_out.lines,
                   left_out.peer, PD_LOG_BURST, PD_LOG_WINDOW_S);
        put_line(&report, ms);
    }
}

void pd_log_tick(void)
{
    report_left_out(false);
}

int pd_log_start(pd_error *err)
{
    return pd_log_ring_start(lost_line, err);
}
void pd_log_stop(void)
{
    report_left_out(true);
    pd_log_ring_stop();
}
