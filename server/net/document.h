/* document.h - builds the texts that HTTP sends: a buffer that grows, and the writers of /metrics and /jobs.json, which
 * append one part of their text at a time. Loop thread.
 *
 * If memory is lacking, the functions leave text out and set `failed`. So a caller writes a whole part, and checks
 * `failed` once.
 *
 * **Metrics.** One table has a row for each metric (metrics.c). The number of labels is bounded. All metrics of jobs
 * have the label `job`. Some have `rank`, for the first PD_STATS_RANKS ranks that have joined a job, and for at most
 * PD_FIGURES_RANKS ranks of all jobs. No label names a parameter. Texts from peers are escaped. */
#ifndef PD_DOCUMENT_H
#define PD_DOCUMENT_H

#include "loop.h"
#include "figures.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A text that grows: n bytes at `at`, followed by a '\0', in `room` bytes of memory. Begins zeroed. */
typedef struct pd_document {
    char *at;
    size_t n, room;
    bool failed; /* out of memory: some text is missing */
} pd_document;

void pd_document_free(pd_document *document);
/* Empties the document and keeps its memory. */
void pd_document_clear(pd_document *document);
void pd_document_add(pd_document *document, const char *bytes, size_t n);
/* Appends a formatted text, of which it keeps at most 1023 bytes. */
void pd_document_put(pd_document *document, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a text as JSON, in quotes. Characters that are not printable (text.h) are escaped. Bytes that are not UTF-8
 * become "?". */
void pd_document_json_text(pd_document *document, const char *text);
/* Appends a number as JSON, with as many digits as are needed to read back the same number; null if it is not
 * finite. */
void pd_document_json_number(pd_document *document, double value);
/* Appends a text as the value of a metric's label, in quotes, with the escapes of Prometheus. Bytes that are not UTF-8
 * become "?", and so do characters that are not printable, except line ends. */
void pd_document_label(pd_document *document, const char *text);
/* Appends a number as the value of a metric: "NaN", "+Inf", "-Inf", or with as many digits as are needed to read back
 * the same number. */
void pd_document_value(pd_document *document, double value);

/* How much of /metrics is written. Begins zeroed, except `open`. */
typedef struct pd_metrics_cursor {
    bool open;                /* the format is OpenMetrics 1.0; false: Prometheus' text 0.0.4 */
    size_t row;               /* index of the metric that is written next */
    pd_server_figures server; /* the daemon's figures, read once */
    pd_figures_place place;   /* the last job whose samples of this metric are written */
} pd_metrics_cursor;

/* Appends the next part of /metrics: the samples of one metric, of the daemon or of one job. Returns false if
 * everything was written before. Jobs that begin or end between two parts do not affect the samples of other jobs. */
bool pd_metrics_next(pd_metrics_cursor *cursor, const pd_daemon *daemon, pd_document *out);
/* Returns the name of row i of the table of metrics, as queries spell it; NULL: there is no such row. */
const char *pd_metrics_name(size_t i);

/* How much of /jobs.json is written. Begins zeroed. */
typedef struct pd_jobs_json_cursor {
    bool begun, ended;
    pd_figures_place place; /* the last job that was written */
} pd_jobs_json_cursor;

/* Appends the next part of /jobs.json: the daemon's figures, those of one job, or the end. Returns false if everything
 * was written before. */
bool pd_jobs_json_next(pd_jobs_json_cursor *cursor, const pd_daemon *daemon, pd_document *out);

#endif
