/* scraper.c - peers of the HTTP listener. Each opens connections one after the other, with one request each. */
#include "scraper.h"

#include "http.h"
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FLOOD: connections that one of the peers opens at once. LATEST_MS: longest time of a connection; the loop thread may
 * stand still for a second. */
enum { LONG_PATH = 9000, PUBLISHED = 4096, FLOOD = PD_HTTP_MOST + 20, LATEST_MS = PD_HTTP_MS + 3000 };

/* A request, and the status that it gets. */
typedef struct ask {
    const char *text;
    int status;
    bool metrics; /* the answer has the numbers of jobs */
} ask;

#define HOST "Host: localhost\r\n"

static const ask asks[] = {
    { "GET /metrics HTTP/1.1\r\n" HOST "\r\n", 200, true },
    { "GET /metrics HTTP/1.1\r\n" HOST "Accept: application/openmetrics-text\r\n\r\n", 200, true },
    { "GET /metrics HTTP/1.0\r\n\r\n", 200, true },
    { "HEAD /metrics HTTP/1.1\r\n" HOST "\r\n", 200, false },
    { "GET /jobs.json HTTP/1.1\r\n" HOST "\r\n", 200, false },
    { "GET /healthz HTTP/1.1\r\n" HOST "\r\n", 200, false },
    { "GET / HTTP/1.1\r\n" HOST "\r\n", 200, false },
    { "GET /metr", 408, false }, /* the rest never comes */
    { "GET /nothing HTTP/1.1\r\n" HOST "\r\n", 404, false },
    { "POST /metrics HTTP/1.1\r\n" HOST "\r\n", 405, false },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\n", 413, false },
    { "GET /metrics HTTP/1.1\r\n" HOST HOST "\r\n", 400, false },
    { "GET /metrics HTTP/1.1\r\nHost: strange.example\r\n\r\n", 421, false },
    { "\x16\x03\x01\x02\n", 400, false }, /* as TLS begins, with the end of a line */
    { "", 414, false },                   /* a path without end */
};
enum { ASKS = sizeof asks / sizeof *asks };

typedef struct sim_scraper {
    sim *s;
    const sim_fault *fault;
    pd_transport *transport; /* NULL: no connection is open */
    const ask *ask;
    char request[LONG_PATH + 1];
    size_t n, sent;   /* bytes of the request */
    bool reads;       /* false: it never reads, and is closed by the server */
    bool once;        /* it opens one connection */
    uint64_t failed;  /* allocations that had failed when the connection began */
    char *answer;     /* with a final zero */
    size_t got, room; /* bytes of the answer */
    uint64_t begun_ns;
    struct sim_scraper *next;
} sim_scraper;

/* The contributions to jobs that the store has published, newest last. */
static struct published {
    char job[16];
    uint64_t contributions;
} published[PUBLISHED];
static size_t n_published;

static bool was_published(const char *job, size_t n, uint64_t contributions)
{
    for (size_t i = n_published; i-- > 0;)
        if (strlen(published[i].job) == n && memcmp(published[i].job, job, n) == 0 &&
            published[i].contributions == contributions)
            return true;
    return false;
}

/* Checks the samples of one metric: each job of the plan has a number that the store has published. */
static void check_metrics(const sim_scraper *p)
{
    static const char name[] = "\nparamd_contributions_total{job=\"job";

    for (const char *at = strstr(p->answer, name); at != NULL; at = strstr(at + 1, name)) {
        const char *job = strchr(at, '"') + 1;
        size_t n = strcspn(job, "\"");
        uint64_t value = strtoull(job + n + 2, NULL, 10);

        if (!was_published(job, n, value))
            sim_fail("consistency", "metrics have %llu contributions to %.*s, which the store has not published",
                     (unsigned long long)value, (int)n, job);
    }
}

static bool ends_with(const sim_scraper *p, const char *end)
{
    return p->got >= strlen(end) && strcmp(p->answer + p->got - strlen(end), end) == 0;
}

/* Checks an answer whose end the server has sent. An answer may be cut where the server has no memory or stops, and a
 * request may time out where the loop thread stands still. */
static void check_answer(sim_scraper *p)
{
    int status = 0;

    if (p->failed != sim_failed_allocations() || sim_server_draining(p->s->server)) return;
    if (sscanf(p->answer, "HTTP/1.1 %d ", &status) != 1) sim_fail("consistency", "an HTTP answer of no status");
    sim_note(p->s, "scraper", p->fault->rank, "is answered", (uint64_t)status, 0);
    if (status == 408 || status == 429) return;
    if (status != p->ask->status)
        sim_fail("consistency", "HTTP status %d, expected %d: %.60s", status, p->ask->status, p->ask->text);
    if (strstr(p->answer, "\r\nTransfer-Encoding: chunked\r\n") != NULL && p->ask->text[0] == 'G' &&
        !ends_with(p, "\r\n0\r\n\r\n"))
        sim_fail("consistency", "an HTTP answer ends too early: %.60s", p->ask->text);
    if (p->ask->metrics) check_metrics(p);
}

static void leave(sim_scraper *p)
{
    if (p->transport != NULL) p->transport->ops->close(p->transport);
    p->transport = NULL;
}

static void say_more(sim_scraper *p)
{
    struct iovec span = { p->request + p->sent, p->n - p->sent };
    pd_error err;
    ssize_t n = p->sent < p->n ? p->transport->ops->send(p->transport, &span, 1, &err) : 0;

    if (n > 0) p->sent += (size_t)n;
    p->transport->ops->watch(p->transport, (p->reads ? PD_ON_READ : 0) | (p->sent < p->n ? PD_ON_WRITE : 0));
}

static void make_room(sim_scraper *p)
{
    if (p->room - p->got > 4096) return;
    p->room = 2 * p->room + 8192;
    p->answer = sim_must(realloc(p->answer, p->room));
}

/* Reads what has come. Returns false if the connection has ended. */
static bool hear(sim_scraper *p)
{
    struct iovec span;
    pd_error err;
    ssize_t n;

    do {
        make_room(p);
        span = (struct iovec){ p->answer + p->got, p->room - p->got - 1 };
        if ((n = p->transport->ops->receive(p->transport, &span, 1, &err)) > 0) p->got += (size_t)n;
    } while (n > 0);
    p->answer[p->got] = '\0';
    if (n == PD_CANCELLED) check_answer(p);
    return n == 0;
}

static void open_one(sim *s, void *who, uint64_t what);

static void on_ready(void *arg, unsigned events)
{
    sim_scraper *p = arg;

    if (p->transport == NULL) return;
    if ((events & PD_ON_WRITE) != 0) say_more(p);
    if (!p->reads || hear(p)) return;
    leave(p);
    if (!p->once) sim_after(p->s, sim_draw(p->s, 300 * SIM_MS), open_one, p, 0);
}

static void write_request(sim_scraper *p)
{
    p->ask = &asks[sim_draw(p->s, ASKS)];
    p->n = strlen(p->ask->text);
    memcpy(p->request, p->ask->text, p->n);
    if (p->n > 0) return;
    p->n = LONG_PATH;
    memset(p->request, 'a', p->n);
}

/* Opens the next connection, unless the world is calm. */
static void open_one(sim *s, void *who, uint64_t what)
{
    sim_scraper *p = who;

    (void)what;
    if (s->calm || s->ended) return;
    write_request(p);
    p->sent = p->got = 0;
    p->reads = !sim_chance(s, 8);
    p->begun_ns = s->now_ns;
    p->failed = sim_failed_allocations();
    p->transport = sim_server_connect_http(s->server);
    if (p->transport == NULL) {
        if (!p->once) sim_after(s, 100 * SIM_MS, open_one, p, 0);
        return;
    }
    p->transport->ready = on_ready;
    p->transport->arg = p;
    p->transport->ops->watch(p->transport, PD_ON_WRITE | (p->reads ? PD_ON_READ : 0));
}

static void start(sim *s, const sim_fault *fault, bool once)
{
    sim_scraper *p = sim_must(calloc(1, sizeof *p));

    p->s = s;
    p->fault = fault;
    p->once = once;
    p->next = s->scrapers;
    s->scrapers = p;
    open_one(s, p, 0);
}

void sim_scraper_start(sim *s, const sim_fault *fault)
{
    for (int i = 0; fault->rank == SIM_SCRAPE_FLOOD && i < FLOOD; i++) start(s, fault, true);
    start(s, fault, false);
}

void sim_scrapers_published(sim *s, const pd_job_stats *stats)
{
    struct published *entry = &published[n_published];

    if (s->scrapers == NULL && !s->plan->scrapes) return;
    if (n_published == PUBLISHED) sim_fail("harness", "more than %d figures were published", PUBLISHED);
    snprintf(entry->job, sizeof entry->job, "%.15s", stats->info.name);
    entry->contributions = stats->info.contributions;
    n_published++;
}

void sim_scrapers_check(sim *s)
{
    for (sim_scraper *p = s->scrapers; p != NULL; p = p->next) {
        if (p->transport == NULL || !p->reads || s->now_ns < p->begun_ns + LATEST_MS * SIM_MS) continue;
        sim_fail("liveness", "an HTTP request is neither answered nor refused: %.60s", p->ask->text);
    }
}

void sim_scrapers_leave(sim *s)
{
    for (sim_scraper *p = s->scrapers; p != NULL; p = p->next) leave(p);
}

void sim_scrapers_free(sim *s)
{
    while (s->scrapers != NULL) {
        sim_scraper *p = s->scrapers;
        s->scrapers = p->next;
        leave(p);
        free(p->answer);
        free(p);
    }
    n_published = 0;
}
