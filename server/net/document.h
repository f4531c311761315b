/* document.h - the documents that HTTP serves in pieces: a text that grows as it is written, /metrics and /jobs.json.
 * Loop thread.
 *
 * Without memory the document is marked as failed and stays as it was. So callers write a whole piece, and look at
 * `failed` once.
 *
 * **Metrics.** One table has a row for each metric (metrics.c). Labels are bounded: `job` is on all metrics of jobs,
 * `rank` is on three, for the first PD_STATS_RANKS ranks of a job that have come, and at most PD_FIGURES_RANKS of all
 * jobs. None names a parameter. Texts from peers are escaped. */
#ifndef PD_DOCUMENT_H
#define PD_DOCUMENT_H

#include "loop.h"
#include "figures.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pd_document {
    char *at;
    size_t n, room;
    bool failed; /* memory was out: some text is missing */
} pd_document;

void pd_document_free(pd_document *document);
/* Empties the document and keeps its memory. */
void pd_document_clear(pd_document *document);
void pd_document_add(pd_document *document, const char *bytes, size_t n);
/* Writes at most 1023 bytes. */
void pd_document_put(pd_document *document, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes a text as JSON, in quotes. Characters that are not printable (text.h) are escaped, and bytes that are not
 * UTF-8 become "?". */
void pd_document_json_text(pd_document *document, const char *text);
/* Writes a number as JSON, so that the same number is read back; null if it is not finite. */
void pd_document_json_number(pd_document *document, double value);
/* Writes a text as the value of a label of a metric, in quotes, with the escapes of Prometheus. Characters that
 * are not printable, except line ends, and bytes that are not UTF-8 become "?". */
void pd_document_label(pd_document *document, const char *text);
/* Writes a number as the value of a metric: "NaN", "+Inf", "-Inf", or digits from which the same number is read
 * back. */
void pd_document_value(pd_document *document, double value);

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

/* How far the writing of the document is. Begins zeroed. */
typedef struct pd_jobs_json_cursor {
    bool begun, ended;
    pd_figures_place place; /* the last job that was written */
} pd_jobs_json_cursor;

/* Appends the next piece: the daemon's figures, those of one job, or the end. Returns false when everything was written
 * before. */
bool pd_jobs_json_next(pd_jobs_json_cursor *cursor, const pd_daemon *daemon, pd_document *out);

#endif
