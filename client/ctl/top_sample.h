/* top_sample.h - measures what a daemon and its jobs did between two answers to Status requests, and shows it as
 * `paramctl top' does: a row for each job, and a description of one. */
#ifndef PD_TOP_SAMPLE_H
#define PD_TOP_SAMPLE_H

#include "commands.h"
#include "ask_all.h"
#include "text_table.h"

typedef enum pd_top_order { PD_TOP_NAME, PD_TOP_SPEED, PD_TOP_MEMORY, PD_TOP_TRAFFIC, PD_TOP_ORDERS } pd_top_order;

/* The words that the option --sort accepts, one for each value of pd_top_order. */
extern const char *const pd_top_orders[PD_TOP_ORDERS];

enum { PD_TOP_PHASES = 4 };

/* Number of measured steps, and their total seconds in each phase: waiting, summing, stepping, publishing. */
typedef struct pd_top_times {
    uint64_t steps;
    double seconds[PD_TOP_PHASES];
} pd_top_times;

/* What a sample tells of one job. Fields with `per_s` and `speed` are rates since the sample before. */
typedef struct pd_top_job {
    char name[257], optimizer[64], state[16], waits_for[128];
    uint32_t connected, world_size;
    uint64_t step, waits_ms, memory, roots_behind, roots_failing, bytes_in, bytes_out;
    bool has_loss, has_roots;
    char durable[PD_DURABLE_TEXT]; /* which step survives a restart of the daemon */
    bool checkpoint_failing;       /* the last attempt at a checkpoint has failed, for the reason `checkpoint_error` */
    char checkpoint_error[160];
    uint64_t durable_step, checkpoint_age_ms, checkpoint_bytes;
    double speed, loss, in_per_s, out_per_s;
    double norm; /* norm of all gradients of the last step; 0: unknown */
    /* Numbers of steps with clipped gradients, of inverse roots that became due, that failed; steps since the oldest
     * root in use was computed; number of steps that waited for roots; bytes of weights, of optimizer state, and in
     * flight. */
    uint64_t clipped, roots_due, roots_failed, root_age, root_waits, weights, state_bytes, held;
    pd_top_times total; /* since the daemon started */
    /* Mean seconds of a step by phase, over the time between two samples if a step was closed then, otherwise since the
     * daemon started. All 0: no step was measured. */
    double phase[PD_TOP_PHASES];
} pd_top_job;

/* A rank for which steps waited. */
typedef struct pd_top_late {
    uint32_t rank;
    double share, by_s; /* fraction of the steps in which the rank was last; mean seconds by which it was last */
} pd_top_late;
enum { PD_TOP_LATE = 2 }; /* most ranks that are listed */

/* What a daemon and its jobs reported at one time, and rates since the sample before. Of a cluster: sums over the
 * daemons that answered; the time since the start is the shortest. */
typedef struct pd_top_sample {
    double at_s; /* time of the sample in seconds, on a monotonic clock */
    char server[64];
    bool draining;
    uint64_t uptime_ms, resident_bytes, ingest_used, ingest_bytes, bytes_in, bytes_out;
    double in_per_s, out_per_s;
    uint32_t connections;
    size_t n_daemons, n_shards; /* daemons that have answered; that were asked */
    pd_top_job *jobs;
    size_t n;
} pd_top_sample;

/* Takes a sample: asks the daemon for its status and for all jobs. Rates come from the changes since the sample
 * `before`; if `before` is NULL, all rates are 0. The caller frees *out, also after an error. */
int pd_top_take(pd_top_sample *out, pd_cluster *cluster, const pd_top_sample *before, pd_error *err);
/* Asks the daemon which ranks of a job steps waited for most often. Returns their number, at most PD_TOP_LATE; 0: none
 * is known, or the job has ended. */
size_t pd_top_take_late(pd_top_late out[PD_TOP_LATE], pd_cluster *cluster, const char *job);
void pd_top_free(pd_top_sample *sample);
void pd_top_sort(pd_top_sample *sample, pd_top_order order);
/* Makes a table with a row for each job of a sample. Its lines have at most `limit` characters. NULL: out of memory. */
pd_table *pd_top_table(const pd_top_sample *sample, int limit);
/* Writes the line above the table of jobs, such as "paramd 0.1.0, up 3 min, ...". */
void pd_top_headline(const pd_top_sample *sample, char *text, size_t size);

enum { PD_TOP_LINES = 9, PD_TOP_LINE = 200 };

/* The description of one job, `n` lines of text. */
typedef struct pd_top_detail {
    size_t n;
    char line[PD_TOP_LINES][PD_TOP_LINE];
    bool alarm[PD_TOP_LINES]; /* the line reports a failure, and is shown as an alarm */
} pd_top_detail;

/* Describes a job. `late` lists the n_late ranks that were last most often. */
void pd_top_describe(pd_top_detail *out, const pd_top_job *job, const pd_top_late *late, size_t n_late);

#endif
