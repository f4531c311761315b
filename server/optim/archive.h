/* archive.h - writes the state of objects to an image, and reads it back. Pure functions without global variables; any
 * thread.
 *
 * For each type of object one function, its visitor, does both. So the writer and the reader cannot differ:
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
 * After the first error all functions do nothing and leave the object unchanged. So a visitor checks for errors only
 * before it allocates, loops or looks something up. The error text names the sections that were open.
 *
 * The reader trusts no byte. Reading allocates at most a small multiple of the image's size. The image has no checksum:
 * a caller that writes it to a file adds one. Errors:
 *
 *   - PD_DATA_LOSS: the image is truncated or damaged, or a value is out of its bounds.
 *   - PD_UNIMPLEMENTED: the image has another version of the format, or other fields.
 *   - PD_INVALID_ARGUMENT: another kind of object wrote the image (pd_archive_agree).
 *   - PD_NO_MEMORY: out of memory.
 *
 * Format, little-endian: magic number, version (4 bytes each), length of the image (8). A section is the length of its
 * name (1), its name, the length of its content (8), its content. A table of fields begins with a fingerprint (8): a
 * hash of the names, types and lengths of its fields. */
#ifndef PD_ARCHIVE_H
#define PD_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

typedef enum pd_field_kind {
    PD_FIELD_BOOL,
    PD_FIELD_U8,
    PD_FIELD_I32,
    PD_FIELD_U32,
    PD_FIELD_I64,
    PD_FIELD_U64,
    PD_FIELD_F32,
    PD_FIELD_F64,
    PD_FIELD_TEXT, /* a member char[N] of a struct: a text that ends with a NUL */
    /* a member char * of a struct: NULL, or an allocated text. Reading frees the old text and allocates a new one */
    PD_FIELD_STRING,
} pd_field_kind;

/* A member of a struct that an image contains. */
typedef struct pd_field {
    const char *name;
    size_t offset; /* offset of the member in its struct, in bytes */
    pd_field_kind kind;
    size_t bytes; /* size of the struct's member in bytes; of an array, the size of all its elements */
    /* bounds of an integer, checked when it is written or read; both 0: no bounds. For a STRING, `most` is the largest
     * number of bytes; 0: PD_ARCHIVE_STRING */
    int64_t least, most;
} pd_field;

/* Derives the kind of a field from the C type of the struct's member. A type that is not listed here does not compile.
 * An enum counts as U32: list it by PD_FIELD_IN with its last value as the upper bound. */
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

/* A table: the list of those members of a struct that an image contains. */
typedef struct pd_table {
    const char *name;       /* name of the struct type that the table describes, for error texts */
    size_t size;            /* size in bytes of the struct type that the table describes */
    const pd_field *fields; /* the listed members of the struct: an array that ends with a field whose name is NULL */
} pd_table;

#define PD_ARCHIVE_VERSION 1
#define PD_ARCHIVE_DEPTH 8          /* most sections that may be open at once */
#define PD_ARCHIVE_STRING (1 << 20) /* most bytes of a text field of the kind STRING that has no bounds of its own */

/* A section that is open in an archive. */
typedef struct pd_section {
    const char *name; /* name of the section, borrowed while the section is open */
    /* offset in the image. When writing: of the field with the section's length. When reading: of the end of the
     * section */
    size_t at;
} pd_section;

/* An archive: the state of one writer or reader of an image. Only archive.c uses the members. */
typedef struct pd_archive {
    bool reading;
    uint8_t *own;        /* when writing: the buffer with the image, which grows */
    const uint8_t *from; /* when reading: the image, borrowed from the caller */
    size_t at;           /* number of bytes of the image that were written or read so far */
    size_t size;         /* when writing: capacity of the buffer in bytes. When reading: length of the image */
    pd_section open[PD_ARCHIVE_DEPTH];
    int depth;    /* number of open sections: open[0] to open[depth - 1] */
    pd_error err; /* the first error of the writer or reader; its code is PD_OK as long as there was none */
} pd_archive;

/* Begins to write an image. The caller must end it with pd_archive_end, also after an error. */
void pd_archive_begin_write(pd_archive *archive);
/* Gives a writer `memory` (`bytes` bytes from malloc) as the buffer for its image. The archive owns `memory` from now
 * on: it frees it at once if its own buffer is as large already, or after an error. If the image needs more than
 * `bytes`, the buffer grows. Call it right after pd_archive_begin_write. */
void pd_archive_use(pd_archive *archive, void *memory, size_t bytes);
/* Begins to read an image. The image is borrowed until pd_archive_end. */
void pd_archive_begin_read(pd_archive *archive, const void *image, size_t n);
/* Ends the writing or reading of an image. All sections must be closed, unless there was an error. Returns PD_OK or the
 * code of the first error, and fills *err with that error.
 *
 * A writer gets the image in *image (free() it) and its size in *n; after an error *image is NULL and *n is 0. A reader
 * may pass NULL for `image` and `n`. For a reader it is an error if bytes of the image are left. */
int pd_archive_end(pd_archive *archive, uint8_t **image, size_t *n, pd_error *err);

bool pd_archive_is_reading(const pd_archive *archive);
/* Returns PD_OK, or the code of the first error of the archive. */
int pd_archive_status(const pd_archive *archive);
/* Stores an error that the caller has found while it writes or reads an image. The error text begins with the names of
 * the open sections. Only the first error counts. Returns the code of the first error. */
int pd_archive_fail(pd_archive *archive, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* pd_archive_enter begins a section, pd_archive_leave ends it. A reader checks the section's name, and that the
 * section's content was read to the end. Names have 1 to 255 bytes, and are borrowed while the section is open. */
void pd_archive_enter(pd_archive *archive, const char *name);
void pd_archive_leave(pd_archive *archive);
/* Returns true if the open section has bytes that a reader has not read yet; false for a writer. Use: a later version
 * may add fields at the end of a section. If the function returns false there, the image is older, and the visitor
 * skips these fields. */
bool pd_archive_has_more(const pd_archive *archive);

/* Write or read the members that the table lists: of one struct (pd_archive_fields), or of an array of n structs
 * (pd_archive_records). The image does not contain n: the reader must know it. */
void pd_archive_fields(pd_archive *archive, const pd_table *table, void *record);
void pd_archive_records(pd_archive *archive, const pd_table *table, void *records, size_t n);
/* Writes or reads an array of structs whose length the image contains: first the length, then the structs. Returns the
 * array:
 *
 *     job->ranges = pd_archive_list(archive, &range_table, job->ranges, &job->n_ranges, MOST);
 *
 * A reader passes NULL as the array and 0 as its length. It gets a new array: free() it and the STRINGs in it, also
 * after an error. More than `most` structs are an error. For a length of 0 the array is NULL. */
void *pd_archive_list(pd_archive *archive, const pd_table *table, void *records, size_t *n, size_t most);

/* Writes or reads *n, the number of elements that follow in the image. A reader may then allocate memory for *n
 * elements, because it refuses two kinds of numbers: numbers above `most`, and numbers of elements that cannot fit into
 * the rest of the section, if each takes at least `least_bytes` (1 or more). After an error *n is 0 for a reader. */
void pd_archive_count(pd_archive *archive, size_t *n, size_t most, size_t least_bytes);
/* Writes n bytes of memory to an image, or reads them. The image does not contain n: the reader must know it. */
void pd_archive_bytes(pd_archive *archive, void *at, size_t n);
/* Writes or reads one variable; its type must be one that a field may have (pd_field_kind). Example:
 * pd_archive_value(archive, &count). */
#define pd_archive_value(archive, at) pd_archive_member((archive), PD_FIELD_KIND(*(at)), (at), sizeof *(at))
void pd_archive_member(pd_archive *archive, pd_field_kind kind, void *at, size_t bytes);

/* Checks that an image is read by the same kind of object that wrote it. A writer writes the text `mine`, which names
 * the kind. A reader refuses an image that has another text: "<what> is <mine> here, but <the other> in the image".
 * Texts have at most 4,096 bytes. */
void pd_archive_agree(pd_archive *archive, const char *what, const char *mine);

#endif
