/* document.c - appends texts, numbers and labels to a buffer that grows. */
#include "document.h"

#include "grow.h"
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 4096 };

void pd_document_free(pd_document *document)
{
    free(document->at);
    *document = (pd_document){ 0 };
}

void pd_document_clear(pd_document *document)
{
    document->n = 0;
}

/* Makes room for n more bytes and a final '\0'. Returns false if out of memory. */
static bool reserve(pd_document *document, size_t n)
{
    size_t want = document->n + n + 1;

    if (want < FIRST_ROOM) want = FIRST_ROOM;
    if (pd_grow((void **)&document->at, &document->room, want, 1) == PD_OK) return true;
    document->failed = true;
    return false;
}

void pd_document_add(pd_document *document, const char *bytes, size_t n)
{
    if (!reserve(document, n)) return;
    memcpy(document->at + document->n, bytes, n);
    document->n += n;
    document->at[document->n] = '\0';
}

void pd_document_put(pd_document *document, const char *format, ...)
{
    char text[1024];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pd_document_add(document, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

/* Appends a text in quotes: as JSON, or as the value of a metric's label. */
static void put_quoted(pd_document *document, const char *text, bool json)
{
    char out[PD_ESCAPE];
    size_t left = strlen(text), used;

    pd_document_add(document, "\"", 1);
    for (; left > 0; text += used, left -= used) {
        size_t n = pd_json_next(out, text, left, &used);
        bool escaped = out[0] == '\\' && n > 2;
        if (json || !escaped)
            pd_document_add(document, out, n);
        else
            pd_document_put(document, *text == '\n' ? "\\n" : "?");
    }
    pd_document_add(document, "\"", 1);
}

void pd_document_json_text(pd_document *document, const char *text)
{
    put_quoted(document, text, true);
}

void pd_document_label(pd_document *document, const char *text)
{
    put_quoted(document, text, false);
}

/* Appends a number with 15 digits, or with 17 if 15 are too few to read back the same number. */
static void put_finite(pd_document *document, double value)
{
    char text[40];

    snprintf(text, sizeof text, "%.15g", value);
    if (strtod(text, NULL) != value) snprintf(text, sizeof text, "%.17g", value);
    pd_document_put(document, "%s", text);
}

void pd_document_json_number(pd_document *document, double value)
{
    if (isfinite(value))
        put_finite(document, value);
    else
        pd_document_put(document, "null");
}

void pd_document_value(pd_document *document, double value)
{
    if (isfinite(value))
        put_finite(document, value);
    else
        pd_document_put(document, "%s", isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
}
