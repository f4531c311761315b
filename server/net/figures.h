/* figures.h - figures for operators: the last copy of each job's figures (pd_job_stats), points of the past for curves,
 * the bytes of each job's connections, and the figures of the whole daemon. Loop thread.
 *
 * The step thread publishes a copy about once a second. Metrics and /jobs.json are made from these copies, so a scrape
 * costs the step thread nothing. */
#ifndef PD_FIGURES_H
#define PD_FIGURES_H

#include "daemon_config.h"
#include "stats.h"

#include <stdint.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

typedef struct pd_traffic pd_traffic; /* byte counters of one job, linked to those of all others; NULL: there are no
                                       * jobs */

/* Makes the byte counters of a job, unless it has them already. Without memory its bytes are not counted. */
void pd_traffic_add(pd_traffic **jobs, uint32_t job);
/* Adds to the byte counters of a job. Does nothing if the job has none. */
void pd_traffic_count(pd_traffic *jobs, uint32_t job, uint64_t in, uint64_t out);
/* Reads the byte counters of a job. They are 0 if the job has none. */
void pd_traffic_read(pd_traffic *jobs, uint32_t job, uint64_t *in, uint64_t *out);
/* Removes the byte counters of a job that has ended. */
void pd_traffic_remove(pd_traffic **jobs, uint32_t job);
void pd_traffic_free(pd_traffic **jobs); /* removes the byte counters of all jobs */

#define PD_HISTORY_POINTS 512
/* Most ranks of all jobs whose figures are kept. A job gets room for at most a quarter of what is left, so there is
 * some for those that come later. */
#define PD_FIGURES_RANKS 16384

/* A point of a job's past. */
typedef struct pd_history_point {
    uint64_t step;
    double loss, gradient_norm; /* of the last step that had one; NaN: no step had */
    double ms_per_step;         /* mean time of a step, over the steps since the previous point of the curve */
} pd_history_point;

/* Points of a job's past, at most PD_HISTORY_POINTS. When there is no room, every second point goes, and from then on
 * half as many are taken. */
typedef struct pd_history {
    pd_history_point *at; /* room for `room` points */
    size_t n, room;
    uint64_t every, due;    /* every so many copies give a point; number of copies until the next one does */
    uint64_t step, step_ns; /* newest step at the last point, and the time at which it was closed */
} pd_history;

/* The figures of one job. */
typedef struct pd_figure pd_figure;
struct pd_figure {
    uint32_t job;    /* number of the job */
    uint64_t serial; /* numbers the figures in the order in which jobs came */
    pd_job_stats *stats;
    size_t left_out; /* number of ranks that have come and whose figures are not kept */
    pd_history history;
    pd_figure *prev, *next; /* the list, in the order of `serial` */
    UT_hash_handle hh;      /* the table, by `job` */
};

typedef struct pd_figures {
    pd_figure *first, *table;
    uint64_t ranks;    /* number of ranks whose figures are kept */
    uint64_t left_out; /* number of ranks that have come and whose figures are not kept */
    uint64_t serial;   /* serial number of the job that came last */
    uint64_t removals; /* number of jobs that were forgotten so far */
} pd_figures;

/* A position in the list of jobs. Begins zeroed. */
typedef struct pd_figures_place {
    uint64_t serial;         /* serial number of the last job; 0: none yet */
    const pd_figure *figure; /* the last job, as long as none is forgotten */
    uint64_t removals;       /* pd_figures.removals at that time */
} pd_figures_place;

/* Takes over a copy of a job's figures in place of the last one, without those of ranks for which there is no room.
 * Without memory the copy is dropped. */
void pd_figures_take(pd_figures *figures, uint32_t job, pd_job_stats *stats);
/* Forgets a job, which has ended. */
void pd_figures_remove(pd_figures *figures, uint32_t job);
void pd_figures_free(pd_figures *figures);
/* Returns the figures of the next job, in the order of serial numbers, and moves `place` to it. NULL: there is none. No
 * job is missed or repeated, although jobs begin and end meanwhile. */
const pd_figure *pd_figures_next(const pd_figures *figures, pd_figures_place *place);

/* Returns the steps per second of a job at that time: the rate that was published, or less if the step under way is
 * slower already. */
double pd_figure_speed(const pd_job_stats *stats, uint64_t now_ns);
/* Returns for how many ns the oldest open round of a job has waited at that time; 0: none is open. */
uint64_t pd_figure_wait(const pd_job_stats *stats, uint64_t now_ns);
/* Returns the ns since a time of the store's clock; 0: it is not known (0) or lies ahead. */
uint64_t pd_figure_since(uint64_t then_ns, uint64_t now_ns);

typedef struct pd_server_figures {
    const char *state; /* "ready", "draining" or "recovering" */
    bool ready;        /* workers are served: the state is "ready" */
    bool healthy;      /* the step thread makes progress */
    double time;       /* seconds since 1970, by this machine's clock; 0: there is none (simulator) */
    double uptime_seconds;
    uint64_t connections, jobs;
    uint64_t ingest_limit, ingest_used;           /* most bytes of gradients in flight; bytes that are */
    uint64_t resident_bytes, peak_resident_bytes; /* memory of the process, now and at most */
    uint64_t tls_bytes;                           /* memory in which bytes of TLS connections wait */
    uint64_t committed_bytes;                     /* memory that all jobs together have claimed (footprint.h) */
    uint64_t ranks_left_out;                      /* ranks that have come, and have no figures of their own */
    uint64_t bytes_in, bytes_out, frames_in, frames_refused;
    double loop_busy_ms[4]; /* times that 50 %, 99 %, 99.9 % and all of the loop's turns did not exceed */
} pd_server_figures;

void pd_server_figures_read(pd_server_figures *out, const pd_daemon *daemon);
/* Returns whether the step thread has been at one piece of work for less than a minute. */
bool pd_server_is_healthy(const pd_daemon *daemon);
/* Returns "ready", "draining" or "recovering". */
const char *pd_server_state(const pd_daemon *daemon);

#endif
