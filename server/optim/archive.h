/* archive.h - one visitor that writes state to a byte buffer, or reads state back from such a buffer.
 *
 * One function visits an object in both directions, so the writer and the reader cannot differ:
 *
 *     static const pd_field thing_fields[] = { PD_FIELD(thing, name), PD_FIELD_IN(thing, stage, 0, 3), { 0 } };
 *     static const pd_table thing_table = { "thing", sizeof(thing), thing_fields };
 *
 *     void visit_thing(pd_archive *archive, thing *t)
 *     {
 *         pd_archive_enter(archive, "thing");
 *         pd_archive_fields(archive, &thing_table, t);
 *         pd_archive_leave(archive);
 *     }
 *
 *     pd_archive_begin_write(&archive);           or: pd_archive_begin_read(&archive, bytes, n);
 *     visit_thing(&archive, &t);
 *     rc = pd_archive_end(&archive, &bytes, &n, &err);
 *
 * The status is sticky. After the first error every visit does nothing and leaves its object as it is, so visitors
 * check the status only where they would allocate, loop or look something up. The error text names the open sections.
 *
 * The reader trusts no byte. Codes of errors: PD_DATA_LOSS (cut, damaged, or a value out of its bounds),
 * PD_UNIMPLEMENTED (another version of the format, or other fields), PD_INVALID_ARGUMENT (pd_archive_agree: the image
 * was written by something else), PD_NO_MEMORY. Reading allocates at most a small multiple of the bytes that it is
 * given. The image has no checksum: whoever keeps it outside of memory adds one.
 *
 * Format, little-endian: magic, version (4 bytes each), length of the image (8). A section is the length of its name
 * (1), its name, the length of its content (8), its content. A table of fields begins with a fingerprint (8) of the
 * names, types and lengths of its fields. Pure; no globals; any thread. */
#ifndef PD_ARCHIVE_H
#define PD_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

/* ---- tables of fields ---- */

typedef enum pd_field_kind {
    PD_FIELD_BOOL, PD_FIELD_U8, PD_FIELD_I32, PD_FIELD_U32, PD_FIELD_I64, PD_FIELD_U64, PD_FIELD_F32, PD_FIELD_F64,
    PD_FIELD_TEXT,              /* char[N] that ends with a NUL */
    PD_FIELD_STRING,            /* char *: NULL, or owned text. Reading frees the old text, and allocates the new one */
} pd_field_kind;

typedef struct pd_field {
    const char   *name;
    size_t        offset;       /* in the record */
    pd_field_kind kind;
    size_t        bytes;        /* size of the member: of an array, all elements */
    int64_t       least, most;  /* integers: bounds checked when read. STRING: `most` bytes of text. Both 0: none */
} pd_field;

/* The kind of a member follows from its C type; another type does not compile. An enum counts as U32, and wants
 * PD_FIELD_IN with its last value. */
#define PD_FIELD_KIND(x) _Generic(&(x), char **: PD_FIELD_STRING, default: _Generic((x),                     \
    bool: PD_FIELD_BOOL, bool *: PD_FIELD_BOOL, uint8_t: PD_FIELD_U8, uint8_t *: PD_FIELD_U8,                \
    int32_t: PD_FIELD_I32, int32_t *: PD_FIELD_I32, uint32_t: PD_FIELD_U32, uint32_t *: PD_FIELD_U32,        \
    int64_t: PD_FIELD_I64, int64_t *: PD_FIELD_I64, uint64_t: PD_FIELD_U64, uint64_t *: PD_FIELD_U64,        \
    float: PD_FIELD_F32, float *: PD_FIELD_F32, double: PD_FIELD_F64, double *: PD_FIELD_F64,                \
    char *: PD_FIELD_TEXT))
#define PD_FIELD_IN(type, member, least, most) \
    { #member, offsetof(type, member), PD_FIELD_KIND(((type *)0)->member), sizeof ((type *)0)->member, (least), (most) }
#define PD_FIELD(type, member) PD_FIELD_IN(type, member, 0, 0)

/* The fields of one type of record. */
typedef struct pd_table {
    const char     *name;       /* for error texts */
    size_t          size;       /* of a record */
    const pd_field *fields;     /* ends with a NULL name */
} pd_table;

/* ---- an archive ---- */

#define PD_ARCHIVE_VERSION 1
#define PD_ARCHIVE_DEPTH   8            /* sections that may be open at once */
#define PD_ARCHIVE_STRING  (1 << 20)    /* bytes of a STRING without bounds */

typedef struct pd_section {
    const char *name;                   /* borrowed while the section is open */
    size_t      at;                     /* writing: where its length stands. Reading: where it ends */
} pd_section;

/* Its members belong to archive.c. */
typedef struct pd_archive {
    bool           reading;
    uint8_t       *own;                 /* writing: the buffer */
    const uint8_t *from;                /* reading: the image, borrowed */
    size_t         at;                  /* bytes written, or read */
    size_t         size;                /* capacity, or length of the image */
    pd_section     open[PD_ARCHIVE_DEPTH];
    int            depth;
    pd_error       err;                 /* code PD_OK: no error */
} pd_archive;

/* Begins an image. End it with pd_archive_end in any case. */
void pd_archive_begin_write(pd_archive *archive);
/* Begins to read an image, which must stay until pd_archive_end. */
void pd_archive_begin_read(pd_archive *archive, const void *image, size_t n);
/* Ends the archive; all sections must have been left, or an error have come. Returns the status, and fills *err with
 * the error. A writer gives *image (free() it) and *n; after an error *image is NULL and *n is 0. A reader checks that
 * the image has no further bytes; `image` and `n` may be NULL then. */
int  pd_archive_end(pd_archive *archive, uint8_t **image, size_t *n, pd_error *err);

bool pd_archive_is_reading(const pd_archive *archive);
/* Returns PD_OK, or the code of the first error. */
int  pd_archive_status(const pd_archive *archive);
/* Records an error that the caller has found; the names of the open sections come before its text. Only the first
 * error counts. Returns the status. */
int  pd_archive_fail(pd_archive *archive, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Begins and ends a section. A reader checks the name, and that the content was read to its end. Names have 1 to 255
 * bytes, and are borrowed while the section is open. */
void pd_archive_enter(pd_archive *archive, const char *name);
void pd_archive_leave(pd_archive *archive);

/* ---- visits ---- */

/* Visits one record by its table, or n records that lie one behind the other. Reader and writer know n. */
void pd_archive_fields(pd_archive *archive, const pd_table *table, void *record);
void pd_archive_records(pd_archive *archive, const pd_table *table, void *records, size_t n);
/* Visits a list of records: the number, then the records. Returns the records:
 *     job->ranges = pd_archive_list(archive, &range_table, job->ranges, &job->n_ranges, MOST);
 * A reader passes NULL and 0, and gets an array of its own: free() it, and the STRINGs in it, also after an error. More
 * than `most` are refused. An empty list reads as NULL. */
void *pd_archive_list(pd_archive *archive, const pd_table *table, void *records, size_t *n, size_t most);

/* Visits a number: *n things follow. A reader refuses more than `most`, and more than fit the rest of the section when
 * each takes at least `least_bytes` (1 or more). So memory for *n things may be allocated. *n becomes 0 where reading
 * fails, or has failed before. */
void pd_archive_count(pd_archive *archive, size_t *n, size_t most, size_t least_bytes);
/* Visits n bytes of memory as they are. Reader and writer know n. */
void pd_archive_bytes(pd_archive *archive, void *at, size_t n);
/* Visits a variable of any type that a table may have: pd_archive_value(archive, &count). */
#define pd_archive_value(archive, at) pd_archive_member((archive), PD_FIELD_KIND(*(at)), (at), sizeof *(at))
void pd_archive_member(pd_archive *archive, pd_field_kind kind, void *at, size_t bytes);

/* Makes sure that an image is read by the same kind of object that wrote it. A writer writes the text. A reader refuses
 * an image with another text: "<what> is <mine> here, but <the other> in the image". Texts have at most 4,096 bytes. */
void pd_archive_agree(pd_archive *archive, const char *what, const char *mine);

#endif
