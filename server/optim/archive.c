/* archive.c - writes the state of objects to an image, or reads it from an image without trusting its bytes. */
#include "archive.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "images hold numbers as they lie in memory");
_Static_assert(sizeof(size_t) == sizeof(uint64_t) && sizeof(bool) == 1, "numbers have the same width in an image");

#define MAGIC 0x4d494450u /* "PDIM" */
/* offset in the image of its length, which follows magic number and version */
#define LENGTH_AT 8
#define LEAST_ROOM 4096  /* bytes of a writer's first buffer */
#define AGREED_TEXT 4096 /* most bytes of a text of pd_archive_agree */

int pd_archive_fail(pd_archive *archive, int code, const char *format, ...)
{
    char text[PD_ERROR_TEXT] = "";
    size_t n = 0;
    va_list args;

    if (archive->err.code != PD_OK) return archive->err.code;
    for (int i = 0; i < archive->depth && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%.60s: ", archive->open[i].name);
    va_start(args, format);
    if (n < sizeof text) vsnprintf(text + n, sizeof text - n, format, args);
    va_end(args);
    return pd_fail(&archive->err, code, "%s", text);
}

int pd_archive_status(const pd_archive *archive)
{
    return archive->err.code;
}
bool pd_archive_is_reading(const pd_archive *archive)
{
    return archive->reading;
}

static bool is_ok(const pd_archive *archive)
{
    return archive->err.code == PD_OK;
}

/* Returns the error code for a value that is out of its bounds. If an image is being read, it is damaged; if one is
 * being written, the writing program has a bug. */
static int code_of_misfit(const pd_archive *archive)
{
    return archive->reading ? PD_DATA_LOSS : PD_INTERNAL;
}

static bool grow(pd_archive *archive, size_t wanted)
{
    size_t size = archive->size + archive->size / 2;
    uint8_t *own;

    if (wanted <= archive->size) return true;
    if (size < wanted) size = wanted;
    if (size < LEAST_ROOM) size = LEAST_ROOM;
    if ((own = realloc(archive->own, size)) == NULL) {
        pd_archive_fail(archive, PD_NO_MEMORY, "no memory for an image of %zu bytes", size);
        return false;
    }
    archive->own = own;
    archive->size = size;
    return true;
}

/* Returns how many bytes are left to read in the open section, or in the whole image if no section is open. */
static size_t bytes_left(const pd_archive *archive)
{
    return (archive->depth > 0 ? archive->open[archive->depth - 1].at : archive->size) - archive->at;
}

/* Returns a pointer to the next n bytes of the image that is being read. Does not move the archive's position. NULL:
 * fewer bytes are left, or there was an earlier error. */
static const uint8_t *peek(pd_archive *archive, size_t n)
{
    if (!is_ok(archive)) return NULL;
    if (n <= bytes_left(archive)) return archive->from + archive->at;
    pd_archive_fail(archive, PD_DATA_LOSS, "expected %zu bytes, found %zu", n, bytes_left(archive));
    return NULL;
}

void pd_archive_bytes(pd_archive *archive, void *at, size_t n)
{
    const uint8_t *from;

    if (!is_ok(archive) || n == 0) return;
    if (archive->reading) {
        if ((from = peek(archive, n)) == NULL) return;
        memcpy(at, from, n);
    } else {
        if (!grow(archive, archive->at + n)) return;
        memcpy(archive->own + archive->at, at, n);
    }
    archive->at += n;
}

static size_t element_bytes(pd_field_kind kind)
{
    switch (kind) {
    case PD_FIELD_I32:
    case PD_FIELD_U32:
    case PD_FIELD_F32: return 4;
    case PD_FIELD_I64:
    case PD_FIELD_U64:
    case PD_FIELD_F64: return 8;
    default: return 1;
    }
}

/* Returns whether a number is within the bounds of its field. `at` points to the number: an element of the field. */
static bool in_bounds(const pd_field *field, const uint8_t *at)
{
    uint64_t bits = 0;
    int64_t value;

    memcpy(&bits, at, element_bytes(field->kind));
    if (field->kind == PD_FIELD_BOOL) return bits <= 1;
    if (field->kind == PD_FIELD_F32 || field->kind == PD_FIELD_F64) return true;
    if (field->least == 0 && field->most == 0) return true;
    if (field->kind == PD_FIELD_U64 && bits > INT64_MAX) return false;
    value = field->kind == PD_FIELD_I32 ? (int32_t)bits : (int64_t)bits;
    return value >= field->least && value <= field->most;
}

static void visit_numbers(pd_archive *archive, const pd_field *field, void *at)
{
    const uint8_t *bytes = archive->reading ? peek(archive, field->bytes) : at;

    for (size_t i = 0; is_ok(archive) && i < field->bytes; i += element_bytes(field->kind))
        if (!in_bounds(field, bytes + i))
            pd_archive_fail(archive, code_of_misfit(archive), "%s is out of its bounds", field->name);
    pd_archive_bytes(archive, at, field->bytes);
}

void pd_archive_count(pd_archive *archive, size_t *n, size_t most, size_t least_bytes)
{
    uint64_t count = *n;

    pd_archive_bytes(archive, &count, sizeof count);
    if (is_ok(archive) && count > most)
        pd_archive_fail(archive, code_of_misfit(archive), "a number is %zu, expected at most %zu", (size_t)count, most);
    if (is_ok(archive) && archive->reading && count > bytes_left(archive) / least_bytes)
        pd_archive_fail(archive, PD_DATA_LOSS, "%zu elements do not fit the rest of the section", (size_t)count);
    if (archive->reading) *n = is_ok(archive) ? count : 0;
}

/* Writes or reads a text: first its length *n, then its bytes. When an image is written, the bytes are those of `mine`,
 * and the result is `mine`. When an image is read, the result points to the text in the image, which has no NUL at its
 * end. NULL: there was an error. */
static const char *visit_chars(pd_archive *archive, const char *name, const char *mine, size_t *n, size_t most)
{
    const char *at = mine;

    pd_archive_count(archive, n, most, 1);
    if (archive->reading) {
        at = (const char *)peek(archive, *n);
        if (at != NULL && memchr(at, 0, *n) != NULL) pd_archive_fail(archive, PD_DATA_LOSS, "%s is no text", name);
        archive->at += is_ok(archive) ? *n : 0;
    } else {
        pd_archive_bytes(archive, (void *)(uintptr_t)mine, *n);
    }
    return is_ok(archive) ? at : NULL;
}

static void visit_text(pd_archive *archive, const pd_field *field, char *at)
{
    size_t n = archive->reading ? 0 : strnlen(at, field->bytes);
    const char *text = visit_chars(archive, field->name, at, &n, field->bytes - 1);

    if (text == NULL || !archive->reading) return;
    memcpy(at, text, n);
    at[n] = '\0';
}

static void visit_string(pd_archive *archive, const pd_field *field, char **at)
{
    size_t most = field->most > 0 ? (size_t)field->most : PD_ARCHIVE_STRING;
    bool present = *at != NULL;
    size_t n = present && !archive->reading ? strlen(*at) : 0;
    const char *text;
    char *copy = NULL;

    pd_archive_value(archive, &present);
    if (!is_ok(archive)) return;
    if (present) {
        text = visit_chars(archive, field->name, *at, &n, most);
        if (text == NULL || !archive->reading) return;
        if ((copy = strndup(text, n)) == NULL) {
            pd_archive_fail(archive, PD_NO_MEMORY, "no memory for %s", field->name);
            return;
        }
    }
    if (!archive->reading) return;
    free(*at);
    *at = copy;
}

static void visit_field(pd_archive *archive, const pd_field *field, void *at)
{
    if (!is_ok(archive)) return;
    switch (field->kind) {
    case PD_FIELD_TEXT: visit_text(archive, field, at); break;
    case PD_FIELD_STRING: visit_string(archive, field, at); break;
    default: visit_numbers(archive, field, at); break;
    }
}

void pd_archive_member(pd_archive *archive, pd_field_kind kind, void *at, size_t bytes)
{
    visit_field(archive, &(pd_field){ .name = "a value", .kind = kind, .bytes = bytes }, at);
}

void pd_archive_agree(pd_archive *archive, const char *what, const char *mine)
{
    size_t length = strlen(mine), n = length;
    const char *other = visit_chars(archive, what, mine, &n, AGREED_TEXT);

    if (other == NULL || (n == length && memcmp(other, mine, n) == 0)) return;
    pd_archive_fail(archive, PD_INVALID_ARGUMENT, "%.60s is %.120s here, but %.*s in the image", what, mine,
                    n > 120 ? 120 : (int)n, other);
}

/* Returns a hash (FNV-1a) of the names, types and sizes of a table's fields. Images contain it, so that a reader can
 * refuse an image with other fields. */
static uint64_t fingerprint(const pd_table *table)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (const pd_field *field = table->fields; field->name != NULL; field++) {
        char text[160];
        int n = snprintf(text, sizeof text, "%s/%d/%zu;", field->name, (int)field->kind, field->bytes);
        assert(n < (int)sizeof text);
        for (int i = 0; i < n; i++) hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    }
    return hash;
}

/* Returns the least number of bytes that a struct with the table's fields takes in an image. */
static size_t least_bytes(const pd_table *table)
{
    size_t n = 0;

    for (const pd_field *field = table->fields; field->name != NULL; field++) {
        switch (field->kind) {
        case PD_FIELD_TEXT: n += sizeof(uint64_t); break;
        case PD_FIELD_STRING: n += sizeof(bool); break;
        default: n += field->bytes; break;
        }
    }
    return n;
}

void pd_archive_records(pd_archive *archive, const pd_table *table, void *records, size_t n)
{
    uint64_t mine = fingerprint(table), other = mine;

    pd_archive_value(archive, &other);
    if (other != mine)
        pd_archive_fail(archive, PD_UNIMPLEMENTED, "%s: its fields are not those of this version", table->name);
    for (size_t i = 0; is_ok(archive) && i < n; i++)
        for (const pd_field *field = table->fields; field->name != NULL; field++)
            visit_field(archive, field, (char *)records + i * table->size + field->offset);
}

void pd_archive_fields(pd_archive *archive, const pd_table *table, void *record)
{
    pd_archive_records(archive, table, record, 1);
}

void *pd_archive_list(pd_archive *archive, const pd_table *table, void *records, size_t *n, size_t most)
{
    assert(!archive->reading || (records == NULL && *n == 0));
    pd_archive_count(archive, n, most, least_bytes(table));
    if (archive->reading && *n > 0 && (records = calloc(*n, table->size)) == NULL) {
        pd_archive_fail(archive, PD_NO_MEMORY, "no memory for %zu of %s", *n, table->name);
        *n = 0;
    }
    pd_archive_records(archive, table, records, *n);
    return records;
}

/* Writes the name of a section. When an image is read, checks that the section which begins here has this name. */
static void visit_name(pd_archive *archive, const char *name)
{
    size_t length = strlen(name);
    uint8_t n = (uint8_t)length;
    const uint8_t *other;

    assert(length >= 1 && length <= UINT8_MAX);
    pd_archive_value(archive, &n);
    if (!archive->reading) {
        pd_archive_bytes(archive, (void *)(uintptr_t)name, n);
    } else if ((other = peek(archive, n)) != NULL) {
        if (n != length || memcmp(other, name, n) != 0)
            pd_archive_fail(archive, PD_DATA_LOSS, "expected section %s, found %.*s", name, n > 60 ? 60 : n,
                            (const char *)other);
        archive->at += n;
    }
}

void pd_archive_enter(pd_archive *archive, const char *name)
{
    uint64_t length = 0;
    size_t at;

    assert(archive->depth < PD_ARCHIVE_DEPTH);
    visit_name(archive, name);
    at = archive->at;
    pd_archive_value(archive, &length);
    if (!is_ok(archive)) return;
    if (archive->reading && length > bytes_left(archive)) {
        pd_archive_fail(archive, PD_DATA_LOSS, "section %s is cut", name);
        return;
    }
    archive->open[archive->depth++] = (pd_section){ name, archive->reading ? archive->at + length : at };
}

void pd_archive_leave(pd_archive *archive)
{
    uint64_t length;
    size_t at;

    if (!is_ok(archive)) return;
    assert(archive->depth > 0);
    if (!archive->reading) {
        at = archive->open[archive->depth - 1].at;
        length = archive->at - at - sizeof length;
        memcpy(archive->own + at, &length, sizeof length);
    } else if (bytes_left(archive) > 0) {
        pd_archive_fail(archive, PD_DATA_LOSS, "the section has %zu bytes too many", bytes_left(archive));
    }
    archive->depth--;
}

bool pd_archive_has_more(const pd_archive *archive)
{
    return archive->reading && is_ok(archive) && bytes_left(archive) > 0;
}

/* Writes or reads the first bytes of an image: magic number, version and length. A writer does not know the length yet
 * and writes 0; pd_archive_end writes the length there. */
static void visit_header(pd_archive *archive)
{
    uint32_t magic = MAGIC, version = PD_ARCHIVE_VERSION;
    uint64_t length = archive->size;

    pd_archive_value(archive, &magic);
    if (magic != MAGIC) pd_archive_fail(archive, PD_DATA_LOSS, "these bytes are no image");
    pd_archive_value(archive, &version);
    if (version != PD_ARCHIVE_VERSION)
        pd_archive_fail(archive, PD_UNIMPLEMENTED, "expected version %u, found %u", PD_ARCHIVE_VERSION, version);
    pd_archive_value(archive, &length);
    if (archive->reading && length != archive->size)
        pd_archive_fail(archive, PD_DATA_LOSS, "expected %zu bytes, found %zu", (size_t)length, archive->size);
}

void pd_archive_begin_write(pd_archive *archive)
{
    *archive = (pd_archive){ 0 };
    visit_header(archive);
}

void pd_archive_use(pd_archive *archive, void *memory, size_t bytes)
{
    if (!is_ok(archive) || bytes <= archive->size) {
        free(memory);
        return;
    }
    memcpy(memory, archive->own, archive->at);
    free(archive->own);
    archive->own = memory;
    archive->size = bytes;
}

void pd_archive_begin_read(pd_archive *archive, const void *image, size_t n)
{
    *archive = (pd_archive){ .reading = true, .from = image, .size = n };
    visit_header(archive);
}

static void give_image(pd_archive *archive, uint8_t **image, size_t *n)
{
    uint64_t length = archive->at;

    *image = NULL;
    *n = 0;
    if (is_ok(archive)) {
        memcpy(archive->own + LENGTH_AT, &length, sizeof length);
        *image = archive->own;
        *n = archive->at;
    } else {
        free(archive->own);
    }
    archive->own = NULL;
}

int pd_archive_end(pd_archive *archive, uint8_t **image, size_t *n, pd_error *err)
{
    assert(!is_ok(archive) || archive->depth == 0);
    if (archive->reading && is_ok(archive) && bytes_left(archive) > 0)
        pd_archive_fail(archive, PD_DATA_LOSS, "the image has %zu bytes too many", bytes_left(archive));
    if (!archive->reading) give_image(archive, image, n);
    return is_ok(archive) ? PD_OK : pd_fail(err, archive->err.code, "%s", archive->err.text);
}
