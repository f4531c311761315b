/* document.h - a text that grows as it is written: pieces of a JSON document or of metrics, which leave over HTTP. Loop
 * thread.
 *
 * Without memory the document is marked as failed and stays as it was. So callers write a whole piece, and look at
 * `failed` once. */
#ifndef PD_DOCUMENT_H
#define PD_DOCUMENT_H

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

#endif
