/* flood.c - connections that flood a daemon with requests. */
#include "flood.h"

#include <pthread.h>
#include <stdatomic.h>

#include "figure.h"
#include "wire.h"

enum { LARGE = 20000, IN_A_FRAME = 1000, LISTS = 6000, STATUSES = 4000 };

int flood_job(const char *url)
{
    int fd = wire_connect(url);

    wire_hello(fd, "large", 0, 1, 7);
    wire_receive(fd, NULL);
    for (uint32_t first = 0; first < LARGE; first += IN_A_FRAME)
        wire_declare(fd, 2 + first, first, IN_A_FRAME, 16, first + IN_A_FRAME == LARGE);
    for (uint32_t first = 0; first < LARGE; first += IN_A_FRAME) wire_receive(fd, NULL);
    return fd;
}

typedef struct flood {
    const char *url;
    int fd;
    atomic_bool over;
} flood;

static void *write_requests(void *arg)
{
    const flood *f = arg;
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    list.what = PARAMD__LIST_KIND__LIST_PARAMS;
    list.job = (char *)"large";
    for (uint64_t i = 0; i < LISTS + STATUSES; i++) {
        list.start = i * 256 % LARGE;
        if (i % 5 < 3)
            wire_ask(f->fd, PD_LIST, 2 + i, &list.base, 0);
        else
            wire_ask(f->fd, PD_STATUS, 2 + i, &empty.base, 0);
    }
    return NULL;
}

static void *read_answers(void *arg)
{
    flood *f = arg;

    /* a frame with request id 0 answers no request: it is a heartbeat */
    for (int i = 0; i < LISTS + STATUSES;) i += wire_receive(f->fd, NULL).request != 0;
    atomic_store(&f->over, true);
    return NULL;
}

static double hello_ms(const char *url, uint64_t nonce)
{
    double begun = figure_ms();
    int fd = wire_connect(url);

    wire_hello(fd, "other", 0, 1, nonce);
    wire_receive(fd, NULL);
    close(fd);
    return figure_ms() - begun;
}

size_t flood_run(const char *url, double *ms, size_t most, double *whole_ms)
{
    flood f = { .url = url, .fd = wire_connect(url) };
    pthread_t writer, reader;
    double begun;
    size_t n = 0;

    wire_hello(f.fd, "", 0, 0, 1);
    wire_receive(f.fd, NULL);
    begun = figure_ms();
    if (pthread_create(&writer, NULL, write_requests, &f) != 0 || pthread_create(&reader, NULL, read_answers, &f) != 0)
        figure_stop("cannot start a thread");
    for (uint64_t nonce = 100; !atomic_load(&f.over) && n < most; nonce++) {
        ms[n++] = hello_ms(url, nonce);
        usleep(1000);
    }
    pthread_join(writer, NULL);
    pthread_join(reader, NULL);
    *whole_ms = figure_ms() - begun;
    close(f.fd);
    return n;
}

double flood_resident_mib(pid_t pid)
{
    char path[64];
    long pages = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    if ((file = fopen(path, "r")) == NULL || fscanf(file, "%*s %ld", &pages) != 1)
        figure_stop("%s cannot be read", path);
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}
