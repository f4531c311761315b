/* figures.c - keeps the last copy of each job's figures and the points of its curves, counts bytes by job, and reads
 * the daemon's figures. */
#include "figures.h"

#include "conn.h"
#include "grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

struct pd_traffic {
    uint32_t job; /* number of the job and key of the hash table. The store chooses it, not a peer, so the hash needs no
                   * secret */
    uint64_t in, out;
    UT_hash_handle hh;
};

static pd_traffic *find_traffic(pd_traffic *jobs, uint32_t job)
{
    pd_traffic *found;
    HASH_FIND(hh, jobs, &job, sizeof job, found);
    return found;
}

void pd_traffic_add(pd_traffic **jobs, uint32_t job)
{
    pd_traffic *added = find_traffic(*jobs, job) == NULL ? calloc(1, sizeof *added) : NULL;

    if (added == NULL) return;
    added->job = job;
    HASH_ADD(hh, *jobs, job, sizeof added->job, added);
    if (added->hh.tbl == NULL) free(added);
}

void pd_traffic_count(pd_traffic *jobs, uint32_t job, uint64_t in, uint64_t out)
{
    pd_traffic *found = job != 0 ? find_traffic(jobs, job) : NULL;

    if (found == NULL) return;
    found->in += in;
    found->out += out;
}

void pd_traffic_read(pd_traffic *jobs, uint32_t job, uint64_t *in, uint64_t *out)
{
    const pd_traffic *found = find_traffic(jobs, job);

    *in = found != NULL ? found->in : 0;
    *out = found != NULL ? found->out : 0;
}

void pd_traffic_remove(pd_traffic **jobs, uint32_t job)
{
    pd_traffic *found = find_traffic(*jobs, job);

    if (found == NULL) return;
    HASH_DEL(*jobs, found);
    free(found);
}

void pd_traffic_free(pd_traffic **jobs)
{
    while (*jobs != NULL) pd_traffic_remove(jobs, (*jobs)->job);
}

enum { FIRST_POINTS = 16 }; /* number of points for which a job gets room with its first point */

/* Drops every second point. From now on, points are added half as often. */
static void thin(pd_history *history)
{
    for (size_t i = 0; i < history->n / 2; i++) history->at[i] = history->at[2 * i + 1];
    history->n /= 2;
    history->every *= 2;
}

static pd_history_point point_of(const pd_history *history, const pd_job_stats *stats)
{
    const pd_job_info *info = &stats->info;
    uint64_t steps = info->step_least - history->step;
    bool measured = history->step_ns > 0 && stats->step_ns > history->step_ns;

    return (pd_history_point){
        .step = info->step_least,
        .loss = info->loss_step > 0 ? info->loss : NAN,
        .gradient_norm = info->gradient_norm > 0 ? info->gradient_norm : NAN,
        .ms_per_step = measured ? (double)(stats->step_ns - history->step_ns) / 1e6 / (double)steps : NAN,
    };
}

static void add_point(pd_history *history, const pd_job_stats *stats)
{
    size_t want;

    /* remove the points of steps that the job repeats after a rewind */
    while (history->n > 0 && stats->info.step_least < history->step &&
           history->at[history->n - 1].step > stats->info.step_least)
        history->n--;
    if (stats->step_ns == 0 || stats->info.step_least <= history->step) {
        history->step = stats->info.step_least;
        return;
    }
    if (history->every == 0) history->every = 1;
    if (history->due > 1) {
        history->due--;
        return;
    }
    if (history->n == PD_HISTORY_POINTS) thin(history);
    want = history->n < FIRST_POINTS ? FIRST_POINTS : history->n + 1;
    if (pd_grow((void **)&history->at, &history->room, want, sizeof *history->at) != PD_OK)
        return; /* out of memory: the point is left out */
    history->at[history->n++] = point_of(history, stats);
    history->due = history->every;
    history->step = stats->info.step_least;
    history->step_ns = stats->step_ns;
}

static pd_figure *find(const pd_figures *figures, uint32_t job)
{
    pd_figure *figure;

    HASH_FIND(hh, figures->table, &job, sizeof job, figure);
    return figure;
}

static void drop(pd_figures *figures, pd_figure *figure)
{
    DL_DELETE(figures->first, figure);
    HASH_DELETE(hh, figures->table, figure);
    if (figure->stats != NULL) figures->ranks -= figure->stats->n_ranks;
    figures->left_out -= figure->left_out;
    figures->removals++;
    free(figure->stats);
    free(figure->history.at);
    free(figure);
}

static pd_figure *add(pd_figures *figures, uint32_t job)
{
    pd_figure *figure = calloc(1, sizeof *figure);

    if (figure == NULL) return NULL;
    figure->job = job;
    HASH_ADD(hh, figures->table, job, sizeof figure->job, figure);
    if (figure->hh.tbl == NULL) {
        free(figure);
        return NULL;
    }
    figure->serial = ++figures->serial;
    DL_APPEND(figures->first, figure);
    return figure;
}

/* Replaces the figures of a job. Figures of ranks for which there is no room are left out, and their memory is
 * freed. */
static void replace(pd_figures *figures, pd_figure *figure, pd_job_stats *stats)
{
    size_t had = figure->stats != NULL ? figure->stats->n_ranks : 0, came = stats->n_ranks;
    size_t most = had + (PD_FIGURES_RANKS - figures->ranks) / 4;
    pd_job_stats *less;

    if (came > most) {
        stats->n_ranks = most;
        less = realloc(stats, sizeof *stats + most * sizeof stats->ranks[0]);
        if (less != NULL) stats = less;
    }
    free(figure->stats);
    figure->stats = stats;
    figures->ranks += stats->n_ranks;
    figures->ranks -= had;
    figures->left_out -= figure->left_out;
    figure->left_out = (size_t)stats->workers_in[PD_COUNT_CONNECTED] + stats->workers_in[PD_COUNT_LOST] +
                       stats->workers_in[PD_COUNT_LEFT] - stats->n_ranks;
    figures->left_out += figure->left_out;
}

void pd_figures_take(pd_figures *figures, uint32_t job, pd_job_stats *stats)
{
    pd_figure *figure = find(figures, job), *older;

    if (figure == NULL) {
        /* A job that is resized continues with a new number: remove the figures of its old number. */
        for (older = figures->first; older != NULL && strcmp(older->stats->info.name, stats->info.name) != 0;)
            older = older->next;
        if (older != NULL) drop(figures, older);
        figure = add(figures, job);
    }
    if (figure == NULL) {
        free(stats);
        return;
    }
    replace(figures, figure, stats);
    add_point(&figure->history, figure->stats);
}

void pd_figures_remove(pd_figures *figures, uint32_t job)
{
    pd_figure *figure = find(figures, job);

    if (figure != NULL) drop(figures, figure);
}

void pd_figures_free(pd_figures *figures)
{
    while (figures->first != NULL) drop(figures, figures->first);
}

const pd_figure *pd_figures_next(const pd_figures *figures, pd_figures_place *place)
{
    const pd_figure *figure = figures->first;

    if (place->figure != NULL && place->removals == figures->removals)
        figure = place->figure->next;
    else
        while (figure != NULL && figure->serial <= place->serial) figure = figure->next;
    if (figure != NULL) *place = (pd_figures_place){ figure->serial, figure, figures->removals };
    return figure;
}

uint64_t pd_figure_since(uint64_t then_ns, uint64_t now_ns)
{
    return then_ns > 0 && now_ns > then_ns ? now_ns - then_ns : 0;
}

/* Returns the time, by the store's clock, for which a job's last copy of figures is right: the time of the copy. If the
 * copy is more than two seconds old, nothing has changed in the job since, so the copy is right for now_ns. */
static uint64_t time_of(const pd_job_stats *stats, uint64_t now_ns)
{
    return pd_figure_since(stats->at_ns, now_ns) > 2 * PD_STATS_NS ? now_ns : stats->at_ns;
}

uint64_t pd_figure_wait(const pd_job_stats *stats, uint64_t now_ns)
{
    return pd_figure_since(stats->waits_ns, time_of(stats, now_ns));
}

double pd_figure_speed(const pd_job_stats *stats, uint64_t now_ns)
{
    double idle = (double)pd_figure_since(stats->step_ns, time_of(stats, now_ns)) / 1e9,
           speed = stats->info.steps_per_second;

    return speed > 0 && idle * speed > 1 ? 1 / idle : speed;
}

static uint64_t read_resident(const pd_daemon *daemon)
{
    char text[128];
    ssize_t n = pread(daemon->counters.statm, text, sizeof text - 1, 0);
    char *space;

    if (n <= 0) return 0;
    text[n] = '\0';
    space = strchr(text, ' ');
    return space != NULL ? strtoull(space, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Returns the kernel's peak of resident memory, or the present value if that is larger: the kernel updates its peak
 * only at intervals. */
static uint64_t read_peak(uint64_t resident)
{
    struct rusage usage;
    uint64_t peak = getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;

    return peak > resident ? peak : resident;
}

bool pd_server_is_healthy(const pd_daemon *daemon)
{
    return daemon->config.hooks.busy_ns == NULL || daemon->config.hooks.busy_ns(daemon->config.hooks.arg) < PD_STUCK_NS;
}

const char *pd_server_state(const pd_daemon *daemon)
{
    pd_place place = daemon->cluster != NULL ? pd_cluster_place(daemon->cluster) : PD_PLACE_OWNER;

    if (daemon->shutdown.begun || daemon->shutdown.drains) return "draining";
    if (place == PD_PLACE_ASKS) return "joining";
    if (place == PD_PLACE_SPARE) return "spare";
    return daemon->mail.requests == NULL ? "recovering" : "ready";
}

/* Returns the bytes of memory in the transports of all connections, which no budget counts. */
static uint64_t transport_bytes(const pd_daemon *daemon)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < daemon->table.capacity; i++)
        if (daemon->table.at[i] != NULL) bytes += pd_transport_held(daemon->table.at[i]->transport);
    return bytes;
}

static uint64_t lent_connections(const pd_daemon *daemon)
{
    uint64_t n = 0;

    for (size_t i = 0; i < daemon->table.capacity; i++)
        n += daemon->table.at[i] != NULL && pd_conn_is_lent(daemon->table.at[i], PD_ON_READ | PD_ON_WRITE);
    return n;
}

void pd_server_figures_read(pd_server_figures *out, const pd_daemon *daemon)
{
    const pd_lag *lag = &daemon->counters.lag;
    const pd_platform *platform = &daemon->platform;

    *out = (pd_server_figures){
        .state = pd_server_state(daemon),
        .healthy = pd_server_is_healthy(daemon),
        .time = platform->unix_ms != NULL ? (double)platform->unix_ms(platform->arg) / 1e3 : 0,
        .connections = daemon->table.n,
        .ranks_left_out = daemon->figures.left_out,
        .ingest_limit = daemon->ingest.admission.budget,
        .ingest_used = daemon->ingest.admission.used,
        .resident_bytes = read_resident(daemon),
        .tls_bytes = transport_bytes(daemon),
        .bytes_in = daemon->counters.bytes_in,
        .bytes_out = daemon->counters.bytes_out,
        .frames_in = daemon->counters.frames_in,
        .frames_refused = daemon->counters.frames_refused,
        .moves = daemon->counters.moves,
        .moved_in = daemon->counters.moved_in,
        .moved_out = daemon->counters.moved_out,
        .lent = lent_connections(daemon),
    };
    if (daemon->cluster != NULL) {
        const pd_cluster_table *table = pd_cluster_table_now(daemon->cluster);
        out->tenure = table->tenure;
        out->lease_ms = table->lease_ms;
        out->engine_up = table->engine_up;
    }
    out->ready = strcmp(out->state, "ready") == 0;
    out->peak_resident_bytes = read_peak(out->resident_bytes);
    if (daemon->mail.requests != NULL)
        out->uptime_seconds = (double)(pd_loop_now_ms(daemon) - daemon->counters.started_ms) / 1e3;
    for (const pd_figure *figure = daemon->figures.first; figure != NULL; figure = figure->next) {
        out->jobs++;
        out->committed_bytes += figure->stats->info.committed_bytes;
    }
    out->loop_busy_ms[0] = pd_lag_percentile(lag, 0.5);
    out->loop_busy_ms[1] = pd_lag_percentile(lag, 0.99);
    out->loop_busy_ms[2] = pd_lag_percentile(lag, 0.999);
    out->loop_busy_ms[3] = (double)lag->largest_ns / 1e6;
}
