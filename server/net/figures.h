/* figures.h - numbers for operators about jobs and the daemon: the last copy of each job's figures (pd_job_stats),
 * points of its history for curves, the bytes of its connections, and the figures of the whole daemon. Loop thread.
 *
 * The step thread sends a copy of a job's figures about once a second. /metrics and /jobs.json are written from these
 * copies, so a scrape costs the step thread nothing. */
#ifndef PD_FIGURES_H
#define PD_FIGURES_H

#include "daemon_config.h"
#include "stats.h"

#include <stdint.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* How many bytes one job has received and sent. The counters of all jobs are in a hash table: a pointer to a pd_traffic
 * refers to the whole table, and is NULL if the table is empty. */
typedef struct pd_traffic pd_traffic;

/* Makes the byte counters of a job, unless it has them already. Without memory, the bytes of the job are not
 * counted. */
void pd_traffic_add(pd_traffic **jobs, uint32_t job);
/* Adds received bytes (`in`) and sent bytes (`out`) to the counters of a job. Does nothing if the job has none. */
void pd_traffic_count(pd_traffic *jobs, uint32_t job, uint64_t in, uint64_t out);
/* Sets *in and *out to the received and sent bytes of a job; 0 if the job has no counters. */
void pd_traffic_read(pd_traffic *jobs, uint32_t job, uint64_t *in, uint64_t *out);
/* Removes the byte counters of a job that has ended. */
void pd_traffic_remove(pd_traffic **jobs, uint32_t job);
void pd_traffic_free(pd_traffic **jobs); /* removes the byte counters of all jobs */

#define PD_HISTORY_POINTS 512
/* Most ranks whose figures are kept, of all jobs together. A job gets room for at most a quarter of the ranks that are
 * still free, so that some stay free for later jobs. */
#define PD_FIGURES_RANKS 16384

/* One point of the curves of a job. */
typedef struct pd_history_point {
    uint64_t step;
    double loss, gradient_norm; /* the last value that the job had; NaN: it had none yet */
    double ms_per_step;         /* mean time of a step, over the steps since the previous point of the curve */
} pd_history_point;

/* The curves of a job: at most PD_HISTORY_POINTS points. When there is no room, every second point is removed, and from
 * then on points are added half as often. */
typedef struct pd_history {
    pd_history_point *at; /* room for `room` points */
    size_t n, room;
    uint64_t every, due;    /* every: a point is added for each `every`th copy of the job's figures. due: number of
                             * copies until the next point */
    uint64_t step, step_ns; /* step: newest step at the last point. step_ns: time at which that step was closed, in ns
                             * of the store's clock */
} pd_history;

/* The figures of one job. */
typedef struct pd_figure pd_figure;
struct pd_figure {
    uint32_t job;    /* number of the job */
    uint64_t serial; /* serial number of this struct: a later job has a larger one */
    pd_job_stats *stats;
    size_t left_out; /* number of ranks that have joined the job, but whose figures are not kept */
    pd_history history;
    pd_figure *prev, *next; /* neighbours in the list of all jobs, which is in the order of `serial` */
    UT_hash_handle hh;      /* entry of the hash table of all jobs; the key is `job` */
};

/* The figures of all jobs: a list and a hash table. */
typedef struct pd_figures {
    pd_figure *first, *table;
    uint64_t ranks;    /* number of ranks whose figures are kept, of all jobs */
    uint64_t left_out; /* sum of pd_figure.left_out over all jobs */
    uint64_t serial;   /* serial number of the newest pd_figure */
    uint64_t removals; /* number of jobs that were removed so far */
} pd_figures;

/* A position in the list of jobs, between two calls of pd_figures_next. Begins zeroed. */
typedef struct pd_figures_place {
    uint64_t serial;         /* serial number of the job that was returned last; 0: none was */
    const pd_figure *figure; /* figures of the job that was returned last; valid only while no job is removed */
    uint64_t removals;       /* pd_figures.removals when `figure` was set */
} pd_figures_place;

/* Replaces the last copy of a job's figures by `stats`, which it takes over. Removes the figures of ranks for
 * which PD_FIGURES_RANKS leaves no room. Without memory, `stats` is freed. */
void pd_figures_take(pd_figures *figures, uint32_t job, pd_job_stats *stats);
/* Removes the figures of a job that has ended. */
void pd_figures_remove(pd_figures *figures, uint32_t job);
void pd_figures_free(pd_figures *figures);
/* Returns the figures of the job after `place` in the order of serial numbers, and moves `place` to it. NULL: there is
 * none. No job is missed or repeated, even if jobs begin and end between two calls. */
const pd_figure *pd_figures_next(const pd_figures *figures, pd_figures_place *place);

/* Returns the steps per second of a job at the time now_ns: the speed in the last copy of its figures, or less if the
 * present step already takes longer than that speed implies. */
double pd_figure_speed(const pd_job_stats *stats, uint64_t now_ns);
/* Returns for how many ns the oldest open round of a job has waited at the time now_ns; 0: no round is open. */
uint64_t pd_figure_wait(const pd_job_stats *stats, uint64_t now_ns);
/* Returns the ns from then_ns, a time of the store's clock, to now_ns; 0: then_ns is 0 (not known) or after now_ns. */
uint64_t pd_figure_since(uint64_t then_ns, uint64_t now_ns);

/* The figures of the whole daemon at one time. */
typedef struct pd_server_figures {
    const char *state; /* pd_server_state */
    bool ready;        /* workers are served: the state is "ready" */
    bool healthy;      /* the step thread makes progress */
    double time;       /* seconds since 1970, by this machine's clock; 0: there is none (simulator) */
    double uptime_seconds;
    uint64_t connections, jobs;
    uint64_t ingest_limit, ingest_used;           /* ingest_limit: bytes of the ingest budget. ingest_used: bytes of it
                                                   * that payloads in flight take */
    uint64_t resident_bytes, peak_resident_bytes; /* resident memory of the process now, and its peak */
    uint64_t tls_bytes;                           /* memory of the buffers of TLS connections */
    uint64_t committed_bytes;                     /* bytes that all jobs together have claimed of the memory limit
                                                   * (footprint.h) */
    uint64_t ranks_left_out;                      /* number of ranks that have joined a job, but whose figures are not
                                                   * kept */
    uint64_t bytes_in, bytes_out, frames_in, frames_refused;
    uint64_t moves, moved_in, moved_out, lent; /* moves, moved_in, moved_out: as in pd_loop_counters. lent: number of
                                                * connections of which movers have a direction */
    uint64_t tenure, lease_ms;                 /* in a cluster with an engine: pd_cluster_table */
    bool engine_up;
    double loop_busy_ms[4]; /* ms that 50 %, 99 %, 99.9 % and all of the loop's turns did not exceed */
} pd_server_figures;

void pd_server_figures_read(pd_server_figures *out, const pd_daemon *daemon);
/* Returns whether the step thread's present turn has taken less than PD_STUCK_NS, or nobody measures it. */
bool pd_server_is_healthy(const pd_daemon *daemon);
/* Returns "ready", "draining", "recovering" (jobs are loaded), "joining" (the engine has not answered yet) or "spare"
 * (the daemon waits for a shard). */
const char *pd_server_state(const pd_daemon *daemon);

#endif
