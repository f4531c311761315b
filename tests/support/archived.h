/* archived.h - an object with a field of every kind, and the function that visits its fields, for tests of archives. */
#ifndef ARCHIVED_H
#define ARCHIVED_H

#include "archive.h"

enum { ARCHIVED_MOST = 8 };

typedef struct archived_point {
    uint32_t x;
    char *label; /* NULL, or owned */
} archived_point;

typedef struct archived {
    bool flag;
    uint8_t small;
    int32_t level; /* -3 to 5 */
    uint64_t large;
    float single[3];
    double wide;
    char name[16];
    char *text; /* NULL, or owned */
    archived_point *points;
    size_t n_points; /* at most ARCHIVED_MOST */
} archived;

/* Visits all fields of the object, in an archive section named "thing". */
void archived_visit(pd_archive *archive, archived *thing);
/* Writes the object to an image, which the caller frees. */
int archived_write(archived *thing, uint8_t **image, size_t *n, pd_error *err);
/* Reads an image into an empty object. The caller calls archived_free after an error, too. */
int archived_read(archived *thing, const uint8_t *image, size_t n, pd_error *err);
/* Frees the texts and points that the object owns. */
void archived_free(archived *thing);

#endif
