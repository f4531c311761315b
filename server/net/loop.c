/* loop.c - keeps the table of connections and the remarks, posts requests to the store, and measures how busy the loop
 * is. */
#include "loop.h"

#include "paramd/error.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#define FIRST_NS 1000.0

static int bucket_of(uint64_t ns)
{
    int bucket = ns <= FIRST_NS ? 0 : (int)ceil(8.0 * log2((double)ns / FIRST_NS));
    return bucket < PD_LAG_BUCKETS ? bucket : PD_LAG_BUCKETS - 1;
}

void pd_lag_count(pd_lag *lag, uint64_t busy_ns)
{
    lag->count[bucket_of(busy_ns)]++;
    lag->polls++;
    lag->sum_ns += busy_ns;
    if (busy_ns > lag->largest_ns) lag->largest_ns = busy_ns;
}

void pd_lag_poll(pd_lag *lag)
{
    struct timespec now;
    uint64_t ns;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (lag->last_ns != 0) pd_lag_count(lag, ns - lag->last_ns);
    lag->last_ns = ns;
}

double pd_lag_percentile(const pd_lag *lag, double fraction)
{
    uint64_t wanted = (uint64_t)ceil(fraction * (double)lag->polls), seen = 0;

    if (lag->polls == 0) return 0;
    for (int i = 0; i < PD_LAG_BUCKETS - 1; i++) { /* the last bucket of the histogram is left out, because it has no
                                                    * upper bound */
        double upper = FIRST_NS * exp2(i / 8.0);
        seen += lag->count[i];
        if (seen >= wanted) return (upper < (double)lag->largest_ns ? upper : (double)lag->largest_ns) / 1e6;
    }
    return (double)lag->largest_ns / 1e6;
}

static const char many[] = "there are more warnings about this job in the daemon's log";

/* Returns whether two texts are equal, if the digits and points in them are ignored. */
static bool alike(const char *a, const char *b)
{
    static const char numeric[] = "0123456789.";

    for (;; a++, b++) {
        a += strspn(a, numeric);
        b += strspn(b, numeric);
        if (*a != *b) return false;
        if (*a == '\0') return true;
    }
}

static void forget(pd_remark *remark)
{
    free(remark->job);
    free(remark->text);
    *remark = (pd_remark){ 0 };
}

static bool is_of(const pd_remark *remark, const char *job)
{
    return remark->job != NULL && strcmp(remark->job, job) == 0;
}

/* Returns the text to keep as a new remark (a warning for the job's workers): `text`, or `many`, which refers to the
 * log, if only one more remark of the job is kept. NULL: the job has a similar remark, or no more are kept. */
static const char *news(const pd_remarks *remarks, const char *job, const char *text)
{
    int of_job = 0;

    for (size_t i = 0; i < PD_REMARKS; i++) {
        if (!is_of(&remarks->at[i], job)) continue;
        if (alike(remarks->at[i].text, text)) return NULL;
        of_job++;
    }
    if (of_job >= PD_REMARKS_OF_JOB) return NULL;
    return of_job == PD_REMARKS_OF_JOB - 1 ? many : text;
}

static const pd_remark *keep(pd_remarks *remarks, const char *job, const char *text, int64_t rank)
{
    pd_remark *remark = &remarks->at[remarks->n % PD_REMARKS];

    forget(remark);
    remark->job = strdup(job);
    remark->text = strdup(text);
    remark->rank = rank;
    if (remark->job == NULL || remark->text == NULL) {
        forget(remark);
        return NULL;
    }
    remarks->n++;
    return remark;
}

const pd_remark *pd_remarks_add(pd_remarks *remarks, const pd_log_entry *entry)
{
    char job[sizeof entry->text];
    const char *text;

    if (entry->level > LOG_WARNING || entry->job_bytes == 0 || entry->code == PD_DEADLINE_EXCEEDED) return NULL;
    memcpy(job, entry->text + PD_LOG_JOB_AT, entry->job_bytes);
    job[entry->job_bytes] = '\0';
    text = news(remarks, job, entry->text + PD_LOG_JOB_AT + entry->job_bytes + strlen(": "));
    return text != NULL ? keep(remarks, job, text, entry->has_rank && text != many ? (int64_t)entry->rank : -1) : NULL;
}

const pd_remark *pd_remarks_next(const pd_remarks *remarks, const char *job, uint64_t *at)
{
    if (remarks->n > PD_REMARKS && *at < remarks->n - PD_REMARKS) *at = remarks->n - PD_REMARKS;
    while (*at < remarks->n) {
        const pd_remark *remark = &remarks->at[(*at)++ % PD_REMARKS];
        if (is_of(remark, job)) return remark;
    }
    return NULL;
}

void pd_remarks_begin(pd_remarks *remarks, const char *job)
{
    for (size_t i = 0; i < PD_REMARKS; i++)
        if (is_of(&remarks->at[i], job)) forget(&remarks->at[i]);
}

void pd_remarks_free(pd_remarks *remarks)
{
    for (size_t i = 0; i < PD_REMARKS; i++) forget(&remarks->at[i]);
}

/* About how many bytes all connections together move in one turn of the loop, so that a turn stays short. */
#define TURN_BYTES (1024 * 1024)
#define LEAST_QUOTA (32 * 1024)
#define MOST_QUOTA (256 * 1024)

uint64_t pd_loop_now_ms(const pd_daemon *daemon)
{
    return daemon->platform.now_ms(daemon->platform.arg);
}
uint64_t pd_loop_clock_ns(const pd_daemon *daemon)
{
    return daemon->platform.clock_ns(daemon->platform.arg);
}

void pd_loop_log(const pd_daemon *daemon, int level, pd_log_facts facts, const char *format, ...)
{
    pd_log_entry entry;
    va_list args;

    va_start(args, format);
    pd_log_entry_make(&entry, level, facts, format, args);
    va_end(args);
    daemon->config.hooks.log(&entry);
}

void pd_loop_host(char *host, const char *peer)
{
    const char *colon = strrchr(peer, ':');
    size_t n = colon != NULL ? (size_t)(colon - peer) : strlen(peer);

    snprintf(host, PD_LOG_PEER, "%.*s", (int)n, peer);
}

void pd_loop_count_refusal(pd_daemon *daemon, int code)
{
    _Static_assert(PD_LOOP_CODES == 1 - PD_REWIND, "each error code has a counter");
    daemon->counters.frames_refused++;
    if (code <= 0 && code > -PD_LOOP_CODES) daemon->counters.refused_by[-code]++;
}

struct pd_conn *pd_loop_find(pd_daemon *daemon, uint64_t number)
{
    size_t place = number % daemon->table.capacity;
    return daemon->table.numbers[place] == number ? daemon->table.at[place] : NULL;
}

int pd_loop_place(pd_daemon *daemon, struct pd_conn *conn, uint64_t *number)
{
    size_t place = daemon->table.next_place;

    if (daemon->table.n == daemon->table.capacity) return PD_RESOURCE_EXHAUSTED;
    while (daemon->table.at[place] != NULL) place = (place + 1) % daemon->table.capacity;
    *number = daemon->table.numbers[place] = ++daemon->table.serial * daemon->table.capacity + place;
    daemon->table.at[place] = conn;
    daemon->table.parties[place] = 0;
    daemon->table.n++;
    daemon->table.next_place = (place + 1) % daemon->table.capacity;
    return PD_OK;
}

void pd_loop_set_party(pd_daemon *daemon, uint64_t number, uint64_t party)
{
    daemon->table.parties[number % daemon->table.capacity] = party;
}

void pd_loop_remove(pd_daemon *daemon, uint64_t number)
{
    daemon->table.at[number % daemon->table.capacity] = NULL;
    daemon->table.n--;
}

size_t pd_loop_quota(const pd_daemon *daemon)
{
    size_t quota = TURN_BYTES / (daemon->table.was_active > 0 ? daemon->table.was_active : 1);

    if (quota > MOST_QUOTA) return MOST_QUOTA;
    return quota < LEAST_QUOTA ? LEAST_QUOTA : quota;
}

/* Stores in a request the number of the identity that sends it: that of its connection, which may be closed by now. The
 * daemon's own requests have no connection, and get none. */
static void sign(const pd_daemon *daemon, pd_request *request)
{
    size_t place = request->ticket.conn % daemon->table.capacity;

    if (daemon->table.numbers[place] == request->ticket.conn) request->party = daemon->table.parties[place];
}

void pd_loop_post(pd_daemon *daemon, pd_request *request)
{
    if (request->party == 0) sign(daemon, request);
    request->mail.next = NULL;
    if (daemon->mail.first == NULL)
        daemon->mail.first = &request->mail;
    else
        daemon->mail.last->next = &request->mail;
    daemon->mail.last = &request->mail;
}

void pd_loop_keep_notice(pd_daemon *daemon, pd_request *notice)
{
    sign(daemon, notice);
    notice->mail.next = daemon->mail.notices != NULL ? &daemon->mail.notices->mail : NULL;
    daemon->mail.notices = notice;
}

pd_request *pd_loop_take_notice(pd_daemon *daemon, uint64_t number)
{
    pd_request *before = NULL, *notice = daemon->mail.notices, *next;

    for (; notice != NULL && notice->ticket.conn != number; notice = (pd_request *)(void *)notice->mail.next)
        before = notice;
    if (notice == NULL) return NULL;
    next = (pd_request *)(void *)notice->mail.next;
    if (before == NULL)
        daemon->mail.notices = next;
    else
        before->mail.next = notice->mail.next;
    return notice;
}

void pd_loop_post_released(pd_daemon *daemon)
{
    pd_request *request;

    if (daemon->mail.released == NULL) return;
    request = pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 });
    /* out of memory: the published versions stay in the list for the next turn */
    if (request == NULL) return;
    request->u.released.first = daemon->mail.released;
    daemon->mail.released = NULL;
    pd_loop_post(daemon, request);
}

/* Posts all requests of a turn in one call, so that the step thread is woken only once. */
void pd_loop_flush(pd_daemon *daemon)
{
    int rc;

    pd_loop_post_released(daemon);
    if (daemon->mail.first == NULL) return;
    rc = pd_mailbox_post(daemon->mail.requests, daemon->mail.first, daemon->mail.last);
    assert(rc == PD_OK); /* posting cannot fail, because the mailbox is closed only after the loop thread has ended */
    (void)rc;
    daemon->mail.first = daemon->mail.last = NULL;
}
