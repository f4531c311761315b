/* archive.h - one visitor that writes state to a byte buffer, or reads state back from such a buffer. Pure; no
 * globals; any thread.
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
 * The status is sticky. After the first error every visit does nothing and leaves its object unchanged. So visitors
 * check the status only before they allocate, loop or look something up. The error text names the open sections.
 *
 * The reader trusts no byte. Reading allocates at most a small multiple of the image's size. The image has no
 * checksum: a caller that writes it to a file adds one. Errors:
 *
 *   - PD_DATA_LOSS: the image is cut or damaged, or a value is out of its bounds.
 *   - PD_UNIMPLEMENTED: the image has another version of the format, or other fields.
 *   - PD_INVALID_ARGUMENT: another kind of object wrote the image (pd_archive_agree).
 *   - PD_NO_MEMORY.
 *
 * Format, little-endian: magic, version (4 bytes each), length of the image (8). A section is the length of its name
 * (1), its name, the length of its content (8), its content. A table of fields begins with a fingerprint (8) of the
 * names, types and lengths of its fields. */
#ifndef PD_ARCHIVE_H
#define PD_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

/* ---- tables of fields ---- */

typedef enum pd_field_kind {
    PD_FIELD_BOOL,
    PD_FIELD_U8,
    PD_FIELD_I32,
    PD_FIELD_U32,
    PD_FIELD_I64,
    PD_FIELD_U64,
    PD_FIELD_F32,
    PD_FIELD_F64,
    PD_FIELD_TEXT,   /* char[N] that ends with a NUL */
    PD_FIELD_STRING, /* char *: NULL, or owned text. Reading frees the old text, and allocates the new one */
} pd_field_kind;

typedef struct pd_field {
    const char *name;
    size_t offset; /* offset of the member in the record */
    pd_field_kind kind;
    size_t bytes;        /* size of the member: of an array, all elements */
    int64_t least, most; /* integers: the bounds that are checked when the field is read. STRING: at most `most`
                          * bytes. 0 and 0: no bounds */
} pd_field;

/* Derives the kind of a field from the member's C type; a type that is not listed does not compile. An enum counts
 * as U32; list it by PD_FIELD_IN with its last value as the bound. */
#define PD_FIELD_KIND(x)                                                                                               \
    _Generic(&(x), char **: PD_FIELD_STRING, default: _Generic((x),                     \
    bool: PD_FIELD_BOOL, bool *: PD_FIELD_BOOL, uint8_t: PD_FIELD_U8, uint8_t *: PD_FIELD_U8,                \
    int32_t: PD_FIELD_I32, int32_t *: PD_FIELD_I32, uint32_t: PD_FIELD_U32, uint32_t *: PD_FIELD_U32,        \
    int64_t: PD_FIELD_I64, int64_t *: PD_FIELD_I64, uint64_t: PD_FIELD_U64, uint64_t *: PD_FIELD_U64,        \
    float: PD_FIELD_F32, float *: PD_FIELD_F32, double: PD_FIELD_F64, double *: PD_FIELD_F64,                \
    char *: PD_FIELD_TEXT))
#define PD_FIELD_IN(type, member, least, most)                                                                         \
    {                                                                                                                  \
#member, offsetof(type, member), PD_FIELD_KIND(((type *)0)->member), sizeof((type *)0)->member, (least),       \
            (most)                                                                                                     \
    }
#define PD_FIELD(type, member) PD_FIELD_IN(type, member, 0, 0)

/* The fields of one type of record. */
typedef struct pd_table {
    const char *name;       /* name of the record type, for error texts */
    size_t size;            /* size of a record */
    const pd_field *fields; /* array that ends with a field whose name is NULL */
} pd_table;

/* ---- an archive ---- */

#define PD_ARCHIVE_VERSION 1
#define PD_ARCHIVE_DEPTH 8          /* most sections that may be open at once */
#define PD_ARCHIVE_STRING (1 << 20) /* most bytes of a STRING that has no bounds */

typedef struct pd_section {
    const char *name; /* name of the section, borrowed while it is open */
    size_t at;        /* offset in the image. Writing: of the section's length field. Reading: of the section's end */
} pd_section;

/* The state of a writer or reader. Only archive.c uses the members. */
typedef struct pd_archive {
    bool reading;
    uint8_t *own;        /* writing: the buffer that grows */
    const uint8_t *from; /* reading: the image, borrowed */
    size_t at;           /* number of bytes written, or read, so far */
    size_t size;         /* writing: capacity of the buffer. Reading: length of the image */
    pd_section open[PD_ARCHIVE_DEPTH];
    int depth;
    pd_error err; /* the first error; code PD_OK: none so far */
} pd_archive;

/* Begins to write an image. The caller must end it with pd_archive_end, also after an error. */
void pd_archive_begin_write(pd_archive *archive);
/* Begins to read an image. The image is borrowed until pd_archive_end. */
void pd_archive_begin_read(pd_archive *archive, const void *image, size_t n);
/* Ends the archive. All sections must be closed, unless there was an error. Returns the status, and fills *err with
 * the first error.
 *
 * A writer gets the image in *image (free() it) and its size in *n; after an error *image is NULL and *n is 0. A
 * reader may pass NULL for `image` and `n`. For a reader it is an error if bytes of the image are left. */
int pd_archive_end(pd_archive *archive, uint8_t **image, size_t *n, pd_error *err);

bool pd_archive_is_reading(const pd_archive *archive);
/* Returns PD_OK, or the code of the first error. */
int pd_archive_status(const pd_archive *archive);
/* Records an error that the caller has found. The error text begins with the names of the open sections. Only the
 * first error counts. Returns the status. */
int pd_archive_fail(pd_archive *archive, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Begin and end a section. A reader checks the section's name, and that its content was read to the end. Names have
 * 1 to 255 bytes, and are borrowed while the section is open. */
void pd_archive_enter(pd_archive *archive, const char *name);
void pd_archive_leave(pd_archive *archive);

/* ---- visits ---- */

/* Visit one record, or an array of n records, by its table. The image does not contain n: the reader must know it. */
void pd_archive_fields(pd_archive *archive, const pd_table *table, void *record);
void pd_archive_records(pd_archive *archive, const pd_table *table, void *records, size_t n);
/* Visits a list of records: first their number, then the records. Returns the array of records:
 *     job->ranges = pd_archive_list(archive, &range_table, job->ranges, &job->n_ranges, MOST);
 * A reader passes NULL as the array and 0 as its length. It gets a new array: free() it and the STRINGs in it, also
 * after an error. More than `most` records are an error. For an empty list the array is NULL. */
void *pd_archive_list(pd_archive *archive, const pd_table *table, void *records, size_t *n, size_t most);

/* Visits *n, the number of elements that follow. A reader may then allocate memory for *n elements, because it
 * refuses two kinds of numbers: numbers above `most`, and numbers of elements that cannot fit into the rest of the
 * section, if each takes at least `least_bytes` (1 or more). After an error *n is 0 for a reader. */
void pd_archive_count(pd_archive *archive, size_t *n, size_t most, size_t least_bytes);
/* Visits n bytes of memory. The image does not contain n: the reader must know it. */
void pd_archive_bytes(pd_archive *archive, void *at, size_t n);
/* Visits one variable; its type must be one that a field may have. Example: pd_archive_value(archive, &count). */
#define pd_archive_value(archive, at) pd_archive_member((archive), PD_FIELD_KIND(*(at)), (at), sizeof *(at))
void pd_archive_member(pd_archive *archive, pd_field_kind kind, void *at, size_t bytes);

/* Checks that an image is read by the same kind of object that wrote it. A writer writes the text `mine`. A reader
 * refuses an image that has another text: "<what> is <mine> here, but <the other> in the image". Texts have at most
 * 4,096 bytes. */
void pd_archive_agree(pd_archive *archive, const char *what, const char *mine);

#endif
