/* metrics.h - writes the figures of the daemon and its jobs as Prometheus reads them: text 0.0.4 or OpenMetrics 1.0.
 * Loop thread.
 *
 * One table has a row for each metric (metrics.c). Labels are bounded: `job` is on all metrics of jobs, `rank` is on
 * three, for the first PD_STATS_RANKS ranks of a job that have come, and at most PD_FIGURES_RANKS of all jobs. None
 * names a parameter. Texts from peers are escaped. */
#ifndef PD_METRICS_H
#define PD_METRICS_H

#include "document.h"
#include "server_figures.h"

/* How far the writing of the metrics is. Begins zeroed, except `open`. */
typedef struct pd_metrics_cursor {
    bool open;                /* OpenMetrics 1.0; false: text 0.0.4 */
    size_t row;               /* index of the metric that is written next */
    pd_server_figures server; /* the daemon's figures, read once */
    pd_figures_place place;   /* the last job whose samples of this metric are written */
} pd_metrics_cursor;

/* Appends the next piece: all samples of the daemon, or those of one job, of one metric. Returns false when everything
 * was written before. Jobs that come or go between two pieces do not disturb the others. */
bool pd_metrics_next(pd_metrics_cursor *cursor, const pd_daemon *daemon, pd_document *out);
/* Returns the name of metric number i of the table, as queries have it; NULL: there is no such row. */
const char *pd_metrics_name(size_t i);

#endif
