/* scrape_cost: how much scraping /metrics ten times a second slows down the steps of a job of 20,000 parameters. Blocks
 * of steps with and without scrapes alternate. Each block has a median step time, each pair of blocks the ratio of its
 * two medians. The figure is the median ratio. */
#include "figure.h"
#include "bench_team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

enum { PAIRS = 7, STEPS = 10, TENSORS = 20000, ELEMENTS = 256, EVERY_MS = 100 };

/* The thread that scrapes. */
typedef struct scraper {
    pthread_t thread;
    struct sockaddr_un address;
    atomic_bool stop;
    unsigned scrapes;
    size_t bytes; /* bytes of the last answer */
} scraper;

static void scrape(scraper *s)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char answer[65536];
    ssize_t got;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&s->address, sizeof s->address) != 0) figure_stop("cannot connect to scrape");
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0) figure_stop("cannot ask for metrics");
    s->bytes = 0;
    while ((got = recv(fd, answer, sizeof answer, 0)) > 0) s->bytes += (size_t)got;
    close(fd);
    if (s->bytes < 1000) figure_stop("a scrape got %zu bytes", s->bytes);
    s->scrapes++;
}

static void *run(void *arg)
{
    scraper *s = arg;

    while (!atomic_load(&s->stop)) {
        scrape(s);
        nanosleep(&(struct timespec){ .tv_nsec = EVERY_MS * 1000000L }, NULL);
    }
    return NULL;
}

static void start(scraper *s)
{
    atomic_store(&s->stop, false);
    if (pthread_create(&s->thread, NULL, run, s) != 0) figure_stop("no thread to scrape with");
}

static void end(scraper *s)
{
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
}

static double median_step(team *t)
{
    double ms[STEPS];

    team_steps(t, 2, NULL);
    team_steps(t, STEPS, ms);
    return figure_quantile(ms, STEPS, 0.5);
}

/* Measures the pairs of blocks. Every second pair begins with scrapes, so that a drift cancels out. */
static void measure(team *workers, scraper *s, double *ratio, double *alone)
{
    for (int i = 0; i < PAIRS; i++) {
        double beside = 0;
        for (int k = 0; k < 2; k++) {
            if (k == i % 2) {
                alone[i] = median_step(workers);
                continue;
            }
            start(s);
            beside = median_step(workers);
            end(s);
        }
        ratio[i] = beside / alone[i];
    }
}

int main(void)
{
    static int64_t elements[TENSORS];
    char folder[] = "/tmp/scrape_XXXXXX", url[128];
    scraper s = { .address = { .sun_family = AF_UNIX } };
    double ratio[PAIRS], alone[PAIRS], value;
    pd_child daemon;
    team *workers;

    figure_folder(folder);
    snprintf(url, sizeof url, "unix://%s/http", folder);
    snprintf(s.address.sun_path, sizeof s.address.sun_path, "%s/http", folder);
    setenv("PARAMD_HTTP_LISTEN", url, 1);
    figure_daemon(&daemon);
    for (int i = 0; i < TENSORS; i++) elements[i] = ELEMENTS;
    workers = team_start(
        &(team_options){ .url = daemon.url, .job = "scraped", .workers = 2, .elements = elements, .n = TENSORS });
    median_step(workers);
    measure(workers, &s, ratio, alone);
    value = figure_quantile(ratio, PAIRS, 0.5);
    printf("%.3f\tratios %.3f to %.3f of %d pairs; median step alone %.1f ms; %u scrapes of %.1f KiB\n", value,
           ratio[0], ratio[PAIRS - 1], PAIRS, figure_quantile(alone, PAIRS, 0.5), s.scrapes, (double)s.bytes / 1024);
    team_end(workers);
    pd_child_stop(&daemon);
    figure_remove(folder);
    return 0;
}
