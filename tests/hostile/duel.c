/* duel.c - takes steps of a small job, and times them, while an attack runs on another thread. */
#include "duel.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "paramd/client.h"

enum { JOIN_S = 60, MOST_TIMES = 1 << 22, PREPARE_MS = 60000, NICE = 10 };

static _Noreturn void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void stop(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    _Exit(1);
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void wait_ms(double ms)
{
    if (ms > 0)
        nanosleep(&(struct timespec){ .tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)(fmod(ms, 1e3) * 1e6) }, NULL);
}

static void path_of_roles(char *out, size_t size, const char *folder)
{
    snprintf(out, size, "%s/roles", folder);
}

void duel_environment(const char *folder, bool read_only)
{
    char path[200];
    unsigned me = (unsigned)geteuid();
    FILE *file;

    path_of_roles(path, sizeof path, folder);
    if ((file = fopen(path, "w")) == NULL || fchmod(fileno(file), 0600) != 0) stop("%s: %s", path, strerror(errno));
    if (read_only)
        fprintf(file, "user:%u read *\nanyone admin *\n", me);
    else
        fprintf(file, "user:%u admin m-*\nanyone push small*\n", me);
    fprintf(file, "quota user:%u jobs=8 bytes=2G connections=64 requests=1000\n", me);
    fclose(file);
    setenv("PARAMD_SERVER_ROLES", path, 1);
    setenv("PARAMD_SERVER_STATE_DIR", folder, 1);
    setenv("PARAMD_HTTP_LISTEN", "127.0.0.1:0", 1);
    setenv("PARAMD_JOB_DURABILITY", "none", 1);
}

void duel_forget(const char *folder)
{
    char path[200];

    path_of_roles(path, sizeof path, folder);
    unlink(path);
}

struct duel_job {
    pd_client *client;
    pd_item item;
    float *weights, *gradient;
    double *ms;
};

duel_job *duel_join(const char *url, const char *job, int64_t rows, int64_t columns, const char *rule)
{
    int64_t elements = rows * columns;
    duel_job *j = calloc(1, sizeof *j);
    const char *rules[] = { rule, NULL };
    pd_client_param param = { .name = "w", .shape = { .rank = 2, .dim = { rows, columns } } };
    pd_client_options options = { .urls = url, .job = job, .world_size = 1, .rules = rules, .deadline = JOIN_S };
    pd_error err = { 0 };

    if (j == NULL) stop("no memory");
    j->weights = calloc((size_t)elements, sizeof *j->weights);
    j->gradient = calloc((size_t)elements, sizeof *j->gradient);
    j->ms = calloc(MOST_TIMES, sizeof *j->ms);
    if (j->weights == NULL || j->gradient == NULL || j->ms == NULL) stop("no memory");
    for (int64_t i = 0; i < elements; i++) j->gradient[i] = (float)(i % 7 - 3) * 1e-4f;
    j->item = (pd_item){ .param = 0, .weights = j->weights, .gradient = j->gradient };
    if (pd_client_open(&j->client, &options, &err) != PD_OK || pd_client_declare(j->client, &param, 1, &err) != PD_OK ||
        pd_client_init(j->client, (void *[]){ j->weights }, &err) != PD_OK) {
        stop("job %s: %s", job, err.text);
    }
    return j;
}

void duel_leave(duel_job *job)
{
    if (job == NULL) return;
    pd_client_close(job->client);
    free(job->weights);
    free(job->gradient);
    free(job->ms);
    free(job);
}

/* Takes one step. Returns false if it was not done in time. */
static bool step(duel_job *job)
{
    pd_ticket_id ticket;
    pd_error err = { 0 };
    int rc = pd_client_push_pull(job->client, &job->item, 1, NULL, &ticket, &err);

    if (rc == PD_OK) rc = pd_client_wait(job->client, ticket, DUEL_STUCK_S, &err);
    if (rc != PD_OK && rc != PD_DEADLINE_EXCEEDED) stop("a step of the small job: %s", err.text);
    return rc == PD_OK;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void duel_steps(duel_job *job, double seconds, bool paced, duel_times *out)
{
    double end = now_ms() + seconds * 1e3, begun;
    size_t n = 0;

    *out = (duel_times){ 0 };
    while (!out->stuck && (begun = now_ms()) < end) {
        double took;
        out->stuck = !step(job);
        took = now_ms() - begun;
        out->steps++;
        if (took > out->longest) out->longest = took;
        job->ms[n++] = took;
        for (double late = took - DUEL_PACE_MS; paced && late > 0 && n < MOST_TIMES / 2; late -= DUEL_PACE_MS)
            job->ms[n++] = late;
        if (paced) wait_ms(DUEL_PACE_MS - took);
        if (n >= MOST_TIMES / 2) break;
    }
    if (n == 0) return;
    qsort(job->ms, n, sizeof *job->ms, by_size);
    out->p50 = job->ms[n / 2];
    out->p99 = job->ms[(size_t)((double)(n - 1) * 0.99 + 0.5)];
}

typedef enum phase { PREPARES, RESTS, RUNS, ENDS } phase;

struct duel_attack {
    const attack *by;
    attack_scene scene;
    foe_side side, owner;
    pthread_t thread;
    pthread_mutex_t lock; /* of the fields below */
    pthread_cond_t changed;
    phase is, wanted;
    bool prepared;
    atomic_bool over;
};

/* Waits until the attack's thread is wanted to do something else than it does. Returns what it is to do. */
static phase await_order(duel_attack *d, phase is)
{
    phase wanted;

    pthread_mutex_lock(&d->lock);
    d->is = is;
    pthread_cond_broadcast(&d->changed);
    while (d->wanted == is) pthread_cond_wait(&d->changed, &d->lock);
    wanted = d->is = d->wanted;
    pthread_mutex_unlock(&d->lock);
    return wanted;
}

static void *run(void *arg)
{
    duel_attack *d = arg;

    /* The attacker would be on another machine: on this one it must not take the processors from those that it attacks.
     * So it has no real-time priority, which the program may have been started with (chrt -r 10). */
    (void)pthread_setschedparam(pthread_self(), SCHED_OTHER, &(struct sched_param){ 0 });
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    d->prepared = d->by->prepare == NULL || d->by->prepare(&d->scene);
    while (await_order(d, RESTS) == RUNS)
        if (d->prepared) d->by->run(&d->scene);
    return NULL;
}

/* Gives the attack's thread an order. `until` (PREPARES: none): waits until the thread is in that phase, for so many ms
 * at most. */
static void order(duel_attack *d, phase wanted, phase until, double ms)
{
    struct timespec limit;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += (time_t)(ms / 1e3);
    pthread_mutex_lock(&d->lock);
    d->wanted = wanted;
    atomic_store(&d->over, wanted == ENDS || (wanted == RESTS && d->is == RUNS));
    pthread_cond_broadcast(&d->changed);
    while (until != PREPARES && d->is != until)
        if (pthread_cond_timedwait(&d->changed, &d->lock, &limit) != 0) break;
    pthread_mutex_unlock(&d->lock);
}

duel_attack *duel_begin(const attack *by, const duel_daemon *daemon, uint32_t params, const char *running)
{
    duel_attack *d = calloc(1, sizeof *d);

    if (d == NULL) stop("no memory");
    d->by = by;
    d->wanted = RESTS;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    d->side = (foe_side){ .path = daemon->path, .over = &d->over };
    d->owner = (foe_side){ .port = daemon->port, .over = &d->over };
    d->scene = (attack_scene){ .side = &d->side,
                               .owner = daemon->read_only ? &d->owner : &d->side,
                               .job = "m-0",
                               .running = running,
                               .params = params,
                               .http_port = daemon->http_port };
    if (pthread_create(&d->thread, NULL, run, d) != 0) stop("cannot start a thread");
    order(d, RESTS, RESTS, PREPARE_MS);
    return d;
}

bool duel_is_prepared(duel_attack *d)
{
    bool prepared;

    pthread_mutex_lock(&d->lock);
    prepared = d->is == RESTS && d->prepared;
    pthread_mutex_unlock(&d->lock);
    return prepared;
}

void duel_go(duel_attack *d)
{
    order(d, RUNS, PREPARES, 0);
}

void duel_rest(duel_attack *d)
{
    order(d, RESTS, RESTS, PREPARE_MS);
}

void duel_end(duel_attack *d, foe_count *out)
{
    order(d, ENDS, PREPARES, 0);
    pthread_join(d->thread, NULL);
    attack_clear(&d->scene);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->changed);
    *out = d->side.count;
    if (out->error[0] == '\0') memcpy(out->error, d->owner.count.error, sizeof out->error);
    free(d);
}
