/* logring.c - keeps log lines in a ring, from which a separate thread writes them to the standard error or to the
 * journal. */
#include "logring.h"

#include "thread.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int journal = -1; /* socket to the journal; set before the first thread starts */

bool pd_log_journal_open(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    pd_log_journal_close();
    if (strlen(path) >= sizeof address.sun_path) return false;
    strcpy(address.sun_path, path);
    if ((journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0) return false;
    if (connect(journal, (struct sockaddr *)&address, sizeof address) != 0) pd_log_journal_close();
    return journal >= 0;
}

void pd_log_journal_close(void)
{
    if (journal >= 0) close(journal);
    journal = -1;
}

static bool journal_is_open(void)
{
    return journal >= 0;
}

/* Sends a log entry, a line of fields, to the journal. With `waits` false, does not wait until the journal has room.
 * Returns false if the journal has not taken the entry. Safe in a signal handler. */
static bool send_to_journal(const char *line, size_t n, bool waits)
{
    char datagram[PD_LOG_JOURNAL_LINE];

    if (n > sizeof datagram) return false;
    for (size_t i = 0; i < n; i++) datagram[i] = line[i] == PD_LOG_JOURNAL_NEXT ? '\n' : line[i];
    return send(journal, datagram, n, MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT)) == (ssize_t)n;
}

/* Converts a line of fields into the line that the journal reads from the standard error: "<5>message". Stores that
 * line in `out`, and returns its length. Safe in a signal handler. */
static size_t plain_line(char out[PD_LOG_JOURNAL_LINE], const char *line, size_t n)
{
    static const char priority[] = "PRIORITY=", message[] = "MESSAGE=";
    size_t at = sizeof priority - 1, used = 0;

    out[used++] = '<';
    out[used++] = at < n ? line[at] : '6';
    out[used++] = '>';
    at += 1 + sizeof message; /* the digit, the separator, and the name of the second field */
    while (at < n && line[at] != PD_LOG_JOURNAL_NEXT && line[at] != '\n' && used + 1 < PD_LOG_JOURNAL_LINE)
        out[used++] = line[at++];
    out[used++] = '\n';
    return used;
}

enum { LINE_BYTES = PD_LOG_JOURNAL_LINE, CRASH_MS = 200 };

/* The ring of log lines: the bytes from position `written` to position `put` are not written yet; both numbers only
 * grow, with `lock` held. The line that the thread is writing stays in the ring, so that on_abort finds it. */
static char ring[PD_LOG_RING_BYTES];
static atomic_size_t put, written;
static uint64_t lost;   /* number of log lines that did not fit into the ring and are not reported yet */
static bool runs, ends; /* runs: the thread was started. ends: the thread must end when all lines are written */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, empty;
static pthread_t thread;
static pd_log_report *report_lost; /* function that makes the line about lost lines; set before the thread starts */

static void write_all(const char *line, size_t n)
{
    while (n > 0) {
        ssize_t part = write(STDERR_FILENO, line, n);
        if (part < 0 && errno == EAGAIN)
            poll(&(struct pollfd){ .fd = STDERR_FILENO, .events = POLLOUT }, 1, -1);
        else if (part < 0 && errno != EINTR)
            return; /* the log line is lost, because there is no place to report the error */
        if (part <= 0) continue;
        line += part;
        n -= (size_t)part;
    }
}

void pd_log_write(const char *line, size_t n)
{
    char plain[PD_LOG_JOURNAL_LINE];

    if (!journal_is_open())
        write_all(line, n);
    else if (!send_to_journal(line, n, true))
        write_all(plain, plain_line(plain, line, n));
}

static size_t used(void)
{
    return put - written;
}

static bool is_owed(void)
{
    return used() > 0 || lost > 0;
}

static void copy_in(const char *line, size_t n)
{
    size_t at = put % sizeof ring, part = n < sizeof ring - at ? n : sizeof ring - at;

    memcpy(ring + at, line, part);
    memcpy(ring, line + part, n - part);
    put += n;
}

/* Copies the log line at a position of the ring to `out`. Returns its length. Safe in a signal handler. */
static size_t copy_out(char out[LINE_BYTES], size_t at)
{
    size_t n = 0;

    do out[n] = ring[(at + n) % sizeof ring];
    while (out[n++] != '\n');
    return n;
}

/* Puts a log line into the ring. If lines were lost before it, puts the report of them first. If both do not fit, this
 * line is lost, too. */
static void put_or_lose(const char *line, size_t n)
{
    char report[256];
    size_t length = lost > 0 ? report_lost(report, sizeof report, lost) : 0;

    if (n + length > sizeof ring - used()) {
        lost++;
        return;
    }
    copy_in(report, length);
    copy_in(line, n);
    lost = 0;
}

bool pd_log_ring_put(const char *line, size_t n)
{
    bool taken_over;

    pthread_mutex_lock(&lock);
    taken_over = runs;
    if (runs) put_or_lose(line, n);
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&lock);
    return taken_over;
}

/* Copies the oldest log line of the ring to `line`. If the ring is empty but lines were lost, puts the report of them
 * first. Returns the line's length; 0: there is no line. */
static size_t next_line(char line[LINE_BYTES])
{
    if (used() == 0 && lost > 0) {
        copy_in(line, report_lost(line, LINE_BYTES, lost));
        lost = 0;
    }
    return used() > 0 ? copy_out(line, written) : 0;
}

static void *write_lines(void *arg)
{
    char line[LINE_BYTES];
    size_t n;

    (void)arg;
    pthread_mutex_lock(&lock);
    while ((n = next_line(line)) > 0 || !ends) {
        if (n == 0) {
            pthread_cond_wait(&more, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        pd_log_write(line, n);
        pthread_mutex_lock(&lock);
        written += n;
        if (!is_owed()) pthread_cond_broadcast(&empty);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Writes the log lines that are left in the ring when the process aborts after a failed assertion, because they may
 * show why. The line that the thread is writing may come twice. Gives up if the standard error takes no bytes for
 * CRASH_MS. */
static void on_abort(int number)
{
    struct pollfd out = { .fd = STDERR_FILENO, .events = POLLOUT };
    size_t at = written, end = put;

    (void)number;
    while (journal_is_open() && at < end) {
        static char line[LINE_BYTES];
        size_t n = copy_out(line, at);
        if (!send_to_journal(line, n, false)) return;
        at += n;
    }
    while (at < end && poll(&out, 1, CRASH_MS) == 1 && (out.revents & POLLOUT) != 0) {
        size_t from = at % sizeof ring, n = end - at;
        if (n > sizeof ring - from) n = sizeof ring - from;
        ssize_t taken = write(STDERR_FILENO, ring + from, n < 512 ? n : 512);
        if (taken <= 0) return;
        at += (size_t)taken;
    }
}

int pd_log_ring_start(pd_log_report *report, pd_error *err)
{
    struct sigaction action = { .sa_handler = on_abort, .sa_flags = (int)SA_RESETHAND };
    pthread_condattr_t monotonic;
    int rc;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&empty, &monotonic);
    pthread_condattr_destroy(&monotonic);
    report_lost = report;
    ends = false;
    rc = pd_thread_start(&thread, write_lines, NULL, "thread that writes the log", err);
    if (rc != PD_OK) return rc;
    sigaction(SIGABRT, &action, NULL);
    pthread_mutex_lock(&lock);
    runs = true;
    pthread_mutex_unlock(&lock);
    return PD_OK;
}

/* Waits until all log lines are written. Called with the lock held. Returns false if the standard error does not take
 * them in time. */
static bool wait_until_written(void)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PD_LOG_FLUSH_S;
    while (is_owed() && rc == 0) rc = pthread_cond_timedwait(&empty, &lock, &until);
    return !is_owed();
}

/* Stops the thread that writes the log. A thread that is blocked by a full pipe is detached, and ends with the
 * process. */
void pd_log_ring_stop(void)
{
    bool done;

    pthread_mutex_lock(&lock);
    if (!runs) {
        pthread_mutex_unlock(&lock);
        return;
    }
    ends = true;
    pthread_cond_signal(&more);
    done = wait_until_written();
    runs = false;
    pthread_mutex_unlock(&lock);
    signal(SIGABRT, SIG_DFL);
    if (done)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
}
